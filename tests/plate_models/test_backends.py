"""Triton's backends: batches; the pipeline's calls of its nets, their deadlines and errors.

Tests with a real Triton show that no call begins after its client is gone or its deadline is over
(test_admission.py), and check the stages' times (test_observing.py).
"""

import importlib
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support import REPOSITORY

from plate_models import contract
from plate_models.backends.batching import code_of, run_batched
from plate_models.engines import openvino_engine

BATCH = np.zeros((1, 3, 4, 4), np.float32)


class Lent:
    """A fake of Triton's tensor: on the host if it lends an array's memory, else on a GPU."""

    def __init__(self, _, memory):
        self.memory, self.is_cpu = memory, lambda: isinstance(memory, np.ndarray)

    from_dlpack = classmethod(lambda cls, name, tensor: cls(name, tensor))

    def __dlpack__(self, **asked):
        return self.memory.__dlpack__(**asked)

    def __dlpack_device__(self):
        return self.memory.__dlpack_device__()


@pytest.fixture
def triton(monkeypatch):
    """A fake of Triton's module for Python models; each call of a net takes 0.25 seconds."""
    # The clock in seconds; the arguments of each call of a net; the error message they answer with.
    fake = SimpleNamespace(now=0.0, calls=[], error=None)

    def ask(**given):
        fake.calls.append(given)
        fake.now += 0.25
        error = SimpleNamespace(message=lambda: fake.error)
        answer = SimpleNamespace(has_error=lambda: fake.error is not None, error=lambda: error)
        return SimpleNamespace(exec=lambda: answer)

    fake.InferenceRequest = ask
    fake.Tensor = Lent
    fake.get_output_tensor_by_name = lambda *_: fake.calls[-1]["inputs"][0]
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", fake)
    bls = importlib.import_module("plate_models.backends.bls")

    monkeypatch.setattr(bls, "time", SimpleNamespace(monotonic=lambda: fake.now))

    def begin(version="1", timeout_us=0):
        request = SimpleNamespace(timeout=lambda: timeout_us, is_cancelled=lambda: False)
        return bls.Call(request, version)

    fake.begin = begin
    yield fake
    del sys.modules["plate_models.backends.bls"]


def test_each_net_gets_the_time_that_is_left_until_the_deadline(triton):
    call = triton.begin(timeout_us=1_000_000)
    with call.stage("decode"):
        triton.now += 0.1
    for net in call.nets():
        net(BATCH)
    assert [each["timeout"] for each in triton.calls] == [900_000, 650_000, 400_000]
    # Without a timeout the nets get none. While a release replaces another one, Triton serves both:
    # each calls the nets of its own version only.
    for net in (*triton.begin("7").nets(), *triton.begin().nets()):
        triton.now += 1e6
        net(BATCH)
    assert not any("timeout" in each for each in triton.calls[3:])
    assert [each["model_version"] for each in triton.calls[3:]] == [7, 7, 7, 1, 1, 1]


@pytest.mark.parametrize("batch", [BATCH, torch.from_numpy(BATCH)])
def test_a_net_returns_an_array_for_an_array_and_a_tensor_for_a_tensor(triton, batch):
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
def test_a_nets_error_names_the_net_and_whether_a_retry_may_help(triton, message, transient):
    triton.error = message
    with pytest.raises(contract.GraphError) as raised:
        triton.begin().nets()[1](BATCH)
    assert str(raised.value) == f"stn: {message}" and raised.value.transient is transient


class Doubler:
    """A net with two outputs, the doubled input and its sums; refuses negative numbers."""

    def __init__(self):
        self.sizes = []

    def __call__(self, array):
        self.sizes.append(len(array))
        if (array < 0).any():
            raise ValueError("negative")
        return array * 2, array.reshape(len(array), -1).sum(axis=1)


def request(value, rows=1, columns=2):
    return np.full((rows, columns), value, np.float32)


def test_requests_of_one_shape_are_one_batch_and_each_gets_its_own_rows():
    net = Doubler()
    answers = run_batched([request(1), request(2, rows=3), request(3)], net, np.concatenate)
    assert net.sizes == [5]
    assert [answer[0].tolist() for answer in answers] == [[[2, 2]], [[4, 4]] * 3, [[6, 6]]]
    assert [answer[1].tolist() for answer in answers] == [[2], [4, 4, 4], [6]]
    assert run_batched([], net, np.concatenate) == []


def test_requests_of_different_shapes_and_types_run_separately_in_order():
    net = Doubler()
    requests = [request(1), request(2, columns=3), request(3), np.full((1, 2), 4.0)]
    answers = run_batched(requests, net, np.concatenate)
    assert net.sizes == [1, 1, 1, 1]
    assert [answer[0].flat[0] for answer in answers] == [2, 4, 6, 8]


def test_a_bad_request_fails_alone():
    net = Doubler()
    answers = run_batched([request(1), request(-1), request(3)], net, np.concatenate)
    assert isinstance(answers[1], ValueError)
    assert [answers[n][0].tolist() for n in (0, 2)] == [[[2, 2]], [[6, 6]]]
    assert net.sizes == [3, 1, 1, 1]  # the batch fails, so each request runs alone


def test_an_error_code_tells_a_bad_request_from_a_broken_or_busy_backend():
    run = openvino_engine.load(REPOSITORY / "lprnet" / "1" / "model.onnx", ["output__0"], {})
    with pytest.raises(Exception, match="shape") as refused:
        run(np.zeros((1, 3, 24, 95), np.float32))
    assert code_of(refused.value) == code_of(ValueError("no such shape")) == "INVALID_ARG"
    for broken in (RuntimeError("a kernel is missing"), KeyError("output__0"), OSError()):
        assert code_of(broken) == "INTERNAL"
    for transient in (MemoryError(), torch.OutOfMemoryError("CUDA out of memory")):
        assert code_of(transient) == "UNAVAILABLE"
