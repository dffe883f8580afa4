"""What `plates bench sizing` sends, where its services run, and what it tells."""

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image

from plate_models.engines.nets import load_nets
from plate_models.images import decode
from plate_models.spec import LIMITS
from plates.benchmarks import sizing
from plates.benchmarks.load import Load, Outcome
from plates.benchmarks.photos import STANDARD_WH
from plates.benchmarks.service import Service
from plates.benchmarks.sizing_report import Carried, Sized, Spread, draw_sizing, print_sizing
from plates.benchmarks.summary import summarise


def test_nothing_on_the_empty_photo_is_taken_for_a_plate() -> None:
    photo = torch.from_numpy(decode(sizing._empty_photo()))
    assert photo.shape == (STANDARD_WH[1], STANDARD_WH[0], 3)
    assert load_nets("torch").read(photo) == []


def test_the_largest_photo_is_just_accepted() -> None:
    photo = sizing._largest_photo()
    width, height = Image.open(io.BytesIO(photo)).size
    assert 0.99 * LIMITS.max_pixels < width * height <= LIMITS.max_pixels
    assert len(photo) <= LIMITS.max_bytes


def test_a_service_is_started_on_its_cores_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen = os.sched_getaffinity(0), []

    @contextlib.contextmanager
    def service(url: None) -> Iterator[Service]:
        seen.append(os.sched_getaffinity(0))
        yield Service("http://127.0.0.1:1")

    monkeypatch.setattr(sizing, "service", service)
    core = min(before)
    with contextlib.ExitStack() as running:
        sizing._start(running, {core})
        assert os.sched_getaffinity(0) == before
    assert seen == [{core}]


def summary(count: int) -> object:
    outcomes = [Outcome(0.5 * index / count, 0.1, 200) for index in range(count)]
    return summarise([Load(outcomes, 1.0)], 2.0)


def test_what_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sizes = [
        Sized(1, 500, 600, 1500, 1.5, [Carried("gate", summary(18), summary(12), 56.0)]),
        Sized(2, 510, 610, 1600, 2.9, [Carried("gate", summary(25), summary(17), 67.0)]),
    ]
    print_sizing(sizes, Spread(33.0, 0.2, 1300.0))
    told = " ".join(capsys.readouterr().out.split())
    assert "2 gate 25.0 12.5 67 100 17.0 100 100" in told
    assert "2 services on a core each: 33.0 standard photos/s, p50 200 ms, 1300 MB" in told
    draw_sizing(sizes, "a machine", tmp_path / "sizing.png")
    with Image.open(tmp_path / "sizing.png") as drawn:
        assert drawn.format == "PNG"
