"""What our two Python-based backends share: Triton's requests around a pure graph.

Imported only inside Triton's stub, which brings ``triton_python_backend_utils``.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

from plate_models.backends.batching import Arrays, run_batched


class GraphModel:
    """A Triton model that is one graph: subclasses say how it is loaded and run."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the graph.

        Args:
            args: What Triton hands to every model: its configuration as JSON, folder,
                version, and the instance's kind and device.
        """
        config = json.loads(args["model_config"])
        self.inputs = [entry["name"] for entry in config["input"]]
        self.outputs = [entry["name"] for entry in config["output"]]
        # In 2.51 a Python-based backend gets the model's folder here, as models do.
        folder = Path(args["model_repository"]) / args["model_version"]
        entries = config.get("parameters", {}).items()
        self.load(folder, args, {name: entry.get("string_value", "") for name, entry in entries})

    def load(self, folder: Path, args: dict[str, str], parameters: Mapping[str, str]) -> None:
        """Load the artifact in a version's folder.

        Args:
            folder: Holds it.
            args: See :meth:`initialize`.
            parameters: Of the configuration, name to value.
        """
        raise NotImplementedError

    def run(self, inputs: Arrays) -> Arrays:
        """Compute the outputs, in the configuration's order, from the inputs."""
        raise NotImplementedError

    def concatenate(self, arrays: list[Any]) -> Any:
        """Join arrays along the batch axis."""
        raise NotImplementedError

    def from_tensor(self, tensor: Any) -> Any:
        """Take a Triton tensor as an array, without a copy."""
        raise NotImplementedError

    def to_tensor(self, name: str, array: Any) -> Any:
        """Make a Triton tensor of an array."""
        raise NotImplementedError

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer the requests of one execution: a bad one gets an error, the others not."""
        inputs = [
            tuple(
                self.from_tensor(pb_utils.get_input_tensor_by_name(request, name))
                for name in self.inputs
            )
            for request in requests
        ]
        answers = run_batched(inputs, self.run, self.concatenate)
        return [self._respond(*pair) for pair in zip(requests, answers, strict=True)]

    def _respond(self, request: Any, answer: Arrays | Exception) -> Any:
        if isinstance(answer, Exception):
            error = pb_utils.TritonError(str(answer), pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        wanted = request.requested_output_names()
        named = zip(self.outputs, answer, strict=True)
        return pb_utils.InferenceResponse(
            [self.to_tensor(name, array) for name, array in named if name in wanted]
        )
