"""The rendered benchmark: the same for everybody, and none of training's."""

import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from plate_models.engines.nets import Nets, load_nets
from plate_models.images import decode
from plate_models.pipeline import Plate
from plate_models.training.benchmark.designs import FOREIGN
from plate_models.training.benchmark.photos import (
    BENCHMARK_KINDS,
    FRAMES,
    BenchmarkPhoto,
    render_clip,
    render_numbered,
    render_photo,
)
from plate_models.training.codec import through_codec
from plate_models.training.evaluation import sets
from plate_models.training.evaluation.scoreboard import Scoreboard
from plate_models.training.synthetic.kinds import CAR, KINDS
from plate_models.training.worker_pool import map_ahead
from plates.cli import main as cli

TRAINING = ("clutter", "crops", "photo", "plates", "scenes", "wear")


@pytest.fixture(scope="module")
def photos() -> list[BenchmarkPhoto]:
    """Eight photos of cars, two of each other kind."""
    kinds = [(kind, n) for kind in BENCHMARK_KINDS for n in range(8 if kind == CAR else 2)]
    return [render_photo(*one) for one in kinds]


def test_photos_follow_from_their_names(photos: list[BenchmarkPhoto]) -> None:
    assert len({photo.file for photo in photos}) == len(photos)
    assert render_photo("ru.car", 0, seed=1).file not in {photo.file for photo in photos}
    by_name = {photo.name: photo for photo in photos}
    wanted = [("ru.car", 1, ""), ("de.car", 0, ""), ("ru.taxi", 0, "night"), ("by.car", 0, "codec")]
    again = list(map_ahead(render_numbered, wanted, workers=1))
    assert [photo.name for photo in again][1:3] == ["de.car-0000", "ru.taxi-night-0000"]
    for photo in again[:2]:
        assert photo.file == by_name[photo.name].file
    assert render_photo("by.car", 0, variant="codec").file == again[3].file
    night = decode(again[2].file).astype(int)
    assert np.ptp(night, axis=2).max() <= 1
    for kind, variant in (("ru.bicycle", ""), ("ru.car", "fog")):
        with pytest.raises(ValueError, match=r"expected a kind of plate out of ru\.car"):
            render_photo(kind, 0, variant=variant)


def test_plates_of_other_countries_keep_to_their_patterns(photos: list[BenchmarkPhoto]) -> None:
    foreign = [photo.plate for photo in photos if photo.plate.kind in FOREIGN]
    assert {"de.car", "br.car.old", "cz.car.square"} < {plate.kind for plate in foreign}
    for plate in foreign:
        assert len(KINDS[plate.kind].rows(plate.text)) == plate.lines


def test_a_codec_keeps_what_is_seen_and_loses_more_at_a_lower_rate() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (9, 16, 3), np.uint8)
    image = np.asarray(Image.fromarray(pixels).resize((320, 180)))
    for codec in ("libx264", "libx265"):
        losses = []
        for factor in (10, 45):
            films = through_codec([image] * 3, codec, crf=str(factor))
            assert len(films) == 3 and films[0].shape == image.shape
            losses.append(np.abs(films[-1].astype(int) - image).mean())
        assert losses[0] < 6 and losses[1] > 1.5 * losses[0]


def test_a_clip_is_of_one_plate_that_comes_near() -> None:
    frames = render_clip(1)
    assert len(frames) == FRAMES and len({frame.plate.text for frame in frames}) == 1
    widths = [frame.plate.box[2] - frame.plate.box[0] for frame in frames]
    assert widths == sorted(widths) and widths[-1] > 2 * widths[0]
    assert len({frame.file for frame in frames}) == FRAMES


def test_labels_are_of_the_sizes_promised(photos: list[BenchmarkPhoto]) -> None:
    for photo in photos:
        plate = photo.plate
        width, height = Image.open(io.BytesIO(photo.file)).size
        assert (width, height) in ((960, 540), (1280, 720))
        x0, y0, x1, y1 = plate.box
        assert x0 >= 0 and y0 >= 0 and x1 <= width and y1 <= height
        assert (30 if plate.lines == 2 else 55) <= x1 - x0 <= 420


def test_nothing_of_the_benchmark_knows_what_training_renders() -> None:
    code = "import sys, plate_models.training.benchmark.photos; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert "plate_models.training.synthetic.ink" in loaded
    assert not loaded & {f"plate_models.training.synthetic.{name}" for name in TRAINING}
    assert "torch" not in loaded


NAMES = {"found, IoU 0.5", "no wrong text", "format", "lines", "read right, end to end"}
ENDS = ("", ", grey", ", red alone", ", night", ", codec")


def moved(plate: Plate, x: float) -> Plate:
    """The same plate, so many pixels to the right."""
    quad = tuple((corner[0] + x, corner[1]) for corner in plate.quad)
    return replace(plate, box=tuple(np.add(plate.box, (x, 0, x, 0)).tolist()), quad=quad)


def test_each_fault_shows_in_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    nets = load_nets()
    photo = next(p for p in sets.rendered(1, 0) if p.row == "rendered ru.motorcycle")
    (label,) = photo.plates
    (read,) = nets.read(torch.from_numpy(photo.open()[0]))
    right = replace(read, quad=label.quad)
    wrong_text = replace(read.reading, text="0000AA00", candidates=(("0000AA00", 0.9),))
    wrong = replace(right, lines=1, reading=wrong_text)

    def score(*plates: Plate) -> tuple[Scoreboard, set[str]]:
        monkeypatch.setattr(Nets, "read", lambda *_: list(plates))
        board = Scoreboard(complete=True)
        board.add(photo, nets)
        return board, {name for name, yes in board.plates[0].to_dict()["verdicts"].items() if yes}

    board, hits = score(moved(right, 0.02 * (label.box[2] - label.box[0])))
    assert len(hits) == 8 and not board.lines()
    error = board.plates[0].corner_error
    assert error and error == pytest.approx(0.02, rel=0.2)
    board, hits = score()
    assert hits & NAMES == {"no wrong text"} and board.plates[0].corner_error is None
    assert score(wrong)[1] & NAMES == {"found, IoU 0.5", "format"}
    board, hits = score(right, moved(wrong, 2e3))
    assert "read right, end to end" in hits and len(board.lines()) == 1


def test_eval_scores_the_benchmark_without_any_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PLATES_DATA", raising=False)
    monkeypatch.setattr(sets, "BENCHMARK_KINDS", (CAR, "ru.taxi"))
    kept = tmp_path / "kept.json"
    parts = ["--rendered", "--per-type", "1", "--video", "--clips", "1", "--workers", "0"]
    assert cli.main(["eval", *parts, "--json", str(kept)]) == 0
    shown = capsys.readouterr().out
    rows = json.loads(kept.read_text(encoding="utf-8"))["rows"]
    names = [f"rendered {kind}{end}" for kind in (CAR, "ru.taxi") for end in ENDS]
    assert {*names, "rendered video, Russian"} == rows.keys()
    assert all(f"\n{name} " in shown for name in rows)
    plain = [rows[f"rendered {kind}"]["plates"] for kind in (CAR, "ru.taxi")]
    assert all(plate["verdicts"]["read right, end to end"] for (plate,) in plain)
    assert len(rows["rendered video, Russian"]["plates"]) == FRAMES
