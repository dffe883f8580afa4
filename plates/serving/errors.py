"""What can go wrong with the embedded Triton.

EmbeddedTritonError
├── PreflightError   this machine or set-up lacks something; no model version is at fault
├── StartError       a process was started and failed, or was not ready in time
├── VersionError     a model version is damaged, or misreads its golden photo
├── RequestError     the server refused a request, or gave no answer in time
└── GaveUp           a part of the service was restarted too often
"""

from collections.abc import Sequence


class EmbeddedTritonError(Exception):
    """The embedded Triton can't do what was asked."""


class PreflightError(EmbeddedTritonError):
    """The machine lacks something that the server needs: each problem says what to do."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("The embedded Triton can't start here:\n- " + "\n- ".join(problems))
        self.problems = tuple(problems)


class StartError(EmbeddedTritonError):
    """A process ended or hung while it started; Triton's message ends with its log's tail."""


class VersionError(EmbeddedTritonError):
    """A model version can't be served: says what was expected and what was found."""


class RequestError(EmbeddedTritonError):
    """Triton refused a request, or gave no answer in time: then the status is None."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class GaveUp(EmbeddedTritonError):
    """A part was restarted again and again, and fails all the same."""
