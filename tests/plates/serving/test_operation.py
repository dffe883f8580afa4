"""What an operator asks the gateway: readiness, metrics, and what a problem means."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import fake_triton
import grpc
import httpx
import numpy as np
import pytest
from fake_triton import FakeTriton, Holding, refusing, sleeping
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError
from starlette.types import Message, Receive, Scope, Send
from support import PHOTO, assert_problem, post_raw, running_gateway, settings_for, wait_until

from api.edge.middleware import Edge
from api.errors import kinds
from api.observing.metrics import Metrics
from api.readiness import canary_photo
from api.settings import Settings


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


@pytest.mark.parametrize(("plates", "canaries"), [(2, 0), (0, 1)])
def test_photos_with_plates_prove_readiness(fake: FakeTriton, plates: int, canaries: int) -> None:
    fake.reply = lambda _: fake_triton.outputs(plates)
    with running_gateway(settings_for(fake, ready_max_age_s=60)) as client:
        assert post_raw(client, PHOTO).status_code == 200
        assert client.get("/readyz").status_code == 200
    assert fake.photos == [PHOTO] + [canary_photo()] * canaries


def test_a_photo_read_meanwhile_outweighs_a_slow_canary(fake: FakeTriton) -> None:
    canary = Holding()
    fake.reply = lambda photo: canary(photo) if photo == canary_photo() else fake_triton.outputs()
    settings = settings_for(fake, ready_timeout_s=1, ready_max_age_s=60)
    with running_gateway(settings) as client, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.get, "/readyz")
        try:
            assert canary.arrived.acquire(timeout=20)
            assert post_raw(client, PHOTO).status_code == 200
            assert client.get("/readyz").status_code == 200
            assert asked.result().status_code == 200
        finally:
            canary.release.set()


def test_ready_notices_dead_models(client: httpx.Client, fake: FakeTriton) -> None:
    fake.reply = refusing(grpc.StatusCode.INTERNAL, "Stub process is not healthy")
    wait_until(lambda: client.get("/readyz").status_code == 503)
    response = client.get("/readyz")
    assert_problem(response, 503, None)
    assert "retry-after" in response.headers


@pytest.mark.parametrize(
    ("reply", "timeout", "status"),
    [
        (refusing(grpc.StatusCode.UNAVAILABLE, "Socket closed"), {}, 503),
        (sleeping(3), {"X-Request-Timeout": "1"}, 504),
    ],
)
def test_a_photo_without_recognizer_ends_the_proof_of_readiness(
    fake: FakeTriton,
    reply: Callable[[bytes], dict[str, np.ndarray]],
    timeout: dict[str, str],
    status: int,
) -> None:
    settings = settings_for(fake, ready_max_age_s=60, ready_timeout_s=0.3)
    with running_gateway(settings) as client:
        assert post_raw(client, PHOTO).status_code == 200
        assert client.get("/readyz").status_code == 200
        fake.reply = reply
        assert client.get("/readyz").status_code == 200  # the last photo was read
        headers = {"content-type": "image/jpeg", **timeout}
        assert client.post("/v1/plates", content=PHOTO, headers=headers).status_code == status
        assert_problem(client.get("/readyz"), 503, None)
        fake.reply = lambda _: fake_triton.outputs()
        assert post_raw(client, PHOTO).status_code == 200
        assert client.get("/readyz").status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
@pytest.mark.usefixtures("fake")
def test_checks_may_ask_for_the_head_only(client: httpx.Client, path: str) -> None:
    response = client.head(path)
    assert (response.status_code, response.content) == (200, b"")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("POST", "/v1/plates/", 404),  # no redirect: it would have the photo sent again
        ("GET", "/v1/plates", 405),
        ("DELETE", "/healthz", 405),
    ],
)
def test_plain_http_errors_are_problem_documents(
    client: httpx.Client, method: str, path: str, status: int
) -> None:
    response = client.request(method, path)
    assert_problem(response, status, None)
    assert ("allow" in response.headers) == (status == 405)


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.slug)
def test_problem_types_explain_themselves(client: httpx.Client, kind: type) -> None:
    explanation = client.get(f"/problems/{kind.slug}").json()
    assert explanation["status"] == kind.status
    assert explanation["title"] == kind.title


def test_pages_for_people(client: httpx.Client) -> None:
    assert "/v1/plates" in client.get("/").text
    assert client.get("/docs").status_code == 200


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
