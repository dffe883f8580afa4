"""Deadlines, disconnects and compression, down to a real Triton's queue and nets."""

from collections.abc import Iterator
from contextlib import ExitStack

import cv2
import numpy as np
import pytest
from gateway_support import begin_upload
from photo_files import encode
from support import (
    SCENE,
    SCENE_TEXT,
    TritonEndpoints,
    assert_problem,
    number,
    post_raw,
    running_gateway,
    wait_until,
)
from tritonclient import grpc as triton_grpc
from tritonclient.utils import InferenceServerException

from api.settings import Settings
from plate_models.images import decode

pytestmark = pytest.mark.live

PHOTO = SCENE.read_bytes()


@pytest.fixture(scope="module")
def large() -> bytes:
    """A photo that takes long to decode, with a plate in it."""
    return encode(cv2.resize(decode(PHOTO), (8000, 6000)), "JPEG")


@pytest.fixture
def direct(triton: TritonEndpoints) -> Iterator[triton_grpc.InferenceServerClient]:
    with triton_grpc.InferenceServerClient(triton.grpc_url) as client:
        yield client


def answered(client: triton_grpc.InferenceServerClient, model: str) -> int:
    """How many requests the model has answered."""
    (found,) = client.get_inference_statistics(model).model_stats
    return int(found.inference_stats.success.count)


def test_no_net_works_for_clients_that_disconnect(
    triton: TritonEndpoints, direct: triton_grpc.InferenceServerClient, large: bytes
) -> None:
    """Two photos are decoded at once; the others wait in Triton's queue when all disconnect."""
    clients, before = 8, answered(direct, "lprnet")
    settings = Settings(triton_url=triton.grpc_url, concurrency=clients, max_waiting=0)
    with running_gateway(settings) as client:
        with ExitStack() as connections:
            for _ in range(clients):
                connections.enter_context(begin_upload(client, large, length=len(large)))
            wait_until(lambda: number(client, "plates_in_flight") == clients)
        wait_until(lambda: number(client, "plates_in_flight") == 0)
        assert post_raw(client, PHOTO).status_code == 200
    assert 1 <= answered(direct, "lprnet") - before <= clients // 2


def test_no_net_works_for_photos_that_are_too_late(
    triton: TritonEndpoints, direct: triton_grpc.InferenceServerClient, large: bytes
) -> None:
    before = answered(direct, "yolo")
    tensor = triton_grpc.InferInput("image", [len(PHOTO)], "UINT8")
    tensor.set_data_from_numpy(np.frombuffer(PHOTO, np.uint8))
    with pytest.raises(InferenceServerException, match=r"Request timeout expired$") as refused:
        direct.infer("plate_recognition", [tensor], timeout=1)  # microsecond
    assert refused.value.status() == "StatusCode.UNAVAILABLE"
    with running_gateway(Settings(triton_url=triton.grpc_url)) as client:
        headers = {"content-type": "image/jpeg", "x-request-timeout": "0.15"}
        response = client.post("/v1/plates", content=large, headers=headers)
        assert_problem(response, 504, "recognizer-timeout")
        assert answered(direct, "yolo") == before
        assert post_raw(client, PHOTO).status_code == 200
    assert answered(direct, "yolo") == before + 1


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_photos_are_read_and_every_stage_is_timed(
    triton: TritonEndpoints, algorithm: str
) -> None:
    settings = Settings(triton_url=triton.grpc_url, triton_compression=algorithm)
    with running_gateway(settings) as client:
        plates = post_raw(client, PHOTO).json()["plates"]
        assert SCENE_TEXT in [plate["text"] for plate in plates]
        for stage in ("decode", "yolo", "stn", "lprnet", "rest"):
            assert number(client, f'plates_stage_seconds_count{{stage="{stage}"}}') == 1
            assert number(client, f'plates_stage_seconds_sum{{stage="{stage}"}}') > 0
        assert number(client, "plates_model_info{") == 1
