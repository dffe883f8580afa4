"""What an operator sees of the gateway: settings, tokens, TLS, readiness, metrics."""

import asyncio
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fake_triton
import grpc
import httpx
import numpy as np
import pytest
from fake_triton import FakeTriton, refusing, sleeping
from gateway_client import PHOTO, assert_problem, post_raw, settings_for
from gateway_fixtures import running_gateway
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError
from starlette.types import Message, Receive, Scope, Send

from api.edge.middleware import Edge
from api.observing.metrics import Metrics
from api.readiness import canary_photo
from api.settings import Settings


def test_token_goes_to_triton(fake: FakeTriton) -> None:
    with running_gateway(settings_for(fake, triton_token="secret")) as client:  # noqa: S106
        assert post_raw(client, PHOTO).status_code == 200
    assert fake.metadata["authorization"] == "Bearer secret"


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A private key and a certificate of its own for 127.0.0.1."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl here to make a certificate with")
    command = f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    return key, certificate


def test_triton_over_tls(certificate: tuple[Path, Path]) -> None:
    key, trusted = certificate
    fake = FakeTriton((key.read_bytes(), trusted.read_bytes()))
    try:
        url = f"grpcs://127.0.0.1:{fake.port}"
        token = {"triton_token": "secret"}
        with running_gateway(Settings(triton_url=url, triton_ca_file=trusted, **token)) as client:
            assert post_raw(client, PHOTO).status_code == 200
        assert fake.metadata["authorization"] == "Bearer secret"
        with running_gateway(Settings(triton_url=url)) as client:  # not a certificate it trusts
            assert_problem(post_raw(client, PHOTO), 503, "recognizer-unavailable")
    finally:
        fake.stop()


def test_token_is_not_sent_unless_set(client: httpx.Client, fake: FakeTriton) -> None:
    post_raw(client, PHOTO)
    assert "authorization" not in fake.metadata
    assert "crops" not in fake.requested  # large, and nobody sees them over HTTP


def test_ready_asks_once_for_many(fake: FakeTriton) -> None:
    fake.reply = sleeping(0.2)
    with running_gateway(settings_for(fake)) as client, ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: client.get("/readyz"), range(6)))
    assert [(answer.status_code, answer.json()) for answer in answers] == [
        (200, {"status": "ready"})
    ] * 6
    assert len(fake.photos) == 1


def test_ready_waits_longer_than_an_answer_stays_young(fake: FakeTriton) -> None:
    fake.reply = sleeping(0.5)
    with running_gateway(settings_for(fake, ready_max_age_s=0.01)) as client:
        assert client.get("/readyz").status_code == 200


def test_ready_gives_a_slow_triton_up(fake: FakeTriton) -> None:
    fake.reply = sleeping(1)
    with running_gateway(settings_for(fake, ready_timeout_s=0.1)) as client:
        assert_problem(client.get("/readyz"), 503, None)


def test_photos_that_are_read_prove_readiness(fake: FakeTriton) -> None:
    with running_gateway(settings_for(fake, ready_max_age_s=60)) as client:
        assert post_raw(client, PHOTO).status_code == 200
        assert client.get("/readyz").status_code == 200
    assert fake.photos == [PHOTO]  # no canary


def test_photos_without_plates_prove_nothing(fake: FakeTriton) -> None:
    fake.reply = lambda _: fake_triton.outputs(0)
    with running_gateway(settings_for(fake, ready_max_age_s=60)) as client:
        assert post_raw(client, PHOTO).status_code == 200
        assert client.get("/readyz").status_code == 200
    assert fake.photos == [PHOTO, canary_photo()]


def test_a_photo_read_meanwhile_outweighs_a_slow_canary(fake: FakeTriton) -> None:
    release = threading.Event()

    def hold_the_canary(photo: bytes) -> dict[str, np.ndarray]:
        if photo == canary_photo():
            release.wait(20)
        return fake_triton.outputs()

    fake.reply = hold_the_canary
    settings = settings_for(fake, ready_timeout_s=1, ready_max_age_s=60)
    with running_gateway(settings) as client, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.get, "/readyz")
        try:
            while canary_photo() not in fake.photos:
                assert not asked.done()
            assert post_raw(client, PHOTO).status_code == 200
            assert client.get("/readyz").status_code == 200
            assert asked.result().status_code == 200
        finally:
            release.set()


def test_ready_notices_dead_models(client: httpx.Client, fake: FakeTriton) -> None:
    fake.reply = refusing(grpc.StatusCode.INTERNAL, "Stub process is not healthy")
    client_sees = []
    for _ in range(50):
        client_sees.append(client.get("/readyz"))
        if client_sees[-1].status_code == 503:
            break
        threading.Event().wait(0.05)
    assert_problem(client_sees[-1], 503, None)
    assert "retry-after" in client_sees[-1].headers


def samples(client: httpx.Client) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {
        (sample.name, *(v for _, v in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_metrics_count_requests_and_plates(fake: FakeTriton) -> None:
    with running_gateway(settings_for(fake)) as client:
        post_raw(client, PHOTO)
        post_raw(client, PHOTO)
        post_raw(client, b"")
        client.get("/nowhere/12345")
        found = samples(client)
        exposition = client.get("/metrics")
    assert found["plates_requests_total", "POST", "/v1/plates", "200"] == 2
    assert found["plates_requests_total", "POST", "/v1/plates", "400"] == 1
    assert found["plates_requests_total", "GET", "other", "404"] == 1
    assert found["plates_request_seconds_count", "/v1/plates"] == 3
    assert found["plates_recognition_seconds_count",] == 2
    assert found["plates_per_photo_sum",] == 4
    assert found["plates_unreadable_total",] == 2
    assert found["plates_in_flight",] == 0
    assert "B840CK197" not in exposition.text
    assert "12345" not in exposition.text


def test_metrics_of_made_up_methods_are_one_series() -> None:
    async def not_allowed(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 405, "headers": []})

    async def discard(_: Message) -> None:
        pass

    metrics = Metrics()
    gateway = Edge(not_allowed, Settings(), metrics)
    for method in ("GET", "BREW", "WHEN", "get"):
        asyncio.run(
            gateway({"type": "http", "method": method, "path": "/", "headers": []}, None, discard)
        )
    exposition = metrics.exposition().decode()
    assert 'requests_total{method="GET",route="other",status="405"} 1.0' in exposition
    assert 'requests_total{method="other",route="other",status="405"} 3.0' in exposition
    assert "BREW" not in exposition


@pytest.mark.parametrize(
    "url", ["http://triton:8000", "triton", "grpc://triton", "https://triton:443"]
)
def test_triton_urls_that_can_not_work(url: str) -> None:
    with pytest.raises(ValidationError, match="8001"):
        Settings(triton_url=url)


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLATES_TRITON_URL", "grpcs://triton.example:443")
    monkeypatch.setenv("PLATES_PORT", "9000")
    settings = Settings()
    assert settings.triton_address == "triton.example:443"
    assert settings.triton_tls
    assert settings.port == 9000
    assert not Settings(triton_url="triton:8001").triton_tls
