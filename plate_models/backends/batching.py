"""Run several requests as one batch, without letting one spoil the others."""

from collections.abc import Callable, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any

Arrays = tuple[Any, ...]
Run = Callable[[Arrays], Arrays]
Concatenate = Callable[[list[Any]], Any]


def run_batched(
    requests: Sequence[Arrays], run: Run, concatenate: Concatenate
) -> list[Arrays | Exception]:
    """Compute requests together where their shapes allow it.

    A request is its input arrays (numpy or torch), batch axis first; `concatenate` joins arrays
    along that axis. Returns for each its output arrays, or the exception that it alone caused.
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
        # One of them is at fault: each is tried alone.
        return [answer for one in batch for answer in _answer([one], run, concatenate)]
    ends = [0, *accumulate(len(request[0]) for request in batch)]
    return [tuple(output[start:end] for output in outputs) for start, end in pairwise(ends)]


def code_of(error: Exception) -> str:
    """Name Triton's error code for what a graph raised.

    Only what the request itself caused is INVALID_ARG, and only what may pass by itself is
    UNAVAILABLE; all else will fail again.
    """
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "ValueError" in kinds:
        return "INVALID_ARG"
    # By name: torch is not imported where OpenVINO computes.
    return "UNAVAILABLE" if kinds & {"MemoryError", "OutOfMemoryError"} else "INTERNAL"
