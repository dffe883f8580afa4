"""The published contract of plate_recognition, held by a real Triton."""

from collections.abc import Iterator
from typing import Any

import cv2
import grpc
import numpy as np
import pytest
from photo_files import BAD
from support import SAMPLES, TritonEndpoints, read_samples
from tritonclient import grpc as triton_grpc
from tritonclient import http as triton_http
from tritonclient.grpc import service_pb2, service_pb2_grpc

from plate_models.spec import DETECTOR, LIMITS, RECOGNIZER, RECTIFIER

pytestmark = pytest.mark.live

MODEL = "plate_recognition"
TIMEOUT_S = 60


PLATES = read_samples()
# A photo with two plates, and what stands on them.
PHOTO = next(name for name, plates in PLATES.items() if len(plates) == 2)
TEXTS = sorted(plate.text for plate in PLATES[PHOTO])


@pytest.fixture(params=["grpc", "http"])
def protocol(request: pytest.FixtureRequest, triton: TritonEndpoints) -> Iterator[tuple[Any, Any]]:
    """The client module and a client, for each protocol."""
    if request.param == "grpc":
        with triton_grpc.InferenceServerClient(triton.grpc_url) as client:
            yield triton_grpc, client
        return
    if triton.http_url is None:
        pytest.skip("PLATES_TRITON_HTTP_URL is not set: no HTTP endpoint to talk to")
    client = triton_http.InferenceServerClient(triton.http_url, network_timeout=TIMEOUT_S)
    with client:
        yield triton_http, client


def test_the_published_client_snippet_over_http(triton: TritonEndpoints) -> None:
    if triton.http_url is None:
        pytest.skip("PLATES_TRITON_HTTP_URL is not set: no HTTP endpoint to talk to")
    # As it is published; only the address and the photo are ours.
    client = triton_http.InferenceServerClient(url=triton.http_url)
    image = cv2.imread(str(SAMPLES / PHOTO))
    inputs = [triton_http.InferInput("input__0", image.shape, "UINT8")]
    inputs[0].set_data_from_numpy(image)
    outputs = [
        triton_http.InferRequestedOutput("coordinates", binary_data=False),
        triton_http.InferRequestedOutput("texts", binary_data=False),
    ]
    response = client.infer("plate_recognition", inputs, outputs=outputs)
    coordinates, texts = response.as_numpy("coordinates"), response.as_numpy("texts")
    client.close()

    assert coordinates.dtype == np.float32 and coordinates.shape == (len(texts), 4)
    assert texts.shape == (len(texts), 1)
    assert all(isinstance(text, str) for text in texts.flat)
    assert sorted(filter(None, texts.flat)) == TEXTS
    height, width = image.shape[:2]
    assert (coordinates >= 0).all() and (coordinates <= [width, height] * 2).all()
    assert (coordinates[:, 2:] > coordinates[:, :2]).all()


def infer(protocol: tuple[Any, Any], name: str, array: np.ndarray, *wanted: str) -> Any:
    module, client = protocol
    tensor = module.InferInput(name, list(array.shape), "UINT8")
    tensor.set_data_from_numpy(array)
    outputs = [module.InferRequestedOutput(output) for output in wanted] or None
    return client.infer(MODEL, [tensor], outputs=outputs)


def decoded(texts: np.ndarray) -> list[str]:
    """The texts that are readable, sorted."""
    return sorted(text.decode() for text in texts.flat if text)


def test_pixels_and_file_give_the_same_over_both_protocols(protocol: tuple[Any, Any]) -> None:
    path = SAMPLES / PHOTO
    pixels = infer(protocol, "input__0", cv2.imread(str(path)))
    file = infer(protocol, "image", np.frombuffer(path.read_bytes(), np.uint8))
    assert decoded(file.as_numpy("texts")) == TEXTS
    assert decoded(pixels.as_numpy("texts")) == decoded(file.as_numpy("texts"))
    boxes = [result.as_numpy("coordinates") for result in (pixels, file)]
    np.testing.assert_allclose(boxes[0], boxes[1], atol=0.5)


def test_only_requested_outputs_come(protocol: tuple[Any, Any]) -> None:
    photo = np.zeros((40, 60, 3), np.uint8)
    result = infer(protocol, "input__0", photo, "formats", "crops")
    assert result.as_numpy("formats").shape == (0,)
    assert result.as_numpy("crops").shape == (0, 48, 188, 3)
    assert result.get_output("coordinates") is None


