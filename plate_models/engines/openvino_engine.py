"""ONNX graphs on OpenVINO, on the CPU: in bfloat16 where the processor computes with it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openvino
from numpy.typing import NDArray

Arrays = tuple[NDArray[Any], ...]
Run = Callable[[Arrays], Arrays]


def load(path: Path, outputs: Sequence[str], threads: int, bf16: bool = False) -> Run:
    """Open a graph.

    Args:
        path: The ``.onnx`` file.
        outputs: Names of the outputs, in the order in which they are wanted.
        threads: To compute with.
        bf16: Compute in bfloat16 where the processor has instructions for it. What follows
            the last convolution stays float32.

    Returns:
        As `onnxruntime_engine.load`.
    """
    core = openvino.Core()
    able = "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    compiled = core.compile_model(
        core.read_model(path),
        "CPU",
        {
            "INFERENCE_PRECISION_HINT": "bf16" if bf16 and able else "f32",
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "ENABLE_CPU_PINNING": False,  # others compute on the same cores
        },
    )
    request = compiled.create_infer_request()

    def run(arrays: Arrays) -> Arrays:
        found = request.infer(dict(enumerate(arrays)), share_inputs=True)
        return tuple(np.array(found[name]) for name in outputs)

    return run
