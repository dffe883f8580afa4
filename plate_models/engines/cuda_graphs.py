"""Nets on a GPU, all kernels of one started at once.

A GPU computes our nets faster than their kernels can be started one by one. A CUDA graph is
what a net did once, recorded: it is replayed in one call.
"""

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Net = Callable[[Tensor], Any]
_MOST = 20  # each keeps its memory: three canvases in five sizes of batch, and some others
# A net and its input, to what replays it and its outputs: the same memory each time.
Record = Callable[[Net, Tensor], tuple[Callable[[], None], Any]]


def record(net: Net, given: Tensor) -> tuple[Callable[[], None], Any]:
    """Record what a net does with a tensor on a GPU, wherever its values come from later."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(given.device):
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(3):  # kernels are chosen, and TorchScript compiles, in the first ones
                net(given)
        torch.cuda.current_stream().wait_stream(beside)
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            outputs = net(given)

    def replay() -> None:
        with torch.cuda.device(given.device):
            graph.replay()

    return replay, outputs


class CudaGraphs:
    """A net on a GPU, recorded once for each shape of its batches.

    Batches are filled up to a power of two, so that few are recorded: what the net gives for a
    row must not depend on the others. While one net of a process is recorded no other may be.
    """

    def __init__(self, net: Net, record: Record = record) -> None:
        self._net, self._record = net, record
        self._recorded: dict[tuple[Any, ...], Any] = {}
        self._lock = threading.Lock()

    @torch.no_grad()
    def __call__(self, batch: Tensor) -> Any:
        """Compute a batch of at least one row; the result is a tensor or a tuple, as the net's."""
        rows = len(batch)
        shape = (1 << (rows - 1).bit_length(), *batch.shape[1:])
        kind = batch.dtype, *shape
        with self._lock:
            if kind not in self._recorded:
                if len(self._recorded) == _MOST:
                    return self._net(batch)
                given = batch.new_zeros(shape)
                self._recorded[kind] = given, *self._record(self._net, given)
            given, replay, outputs = self._recorded[kind]
            given[:rows] = batch
            replay()
            # Copied: the next replay writes to the same memory.
            if isinstance(outputs, tuple):
                return tuple(output[:rows].clone() for output in outputs)
            return outputs[:rows].clone()
