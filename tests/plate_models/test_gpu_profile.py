"""The GPU profile, served without a GPU: TorchScript on our "pytorch" backend."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
from support import SAMPLES, TritonEndpoints, read_samples
from tritonclient import grpc as triton_grpc

from plates.serving import EmbeddedTriton

pytestmark = [pytest.mark.live, pytest.mark.control]

PHOTO, PLATES = next(iter(read_samples().items()))


@pytest.fixture(scope="module")
def torchscript(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedTriton]:
    """A server with every config.pbtxt as it is, but for the kind and number of instances."""
    copy = tmp_path_factory.mktemp("models") / "repository"
    shutil.copytree(repository, copy)
    for config in copy.glob("*/config.pbtxt"):
        text = config.read_text(encoding="utf-8")
        assert "KIND_GPU" in text
        text = text.replace("KIND_GPU", "KIND_CPU").replace("count: 4", "count: 1")
        config.write_text(text, encoding="utf-8")
    with EmbeddedTriton(copy, profile="gpu") as server:
        yield server


def recognize(url: str, name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    with triton_grpc.InferenceServerClient(url) as client:
        tensor = triton_grpc.InferInput(name, list(array.shape), "UINT8")
        tensor.set_data_from_numpy(array)
        result = client.infer("plate_recognition", [tensor], client_timeout=60)
    names = ("texts", "coordinates", "quads", "text_scores", "crops")
    return {output: result.as_numpy(output) for output in names}


def read_in(answer: dict[str, np.ndarray]) -> list[str]:
    return sorted(text.decode() for text in answer["texts"].flat if text)


def test_both_profiles_answer_alike(torchscript: EmbeddedTriton, triton: TritonEndpoints) -> None:
    photo = np.frombuffer((SAMPLES / PHOTO).read_bytes(), np.uint8)
    ours = recognize(torchscript.grpc_url, "image", photo)
    other = recognize(triton.grpc_url, "image", photo)
    assert read_in(ours) == sorted(plate.text for plate in PLATES)
    np.testing.assert_array_equal(ours["texts"], other["texts"])
    np.testing.assert_allclose(ours["coordinates"], other["coordinates"], atol=0.5)
    np.testing.assert_allclose(ours["quads"], other["quads"], atol=0.5)
    np.testing.assert_allclose(ours["text_scores"], other["text_scores"], atol=0.02)
    np.testing.assert_allclose(ours["crops"].astype(int), other["crops"].astype(int), atol=8)


def test_pixels_reach_the_torchscript_profile_too(torchscript: EmbeddedTriton) -> None:
    answer = recognize(torchscript.grpc_url, "input__0", cv2.imread(str(SAMPLES / PHOTO)))
    assert read_in(answer) == sorted(plate.text for plate in PLATES)
