"""A real Triton fulfils the published contract of plate_recognition."""

import shutil

import cv2
import numpy as np
import pytest
from support import REPOSITORY, SAMPLES, read_samples, running_triton
from tritonclient import grpc as triton_grpc
from tritonclient import http as triton_http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from plate_models.contract import OUTPUTS
from plate_models.spec import LIMITS

pytestmark = pytest.mark.live

PLATES = read_samples()
# A photo with two plates, and their texts.
PHOTO = next(name for name, plates in PLATES.items() if len(plates) == 2)
TEXTS = sorted(plate.text for plate in PLATES[PHOTO])
FILE = np.frombuffer((SAMPLES / PHOTO).read_bytes(), np.uint8)
PIXELS = np.zeros((50, 60, 3), np.uint8)


@pytest.fixture(params=["grpc", "http"])
def protocol(request, triton):
    """The client module and a client, for gRPC and for HTTP."""
    if request.param == "grpc":
        with triton_grpc.InferenceServerClient(triton.grpc_url) as client:
            yield triton_grpc, client
    elif triton.http_url is None:
        pytest.skip("PLATES_TRITON_HTTP_URL is not set: no HTTP endpoint to talk to")
    else:
        with triton_http.InferenceServerClient(triton.http_url, network_timeout=60) as client:
            yield triton_http, client


def infer(protocol, name, array, *wanted, **parameters):
    module, client = protocol
    tensor = module.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
    tensor.set_data_from_numpy(array)
    outputs = [module.InferRequestedOutput(output) for output in wanted] or None
    return client.infer("plate_recognition", [tensor], outputs=outputs, parameters=parameters)


def decoded(texts):
    """The readable texts, sorted."""
    return sorted(text.decode() for text in texts.flat if text)


def test_pixels_and_file_are_read_alike_over_both_protocols(protocol):
    pixels = infer(protocol, "input__0", cv2.imread(str(SAMPLES / PHOTO)))
    file = infer(protocol, "image", FILE)
    for result in (pixels, file):
        assert decoded(result.as_numpy("texts")) == TEXTS
        assert {len(result.as_numpy(name)) for name in (*OUTPUTS, "log_probs")} == {len(TEXTS)}
    boxes = [result.as_numpy("coordinates") for result in (pixels, file)]
    np.testing.assert_allclose(boxes[0], boxes[1], atol=0.5)


def test_a_photo_without_plates_has_empty_outputs_and_only_the_requested_ones(protocol):
    shapes = {"coordinates": (0, 4), "texts": (0, 1), "formats": (0,), "crops": (0, 48, 188, 3)}
    shapes |= {"log_probs": (0, 0, 0)}
    result = infer(protocol, "input__0", np.full((300, 400, 3), 127, np.uint8), *shapes)
    assert {name: result.as_numpy(name).shape for name in shapes} == shapes
    assert result.get_output("quads") is None


def test_a_request_can_name_its_countries(protocol):
    for names in ("ru", "zz,*", "bg,ru"):
        result = infer(protocol, "image", FILE, countries=names)
        assert decoded(result.as_numpy("texts")) == TEXTS
    with pytest.raises(InferenceServerException, match=r"countries: expected .*ru.*got 'zz'"):
        infer(protocol, "image", FILE, countries="zz")


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("input__0", PIXELS[:0, :0], "invalid-input: .*0x0 pixels"),
        # test_images.py has each kind of damage; here the message must begin with the slug.
        ("image", PIXELS.ravel(), "unsupported-type: "),
        ("image", np.zeros(LIMITS.max_bytes + 1, np.uint8), "too-many-bytes: "),
    ],
)
def test_bad_tensors_are_refused_and_the_next_request_works(protocol, name, array, message):
    """For tensors that no client library would send see fuzzing/tensors.py."""
    with pytest.raises(InferenceServerException, match=message) as refused:
        infer(protocol, name, array)
    assert refused.value.status() in ("StatusCode.INVALID_ARGUMENT", "400")
    assert infer(protocol, "input__0", PIXELS).as_numpy("texts").shape == (0, 1)


@pytest.mark.control
def test_the_gpu_profile_answers_like_the_cpu_profile(triton, tmp_path):
    """The GPU profile (TorchScript) runs on a CPU here."""
    copy = shutil.copytree(REPOSITORY, tmp_path / "repository")
    for config in copy.glob("*/config.pbtxt"):
        text = config.read_text(encoding="utf-8")
        assert "KIND_GPU" in text
        text = text.replace("KIND_GPU", "KIND_CPU").replace("count: 4", "count: 1")
        config.write_text(text, encoding="utf-8")
    with (
        running_triton(copy, profile="gpu") as torchscript,
        triton_grpc.InferenceServerClient(torchscript.grpc_url) as gpu_client,
        triton_grpc.InferenceServerClient(triton.grpc_url) as cpu_client,
    ):
        gpu, cpu = (infer((triton_grpc, each), "image", FILE) for each in (gpu_client, cpu_client))
    assert decoded(gpu.as_numpy("texts")) == TEXTS
    np.testing.assert_array_equal(gpu.as_numpy("texts"), cpu.as_numpy("texts"))
    for name, off in (("coordinates", 0.5), ("quads", 0.5), ("text_scores", 0.02), ("crops", 12)):
        found, expected = (one.as_numpy(name).astype(float) for one in (gpu, cpu))
        np.testing.assert_allclose(found, expected, atol=off)
