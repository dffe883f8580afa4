"""The published contract of plate_recognition, held by a real Triton."""

import json
import shutil
from typing import Any

import cv2
import grpc
import numpy as np
import pytest
from support import SAMPLES, TritonEndpoints, read_samples
from tritonclient import grpc as triton_grpc
from tritonclient import http as triton_http
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from plate_models.recognition import ctc
from plate_models.spec import LIMITS
from plates.serving.triton import EmbeddedTriton

pytestmark = pytest.mark.live

MODEL = "plate_recognition"
TIMEOUT_S = 60


PLATES = read_samples()
# A photo with two plates, and what stands on them.
PHOTO = next(name for name, plates in PLATES.items() if len(plates) == 2)
TEXTS = sorted(plate.text for plate in PLATES[PHOTO])


def http_url(triton: TritonEndpoints) -> str:
    if triton.http_url is None:
        pytest.skip("PLATES_TRITON_HTTP_URL is not set: no HTTP endpoint to talk to")
    return triton.http_url


@pytest.fixture(params=["grpc", "http"])
def protocol(request, triton):
    """The client module and a client, for each protocol."""
    if request.param == "grpc":
        with triton_grpc.InferenceServerClient(triton.grpc_url) as client:
            yield triton_grpc, client
    else:
        url = http_url(triton)
        with triton_http.InferenceServerClient(url, network_timeout=TIMEOUT_S) as client:
            yield triton_http, client


def test_json_over_http_has_texts_as_strings(triton):
    image = cv2.imread(str(SAMPLES / PHOTO))
    pixels = triton_http.InferInput("input__0", image.shape, "UINT8")
    pixels.set_data_from_numpy(image)
    names = ("coordinates", "texts")
    outputs = [triton_http.InferRequestedOutput(name, binary_data=False) for name in names]
    with triton_http.InferenceServerClient(http_url(triton)) as client:
        answer = client.infer(MODEL, [pixels], outputs=outputs)
    boxes, texts = map(answer.as_numpy, names)
    assert boxes.dtype == np.float32 and boxes.shape == (len(texts), 4)
    assert sorted(filter(None, texts[:, 0])) == TEXTS
    assert (boxes[:, 2:] > boxes[:, :2]).all()


def infer(protocol: tuple[Any, Any], name: str, array: np.ndarray, *wanted: str) -> Any:
    module, client = protocol
    tensor = module.InferInput(name, list(array.shape), "UINT8")
    tensor.set_data_from_numpy(array)
    outputs = [module.InferRequestedOutput(output) for output in wanted] or None
    return client.infer(MODEL, [tensor], outputs=outputs)


def decoded(texts: np.ndarray) -> list[str]:
    """The texts that are readable, sorted."""
    return sorted(text.decode() for text in texts.flat if text)


def test_pixels_and_file_give_the_same_over_both_protocols(protocol):
    bgr = cv2.imread(str(SAMPLES / PHOTO))
    pixels = infer(protocol, "input__0", bgr)
    file = infer(protocol, "image", np.frombuffer((SAMPLES / PHOTO).read_bytes(), np.uint8))
    for result in (pixels, file):
        assert decoded(result.as_numpy("texts")) == TEXTS
    boxes = [result.as_numpy("coordinates") for result in (pixels, file)]
    np.testing.assert_allclose(boxes[0], boxes[1], atol=0.5)


def test_no_plates_is_an_answer_and_only_requested_outputs_come(protocol):
    photo = np.full((300, 400, 3), 127, np.uint8)
    result = infer(protocol, "input__0", photo, "coordinates", "texts", "formats", "crops")
    assert result.as_numpy("coordinates").shape == (0, 4)
    assert result.as_numpy("texts").shape == (0, 1)
    assert result.as_numpy("formats").shape == (0,)
    assert result.as_numpy("crops").shape == (0, 48, 188, 3)
    assert result.get_output("quads") is None


def test_all_outputs_have_a_row_per_plate(protocol):
    file = np.frombuffer((SAMPLES / PHOTO).read_bytes(), np.uint8)
    result = infer(protocol, "image", file)
    names = ("texts", "text_scores", "quads", "character_scores", "formats", "candidates")
    outputs = {name: result.as_numpy(name) for name in names}
    read = outputs["texts"][:, 0] != b""
    assert {len(array) for array in outputs.values()} == {len(read)}
    assert (outputs["candidates"][read, 0] == outputs["texts"][read, 0]).all()
    assert ((outputs["text_scores"][read] > 0.3) & (outputs["text_scores"][read] <= 1)).all()
    assert set(outputs["formats"][read]) == {b"ru.car"}
    assert np.isfinite(outputs["character_scores"][read, :8]).all()
    # A quad lies around its box's centre, TL before TR before BR.
    boxes, quads = result.as_numpy("coordinates")[read], outputs["quads"][read]
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    np.testing.assert_allclose(quads.mean(axis=1), centres, atol=10)
    assert (quads[:, 1, 0] > quads[:, 0, 0]).all() and (quads[:, 2, 1] > quads[:, 1, 1]).all()


