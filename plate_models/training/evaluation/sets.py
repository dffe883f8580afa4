"""The sets of photos that `plates eval` measures; their names are rows of its table.

A set is an iterable of photos, which are read from disk or rendered on demand. Recipes degrade
photos, to measure how robust the reading is: each is a pure function.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from plate_models.images import decode
from plate_models.training import imaging, labels
from plate_models.training.benchmark.passes import render_film
from plate_models.training.benchmark.photos import BENCHMARK_KINDS, VARIANTS, render_photo
from plate_models.training.imaging import Floats, Image
from plate_models.training.labels import Box, LabelledPhoto, LabelledPlate
from plate_models.training.worker_pool import map_ahead

RUSSIAN = "ru_photos"
# One in so many of the benchmark's photos is also rendered in each variant, and read in each of the
# `_RENDERED_RECIPES`.
_VARIANT_SHARE = 5
_CLIP_KBITS = (300.0, 1000.0)
_RENDERED_RECIPES = ("grey", "red alone")
_REGIONS = {"eu": "Europe", "br": "Brazil"}
# Least overlap of a found box with a label that counts as the label's plate. The label of a rotated
# photo is the bounding box of the rotated box: if a plate was tilted by 20 degrees and is upright
# after the rotation, it has 4.5 times the plate's size.
LEAST_IOU, _TURNED_LEAST_IOU = 0.5, 0.2

# From a photo, (H, W, 3) uint8 RGB, to a degraded one, and the (3, 3) homography of its pixels.
Recipe = Callable[[Image], tuple[Image, Floats]]


def _in_place(change: Callable[[Image], Image]) -> Recipe:
    """A recipe that doesn't move pixels."""
    return lambda image: (change(image), np.eye(3))


def _channel(image: Image, channel: int) -> Image:
    return np.repeat(image[..., channel : channel + 1], 3, axis=2)


def _grey(image: Image) -> Image:
    return np.asarray(cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB))


