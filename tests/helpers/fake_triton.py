"""A fake Triton that gives a test's answers over real gRPC.

It does what a healthy Triton never does: it is unavailable, slow, overloaded, or fails. The answers
of a healthy Triton are tested with a real one, in test_api_live.py.
"""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import np_to_triton_dtype, serialize_byte_tensor

INFO = {
    "version": "1",
    "weights": "sha256:0123",
    "device": "cpu",
    "image": {"width": 640, "height": 480},
}


def outputs(count=2):
    """The output tensors for a readable plate at the top left, an unreadable one bottom right."""
    nan = np.nan
    boxes = [[10, 20, 110, 44], [400, 300, 440, 312]]
    quads = [
        [[10, 20], [110, 21], [110, 44], [10, 43]],
        [[400, 300], [440, 300], [440, 312], [400, 312]],
    ]
    characters = [[0.998, *[1] * 7, 0.9], [0.5, 0.4, *[nan] * 7]]
    candidates = [["B840CK197", "B840CK191", "", "", ""], ["A1", "", "", "", ""]]
    candidate_scores = [[0.991, 0.002, nan, nan, nan], [0.3, nan, nan, nan, nan]]
    everything = {
        "coordinates": np.array(boxes, np.float32),
        "texts": np.array([["B840CK197"], [""]], object),
        "detection_scores": np.array([0.94, 0.5], np.float32),
        "text_scores": np.array([0.99123456, 0.3], np.float32),
        "quads": np.array(quads, np.float32),
        "character_scores": np.array(characters, np.float32),
        "formats": np.array(["ru.car", "unknown"], object),
        "candidates": np.array(candidates, object),
        "candidate_scores": np.array(candidate_scores, np.float32),
    }
    chosen = {name: array[:count] for name, array in everything.items()}
    return chosen | {"model_info": np.array([json.dumps(INFO)], object)}


class Refusal(Exception):
    """A reply raises it to answer with a gRPC error; the arguments are its code and message."""


class FakeTriton(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers ModelInfer with what `reply` returns or raises for the photo's bytes."""

    def __init__(self, tls=None, address="127.0.0.1:0"):
        """Listen, over TLS if `tls` is given: a private key and its certificate, PEM bytes."""
        self.reply = lambda _: outputs()
        self.photos = []
        # Metadata and request of the last call.
        self.metadata = {}
        self.request = service_pb2.ModelInferRequest()
        self.cancelled = threading.Semaphore(0)
        options = [("grpc.max_receive_message_length", -1)]
        self._server = grpc.server(ThreadPoolExecutor(8), options=options)
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, self._server)
        if tls is None:
            self.port = self._server.add_insecure_port(address)
        else:
            credentials = grpc.ssl_server_credentials([tls])
            self.port = self._server.add_secure_port(address, credentials)
        self._server.start()

    @property
    def countries(self):
        return str(self.request.parameters["countries"].string_param)

    @property
    def timeout_us(self):
        return int(self.request.parameters["timeout"].int64_param)

    def close(self):
        self._server.stop(None).wait()

    def ModelInfer(self, request, context):  # noqa: N802  gRPC's name
        photo = request.raw_input_contents[0]
        self.photos.append(photo)
        self.metadata, self.request = dict(context.invocation_metadata()), request
        answered = threading.Event()
        context.add_callback(lambda: answered.is_set() or self.cancelled.release())
        try:
            arrays = self.reply(photo)
        except Refusal as refusal:
            answered.set()
            context.abort(*refusal.args)
        response = service_pb2.ModelInferResponse(model_name=request.model_name)
        for name, array in arrays.items():
            output = response.outputs.add(name=name, datatype=np_to_triton_dtype(array.dtype))
            output.shape.extend(array.shape)
            texts = array.dtype == object and array.size
            raw = serialize_byte_tensor(array).item() if texts else array.tobytes()
            response.raw_output_contents.append(raw)
        answered.set()
        return response


def sleeping(seconds):
    def reply(_):
        time.sleep(seconds)
        return outputs()

    return reply


def refusing(code, message):
    return Mock(side_effect=Refusal(code, message))


class Holding:
    """A reply that holds all photos except `but` until the context ends; `arrived` counts them."""

    def __init__(self, but=None):
        self.but, self.arrived, self.release = but, threading.Semaphore(0), threading.Event()

    def __call__(self, photo):
        if photo != self.but:
            self.arrived.release()
            self.release.wait(20)
        return outputs()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release.set()
