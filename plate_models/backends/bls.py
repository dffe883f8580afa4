"""Triton's side of ``plate_recognition``: photos in parallel, and calls to the nets (BLS).

Triton's time-outs limit the time in a queue, never the work, and cancelling a request does
not cancel its child requests: deadline and cancellation are checked here, before each stage.

Imported only inside Triton's stub, which provides ``triton_python_backend_utils``.
"""

import math
import re
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from plate_models import contract
from plate_models.pixels import to_device, to_host
from plate_models.spec import TENSORS

DECODE, REST = "decode", "rest"
# Triton's messages for transient errors: full queues, and models that restart. The messages are
# needed because before 25.04 a child's error code does not reach its parent.
_TRANSIENT = re.compile(
    r"queue size|timeout expired|stub process|not healthy|not ready|unknown model"
    r"|no available versions|unload|shutting down|out of memory|shared memory pool",
    re.IGNORECASE,
)

Net = Callable[[Any], Any]


class Call:
    """One request to ``plate_recognition``, with its deadline and the time of each stage."""

    def __init__(self, request: Any, version: str) -> None:
        # The nets' version must be ours: Triton serves two while a release is replaced.
        self._request, self._version = request, int(version)
        self._began = time.monotonic()
        self._timeout_s = request.timeout() / 1e6 or math.inf  # 0 means no time-out
        self._spent_s = dict.fromkeys((DECODE, *contract.GRAPHS), 0.0)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time the work of one stage: ``DECODE`` or one of ``contract.GRAPHS``.

        Before the work it raises RequestCancelled if the client has cancelled its request, and
        GraphError if the deadline has passed.
        """
        if self._request.is_cancelled():
            raise contract.RequestCancelled(
                f"The client has cancelled the request; {name} was not begun."
            )
        if self._remaining_s <= 0:
            raise contract.GraphError(f"Request timeout expired before {name}.")
        began = time.monotonic()
        try:
            yield
        finally:
            self._spent_s[name] += time.monotonic() - began

    def nets(self) -> tuple[Net, ...]:
        """The functions that ``read_plates`` takes: their output is on their input's device."""
        return tuple(partial(self._call, name) for name in contract.GRAPHS)

    def timing_ms(self) -> dict[str, float]:
        """Milliseconds by stage so far; ``REST`` is the time outside the other stages."""
        rest_s = time.monotonic() - self._began - sum(self._spent_s.values())
        spent_s = {**self._spent_s, REST: rest_s}
        return {name: round(seconds * 1e3, 2) for name, seconds in spent_s.items()}

    @property
    def _remaining_s(self) -> float:
        return self._timeout_s - (time.monotonic() - self._began)

    def _call(self, model: str, batch: Any) -> Any:
        with self.stage(model):
            # Triton 2.51's stub crashes if it gets a NumPy array by dlpack.
            on_host = isinstance(batch, np.ndarray)
            tensor_of = pb_utils.Tensor if on_host else pb_utils.Tensor.from_dlpack
            names = list(contract.GRAPHS[model])
            # The net's queue refuses the request if it waits longer than the time left.
            left_us = self._remaining_s * 1e6
            request = pb_utils.InferenceRequest(
                model_name=model,
                model_version=self._version,
                inputs=[tensor_of(TENSORS.graph_input, batch)],
                requested_output_names=names,
                **({} if math.isinf(left_us) else {"timeout": max(1, round(left_us))}),
            )
            response = request.exec()
            if response.has_error():
                message = f"{model}: {response.error().message()}"
                raise contract.GraphError(message, transient=bool(_TRANSIENT.search(message)))
            found = [pb_utils.get_output_tensor_by_name(response, name) for name in names]
            outputs = tuple(
                to_host(each) if on_host else to_device(each, batch.device)
                for each in map(view, found)
            )
        return outputs if len(outputs) > 1 else outputs[0]


def view(tensor: Any) -> Any:
    """View Triton's memory without a copy, as an array, or on a GPU as a torch tensor."""
    if tensor.is_cpu():
        return np.from_dlpack(tensor)
    from torch.utils.dlpack import from_dlpack

    return from_dlpack(tensor)


class Slots:
    """Threads that answer requests in parallel; processes would need far more memory.

    While none is free, `take` waits, so that requests stay in Triton's queue. `answer` converts a
    request to a response and never raises.
    """

    def __init__(self, count: int, answer: Callable[[Any], Any]) -> None:
        self._answer = answer
        self._free = threading.Semaphore(count)
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="photo")

    def take(self, requests: Sequence[Any]) -> None:
        """Start to answer requests; returns as soon as the last one has a slot."""
        for request in requests:
            self._free.acquire()
            self._pool.submit(self._work, request)

    def close(self) -> None:
        """Wait for the answers in progress."""
        self._pool.shutdown()

    def _work(self, request: Any) -> None:
        try:
            final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
            request.get_response_sender().send(self._answer(request), flags=final)
        except Exception:  # `answer` never raises, but Triton may refuse the response
            pb_utils.Logger.log_error(traceback.format_exc())
        finally:
            self._free.release()
