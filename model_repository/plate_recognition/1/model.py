"""The Triton model plate_recognition: calls read_plates, with the nets called through BLS."""

import json
import locale
import sys
import traceback

import cv2
import triton_python_backend_utils as pb_utils

from plate_models import contract, process
from plate_models.backends import bls
from plate_models.cores import choose_threads, photos_at_once
from plate_models.pipeline import read_plates
from plate_models.spec import TENSORS

# Triton's stub uses ASCII whatever LANG is: without this, Cyrillic could not be printed.
locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


class TritonPythonModel:
    def initialize(self, args):
        cv2.setNumThreads(1)  # each slot is a thread
        process.keep_freed_memory()
        self.origin = contract.read_origin(args)
        self.config = contract.config_from(contract.version_folder(args))
        groups = json.loads(args["model_config"])["instance_group"]
        processes = sum(group["count"] for group in groups)
        self.slots = bls.Slots(photos_at_once(choose_threads(), processes), self._answer)

    def execute(self, requests):
        self.slots.take(requests)

    def finalize(self):
        self.slots.close()

    def _answer(self, request):
        try:
            call = bls.Call(request, self.origin.version)
            with call.stage(bls.DECODE):
                file = pb_utils.get_input_tensor_by_name(request, TENSORS.image)
                pixels = pb_utils.get_input_tensor_by_name(request, TENSORS.pixels)
                file, pixels = (given and bls.view(given) for given in (file, pixels))
                photo = contract.photo_of(file, pixels, device=self.origin.device)
            wanted = request.requested_output_names()
            config = contract.config_for(self.config, request.parameters(), wanted)
            plates = read_plates(photo, *call.nets(), config)
            arrays = contract.outputs_of(plates, photo, self.origin, wanted, call.timing_ms())
            return pb_utils.InferenceResponse([pb_utils.Tensor(*item) for item in arrays.items()])
        except Exception as error:  # uncaught, it would break the server and reveal its paths
            message, code = contract.problem_of(error)
            if code == "INTERNAL":
                pb_utils.Logger.log_error("".join(traceback.format_tb(error.__traceback__)))
            problem = pb_utils.TritonError(message, getattr(pb_utils.TritonError, code))
            return pb_utils.InferenceResponse(error=problem)
