"""Run several requests as one batch, so that a bad request does not make the others fail."""

from collections.abc import Callable, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any

Outputs = tuple[Any, ...]
Run = Callable[[Any], Outputs]
Concatenate = Callable[[list[Any]], Any]


def run_batched(
    requests: Sequence[Any], run: Run, concatenate: Concatenate
) -> list[Outputs | Exception]:
    """Compute consecutive requests of the same shape and type together.

    A request is an array (NumPy or torch), batch axis first; `concatenate` joins arrays along that
    axis. Returns each request's output arrays, or the exception that it caused.
    """
    answers: list[Outputs | Exception] = []
    for _, group in groupby(requests, lambda array: (array.shape[1:], array.dtype)):
        answers += _answer(list(group), run, concatenate)
    return answers


def _answer(batch: list[Any], run: Run, concatenate: Concatenate) -> list[Outputs | Exception]:
    try:
        if len(batch) == 1:
            return [run(batch[0])]
        outputs = run(concatenate(batch))
    except Exception as error:
        if len(batch) == 1:
            return [error]
        # One of the requests is at fault: run each alone.
        return [answer for one in batch for answer in _answer([one], run, concatenate)]
    ends = [0, *accumulate(map(len, batch))]
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
