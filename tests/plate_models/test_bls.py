"""The nets' calls to Triton: only while somebody waits, with what is left of the time."""

import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from plate_models import contract


def request(timeout_us: int = 0, cancelled: bool = False) -> SimpleNamespace:
    """What Triton hands to the model."""
    return SimpleNamespace(timeout=lambda: timeout_us, is_cancelled=lambda: cancelled)


class FakeTriton:
    """Triton's module for Python models; every child takes a quarter of a second.

    Attributes:
        now: Seconds.
        children: Arguments of every request to a net.
        error: What the nets answer with, if anything.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.children: list[dict[str, Any]] = []
        self.error: str | None = None
        self.outputs: dict[str, torch.Tensor] = {}

    def module(self) -> ModuleType:
        module: Any = ModuleType("triton_python_backend_utils")
        module.Tensor = SimpleNamespace(from_dlpack=lambda _, tensor: tensor)
        module.InferenceRequest = lambda **given: SimpleNamespace(exec=lambda: self.answer(given))
        module.get_output_tensor_by_name = lambda _, name: self.outputs[name]
        return module

    def answer(self, given: dict[str, Any]) -> SimpleNamespace:
        self.children.append(given)
        self.now += 0.25
        names = given["requested_output_names"]
        self.outputs = {name: torch.full((1, 2), len(name), dtype=torch.float32) for name in names}
        message = self.error
        error = SimpleNamespace(message=lambda: message)
        return SimpleNamespace(has_error=lambda: message is not None, error=lambda: error)


@pytest.fixture
def triton() -> FakeTriton:
    return FakeTriton()


@pytest.fixture
def begin(triton: FakeTriton, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Begin a call, as the model does for each of its requests."""
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", triton.module())
    bls = importlib.import_module("plate_models.backends.bls")
    yield lambda *given: bls.Call(*given, clock=lambda: triton.now)
    del sys.modules["plate_models.backends.bls"]


TENSOR = torch.zeros((1, 3, 4, 4))


def test_tensors_pass_as_they_are(begin: Callable[..., Any], triton: FakeTriton) -> None:
    yolo, stn, lprnet = begin(request()).nets()
    for net, model in ((yolo, "yolo"), (lprnet, "lprnet")):
        found = net(TENSOR)
        assert found.data_ptr() == triton.outputs["output__0"].data_ptr()
        assert triton.children[-1]["model_name"] == model
        assert triton.children[-1]["inputs"][0].data_ptr() == TENSOR.data_ptr()
    assert [float(output[0, 0]) for output in stn(TENSOR)] == [len("output__0"), len("output__1")]


def test_each_net_gets_what_is_left(begin: Callable[..., Any], triton: FakeTriton) -> None:
    call = begin(request(timeout_us=1_000_000))
    with call.stage("decode"):
        triton.now += 0.1
    for net in call.nets():
        net(TENSOR)
    assert [child["timeout"] for child in triton.children] == [900_000, 650_000, 400_000]
    # Without a timeout the nets get none. While a release is changed Triton serves two: each
    # reads photos with its own nets alone.
    for net in (*begin(request(), "7").nets(), *begin(request()).nets()):
        triton.now += 1e6
        net(TENSOR)
    assert not any("timeout" in child for child in triton.children[3:])
    assert [child["model_version"] for child in triton.children[3:]] == [7, 7, 7, 1, 1, 1]


def test_no_stage_begins_after_the_timeout(begin: Callable[..., Any], triton: FakeTriton) -> None:
    call = begin(request(timeout_us=300_000))
    yolo, stn, _ = call.nets()
    yolo(TENSOR)
    triton.now += 0.1
    with pytest.raises(contract.TimeoutExpired, match="timeout expired before stn"):
        stn(TENSOR)
    with pytest.raises(contract.TimeoutExpired), call.stage("decode"):
        pytest.fail("begun")
    assert len(triton.children) == 1


def test_no_stage_begins_once_the_request_is_cancelled(
    begin: Callable[..., Any], triton: FakeTriton
) -> None:
    call = begin(request(cancelled=True))
    with pytest.raises(contract.CallerGone):
        call.nets()[0](TENSOR)
    with pytest.raises(contract.CallerGone), call.stage("decode"):
        pytest.fail("begun")
    assert not triton.children


@pytest.mark.parametrize(
    ("message", "transient"),
    [
        ("Exceeds maximum queue size", True),
        ("Request timeout expired", True),
        ("Stub process 'stn_0_0' is not healthy.", True),
        ("Request for unknown model: 'stn' version 1 is not at ready state", True),
        ("CUDA out of memory. Tried to allocate 2 GiB", True),
        ("[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned", False),
        ("expected an input of the shape [?,3,64,160], got [-1, 3, 64, 192]", False),
    ],
)
def test_a_nets_error_names_it_and_says_whether_it_passes(
    begin: Callable[..., Any], triton: FakeTriton, message: str, transient: bool
) -> None:
    triton.error = message
    with pytest.raises(contract.GraphError) as raised:
        begin(request()).nets()[1](TENSOR)
    assert str(raised.value) == f"stn: {message}" and raised.value.transient is transient


def test_stages_are_timed_and_the_rest_is_the_rest(
    begin: Callable[..., Any], triton: FakeTriton
) -> None:
    call = begin(request())
    with call.stage("decode"):
        triton.now += 0.01
    yolo, stn, _ = call.nets()
    yolo(TENSOR)
    triton.now += 0.5
    stn(TENSOR)
    stn(TENSOR)
    spent = call.timing_ms()
    assert spent == pytest.approx({"decode": 10, "yolo": 250, "stn": 500, "lprnet": 0, "rest": 500})
