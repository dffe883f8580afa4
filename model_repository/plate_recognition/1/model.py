"""plate_recognition: a shell around read_plates that calls the nets through BLS."""

import locale
import sys
import traceback
from functools import partial
from pathlib import Path

import numpy as np
import torch
import triton_python_backend_utils as pb_utils

from plate_models import contract
from plate_models.images import ImageError
from plate_models.pipeline import read_plates
from plate_models.spec import TENSORS

# Triton's stub knows ASCII only, whatever LANG says: Cyrillic could not be printed.
locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


class TritonPythonModel:
    def initialize(self, args):
        torch.set_num_threads(1)  # the instances are the threads
        folder = Path(args["model_repository"]) / args["model_version"]
        self.origin = contract.read_origin(folder, contract.device_of(args))

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        code, outputs, error = pb_utils.TritonError, {}, None
        try:
            file = pb_utils.get_input_tensor_by_name(request, TENSORS.image)
            pixels = pb_utils.get_input_tensor_by_name(request, TENSORS.pixels)
            given = file and np.from_dlpack(file), pixels and torch.from_dlpack(pixels)
            photo = contract.photo_of(*given).to(self.origin.device)
            plates = read_plates(photo, *(partial(_call, name) for name in contract.GRAPHS))
            wanted = request.requested_output_names()
            outputs = contract.outputs_of(plates, photo, self.origin, wanted)
        except ImageError as refused:
            error = code(f"{refused.slug}: {refused}", code.INVALID_ARG)
        except contract.GraphError as failed:
            error = code(str(failed), code.UNAVAILABLE)
        except Exception as bug:  # uncaught, it would show the caller this server's paths
            pb_utils.Logger.log_error("".join(traceback.format_tb(bug.__traceback__)))
            error = code(f"unexpected {type(bug).__name__}: {bug}", code.INTERNAL)
        return pb_utils.InferenceResponse([pb_utils.Tensor(*o) for o in outputs.items()], error)


def _call(model, tensor):
    inputs = [pb_utils.Tensor.from_dlpack(TENSORS.graph_input, tensor.contiguous())]
    names = list(contract.GRAPHS[model])
    request = {"model_name": model, "inputs": inputs, "requested_output_names": names}
    response = pb_utils.InferenceRequest(**request).exec()
    if response.has_error():
        raise contract.GraphError(f"{model}: {response.error().message()}")
    outputs = [pb_utils.get_output_tensor_by_name(response, name) for name in names]
    tensors = tuple(torch.from_dlpack(output).to(tensor.device) for output in outputs)
    return tensors if len(tensors) > 1 else tensors[0]
