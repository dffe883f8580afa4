"""The detector's training photos, and the windows that are drawn from them.

Dashcams show small plates, the photos of the training set large ones. A photo that is downscaled
until its plate is 20 pixels wide fills only a corner of a window, so a window is divided into
cells, and each cell shows another photo.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from plate_models.rectification import bounding_boxes_of
from plate_models.spec import DETECTOR
from plate_models.training import labels
from plate_models.training.imaging import shift_by
from plate_models.training.synthetic.kinds import CAR, DRAWN, kind_named
from plate_models.training.synthetic.latin import LATIN
from plate_models.training.synthetic.photo import camera, photograph
from plate_models.training.synthetic.scenes import paint_clutter, paint_plate
from plate_models.training.tables import choose, log_uniform, pick

# Boxes with a larger aspect ratio have one line of text.
_LONG = 2.6
# Corners relative to a box's middle, in halves of its sides.
_OCTAGON = np.array([(x, y) for a, b in ((1, 0.5), (0.5, 1)) for x in (-a, a) for y in (-b, b)])


@dataclass(frozen=True)
class TrainingPhoto:
    """A decoded photo with its labels."""

    image: NDArray[np.uint8]  # (H, W, 3) uint8 RGB
    # (K, 8, 2) float32 corners of the plates in pixels; a quad's corners are listed twice. K = 0
    # for a photo without plates.
    outlines: NDArray[np.float32]
    lines: NDArray[np.int64]  # (K,) int64 lines of text on each plate, 1 or 2; 0 if unknown
    unclear: NDArray[np.float32]  # (U, 8, 2) float32, like outlines: things that may be plates
    mistaken: NDArray[np.float32]  # (M, 4) float32 boxes of false detections

    @property
    def boxes(self) -> NDArray[np.float32]:
        """(K, 4) float32 x0, y0, x1, y1 in pixels: the plates' bounding boxes."""
        return bounding_boxes_of(self.outlines)


def load_world(data: Path) -> list[TrainingPhoto]:
    """Decode the training part of ``world_photos`` (about 1.2 GB)."""
    photos = labels.load_world_photos(data, held_out=False)
    if not photos:
        raise labels.LabelError(f"{data / 'world_photos'}: all its photos are held out")
    return [*map(_decoded, photos)]


def load_empty(data: Path) -> list[TrainingPhoto]:
    """Decode the training half of ``no_plates``."""
    return [*map(_decoded, labels.load_negatives(data / "no_plates", held_out=False))]


def _decoded(photo: labels.LabelledPhoto) -> TrainingPhoto:
    findings = photo.findings
    boxes = _boxes([*(plate.box for plate in photo.plates), *findings.plates])
    # Labels are only boxes: long plates have one line; the lines of others (one in North America,
    # elsewhere two) are unknown.
    sides = boxes[:, 2:] - boxes[:, :2]
    lines = (sides[:, 0] > _LONG * sides[:, 1]).astype(np.int64)
    outlines, unclear = _octagons(boxes), _octagons(_boxes(findings.unclear))
    return TrainingPhoto(photo.read(), outlines, lines, unclear, _boxes(findings.mistaken))


def _boxes(boxes: Sequence[labels.Box]) -> NDArray[np.float32]:
    """(K, 4) float32 x0, y0, x1, y1."""
    return np.array(boxes, np.float32).reshape(-1, 4)


