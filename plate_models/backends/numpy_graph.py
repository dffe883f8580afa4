"""What the backends on numpy arrays share.

Imported only inside Triton's stub, which brings ``triton_python_backend_utils``.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from plate_models.backends.batching import Arrays
from plate_models.backends.graph_model import GraphModel


class NumpyGraph(GraphModel):
    """A graph that an engine runs: ``load`` of a subclass sets ``engine``."""

    engine: Callable[[Arrays], Arrays]

    def run(self, inputs: Arrays) -> Arrays:
        """Compute on numpy arrays."""
        return self.engine(inputs)

    def concatenate(self, arrays: list[Any]) -> Any:
        """Join numpy arrays."""
        return np.concatenate(arrays)

    def from_tensor(self, tensor: Any) -> Any:
        """See the shared memory as a numpy array; ``as_numpy`` would copy it."""
        return np.from_dlpack(tensor)

    def to_tensor(self, name: str, array: Any) -> Any:
        """Copy a numpy array into Triton's memory."""
        return pb_utils.Tensor(name, np.ascontiguousarray(array))
