"""ONNX graphs on OpenVINO, on the CPU: in bfloat16 if the processor supports it."""

import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from plate_models.backends.batching import Outputs, Run
from plate_models.cores import choose_threads

# Keep OpenVINO from importing its converter, which is not needed here and reports over the network
# that it was imported. OpenVINO handles the ImportError.
sys.modules.setdefault("openvino.tools.ovc", None)  # type: ignore[arg-type]

import openvino  # noqa: E402

# Compiled graphs to keep, one for each shape of a sample: more than there are canvases.
_SHAPES = 4
# With more threads than one sample keeps busy, samples are computed in parallel.
_THREADS_PER_SAMPLE = 4


@cache
def _core() -> openvino.Core:
    """The process's only OpenVINO core, which lives as long as the process.

    Each core sets the thread's stack for signals, and when it is deleted restores the previous one.
    If several cores are deleted out of order, one restores a freed stack, and the next Ctrl-C is a
    segmentation fault.
    """
    return openvino.Core()


@cache
def computes_in_bf16() -> bool:
    """Whether this processor has instructions for bfloat16."""
    return "BF16" in _core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def settings_for(parameters: Mapping[str, str]) -> dict[str, Any]:
    """Convert a Triton configuration's parameters, named as for Triton's own backend.

    ``INFERENCE_NUM_THREADS`` is 0 for as many threads as there are cores; ``HINT_BF16`` is "yes"
    for bfloat16. Operations after the last convolution stay in float32.
    """
    threads = choose_threads(int(parameters.get("INFERENCE_NUM_THREADS") or "0"))
    bf16 = parameters.get("HINT_BF16", "").upper() == "YES" and computes_in_bf16()
    return {
        "INFERENCE_PRECISION_HINT": "bf16" if bf16 else "f32",
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": max(1, threads // _THREADS_PER_SAMPLE),
        "ENABLE_CPU_PINNING": False,  # other nets and processes use the same cores
    }


def load(path: Path, outputs: Sequence[str], parameters: Mapping[str, str]) -> Run:
    """Load an ``.onnx`` file with one input, to compute the outputs of these names.

    For the parameters see `settings_for`. Returns a function from the input to the outputs, NumPy
    arrays with the batch axis first. Its calls run one at a time; it raises ValueError if a shape
    does not fit. If the sides of a sample vary, as the detector's do, the graph is compiled for
    each size when that first appears, and a batch is computed sample by sample: with variable
    sides OpenVINO takes a quarter more time, and batches of canvases gain nothing on a CPU.
    """
    core = _core()
    # Read the file now: a damaged one is refused before the first photo, and when a canvas of a new
    # shape appears, the file may have been deleted or replaced.
    graph = path.read_bytes()
    declared = core.read_model(graph).input(0).partial_shape
    batched = all(side.is_static for side in list(declared)[1:])
    settings = settings_for(parameters)
    streams: int = settings["NUM_STREAMS"]
    free = threading.Lock()

    @lru_cache(maxsize=_SHAPES)
    def requests_for(shape: tuple[int, ...]) -> list[openvino.InferRequest]:
        wanted = openvino.PartialShape([-1 if batched else 1, *shape])
        model = core.read_model(graph)
        if not declared.compatible(wanted):  # `reshape` would accept any shape
            raise ValueError(f"expected an input of the shape {declared}, got {[-1, *shape]}")
        try:
            model.reshape(wanted)
        except RuntimeError as error:  # such as sides that are no multiples of the stride
            raise ValueError(f"no input of the shape {[-1, *shape]} fits: {error}") from error
        compiled = core.compile_model(model, "CPU", settings)
        return [compiled.create_infer_request() for _ in range(streams)]

    def run(batch: Any) -> Outputs:
        rows = [batch] if batched else [batch[row : row + 1] for row in range(len(batch))]
        answers = []
        with free:
            requests = requests_for(batch.shape[1:])
            for first in range(0, len(rows), streams):
                started = list(zip(requests, rows[first : first + streams], strict=False))
                for request, row in started:
                    request.start_async({0: row}, share_inputs=True)
                for request, _ in started:
                    request.wait()
                    found = request.results
                    answers.append([np.array(found[name]) for name in outputs])
        return tuple(np.concatenate(parts) for parts in zip(*answers, strict=True))

    return run
