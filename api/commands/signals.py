"""SIGINT and SIGTERM unwind the stack, so that whatever was started is stopped on the way."""

import contextlib
import signal
from collections.abc import Iterator
from typing import NoReturn


class Stopped(BaseException):
    """A signal came. Not an Exception: nothing on the way may swallow it.

    Attributes:
        number: The signal's number.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def stop_signals_raise() -> Iterator[None]:
    """Raise `Stopped` in the main thread when SIGINT or SIGTERM comes."""

    def stop(number: int, *_: object) -> NoReturn:
        raise Stopped(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
