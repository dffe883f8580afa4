"""The `plates` command: a module per subcommand, with `configure(parser)` and `run(arguments)`.

`run` returns the exit status, or None for success. A subcommand is imported when it is asked for,
and torch, OpenCV and the web server inside its `run`: `--help` answers at once. Here is what all of
them share: errors, output, stop signals.
"""

import contextlib
import signal
import sys
from collections.abc import Iterator


class CommandError(Exception):
    """A subcommand can't do its work; the exit status is 1, or 2 for data that is broken."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


class Stopped(BaseException):
    """A stop signal came, of that number. Not an Exception: no handler for those may catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def stop_signals_raise() -> Iterator[None]:
    """Raise `Stopped` in the main thread on a stop signal, so that all is stopped in order.

    That is SIGINT, SIGTERM, and SIGHUP (the terminal was closed) unless `nohup` has us ignore it.
    Further ones don't interrupt the stop, but are heard where the first one's error was lost, as
    in a hook of a fork.
    """

    def stop(number: int, *_: object) -> None:
        error = sys.exception()
        while error is not None and not isinstance(error, Stopped):
            error = error.__context__
        if error is None:
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


def printable(text: object) -> str:
    """Escape control characters, such as a file's name may hold, for a terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))
