"""Many photos in one request, one answer for each."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import fake_triton
import grpc
import httpx
import pytest
from fake_triton import FakeTriton, Refusal, refusing
from gateway_client import PHOTO, assert_problem, post_raw, settings_for
from gateway_fixtures import running_gateway
from patience import wait_until

from api.errors import kinds
from api.schemas import BatchAnswer

PATH = "/v1/plates/batch"


def post(client: httpx.Client, *photos: bytes, field: str = "image", **fields: object):
    files = [(field, (f"{number}.jpg", photo)) for number, photo in enumerate(photos)]
    return client.post(PATH, files=files, data={name: str(v) for name, v in fields.items()})


def results_of(response: httpx.Response) -> list[dict]:
    assert response.status_code == 200, response.text
    assert response.json().keys() == {"results"}
    return response.json()["results"]


def numbered(number: int) -> bytes:
    """A photo that can be told from others: what follows its end does not matter."""
    return PHOTO + bytes([number])


@pytest.mark.parametrize("field", ["image", "images"])
@pytest.mark.usefixtures("fake")
def test_one_answer_for_each_in_their_order(client: httpx.Client, field: str) -> None:
    bad = b"GIF"
    first, second, third = results_of(post(client, PHOTO, bad, PHOTO, field=field))
    alone = post_raw(client, PHOTO).json()
    for result, filename in ((first, "0.jpg"), (third, "2.jpg")):
        assert result.keys() == {"filename", "status", "answer"}
        assert (result["filename"], result["status"]) == (filename, 200)
        assert result["answer"].pop("timing_ms")["total"] > 0
        assert result["answer"] == {k: v for k, v in alone.items() if k != "timing_ms"}
    assert second.keys() == {"filename", "status", "problem"}
    assert (second["filename"], second["status"]) == ("1.jpg", 415)
    problem = second["problem"]
    assert problem["type"] == "/problems/unsupported-type"
    assert problem["status"] == 415
    assert problem["instance"].startswith("/requests/")
    assert BatchAnswer.model_validate({"results": [first | {"answer": alone}, second]})


def test_answers_belong_to_their_photos(client: httpx.Client, fake: FakeTriton) -> None:
    """Whichever is done first: the earlier a photo, the longer it takes."""

    def reply(photo: bytes) -> dict:
        time.sleep(0.1 - 0.02 * photo[-1])
        return fake_triton.outputs(photo[-1] % 3)

    fake.reply = reply
    results = results_of(post(client, *[numbered(number) for number in range(5)]))
    assert [len(result["answer"]["plates"]) for result in results] == [0, 1, 2, 0, 1]


def test_one_failure_does_not_fail_the_rest(client: httpx.Client, fake: FakeTriton) -> None:
    def reply(photo: bytes) -> dict:
        if photo[-1] == 1:
            raise Refusal(grpc.StatusCode.INTERNAL, "Traceback: /srv/model.py")
        return fake_triton.outputs()

    fake.reply = reply
    response = post(client, *[numbered(number) for number in range(3)])
    assert [result["status"] for result in results_of(response)] == [200, 500, 200]
    assert "/srv" not in response.text


def test_too_large_file_does_not_fail_the_rest(client: httpx.Client, fake: FakeTriton) -> None:
    large = PHOTO + bytes(100_001 - len(PHOTO))
    results = results_of(post(client, PHOTO, large, PHOTO))
    assert [result["status"] for result in results] == [200, 413, 200]
    assert results[1]["problem"]["type"] == "/problems/too-many-bytes"
    assert fake.photos == [PHOTO, PHOTO]


def test_why_a_photo_failed_stands_in_the_log(
    client: httpx.Client, fake: FakeTriton, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether it came in a batch or alone; its sender is not told."""
    fake.reply = refusing(grpc.StatusCode.INTERNAL, "the stub fell over")
    (result,) = results_of(post(client, PHOTO))
    assert result["status"] == 500
    assert "fell over" not in str(result)
    logged = [record.getMessage() for record in caplog.records]
    caplog.clear()
    assert_problem(post_raw(client, PHOTO), 500, "recognizer-failed")
    assert logged == [record.getMessage() for record in caplog.records]
    assert len(logged) == 1
    assert "the stub fell over" in logged[0]


@pytest.mark.usefixtures("fake")
def test_parameters_hold_for_all(client: httpx.Client) -> None:
    for response in (
        post(client, PHOTO, PHOTO, roi="0,0,60,32"),
        client.post(PATH, files=[("image", PHOTO)] * 2, params={"min_width": 100}),
    ):
        texts = [
            [plate["text"] for plate in result["answer"]["plates"]]
            for result in results_of(response)
        ]
        assert texts == [["B840CK197"]] * 2


@pytest.mark.parametrize(
    ("options", "status", "slug", "said"),
    [
        ({"files": [("image", PHOTO)] * 17}, 422, "invalid-parameter", "17 photos; at most 16"),
        ({"files": [("image", PHOTO)] * 40}, 400, "invalid-form", "parts"),
        ({"files": {"photo": PHOTO}}, 422, "missing-image", "'photo'"),
        ({"files": {"image": (None, "text")}}, 422, "missing-image", "as text"),
        ({"files": {"image": PHOTO, "other": PHOTO}}, 422, "invalid-parameter", "other"),
        ({"files": {"image": PHOTO}, "data": {"roi": "1"}}, 422, "invalid-parameter", "roi"),
        ({"files": {"image": PHOTO}, "data": {"redact": "1"}}, 422, "invalid-parameter", "redact"),
        ({"content": PHOTO, "headers": {"content-type": "image/jpeg"}}, 415, None, "image/jpeg"),
        ({"json": {}}, 415, None, "application/json"),
    ],
)
def test_whole_batches_that_are_refused(
    client: httpx.Client, fake: FakeTriton, options: dict, status: int, slug: str, said: str
) -> None:
    document = assert_problem(
        client.post(PATH, **options), status, slug or "unsupported-media-type"
    )
    assert said in document["detail"]
    assert not fake.photos


