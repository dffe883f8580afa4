"""Triton's HTTP endpoint, as far as the supervisor needs it."""

import http.client
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plates.serving.errors import RequestError
from plates.serving.launch import KEY_HEADER

# Reads whole photos; calls all the others.
PHOTO_MODEL = "plate_recognition"
_PHOTO_INPUT = "image"
_TEXTS, _BOXES = "texts", "coordinates"


@dataclass(frozen=True)
class TritonHttp:
    """One Triton, asked over a new connection each time.

    Attributes:
        address: host:port.
        key: Opens the restricted APIs; "" for a server without restrictions.
    """

    address: str
    key: str = field(default="", repr=False)

    def is_ready(self, timeout_s: float = 2.0) -> bool:
        """Tell whether all models are loaded, which doesn't mean that they live."""
        try:
            self._ask("GET", "/v2/health/ready", timeout_s=timeout_s)
        except RequestError:
            return False
        return True

    def successes(self, timeout_s: float) -> dict[str, int]:
        """Count the requests that each model has answered.

        Args:
            timeout_s: Seconds to wait.

        Returns:
            Model name to its count since it was loaded.

        Raises:
            RequestError: No answer, or not the documented one.
        """
        answer = self._ask("GET", "/v2/models/stats", timeout_s=timeout_s)
        counts: Counter[str] = Counter()
        try:
            # An entry for each version: of two, while a release is changed.
            for model in json.loads(answer)["model_stats"]:
                counts[model["name"]] += model["inference_stats"]["success"]["count"]
        except (ValueError, KeyError, TypeError) as error:
            raise RequestError("Triton's statistics are not as documented.") from error
        return dict(counts)

    def read(self, photo: bytes, timeout_s: float) -> None:
        """Have a photo read; what stands on it doesn't matter.

        Args:
            photo: An image file's bytes.
            timeout_s: Seconds to wait, and for which it may wait in Triton's queue.

        Raises:
            RequestError: It was not read.
        """
        self._infer(photo, timeout_s, PHOTO_MODEL, [_TEXTS])

    def plates(
        self, photo: bytes, timeout_s: float, model: str = PHOTO_MODEL
    ) -> list[tuple[str, list[float]]]:
        """Have a photo read, and tell what stands on it.

        Args:
            photo: An image file's bytes.
            timeout_s: Seconds to wait, and for which it may wait in Triton's queue.
            model: Who reads it.

        Returns:
            Of each plate the text, empty where it can't be read, and its box: x0, y0, x1, y1
            in pixels of the upright photo.

        Raises:
            RequestError: It was not read.
        """
        return _plates(self._infer(photo, timeout_s, model, [_TEXTS, _BOXES]))

    def _infer(self, photo: bytes, timeout_s: float, model: str, outputs: list[str]) -> bytes:
        tensor = {
            "name": _PHOTO_INPUT,
            "shape": [len(photo)],
            "datatype": "UINT8",
            "parameters": {"binary_data_size": len(photo)},
        }
        request = {
            "parameters": {"timeout": round(timeout_s * 1e6)},
            "inputs": [tensor],
            "outputs": [{"name": name} for name in outputs],
        }
        head = json.dumps(request).encode()
        headers = {"Inference-Header-Content-Length": str(len(head))}
        path = f"/v2/models/{model}/infer"
        return self._ask("POST", path, head + photo, headers, timeout_s=timeout_s)

    def load(self, model: str, timeout_s: float) -> None:
        """Load the versions of a model that are there, and let go of those that are not.

        Those that are loaded stay as they are, and answer until the others are loaded. When
        one can't be loaded, all that was loaded stays.

        Args:
            model: Its name.
            timeout_s: Seconds to wait.

        Raises:
            RequestError: A version could not be loaded, or not in time.
        """
        self._control(model, "load", timeout_s)

    def unload(self, model: str, timeout_s: float) -> None:
        """Unload a model; see `load`."""
        self._control(model, "unload", timeout_s)

    def reload(self, model: str, timeout_s: float) -> None:
        """Unload a model and load it again. To load alone does nothing where it is loaded.

        Args:
            model: Its name.
            timeout_s: Seconds for each of the two.

        Raises:
            RequestError: It could not be loaded, or not in time.
        """
        self.unload(model, timeout_s)
        self.load(model, timeout_s)

    def is_held(self, model: str, version: int, timeout_s: float = 5.0) -> bool:
        """Tell whether a version is loaded, or still answers what it was asked before.

        Raises:
            RequestError: No answer, or not the documented one.
        """
        key = {KEY_HEADER: self.key}
        answer = self._ask("POST", "/v2/repository/index", b"{}", key, timeout_s=timeout_s)
        try:
            found = [m for m in json.loads(answer) if m["name"] == model]
            states = {m["state"] for m in found if m.get("version") == str(version)}
        except (ValueError, KeyError, TypeError) as error:
            raise RequestError("Triton's list of models is not as documented.") from error
        return bool(states & {"LOADING", "READY", "UNLOADING"})

    def _control(self, model: str, action: str, timeout_s: float) -> None:
        path = f"/v2/repository/models/{model}/{action}"
        self._ask("POST", path, b"{}", {KEY_HEADER: self.key}, timeout_s=timeout_s)

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float,
    ) -> bytes:
        connection = http.client.HTTPConnection(self.address, timeout=timeout_s)
        try:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise RequestError(f"Triton gave no answer to {method} {path}: {reason}.") from error
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK:
            reason = _reason(answer)
            raise RequestError(f"Triton refused {method} {path}: {reason}", response.status)
        return answer


def _reason(answer: bytes) -> str:
    try:
        document: Any = json.loads(answer)
        return str(document["error"])
    except (ValueError, KeyError, TypeError):
        return repr(answer[:200])


def _plates(answer: bytes) -> list[tuple[str, list[float]]]:
    try:
        outputs = {output["name"]: output["data"] for output in json.loads(answer)["outputs"]}
        texts, edges = outputs[_TEXTS], outputs[_BOXES]
        return [(str(text), edges[4 * row : 4 * row + 4]) for row, text in enumerate(texts)]
    except (ValueError, KeyError, TypeError) as error:
        raise RequestError("Triton's answer to a photo is not as documented.") from error
