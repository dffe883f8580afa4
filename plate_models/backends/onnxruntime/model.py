"""The backend "onnxruntime" in Python, for servers without libtriton_onnxruntime.so."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils

from plate_models.backends.batching import Arrays
from plate_models.backends.graph_model import GraphModel, thread_count


class TritonPythonModel(GraphModel):
    """Serves ``model.onnx`` on the CPU."""

    def load(self, folder: Path, _args: dict[str, str], parameters: dict[str, Any]) -> None:
        """Open a session whose threads don't spin while others compute."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = thread_count(parameters, "intra_op_thread_count")
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        path = folder / "model.onnx"
        self.session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )

    def run(self, inputs: Arrays) -> Arrays:
        """Compute on numpy arrays."""
        feed = dict(zip(self.inputs, inputs, strict=True))
        return tuple(self.session.run(self.outputs, feed))

    def concatenate(self, arrays: list[Any]) -> Any:
        """Join numpy arrays."""
        return np.concatenate(arrays)

    def from_tensor(self, tensor: Any) -> Any:
        """See the shared memory as a numpy array; ``as_numpy`` would copy it."""
        return np.from_dlpack(tensor)

    def to_tensor(self, name: str, array: Any) -> Any:
        """Copy a numpy array into Triton's memory."""
        return pb_utils.Tensor(name, np.ascontiguousarray(array))
