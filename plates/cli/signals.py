"""Stop signals raise an exception, so that everything that was started is stopped in order."""

import contextlib
import signal
from collections.abc import Iterator
from typing import NoReturn


class Stopped(BaseException):
    """A stop signal came, of that number. Not an Exception: no handler for those may catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def stop_signals_raise() -> Iterator[None]:
    """Raise `Stopped` in the main thread when a stop signal comes.

    That is SIGINT, SIGTERM, and SIGHUP (the terminal was closed) unless `nohup` has us ignore it.
    """

    def stop(number: int, *_: object) -> NoReturn:
        raise Stopped(number)

    numbers = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        numbers.discard(signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def say(text: str) -> None:
    """Print a line at once; a closed terminal must not keep the process from cleaning up."""
    with contextlib.suppress(OSError):
        print(text, flush=True)
