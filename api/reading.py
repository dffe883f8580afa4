"""One photo in, its plates out: the one way from every route to the recognizer."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool

from api.context import RequestContext
from api.errors import Overloaded, photo_problem
from api.metrics import Metrics
from api.readiness import Readiness, Recognizer
from api.settings import Settings
from api.triton import Recognition
from plate_models.images import ImageError, check_header
from plate_models.spec import Limits


@dataclass(frozen=True)
class PhotoReading:
    """What came of one photo.

    Attributes:
        recognition: What the models said.
        total_ms: Since the photo was complete.
        recognition_ms: Of these, in Triton.
    """

    recognition: Recognition
    total_ms: float
    recognition_ms: float


class PhotoReader:
    """Checks photos, has them read in turn, and takes note of what came of it."""

    def __init__(
        self, settings: Settings, recognizer: Recognizer, readiness: Readiness, metrics: Metrics
    ) -> None:
        self._settings = settings
        self._recognizer = recognizer
        self._readiness = readiness
        self._metrics = metrics
        self._in_flight = 0

    async def read(self, photo: bytes, context: RequestContext) -> PhotoReading:
        """Have the plates of a photo read.

        Args:
            photo: The file's bytes, nothing checked yet.
            context: Of the request that brought it.

        Returns:
            What came of it.

        Raises:
            PhotoProblem: The photo can't be read.
            RecognizerProblem: Triton is away, busy, too slow, or broken.
        """
        start = time.perf_counter()
        with self._place():
            await run_in_threadpool(_check, photo, self._settings.limits)
            asked = time.perf_counter()
            timeout_s = context.deadline.remaining_s
            recognition = await self._recognizer.recognize(photo, timeout_s)
        end = time.perf_counter()
        self._readiness.note_read(recognition)
        self._metrics.recognition_seconds.observe(end - asked)
        self._metrics.plates_per_photo.observe(len(recognition.texts))
        self._metrics.unreadable.inc(recognition.texts.count(""))
        return PhotoReading(recognition, (end - start) * 1000, (end - asked) * 1000)

    @contextmanager
    def _place(self) -> Iterator[None]:
        """Take one of the places for photos.

        Raises:
            Overloaded: All are taken.
        """
        if self._in_flight >= self._settings.max_in_flight:
            raise Overloaded("Too many photos at once. Try again shortly.")
        self._in_flight += 1
        self._metrics.in_flight.set(self._in_flight)
        try:
            yield
        finally:
            self._in_flight -= 1
            self._metrics.in_flight.set(self._in_flight)


def _check(photo: bytes, limits: Limits) -> None:
    try:
        check_header(photo, limits)
    except ImageError as error:
        raise photo_problem(error) from error
