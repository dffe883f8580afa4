"""Whoever reaches the embedded Triton can have photos read, and nothing else."""

import http.client
from pathlib import Path
from typing import Any

import pytest
from support import TritonEndpoints
from tritonclient import grpc as triton_grpc
from tritonclient.utils import InferenceServerException

from plates.serving import EmbeddedTriton
from plates.serving.client import KEY_HEADER, TritonHttp
from plates.serving.errors import RequestError

pytestmark = [pytest.mark.live, pytest.mark.control]

REGION = b'{"key": "/plates_test", "offset": 0, "byte_size": 8}'
RESTRICTED = {
    "index": ("POST", "/v2/repository/index", b"{}"),
    "load": ("POST", "/v2/repository/models/yolo/load", b"{}"),
    "unload": ("POST", "/v2/repository/models/yolo/unload", b"{}"),
    "memory": ("GET", "/v2/systemsharedmemory/status", None),
    "memory registration": ("POST", "/v2/systemsharedmemory/region/x/register", REGION),
    "GPU memory": ("GET", "/v2/cudasharedmemory/status", None),
    "trace": ("GET", "/v2/trace/setting", None),
    "trace of a model": ("POST", "/v2/models/yolo/trace/setting", b'{"trace_file": ["/x"]}'),
    "logging": ("POST", "/v2/logging", b'{"log_file": "/x"}'),
}


@pytest.fixture
def server(triton: TritonEndpoints) -> EmbeddedTriton:
    assert triton.embedded is not None
    return triton.embedded


def status_of(server: EmbeddedTriton, method: str, path: str, body: bytes | None) -> int:
    connection = http.client.HTTPConnection(server.http_url, timeout=10)
    try:
        connection.request(method, path, body, {KEY_HEADER: "guessed"})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("name", RESTRICTED)
def test_http_without_the_key_is_refused(server: EmbeddedTriton, name: str) -> None:
    assert status_of(server, *RESTRICTED[name]) == 403


def calls(client: triton_grpc.InferenceServerClient, headers: dict[str, str]) -> dict[str, Any]:
    """What gRPC offers beyond photos; ask for one and it is called."""
    return {
        "index": lambda: client.get_model_repository_index(headers=headers),
        "load": lambda: client.load_model("yolo", headers=headers),
        "unload": lambda: client.unload_model("yolo", headers=headers),
        "memory": lambda: client.get_system_shared_memory_status(headers=headers),
        "memory registration": lambda: client.register_system_shared_memory(
            "x", "/plates_test", 8, headers=headers
        ),
        "GPU memory": lambda: client.get_cuda_shared_memory_status(headers=headers),
        "trace": lambda: client.get_trace_settings(headers=headers),
        "logging": lambda: client.update_log_settings({"log_file": "/x"}, headers=headers),
    }


@pytest.mark.parametrize("headers", [{}, {f"triton-grpc-protocol-{KEY_HEADER}": "guessed"}])
def test_grpc_without_the_key_is_refused(server: EmbeddedTriton, headers: dict[str, str]) -> None:
    with triton_grpc.InferenceServerClient(server.grpc_url) as client:
        for name, call in calls(client, headers).items():
            with pytest.raises(InferenceServerException, match=r"(?i)restricted") as raised:
                call()
            assert "UNAVAILABLE" in str(raised.value.status()), name


def test_the_key_opens_them(server: EmbeddedTriton) -> None:
    headers = {f"triton-grpc-protocol-{KEY_HEADER}": server.http.key}
    with triton_grpc.InferenceServerClient(server.grpc_url) as client:
        models = calls(client, headers)["index"]().models
    assert {model.name for model in models} >= {"yolo", "stn", "lprnet", "plate_recognition"}


def test_photos_and_health_need_no_key(server: EmbeddedTriton) -> None:
    anybody = TritonHttp(server.http_url)
    assert anybody.is_ready()
    before = anybody.successes(timeout_s=10)
    anybody.plates(Path("plate_models/golden.jpg").read_bytes(), timeout_s=30)
    after = anybody.successes(timeout_s=10)
    assert all(after[name] > before[name] for name in before)
    with pytest.raises(RequestError, match="restricted") as raised:
        anybody.unload("yolo", timeout_s=10)
    assert raised.value.status == 403


def test_the_key_is_not_shown(server: EmbeddedTriton) -> None:
    assert server.http.key and server.http.key not in repr(server.http)


def test_the_metrics_are_where_they_are_said_to_be(server: EmbeddedTriton) -> None:
    connection = http.client.HTTPConnection(server.metrics_url, timeout=10)
    connection.request("GET", "/metrics")
    assert b"nv_inference_request_success" in connection.getresponse().read()
    connection.close()