def test_log_probs_spell_the_texts(protocol):
    file = np.frombuffer((SAMPLES / PHOTO).read_bytes(), np.uint8)
    result = infer(protocol, "image", file, "texts", "log_probs", "model_info")
    log_probs, texts = result.as_numpy("log_probs"), decoded(result.as_numpy("texts"))
    alphabet = json.loads(result.as_numpy("model_info")[0])["alphabet"]
    assert log_probs.dtype == np.float32
    assert log_probs.shape[:2] == (len(result.as_numpy("texts")), len(alphabet) + 1)
    np.testing.assert_allclose(np.exp(log_probs).sum(axis=1), 1, atol=1e-4)
    assert texts == TEXTS
    spelled = [ctc.beam_decode(plate.astype(float), alphabet)[0][0] for plate in log_probs]
    assert set(texts) <= set(spelled)
    empty = infer(protocol, "input__0", np.full((50, 60, 3), 127, np.uint8), "log_probs")
    assert empty.as_numpy("log_probs").shape == (0, 0, 0)


def test_a_request_names_its_countries(triton):
    file = np.frombuffer((SAMPLES / PHOTO).read_bytes(), np.uint8)
    tensor = triton_grpc.InferInput("image", file.shape, "UINT8")
    tensor.set_data_from_numpy(file)
    with triton_grpc.InferenceServerClient(triton.grpc_url) as client:
        for names in ("ru", "gb,*"):
            result = client.infer(MODEL, [tensor], parameters={"countries": names})
            assert decoded(result.as_numpy("texts")) == TEXTS
        with pytest.raises(InferenceServerException, match=r"countries: expected .*ru.*got 'gb'"):
            client.infer(MODEL, [tensor], parameters={"countries": "gb"})


PIXELS = np.zeros((50, 60, 3), np.uint8).tobytes()
Tensor = tuple[str, str, list[int], bytes]

HOSTILE: dict[str, tuple[list[Tensor], str]] = {
    "neither input": ([], "invalid-input: .*neither came"),
    "an input of another name": ([("photo", "UINT8", [3], b"abc")], "photo"),
    "no pixels": ([("input__0", "UINT8", [0, 0, 3], b"")], "invalid-input: .*0x0 pixels"),
    "four channels": ([("input__0", "UINT8", [50, 45, 4], PIXELS)], "shape"),
    "floats": ([("input__0", "FP32", [50, 60, 3], PIXELS * 4)], "FP32"),
    "fewer bytes than the shape says": ([("input__0", "UINT8", [50, 60, 3], b"123")], "size"),
    "a size that overflows": ([("input__0", "UINT8", [2**31, 2**31, 3], b"")], "size"),
    "a file as a string": ([("image", "BYTES", [1], b"\3\0\0\0abc")], "BYTES"),
    # Each kind of damage is in test_images.py: the slug must come first here, whatever it is.
    "a file that is no photo": ([("image", "UINT8", [3], b"abc")], "unsupported-type: "),
    "a file that is too large": (
        [("image", "UINT8", [LIMITS.max_bytes + 1], bytes(LIMITS.max_bytes + 1))],
        "too-many-bytes: ",
    ),
}


@pytest.fixture
def stub(triton):
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
def test_hostile_tensors_are_refused_and_the_next_request_works(stub, name):
    tensors, message = HOSTILE[name]
    with pytest.raises(grpc.RpcError, match=f"(?s)INVALID_ARGUMENT.*{message}"):
        send(stub, tensors)
    answer = send(stub, [("input__0", "UINT8", [50, 60, 3], PIXELS)])
    assert answer.model_name == MODEL


@pytest.fixture(scope="module")
def torchscript(repository, tmp_path_factory):
    """The GPU profile (TorchScript), on a CPU."""
    copy = shutil.copytree(repository, tmp_path_factory.mktemp("models") / "repository")
    for config in copy.glob("*/config.pbtxt"):
        text = config.read_text(encoding="utf-8")
        assert "KIND_GPU" in text
        text = text.replace("KIND_GPU", "KIND_CPU").replace("count: 4", "count: 1")
        config.write_text(text, encoding="utf-8")
    with EmbeddedTriton(copy, profile="gpu") as server:
        yield server


@pytest.mark.control
def test_the_gpu_profile_answers_as_the_cpu_profile(torchscript, triton):
    file = np.frombuffer((SAMPLES / PHOTO).read_bytes(), np.uint8)
    with (
        triton_grpc.InferenceServerClient(torchscript.grpc_url) as there,
        triton_grpc.InferenceServerClient(triton.grpc_url) as here,
    ):
        other, ours = (infer((triton_grpc, one), "image", file) for one in (there, here))
    assert decoded(other.as_numpy("texts")) == TEXTS
    np.testing.assert_array_equal(other.as_numpy("texts"), ours.as_numpy("texts"))
    for name, off in (("coordinates", 0.5), ("quads", 0.5), ("text_scores", 0.02), ("crops", 8)):
        found, expected = (one.as_numpy(name).astype(float) for one in (other, ours))
        np.testing.assert_allclose(found, expected, atol=off)
