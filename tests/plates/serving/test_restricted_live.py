"""All who reach the embedded Triton can have photos read, and nothing else."""

import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import TritonEndpoints
from tritonclient import grpc as triton_grpc
from tritonclient import http as triton_http
from tritonclient.utils import InferenceServerException

from plates.serving import EmbeddedTriton
from plates.serving.client import KEY_HEADER, TritonHttp
from plates.serving.errors import RequestError

pytestmark = [pytest.mark.live, pytest.mark.control]

# What both of Triton's clients offer beyond photos.
CALLS: dict[str, Callable[[Any, dict[str, str]], Any]] = {
    "index": lambda client, key: client.get_model_repository_index(headers=key),
    "load": lambda client, key: client.load_model("yolo", headers=key),
    "unload": lambda client, key: client.unload_model("yolo", headers=key),
    "memory": lambda client, key: client.get_system_shared_memory_status(headers=key),
    "memory registration": lambda client, key: client.register_system_shared_memory(
        "x", "/plates_test", 8, headers=key
    ),
    "GPU memory": lambda client, key: client.get_cuda_shared_memory_status(headers=key),
    "trace": lambda client, key: client.get_trace_settings(headers=key),
    "trace of a model": lambda client, key: client.update_trace_settings(
        "yolo", {"trace_file": "/x"}, headers=key
    ),
    "logging": lambda client, key: client.update_log_settings({"log_file": "/x"}, headers=key),
}


@pytest.fixture
def server(triton: TritonEndpoints) -> EmbeddedTriton:
    assert triton.embedded is not None
    return triton.embedded


@pytest.mark.parametrize("name", CALLS)
def test_without_the_key_they_are_refused(server: EmbeddedTriton, name: str) -> None:
    grpc_header = f"triton-grpc-protocol-{KEY_HEADER}"
    for headers in ({}, {KEY_HEADER: "guessed", grpc_header: "guessed"}):
        for client in (
            triton_grpc.InferenceServerClient(server.grpc_url),
            triton_http.InferenceServerClient(server.http_url),
        ):
            with client, pytest.raises(InferenceServerException, match=r"(?i)restricted"):
                CALLS[name](client, headers)


def test_the_key_opens_them_and_is_not_shown(server: EmbeddedTriton) -> None:
    headers = {f"triton-grpc-protocol-{KEY_HEADER}": server.http.key}
    with triton_grpc.InferenceServerClient(server.grpc_url) as client:
        models = CALLS["index"](client, headers).models
    assert {model.name for model in models} >= {"yolo", "stn", "lprnet", "plate_recognition"}
    assert server.http.holds("yolo", 1)
    assert server.http.key and server.http.key not in repr(server.http)


def test_photos_health_and_metrics_need_no_key(server: EmbeddedTriton) -> None:
    client = TritonHttp(server.http_url)
    assert client.is_ready()
    before = client.successes(timeout_s=10)
    client.plates(Path("plate_models/golden.jpg").read_bytes(), timeout_s=30)
    after = client.successes(timeout_s=10)
    assert all(after[name] > before[name] for name in before)
    with pytest.raises(RequestError, match="restricted") as raised:
        client.unload("yolo")
    assert raised.value.status == 403
    with urllib.request.urlopen(f"http://{server.metrics_url}/metrics", timeout=10) as metrics:
        assert b"nv_inference_request_success" in metrics.read()