def test_bytes_together_are_limited(fake: FakeTriton) -> None:
    settings = settings_for(fake, max_bytes=100_000, upload_memory_bytes=1_000_000)
    half = PHOTO + bytes(50_000)
    with running_gateway(settings) as client:
        assert len(results_of(post(client, half, half, half, half))) == 4
        document = assert_problem(post(client, *[half] * 6), 413, "too-many-bytes")
        assert "together" in document["detail"]
        assert len(results_of(post(client, half))) == 1


def test_number_of_files_is_a_setting(fake: FakeTriton) -> None:
    with running_gateway(settings_for(fake, batch_max_files=2)) as client:
        assert len(results_of(post(client, PHOTO, PHOTO))) == 2
        assert_problem(post(client, PHOTO, PHOTO, PHOTO), 422, "invalid-parameter")


def test_batch_leaves_places_to_others(fake: FakeTriton) -> None:
    release, arrived = threading.Event(), threading.Semaphore(0)

    def reply(photo: bytes) -> dict:
        if photo != PHOTO:
            arrived.release()
            release.wait(20)
        return fake_triton.outputs()

    fake.reply = reply
    settings = settings_for(fake, concurrency=4, max_waiting=0)
    with running_gateway(settings) as client, ThreadPoolExecutor(1) as pool:
        batch = pool.submit(post, client, *[numbered(number) for number in range(8)])
        try:
            assert arrived.acquire(timeout=20)
            assert arrived.acquire(timeout=20)
            assert post_raw(client, PHOTO).status_code == 200
            assert not arrived.acquire(timeout=0.2)  # never more than two at once
        finally:
            release.set()
        assert [result["status"] for result in results_of(batch.result())] == [200] * 8


def test_one_deadline_for_all(fake: FakeTriton) -> None:
    def reply(photo: bytes) -> dict:
        time.sleep(0 if photo == PHOTO else 3)
        return fake_triton.outputs()

    fake.reply = reply
    with running_gateway(settings_for(fake, request_timeout_s=1)) as client:
        results = results_of(post(client, PHOTO, *[numbered(number) for number in range(6)]))
    assert results[0]["status"] == 200
    assert {result["status"] for result in results[1:]} <= {429, 504}


def test_full_queue_refuses_the_batch_by_its_head(fake: FakeTriton) -> None:
    release, arrived = threading.Event(), threading.Semaphore(0)

    def reply(_: bytes) -> dict:
        arrived.release()
        release.wait(20)
        return fake_triton.outputs()

    fake.reply = reply
    settings = settings_for(fake, concurrency=1, max_waiting=0)
    with running_gateway(settings) as client, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(post_raw, client, PHOTO)
        try:
            assert arrived.acquire(timeout=20)
            response = post(client, PHOTO)
        finally:
            release.set()
        assert_problem(response, 429, "overloaded")
        assert int(response.headers["retry-after"]) >= 1
        assert waiting.result().status_code == 200


def test_sender_that_hangs_up(fake: FakeTriton, caplog: pytest.LogCaptureFixture) -> None:
    release, arrived = threading.Event(), threading.Semaphore(0)

    def reply(photo: bytes) -> dict:
        arrived.release()
        if photo != PHOTO:
            release.wait(20)
        return fake_triton.outputs()

    fake.reply = reply
    settings = settings_for(fake, concurrency=2, max_waiting=0)
    try:
        with running_gateway(settings) as client:
            with pytest.raises(httpx.ReadTimeout):
                files = [("image", numbered(number)) for number in range(1, 4)]
                client.post(PATH, files=files, timeout=2)
            assert arrived.acquire(timeout=20)
            wait_until(lambda: 'status="499"' in client.get("/metrics").text)
            assert post_raw(client, PHOTO).status_code == 200
            assert len(fake.photos) == 2  # the rest of the batch was given up
    finally:
        release.set()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_batch_is_charged_for_all_its_photos(fake: FakeTriton) -> None:
    settings = settings_for(fake, rate_limit=0.1, rate_burst=5)
    with running_gateway(settings) as client:
        assert len(results_of(post(client, *[PHOTO] * 4))) == 4
        assert post_raw(client, PHOTO).status_code == 200
        assert_problem(post_raw(client, PHOTO), 429, "rate-limited")


def test_all_refused_is_still_an_answer(client: httpx.Client, fake: FakeTriton) -> None:
    fake.reply = refusing(grpc.StatusCode.UNAVAILABLE, "Socket closed")
    assert [result["status"] for result in results_of(post(client, PHOTO, b""))] == [503, 400]


def test_documentation(client: httpx.Client) -> None:
    schema = client.get("/openapi.json").json()
    operation = schema["paths"][PATH]["post"]
    assert operation["responses"].keys() == {str(kind.status) for kind in kinds()} | {"200"}
    assert operation["requestBody"]["content"].keys() == {"multipart/form-data"}
    names = {p["name"] for p in operation["parameters"] if p["in"] == "query"}
    assert names == {"roi", "min_width"}
    assert schema["components"]["schemas"].keys() >= {"ReadPhoto", "RefusedPhoto"}
