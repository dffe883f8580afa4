"""The gateway and Triton: failures, readiness, several Tritons."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial

import grpc
import httpx
import numpy as np
import pytest
from fake_triton import FakeTriton, Holding, outputs, refusing, sleeping
from gateway_support import ALPR, BATCH, READER, assert_dialect_error
from pydantic import ValidationError
from raw_http import HANG_S
from support import PHOTO, STATUS, assert_problem, number, post_raw, running_gateway, wait_until

from api.errors import PHOTO_PROBLEMS
from api.settings import Settings
from api.triton import channel_to

AWAY = "recognizer-unavailable"


@pytest.mark.parametrize("slug", PHOTO_PROBLEMS)
def test_the_models_refusals_of_a_photo_are_passed_on(client, fake, slug):
    message = f"[request id: <id_unknown>] {slug}: The file is no good."
    fake.reply = refusing(grpc.StatusCode.INVALID_ARGUMENT, message)
    document = assert_problem(post_raw(client, PHOTO), STATUS[slug], slug)
    assert document["detail"] == "The file is no good."


@pytest.mark.parametrize(
    ("code", "message", "slug"),
    [
        ("UNAVAILABLE", "stn: Exceeds maximum queue size", "overloaded"),
        ("UNAVAILABLE", "lprnet: Request timeout expired", "recognizer-timeout"),
        ("NOT_FOUND", "Request for unknown model: 'x' is not found", AWAY),
        ("INVALID_ARGUMENT", "Request for unknown model: 'x'", AWAY),
        ("INTERNAL", "Stub process 'x' is not healthy.", AWAY),
        ("INTERNAL", "Model 'lprnet' is not ready.", AWAY),
        ("INTERNAL", "Failed to increase the shared memory pool size for key 'x'", AWAY),
        ("INTERNAL", "Received RST_STREAM with error code 2", AWAY),
        ("CANCELLED", "", AWAY),
        ("INTERNAL", "Traceback: /srv/model.py", "recognizer-failed"),
        ("INVALID_ARGUMENT", "unexpected output", "recognizer-mismatch"),
        ("UNAUTHENTICATED", "no", "recognizer-mismatch"),
    ],
)
def test_failures_of_triton_are_problems_without_internals(client, fake, code, message, slug):
    fake.reply = refusing(grpc.StatusCode[code], message)
    response = post_raw(client, PHOTO)
    assert "/srv" not in json.dumps(assert_problem(response, STATUS[slug], slug))
    answers = [client.post(path, files={"upload": PHOTO}) for path in (READER, ALPR)]
    for answer in answers:
        assert_dialect_error(answer, STATUS[slug])
        assert "/srv" not in answer.text
    for answer in (response, *answers):
        retry_after_s = int(answer.headers.get("retry-after", 0))
        assert (retry_after_s >= 1) == (answer.status_code in (429, 503))


@pytest.mark.parametrize(
    "broken",
    [
        {"quads": None},
        {"formats": np.array(["ru.car"], object)},
        {"model_info": None},
        {"model_info": np.array(['{"version": "1", "weights": "", "device": ""}'], object)},
    ],
)
def test_malformed_answers_of_triton_get_502(client, fake, broken):
    arrays = {k: v for k, v in (outputs() | broken).items() if v is not None}
    fake.reply = lambda _: arrays
    assert_problem(post_raw(client, PHOTO), 502, "recognizer-mismatch")


@pytest.mark.parametrize("was_there", [True, False])
def test_without_triton_photos_get_503_and_the_gateway_is_alive_but_not_ready(was_there, caplog):
    fake = FakeTriton()
    if not was_there:
        fake.close()
    with running_gateway(fake, ready_max_age_s=0.001) as client:
        if was_there:
            assert post_raw(client, PHOTO).status_code == 200
            fake.close()
        assert_problem(post_raw(client, PHOTO), 503, AWAY)
        assert client.get("/healthz").json() == {"status": "alive"}
        assert_problem(client.get("/readyz"), 503, None)
    assert caplog.text.count("[StatusCode.UNAVAILABLE]") == 2, "a refusal's cause is not in the log"


def test_photos_that_are_being_read_when_the_gateway_stops_get_503(fake):
    fields = {"/v1/plates": "image", BATCH: "image", READER: "upload", ALPR: "upload"}
    post = partial(httpx.post, timeout=60)
    fake.reply = holding = Holding()
    with holding, ThreadPoolExecutor(len(fields)) as pool:
        with running_gateway(fake, concurrency=1) as client:
            posts = [
                pool.submit(post, client.base_url.join(path), files={field: PHOTO})
                for path, field in fields.items()
            ]
            assert holding.arrived.acquire(timeout=HANG_S)
            wait_until(lambda: number(client, "plates_waiting") == 3)  # one has the place
        answers = [post.result() for post in posts]
    for answer in answers[:2]:
        assert_problem(answer, 503, AWAY)
    for answer in answers[2:]:
        assert_dialect_error(answer, 503)
    assert all(answer.headers["retry-after"] for answer in answers)


def test_photos_go_to_several_tritons_in_turn_and_to_the_others_when_one_ends(monkeypatch):
    monkeypatch.setenv("grpc_proxy", "http://127.0.0.1:9")  # must be ignored for Triton
    with closing(FakeTriton()) as one, closing(FakeTriton(address=f"127.0.0.2:{one.port}")) as two:
        url = f"ipv4:127.0.0.1:{one.port},127.0.0.2:{two.port}"
        with running_gateway(url, concurrency=4) as client:
            wait_until(lambda: post_raw(client, PHOTO).is_success and one.photos and two.photos)
            before = len(one.photos), len(two.photos)
            assert all(post_raw(client, PHOTO).is_success for _ in range(20))
            assert (len(one.photos) - before[0], len(two.photos) - before[1]) == (10, 10)
            one.close()
            # A photo sent while that Triton ends may fail; later ones go to the other Triton.
            post_raw(client, PHOTO)
            before = len(two.photos)
            assert all(post_raw(client, PHOTO).is_success for _ in range(20))
            assert len(two.photos) == before + 20
            assert client.get("/readyz").is_success


def test_the_triton_url_names_one_triton_or_several():
    for url in (
        *("triton:8001", "grpc://triton.plates.svc:8001", "[::1]:8001"),
        *("ipv4:10.0.0.1:8001,10.0.0.2:8001", "ipv6:[::1]:8001,[::2]:8001"),
    ):
        assert channel_to(Settings(triton_url=url))[0]["url"] == url.removeprefix("grpc://")
    for url in (
        *("triton", "http://triton:8001", "triton:80010", "triton:0", "one:8001,two:8001"),
        *("ipv4:10.0.0.1:8001,", "ipv4:10.0.0.1,10.0.0.2:8001"),
    ):
        with pytest.raises(ValidationError, match=r"host:port.*8001.*list them: ipv4:"):
            Settings(triton_url=url)


@pytest.mark.settings(ready_max_age_s=1)
def test_concurrent_readiness_checks_share_one_canary_even_if_it_is_slow(client, fake):
    fake.reply = sleeping(1.5)
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: client.get("/readyz"), range(6)))
    assert [answer.json() for answer in answers] == [{"status": "ready"}] * 6
    assert len(fake.photos) == 1


@pytest.mark.settings(ready_timeout_s=1, ready_max_age_s=60)
def test_a_photo_that_is_read_proves_readiness_while_the_canary_is_slow(client, fake):
    fake.reply = canary = Holding(but=PHOTO)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.get, "/readyz")
        with canary:
            assert canary.arrived.acquire(timeout=20)
            assert post_raw(client, PHOTO).status_code == 200
            assert client.get("/readyz").status_code == 200
            assert asked.result().status_code == 200


@pytest.mark.parametrize(
    ("reply", "status"),
    [(refusing(grpc.StatusCode.UNAVAILABLE, "Socket closed"), 503), (sleeping(4), 504)],
)
@pytest.mark.settings(ready_max_age_s=60, ready_timeout_s=1.5, request_timeout_s=2)
def test_a_photo_that_triton_fails_to_read_ends_the_proof_of_readiness(client, fake, reply, status):
    assert post_raw(client, PHOTO).status_code == 200
    fake.reply = reply
    assert client.get("/readyz").status_code == 200  # the last photo is still the proof
    assert post_raw(client, PHOTO).status_code == status
    assert_problem(client.get("/readyz"), 503, None)
    fake.reply = lambda _: outputs()
    assert post_raw(client, PHOTO).status_code == 200
    assert client.get("/readyz").status_code == 200