def _octagons(boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    """(K, 8, 2) float32 outlines of boxes: tilted plates don't fill a box's corners."""
    sides = boxes[:, 2:] - boxes[:, :2]
    return (boxes[:, None, :2] + (sides / 2)[:, None] * (1 + _OCTAGON)).astype(np.float32)


# A plate that a cell's edge cuts is a target down to the first share of its area, and unclear down
# to the second.
_VISIBLE = 0.6
_UNCLEAR = 0.1
# Narrower plates, in pixels, are unclear: they can be neither read nor reliably detected.
_MIN_WIDTH = 9.0
# Share of `CAR` among the painted plates of one line that are not `LATIN`.
_CARS = 0.6
# Share of `LATIN`, plates of any country, among the painted plates.
_FOREIGN = 0.4
# Share of cells that are rotated like photos of a tilted camera; the largest angle, in radians.
_TILTED, _MOST_TILT = 0.45, np.radians(35)
_CAMERA = camera("windows")


@dataclass(frozen=True)
class WindowSettings:
    """The distribution of windows."""

    size: int = 384  # side of a window in pixels, a multiple of 32
    # Cells per side, range of plate widths in pixels (drawn log-uniformly), and probability.
    grids: tuple[tuple[int, tuple[float, float], float], ...] = (
        (1, (45.0, 290.0), 0.4),
        (2, (20.0, 110.0), 0.35),
        (3, (12.0, 60.0), 0.25),
    )
    background: float = 0.08  # probability that a cell shows a random part of a training photo
    negative: float = 0.25  # probability that a cell shows a photo without plates
    mistaken: float = 0.4  # probability that a cell shows a false detection, if its photo has one
    clutter: tuple[float, float] = (0.5, 2.0)  # mean number per cell: with plates, without
    painted: float = 0.5  # share of the plates that are replaced by rendered ones
    # Share of two-line plates among the painted plates: in place of a long plate, of a short one.
    two_lines: tuple[float, float] = (0.15, 0.5)


def degrade(image: NDArray[np.uint8], rng: Generator) -> NDArray[np.uint8]:
    """Change a window's saturation, down to grey, and photograph it; boxes stay in place."""
    if rng.random() < 0.4:
        vivid = 0.0 if rng.random() < 0.35 else float(rng.uniform(0.3, 1.5))
        # Night cameras have another mix of channels than luma: infrared is mostly red.
        grey = cv2.transform(image, np.tile(rng.dirichlet((1.5, 1.0, 1.0)), (3, 1)))
        image = np.asarray(cv2.addWeighted(image, vivid, grey, 1 - vivid, 0), np.uint8)
    return photograph(image, rng, _CAMERA)


@dataclass(frozen=True)
class Window:
    """One training sample."""

    image: NDArray[np.uint8]  # (S, S, 3) uint8 RGB
    boxes: NDArray[np.float32]  # (K, 4) float32 x0, y0, x1, y1 in window pixels: the plates
    unclear: NDArray[np.float32]  # (U, 4) float32, same coordinates: areas that the loss ignores
    lines: NDArray[np.int64]  # (K,) int64 lines of text on each plate, 1 or 2; 0 if unknown


@dataclass(frozen=True)
class WindowSampler:
    """Draws windows from photos; the same generator state gives the same windows."""

    photos: Sequence[TrainingPhoto]
    negatives: Sequence[TrainingPhoto] = ()
    settings: WindowSettings = WindowSettings()

    def draw(self, rng: Generator) -> Window:
        """Compose a window of cells and degrade it like a camera."""
        settings = self.settings
        cells, widths = choose(settings.grids, rng)
        image = np.full((settings.size, settings.size, 3), DETECTOR.pad_value, np.uint8)
        boxes, unclear, lines = [], [], []
        xs, ys = (_cuts(settings.size, cells, rng) for _ in range(2))
        for y0, y1 in pairwise(ys):
            for x0, x1 in pairwise(xs):
                cell = self._draw_cell((y1 - y0, x1 - x0), widths, rng)
                image[y0:y1, x0:x1] = cell.image
                shift = np.array([x0, y0, x0, y0], np.float32)
                boxes.append(cell.boxes + shift)
                unclear.append(cell.unclear + shift)
                lines.append(cell.lines)
        image = degrade(image, rng)
        return Window(image, np.concatenate(boxes), np.concatenate(unclear), np.concatenate(lines))

    def _draw_cell(
        self, size_hw: tuple[int, int], widths: tuple[float, float], rng: Generator
    ) -> Window:
        """Draw a cell's photo, scaled so that the width of its target is in ``widths``."""
        kind = rng.random()
        if self.negatives and kind < self.settings.negative:
            photo = pick(self.negatives, rng)
            scale = log_uniform((0.3, 2.5), rng)
            return self._clutter(_cut(photo, None, scale, size_hw, rng), widths, rng)
        photo = pick(self.photos, rng)
        mistaken = len(photo.mistaken) > 0 and rng.random() < self.settings.mistaken
        boxes = photo.mistaken if mistaken else photo.boxes
        chosen = int(rng.integers(len(boxes)))
        target: NDArray[np.float32] | None = boxes[chosen]
        wanted = log_uniform(widths, rng)
        scale = float(np.clip(wanted / (boxes[chosen, 2] - boxes[chosen, 0]), 0.12, 2.8))
        if not mistaken and rng.random() < self.settings.painted:
            # A photo that will be enlarged is enlarged before painting, so the plate stays sharp.
            zoom = 2 if scale > 1.2 else 1
            photo = self._paint(photo, chosen, zoom, rng)
            scale, target = scale / zoom, photo.boxes[chosen]
        if kind > 1 - self.settings.background:
            target = None
        return self._clutter(_cut(photo, target, scale, size_hw, rng), widths, rng)

    def _clutter(self, cell: Window, widths: tuple[float, float], rng: Generator) -> Window:
        """Paint clutter into a cell, in place; returns the cell."""
        plates = np.concatenate((cell.boxes, cell.unclear))
        for _ in range(rng.poisson(self.settings.clutter[0 if len(plates) else 1])):
            paint_clutter(cell.image, plates, log_uniform(widths, rng), rng)
        return cell

    def _paint(self, photo: TrainingPhoto, plate: int, zoom: int, rng: Generator) -> TrainingPhoto:
        """The photo, enlarged by `zoom`, with one plate replaced."""
        image, outlines = photo.image, photo.outlines * zoom
        if zoom > 1:
            image = cv2.resize(image, None, fx=zoom, fy=zoom).astype(np.uint8, copy=False)
        kind, lines = self._draw_kind(photo.lines[plate] == 1, rng), photo.lines.copy()
        image, quad, rows = paint_plate(image, photo.boxes[plate] * zoom, rng, kind)
        outlines[plate], lines[plate] = np.repeat(quad, 2, axis=0), len(rows)
        return TrainingPhoto(image, outlines, lines, photo.unclear * zoom, photo.mistaken * zoom)

    def _draw_kind(self, long: bool, rng: Generator) -> str:
        """Draw `LATIN` or a kind of `DRAWN`: mostly `CAR` for one line, the others equally."""
        if rng.random() < _FOREIGN:
            return LATIN
        lines = 2 if rng.random() < self.settings.two_lines[0 if long else 1] else 1
        kinds = [name for name in DRAWN if kind_named(name).format.lines == lines]
        if lines == 1 and rng.random() < _CARS:
            return CAR
        return pick(kinds, rng)


def _cuts(size: int, cells: int, rng: Generator) -> list[int]:
    """Borders of the cells along one axis: evenly spaced, with jitter."""
    even = np.linspace(0, size, cells + 1)
    even[1:-1] += rng.uniform(-0.2, 0.2, cells - 1) * size / cells
    return [round(float(value)) for value in even]


def _cut(
    photo: TrainingPhoto,
    target: NDArray[np.float32] | None,
    scale: float,
    size_hw: tuple[int, int],
    rng: Generator,
) -> Window:
    """Scale, rotate and shift a photo and its boxes into a cell.

    The target lies inside the cell, and the photo covers as much of the cell as possible.
    """
    h, w = size_hw
    image, shrink, limits = photo.image, 1.0, np.array([w, h, w, h], np.float32)
    # Least and greatest position of the photo's top left corner in the cell.
    ends = np.sort((limits[:2] - np.array(image.shape[1::-1]) * scale, np.zeros(2)), axis=0)
    if target is not None:
        inside = np.sort((-target[:2] * scale, limits[2:] - target[2:] * scale), axis=0)
        both = np.maximum(ends[0], inside[0]), np.minimum(ends[1], inside[1])
        ends = np.where(both[0] > both[1], inside, both)
    corner = rng.uniform(*ends)
    if scale < 0.75:
        # Warping alone would skip pixels; the letterbox of serving averages them, too.
        size_wh = [max(round(side * scale), 1) for side in image.shape[1::-1]]
        image = cv2.resize(image, size_wh, interpolation=cv2.INTER_AREA).astype(np.uint8)
        shrink = scale
    matrix = _turn((w / 2, h / 2), rng) @ shift_by(*corner) @ np.diag((scale, scale, 1.0))
    if rng.random() < 0.3:
        matrix = shift_by(w, 0) @ np.diag((-1.0, 1, 1)) @ matrix
    from_image = (matrix @ np.diag((1 / shrink, 1 / shrink, 1.0)))[:2]
    cell = cv2.warpAffine(image, from_image, (w, h), borderValue=(DETECTOR.pad_value,) * 3)
    outlines = np.concatenate((photo.outlines, photo.unclear))
    moved = bounding_boxes_of((outlines @ matrix[:2, :2].T + matrix[:2, 2]).astype(np.float32))
    cut = np.clip(moved, 0, limits)
    (before, after) = (np.maximum(box[:, 2:] - box[:, :2], 0) for box in (moved, cut))
    visible = after.prod(axis=1) / np.maximum(before.prod(axis=1), 1e-6)
    known = len(photo.lines)
    kept = (visible >= _VISIBLE) & (after[:, 0] >= _MIN_WIDTH) & (np.arange(len(cut)) < known)
    unclear = cut[~kept & (visible > _UNCLEAR)]
    return Window(cell.astype(np.uint8, copy=False), cut[kept], unclear, photo.lines[kept[:known]])


def _turn(centre: tuple[float, float], rng: Generator) -> NDArray[np.float64]:
    """Draw a slight rotation or one up to 35°, with shear and stretch, about a point: (3, 3)."""
    angle, shear = rng.normal(0, 0.04, 2)
    if rng.random() < _TILTED:
        angle = rng.uniform(-_MOST_TILT, _MOST_TILT)
    cos, sin, stretch = np.cos(angle), np.sin(angle), np.exp(rng.normal(0, 0.08))
    turn = np.array([[cos * stretch, shear - sin, 0], [sin * stretch, cos, 0], [0, 0, 1]])
    x, y = centre
    return np.asarray(shift_by(x, y) @ turn @ shift_by(-x, -y), np.float64)
