"""The rendered benchmark, its clips, and films of passes: reproducible from their names alone."""

import itertools
import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from plate_models.engines.loaded import Nets
from plate_models.engines.nets import load_nets
from plate_models.images import decode
from plate_models.training.benchmark import passes, plates
from plate_models.training.benchmark.photos import BENCHMARK_KINDS, render_photo
from plate_models.training.evaluation import sets
from plate_models.training.evaluation.scoreboard import score_photo
from plate_models.training.synthetic.kinds import CAR, KINDS
from plate_models.training.worker_pool import map_ahead


@pytest.fixture(scope="module", autouse=True)
def photos():
    """Eight photos of cars, two of each other kind; the data sets render none of them again."""
    kinds = [(kind, n, "") for kind in BENCHMARK_KINDS for n in range(8 if kind == CAR else 2)]
    with pytest.MonkeyPatch.context() as patch:
        for render in (render_photo, passes.render_film):
            patch.setattr(sets, render.__name__, cache(render))
        yield [sets.render_photo(*one) for one in kinds]


def test_a_photo_is_reproducible_from_its_kind_number_and_variant(photos):
    assert len({photo.file for photo in photos}) == len(photos)
    by_name = {photo.name: photo for photo in photos}
    wanted = [("ru.car", 1, ""), ("de.car", 0, ""), ("ru.taxi", 0, "night"), ("by.car", 0, "codec")]
    again = list(map_ahead(render_photo, 1, *zip(*wanted, strict=True)))
    assert [photo.name for photo in again][1:3] == ["de.car-0000", "ru.taxi-night-0000"]
    for photo in again[:2]:
        assert photo.file == by_name[photo.name].file
    assert render_photo("by.car", 0, variant="codec").file == again[3].file
    night = decode(again[2].file).astype(int)
    assert np.ptp(night, axis=2).max() <= 1
    for kind, variant in (("ru.bicycle", ""), ("ru.car", "fog")):
        with pytest.raises(ValueError, match="not in tuple"):
            render_photo(kind, 0, variant=variant)


def test_a_clip_shows_one_plate_that_approaches():
    frames = list(sets.video(1, 0))
    assert {frame.row for frame in frames} == {"rendered video, Russian"}
    assert len({frame.plates[0].text for frame in frames}) == 1
    widths = [frame.plates[0].box[2] - frame.plates[0].box[0] for frame in frames]
    assert widths == sorted(widths) and widths[-1] > 2 * widths[0]
    assert len({frame.load().tobytes() for frame in frames}) == len(frames) > 4


def test_labels_have_valid_texts_sizes_and_places(photos):
    assert {"de.car", "br.car.old", "cz.car.square"} < {photo.plate.kind for photo in photos}
    assert KINDS["de.car"].rows("RCWQ333") == ("RC WQ 333",)  # there is no district RCW
    for photo in photos:
        plate = photo.plate
        assert len(KINDS[plate.kind].rows(plate.text)) == plate.lines
        height, width = decode(photo.file).shape[:2]
        assert (width, height) in ((960, 540), (1280, 720))
        x0, y0, x1, y1 = plate.box
        assert x0 >= 0 and y0 >= 0 and x1 <= width and y1 <= height
        assert (30 if plate.lines == 2 else 55) <= x1 - x0 <= 420


def test_typefaces_have_a_glyph_for_each_character_on_plates(monkeypatch):
    printed = set()
    monkeypatch.setattr(plates, "_stamp", lambda _, row, font, *__: printed.add((row, font)))
    for seed, kind in itertools.product(range(20), plates.FOREIGN):
        rng = np.random.default_rng(seed)
        plates.draw_sheet(plates.sample_design(kind, rng), 0.1, rng)
    for font, char in {(font, char) for row, font in printed for char in row if char > " "}:
        assert bytes(font.getmask(char)) != bytes(font.getmask("\u0378")), char


def test_each_fault_counts_in_its_own_column(monkeypatch):
    nets = load_nets()
    photo = next(p for p in sets.rendered(1, 0) if p.row == "rendered ru.motorcycle")
    (read,) = nets.read(photo.open()[0])

    def score(plate):
        monkeypatch.setattr(Nets, "read", lambda *_: [plate])
        ((result,), _) = score_photo(photo, nets)
        verdicts = result.to_dict()["verdicts"]
        return {name for name, yes in verdicts.items() if yes}

    assert len(score(read)) == 8
    wrong_text = replace(read.reading, text="0000AA00", candidates=(("0000AA00", 0.9),))
    hits = score(replace(read, lines=1, reading=wrong_text))
    names = {"found, IoU 0.5", "no wrong text", "format", "lines", "read right, end to end"}
    assert hits & names == {"found, IoU 0.5", "format"}


def test_eval_scores_the_benchmark_without_any_data(tmp_path, monkeypatch, run):
    monkeypatch.delenv("PLATES_DATA", raising=False)
    monkeypatch.setattr(sets, "BENCHMARK_KINDS", (CAR, "ru.taxi"))
    kept = tmp_path / "kept.json"
    parts = ["--rendered", "--per-type", "1", "--video", "--clips", "1", "--workers", "0"]
    done = run("eval", *parts, "--json", kept)
    assert done.returncode == 0
    rows = json.loads(kept.read_text(encoding="utf-8"))["rows"]
    ends = ("", ", grey", ", red alone", ", night", ", codec")
    names = [f"rendered {kind}{end}" for kind in (CAR, "ru.taxi") for end in ends]
    assert {*names, "rendered video, Russian"} == rows.keys()
    assert all(f"\n{name} " in done.stdout for name in rows)
    plain = [rows[f"rendered {kind}"]["plates"] for kind in (CAR, "ru.taxi")]
    assert all(plate["verdicts"]["read right, end to end"] for (plate,) in plain)
    assert len(rows["rendered video, Russian"]["plates"]) > 4


@pytest.fixture(scope="module")
def films():
    """One film of each kind without its pictures, which take long to render."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "encode", lambda *_, **__: [])
        return {kind: passes.render_film(kind, 3) for kind in passes.FILM_KINDS}


def times_of(film, number):
    """The times, in seconds, of the frames that list the pass with this number."""
    listed = [number in dict(truths) for truths in film.truths]
    return np.array(film.times_s)[listed].tolist()


def test_films_are_reproducible_and_their_plates_are_where_the_truth_says(films):
    film = passes.render_film("glimpse", 3)
    assert passes.render_film("glimpse", 3) == film
    assert (film.truths, film.times_s) == (films["glimpse"].truths, films["glimpse"].times_s)
    assert passes.render_film("glimpse", 4).packets != film.packets
    empty, *pictures = (picture.astype(int) for picture in film.frames())
    assert len(pictures) == len(film.truths) - 1
    for picture, truths in zip(pictures, film.truths[1:], strict=True):
        change = np.abs(picture - empty).mean(axis=2)
        for _, plate in truths:
            x0, y0, x1, y1 = np.rint(plate.box).astype(int)
            assert change[y0:y1, x0:x1].mean() > 5 * np.median(change)


def test_first_and_last_frames_are_empty_and_each_plate_is_legible_once(films):
    for film in films.values():
        assert not film.truths[0] and not film.truths[-1], film.name
        assert len(film.times_s) == len(film.truths) and np.diff(film.times_s).min() > 0.039
        for number in {number for truths in film.truths for number, _ in truths}:
            plates = [plate for truths in film.truths for n, plate in truths if n == number]
            assert any(plate.legible for plate in plates), film.name
            assert len({plate.text for plate in plates}) == 1


def test_each_kind_of_film_shows_what_its_name_says(films):
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
