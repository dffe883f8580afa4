"""A client of Triton's HTTP endpoint, with the requests that the supervisor needs."""

import json
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from plate_models.release import PHOTO_MODEL
from plates.serving.errors import RequestError

# The header for the key to the restricted APIs. The key is known to the supervisor, and to users of
# this machine who may read command lines: Triton takes it only there.
KEY_HEADER = "plates-key"
# Engines for a GPU may take long to load, and so may any model while the CPU reads photos.
_LOAD_S = 180.0

Plate = tuple[str, Sequence[float]]

# httpx logs each request as INFO.
logging.getLogger("httpx").setLevel(logging.WARNING)


@dataclass(frozen=True)
class TritonHttp:
    """One Triton. Each request opens a connection, as an idle one would delay Triton's exit.

    All requests raise `RequestError` if Triton refuses them or does not answer in time.
    """

    address: str
    key: str = field(default="", repr=False)

    def is_ready(self) -> bool:
        """Report whether all models are loaded; their processes may have died since."""
        try:
            self._ask("/v2/health/ready", 2.0)
        except RequestError:
            return False
        return True

    def successes(self, timeout_s: float) -> dict[str, int]:
        """Count the requests that each model has answered since it was loaded."""
        answer = self._ask("/v2/models/stats", timeout_s)
        counts: Counter[str] = Counter()
        # While the version changes, a model has an entry for each of two versions.
        for model in answer["model_stats"]:
            counts[model["name"]] += model["inference_stats"]["success"]["count"]
        return dict(counts)

    def plates(self, photo: bytes, timeout_s: float, model: str = PHOTO_MODEL) -> list[Plate]:
        """Have a model read a photo, given as the bytes of an image file.

        Returns each plate's text, "" if it is unreadable, and its box: x0, y0, x1, y1 in pixels of
        the upright photo.
        """
        tensor = {"name": "image", "shape": [len(photo)], "datatype": "UINT8"}
        request = {
            "parameters": {"timeout": round(timeout_s * 1e6)},
            "inputs": [tensor | {"parameters": {"binary_data_size": len(photo)}}],
            "outputs": [{"name": "texts"}, {"name": "coordinates"}],
        }
        head = json.dumps(request).encode()
        headers = {"Inference-Header-Content-Length": str(len(head))}
        answer = self._ask(f"/v2/models/{model}/infer", timeout_s, head + photo, headers)
        outputs = {output["name"]: output["data"] for output in answer["outputs"]}
        texts, edges = outputs["texts"], outputs["coordinates"]
        return [(text, edges[4 * row : 4 * row + 4]) for row, text in enumerate(texts)]

    def load(self, model: str) -> None:
        """Load the versions of a model that are in the repository, and unload all others.

        Versions that stay loaded keep answering. If a version can't be loaded, nothing changes.
        """
        self._control(f"models/{model}/load", _LOAD_S)

    def unload(self, model: str) -> None:
        """Unload all versions of a model; see `load`."""
        self._control(f"models/{model}/unload", _LOAD_S)

    def holds(self, model: str, version: int) -> bool:
        """Report whether a version is loaded, or still answers earlier requests."""
        answer = self._control("index", 5.0)
        found = [m for m in answer if m["name"] == model and m.get("version") == str(version)]
        return any(m.get("state") in ("LOADING", "READY", "UNLOADING") for m in found)

    def _control(self, path: str, timeout_s: float) -> Any:
        return self._ask(f"/v2/repository/{path}", timeout_s, b"{}", {KEY_HEADER: self.key})

    def _ask(
        self, path: str, timeout_s: float, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Any:
        """GET, or POST a body; returns the answer's JSON document, None if the answer is empty."""
        method = "POST" if body else "GET"
        url = f"http://{self.address}{path}"
        options: Any = {"timeout": timeout_s, "trust_env": False, "verify": False}
        try:
            answer = httpx.request(method, url, content=body, headers=headers, **options)
            document = answer.json() if answer.content else None
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise RequestError(f"Triton gave no answer to {method} {path}: {reason}.") from error
        except ValueError:
            document = None
        if not answer.is_success:
            problem = document.get("error") if isinstance(document, dict) else None
            reason = problem or repr(answer.content[:200])
            raise RequestError(f"Triton refused {method} {path}: {reason}", answer.status_code)
        return document
