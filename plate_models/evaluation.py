"""The scoreboard: what detector, recognizer and the whole get right on labelled photos."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plate_models.figures import Count, edit_distance, events, proportion, ratio
from plate_models.geometry import box_iou_xyxy
from plate_models.images import decode
from plate_models.labels import LabelledPhoto, LabelledPlate, load_labels, load_negatives
from plate_models.pipeline import Plate, Reading, choose_readings, look_at, read_plates
from plate_models.weights import Modules


@dataclass(frozen=True)
class PlateResult:
    """What became of one labelled plate.

    Attributes:
        photo: File name.
        text: The label.
        width: Of the labelled box, in pixels.
        light: "day", "dark" or "".
        legible: Whether a person can read it.
        iou: Best overlap with a found box.
        read_in_label: The recognizer's best text with the labelled box.
        read_end_to_end: The answer's texts on boxes with IoU >= 0.5, "" where unreadable.
    """

    photo: str
    text: str
    width: float
    light: str
    legible: bool
    iou: float
    read_in_label: str
    read_end_to_end: tuple[str, ...]

    @property
    def read(self) -> bool:
        """Whether a box on the plate carries exactly its text."""
        return self.text in self.read_end_to_end


@dataclass
class Scoreboard:
    """Every labelled plate's fate, and what was read where no plate is."""

    plates: list[PlateResult] = field(default_factory=list)
    photos_without: int = 0
    false_texts: list[tuple[str, str]] = field(default_factory=list)
    baseline: dict[str, list[str]] = field(default_factory=dict)

    @property
    def legible(self) -> list[PlateResult]:
        """The plates whose text is known for sure."""
        return [plate for plate in self.plates if plate.legible]

    def counts(self) -> list[Count]:
        """The scoreboard's rows."""
        found = [plate.iou for plate in self.plates]
        legible = self.legible
        rows = [
            proportion("detector recall, IoU 0.5", [iou >= 0.5 for iou in found]),
            proportion("detector recall, IoU 0.7", [iou >= 0.7 for iou in found]),
            proportion(
                "recognizer exact match, labelled box",
                [plate.read_in_label == plate.text for plate in legible],
            ),
            proportion("end-to-end exact match", [plate.read for plate in legible]),
            ratio(
                "character error rate, labelled box",
                [edit_distance(plate.read_in_label, plate.text) for plate in legible],
                [len(plate.text) for plate in legible],
            ),
        ]
        for crop, texts in self.baseline.items():
            right = [text == plate.text for text, plate in zip(texts, legible, strict=True)]
            rows.append(proportion(f"published recognizer, {crop}", right))
        if self.photos_without:
            false = len(self.false_texts)
            rows.append(events("readable plates in photos without", false, self.photos_without))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values."""
        return {
            "counts": [{**asdict(count), "rate": count.rate} for count in self.counts()],
            "false_texts": self.false_texts,
            "plates": [{**asdict(p), "read": p.read} for p in self.plates],
            "baseline": self.baseline,
        }


def evaluate(
    data: Path,
    modules: Modules,
    baseline: Path | None = None,
    progress: Callable[[list[LabelledPhoto]], Any] = iter,
) -> Scoreboard:
    """Score the nets at the operating point of ``spec.py``.

    Args:
        data: Holds ``ru_photos/`` and optionally ``no_plates/``, or is itself a labelled
            set (``images/`` and ``plates.csv``).
        modules: The nets.
        baseline: Folder of the published recognizer (``stn.pt``, ``lprnet.pt``), scored
            on the same crops in the same run; None to leave it out.
        progress: Wraps each list of photos, for a progress bar.

    Returns:
        The scoreboard.

    Raises:
        FileNotFoundError: There is no labelled set in ``data``.
    """
    labelled = data / "ru_photos" if (data / "ru_photos").is_dir() else data
    board = Scoreboard()
    published = None
    if baseline is not None:
        from plate_models.baseline import Baseline

        published = Baseline(baseline)
        board.baseline = {crop: [] for crop in published.crops}
    for photo in progress(load_labels(labelled)):
        image = torch.from_numpy(decode(photo.path.read_bytes()))
        board.plates += _score_photo(photo, image, modules)
        if published is not None:
            _score_baseline(board, photo, image.numpy(), published)
    if (data / "no_plates").is_dir():
        negatives = load_negatives(data / "no_plates", held_out=True)
        board.photos_without = len(negatives)
        for photo in progress(negatives):
            image = torch.from_numpy(decode(photo.path.read_bytes()))
            texts = [plate.reading.text for plate in _read(image, modules)]
            board.false_texts += [(photo.path.name, text) for text in texts if text]
    return board


def _read(image: Tensor, modules: Modules) -> list[Plate]:
    with torch.inference_mode():
        return read_plates(image, modules.detect, modules.rectify, modules.recognize)


def _score_photo(photo: LabelledPhoto, image: Tensor, modules: Modules) -> list[PlateResult]:
    labels = torch.tensor([plate.box for plate in photo.plates])
    found = _read(image, modules)
    boxes = torch.tensor([plate.box for plate in found]).reshape(-1, 4)
    overlaps = box_iou_xyxy(labels, boxes)
    in_label = read_boxes(image, labels, modules)
    return [
        _result(photo, plate, overlaps[i], found, in_label[i])
        for i, plate in enumerate(photo.plates)
    ]


def _result(
    photo: LabelledPhoto, plate: LabelledPlate, overlaps: Tensor, found: list[Plate], best: Reading
) -> PlateResult:
    matching = [found[j].reading.text for j in (overlaps >= 0.5).nonzero()[:, 0].tolist()]
    return PlateResult(
        photo=photo.path.name,
        text=plate.text,
        width=plate.box[2] - plate.box[0],
        light=plate.light,
        legible=plate.legible,
        iou=float(overlaps.max()) if found else 0.0,
        read_in_label=best.candidates[0][0] if best.candidates else "",
        read_end_to_end=tuple(matching),
    )


def read_boxes(image: Tensor, boxes: Tensor, modules: Modules) -> list[Reading]:
    """Read given boxes, without the detector.

    Args:
        image: (H, W, 3) uint8 RGB.
        boxes: (N, 4) float xyxy in its pixels.
        modules: The nets.

    Returns:
        N readings.
    """
    with torch.inference_mode():
        lines = torch.ones(len(boxes), dtype=torch.int64)
        seen = look_at(image, boxes, lines, modules.rectify, modules.recognize)
        return choose_readings(seen, lines.tolist())


def _score_baseline(board: Scoreboard, photo: LabelledPhoto, image: Any, published: Any) -> None:
    for plate in photo.plates:
        if plate.legible:
            for crop, text in published.read(image, plate.box).items():
                board.baseline[crop].append(text)
