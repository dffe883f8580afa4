"""What `plates eval` measures: sets of photos, whose names are rows of its table.

Each set is an iterable of photos that are read from disk or rendered as it goes on.
"""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from plate_models.images import ImageError, decode
from plate_models.training.benchmark.photos import (
    BENCHMARK_KINDS,
    VARIANTS,
    BenchmarkPhoto,
    render_photos,
)
from plate_models.training.benchmark.video import FRAMES, render_clip
from plate_models.training.evaluation.recipes import RECIPES, Recipe, move_box
from plate_models.training.evaluation.results import Pixels
from plate_models.training.labels import LabelledPhoto, LabelledPlate, load_labels, validation_names
from plate_models.training.worker_pool import map_ahead

RUSSIAN = "ru_photos"
# Of the benchmark's photos, so many are also read in these colours, and filmed or taken by night.
_VARIANT_SHARE = 5
_RENDERED_RECIPES = ("grey", "red alone")
_COUNTRIES = {"eu": "Europe", "br": "Brazil"}


@dataclass(frozen=True)
class Photo:
    """A photo and what is known of its plates."""

    row: str  # of the table
    name: str  # of its file, or of a rendered photo
    load: Callable[[], Pixels]  # (H, W, 3) uint8 RGB, upright
    plates: tuple[LabelledPlate, ...] = ()
    complete: bool = False  # whether every plate is labelled, so that any other box is wrong
    o_is_0: bool = False  # whether the labels mix up letter O and digit 0
    recipe: Recipe | None = None  # what makes it worse

    def open(self) -> tuple[Pixels, tuple[LabelledPlate, ...]]:
        """The pixels, and the plates where they are after the recipe.

        Raises ImageError: The file, which is named, can't be read.
        """
        pixels = self.load()
        if not self.recipe:
            return pixels, self.plates
        pixels, view = self.recipe(pixels)
        return pixels, tuple(replace(p, box=move_box(p.box, view), quad=()) for p in self.plates)


# A set, and how many photos it has.
PhotoSet = tuple[Iterator[Photo], int]


def russian(data: Path) -> PhotoSet:
    """``ru_photos`` of a data folder, or the folder itself if it is a labelled set."""
    photos = load_labels(_russian_folder(data))
    return (_real(RUSSIAN, photo) for photo in photos), len(photos)


def worse(data: Path) -> PhotoSet:
    """The same, made worse by each recipe."""
    photos = load_labels(_russian_folder(data))
    made = (
        replace(_real(f"{RUSSIAN}, {name}", photo), recipe=recipe)
        for name, recipe in RECIPES.items()
        for photo in photos
    )
    return made, len(photos) * len(RECIPES)


def latin(data: Path) -> PhotoSet:
    """``latin_photos``: European and Brazilian plates."""
    photos = sorted(load_labels(data / "latin_photos"), key=lambda photo: photo.plates[0].kind)
    named = (
        replace(_real(f"latin_photos, {_COUNTRIES.get(kind, kind)}", photo), o_is_0=True)
        for photo in photos
        for kind in [photo.plates[0].kind]
    )
    return named, len(photos)


def world(data: Path) -> PhotoSet:
    """The fifth of ``world_photos`` that no detector was trained on."""
    photos = load_labels(data / "world_photos")
    held_out = validation_names(photo.path.name for photo in photos)
    chosen = [photo for photo in photos if photo.path.name in held_out]
    return (_real("world_photos", photo) for photo in chosen), len(chosen)


def without_plates(data: Path) -> PhotoSet:
    """``no_plates``: the half that is held out, and the half that the detector has seen."""
    paths = sorted((data / "no_plates").rglob("*.jpg"))
    if not paths:
        raise FileNotFoundError(f"{data / 'no_plates'}: there are no photos")
    halves = {path: zlib.crc32(path.name.encode()) % 2 for path in paths}
    rows = "no_plates, seen in training", "no_plates, held out"
    photos = (
        replace(_real(rows[half], LabelledPhoto(path)), complete=True)
        for path, half in sorted(halves.items(), key=lambda item: -item[1])
    )
    return photos, len(paths)


def samples(folder: Path) -> PhotoSet:
    """The project's own sample scenes."""
    photos = load_labels(folder)
    return (replace(_real("samples", photo), complete=True) for photo in photos), len(photos)


def rendered(per_kind: int, workers: int) -> PhotoSet:
    """The benchmark: so many photos of each kind, and a fifth of that of each variant."""
    few = -(-per_kind // _VARIANT_SHARE)
    numbered = [
        (kind, index, variant)
        for index in range(per_kind)
        for variant in VARIANTS
        for kind in BENCHMARK_KINDS
        if not variant or index < few
    ]
    count = len(numbered) + few * len(BENCHMARK_KINDS) * len(_RENDERED_RECIPES)

    def photos() -> Iterator[Photo]:
        made = render_photos(numbered, workers)
        for (kind, index, variant), photo in zip(numbered, made, strict=True):
            row = f"rendered {kind}" + (f", {variant}" if variant else "")
            yield (whole := _rendered(row, photo))
            if not variant and index < few:
                for name in _RENDERED_RECIPES:
                    yield replace(whole, row=f"{row}, {name}", recipe=RECIPES[name])

    return photos(), count


def video(clips: int, workers: int) -> PhotoSet:
    """Frames of rendered clips, badly encoded."""

    def photos() -> Iterator[Photo]:
        for frames in map_ahead(render_clip, range(clips), workers, ahead=2):
            for frame in frames:
                whose = "Russian" if frame.plate.kind.startswith("ru.") else "others"
                yield _rendered(f"rendered video, {whose}", frame)

    return photos(), clips * FRAMES


def _russian_folder(data: Path) -> Path:
    return data / RUSSIAN if (data / RUSSIAN).is_dir() else data


def _real(row: str, photo: LabelledPhoto) -> Photo:
    return Photo(row, photo.path.name, partial(_read, photo.path), photo.plates)


def _read(path: Path) -> Pixels:
    try:
        return decode(path.read_bytes())
    except ImageError as error:
        raise ImageError(f"{path}: {error}") from error


def _rendered(row: str, photo: BenchmarkPhoto) -> Photo:
    return Photo(row, photo.name, partial(decode, photo.file), (photo.plate,), complete=True)
