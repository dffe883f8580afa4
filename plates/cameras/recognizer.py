"""Read the plates in a camera's frames: with a Triton, or with nets in this process."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from api.settings import Settings
from api.triton import channel_to
from plate_models.contract import arrays_of
from plate_models.formats import grammar_of
from plate_models.pipeline import Plate
from plate_models.recognition.appearance import evidence_of, is_colourless
from plate_models.recognition.calibration import Calibration
from plate_models.release import PHOTO_MODEL
from plate_models.spec import TENSORS, RecognizerSpec, spec_from_json
from plates.cameras.events import Model
from plates.cameras.frames import SeenPlate
from plates.cameras.fusion import Reader

_OUTPUTS = (
    *(TENSORS.coordinates, TENSORS.texts, "quads", "detection_scores", "text_scores", "lines"),
    *("candidates", "candidate_scores", TENSORS.log_probs, "crops", TENSORS.model_info),
)
# The header with the key to the embedded Triton's restricted protocols.
_KEY_HEADER = "triton-grpc-protocol-plates-key"
_TIMEOUT_S = 10.0


class RecognizerAway(Exception):
    """Triton did not answer; the message says why."""


class TritonRecognizer:
    """Reads frames with `plate_recognition` on a Triton, one after the other.

    `reader` belongs to the last response; it changes with the model's version. With a `key` to the
    embedded Triton, pixels are passed in shared memory; else, slower, in the request.
    """

    def __init__(self, settings: Settings, camera: str, key: str = "") -> None:
        channel, self._headers = channel_to(settings)
        self._client = InferenceServerClient(**channel)
        self._countries = settings.countries
        self._shared = _SharedPixels(self._client, camera, key) if key else None
        self.reader = Reader()

    def read(self, image: NDArray[np.uint8]) -> list[SeenPlate]:
        """Read the plates in (H, W, 3) uint8 BGR; raises `RecognizerAway` without an answer."""
        pixels = InferInput(TENSORS.pixels, list(image.shape), "UINT8")
        try:
            if self._shared:
                pixels.set_shared_memory(self._shared.put(image), image.nbytes)
            else:
                pixels.set_data_from_numpy(np.ascontiguousarray(image))
            result = self._client.infer(
                PHOTO_MODEL,
                [pixels],
                outputs=[InferRequestedOutput(name) for name in _OUTPUTS],
                parameters={"countries": ",".join(self._countries)} if self._countries else None,
                client_timeout=_TIMEOUT_S,
                timeout=round(_TIMEOUT_S * 1e6),
                headers=self._headers,
            )
        except InferenceServerException as error:
            if self._shared:
                self._shared.forget()  # It must be registered again if Triton was restarted.
            raise RecognizerAway(str(error.message() or error)) from error
        found = {name: result.as_numpy(name) for name in _OUTPUTS}
        info = json.loads(found[TENSORS.model_info][0])
        model = Model(version=info["version"], weights=info["weights"])
        if model != self.reader.model:  # Choose texts with the settings of the new version.
            spec = spec_from_json(RecognizerSpec, info["decoding"]["spec"], "spec")
            calibration = Calibration.from_json(json.dumps(info["decoding"]["calibration"]))
            countries = self._countries or spec.countries
            self.reader = Reader(grammar_of(*countries), calibration, spec, model)
        return _from_outputs(found, image)


class _SharedPixels:
    """A block of shared memory from which Triton reads pixels."""

    def __init__(self, client: InferenceServerClient, name: str, key: str) -> None:
        self._client, self._name, self._headers = client, name, {_KEY_HEADER: key}
        self._memory: SharedMemory | None = None

    def put(self, image: NDArray[np.uint8]) -> str:
        """Write (H, W, 3) pixels; returns the name under which the memory is registered."""
        if self._memory is None or self._memory.size < image.nbytes:
            self.forget()
            self._memory = SharedMemory(create=True, size=image.nbytes)
            region = self._name, f"/{self._memory.name}", self._memory.size
            try:
                # A killed process of this camera may have left its registration.
                self._client.unregister_system_shared_memory(self._name, headers=self._headers)
                self._client.register_system_shared_memory(*region, headers=self._headers)
            finally:
                # Both processes have it open; it is freed when both have ended, even by a kill.
                self._memory.unlink()
        np.ndarray(image.shape, np.uint8, self._memory.buf)[:] = image
        return self._name

    def forget(self) -> None:
        """Unregister the memory at Triton and release it here."""
        memory, self._memory = self._memory, None
        if memory is not None:
            with contextlib.suppress(InferenceServerException):
                self._client.unregister_system_shared_memory(self._name, headers=self._headers)
            memory.close()


def _from_outputs(found: Mapping[str, NDArray[Any]], image: NDArray[np.uint8]) -> list[SeenPlate]:
    shown = found["crops"], found["quads"], found["lines"].ravel().tolist()
    evidence = evidence_of(*shown, is_colourless(image))
    texts, candidates = (
        np.char.decode(found[name].astype(np.bytes_)).tolist()
        for name in (TENSORS.texts, "candidates")
    )
    scores = found["candidate_scores"].tolist()
    return [
        SeenPlate(
            box=tuple(found[TENSORS.coordinates][row].tolist()),
            quad=tuple((x, y) for x, y in found["quads"][row].tolist()),
            detection_score=float(found["detection_scores"][row]),
            text=texts[row][0],
            score=float(found["text_scores"][row]),
            candidates=tuple(c for c in zip(candidates[row], scores[row], strict=True) if c[0]),
            log_probs=found[TENSORS.log_probs][row].astype(np.float64),
            crop=found["crops"][row],
            evidence=evidence[row],
        )
        for row in range(len(texts))
    ]


def seen_plates(plates: Sequence[Plate], image: NDArray[np.uint8]) -> list[SeenPlate]:
    """Convert the plates that `pipeline.read_plates` found in (H, W, 3) uint8 BGR."""
    return _from_outputs(arrays_of(plates, _OUTPUTS), image)
