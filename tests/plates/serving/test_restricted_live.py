"""Clients of the embedded Triton without its key can have photos read, and nothing else."""

from pathlib import Path

import httpx
import pytest
from tritonclient import grpc as triton_grpc
from tritonclient import http as triton_http
from tritonclient.utils import InferenceServerException

from plates.serving.client import KEY_HEADER, TritonHttp
from plates.serving.errors import RequestError
from plates.serving.triton import shared_memory

pytestmark = [pytest.mark.live, pytest.mark.control]

# A call of each restricted API that both of Triton's clients have.
CALLS = (
    *("get_model_repository_index", "get_system_shared_memory_status"),
    *("get_trace_settings", "get_log_settings"),
)
GRPC_HEADER = f"triton-grpc-protocol-{KEY_HEADER}"


def test_only_photos_health_and_metrics_need_no_key(triton):
    server = triton.embedded
    with (
        triton_grpc.InferenceServerClient(server.grpc_url) as grpc,
        triton_http.InferenceServerClient(server.http_url) as http,
    ):
        for call in CALLS:
            for client in (grpc, http):
                for headers in ({}, {KEY_HEADER: "guessed", GRPC_HEADER: "guessed"}):
                    with pytest.raises(InferenceServerException, match=r"(?i)restricted"):
                        getattr(client, call)(headers=headers)
        models = grpc.get_model_repository_index(headers={GRPC_HEADER: server.http.key}).models
    assert {model.name for model in models} >= {"yolo", "stn", "lprnet", "plate_recognition"}
    assert server.http.key and server.http.key not in repr(server.http)
    client = TritonHttp(server.http_url)
    assert client.is_ready()
    assert client.plates(Path("plate_models/golden.jpg").read_bytes(), timeout_s=30)
    with pytest.raises(RequestError, match="restricted") as raised:
        client.unload("yolo")
    assert raised.value.status == 403
    metrics = httpx.get(f"http://{server.metrics_url}/metrics", timeout=10).text
    assert "nv_inference_request_success" in metrics
    server.tidy()  # The healer calls it regularly.
    regions = shared_memory(server.shm_prefix)
    assert regions and not any(path.stat().st_mode & 0o077 for path in regions)
