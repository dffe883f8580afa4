"""Run several requests as one batch, without letting one spoil the others."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

Arrays = tuple[Any, ...]


def run_batched(
    requests: Sequence[Arrays],
    run: Callable[[Arrays], Arrays],
    concatenate: Callable[[list[Any]], Any],
) -> list[Arrays | Exception]:
    """Compute requests together where their shapes allow it.

    A request is its input arrays (numpy or torch), batch axis first; `concatenate` joins arrays
    along that axis.

    Returns:
        Per request its output arrays, or the exception that it alone caused.
    """
    answers: list[Arrays | Exception] = []
    for _, group in groupby(requests, key=_shapes_of):
        batch = list(group)
        try:
            answers += _run_together(batch, run, concatenate)
        except Exception as error:
            # One of them is at fault: each is tried alone.
            answers += [error] if len(batch) == 1 else [_run_alone(one, run) for one in batch]
    return answers


def _shapes_of(request: Arrays) -> list[tuple[tuple[int, ...], str]]:
    return [(tuple(array.shape[1:]), str(array.dtype)) for array in request]


def _run_alone(request: Arrays, run: Callable[[Arrays], Arrays]) -> Arrays | Exception:
    try:
        return run(request)
    except Exception as error:
        return error


def _run_together(
    batch: list[Arrays], run: Callable[[Arrays], Arrays], concatenate: Callable[[list[Any]], Any]
) -> list[Arrays]:
    if len(batch) == 1:
        return [run(batch[0])]
    outputs = run(tuple(concatenate(list(arrays)) for arrays in zip(*batch, strict=True)))
    answers, start = [], 0
    for request in batch:
        end = start + len(request[0])
        answers.append(tuple(output[start:end] for output in outputs))
        start = end
    return answers


def code_of(error: Exception) -> str:
    """Name Triton's error code for what a graph raised.

    Only what the request itself caused is INVALID_ARG, and only what may pass by itself is
    UNAVAILABLE; all else will fail again.
    """
    kinds = {kind.__name__ for kind in type(error).__mro__}
    # By name: ONNX Runtime's and torch's own kinds, one of which may not be installed.
    if kinds & {"ValueError", "InvalidArgument"}:
        return "INVALID_ARG"
    return "UNAVAILABLE" if kinds & {"MemoryError", "OutOfMemoryError"} else "INTERNAL"
