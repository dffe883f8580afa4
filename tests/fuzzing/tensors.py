"""Well-formed but wrong tensors, straight to Triton: each must be an INVALID_ARGUMENT."""

import json
import random
from collections.abc import Callable, Iterator
from math import prod
from typing import NamedTuple

import grpc
import httpx
from tritonclient.grpc import service_pb2, service_pb2_grpc

from fuzzing.kinds import SAMPLES
from plate_models.spec import TENSORS

MODEL = "plate_recognition"
_SIZES = {"UINT8": 1, "INT8": 1, "FP32": 4, "INT64": 8, "FP64": 8, "FP16": 2, "BOOL": 1}
_TIMEOUT_S = 30
# gRPC's and HTTP's.
_RIGHT = ("INVALID_ARGUMENT", "400")


class Tensor(NamedTuple):
    """One input as it is sent."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    content: bytes


def _zeros(name: str, shape: tuple[int, ...], datatype: str = "UINT8") -> Tensor:
    return Tensor(name, datatype, shape, bytes(_SIZES[datatype] * prod(shape)))


def _image(content: bytes) -> Tensor:
    return Tensor(TENSORS.image, "UINT8", (len(content),), content)


def _pixels(*shape: int) -> Tensor:
    return _zeros(TENSORS.pixels, shape)


def _sample(rng: random.Random) -> Tensor:
    return _image(rng.choice(SAMPLES).read_bytes())


def _wrong_type(rng: random.Random) -> list[Tensor]:
    name, shape = rng.choice(((TENSORS.image, (40,)), (TENSORS.pixels, (8, 8, 3))))
    return [_zeros(name, shape, rng.choice([name for name in _SIZES if name != "UINT8"]))]


def _wrong_rank(rng: random.Random) -> list[Tensor]:
    name, one = rng.choice(((TENSORS.image, (8, 8, 3)), (TENSORS.pixels, (9,))))
    return [_zeros(name, rng.choice(((), (8, 8), (1, 8, 8, 3), (1,) * 30, one)))]


def _wrong_size(rng: random.Random) -> list[Tensor]:
    """Fewer or more bytes than the shape needs."""
    tensor = rng.choice((_pixels(8, 8, 3), _image(bytes(64))))
    changes = (tensor.content[:-1], tensor.content + b"\0", b"")
    return [tensor._replace(content=rng.choice(changes))]


def _too_large(rng: random.Random) -> list[Tensor]:
    """More than the limits; the bytes are all there."""
    return [_image(bytes(20 * 2**20 + 1)) if rng.random() < 0.5 else _pixels(8100, 8000, 3)]


def _wrong_for_graph(rng: random.Random) -> list[Tensor]:
    shape = rng.choices((0, 1, 3, 7, 24, 64), k=rng.choice((1, 2, 3, 5)))
    return [_zeros(TENSORS.graph_input, tuple(shape), rng.choice(tuple(_SIZES)))]


# By model and kind.
CASES: dict[tuple[str, str], Callable[[random.Random], list[Tensor]]] = {
    (MODEL, "neither input"): lambda _: [],
    (MODEL, "both inputs"): lambda rng: [_sample(rng), _pixels(8, 8, 3)],
    (MODEL, "unknown input"): lambda rng: [_sample(rng), _zeros("input__1", (4,))],
    (MODEL, "wrong type"): _wrong_type,
    (MODEL, "wrong rank"): _wrong_rank,
    (MODEL, "wrong channels"): lambda rng: [_pixels(8, 8, rng.choice((0, 1, 2, 4, 300)))],
    (MODEL, "no pixels"): lambda rng: [_pixels(*rng.choice(((0, 0, 3), (0, 5, 3), (5, 0, 3))))],
    (MODEL, "beyond the limits"): _too_large,
    (MODEL, "bytes that don't fit"): _wrong_size,
    (MODEL, "not an image"): lambda rng: [_image(rng.randbytes(rng.randrange(1, 500)))],
    **{(graph, "any"): _wrong_for_graph for graph in ("yolo", "stn", "lprnet")},
}


def over_grpc(address: str, model: str, tensors: list[Tensor]) -> tuple[str, str]:
    """Send tensors as their bytes: the status, and the words with it."""
    request = service_pb2.ModelInferRequest(model_name=model)
    for tensor in tensors:
        request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        request.raw_input_contents.append(tensor.content)
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(address, options=options) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        try:
            stub.ModelInfer(request, timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            return error.code().name, str(error.details())
    return "OK", "it was answered"


def over_http(address: str, model: str, tensors: list[Tensor]) -> tuple[str, str]:
    """The same in Triton's binary form of HTTP."""
    inputs = [
        {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": tensor.shape,
            "parameters": {"binary_data_size": len(tensor.content)},
        }
        for tensor in tensors
    ]
    described = json.dumps({"inputs": inputs}).encode()
    body = described + b"".join(tensor.content for tensor in tensors)
    headers = {"Inference-Header-Content-Length": str(len(described))}
    url = f"http://{address}/v2/models/{model}/infer"
    try:
        answer = httpx.post(url, content=body, headers=headers, timeout=_TIMEOUT_S)
    except httpx.HTTPError as error:
        return "none", f"no answer: {error}"
    return str(answer.status_code), answer.text


def send_tensors(
    grpc_address: str, http_address: str, seed: int, rounds: int
) -> Iterator[tuple[str, str, str | None]]:
    """Send every case so many times over both protocols.

    Yields:
        The case, its status, and what was wrong with that.
    """
    for number in range(rounds):
        for (model, case), make in CASES.items():
            tensors = make(random.Random(f"{seed} {model} {case} {number}"))
            for send, address in ((over_grpc, grpc_address), (over_http, http_address)):
                status, text = send(address, model, tensors)
                shapes = [(t.name, t.datatype, t.shape, len(t.content)) for t in tensors]
                wrong = f"{status} to {shapes}: {text[:300]}"
                yield f"{model}, {case}", status, None if status in _RIGHT else wrong


def overflow(address: str) -> str:
    """Send the shape that ends a process inside Triton 2.51; return the status."""
    tensor = Tensor(TENSORS.pixels, "UINT8", (2**32, 2**32, 3), b"")
    return over_grpc(address, MODEL, [tensor])[0]
