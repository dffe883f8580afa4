"""The nets' calls to Triton: with what is left of the time, and what their errors say.

That none begins once its client is gone or its time is over is shown by a real Triton
(test_admission.py), and so are the stages' times (test_observing.py).
"""

import importlib
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from plate_models import contract

BATCH = np.zeros((1, 3, 4, 4), np.float32)


class Lent:
    """Triton's tensor with another's memory: an array's, or a GPU's that a tensor stands for."""

    def __init__(self, _, memory):
        self.memory, self.is_cpu = memory, lambda: isinstance(memory, np.ndarray)

    from_dlpack = classmethod(lambda cls, name, tensor: cls(name, tensor))

    def __dlpack__(self, **asked):
        return self.memory.__dlpack__(**asked)

    def __dlpack_device__(self):
        return self.memory.__dlpack_device__()


@pytest.fixture
def triton(monkeypatch):
    """Triton's module for Python models, of which every net takes a quarter of a second."""
    # Seconds; arguments of every request to a net; what the nets answer with, if it is an error.
    fake = SimpleNamespace(now=0.0, asked=[], error=None)

    def ask(**given):
        fake.asked.append(given)
        fake.now += 0.25
        error = SimpleNamespace(message=lambda: fake.error)
        answer = SimpleNamespace(has_error=lambda: fake.error is not None, error=lambda: error)
        return SimpleNamespace(exec=lambda: answer)

    fake.InferenceRequest = ask
    fake.Tensor = Lent
    fake.get_output_tensor_by_name = lambda *_: fake.asked[-1]["inputs"][0]
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", fake)
    bls = importlib.import_module("plate_models.backends.bls")

    monkeypatch.setattr(bls, "time", SimpleNamespace(monotonic=lambda: fake.now))

    def begin(version="1", timeout_us=0):
        request = SimpleNamespace(timeout=lambda: timeout_us, is_cancelled=lambda: False)
        return bls.Call(request, version)

    fake.begin = begin
    yield fake
    del sys.modules["plate_models.backends.bls"]


def test_each_net_gets_what_is_left(triton):
    call = triton.begin(timeout_us=1_000_000)
    with call.stage("decode"):
        triton.now += 0.1
    for net in call.nets():
        net(BATCH)
    assert [each["timeout"] for each in triton.asked] == [900_000, 650_000, 400_000]
    # Without a timeout the nets get none. While a release is changed Triton serves two: each
    # reads photos with its own nets alone.
    for net in (*triton.begin("7").nets(), *triton.begin().nets()):
        triton.now += 1e6
        net(BATCH)
    assert not any("timeout" in each for each in triton.asked[3:])
    assert [each["model_version"] for each in triton.asked[3:]] == [7, 7, 7, 1, 1, 1]


@pytest.mark.parametrize("batch", [BATCH, torch.from_numpy(BATCH)])
def test_what_a_net_gives_is_of_its_inputs_kind(triton, batch):
    (found, _) = triton.begin().nets()[1](batch)
    assert type(found) is type(batch) and found.shape == batch.shape


@pytest.mark.parametrize(
    ("message", "transient"),
    [
        ("Exceeds maximum queue size", True),
        ("Request for unknown model: 'stn' version 1 is not at ready state", True),
        ("CUDA out of memory. Tried to allocate 2 GiB", True),
        ("[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned", False),
    ],
)
def test_a_nets_error_names_it_and_says_whether_it_passes(triton, message, transient):
    triton.error = message
    with pytest.raises(contract.GraphError) as raised:
        triton.begin().nets()[1](BATCH)
    assert str(raised.value) == f"stn: {message}" and raised.value.transient is transient
