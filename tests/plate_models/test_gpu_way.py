"""A GPU reads the same plates as a host, and no pixels or crops are copied back for that.

It runs on a stand-in for a GPU, which is the CPU under another name.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from stand_in_device import DEVICE, Watch, on_device, watch
from support import SAMPLES, read_samples
from torch import Tensor
from torch.nn.functional import interpolate

from plate_models import contract, detection, images, weights
from plate_models.pipeline import PipelineConfig, Plate, read_plates
from plate_models.spec import DETECTOR, RECOGNIZER, RECTIFIER

Nets = tuple[Callable[[Tensor], Any], ...]
BYTES = torch.uint8


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Thousands of small operations: threads that wait for each other only slow them down."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@cache
def modules() -> weights.Modules:
    return weights.load_modules()


def read_there(photo: Tensor, nets: Nets, config: PipelineConfig) -> tuple[list[Plate], Watch]:
    """Read a photo as a GPU would, and watch it."""
    with watch() as watcher:
        plates = read_plates(photo.to(DEVICE), *map(on_device, nets), config)
    return plates, watcher


def assert_no_pixels_copied(watcher: Watch, plates: int) -> None:
    """What comes back: candidates, theta, logits, and the rectified plates that are shown."""
    shown = [shape for kind, shape in watcher.copied if kind == BYTES]
    assert shown in ([], [(plates, *RECTIFIER.shown_hw, 3)])
    floats = [shape[1:] for kind, shape in watcher.copied if kind != BYTES]
    assert set(floats) <= {(), (6,), (2, 3), (RECOGNIZER.classes, RECOGNIZER.steps)}


def assert_same(found: list[Plate], expected: list[Plate]) -> None:
    """Same plates, same texts; numbers differ at most as sums in another order do."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.reading.text == other.reading.text and one.lines == other.lines
        texts = [[text for text, _ in plate.reading.candidates] for plate in (one, other)]
        assert texts[0] == texts[1]
        assert one.reading.score == pytest.approx(other.reading.score, abs=1e-4)
        assert one.detection_score == pytest.approx(other.detection_score, abs=1e-5)
        np.testing.assert_allclose(one.box, other.box, atol=1e-3)
        np.testing.assert_allclose(one.quad, other.quad, atol=1e-3)
        np.testing.assert_allclose(one.crop.astype(int), other.crop.astype(int), atol=1)


@pytest.mark.parametrize("name", ["square_plates.jpg", "two_at_night.jpg"])
def test_a_device_reads_what_the_host_reads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    photo = torch.from_numpy(images.decode((SAMPLES / name).read_bytes()))
    nets = modules().detect, modules().rectify, modules().recognize
    config = PipelineConfig.of(modules().specs, modules().calibration)
    found, watcher = read_there(photo, nets, config)
    assert (torch.uint8, tuple(photo.shape)) not in watcher.copied
    assert {plate.text for plate in read_samples()[name]} <= {p.reading.text for p in found}
    texts = [plate.reading.text for plate in read_plates(photo, *nets, config)]
    # The one thing that is not the same: on the host torch resizes bytes, and rounds the
    # weights. Canvases then differ by a grey level here and there.
    monkeypatch.setattr(detection, "_resize", resize_as_floats)
    expected = read_plates(photo, *nets, config)
    assert [plate.reading.text for plate in found] == texts
    assert_same(found, expected)


def resize_as_floats(image: Tensor, size_hw: tuple[int, int]) -> Tensor:
    planes = image.permute(2, 0, 1)[None].float()
    resized = interpolate(planes, size_hw, mode="bilinear", antialias=True)[0]
    return resized.round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).contiguous()


# What follows has stand-ins for the nets, which find and cut what a test wants.

STRAIGHT = torch.tensor([[0.8, 0, 0], [0, 0.8, 0]])
PHOTO = torch.randint(0, 256, (900, 1500, 3), generator=torch.Generator().manual_seed(1))
PHOTO = PHOTO.to(torch.uint8)


def nets_for(rows: list[list[float]], reach: float = 0.0) -> Nets:
    """A detector of those rows; theta and logits that depend on what is in a crop."""

    def detect(_canvas: Tensor) -> Tensor:
        candidates = torch.zeros(1, DETECTOR.max_candidates, 6)
        if rows:
            candidates[0, : len(rows)] = torch.tensor(rows)
        return candidates

    def rectify(crops: Tensor) -> tuple[Tensor, Tensor]:
        height, width = RECTIFIER.rectified_hw
        theta = STRAIGHT.repeat(len(crops), 1, 1)
        # Some plates reach beyond their crops, and are cropped anew.
        theta[:, 0, 2] = reach * crops.mean(dim=(1, 2, 3)).sign()
        return crops[:, :, :height, :width], theta

    def recognize(plates: Tensor) -> Tensor:
        assert len(plates) <= RECOGNIZER.max_batch_size
        seen = plates.mean(dim=1)[:, :, : RECOGNIZER.steps]
        return 200 * seen[:, : RECOGNIZER.classes].contiguous()

    return detect, rectify, recognize


def grid(count: int, kind: float = 0.0) -> list[list[float]]:
    """That many boxes on the canvas, none over another, best first."""
    places = [(90.0 * (i % 8) + 5, 40.0 * (i // 8) + 5) for i in range(count)]
    return [[x, y, x + 80, y + 18, 0.95 - i / 1000, kind] for i, (x, y) in enumerate(places)]


@pytest.mark.parametrize("reach", [0.0, 0.5])
@pytest.mark.parametrize(("count", "kind"), [(0, 0.0), (9, 1.0), (41, 0.0)])
def test_however_many_plates(count: int, kind: float, reach: float) -> None:
    nets, config = nets_for(grid(count, kind), reach), PipelineConfig()
    expected = read_plates(PHOTO, *nets, config)
    assert len(expected) == count
    found, watcher = read_there(PHOTO, nets, config)
    assert_same(found, expected)
    # Plates of two lines are read as one line as well.
    assert_no_pixels_copied(watcher, count * (2 if kind else 1))


def test_broken_candidates_do_no_harm() -> None:
    nan, far = float("nan"), 1e30
    rows = [*grid(2), [nan, 0, 50, 20, 0.9, 0], [0, 0, 60, 30, nan, nan], [-far, 5, far, 9, 0.3, 0]]
    nets, config = nets_for(rows[:4]), PipelineConfig()
    assert_same(read_there(PHOTO, nets, config)[0], read_plates(PHOTO, *nets, config))
    assert len(read_there(PHOTO, nets_for(rows), config)[0]) <= 3


def test_a_gpu_that_is_not_there_is_an_error() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    args = {"model_instance_kind": "GPU", "model_instance_device_id": "0"}
    with pytest.raises(RuntimeError, match="GPU"):
        contract.device_of(args)
    assert contract.device_of({**args, "model_instance_kind": "CPU"}) == "cpu"
