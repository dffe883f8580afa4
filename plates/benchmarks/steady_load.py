"""A few senders who never give up, and one who asks /readyz: what each was told, and when."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from plates.benchmarks.http1 import Target
from plates.cli import CommandError
from plates.cli.samples import SAMPLES, expected_texts, missing_texts

DEADLINE_S = 5.0
# Long enough to see an answer that comes after its deadline.
_PATIENCE_S = DEADLINE_S + 5.0
_READY_PAUSE_S = 0.2
_PAUSE_AFTER_REFUSAL_S = 0.1
_JOIN_S = 20.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request and what became of it.

    Attributes:
        began_s, ended_s: On the clock of `time.monotonic`.
        status: Of HTTP; 0 where no answer came.
        retry_after: Whether the answer says when to come again.
        right: Whether every plate of the photo was read; for /readyz, whether it is ready.
        told: The problem's title, or why no answer came.
    """

    began_s: float
    ended_s: float
    status: int
    retry_after: bool
    right: bool
    told: str


@dataclass(frozen=True)
class Sample:
    """A photo, and what must be read in it."""

    photo: bytes
    texts: tuple[str, ...]


def samples() -> list[Sample]:
    """The scenes of tests/samples.

    Raises:
        CommandError: They are not there.
    """
    try:
        expected = expected_texts(sorted(SAMPLES.glob("*.jpg")))
        found = [Sample(path.read_bytes(), tuple(texts)) for path, texts in expected.items()]
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from error
    if not found:
        raise CommandError(f"{SAMPLES} holds no photos that its plates.csv names")
    return found


class SteadyLoad:
    """Senders in threads, each with one request under way at a time.

    Attributes:
        photos: What became of the photos; appended to by all senders.
        readiness: What /readyz said.
    """

    def __init__(self, target: Target, senders: int) -> None:
        """Describe the load; nothing is sent yet.

        Args:
            target: Where the service is.
            senders: How many.
        """
        self.photos: list[Attempt] = []
        self.readiness: list[Attempt] = []
        self._target = target
        self._over = threading.Event()
        found = samples()
        jobs: list[Callable[[], None]] = [
            lambda first=index: self._send(found[first:] + found[:first])  # type: ignore[misc]
            for index in range(senders)
        ]
        self._threads = [threading.Thread(target=job) for job in [*jobs, self._ask_readiness]]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(_JOIN_S)

    def _send(self, photos: Sequence[Sample]) -> None:
        while True:
            for sample in photos:
                attempt = self._attempt("POST", "/v1/plates", sample)
                self.photos.append(attempt)
                if self._over.wait(0 if attempt.right else _PAUSE_AFTER_REFUSAL_S):
                    return

    def _ask_readiness(self) -> None:
        while not self._over.wait(_READY_PAUSE_S):
            self.readiness.append(self._attempt("GET", "/readyz"))

    def _attempt(self, method: str, path: str, sample: Sample | None = None) -> Attempt:
        # A new connection each time: one that was kept may have been closed between
        # requests, which is nobody's fault.
        connection = http.client.HTTPConnection(
            self._target.host, self._target.port, timeout=_PATIENCE_S
        )
        headers = {"Content-Type": "image/jpeg", "X-Request-Timeout": f"{DEADLINE_S:g}"}
        began = time.monotonic()
        try:
            connection.request(method, path, sample.photo if sample else None, headers)
            response = connection.getresponse()
            document: dict[str, Any] = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            told = str(error) or type(error).__name__
            return Attempt(began, time.monotonic(), 0, False, False, told)
        finally:
            connection.close()
        right = response.status == http.HTTPStatus.OK and _is_right(document, sample)
        retry_after = (response.getheader("Retry-After") or "").isdigit()
        told = str(document.get("title", ""))
        return Attempt(began, time.monotonic(), response.status, retry_after, right, told)


def _is_right(document: dict[str, Any], sample: Sample | None) -> bool:
    if sample is None:
        return True
    found = [plate["text"] for plate in document["plates"]]
    return not missing_texts(sample.texts, found)
