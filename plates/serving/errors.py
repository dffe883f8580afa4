"""What can go wrong with the embedded Triton.

EmbeddedTritonError
├── PreflightError   this machine or set-up lacks something; nothing was started
├── StartError       a process was started and failed, or didn't get ready in time
├── ReleaseError     a release is damaged, or reads its golden photo differently
├── RequestError     the server refused a request, or gave no answer in time
└── GaveUp           a part of the service can't be healed
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
    """A process ended or hung while it started; Triton's message ends with its log's tail."""


class ReleaseError(EmbeddedTritonError):
    """A release in the model repository can't be served: says what was expected and what came."""


class RequestError(EmbeddedTritonError):
    """Triton refused a request of the supervisor, or gave no answer in time.

    Attributes:
        status: Of the answer; None if there was none.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class GaveUp(EmbeddedTritonError):
    """A part was restarted again and again, and did not get well."""
