"""Tensors straight to Triton: each must be an INVALID_ARGUMENT, unless it is a photo's pixels."""

import random
from math import prod
from typing import NamedTuple

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from plate_models.spec import TENSORS

MODEL = "plate_recognition"
_SIZES = {"UINT8": 1, "INT8": 1, "FP32": 4, "INT64": 8, "FP64": 8, "FP16": 2, "BOOL": 1}
_SIDES = (0, 1, 2, 3, 4, 7, 24, 64, 300)
# More than the limits: of a file, and of pixels.
_TOO_LARGE = ((20 * 2**20 + 1,), (8100, 8000, 3))


class Tensor(NamedTuple):
    """One input as it is sent."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    content: bytes


def _tensor(rng, model):
    """Any name, type and shape; mostly with as many bytes as they need."""
    names = (TENSORS.image, TENSORS.pixels, TENSORS.pixels, "input__1")
    name = rng.choice(names) if model == MODEL else TENSORS.graph_input
    datatype = rng.choice(("UINT8", "UINT8", *_SIZES))
    shape = tuple(rng.choices(_SIDES, k=rng.choice((0, 1, 2, 3, 3, 5, 30))))
    shape = rng.choice((shape, (*shape[:2], 3)))
    if prod(shape) > 10**6:
        datatype, shape = "UINT8", rng.choice(_TOO_LARGE)
    content = bytes(_SIZES[datatype] * prod(shape))
    return Tensor(name, datatype, shape, rng.choice((content, content, content + b"\0", b"")))


def over_grpc(address, model, tensors):
    """Send tensors as their bytes: the status, and the words with it."""
    request = service_pb2.ModelInferRequest(model_name=model)
    for tensor in tensors:
        request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        request.raw_input_contents.append(tensor.content)
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(address, options=options) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        try:
            stub.ModelInfer(request, timeout=30)
        except grpc.RpcError as error:
            return error.code().name, str(error.details())
    return "OK", "it was answered"


def send_tensors(address, seed, count):
    """Send so many requests; yields the model, the status, and what was wrong with that."""
    rng = random.Random(seed)
    for _ in range(count):
        model = rng.choice((MODEL, MODEL, MODEL, "yolo", "stn", "lprnet"))
        tensors = [_tensor(rng, model) for _ in range(rng.choice((0, 1, 1, 1, 1, 2)))]
        status, text = over_grpc(address, model, tensors)
        shapes = [(t.name, t.datatype, t.shape, len(t.content)) for t in tensors]
        right = {"INVALID_ARGUMENT"} | ({"OK"} if _is_photo(tensors) else set())
        yield f"tensors to {model}", status, None if status in right else f"{shapes}: {text[:300]}"


def _is_photo(tensors):
    if len(tensors) != 1 or tensors[0][:2] != (TENSORS.pixels, "UINT8"):
        return False
    _, _, shape, content = tensors[0]
    return len(shape) == 3 and shape[2] == 3 and len(content) == prod(shape) > 0


def overflow(address):
    """Send the shape that ends a process inside Triton 2.51; return the status."""
    tensor = Tensor(TENSORS.pixels, "UINT8", (2**32, 2**32, 3), b"")
    return over_grpc(address, MODEL, [tensor])[0]
