"""Backends run requests of one shape and type as one batch; a bad request fails alone."""

import numpy as np
import pytest
import torch
from support import REPOSITORY

from plate_models.backends.batching import code_of, run_batched
from plate_models.engines import openvino_engine


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
