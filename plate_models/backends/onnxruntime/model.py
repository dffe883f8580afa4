"""The backend "onnxruntime" in Python, for servers without libtriton_onnxruntime.so."""

from collections.abc import Mapping
from pathlib import Path

from plate_models.backends.graph_model import NumpyGraph
from plate_models.engines.onnxruntime_engine import load_configured


class TritonPythonModel(NumpyGraph):
    """Serves ``model.onnx`` on the CPU."""

    def load(self, folder: Path, _args: dict[str, str], parameters: Mapping[str, str]) -> None:
        """Open the graph."""
        self.engine = load_configured(folder / "model.onnx", self.outputs, parameters)
