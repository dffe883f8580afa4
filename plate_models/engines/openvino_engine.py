"""ONNX graphs on OpenVINO, on the CPU: in bfloat16 where the processor computes with it."""

import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from plate_models.backends.batching import Arrays, Run
from plate_models.cores import choose_threads

# OpenVINO imports its converter, which is not needed here, and which reports over the network
# that it was imported. It takes an ImportError for an answer.
sys.modules.setdefault("openvino.tools.ovc", None)  # type: ignore[arg-type]

import openvino  # noqa: E402

# Compiled graphs that are kept, one for each shape of a sample: more than there are canvases.
_SHAPES = 4
# Where there are more threads than one sample keeps busy, samples are computed side by side.
_THREADS_PER_SAMPLE = 4


@cache
def _core() -> openvino.Core:
    """The process's only core, which stays until its end.

    Each core gives the thread a stack for signals and puts the one before it back when it ends:
    of several that end in another order, one puts back a stack that is freed, and the next
    Ctrl-C is a segmentation fault.
    """
    return openvino.Core()


@cache
def computes_in_bf16() -> bool:
    """Whether this processor has instructions for bfloat16."""
    return "BF16" in _core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def settings_for(parameters: Mapping[str, str]) -> dict[str, Any]:
    """Make OpenVINO's settings of a Triton configuration's, named as for Triton's own backend.

    ``INFERENCE_NUM_THREADS`` is 0 for as many threads as there are cores; ``HINT_BF16``, "yes",
    asks for bfloat16. What follows the last convolution stays float32.
    """
    threads = choose_threads(int(parameters.get("INFERENCE_NUM_THREADS") or "0"))
    bf16 = parameters.get("HINT_BF16", "").upper() == "YES" and computes_in_bf16()
    return {
        "INFERENCE_PRECISION_HINT": "bf16" if bf16 else "f32",
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": max(1, threads // _THREADS_PER_SAMPLE),
        "ENABLE_CPU_PINNING": False,  # others compute on the same cores
    }


def load(path: Path, outputs: Sequence[str], parameters: Mapping[str, str]) -> Run:
    """Open an ``.onnx`` file with one input to compute the outputs of these names.

    For the parameters see `settings_for`. Returns a function from the input to the outputs, numpy
    arrays with the batch axis first; callers wait for each other. A shape that does not fit is a
    ValueError. Where the sides of a sample vary, as the detector's do, the graph is compiled anew
    for each when it is first seen, and a batch is computed sample by sample: with sides that
    vary, OpenVINO takes a quarter more time, and a batch of canvases gains nothing on a CPU.
    """
    core = _core()
    # Read now: a damaged file is refused before the first photo comes, and when a canvas of another
    # shape does, the file may be gone or another one.
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
        if not declared.compatible(wanted):  # reshaping would take anything
            raise ValueError(f"expected an input of the shape {declared}, got {[-1, *shape]}")
        try:
            model.reshape(wanted)
        except RuntimeError as error:  # such as sides that are no multiples of the stride
            raise ValueError(f"no input of the shape {[-1, *shape]} fits: {error}") from error
        compiled = core.compile_model(model, "CPU", settings)
        return [compiled.create_infer_request() for _ in range(streams)]

    def run(arrays: Arrays) -> Arrays:
        (batch,) = arrays
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
