"""The backend "openvino" in Python, for servers without libtriton_openvino.so."""

from pathlib import Path
from typing import Any

from plate_models.backends.graph_model import parameter, thread_count
from plate_models.backends.numpy_graph import NumpyGraph
from plate_models.engines import openvino_engine


class TritonPythonModel(NumpyGraph):
    """Serves ``model.onnx`` on the CPU."""

    def load(self, folder: Path, _args: dict[str, str], parameters: dict[str, Any]) -> None:
        """Open the graph."""
        threads = thread_count(parameters, "INFERENCE_NUM_THREADS")
        bf16 = parameter(parameters, "HINT_BF16").upper() == "YES"
        path = folder / "model.onnx"
        self.engine = openvino_engine.load(path, self.outputs, threads, bf16)
