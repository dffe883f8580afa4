"""The `plates` command: a module per subcommand, with `configure(parser)` and `run(arguments)`.

`run` returns the exit status, or None for success. A subcommand's module is imported only when that
subcommand is used, and torch, OpenCV and the web server only inside `run`, so that `--help` answers
at once. This module has what all subcommands share: errors, output, stop signals.
"""

import contextlib
import signal
import sys
from collections.abc import Iterator


class CommandError(Exception):
    """A subcommand failed; the exit status is 1, or 2 for broken data or an invalid number."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.exit_status = status


class Stopped(BaseException):
    """The process received this stop signal. No Exception: handlers for those must not catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def stop_signals_raise() -> Iterator[None]:
    """Raise `Stopped` in the main thread on a stop signal, so that the process cleans up in order.

    Stop signals are SIGINT, SIGTERM, and SIGHUP (the terminal was closed) unless `nohup` has made
    this process ignore it. Further signals don't interrupt the clean-up, but raise again if the
    first `Stopped` was lost, as Python loses errors in a hook of a fork.
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
    """Print and flush a line; ignore a closed terminal, so that the process can still clean up."""
    with contextlib.suppress(OSError):
        print(text, flush=True)


def printable(text: object) -> str:
    """Escape control characters, which a file name may contain, for a terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))