def _halved(image: Image) -> tuple[Image, Floats]:
    height, width = (max(1, side // 2) for side in image.shape[:2])
    small = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
    return np.asarray(small), np.diag((width / image.shape[1], height / image.shape[0], 1.0))


def _surrounded(image: Image) -> tuple[Image, Floats]:
    """Put a photo in the middle of a black one of twice its width and height."""
    height, width = image.shape[:2]
    top, left = height // 2, width // 2
    larger = np.pad(image, ((top, height - top), (left, width - left), (0, 0)))
    return larger, imaging.shift_by(left, top)


def _turned(degrees: float, image: Image) -> tuple[Image, Floats]:
    """Rotate counter-clockwise, onto a black canvas that holds the whole photo."""
    height, width = image.shape[:2]
    view = np.vstack((cv2.getRotationMatrix2D((0, 0), degrees, 1), (0, 0, 1)))
    corners = imaging.apply_homography(view, imaging.box_corners(width, height))
    view[:2, 2] -= corners.min(axis=0)
    size = np.ceil(np.ptp(corners, axis=0)).astype(int).tolist()
    return np.asarray(cv2.warpAffine(image, view[:2], size, flags=cv2.INTER_CUBIC)), view


def _fields_apart(image: Image) -> Image:
    """Shift every second row, as interlaced video does with moving objects."""
    moved = image.copy()
    moved[1::2, _FIELDS_PX:] = image[1::2, :-_FIELDS_PX]
    return moved


def _striped(image: Image) -> Image:
    """Add a fence's shadow, in stripes of about half a plate's width."""
    rows, columns = np.indices(image.shape[:2])
    light = np.where((columns + rows // 2) // _STRIPE_PX % 2, 1, 0.4)
    return np.asarray((image * light[..., None]).astype(np.uint8))


def _cut(box: Box) -> Recipe:
    x0, y0, x1, y1 = (max(0, round(edge)) for edge in box)
    return lambda image: (image[y0:y1, x0:x1], imaging.shift_by(-x0, -y0))


_MOTION, _FIELDS_PX, _STRIPE_PX = np.full((1, 9), 1 / 9, np.float32), 6, 50
RECIPES: dict[str, Recipe] = {
    "grey": _in_place(_grey),
    "JPEG quality 20": _in_place(lambda image: imaging.compress(image, 20)),
    "half size": _halved,
    "amid a larger photo": _surrounded,
    **{f"turned by {angle} degrees": partial(_turned, angle) for angle in (15, -15, 20, -20)},
    "brightness x 0.25": _in_place(lambda image: np.rint(image * 0.25).astype(np.uint8)),
    "blur sigma 1.5": _in_place(lambda image: np.asarray(cv2.GaussianBlur(image, (0, 0), 1.5))),
    "motion blur 9 px": _in_place(lambda image: np.asarray(cv2.filter2D(image, -1, _MOTION))),
    "fields 6 px apart": _in_place(_fields_apart),
    "stripes of shade": _in_place(_striped),
    "red alone": _in_place(lambda image: _channel(image, 0)),
    "green alone": _in_place(lambda image: _channel(image, 1)),
    "blue alone": _in_place(lambda image: _channel(image, 2)),
}


def move_box(box: Box, view: Floats) -> Box:
    """The bounding box of a box after the (3, 3) homography ``view``."""
    x0, y0, x1, y1 = box
    corners = imaging.box_corners(x1 - x0, y1 - y0) + np.array((x0, y0))
    moved = imaging.apply_homography(view, corners)
    low, high = moved.min(axis=0).tolist(), moved.max(axis=0).tolist()
    return low[0], low[1], high[0], high[1]


@dataclass(frozen=True)
class Photo:
    """A photo and its known plates."""

    row: str  # of the table
    name: str  # of the file, or of the rendered photo
    load: Callable[[], Image]  # (H, W, 3) uint8 RGB, upright
    plates: tuple[LabelledPlate, ...] = ()
    complete: bool = False  # whether every plate is labelled, so that any other box is wrong
    unlabelled: tuple[Box, ...] = ()  # further plates; neither they nor answers there are counted
    o_is_0: bool = False  # whether the labels don't distinguish letter O and digit 0
    recipe: Recipe | None = None  # how to degrade the photo
    least_iou: float = LEAST_IOU

    def open(self) -> tuple[Image, tuple[LabelledPlate, ...], tuple[Box, ...]]:
        """The pixels, the labelled plates and the unlabelled boxes, after the recipe.

        Raises ImageError: The file can't be read; the message names it.
        """
        pixels = self.load()
        if not self.recipe:
            return pixels, self.plates, self.unlabelled
        pixels, view = self.recipe(pixels)
        plates = tuple(replace(p, box=move_box(p.box, view), quad=()) for p in self.plates)
        return pixels, plates, tuple(move_box(box, view) for box in self.unlabelled)


def russian(data: Path) -> list[Photo]:
    """``ru_photos`` of a data folder, or the folder itself if it is a labelled set."""
    folder = data / RUSSIAN if (data / RUSSIAN).is_dir() else data
    return [_real(RUSSIAN, photo) for photo in labels.load_labels(folder)]


def worse(data: Path) -> list[Photo]:
    """The photos of `russian`, degraded by each recipe, and cropped to their first plates."""
    photos = russian(data)
    cut = [
        replace(photo, row=f"{RUSSIAN}, cut out", plates=(plate,), recipe=_cut(plate.box))
        for photo in photos
        for plate in photo.plates[:1]
    ]
    return cut + [
        replace(photo, row=f"{RUSSIAN}, {name}", recipe=recipe, least_iou=least_iou)
        for name, recipe in RECIPES.items()
        for least_iou in [_TURNED_LEAST_IOU if name.startswith("turned") else LEAST_IOU]
        for photo in photos
    ]


def latin(data: Path) -> list[Photo]:
    """``latin_photos``: European and Brazilian plates."""
    found, photos = [], labels.load_labels(data / "latin_photos")
    for photo in sorted(photos, key=lambda photo: photo.plates[0].kind):
        region = _REGIONS.get(photo.plates[0].kind, "others")
        found.append(replace(_real(f"latin_photos, {region}", photo), o_is_0=True))
    return found


def world(data: Path) -> list[Photo]:
    """The held-out fifth of ``world_photos``, with the texts of legible plates."""
    found = []
    known = json.loads((Path(__file__).parent / "world_texts.json").read_text(encoding="utf-8"))
    for photo in labels.load_world_photos(data, held_out=True):
        plates = photo.plates
        if texts := known.get(photo.path.name):  # "" for an illegible plate, "/" between lines
            plates = tuple(
                replace(p, text=t.replace("/", ""), lines=1 + t.count("/"), legible=t != "")
                for p, t in zip(plates, texts, strict=True)
            )
        found.append(replace(_real("world_photos", photo), plates=plates))
    return found


def without_plates(data: Path) -> list[Photo]:
    """``no_plates``: the held-out half, and the half that the detector was trained on."""
    if not (folder := data / "no_plates").is_dir():
        raise FileNotFoundError(f"{folder}: there is no such folder")
    return [
        replace(_real(f"no_plates, {half}", photo), complete=True)
        for half, held_out in (("held out", True), ("seen in training", False))
        for photo in labels.load_negatives(folder, held_out)
    ]


def samples(folder: Path) -> list[Photo]:
    """The project's sample scenes."""
    return [replace(_real("samples", photo), complete=True) for photo in labels.load_labels(folder)]


def rendered(per_kind: int, workers: int) -> Iterator[Photo]:
    """The benchmark: ``per_kind`` photos of each kind, and a fifth as many of each variant."""
    few = -(-per_kind // _VARIANT_SHARE)
    numbered = [
        (kind, index, variant)
        for index in range(per_kind)
        for variant in VARIANTS
        for kind in BENCHMARK_KINDS
        if not variant or index < few
    ]
    made = map_ahead(render_photo, workers, *zip(*numbered, strict=True))
    for (kind, index, variant), photo in zip(numbered, made, strict=True):
        row = f"rendered {kind}" + (f", {variant}" if variant else "")
        whole = Photo(row, photo.name, partial(decode, photo.file), (photo.plate,), complete=True)
        yield whole
        if not variant and index < few:
            for name in _RENDERED_RECIPES:
                yield replace(whole, row=f"{row}, {name}", recipe=RECIPES[name])


def video(clips: int, workers: int) -> Iterator[Photo]:
    """Frames of rendered, strongly compressed videos of approaching vehicles, with their plates."""
    render = partial(render_film, "approaching", kbits=_CLIP_KBITS)
    for film in map_ahead(render, workers, range(clips)):
        for number, (frame, truths) in enumerate(zip(film.frames(), film.truths, strict=True)):
            plates = tuple(plate for _, plate in truths)
            if plates:
                whose = "Russian" if plates[0].kind.startswith("ru.") else "others"
                row, name = f"rendered video, {whose}", f"{film.name}-{number:02d}"
                yield Photo(row, name, partial(np.asarray, frame), plates, complete=True)


def _real(row: str, photo: LabelledPhoto) -> Photo:
    return Photo(row, photo.path.name, photo.read, photo.plates, unlabelled=photo.findings.plates)
