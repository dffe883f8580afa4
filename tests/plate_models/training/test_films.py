"""Rendered films of passing vehicles: the same for everybody, with the truth in each frame."""

import itertools

import numpy as np
import pytest

from plate_models.training.benchmark import passes
from plate_models.training.benchmark.passes import FILM_KINDS, Film, render_film


@pytest.fixture(scope="module")
def films() -> dict[str, Film]:
    """One of each kind, without its pictures: what is in them takes no time to say."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "encode", lambda *_, **__: [])
        return {kind: render_film(kind, 3) for kind in FILM_KINDS}


def times_of(film: Film, number: int) -> list[float]:
    """When a pass is listed."""
    listed = [number in dict(truths) for truths in film.truths]
    return np.array(film.times_s)[listed].tolist()


def test_films_follow_from_their_names(films):
    film = render_film("glimpse", 3)
    assert render_film("glimpse", 3) == film
    assert (film.truths, film.times_s) == (films["glimpse"].truths, films["glimpse"].times_s)
    assert render_film("glimpse", 4).packets != film.packets


def test_vehicles_enter_and_leave(films):
    for film in films.values():
        assert not film.truths[0] and not film.truths[-1], film.name
        assert len(film.times_s) == len(film.truths) and np.diff(film.times_s).min() > 0.039
        for number in {number for truths in film.truths for number, _ in truths}:
            plates = [plate for truths in film.truths for n, plate in truths if n == number]
            assert any(plate.legible for plate in plates), film.name
            assert len({plate.text for plate in plates}) == 1


def test_each_kind_shows_what_it_says(films):
    widths = {
        kind: [p.box[2] - p.box[0] for truths in films[kind].truths for _, p in truths if p.legible]
        for kind in ("approaching", "leaving")
    }
    assert widths["approaching"][-1] > 1.2 * widths["approaching"][0]
    assert widths["leaving"][0] > 1.2 * widths["leaving"][-1]
    assert len(times_of(films["glimpse"], 0)) in (2, 3)
    assert 0.5 <= np.diff(times_of(films["hidden"], 0)).max() <= 2.5
    first, second = (times_of(films["returning"], number) for number in (0, 1))
    assert second[0] - first[-1] >= 6
    boxes = [plate.box for truths in films["parked"].truths for _, plate in truths]
    assert sum(a == b for a, b in itertools.pairwise(boxes)) >= 15
    one, other = ({dict(t)[n].text for t in films["alike"].truths if n in dict(t)} for n in (0, 1))
    assert sum(a != b for a, b in zip(one.pop(), other.pop(), strict=True)) in (1, 2)


def test_plates_are_where_the_truth_says():
    film = render_film("glimpse", 3)
    empty, *pictures = (picture.astype(int) for picture in film.frames())
    assert len(pictures) == len(film.truths) - 1
    for picture, truths in zip(pictures, film.truths[1:], strict=True):
        change = np.abs(picture - empty).mean(axis=2)
        for _, plate in truths:
            x0, y0, x1, y1 = np.rint(plate.box).astype(int)
            assert change[y0:y1, x0:x1].mean() > 5 * np.median(change)
