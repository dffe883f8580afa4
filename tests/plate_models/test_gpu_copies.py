"""A GPU gets a photo once and gives no pixels back: measured by the profiler, on a GPU."""

import importlib
import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support import SAMPLES, read_samples
from torch.profiler import ProfilerActivity, profile

from plate_models import contract
from plate_models.engines.nets import Nets, load_nets
from plate_models.images import decode
from plate_models.pipeline import Plate, read_plates
from plate_models.spec import RECTIFIER

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(),
    reason="torch sees no GPU; test_gpu_way.py watches the copies on a stand-in for one",
)
PHOTO, PLATES = next(iter(read_samples().items()))
Read = Callable[[], list[Plate]]


@pytest.fixture(scope="module")
def nets() -> Nets:
    return load_nets("torch", "cuda:0")


def triton_of(nets: Nets) -> Any:
    """Triton's module for Python models, with the nets behind it in this process."""
    graphs = dict(zip(contract.GRAPHS, (nets.detect, nets.rectify, nets.recognize), strict=True))

    def answer(model_name: str, inputs: list[torch.Tensor], **given: Any) -> SimpleNamespace:
        found = graphs[model_name](*inputs)
        outputs = found if isinstance(found, tuple) else (found,)
        named = dict(zip(given["requested_output_names"], outputs, strict=True))
        return SimpleNamespace(has_error=lambda: False, outputs=named)

    module: Any = ModuleType("triton_python_backend_utils")
    module.Tensor = SimpleNamespace(from_dlpack=lambda _, tensor: tensor)
    module.InferenceRequest = lambda **given: SimpleNamespace(exec=lambda: answer(**given))
    module.get_output_tensor_by_name = lambda response, name: response.outputs[name]
    return module


@pytest.fixture(params=["modules", "bls"])
def read(
    request: pytest.FixtureRequest, nets: Nets, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Read]:
    """Read the photo from its bytes: nets in process, or behind plate_recognition's calls."""
    file = np.frombuffer((SAMPLES / PHOTO).read_bytes(), np.uint8)
    functions = lambda: (nets.detect, nets.rectify, nets.recognize)  # noqa: E731
    if request.param == "bls":
        monkeypatch.setitem(sys.modules, "triton_python_backend_utils", triton_of(nets))
        bls = importlib.import_module("plate_models.backends.bls")
        call = SimpleNamespace(timeout=lambda: 0, is_cancelled=lambda: False)
        functions = lambda: bls.Call(call).nets()  # noqa: E731

    def run() -> list[Plate]:
        with torch.inference_mode():
            photo = contract.photo_of(file, None, device=nets.device)
            return read_plates(photo, *functions(), nets.config)

    yield run
    sys.modules.pop("plate_models.backends.bls", None)


def bytes_copied(run: Read, direction: str) -> list[int]:
    """Sizes of the copies in a direction, "HtoD" or "DtoH", while it runs."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        run()
    with NamedTemporaryFile(suffix=".json") as file:
        profiler.export_chrome_trace(file.name)
        events = json.loads(Path(file.name).read_text())["traceEvents"]
    copies = [e for e in events if e.get("name", "").startswith(f"Memcpy {direction}")]
    return [int(event["args"]["bytes"]) for event in copies]


def test_the_photo_goes_there_once_and_no_pixels_come_back(read: Read) -> None:
    plates = [read() for _ in range(3)][-1]
    assert sorted(p.reading.text for p in plates) == sorted(plate.text for plate in PLATES)
    photo = decode((SAMPLES / PHOTO).read_bytes()).nbytes
    there, back = bytes_copied(read, "HtoD"), bytes_copied(read, "DtoH")
    assert [size for size in there if size > photo / 100] == [photo]
    # The rectified plates that are shown, at most two for each, are the most that comes back.
    assert max(back) <= 2 * len(plates) * 3 * math.prod(RECTIFIER.shown_hw), back


def test_a_copy_of_pixels_is_seen(read: Read, nets: Nets) -> None:
    pixels = torch.zeros((1000, 1000, 3), dtype=torch.uint8, device=nets.device)
    assert max(bytes_copied(lambda: [pixels.cpu(), read()][1], "DtoH")) == 3_000_000


def test_a_gpu_reads_what_the_host_reads(nets: Nets) -> None:
    on_host = load_nets("torch", "cpu")
    for name in read_samples():
        file = np.frombuffer((SAMPLES / name).read_bytes(), np.uint8)
        texts = [
            [plate.reading.text for plate in each.read(contract.photo_of(file, None))]
            for each in (nets, on_host)
        ]
        assert texts[0] == texts[1], name
