"""The base of our backends in Python, which answers Triton's requests with a pure graph.

Imported only inside Triton's stub, which provides ``triton_python_backend_utils``.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from plate_models.backends.batching import Concatenate, Outputs, Run, code_of, run_batched


class GraphModel:
    """A Triton model of one graph: ``model.onnx`` on OpenVINO, or as a subclass loads it."""

    concatenate: Concatenate = staticmethod(np.concatenate)
    # Views Triton's memory as an array; ``as_numpy`` would make a copy.
    from_tensor: Callable[[Any], Any] = staticmethod(np.from_dlpack)

    def initialize(self, args: dict[str, str]) -> None:
        """Load the graph; Triton calls this with its arguments for models."""
        config = json.loads(args["model_config"])
        (self.input,) = (entry["name"] for entry in config["input"])
        self.outputs = [entry["name"] for entry in config["output"]]
        # In Triton 2.51 a backend in Python gets the model's folder here, as a model does.
        folder = Path(args["model_repository"]) / args["model_version"]
        entries = config.get("parameters", {}).items()
        parameters = {name: entry.get("string_value", "") for name, entry in entries}
        self.run = self.load(folder, args, parameters)

    def load(self, folder: Path, _args: dict[str, str], parameters: Mapping[str, str]) -> Run:
        """Load the graph in a version's folder with the configuration's parameters."""
        from plate_models.engines import openvino_engine  # not where a subclass loads the graph

        return openvino_engine.load(folder / "model.onnx", self.outputs, parameters)

    def to_tensor(self, name: str, array: Any) -> Any:
        """Copy an array into Triton's memory."""
        return pb_utils.Tensor(name, np.ascontiguousarray(array))

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer the requests of one execution; only bad requests get an error."""
        tensors = (pb_utils.get_input_tensor_by_name(request, self.input) for request in requests)
        inputs = list(map(self.from_tensor, tensors))
        answers = run_batched(inputs, self.run, self.concatenate)
        return [self._respond(*pair) for pair in zip(requests, answers, strict=True)]

    def _respond(self, request: Any, answer: Outputs | Exception) -> Any:
        if isinstance(answer, Exception):
            code = getattr(pb_utils.TritonError, code_of(answer))
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(answer), code))
        wanted = request.requested_output_names()
        named = zip(self.outputs, answer, strict=True)
        return pb_utils.InferenceResponse(
            [self.to_tensor(name, array) for name, array in named if name in wanted]
        )
