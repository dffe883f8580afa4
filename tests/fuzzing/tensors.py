"""Tensors sent directly to Triton: all but a photo's pixels must get INVALID_ARGUMENT."""

import random
from math import prod

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from plate_models.spec import TENSORS

MODEL = "plate_recognition"
_SIZES = {"UINT8": 1, "INT8": 1, "FP32": 4, "INT64": 8, "FP64": 8, "FP16": 2, "BOOL": 1}
_SIDES = (0, 1, 2, 3, 4, 7, 24, 64, 300)
# Beyond the limits of a file's bytes and of a photo's pixels.
_TOO_LARGE = ((20 * 2**20 + 1,), (8100, 8000, 3))


def _add_tensor(rng, request):
    """Add a tensor of any name, type and shape; mostly with the right number of bytes."""
    names = (TENSORS.image, TENSORS.pixels, TENSORS.pixels, "input__1")
    name = rng.choice(names) if request.model_name == MODEL else TENSORS.graph_input
    datatype = rng.choice(("UINT8", "UINT8", *_SIZES))
    shape = tuple(rng.choices(_SIDES, k=rng.choice((0, 1, 2, 3, 3, 5, 30))))
    shape = rng.choice((shape, (*shape[:2], 3)))
    if prod(shape) > 10**6:
        datatype, shape = "UINT8", rng.choice(_TOO_LARGE)
    content = bytes(_SIZES[datatype] * prod(shape))
    request.inputs.add(name=name, datatype=datatype, shape=shape)
    request.raw_input_contents.append(rng.choice((content, content, content + b"\0", b"")))


def _over_grpc(address, request):
    """Send a request; return its gRPC status and message."""
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(address, options=options) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        try:
            stub.ModelInfer(request, timeout=30)
        except grpc.RpcError as error:
            return error.code().name, str(error.details())
    return "OK", "it was answered"


def send_tensors(address, seed, count):
    """Send `count` requests; yield each one's kind, status, and violation or None."""
    rng = random.Random(seed)
    for _ in range(count):
        model = rng.choice((MODEL, MODEL, MODEL, "yolo", "stn", "lprnet"))
        request = service_pb2.ModelInferRequest(model_name=model)
        for _ in range(rng.choice((0, 1, 1, 1, 1, 2))):
            _add_tensor(rng, request)
        status, text = _over_grpc(address, request)
        correct = {"INVALID_ARGUMENT"} | ({"OK"} if _is_photo(request) else set())
        sizes = [*map(len, request.raw_input_contents)]
        wrong = f"{[*request.inputs]} of {sizes} bytes: {text[:300]}"
        yield f"tensors to {model}", status, None if status in correct else wrong


def _is_photo(request):
    if [(t.name, t.datatype) for t in request.inputs] != [(TENSORS.pixels, "UINT8")]:
        return False
    shape, size = request.inputs[0].shape, len(request.raw_input_contents[0])
    return len(shape) == 3 and shape[2] == 3 and size == prod(shape) > 0


def overflow(address):
    """Send a shape that ends a process inside Triton 2.51; return the status."""
    request = service_pb2.ModelInferRequest(model_name=MODEL, raw_input_contents=[b""])
    request.inputs.add(name=TENSORS.pixels, datatype="UINT8", shape=(2**32, 2**32, 3))
    return _over_grpc(address, request)[0]
