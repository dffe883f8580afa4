"""ONNX graphs on ONNX Runtime, on the CPU."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnxruntime

from plate_models.backends.batching import Arrays, Run
from plate_models.cores import choose_threads


def options_for(parameters: Mapping[str, str]) -> onnxruntime.SessionOptions:
    """Make a session's options of a Triton configuration's, named as for Triton's own backend.

    ``intra_op_thread_count`` is 0 for as many threads as there are cores.
    """
    options = onnxruntime.SessionOptions()
    configured = int(parameters.get("intra_op_thread_count") or "0")
    options.intra_op_num_threads = choose_threads(configured)
    options.inter_op_num_threads = 1
    # Threads that spin while they wait starve others that compute on the same cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def load(path: Path, outputs: Sequence[str], parameters: Mapping[str, str]) -> Run:
    """Open an ``.onnx`` file to compute the outputs of these names; see `options_for`.

    Returns a function from the inputs to the outputs, numpy arrays with the batch axis first. It
    raises what the runtime raises for wrong shapes.
    """
    options, providers = options_for(parameters), ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(path, options, providers=providers)
    inputs, wanted = [entry.name for entry in session.get_inputs()], list(outputs)

    def run(arrays: Arrays) -> Arrays:
        return tuple(session.run(wanted, dict(zip(inputs, arrays, strict=True))))

    return run
