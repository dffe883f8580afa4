"""The `plates` command: a module per subcommand, with `configure(parser)` and `run(arguments)`.

A subcommand is imported when it is asked for, and torch, OpenCV and the web server inside its
`run`: `--help` answers at once.
"""


class CommandError(Exception):
    """A subcommand can't do its work; the message is for the person at the terminal.

    Attributes:
        status: The exit status: 1, or 2 for data that was asked for and is broken.
    """

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def printable(text: object) -> str:
    """Escape control characters, such as a file's name may hold, for a terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))
