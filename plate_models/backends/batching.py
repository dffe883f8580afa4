"""Run several requests as one batch, so that a bad request does not make the others fail."""

from collections.abc import Callable, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any

Arrays = tuple[Any, ...]
Run = Callable[[Arrays], Arrays]
Concatenate = Callable[[list[Any]], Any]


def run_batched(
    requests: Sequence[Arrays], run: Run, concatenate: Concatenate
) -> list[Arrays | Exception]:
    """Compute consecutive requests of the same shapes and types together.

    A request is its input arrays (NumPy or torch), batch axis first; `concatenate` joins arrays
    along that axis. Returns each request's output arrays, or the exception that it caused.
    """
    answers: list[Arrays | Exception] = []
    for _, group in groupby(requests, lambda arrays: [(a.shape[1:], a.dtype) for a in arrays]):
        answers += _answer(list(group), run, concatenate)
    return answers


def _answer(batch: list[Arrays], run: Run, concatenate: Concatenate) -> list[Arrays | Exception]:
    try:
        if len(batch) == 1:
            return [run(batch[0])]
        outputs = run(tuple(concatenate(list(arrays)) for arrays in zip(*batch, strict=True)))
    except Exception as error:
        if len(batch) == 1:
            return [error]
        # One of the requests is at fault: run each alone.
        return [answer for one in batch for answer in _answer([one], run, concatenate)]
    ends = [0, *accumulate(len(request[0]) for request in batch)]
    return [tuple(output[start:end] for output in outputs) for start, end in pairwise(ends)]


def code_of(error: Exception) -> str:
    """Name Triton's error code for an exception of a graph.

    Errors caused by the request are INVALID_ARG, transient ones UNAVAILABLE; all others, which a
    retry does not help, are INTERNAL.
    """
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "ValueError" in kinds:
        return "INVALID_ARG"
    # Compared by name, because torch is not imported if OpenVINO is the engine.
    return "UNAVAILABLE" if kinds & {"MemoryError", "OutOfMemoryError"} else "INTERNAL"
