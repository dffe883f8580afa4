"""The backend "onnxruntime" in Python, for servers without libtriton_onnxruntime.so."""

from collections.abc import Mapping
from pathlib import Path

from plate_models.backends.batching import Run
from plate_models.backends.graph_model import GraphModel
from plate_models.engines import onnxruntime_engine


class TritonPythonModel(GraphModel):
    """Serves ``model.onnx`` on the CPU."""

    def load(self, folder: Path, _args: dict[str, str], parameters: Mapping[str, str]) -> Run:
        """Open the graph."""
        return onnxruntime_engine.load(folder / "model.onnx", self.outputs, parameters)
