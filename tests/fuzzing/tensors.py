"""Well-formed but wrong tensors, straight to Triton: each must be an INVALID_ARGUMENT."""

import http.client
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from fuzzing.requests import sample
from plate_models.spec import TENSORS

MODEL = "plate_recognition"
_SIZES = {"UINT8": 1, "INT8": 1, "FP32": 4, "INT64": 8, "FP64": 8, "FP16": 2, "BOOL": 1}
_TIMEOUT_S = 30


class Tensor(NamedTuple):
    """One input as it is sent."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    content: bytes


def _zeros(name: str, datatype: str, *shape: int) -> Tensor:
    size = _SIZES[datatype]
    for side in shape:
        size *= side
    return Tensor(name, datatype, shape, bytes(size))


def _file(rng: random.Random) -> Tensor:
    photo = sample(rng)
    return Tensor(TENSORS.image, "UINT8", (len(photo),), photo)


def _pixels(*shape: int) -> Tensor:
    return _zeros(TENSORS.pixels, "UINT8", *shape)


def _wrong_type(rng: random.Random) -> list[Tensor]:
    datatype = rng.choice([name for name in _SIZES if name != "UINT8"])
    name, shape = rng.choice(((TENSORS.image, (40,)), (TENSORS.pixels, (8, 8, 3))))
    return [_zeros(name, datatype, *shape)]


def _wrong_rank(rng: random.Random) -> list[Tensor]:
    shapes = ((), (9,), (8, 8), (1, 8, 8, 3), (1,) * 30)
    if rng.random() < 0.5:
        return [_pixels(*rng.choice(shapes))]
    return [_zeros(TENSORS.image, "UINT8", *rng.choice([s for s in shapes if len(s) != 1]))]


def _wrong_channels(rng: random.Random) -> list[Tensor]:
    return [_pixels(8, 8, rng.choice((0, 1, 2, 4, 300)))]


def _empty(rng: random.Random) -> list[Tensor]:
    return [_pixels(*rng.choice(((0, 0, 3), (0, 5, 3), (5, 0, 3))))]


def _too_large(rng: random.Random) -> list[Tensor]:
    """More than the limits; the bytes are all there."""
    if rng.random() < 0.5:
        return [_zeros(TENSORS.image, "UINT8", 20 * 2**20 + 1)]
    return [_pixels(8100, 8000, 3)]


def _wrong_size(rng: random.Random) -> list[Tensor]:
    """Fewer or more bytes than the shape says."""
    tensor = rng.choice((_pixels(8, 8, 3), _zeros(TENSORS.image, "UINT8", 64)))
    change = rng.choice((tensor.content[:-1], tensor.content + b"\0", b""))
    return [tensor._replace(content=change)]


def _not_a_file(rng: random.Random) -> list[Tensor]:
    content = rng.randbytes(rng.randrange(1, 500))
    return [Tensor(TENSORS.image, "UINT8", (len(content),), content)]


CASES: dict[str, Callable[[random.Random], list[Tensor]]] = {
    "neither input": lambda _: [],
    "both inputs": lambda rng: [_file(rng), _pixels(8, 8, 3)],
    "unknown input": lambda rng: [_file(rng), _zeros("input__1", "UINT8", 4)],
    "wrong type": _wrong_type,
    "wrong rank": _wrong_rank,
    "wrong channels": _wrong_channels,
    "no pixels": _empty,
    "beyond the limits": _too_large,
    "bytes that don't fit": _wrong_size,
    "not an image": _not_a_file,
}
_GRAPHS: dict[str, tuple[str, ...]] = {"yolo": ("UINT8",), "stn": ("FP32",), "lprnet": ("FP32",)}


def _wrong_for_graph(rng: random.Random) -> list[Tensor]:
    shape = rng.choices((0, 1, 3, 7, 24, 64), k=rng.choice((1, 2, 3, 5)))
    return [_zeros(TENSORS.graph_input, rng.choice(tuple(_SIZES)), *shape)]


class Verdict(NamedTuple):
    """What Triton said to one case."""

    status: str
    violation: str | None


def over_grpc(address: str, model: str, tensors: list[Tensor]) -> Verdict:
    """Send tensors with their bytes and expect INVALID_ARGUMENT."""
    request = service_pb2.ModelInferRequest(model_name=model)
    for tensor in tensors:
        added = request.inputs.add(name=tensor.name, datatype=tensor.datatype)
        added.shape.extend(tensor.shape)
        request.raw_input_contents.append(tensor.content)
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(address, options=options) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        try:
            stub.ModelInfer(request, timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            status = error.code().name
            fits = status == "INVALID_ARGUMENT"
            return Verdict(status, None if fits else f"{status}: {str(error.details())[:300]}")
    return Verdict("OK", "it was answered")


def over_http(address: str, model: str, tensors: list[Tensor]) -> Verdict:
    """Send tensors in Triton's binary form and expect 400."""
    inputs = [
        {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": tensor.shape,
            "parameters": {"binary_data_size": len(tensor.content)},
        }
        for tensor in tensors
    ]
    head = json.dumps({"inputs": inputs}).encode()
    body = head + b"".join(tensor.content for tensor in tensors)
    headers = {"Inference-Header-Content-Length": str(len(head))}
    connection = http.client.HTTPConnection(address, timeout=_TIMEOUT_S)
    try:
        connection.request("POST", f"/v2/models/{model}/infer", body, headers)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
    finally:
        connection.close()
    fits = answer.status == 400
    return Verdict(str(answer.status), None if fits else f"{answer.status}: {text[:300]}")


class Outcome(NamedTuple):
    """What came of the tensors: statuses of each case, and what was wrong."""

    statuses: dict[str, Counter[str]]
    violations: list[str]


def send_tensors(grpc_address: str, http_address: str, seed: int, rounds: int) -> Outcome:
    """Send every case so many times over both protocols."""
    statuses: dict[str, Counter[str]] = {}
    violations = []
    for number in range(rounds):
        for case, make in [*CASES.items(), *((f"{m}: any", _wrong_for_graph) for m in _GRAPHS)]:
            rng = random.Random(f"{seed} tensors {case} {number}")
            model = case.partition(":")[0] if case.partition(":")[0] in _GRAPHS else MODEL
            tensors = make(rng)
            for send, address in ((over_grpc, grpc_address), (over_http, http_address)):
                try:
                    verdict = send(address, model, tensors)
                except OSError as error:
                    verdict = Verdict("none", f"no answer: {error}")
                statuses.setdefault(case, Counter())[verdict.status] += 1
                if verdict.violation:
                    shapes = [(t.name, t.datatype, t.shape, len(t.content)) for t in tensors]
                    violations.append(f"{case}: {verdict.violation} to {shapes}")
    return Outcome(statuses, violations)


def overflow(address: str) -> str:
    """Send the shape that ends a process inside Triton 2.51; say what came back."""
    shape = (2**32, 2**32, 3)
    return over_grpc(address, MODEL, [Tensor(TENSORS.pixels, "UINT8", shape, b"")]).status
