"""What /metrics tells besides the photos: restarts, connections, and Triton's own."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from fake_triton import FakeTriton
from prometheus_client.parser import text_string_to_metric_families
from support import PHOTO, TritonEndpoints, post_raw, running_gateway, settings_for, wait_until

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
def answering(answer: bytes | None) -> Iterator[str]:
    """A server on loopback that says the same to everybody; None never answers."""
    ended = threading.Event()

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            if ended.is_set():
                connection.close()
                return
            if answer is None:
                waiting.append(connection)
                continue
            connection.recv(65536)
            with suppress(OSError):
                connection.sendall(answer)
            connection.close()

    waiting: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()[:2]
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"{address[0]}:{address[1]}"
        finally:
            ended.set()
            socket.create_connection(address).close()
            thread.join()
            for connection in waiting:
                connection.close()


def http(body: str, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\n\r\n{body}".encode()


def values(exposition: str) -> dict[tuple[str, ...], float]:
    """Samples by name and labels, of an exposition in which each family stands once."""
    families = list(text_string_to_metric_families(exposition))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    assert exposition.count("# TYPE") == len(names)
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def scraped(client: httpx.Client) -> dict[tuple[str, ...], float]:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    return values(answer.text)


def test_restarts_come_from_the_supervisor(fake: FakeTriton, tmp_path: Path) -> None:
    file = tmp_path / "status.json"
    with running_gateway(settings_for(fake, status_file=file)) as client:
        assert not [name for name, *_ in scraped(client) if "restarts" in name]
        write_status(file, Status("healing", {"gateway": 2, "yolo": 1}, 3, {"4": "it misreads"}))
        found = scraped(client)
        file.write_text("{")
        broken = scraped(client)
    assert found["plates_restarts_total", "gateway"] == 2
    assert found["plates_restarts_total", "yolo"] == 1
    assert found["plates_state", "healing"] == 1
    assert found["plates_state", "ready"] == 0
    assert found["plates_release", "3"] == found["plates_release_refused", "4"] == 1
    assert ("plates_restarts_total", "gateway") not in broken
    assert ("plates_release", "3") not in broken


def test_both_supervisors_are_told_of_where_triton_is_elsewhere(
    fake: FakeTriton, tmp_path: Path
) -> None:
    ours, tritons = tmp_path / "gateway.json", tmp_path / "triton.json"
    settings = settings_for(fake, status_file=ours, triton_status_file=tritons)
    with running_gateway(settings) as client:
        write_status(ours, Status("ready", {"gateway": 1}))
        assert scraped(client)["plates_state", "ready"] == 1
        write_status(tritons, Status("healing", {"triton": 2}, 3))
        found = scraped(client)
    assert found["plates_restarts_total", "gateway"] == 1
    assert found["plates_restarts_total", "triton"] == 2
    assert found["plates_state", "healing"] == found["plates_release", "3"] == 1


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
    "answer",
    [
        http(TRITONS, "503 Service Unavailable"),
        b"",
        b"nonsense",
        b"\xff" * 100,
        None,
    ],
)
def test_a_triton_that_does_not_tell_harms_nothing(
    fake: FakeTriton, answer: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.observing.metrics._TRITON_TIMEOUT_S", 0.5)
    with (
        answering(answer) as address,
        running_gateway(settings_for(fake, triton_metrics_url=address)) as client,
    ):
        found = scraped(client)
    assert found["plates_triton_metrics_up",] == 0
    assert not [name for name, *_ in found if name.startswith("nv_")]


def test_a_triton_that_is_away_harms_nothing(fake: FakeTriton) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with running_gateway(settings_for(fake, triton_metrics_url=address)) as client:
            assert scraped(client)["plates_triton_metrics_up",] == 0


def test_senders_who_left_are_counted(client: httpx.Client) -> None:
    def gone() -> float:
        return scraped(client).get(("plates_requests_total", "POST", "/v1/plates", "499"), 0)

    before = gone()
    head = b"POST /v1/plates HTTP/1.1\r\nHost: x\r\nContent-Type: image/jpeg\r\n"
    address = client.base_url.host, client.base_url.port
    with socket.create_connection(address) as connection:
        connection.sendall(head + b"Content-Length: 1000\r\n\r\nabc")
    wait_until(lambda: gone() == before + 1)


@pytest.mark.live
def test_the_real_tritons_metrics(triton: TritonEndpoints) -> None:
    if triton.embedded is None:
        pytest.skip("only an embedded Triton tells where its metrics are")
    from api.settings import Settings

    settings = Settings(triton_url=triton.grpc_url, triton_metrics_url=triton.embedded.metrics_url)
    with running_gateway(settings) as client:
        post_raw(client, PHOTO)
        found = scraped(client)
    assert found["plates_triton_metrics_up",] == 1
    assert [key for key in found if key[0].startswith("nv_inference_request_success")]
