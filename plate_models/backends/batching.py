"""Run several requests as one batch, without letting one spoil the others."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

Arrays = tuple[Any, ...]


def run_batched(
    requests: Sequence[Arrays],
    run: Callable[[Arrays], Arrays],
    concatenate: Callable[[list[Any]], Any],
) -> list[Arrays | Exception]:
    """Compute requests together where their shapes allow it.

    Args:
        requests: Per request its input arrays (numpy or torch), batch axis first.
        run: Computes the outputs, batch axis first, from the inputs.
        concatenate: Joins arrays along their first axis.

    Returns:
        Per request its output arrays, or the exception that it alone has to answer for.
    """
    answers: list[Arrays | Exception] = []
    for group in _runs_of_equal_shape(requests):
        try:
            answers += _run_group(group, run, concatenate)
        except Exception as error:
            # Whose fault was it? Each is tried alone.
            alone = [[request] for request in group] if len(group) > 1 else []
            answers += [_run_alone(one, run, concatenate) for one in alone] or [error]
    return answers


def _run_alone(
    group: list[Arrays], run: Callable[[Arrays], Arrays], concatenate: Callable[[list[Any]], Any]
) -> Arrays | Exception:
    try:
        return _run_group(group, run, concatenate)[0]
    except Exception as error:
        return error


def _run_group(
    group: list[Arrays], run: Callable[[Arrays], Arrays], concatenate: Callable[[list[Any]], Any]
) -> list[Arrays]:
    if len(group) == 1:
        return [run(group[0])]
    inputs = tuple(concatenate(list(arrays)) for arrays in zip(*group, strict=True))
    outputs = run(inputs)
    answers, start = [], 0
    for request in group:
        end = start + len(request[0])
        answers.append(tuple(output[start:end] for output in outputs))
        start = end
    return answers


def _runs_of_equal_shape(requests: Sequence[Arrays]) -> Iterator[list[Arrays]]:
    group: list[Arrays] = []
    for request in requests:
        if group and _kind(request) != _kind(group[0]):
            yield group
            group = []
        group.append(request)
    if group:
        yield group


def _kind(request: Arrays) -> Hashable:
    return tuple((tuple(array.shape[1:]), str(array.dtype)) for array in request)
