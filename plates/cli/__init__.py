"""One module per subcommand of `plates`, each with `configure(parser)` and `run(arguments)`.

Torch, Triton and the web server are imported inside `run`: help must come at once.
"""


class CommandError(Exception):
    """A subcommand can't do its work; the message is for the person at the terminal.

    Attributes:
        status: The exit status: 1, or 2 for data that was asked for and is broken.
    """

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status
