"""The scoreboard: what detector, recognizer and the whole get right on labelled photos."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plate_models.geometry import box_iou_xyxy, crop_boxes
from plate_models.images import decode
from plate_models.labels import LabelledPhoto, LabelledPlate, load_labels, load_negatives
from plate_models.pipeline import Plate, Reading, normalize, read_plates, read_rectified
from plate_models.weights import Modules

ReadPhoto = Callable[[Tensor], list[Plate]]


@dataclass(frozen=True)
class Count:
    """So many of so many, as a rate with its 95 % interval."""

    name: str
    hits: int
    total: int

    @property
    def rate(self) -> float:
        """Share of hits; not a number if nothing was counted."""
        return self.hits / self.total if self.total else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson score interval (Wilson 1927) at 95 %."""
        if not self.total:
            return (0.0, 1.0)
        z, n, p = 1.959964, self.total, self.rate
        centre = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return (max(0.0, centre - half), min(1.0, centre + half))


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
        everything, legible = self.plates, self.legible
        rows = [
            Count(
                "detector recall, IoU 0.5", sum(p.iou >= 0.5 for p in everything), len(everything)
            ),
            Count(
                "detector recall, IoU 0.7", sum(p.iou >= 0.7 for p in everything), len(everything)
            ),
            Count(
                "recognizer exact match, labelled box",
                sum(p.read_in_label == p.text for p in legible),
                len(legible),
            ),
            Count("end-to-end exact match", sum(p.read for p in legible), len(legible)),
        ]
        for crop, texts in self.baseline.items():
            right = sum(text == p.text for text, p in zip(texts, legible, strict=True))
            rows.append(Count(f"published recognizer, {crop}", right, len(legible)))
        if self.photos_without:
            false_photos = len({photo for photo, _ in self.false_texts})
            rows.append(
                Count("photos without plates, read as a plate", false_photos, self.photos_without)
            )
        return rows

    def character_error_rate(self) -> float:
        """Edit distance over characters, recognizer with labelled boxes."""
        errors = sum(edit_distance(p.read_in_label, p.text) for p in self.legible)
        return errors / max(1, sum(len(p.text) for p in self.legible))

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values."""
        return {
            "counts": [
                {**asdict(c), "rate": c.rate, "interval_95": c.interval} for c in self.counts()
            ],
            "character_error_rate": self.character_error_rate(),
            "false_texts": self.false_texts,
            "plates": [{**asdict(p), "read": p.read} for p in self.plates],
            "baseline": self.baseline,
        }


def edit_distance(found: str, right: str) -> int:
    """Levenshtein distance: insertions, deletions and substitutions."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(found, 1):
        previous, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    return row[-1]


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
        rectified, _ = modules.rectify(normalize(crop_boxes(image, boxes)))
        return read_rectified(rectified, modules.recognize)


def _score_baseline(board: Scoreboard, photo: LabelledPhoto, image: Any, published: Any) -> None:
    for plate in photo.plates:
        if plate.legible:
            for crop, text in published.read(image, plate.box).items():
                board.baseline[crop].append(text)
