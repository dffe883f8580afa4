"""What a GPU does with a photo: the same plates, one copy there, one copy back, no waiting.

It runs on a stand-in for a GPU, which is the CPU under another name, and, where there is
one, on a GPU.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from sample_photos import SAMPLES, read_samples
from stand_in_device import DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE, on_device, watch
from torch import Tensor
from torch.nn.functional import interpolate

from plate_models import contract, geometry, images, pipeline, weights
from plate_models.cropping import cut_regions
from plate_models.devices import upload
from plate_models.pipeline import PipelineConfig, Plate, read_plates
from plate_models.spec import DETECTOR, RECOGNIZER, RECTIFIER

Nets = tuple[Callable[[Tensor], Any], ...]


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


@pytest.fixture
def nets() -> Nets:
    return modules().detect, modules().rectify, modules().recognize


@pytest.fixture
def config() -> PipelineConfig:
    return PipelineConfig.of(modules().specs, modules().calibration)


def photo_of(name: str) -> Tensor:
    return torch.from_numpy(images.decode((SAMPLES / name).read_bytes()))


@cache
def send_constants() -> None:
    """Have what is uploaded once, with the first photo, on the device."""
    with watch():
        rows = [[*row[:5], float(i % 2)] for i, row in enumerate(grid(2))]
        read_plates(upload(PHOTO, DEVICE), *map(on_device, nets_for(rows)), PipelineConfig())


def read_there(photo: Tensor, nets: Nets, config: PipelineConfig) -> tuple[list[Plate], Any]:
    """Read a photo as a GPU would, and watch it."""
    send_constants()
    with watch() as watcher:
        plates = read_plates(upload(photo, DEVICE), *map(on_device, nets), config)
    return plates, watcher


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
def test_a_device_reads_what_the_host_reads(
    name: str, nets: Nets, config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    photo = photo_of(name)
    found, watcher = read_there(photo, nets, config)
    assert watcher.met == {HOST_TO_DEVICE: 1, DEVICE_TO_HOST: 1}, watcher.waits
    assert {plate.text for plate in read_samples()[name]} <= {p.reading.text for p in found}
    with torch.inference_mode():
        texts = [plate.reading.text for plate in read_plates(photo, *nets, config)]
        # The one thing that is not the same: on the host torch resizes bytes, and rounds the
        # weights. Canvases then differ by a grey level here and there.
        monkeypatch.setattr(geometry, "_resize", resize_as_floats)
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
        # Some plates reach beyond their crops, and are looked at again.
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


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Crops of few samples: the stand-in pays for each, a GPU hardly."""
    monkeypatch.setattr(geometry, "_SAMPLES_PER_PIXEL", 1)


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("reach", [0.0, 0.5])
@pytest.mark.parametrize(
    ("count", "kind"), [(0, 0.0), (1, 0.0), (4, 1.0), (8, 0.0), (9, 0.0), (21, 1.0), (41, 0.0)]
)
def test_however_many_plates(count: int, kind: float, reach: float) -> None:
    nets, config = nets_for(grid(count, kind), reach), PipelineConfig()
    expected = read_plates(PHOTO, *nets, config)
    assert len(expected) == count
    found, watcher = read_there(PHOTO, nets, config)
    assert_same(found, expected)
    # Plates of two lines are looked at as one line as well. First eight looks, then 32.
    looks = count * (2 if kind else 1)
    copies = 1 + max(0, -(-(looks - pipeline.FIRST_LOOKS) // pipeline.MOST_LOOKS))
    assert watcher.met == {HOST_TO_DEVICE: 1, DEVICE_TO_HOST: copies}, watcher.waits


@pytest.mark.usefixtures("coarse")
def test_one_line_and_two_among_each_other() -> None:
    rows = [[*row[:5], float(i % 3 == 0)] for i, row in enumerate(grid(11))]
    nets, config = nets_for(rows, 0.5), PipelineConfig()
    assert_same(read_there(PHOTO, nets, config)[0], read_plates(PHOTO, *nets, config))


@pytest.mark.usefixtures("coarse")
def test_a_chain_of_boxes_takes_another_round() -> None:
    """Each overlaps the next only: whether one stays depends on all before it."""
    rows = [[10.0 + 30 * i, 50, 100 + 30 * i, 80, 0.9 - i / 100, 0] for i in range(20)]
    nets, config = nets_for(rows), PipelineConfig()
    expected = read_plates(PHOTO, *nets, config)
    assert 1 < len(expected) < len(rows)
    found, watcher = read_there(PHOTO, nets, config)
    assert_same(found, expected)
    assert watcher.met[DEVICE_TO_HOST] > 1 and not watcher.waits


@pytest.mark.usefixtures("coarse")
def test_broken_candidates_do_no_harm() -> None:
    nan, far = float("nan"), 1e30
    rows = [*grid(2), [nan, 0, 50, 20, 0.9, 0], [0, 0, 60, 30, nan, nan], [-far, 5, far, 9, 0.3, 0]]
    nets, config = nets_for(rows[:4]), PipelineConfig()
    assert_same(read_there(PHOTO, nets, config)[0], read_plates(PHOTO, *nets, config))
    assert len(read_there(PHOTO, nets_for(rows), config)[0]) <= 3


def broken_ways() -> list[Callable[[Tensor], None]]:
    def item(image: Tensor) -> None:
        image[0, 0, 0].item()

    def condition(image: Tensor) -> None:
        if (image > 3).any():
            pass

    def mask(image: Tensor) -> None:
        image[image[:, 0, 0] > 3]

    def another_copy(image: Tensor) -> None:
        image[0].cpu()

    def another_upload(image: Tensor) -> None:
        torch.zeros(3).to(image.device)

    return [item, condition, mask, another_copy, another_upload]


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("waiting", broken_ways(), ids=lambda way: way.__name__)
def test_the_watch_sees(waiting: Callable[[Tensor], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch itself: a pipeline that waits, or copies once more, is told from ours."""
    crop_boxes = geometry.crop_boxes

    def crop_and_wait(image: Tensor, *rest: Any) -> Tensor:
        if image.device.type == DEVICE.type:
            waiting(image)
        return crop_boxes(image, *rest)

    monkeypatch.setattr("plate_models.rectifying.crop_boxes", crop_and_wait)
    _, watcher = read_there(PHOTO, nets_for(grid(1)), PipelineConfig())
    assert watcher.met != {HOST_TO_DEVICE: 1, DEVICE_TO_HOST: 1}


def test_constants_made_on_the_way_are_refused() -> None:
    with watch():
        there = torch.zeros(2).to(DEVICE)
        with pytest.raises(NotImplementedError):
            there.new_tensor([1.0, 2.0])
        with pytest.raises(RuntimeError, match="on the host and on the device"):
            there + torch.ones(2)


def test_crops_at_once_are_crops_one_by_one() -> None:
    """From a fraction of a pixel to far beyond the photo, in every step of the sampling."""
    sizes = torch.tensor([0.1, 3, 40, 160, 500, 645, 1200, 1300, 3000, 9000])
    centre = torch.rand(len(sizes), 2, generator=torch.Generator().manual_seed(2)) * 900
    half = torch.stack((sizes, sizes * 0.4), dim=1) / 2
    boxes = torch.cat((centre - half, centre + half), dim=1)
    expected = geometry.crop_boxes(PHOTO, boxes).int()
    regions = geometry.widen_boxes(boxes.double())
    found = cut_regions(PHOTO, regions, RECTIFIER.crop_hw, geometry._SAMPLES_PER_PIXEL)
    assert (found.round().clamp(0, 255).int() - expected).abs().max() <= 1
    assert (found - expected).abs().max() < 0.51


def test_a_photo_that_is_there_is_not_moved() -> None:
    assert upload(PHOTO, "cpu") is PHOTO


def test_a_gpu_that_is_not_there_is_an_error() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    args = {"model_instance_kind": "GPU", "model_instance_device_id": "0"}
    with pytest.raises(RuntimeError, match="GPU"):
        contract.device_of(args)
    assert contract.device_of({**args, "model_instance_kind": "CPU"}) == "cpu"


@pytest.mark.usefixtures("coarse")
def test_detectors_with_fewer_candidates_are_read_alike() -> None:
    detect, *others = nets_for(grid(4))
    few = (lambda canvas: detect(canvas)[:, :4], *others)
    config = PipelineConfig()
    assert_same(read_there(PHOTO, few, config)[0], read_plates(PHOTO, *few, config))
