"""The backend "onnxruntime" in Python, for servers without libtriton_onnxruntime.so."""

from pathlib import Path
from typing import Any

from plate_models.backends.graph_model import thread_count
from plate_models.backends.numpy_graph import NumpyGraph
from plate_models.engines import onnxruntime_engine


class TritonPythonModel(NumpyGraph):
    """Serves ``model.onnx`` on the CPU."""

    def load(self, folder: Path, _args: dict[str, str], parameters: dict[str, Any]) -> None:
        """Open the graph."""
        threads = thread_count(parameters, "intra_op_thread_count")
        self.engine = onnxruntime_engine.load(folder / "model.onnx", self.outputs, threads)
