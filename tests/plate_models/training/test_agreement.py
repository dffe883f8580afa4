"""Two engines side by side: what differs is counted and listed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support import labelled_set
from torch import Tensor

from plate_models.engines.nets import Nets, load_nets
from plate_models.pipeline import Plate
from plate_models.recognition.decoding import Reading
from plate_models.training.benchmark import render_photo
from plate_models.training.evaluation.agreement import (
    CropAgreement,
    Pair,
    PhotoAgreement,
    compare_crops,
    compare_photos,
    compare_rendered,
    photos_of,
)
from plate_models.training.evaluation.results import Box
from plates.cli import main as cli

CROPS = 8


@pytest.fixture(scope="module")
def served() -> Nets:
    return load_nets()


@pytest.fixture(scope="module")
def reference() -> Nets:
    return load_nets("torch")


def shifted(nets: Nets, by: float) -> Nets:
    """Nets whose recognizer finds every character's neighbour in the alphabet likelier."""

    def recognize(plates: Tensor) -> Tensor:
        logits = nets.recognize(plates)
        characters = logits[:, :-1].roll(1, dims=1)
        return torch.cat((logits[:, :-1] + by * characters.clamp(min=0), logits[:, -1:]), dim=1)

    return replace(nets, recognize=recognize)


def test_the_served_engine_reads_crops_as_the_reference_does(served: Nets, reference: Nets) -> None:
    totals: list[int] = []
    found = compare_crops(
        reference, served, CROPS, workers=0, progress=lambda b, n: totals.append(n) or b
    )
    assert totals == [1] and found.sources == {"rendered": CROPS}
    assert found.passed and not found.differing
    # Two implementations never compute quite the same: 0 would be one, compared with itself.
    assert 0 < found.largest < 0.1
    assert found.logits % (24 * 24) == 0 and found.logits >= CROPS * 24 * 24


def test_a_broken_engine_is_counted_and_named(tmp_path: Path, reference: Nets) -> None:
    names = ("two_at_night.jpg", "portrait.jpg", "blue_car.jpg", "green_car.jpg")
    labelled_set(tmp_path / "world_photos", *names)
    found = compare_crops(reference, shifted(reference, 5.0), 6, tmp_path, workers=0)
    assert found.sources == {"rendered": 3, "painted": 3}
    assert not found.passed and len(found.differing) > 3
    assert found.largest > 1
    shown = "\n".join(found.lines())
    assert "MISSED" in shown and all(pair.photo in shown for pair in found.differing)
    assert found.to_dict()["count"]["hits"] == len(found.differing)


def test_logits_that_are_no_numbers_do_not_pass(reference: Nets) -> None:
    def spoilt(plates: Tensor) -> Tensor:
        logits = reference.recognize(plates).clone()
        logits[0, 0, 0] = float("nan")
        return logits

    found = compare_crops(reference, replace(reference, recognize=spoilt), 2, workers=0)
    assert np.isnan(found.largest) and not found.passed


def test_the_floor_is_one_text_in_a_thousand() -> None:
    found = CropAgreement()
    found.sources["rendered"] = 2000
    found.differing = [Pair(None, None)] * 2
    assert found.passed
    found.differing *= 2
    assert not found.passed


def plate(text: str, box: Box, guess: str = "") -> Plate:
    reading = Reading(text, 0.9, bool(text), "ru.car", (), ((guess or text, 0.9),))
    return Plate(box, (), 0.9, 1, reading, np.zeros((48, 188, 3), np.uint8))


HERE, NEAR, THERE = (0.0, 0.0, 50.0, 10.0), (0.0, 0.5, 50.0, 10.0), (90.0, 0.0, 140.0, 10.0)


def test_plates_are_brought_together_by_their_boxes() -> None:
    found = PhotoAgreement()
    found.add("a.jpg", [], [])
    assert found.photos == 1 and not found.disagreeing(0.0)
    assert found.moved_px == {} and "no plates" in "\n".join(found.lines())
    found.add("b.jpg", [plate("A", HERE), plate("B", THERE)], [plate("B", THERE), plate("A", NEAR)])
    assert not found.differing
    assert found.moved_px[100] == 0.5
    assert [pair.photo for pair in found.disagreeing(0.1)] == ["b.jpg"]
    assert not found.disagreeing(0.5)


def test_each_way_to_differ_is_listed() -> None:
    found = PhotoAgreement()
    found.add("text.jpg", [plate("A", HERE)], [plate("B", HERE)])
    found.add("held_back.jpg", [plate("A", HERE)], [plate("", HERE, "A")])
    found.add("candidate.jpg", [plate("", HERE, "A")], [plate("", HERE, "B")])
    found.add("lost.jpg", [plate("A", HERE)], [])
    found.add("more.jpg", [plate("A", HERE)], [plate("A", HERE), plate("", THERE, "C")])
    names = ["text.jpg", "held_back.jpg", "candidate.jpg", "lost.jpg", "more.jpg"]
    assert [pair.photo for pair in found.differing] == names
    assert found.to_dict()["answers_that_differ"] == 3
    # What is held back by both is counted only: there, every photo has its noise.
    *_, count, moved, first, second, third = found.lines()
    assert "other best candidates: 2; of these found by one only: 1" in count and "px" in moved
    for line, name in ((first, "text.jpg"), (second, "held_back.jpg"), (third, "lost.jpg")):
        assert name in line
    assert "A 0.900  ->  (A) 0.900" in second and "A 0.900  ->  not found" in third


def test_photos_are_read_end_to_end_on_both(tmp_path: Path, reference: Nets, served: Nets) -> None:
    labelled_set(tmp_path / "ru_photos", "green_car.jpg")
    (tmp_path / "no_plates").mkdir()
    photos = photos_of(tmp_path)
    found = compare_photos(photos, reference, served)
    assert found.photos == 1 and not found.differing and found.moved_px[100] < 2
    worse = compare_photos(photos, reference, shifted(served, 5.0))
    assert [pair.photo for pair in worse.differing] == ["green_car.jpg"]
    found = compare_rendered([render_photo("ru.car", 0)], reference, served)
    assert [pair.photo for pair in found.pairs] == ["ru.car-0000"] and not found.differing


def test_eval_fails_where_the_floor_is_missed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    served: Nets,
    reference: Nets,
) -> None:
    monkeypatch.delenv("PLATES_DATA", raising=False)
    monkeypatch.setattr("plates.cli.scoring.load_nets", lambda *_: reference)
    monkeypatch.setattr("plates.cli.options.load_nets", lambda _: shifted(served, 5.0))
    words = ["eval", "--agreement", "--crops", "4", "--workers", "0"]
    assert cli.main(words) == 1
    shown = capsys.readouterr().out
    assert "MISSED" in shown and "Real photos: not compared" in shown
    monkeypatch.setattr("plates.cli.options.load_nets", lambda _: served)
    assert cli.main(words) == 0
    assert "engine served on cpu" in capsys.readouterr().out
    # Nothing is compared with itself.
    assert cli.main(["eval", "--agreement", "--engine", "torch"]) == 1
    assert "would meet itself" in capsys.readouterr().err
