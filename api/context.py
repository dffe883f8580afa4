"""What one request carries through the gateway: its id, its deadline, its sender."""

import time
import uuid
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from api.services import ServicesOfApp


@dataclass(frozen=True)
class Deadline:
    """The moment until which the sender waits.

    Attributes:
        at: On the clock of `time.monotonic`, in seconds.
    """

    at: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """The moment in so many seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def remaining_s(self) -> float:
        """Seconds that are left; zero when it has passed."""
        return max(0.0, self.at - time.monotonic())


@dataclass(frozen=True)
class RequestContext:
    """What a request carries with it from the first byte to the answer.

    Attributes:
        request: Knows whether its sender still waits.
        request_id: Names it in the answer, in the logs and in Triton's.
        deadline: One for all: upload, queue, and recognition.
    """

    request: Request
    request_id: str
    deadline: Deadline


def _context(request: Request, services: ServicesOfApp) -> RequestContext:
    deadline = Deadline.after(services.settings.request_timeout_s)
    return RequestContext(request, str(uuid.uuid4()), deadline)


ContextOfRequest = Annotated[RequestContext, Depends(_context)]
