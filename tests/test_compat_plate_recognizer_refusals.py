"""What the form of Plate Recognizer Snapshot refuses, and how it says so."""

import grpc
import httpx
import pytest
from fake_triton import FakeTriton, refusing
from gateway_client import PHOTO, settings_for
from gateway_fixtures import running_gateway
from plate_reader_client import BASE64, PATH, assert_refused, plates_of, post


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"config": "{"}, "config"),
        ({"config": "[]"}, "config"),
        ({"config": '"' + "[" * 9000}, "config"),
        ({"config": "[" * 9000}, "config"),
        ({"config": '{"threshold_d": 1.1}'}, "threshold_d"),
        ({"config": '{"threshold_o": NaN}'}, "config"),
        ({"config": '{"threshold_o": "high"}'}, "threshold_o"),
        ({"config": '{"mode": 7}'}, "mode"),
        ({"config": '{"region": "anywhere"}'}, "region"),
        ({"timestamp": "yesterday"}, "ISO 8601"),
        ({"timestamp": "0001-01-01T00:00:00+14:00"}, "ISO 8601"),
        ({"mmc": "maybe"}, "mmc"),
        ({"roi": "1,2,3"}, "roi"),
    ],
)
def test_fields_that_make_no_sense(
    client: httpx.Client, fake: FakeTriton, fields: dict, said: str
) -> None:
    assert_refused(post(client, **fields), 400, said, "detail")
    assert not fake.photos


@pytest.mark.parametrize(
    "options",
    [
        {"data": {"upload_url": "http://127.0.0.1:1/a.jpg"}},
        {"json": {"upload_url": "http://127.0.0.1:1/a.jpg", "upload": BASE64}},
        {"files": {"upload_url": (None, "file:///etc/passwd"), "upload": PHOTO}},
    ],
)
def test_addresses_are_never_fetched(client: httpx.Client, fake: FakeTriton, options: dict) -> None:
    assert_refused(client.post(PATH, **options), 400, "upload_url: no address", "detail")
    assert not fake.photos


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"data": {"upload": "not a photo!"}}, "base64"),
        ({"data": {"upload": "http://127.0.0.1/a.jpg"}}, "base64"),
        ({"data": {"upload": ""}}, "empty"),
        ({"data": {"regions": "ru"}}, "'upload'"),
        ({"json": {"upload": ["QUFB", "QUFB"]}}, "One photo"),
        ({"json": {"upload": {"a": 1}}}, "base64"),
        ({"json": [1]}, "object"),
        ({"json": {"x" * 50_000: "1"}}, "name"),
        ({"data": {"x" * 900: "1"}}, "name"),
        ({"content": b"{", "headers": {"content-type": "application/json"}}, "JSON"),
        # Half a character: no answer can quote it.
        ({"content": b'{"\\ud800": 1}', "headers": {"content-type": "application/json"}}, "'?'"),
        ({"content": b"[" * 50_000, "headers": {"content-type": "application/json"}}, "parts"),
        ({"content": b'{"a":' * 600, "headers": {"content-type": "application/json"}}, "JSON"),
        (
            {
                "content": b"a=1&" * 5000,
                "headers": {"content-type": "application/x-www-form-urlencoded"},
            },
            "fields",
        ),
        ({"files": {"upload": b"GIF"}}, "not an image"),
        ({"files": {"image": PHOTO}}, "'image'"),
        ({"content": b"x", "headers": {"content-type": "text/plain"}}, "text/plain"),
        ({"content": b"x", "headers": {"content-type": "multipart/form-data"}}, "boundary"),
    ],
)
def test_photos_that_are_none(
    client: httpx.Client, fake: FakeTriton, options: dict, said: str
) -> None:
    response = client.post(PATH, **options)
    assert_refused(response, 400, said, "detail")
    assert len(response.content) < 1000
    assert not fake.photos


@pytest.mark.parametrize(
    ("code", "message", "status"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "", 429),
        (grpc.StatusCode.UNAVAILABLE, "Socket closed", 503),
        (grpc.StatusCode.INTERNAL, "Traceback", 500),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "", 504),
    ],
)
def test_failures(
    client: httpx.Client, fake: FakeTriton, code: grpc.StatusCode, message: str, status: int
) -> None:
    fake.reply = refusing(code, message)
    response = post(client)
    assert_refused(response, status, "", "detail")
    if status in (429, 503):
        assert int(response.headers["retry-after"]) >= 1
    assert response.headers["x-request-id"]


def test_other_errors_of_these_paths(client: httpx.Client) -> None:
    response = client.get(PATH)
    assert_refused(response, 405, "GET", "detail")
    assert response.headers["allow"]


def test_too_many_bytes(client: httpx.Client, fake: FakeTriton) -> None:
    assert_refused(post(client, PHOTO + bytes(200_000)), 413, "larger than", "error")
    assert not fake.photos


def test_tokens(fake: FakeTriton) -> None:
    with running_gateway(settings_for(fake, tokens="secret")) as client:
        files = {"upload": PHOTO}
        for headers in ({}, {"Authorization": "Token other"}):
            assert_refused(client.post(PATH, files=files, headers=headers), 403, "oken", "detail")
        headers = {"Authorization": "Token secret"}
        assert plates_of(client.post(PATH, files=files, headers=headers)) == ["b840ck197"]
