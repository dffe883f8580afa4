"""Rendered films of passing vehicles, and what the nets see in their frames."""

import pickle
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from plate_models.training.labels import LabelledPlate
from plates.cameras.frames import SeenPlate
from plates.cameras.recognizer import seen_plates

if TYPE_CHECKING:
    from plate_models.engines.nets import Nets

# Numbers of passes and their plates, in one frame.
Truths = tuple[tuple[int, LabelledPlate], ...]


class ReadFilm(NamedTuple):
    """A film's truth, as in `passes.Film`, and what the nets see in each of its frames."""

    name: str
    size_wh: tuple[int, int]
    times_s: tuple[float, ...]
    truths: tuple[Truths, ...]
    plates: tuple[tuple[SeenPlate, ...], ...]


def read_film(numbered: tuple[str, int], folder: Path) -> ReadFilm:
    """Render and read a film of a kind and number; what was read before comes from the folder."""
    path = folder / "{}-{:06d}.pickle".format(*numbered)
    if path.exists():
        kept: ReadFilm = pickle.loads(path.read_bytes())  # noqa: S301 - our own
        return kept
    import torch

    from plate_models.training.benchmark.passes import render_film

    torch.set_num_threads(1)
    film, nets = render_film(*numbered), _nets()
    plates = tuple(
        tuple(seen_plates(nets.read(torch.from_numpy(frame)), frame[..., ::-1]))
        for frame in film.frames()
    )
    read = ReadFilm(film.name, film.size_wh, film.times_s, film.truths, plates)
    part = path.with_suffix(".part")
    part.write_bytes(pickle.dumps(read))
    part.rename(path)
    return read


@cache
def _nets() -> "Nets":
    from plate_models.engines.nets import load_nets

    return load_nets()
