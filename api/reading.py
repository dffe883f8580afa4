"""Has photos read by Triton, on behalf of all routes."""

import time

from starlette.concurrency import run_in_threadpool

from api.admission import Admission
from api.answers import Recognition
from api.errors import PHOTO_PROBLEMS, Overloaded, RecognizerTimeout, RecognizerUnavailable
from api.observing.metrics import Metrics
from api.readiness import Readiness
from api.request import RequestContext
from api.settings import Settings
from api.triton import TritonClient
from plate_models.images import ImageError, check_header

# The structure of files up to this size is checked faster than a thread can be woken.
_CHECKED_AT_ONCE = 2**20


class PhotoReader:
    """Checks photos, queues them, sends them to Triton, and updates the metrics."""

    def __init__(
        self, settings: Settings, client: TritonClient, readiness: Readiness, metrics: Metrics
    ) -> None:
        self._limits, self._countries = settings.limits, ",".join(settings.countries)
        self._client = client
        self._readiness = readiness
        self._metrics = metrics
        self.admission = Admission(settings.concurrency, settings.max_waiting)
        metrics.in_flight.set_function(lambda: self.admission.in_flight)
        metrics.waiting.set_function(lambda: self.admission.waiting)

    async def read(
        self, photo: bytes, context: RequestContext, countries: str | None = None
    ) -> Recognition:
        """Have the plates of a photo read; calls for the photos of a batch may run concurrently.

        `countries` are those of `plate_models.contract.config_for`; None means the setting's.

        Raises:
            InvalidParameter: The weights don't support one of the countries.
            PhotoProblem: The photo can't be read.
            RecognizerProblem: Triton is away, busy, too slow, or fails.
            ClientDisconnect: The client has disconnected; the photo's place is free again.
        """
        start = time.perf_counter()
        try:
            if len(photo) > _CHECKED_AT_ONCE:
                await run_in_threadpool(check_header, photo, self._limits)
            else:
                check_header(photo, self._limits)
        except ImageError as error:
            raise PHOTO_PROBLEMS[error.slug](str(error)) from error
        recognition = await context.cancel_on_disconnect(
            self._read(photo, context, countries or self._countries)
        )
        self._readiness.note_read(recognition)
        self._metrics.note_recognition(recognition)
        state = context.request.state
        state.plates = getattr(state, "plates", 0) + len(recognition.plates)  # for the log
        recognition.total_ms = (time.perf_counter() - start) * 1000
        return recognition

    async def _read(
        self, photo: bytes, context: RequestContext, countries: str | None
    ) -> Recognition:
        came = time.perf_counter()
        async with self.admission.place(context.deadline):
            asked = time.perf_counter()
            self._metrics.queue_seconds.observe(asked - came)
            try:
                recognition = await self._client.recognize(
                    photo, context.deadline.remaining_s, context.request_id, countries
                )
            except (RecognizerUnavailable, RecognizerTimeout) as error:
                self._readiness.note_failed()
                # If the photo waited longer than Triton had it, the queue was too slow.
                late = asked - came > time.perf_counter() - asked
                if late and isinstance(error, RecognizerTimeout):
                    detail = "The photo's turn came too late for its deadline. Try again later."
                    raise Overloaded(detail, reason="late") from error
                raise
            recognition.recognition_ms = (time.perf_counter() - asked) * 1000
            return recognition
