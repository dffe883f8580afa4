"""Deadlines, disconnects and compression, down to a real Triton's queue and nets."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import cv2
import httpx
import numpy as np
import pytest
from photo_files import encode
from support import (
    SAMPLES,
    TritonEndpoints,
    assert_problem,
    number,
    post_raw,
    read_samples,
    running_gateway,
    wait_until,
)
from tritonclient import grpc as triton_grpc
from tritonclient.utils import InferenceServerException

from api.settings import Settings
from plate_models.images import decode

pytestmark = pytest.mark.live

NAME = next(iter(read_samples()))
PHOTO = (SAMPLES / NAME).read_bytes()
# A bound for what hangs, not for what is slow.
HANG_S = 60.0


@pytest.fixture(scope="module")
def large() -> bytes:
    """A photo that takes long to decode, with a plate in it."""
    scene = decode(PHOTO)
    return encode(cv2.resize(scene, (8000, 6000), interpolation=cv2.INTER_LINEAR), "JPEG")


@pytest.fixture
def direct(triton: TritonEndpoints) -> Iterator[triton_grpc.InferenceServerClient]:
    with triton_grpc.InferenceServerClient(triton.grpc_url) as client:
        yield client


def infer(
    client: triton_grpc.InferenceServerClient, photo: bytes, timeout_us: int | None = None
) -> triton_grpc.InferResult:
    tensor = triton_grpc.InferInput("image", [len(photo)], "UINT8")
    tensor.set_data_from_numpy(np.frombuffer(photo, np.uint8))
    return client.infer("plate_recognition", [tensor], timeout=timeout_us, client_timeout=HANG_S)


def answered(client: triton_grpc.InferenceServerClient, model: str) -> int:
    """How many requests the model has answered."""
    (found,) = client.get_inference_statistics(model).model_stats
    return int(found.inference_stats.success.count)


@pytest.fixture
def busy(triton: TritonEndpoints, large: bytes) -> Iterator[None]:
    """While this lasts, whatever comes waits in Triton's queue."""
    if triton.embedded is None:
        pytest.skip("needs the metrics of a Triton of our own")
    url = f"http://{triton.embedded.metrics_url}/metrics"
    waiting = 'nv_inference_pending_request_count{model="plate_recognition",version="1"}'

    def pending() -> float:
        lines = httpx.get(url).text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(waiting))

    with ThreadPoolExecutor(8) as pool, ExitStack() as clients:
        for _ in range(8):
            client = triton_grpc.InferenceServerClient(triton.grpc_url)
            pool.submit(infer, clients.enter_context(client), large)
        wait_until(lambda: pending() >= 2)
        yield
        pool.shutdown()


def test_no_net_works_for_clients_that_disconnect(
    triton: TritonEndpoints, direct: triton_grpc.InferenceServerClient, large: bytes
) -> None:
    """Two photos are decoded at once; the others wait in Triton's queue when all disconnect."""
    clients, before = 8, answered(direct, "lprnet")
    settings = Settings(triton_url=triton.grpc_url, concurrency=clients, max_waiting=0)
    with running_gateway(settings) as client:
        head = "POST /v1/plates HTTP/1.1\r\nHost: x\r\nContent-Type: image/jpeg\r\n"
        request = f"{head}Content-Length: {len(large)}\r\n\r\n".encode() + large
        with ExitStack() as connections:
            for _ in range(clients):
                address = (client.base_url.host, client.base_url.port)
                connection = socket.create_connection(address, timeout=HANG_S)
                connections.enter_context(connection).sendall(request)
            wait_until(lambda: number(client, "plates_in_flight") == clients)
        wait_until(lambda: number(client, "plates_in_flight") == 0)
        assert post_raw(client, PHOTO).status_code == 200
    assert 1 <= answered(direct, "lprnet") - before <= clients // 2


@pytest.mark.usefixtures("busy")
def test_what_waited_too_long_in_tritons_queue_is_refused(
    direct: triton_grpc.InferenceServerClient,
) -> None:
    with pytest.raises(InferenceServerException, match=r"Request timeout expired$") as refused:
        infer(direct, PHOTO, timeout_us=1000)
    assert refused.value.status() == "StatusCode.UNAVAILABLE"


def test_no_net_works_for_a_request_that_is_too_late(
    direct: triton_grpc.InferenceServerClient,
) -> None:
    before = answered(direct, "yolo")
    with pytest.raises(InferenceServerException, match="timeout expired"):
        infer(direct, PHOTO, timeout_us=50)
    assert answered(direct, "yolo") == before
    assert infer(direct, PHOTO, timeout_us=round(HANG_S * 1e6)).as_numpy("texts").size
    assert answered(direct, "yolo") == before + 1


@pytest.mark.usefixtures("busy")
def test_the_clients_limit_holds_from_end_to_end(triton: TritonEndpoints) -> None:
    with running_gateway(Settings(triton_url=triton.grpc_url)) as client:
        headers = {"content-type": "image/jpeg", "x-request-timeout": "0.2"}
        response = client.post("/v1/plates", content=PHOTO, headers=headers)
        assert_problem(response, 504, "recognizer-timeout")
        assert number(client, "plates_in_flight") == 0
        assert post_raw(client, PHOTO).status_code == 200


def test_every_stage_is_timed(
    triton: TritonEndpoints, direct: triton_grpc.InferenceServerClient
) -> None:
    spent = json.loads(infer(direct, PHOTO).as_numpy("model_info")[0])["timing_ms"]
    assert spent.keys() == {"decode", "yolo", "stn", "lprnet", "rest"}
    assert all(milliseconds > 0 for milliseconds in spent.values())
    with running_gateway(Settings(triton_url=triton.grpc_url)) as client:
        assert post_raw(client, PHOTO).status_code == 200
        for stage in spent:
            assert number(client, f'plates_stage_seconds_count{{stage="{stage}"}}') == 1
        assert number(client, "plates_model_info{") == 1


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_photos_are_read(triton: TritonEndpoints, algorithm: str) -> None:
    settings = Settings(triton_url=triton.grpc_url, triton_compression=algorithm)
    with running_gateway(settings) as client:
        texts = {plate["text"] for plate in post_raw(client, PHOTO).json()["plates"]}
    assert texts >= {plate.text for plate in read_samples()[NAME]}
