"""The released artifacts on real crops and canvases, in batches: what the modules compute.

Crops are cut by the pipeline's own functions from the sample photos, and from real ones where
they are at hand: these come last, so that small batches consist of them. Texts are compared
as well as numbers.
"""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from support import SAMPLES, read_samples
from torch import Tensor

from plate_models import export, weights
from plate_models.contract import GRAPHS
from plate_models.detection import letterbox
from plate_models.engines import onnxruntime_engine, openvino_engine
from plate_models.export import compare_candidates
from plate_models.images import decode
from plate_models.recognition.ctc import greedy_decode, log_softmax
from plate_models.rectification import crop_boxes, normalize
from plate_models.spec import DETECTOR, RECOGNIZER, RECTIFIER
from plate_models.training.labels import load_labels
from plate_models.weights import Modules

Run = Callable[[Tensor], tuple[Tensor, ...]]
Photo = tuple[Tensor, list[tuple[float, float, float, float]]]

CROP_BATCHES, CANVAS_BATCHES = (1, 4, RECTIFIER.max_batch_size), (1, 4, DETECTOR.max_batch_size)
TOLERANCE = 1e-3


def sample_photos() -> list[Photo]:
    return [
        (torch.from_numpy(decode((SAMPLES / name).read_bytes())), [plate.box for plate in plates])
        for name, plates in read_samples().items()
    ]


def real_photos() -> list[Photo]:
    if "PLATES_DATA" not in os.environ:
        return []
    labelled = load_labels(Path(os.environ["PLATES_DATA"]) / "ru_photos")
    return [
        (torch.from_numpy(decode(photo.path.read_bytes())), [p.box for p in photo.plates])
        for photo in labelled[:: len(labelled) // 10]
    ]


def crops_of(photos: list[Photo], count: int) -> Tensor:
    """As many normalized crops, (N, 3, h, w): the plates, then as sloppy boxes see them."""
    crops, shift = [], 0.0
    while len(crops) < count:
        for image, places in photos:
            boxes = torch.tensor(places)
            sides = (boxes[:, 2:] - boxes[:, :2]).repeat(1, 2)
            crops += list(crop_boxes(image, boxes + shift * sides))
        shift += 0.06
    return normalize(torch.stack(crops[:count]))


def canvases_of(photos: list[Photo], count: int) -> Tensor:
    """As many canvases of the first size, (N, 3, H, W) uint8: the photos, then mirrored."""
    images = [image for image, _ in photos]
    images += [image.flip(1).contiguous() for image in images]
    hw = DETECTOR.canvases_hw[0]
    return torch.stack([letterbox(image, hw)[0] for image in images[:count]])


@pytest.fixture(scope="module")
def photos() -> list[Photo]:
    return sample_photos() + real_photos()


@pytest.fixture(scope="module")
def crops(photos: list[Photo]) -> Tensor:
    return crops_of(photos, CROP_BATCHES[-1])


@pytest.fixture(scope="module")
def modules() -> Modules:
    return weights.load_modules()


def numpy_run(run: Callable[[tuple[np.ndarray, ...]], tuple[np.ndarray, ...]]) -> Run:
    return lambda inputs: tuple(map(torch.from_numpy, run((inputs.numpy(),))))


def artifacts(repository: Path, model: str) -> dict[str, Run]:
    """Every way to run a model's artifacts in float32."""
    folder, names = repository / model / "1", GRAPHS[model]
    script = export.load_torchscript(folder / "model.pt")
    onnx = folder / "model.onnx"
    return {
        "TorchScript": lambda inputs: as_tuple(script(inputs)),
        "ONNX Runtime": numpy_run(onnxruntime_engine.load(onnx, names, {})),
        "OpenVINO": numpy_run(openvino_engine.load(onnx, names, {})),
    }


def as_tuple(outputs: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def differences(
    runs: dict[str, Run], module: Run, batches: list[Tensor]
) -> dict[tuple[str, int], list[float]]:
    """For each artifact and batch size, how far each output is off at most."""
    found = {}
    with torch.inference_mode():
        for batch in batches:
            expected = as_tuple(module(batch))
            for name, run in runs.items():
                pairs = zip(expected, run(batch), strict=True)
                found[name, len(batch)] = [float((a - b).abs().max()) for a, b in pairs]
    return found


def texts_of(logits: Tensor) -> list[str]:
    rows = logits.numpy()
    return [greedy_decode(log_softmax(row), RECOGNIZER.alphabet) for row in rows]


def test_rectified_plates_and_theta_agree(
    crops: Tensor, modules: Modules, repository: Path
) -> None:
    batches = [crops[-size:] for size in CROP_BATCHES]
    found = differences(artifacts(repository, "stn"), modules.rectify, batches)
    assert len(found) == 9 and all(len(outputs) == 2 for outputs in found.values())
    assert all(worst < TOLERANCE for outputs in found.values() for worst in outputs), found


def test_logits_and_texts_agree(crops: Tensor, modules: Modules, repository: Path) -> None:
    with torch.inference_mode():
        plates = modules.rectify(crops)[0]
        batches = [plates[-size:] for size in CROP_BATCHES]
        runs = artifacts(repository, "lprnet")
        found = differences(runs, modules.recognize, batches)
        assert len(found) == 9 and all(worst < TOLERANCE for (worst,) in found.values()), found
        for batch in batches:
            expected = texts_of(modules.recognize(batch))
            assert all(texts_of(run(batch)[0]) == expected for run in runs.values())
            assert any(len(text) >= 8 for text in expected)


def test_candidates_agree(photos: list[Photo], modules: Modules, repository: Path) -> None:
    canvases = canvases_of(photos, CANVAS_BATCHES[-1])
    runs = artifacts(repository, "yolo")
    found = {}
    with torch.inference_mode():
        for size in CANVAS_BATCHES:
            batch = canvases[-size:]
            assert len(batch) == size
            expected = modules.detect(batch)
            assert (expected[..., 4].amax(dim=1) > DETECTOR.score_threshold).any()
            for name, run in runs.items():
                found[name, size] = compare_candidates((expected,), run(batch))
    assert len(found) == 9 and all(worst < 1 for worst in found.values()), found


def test_a_difference_would_show(crops: Tensor, modules: Modules) -> None:
    """What the tests above look at tells a slightly different net from the right one."""

    def crooked(inputs: Tensor) -> tuple[Tensor, ...]:
        plates, theta = modules.rectify(inputs)
        return plates, theta + 2 * TOLERANCE

    found = differences({"crooked": crooked}, modules.rectify, [crops[:4]])
    assert found["crooked", 4][0] == 0 and found["crooked", 4][1] > TOLERANCE