@pytest.mark.parametrize("binary", [True, False])
def test_no_plates_is_an_answer(triton: TritonEndpoints, binary: bool) -> None:
    if triton.http_url is None:
        pytest.skip("PLATES_TRITON_HTTP_URL is not set: no HTTP endpoint to talk to")
    with triton_http.InferenceServerClient(triton.http_url) as client:
        photo = np.full((300, 400, 3), 127, np.uint8)
        tensor = triton_http.InferInput("input__0", photo.shape, "UINT8")
        tensor.set_data_from_numpy(photo)
        names = ("coordinates", "texts")
        wanted = [triton_http.InferRequestedOutput(n, binary_data=binary) for n in names]
        result = client.infer(MODEL, [tensor], outputs=wanted)
    assert result.as_numpy("coordinates").shape == (0, 4)
    assert result.as_numpy("texts").shape == (0, 1)


def album(columns: int, rows: int) -> np.ndarray:
    """Every sample plate with what is around it, again and again, on one BGR page."""
    pictures = []
    for name, plates in PLATES.items():
        photo = cv2.copyMakeBorder(
            cv2.imread(str(SAMPLES / name)), *[400] * 4, cv2.BORDER_REPLICATE
        )
        for x0, y0, x1, y1 in (plate.box for plate in plates):
            width, centre = (x1 - x0) * 2.5, ((x0 + x1) / 2 + 400, (y0 + y1) / 2 + 400)
            picture = cv2.getRectSubPix(photo, (int(width), int(width * 0.6)), centre)
            picture = cv2.resize(picture, (320, 192))
            pictures.append(
                cv2.copyMakeBorder(picture, *[24] * 4, cv2.BORDER_CONSTANT, value=[114] * 3)
            )
    # Each row begins with another plate, so that none fills a column.
    order = [
        [(row * (columns + 1) + column) % len(pictures) for column in range(columns)]
        for row in range(rows)
    ]
    return np.vstack([np.hstack([pictures[index] for index in row]) for row in order])


def test_more_plates_than_a_batch_holds(protocol: tuple[Any, Any]) -> None:
    result = infer(protocol, "input__0", album(columns=7, rows=8))
    known = {plate.text for plates in PLATES.values() for plate in plates}
    texts = [text for text in decoded(result.as_numpy("texts")) if text in known]
    assert len(texts) > RECOGNIZER.max_batch_size
    assert len(result.as_numpy("crops")) == len(result.as_numpy("texts"))


def test_all_outputs_have_a_row_per_plate(protocol: tuple[Any, Any]) -> None:
    file = np.frombuffer((SAMPLES / PHOTO).read_bytes(), np.uint8)
    result = infer(protocol, "image", file)
    outputs = {
        name: result.as_numpy(name)
        for name in ("detection_scores", "text_scores", "quads", "character_scores", "formats")
    }
    texts, best = result.as_numpy("texts")[:, 0], result.as_numpy("candidates")[:, 0]
    assert {len(array) for array in outputs.values()} == {len(texts)}
    read = texts != b""
    assert sorted(text.decode() for text in texts[read]) == TEXTS
    assert (best[read] == texts[read]).all()
    assert ((outputs["text_scores"][read] > 0.3) & (outputs["text_scores"][read] <= 1)).all()
    assert set(outputs["formats"][read]) == {b"ru.car"}
    assert np.isfinite(outputs["character_scores"][read, :8]).all()
    # A quad lies around its box's centre, TL before TR before BR.
    boxes, quads = result.as_numpy("coordinates")[read], outputs["quads"][read]
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    np.testing.assert_allclose(quads.mean(axis=1), centres, atol=10)
    assert (quads[:, 1, 0] > quads[:, 0, 0]).all() and (quads[:, 2, 1] > quads[:, 1, 1]).all()


PIXELS = np.zeros((50, 60, 3), np.uint8).tobytes()
Tensor = tuple[str, str, list[int], bytes]

