"""What /metrics has besides the photos: what supervisors report, and Triton's own."""

import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from fake_triton import FakeTriton
from prometheus_client.parser import text_string_to_metric_families
from support import PHOTO, TritonEndpoints, post_raw, running_gateway, settings_for

from api.settings import Settings
from api.status import Status, write_status

TRITONS = """\
# HELP nv_inference_request_success Number of successful inference requests
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="yolo",version="1"} 7
# TYPE plates_requests counter
plates_requests_total{method="GET",route="/",status="200"} 999
nonsense
# HELP nv_cpu_utilization CPU utilization rate [0.0 - 1.0]
# TYPE nv_cpu_utilization gauge
nv_cpu_utilization 0.5
"""


@contextmanager
def answering(answer: bytes, after_s: float = 0) -> Iterator[str]:
    """A server on loopback that answers one request so."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            time.sleep(after_s)
            self.request.sendall(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        server.timeout = 20
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        thread.join()


def http(body: str, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\n\r\n{body}".encode()


def scraped(client: httpx.Client) -> dict[tuple[str, ...], float]:
    """Samples by name and labels; each family stands there once."""
    answer = client.get("/metrics")
    assert answer.status_code == 200
    families = list(text_string_to_metric_families(answer.text))
    names = {family.name for family in families}
    assert answer.text.count("# TYPE") == len(names) == len(families)
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_restarts_come_from_the_supervisors(fake: FakeTriton, tmp_path: Path) -> None:
    ours, tritons = tmp_path / "gateway.json", tmp_path / "triton.json"
    settings = settings_for(fake, status_file=ours, triton_status_file=tritons)
    with running_gateway(settings) as client:
        assert not [name for name, *_ in scraped(client) if "restarts" in name]
        write_status(ours, Status("ready", {"gateway": 1}))
        assert scraped(client)["plates_state", "ready"] == 1
        write_status(tritons, Status("healing", {"triton": 2, "yolo": 1}, 3, {"4": "it misreads"}))
        found = scraped(client)
        tritons.write_text("{")
        broken = scraped(client)
    for part, count in (("gateway", 1), ("triton", 2), ("yolo", 1)):
        assert found["plates_restarts_total", part] == count
    assert (found["plates_state", "healing"], found["plates_state", "ready"]) == (1, 0)
    assert found["plates_release", "3"] == found["plates_release_refused", "4"] == 1
    assert not {("plates_restarts_total", "triton"), ("plates_release", "3")} & broken.keys()
    assert broken["plates_restarts_total", "gateway"] == 1


def test_tritons_own_follow_ours(fake: FakeTriton) -> None:
    with (
        answering(http(TRITONS)) as address,
        running_gateway(settings_for(fake, triton_metrics_url=address)) as client,
    ):
        post_raw(client, PHOTO)
        found = scraped(client)
    assert found["nv_inference_request_success_total", "yolo", "1"] == 7  # the parser's suffix
    assert found["nv_cpu_utilization",] == 0.5
    assert found["plates_triton_metrics_up",] == 1
    assert found["plates_requests_total", "POST", "/v1/plates", "200"] == 1  # ours, not its


@pytest.mark.parametrize(
    ("answer", "after_s"),
    [
        (http(TRITONS, "503 Service Unavailable"), 0),
        (b"", 0),
        (b"nonsense", 0),
        (b"\xff" * 100, 0),
        (http(TRITONS), 0.5),
    ],
)
def test_a_triton_without_metrics_harms_nothing(
    fake: FakeTriton, answer: bytes, after_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.observing.metrics._TRITON_TIMEOUT_S", 0.3)
    with (
        answering(answer, after_s) as address,
        running_gateway(settings_for(fake, triton_metrics_url=address)) as client,
    ):
        found = scraped(client)
    assert found["plates_triton_metrics_up",] == 0
    assert not [name for name, *_ in found if name.startswith("nv_")]


@pytest.mark.live
def test_the_real_tritons_metrics(triton: TritonEndpoints) -> None:
    if triton.embedded is None:
        pytest.skip("only an embedded Triton says where its metrics are")
    settings = Settings(triton_url=triton.grpc_url, triton_metrics_url=triton.embedded.metrics_url)
    with running_gateway(settings) as client:
        post_raw(client, PHOTO)
        found = scraped(client)
    assert found["plates_triton_metrics_up",] == 1
    assert [key for key in found if key[0].startswith("nv_inference_request_success")]
