"""What can go wrong with the embedded Triton."""

from collections.abc import Sequence


class EmbeddedTritonError(Exception):
    """The embedded Triton can't do what was asked."""


class PreflightError(EmbeddedTritonError):
    """The machine or the set-up lacks something: each problem says what to do."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("The embedded Triton can't start here:\n- " + "\n- ".join(problems))


class StartError(EmbeddedTritonError):
    """A process ended or hung while it started; Triton's message ends with its log's tail."""


class VersionError(EmbeddedTritonError):
    """A model version is damaged, or misreads its golden photo."""


class RequestError(EmbeddedTritonError):
    """Triton refused a request, or gave no answer in time: then the status is None."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class GaveUp(EmbeddedTritonError):
    """A part of the service was restarted again and again, and fails all the same."""
