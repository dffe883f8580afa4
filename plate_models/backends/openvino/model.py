"""The backend "openvino" in Python, for servers without libtriton_openvino.so."""

from collections.abc import Mapping
from pathlib import Path

from plate_models.backends.batching import Run
from plate_models.backends.graph_model import GraphModel
from plate_models.engines import openvino_engine


class TritonPythonModel(GraphModel):
    """Serves ``model.onnx`` on the CPU."""

    def load(self, folder: Path, _args: dict[str, str], parameters: Mapping[str, str]) -> Run:
        """Open the graph."""
        return openvino_engine.load(folder / "model.onnx", self.outputs, parameters)
