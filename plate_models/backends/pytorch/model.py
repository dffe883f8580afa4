"""The backend "pytorch" in Python, for servers without libtriton_pytorch.so."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.utils.dlpack
import triton_python_backend_utils as pb_utils

from plate_models.backends.batching import Outputs, Run
from plate_models.backends.graph_model import GraphModel
from plate_models.contract import device_of
from plate_models.cores import choose_threads
from plate_models.engines.cuda_graphs import CudaGraphs


class TritonPythonModel(GraphModel):
    """Serves the TorchScript ``model.pt`` on the device of the instance."""

    concatenate = staticmethod(torch.cat)
    from_tensor = staticmethod(torch.utils.dlpack.from_dlpack)  # views Triton's memory

    def load(self, folder: Path, args: dict[str, str], parameters: Mapping[str, str]) -> Run:
        """Load the graph onto the instance's device: KIND_GPU alone does not put it on a GPU."""
        device = device_of(args)
        configured = int(parameters.get("INTRA_OP_THREAD_COUNT") or "0")
        torch.set_num_threads(choose_threads(configured))
        graph = torch.jit.load(folder / "model.pt", map_location=device).eval()
        if device != "cpu":
            graph = CudaGraphs(graph)

        def run(batch: torch.Tensor) -> Outputs:
            with torch.inference_mode():
                outputs = graph(batch.to(device))
            return outputs if isinstance(outputs, tuple) else (outputs,)

        return run

    def to_tensor(self, name: str, array: Any) -> Any:
        """Pass the tensor's memory to Triton without a copy: on a GPU it stays there."""
        return pb_utils.Tensor.from_dlpack(name, array.contiguous())
