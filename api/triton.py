"""Requests to Triton; the only module of the gateway that imports Triton's client."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from tritonclient.grpc import InferInput, InferRequestedOutput
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException

from api import errors
from api.answers import Recognition, RecognitionInfo, answer_of
from api.settings import Settings
from plate_models.recognition.grammar import Reading
from plate_models.release import PHOTO_MODEL
from plate_models.spec import TENSORS

# The rank of each output.
_OUTPUTS = {
    TENSORS.coordinates: 2,
    TENSORS.texts: 2,
    "detection_scores": 1,
    "text_scores": 1,
    "quads": 3,
    "character_scores": 2,
    "formats": 1,
    "candidates": 2,
    "candidate_scores": 2,
    TENSORS.model_info: 1,
}
_CHANNEL_OPTIONS = [
    # The environment's proxy settings are for the web.
    ("grpc.enable_http_proxy", 0),
    # With several Tritons behind one name, photos go to the reachable ones in turn.
    ("grpc.lb_policy_name", "round_robin"),
    # gRPC resolves the name again when a connection ends, by default at most every 30 s.
    ("grpc.dns_min_time_between_resolutions_ms", 1000),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # The default back-off grows to two minutes, too long to find a restarted Triton.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 500),
    # Without keep-alives, calls to a host that vanished wait for the kernel's 15-minute time-out.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
]
_TOO_LATE = "The recognizer did not answer in time. Try again later."
# Messages, whatever their status, of a server that ends, or whose models are dead or loading.
_AWAY = re.compile(
    r"stub process|not healthy|not ready|unknown model|no available versions|unload"
    r"|shared memory pool|socket closed|connection re(set|fused)|stream removed|rst_stream|goaway",
    re.IGNORECASE,
)
_COUNTRIES = re.compile(r"countries: expected some of .*")
_IMAGE_ERROR = re.compile(rf"\b({'|'.join(errors.PHOTO_PROBLEMS)}): (.*)", re.DOTALL)


class TritonClient:
    """One gRPC channel for the whole process; construct it in the event loop that uses it."""

    def __init__(self, settings: Settings) -> None:
        channel, self._headers = channel_to(settings)
        self._client = InferenceServerClient(**channel)

    async def aclose(self) -> None:
        """Close the channel."""
        await self._client.close()

    async def recognize(
        self, photo: bytes, timeout_s: float, request_id: str = "", countries: str | None = None
    ) -> Recognition:
        """Have the plates of a photo file read. Cancelling the call cancels it in Triton, too.

        Raises PhotoProblem if the models refuse the photo, InvalidParameter if they don't support
        one of the countries, and RecognizerProblem if Triton is away, busy, too slow, or fails.
        Triton's logs and traces contain the id.
        """
        if timeout_s <= 0:  # Triton takes 0 as no limit.
            raise errors.RecognizerTimeout(_TOO_LATE)
        image = InferInput(TENSORS.image, [len(photo)], "UINT8")
        image.set_data_from_numpy(np.frombuffer(photo, dtype=np.uint8))
        try:
            result = await self._client.infer(
                PHOTO_MODEL,
                [image],
                outputs=[InferRequestedOutput(name) for name in _OUTPUTS],
                request_id=request_id,
                parameters={"countries": countries} if countries else None,
                client_timeout=timeout_s,
                # In microseconds; then Triton drops the request from its queue.
                timeout=max(1, round(timeout_s * 1e6)),
                headers=self._headers,
            )
        except InferenceServerException as error:
            raise _problem_of(error) from error
        return _recognition({name: result.as_numpy(name) for name in _OUTPUTS})


def channel_to(settings: Settings) -> tuple[dict[str, Any], dict[str, str] | None]:
    """The arguments of a Triton client for these settings, and the headers of its calls."""
    token, ca_file, url = settings.triton_token, settings.triton_ca_file, settings.triton_url or ""
    channel = {
        "url": url.rpartition("://")[2],
        "ssl": url.startswith("grpcs://"),
        "root_certificates": str(ca_file) if ca_file else None,
        "channel_args": _CHANNEL_OPTIONS,
    }
    return channel, {"authorization": f"Bearer {token.get_secret_value()}"} if token else None


def _problem_of(error: InferenceServerException) -> errors.Problem:
    """Classify an error by its gRPC status and message; the message itself is only logged."""
    status = str(error.status() or "").removeprefix("StatusCode.")
    message = str(error.message() or "")
    refused = _IMAGE_ERROR.search(message)
    if status == "INVALID_ARGUMENT" and refused:
        return errors.PHOTO_PROBLEMS[refused[1]](refused[2].strip())
    if status == "INVALID_ARGUMENT" and (countries := _COUNTRIES.search(message)):
        return errors.InvalidParameter(countries[0])
    # A full queue and a time-out in it are UNAVAILABLE, just as an unreachable server is.
    expired = status == "UNAVAILABLE" and "timeout expired" in message
    if status == "DEADLINE_EXCEEDED" or expired:
        return errors.RecognizerTimeout(_TOO_LATE)
    if status == "RESOURCE_EXHAUSTED" or "maximum queue size" in message:
        return errors.Overloaded("Too many photos are waiting at Triton.", reason="triton")
    if status in ("UNAVAILABLE", "NOT_FOUND", "CANCELLED", "ABORTED") or _AWAY.search(message):
        detail = "The recognizer can't be reached. Try again in a few seconds."
        return errors.RecognizerUnavailable(detail)
    if status in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        detail = "Triton refused this gateway's token (PLATES_TRITON_TOKEN)."
        return errors.RecognizerMismatch(detail)
    if status in ("INVALID_ARGUMENT", "UNIMPLEMENTED"):
        return errors.RecognizerMismatch("Triton serves another model than this gateway expects.")
    return errors.RecognizerFailed("The recognizer failed on this photo. See the service's log.")


def _recognition(outputs: Mapping[str, NDArray[Any] | None]) -> Recognition:
    """Check the outputs' shapes and decode them; raises `RecognizerMismatch`."""
    found = {name: array for name, array in outputs.items() if array is not None}
    count = len(found.get(TENSORS.texts, ()))
    for name, rank in _OUTPUTS.items():
        shape = found[name].shape if name in found else None
        length = 1 if name == TENSORS.model_info else count
        if shape is None or len(shape) != rank or shape[0] != length:
            raise errors.RecognizerMismatch(f"Triton's output {name} has the shape {shape}.")
    try:
        info = RecognitionInfo.model_validate_json(found[TENSORS.model_info][0])
    except ValidationError as error:
        raise errors.RecognizerMismatch(f"Triton's {TENSORS.model_info} is incomplete.") from error
    plates = []
    texts, formats = _texts(found[TENSORS.texts][:, 0]), _texts(found["formats"])
    for row in range(count):
        candidates = _texts(found["candidates"][row])
        # The character scores are those of the best candidate, even if the text is empty.
        characters = tuple(zip(candidates[0], found["character_scores"][row], strict=False))
        guesses = tuple(zip(candidates, found["candidate_scores"][row], strict=True))
        text, score = texts[row], found["text_scores"][row]
        reading = Reading(text, score, formats[row], characters, guesses)
        box, quad = found[TENSORS.coordinates][row], found["quads"][row]
        plates.append(answer_of(reading, box, quad, found["detection_scores"][row]))
    return Recognition(plates, info)


def _texts(values: NDArray[Any]) -> list[str]:
    return [value.decode() if isinstance(value, bytes) else str(value) for value in values]
