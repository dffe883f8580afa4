"""Requests answered side by side in one process, while Triton hands over the next.

A process for each would hold torch as often. Imported only inside Triton's stub, which
brings ``triton_python_backend_utils``.
"""

import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import triton_python_backend_utils as pb_utils


class Slots:
    """A fixed number of threads; while none is free, `take` waits, so that Triton's queue fills."""

    def __init__(self, count: int, answer: Callable[[Any], Any]) -> None:
        """Open so many slots; `answer` makes a response from a request and never raises."""
        self._answer = answer
        self._free = threading.Semaphore(count)
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="photo")

    def take(self, requests: Sequence[Any]) -> None:
        """Begin to answer; returns once the last of the requests has found a slot."""
        for request in requests:
            self._free.acquire()
            self._pool.submit(self._work, request)

    def close(self) -> None:
        """Wait for the requests that are being answered."""
        self._pool.shutdown()

    def _work(self, request: Any) -> None:
        try:
            final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
            request.get_response_sender().send(self._answer(request), flags=final)
        except Exception:  # only Triton itself can refuse an answer
            pb_utils.Logger.log_error(traceback.format_exc())
        finally:
            self._free.release()
