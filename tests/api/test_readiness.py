"""What an operator asks the gateway: readiness, what a problem means, and counts of requests."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import fake_triton
import grpc
import numpy as np
import pytest
from fake_triton import FakeTriton, Holding, refusing, sleeping
from support import (
    PHOTO,
    assert_problem,
    post_raw,
    running_gateway,
    settings_for,
    wait_until,
)

from api.readiness import canary_photo


def test_ready_asks_once_for_many_and_waits_longer_than_an_answer_stays_young(
    fake: FakeTriton,
) -> None:
    fake.reply = sleeping(0.3)
    settings = settings_for(fake, ready_max_age_s=0.2)
    with running_gateway(settings) as client, ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: client.get("/readyz"), range(6)))
    assert [answer.json() for answer in answers] == [{"status": "ready"}] * 6
    assert len(fake.photos) == 1


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


def test_ready_notices_dead_models_and_a_slow_triton(fake: FakeTriton) -> None:
    settings = settings_for(fake, ready_timeout_s=0.1, ready_max_age_s=0.1)
    with running_gateway(settings) as client:
        for reply in (refusing(grpc.StatusCode.INTERNAL, "Stub is not healthy"), sleeping(1)):
            fake.reply = reply
            wait_until(lambda: client.get("/readyz").status_code == 503)
            answer = client.get("/readyz")
            assert_problem(answer, 503, None)
            assert "retry-after" in answer.headers


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
        fake.reply = reply
        assert client.get("/readyz").status_code == 200  # the last photo was read
        headers = {"content-type": "image/jpeg", **timeout}
        assert client.post("/v1/plates", content=PHOTO, headers=headers).status_code == status
        assert_problem(client.get("/readyz"), 503, None)
        fake.reply = lambda _: fake_triton.outputs()
        assert post_raw(client, PHOTO).status_code == 200
        assert client.get("/readyz").status_code == 200
