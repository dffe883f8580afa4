"""Nets on a GPU, with all kernels of a net launched by one call.

A GPU computes our nets faster than their kernels can be launched one by one. A CUDA graph records
the kernels of one run and replays them in one call.
"""

import threading
from collections.abc import Callable
from typing import Any

import torch

Net = Callable[[torch.Tensor], Any]
_MOST_RECORDED = 20  # each holds memory; three canvases in five sizes of batch, and some others
# A net and its input to a function that replays the net, and the outputs' memory.
Record = Callable[[Net, torch.Tensor], tuple[Callable[[], None], Any]]


def record(net: Net, given: torch.Tensor) -> tuple[Callable[[], None], Any]:
    """Record a net's run on a tensor on a GPU; replays use the values in the same memory."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(given.device):
        side_stream = torch.cuda.Stream()
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            for _ in range(3):  # The first runs choose kernels and compile TorchScript.
                net(given)
        torch.cuda.current_stream().wait_stream(side_stream)
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            outputs = net(given)

    def replay() -> None:
        with torch.cuda.device(given.device):
            graph.replay()

    return replay, outputs


class CudaGraphs:
    """A net on a GPU, recorded once for each shape of its batches.

    Batches are padded to a power of two, to limit the number of recordings. The net's output for a
    row must not depend on other rows. Only one net of a process may be recorded at a time.
    """

    def __init__(self, net: Net, record: Record = record) -> None:
        self._net, self._record = net, record
        self._recorded: dict[tuple[Any, ...], Any] = {}
        self._lock = threading.Lock()

    @torch.no_grad()
    def __call__(self, batch: torch.Tensor) -> Any:
        """Compute a batch of at least one row; returns a tensor or a tuple, as the net does."""
        rows = len(batch)
        shape = (1 << (rows - 1).bit_length(), *batch.shape[1:])
        key = batch.dtype, *shape
        with self._lock:
            if key not in self._recorded:
                if len(self._recorded) == _MOST_RECORDED:
                    return self._net(batch)
                given = batch.new_zeros(shape)
                self._recorded[key] = given, *self._record(self._net, given)
            given, replay, outputs = self._recorded[key]
            given[:rows] = batch
            replay()
            # Copy the outputs: the next replay writes to the same memory.
            if isinstance(outputs, tuple):
                return tuple(output[:rows].clone() for output in outputs)
            return outputs[:rows].clone()