HOSTILE: dict[str, tuple[list[Tensor], str]] = {
    "neither input": ([], "invalid-input: .*neither came"),
    "both inputs": (
        [("input__0", "UINT8", [50, 60, 3], PIXELS), ("image", "UINT8", [3], b"abc")],
        "invalid-input: .*both came",
    ),
    "an input of another name": ([("photo", "UINT8", [3], b"abc")], "photo"),
    "no pixels": ([("input__0", "UINT8", [0, 0, 3], b"")], "invalid-input: .*0x0 pixels"),
    "no width": ([("input__0", "UINT8", [5, 0, 3], b"")], "invalid-input: .*0x5 pixels"),
    "rank 2": ([("input__0", "UINT8", [50, 60], PIXELS[:3000])], "shape"),
    "four channels": ([("input__0", "UINT8", [50, 45, 4], PIXELS)], "shape"),
    "floats": ([("input__0", "FP32", [50, 60, 3], PIXELS * 4)], "FP32"),
    "fewer bytes than the shape says": ([("input__0", "UINT8", [50, 60, 3], b"123")], "size"),
    "more bytes than the shape says": ([("input__0", "UINT8", [5, 6, 3], PIXELS)], "size"),
    "a size of 30 GB": ([("input__0", "UINT8", [100_000, 100_000, 3], b"")], "size"),
    "a size that overflows": ([("input__0", "UINT8", [2**31, 2**31, 3], b"")], "size"),
    "an unspecified size": ([("input__0", "UINT8", [-1, -1, 3], PIXELS)], "dimensions"),
    "a file of rank 2": ([("image", "UINT8", [1, 3], b"abc")], "shape"),
    "a file as a string": ([("image", "BYTES", [1], b"\3\0\0\0abc")], "BYTES"),
}
BAD_FILES = {
    **BAD,
    "one byte more than a file may have": (bytes(LIMITS.max_bytes + 1), "too-many-bytes"),
}
HOSTILE |= {
    f"file: {name}": ([("image", "UINT8", [len(data)], data)], f"{slug}: ")
    for name, (data, slug) in BAD_FILES.items()
}


@pytest.fixture
def stub(triton: TritonEndpoints) -> Iterator[Any]:
    """Raw gRPC: the client library refuses to send some of these."""
    with grpc.insecure_channel(triton.grpc_url) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def send(stub: Any, tensors: list[Tensor]) -> Any:
    request = service_pb2.ModelInferRequest(model_name=MODEL)
    for name, data_type, shape, data in tensors:
        request.inputs.add(name=name, datatype=data_type).shape.extend(shape)
        request.raw_input_contents.append(data)
    return stub.ModelInfer(request, timeout=TIMEOUT_S)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_tensors_are_refused_and_the_next_request_works(stub: Any, name: str) -> None:
    tensors, message = HOSTILE[name]
    with pytest.raises(grpc.RpcError, match=f"(?s)INVALID_ARGUMENT.*{message}"):
        send(stub, tensors)
    answer = send(stub, [("input__0", "UINT8", [50, 60, 3], PIXELS)])
    assert answer.model_name == MODEL


def test_a_large_photo_as_pixels(protocol: tuple[Any, Any]) -> None:
    sample = cv2.imread(str(SAMPLES / PHOTO))
    photo = cv2.resize(sample, None, fx=3, fy=3, interpolation=cv2.INTER_CUBIC)
    result = infer(protocol, "input__0", photo, "texts")
    assert decoded(result.as_numpy("texts")) == TEXTS


def test_the_graphs_answer_batches(protocol: tuple[Any, Any]) -> None:
    module, client = protocol
    shapes = {"stn": (32, 3, 64, 160), "lprnet": (32, 3, 24, 94)}
    for model, shape in shapes.items():
        batch = np.random.default_rng(0).random(shape, np.float32)
        outputs = {}
        for rows in (batch, batch[5:6]):
            tensor = module.InferInput("input__0", rows.shape, "FP32")
            tensor.set_data_from_numpy(rows)
            outputs[len(rows)] = client.infer(model, [tensor]).as_numpy("output__0")
        assert len(outputs[32]) == 32
        np.testing.assert_allclose(outputs[32][5:6], outputs[1], atol=1e-3)


TOO_MANY = {
    "yolo": ("UINT8", (DETECTOR.max_batch_size + 1, 3, 32, 32)),
    "stn": ("FP32", (RECTIFIER.max_batch_size + 1, 3, *RECTIFIER.crop_hw)),
    "lprnet": ("FP32", (RECOGNIZER.max_batch_size + 1, 3, *RECTIFIER.rectified_hw)),
}


@pytest.mark.parametrize("model", TOO_MANY)
def test_a_batch_over_the_limit_is_refused_and_the_limit_named(stub: Any, model: str) -> None:
    data_type, shape = TOO_MANY[model]
    request = service_pb2.ModelInferRequest(model_name=model)
    request.inputs.add(name="input__0", datatype=data_type).shape.extend(shape)
    item = {"UINT8": np.uint8, "FP32": np.float32}[data_type]
    request.raw_input_contents.append(np.zeros(shape, item).tobytes())
    with pytest.raises(grpc.RpcError) as refused:
        stub.ModelInfer(request, timeout=TIMEOUT_S)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    limit = shape[0] - 1
    assert f"batch-size must be <= {limit} for '{model}'" in refused.value.details()
