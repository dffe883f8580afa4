"""What is read on the held-out photos of other countries, where no text is labelled."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from plate_models.detection import box_iou_xyxy
from plate_models.engines.nets import Nets
from plate_models.images import decode
from plate_models.training.evaluation.labelled import Progress
from plate_models.training.evaluation.results import Answer, boxes_of, count_lines, plain
from plate_models.training.figures import Count, events, proportion
from plate_models.training.labels import load_labels, validation_names

FOLDER = "world_photos"


@dataclass
class WorldReport:
    """Found plates and readable texts on photos of other countries."""

    photos: int = 0  # how many were read
    # Per labelled plate, the best IoU with a found box.
    overlaps: list[float] = field(default_factory=list)
    # Every readable answer. On a foreign plate it is wrong; but some photos show Russian plates, so
    # only a person can tell.
    readable: list[Answer] = field(default_factory=list)

    def counts(self) -> list[Count]:
        """Recall, and how many photos carry a readable text."""
        return [
            proportion("detector recall, IoU 0.5", [iou >= 0.5 for iou in self.overlaps]),
            proportion("detector recall, IoU 0.7", [iou >= 0.7 for iou in self.overlaps]),
            events("readable texts per photo, right or wrong", len(self.readable), self.photos),
        ]

    def lines(self) -> list[str]:
        """The report for a terminal: counts, and every readable text by name."""
        return [
            *count_lines(self.counts()),
            "",
            f"Readable texts on {self.photos} photos: {len(self.readable)}, to be looked at",
            *(
                f"  {a.photo:<40} {a.text:<10} score {a.score:.3f}  {a.format}"
                for a in self.readable
            ),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values."""
        return {
            "counts": [count.to_dict() for count in self.counts()],
            "photos": self.photos,
            "overlaps": self.overlaps,
            "readable": [plain(answer) for answer in self.readable],
        }


def evaluate_world(data: Path, nets: Nets, progress: Progress = iter) -> WorldReport:
    """Read the validation fifth of ``data/world_photos``.

    Raises:
        FileNotFoundError: There is no such labelled set.
        LabelError: Its table of labels is broken.
    """
    photos = load_labels(data / FOLDER)
    held_out = validation_names(photo.path.name for photo in photos)
    report = WorldReport(photos=len(held_out))
    for photo in progress([photo for photo in photos if photo.path.name in held_out]):
        plates = nets.read(torch.from_numpy(decode(photo.path.read_bytes())))
        labels = torch.tensor([plate.box for plate in photo.plates])
        overlaps = box_iou_xyxy(labels, boxes_of(plates))
        report.overlaps += overlaps.amax(dim=1).tolist() if plates else [0.0] * len(labels)
        answers = [Answer.of(photo.path.name, plate) for plate in plates]
        report.readable += [answer for answer in answers if answer.text]
    return report
