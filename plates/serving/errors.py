"""The errors of the embedded Triton and of the processes beside it."""

from collections.abc import Sequence


class EmbeddedTritonError(Exception):
    """The base class of these errors."""


class PreflightError(EmbeddedTritonError):
    """The machine or the installation lacks something: each problem says what to do."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("The embedded Triton can't start here:\n- " + "\n- ".join(problems))


class StartError(EmbeddedTritonError):
    """A process ended or hung during its start; Triton's message includes the end of its log."""


class VersionError(EmbeddedTritonError):
    """A model version is damaged, or misreads its golden photo."""


class RequestError(EmbeddedTritonError):
    """Triton refused a request, or did not answer in time: then the status is None."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class GaveUp(EmbeddedTritonError):
    """A part of the service was restarted repeatedly and still fails."""
