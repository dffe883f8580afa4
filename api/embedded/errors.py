"""What can go wrong with the embedded Triton.

EmbeddedTritonError
├── PreflightError   this machine or set-up lacks something; nothing was started
└── StartError       the server was started and failed, or didn't get ready in time
"""

from collections.abc import Sequence


class EmbeddedTritonError(Exception):
    """The embedded Triton can't do what was asked."""


class PreflightError(EmbeddedTritonError):
    """Something is missing that the server needs: each problem says what to do.

    Attributes:
        problems: One sentence or two per missing thing.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("The embedded Triton can't start here:\n- " + "\n- ".join(problems))
        self.problems = tuple(problems)


class StartError(EmbeddedTritonError):
    """The server ended or hung while it started; the message ends with its log's tail."""
