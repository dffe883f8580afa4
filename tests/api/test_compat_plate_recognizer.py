"""The dialect of Plate Recognizer Snapshot: its answers field by field, and its errors."""

import base64
import json
import re
from datetime import UTC, datetime, timedelta

import compat_requests
import fake_triton
import grpc
import httpx
import pytest
from fake_triton import FakeTriton, refusing
from support import PHOTO, running_gateway, settings_for

PATH = "/v1/plate-reader/"
BASE64 = base64.b64encode(PHOTO).decode()


def post(client: httpx.Client, photo: bytes = PHOTO, **fields: object) -> httpx.Response:
    return client.post(PATH, files={"upload": ("car.jpg", photo)}, data=fields)


def plates_of(response: httpx.Response) -> list[str]:
    assert response.status_code == 201, response.text
    return [result["plate"] for result in response.json()["results"]]


def assert_refused(response: httpx.Response, status: int, said: str, member: str) -> None:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.json().keys() == {member}
    assert said in response.json()[member]


@pytest.mark.usefixtures("fake")
def test_answer_field_by_field(client: httpx.Client) -> None:
    response = post(client)
    assert response.status_code == 201
    answer = response.json()
    assert answer.keys() == {
        *("processing_time", "results", "filename", "version"),
        *("camera_id", "timestamp", "usage"),
    }
    assert 0 < answer["processing_time"] < 60_000
    assert answer["filename"] == "car.jpg"
    assert answer["version"] == 1
    assert answer["camera_id"] is None
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", answer["timestamp"])
    age = datetime.now(UTC) - datetime.fromisoformat(answer["timestamp"])
    assert timedelta() <= age < timedelta(minutes=1)
    (result,) = answer["results"]  # the unreadable one is not in it
    assert result == {
        "box": {"xmin": 10, "ymin": 20, "xmax": 110, "ymax": 44},
        "plate": "b840ck197",
        "region": {"code": "ru", "score": 0.9912},
        "score": 0.9912,
        "candidates": [
            {"score": 0.9912, "plate": "b840ck197"},
            {"score": 0.002, "plate": "b840ck191"},
        ],
        "dscore": 0.94,
        "vehicle": {
            "score": 0.0,
            "type": "Unknown",
            "box": {"xmin": 0, "ymin": 0, "xmax": 0, "ymax": 0},
        },
    }
    assert all(type(side) is int for side in result["box"].values())


@pytest.mark.parametrize("path", ["/v1/plate-reader", "/v1/plate-reader/"])
def test_slash_makes_no_difference(client: httpx.Client, fake: FakeTriton, path: str) -> None:
    response = client.post(path, files={"upload": PHOTO})
    assert plates_of(response) == ["b840ck197"]
    assert not response.history  # a redirected POST would lose its photo
    assert fake.photos == [PHOTO]


@pytest.mark.usefixtures("fake")
def test_usage_counts_photos(client: httpx.Client) -> None:
    before = client.get("/info/").json()["usage"]["calls"]
    assert post(client).json()["usage"]["calls"] == before + 1
    assert post(client, b"broken").status_code == 400
    answer = client.get("/info").json()
    assert answer.keys() == {"version", "usage"}
    assert isinstance(answer["version"], str)
    assert answer["usage"]["calls"] == before + 1
    assert answer["usage"]["max_calls"] - answer["usage"]["calls"] > 1_000_000
    for path in ("/v1/statistics", "/v1/statistics/"):
        statistics = client.get(path).json()
        assert statistics["usage"] == answer["usage"]
        assert statistics["total_calls"] - statistics["usage"]["calls"] > 1_000_000


def test_no_plate_is_an_empty_list(client: httpx.Client, fake: FakeTriton) -> None:
    fake.reply = lambda _: fake_triton.outputs(0)
    assert plates_of(post(client)) == []


def test_text_of_no_format_has_no_region(client: httpx.Client, fake: FakeTriton) -> None:
    arrays = fake_triton.outputs(1)
    arrays["formats"][0] = "unknown"
    fake.reply = lambda _: arrays
    (result,) = post(client).json()["results"]
    assert result["region"] == {"code": "unknown", "score": 0.0}


def test_boxes_stay_inside_the_photo(client: httpx.Client, fake: FakeTriton) -> None:
    arrays = fake_triton.outputs(1)
    arrays["coordinates"][0] = [-3.2, 19.6, 900, 480.4]
    fake.reply = lambda _: arrays
    (result,) = post(client).json()["results"]
    assert result["box"] == {"xmin": 0, "ymin": 20, "xmax": 640, "ymax": 480}


ESCAPED = BASE64.replace("+", "%2b").replace("/", "%2F").replace("=", "%3D")
LINES = "\r\n".join(BASE64[at : at + 76] for at in range(0, len(BASE64), 76))
TEXTS = {
    "urlencoded": {"data": {"upload": BASE64}},
    "urlencoded, escaped by hand": {
        "content": f"camera_id=1&upload={ESCAPED}",
        "headers": {"content-type": "application/x-www-form-urlencoded"},
    },
    "urlencoded, plus signs not escaped": {
        "content": f"upload={BASE64}",
        "headers": {"content-type": "application/x-www-form-urlencoded"},
    },
    "form": {"files": {"upload": (None, BASE64)}},
    "form, in lines": {"files": {"upload": (None, LINES)}},
    "form, data address": {"files": {"upload": (None, f"data:image/jpeg;base64,{BASE64}")}},
    "form, for addresses, no padding": {
        "files": {"upload": (None, base64.urlsafe_b64encode(PHOTO).rstrip(b"="))}
    },
    "json": {"json": {"upload": BASE64, "camera_id": None, "regions": ["ru"], "mmc": False}},
    "json, data address": {"json": {"upload": f"data:image/jpeg;base64,{BASE64}", "config": {}}},
}


@pytest.mark.parametrize("name", TEXTS)
def test_photo_as_text(client: httpx.Client, fake: FakeTriton, name: str) -> None:
    assert plates_of(client.post(PATH, **TEXTS[name])) == ["b840ck197"]
    assert fake.photos == [PHOTO]


def test_text_has_the_budget_of_a_photo(client: httpx.Client, fake: FakeTriton) -> None:
    large = PHOTO + bytes(100_000 - len(PHOTO))
    for photo, status in ((large, 201), (large + b"x", 413)):
        for options in (
            {"files": {"upload": (None, base64.b64encode(photo))}},
            {"json": {"upload": base64.b64encode(photo).decode()}},
            {"data": {"upload": base64.b64encode(photo).decode()}},
        ):
            assert client.post(PATH, **options).status_code == status
    assert len(fake.photos) == 3
    too_much = base64.b64encode(bytes(1_000_000))
    for options in (
        {"files": {"upload": (None, too_much)}},
        {"content": b'{"upload":"' + too_much},
    ):
        response = client.post(PATH, **options, headers=_json_type(options))
        assert_refused(response, 413, "larger than", "error")
    fields = {"camera_id": "x" * 20_000}
    assert_refused(post(client, **fields), 400, "camera_id", "detail")
    assert len(fake.photos) == 3


def _json_type(options: dict) -> dict[str, str]:
    return {"content-type": "application/json"} if "content" in options else {}


@pytest.mark.parametrize(
    ("given", "answered"),
    [
        ("2026-08-19T13:11:25", "2026-08-19T13:11:25.000000Z"),
        ("2026-11-21T19:43:21.121Z", "2026-11-21T19:43:21.121000Z"),
        ("2026-08-19T13:11:25+03:00", "2026-08-19T10:11:25.000000Z"),
    ],
)
@pytest.mark.usefixtures("fake")
def test_timestamp_comes_back_in_utc(client: httpx.Client, given: str, answered: str) -> None:
    answer = post(client, timestamp=given, camera_id="gate 1").json()
    assert answer["timestamp"] == answered
    assert answer["camera_id"] == "gate 1"


@pytest.mark.parametrize(
    ("fields", "plates"),
    [
        ({"config": '{"threshold_d": 0.94, "threshold_o": 0.99}'}, ["b840ck197"]),
        ({"config": '{"threshold_d": 0.95}'}, []),
        ({"config": '{"threshold_o": 0.995}'}, []),
        ({"config": '{"mode": "fast", "detection_rule": "strict"}'}, ["b840ck197"]),
        ({"config": '{"region": "strict"}', "regions": ["gb", "RU"]}, ["b840ck197"]),
        ({"config": '{"region": "strict"}', "regions": "gb,us-ca"}, []),
        ({"config": '{"region": "strict"}', "regions": ""}, ["b840ck197"]),
        ({"config": '{"region": "strict"}'}, ["b840ck197"]),
        ({"config": "{}", "regions": "gb", "mmc": "true"}, ["b840ck197"]),
        ({"config": json.dumps('{"threshold_d": 0.95}')}, []),
        ({"roi": "0,0,60,32"}, ["b840ck197"]),
        ({"roi": "0,0,59,100"}, []),
        ({"min_width": 101}, []),
        ({"some_new_field": "x", "camera_id": "", "timestamp": ""}, ["b840ck197"]),
    ],
)
@pytest.mark.usefixtures("fake")
def test_plates_are_chosen(client: httpx.Client, fields: dict, plates: list[str]) -> None:
    assert plates_of(post(client, **fields)) == plates


@pytest.mark.usefixtures("fake")
def test_plates_are_chosen_by_the_address(client: httpx.Client) -> None:
    files = {"upload": PHOTO}
    assert plates_of(client.post(PATH, files=files, params={"min_width": 101, "x": 1})) == []
    response = client.post(PATH, files=files, params={"min_width": "wide"})
    assert_refused(response, 400, "min_width", "detail")
    # Of their own parameters repeated ones are taken as they come; of ours none are.
    answer = client.post(PATH, files=files, data={"camera_id": ["a", "b"]}, params={"x": [1, 2]})
    assert (plates_of(answer), answer.json()["camera_id"]) == (["b840ck197"], "b")
    response = client.post(PATH, files=files, params={"roi": ["0,0,9,9", "1,1,9,9"]})
    assert_refused(response, 400, "roi", "detail")


@pytest.mark.parametrize(
    "recorded", [compat_requests.node_red, compat_requests.plate_recognizer_script]
)
def test_recorded_requests(client: httpx.Client, fake: FakeTriton, recorded: object) -> None:
    request = recorded(PHOTO)
    response = client.post(request.path, content=request.body, headers=request.headers)
    assert plates_of(response) == ["b840ck197"]
    assert fake.photos == [PHOTO]
    assert response.json()["camera_id"] in ("gate-1", "Camera1")


def test_documentation(client: httpx.Client) -> None:
    schema = client.get("/openapi.json").json()
    operation = schema["paths"][PATH]["post"]
    assert operation["responses"].keys() == {
        *("201", "400", "403", "408", "413", "429", "500", "502", "503", "504", "default")
    }
    assert operation["requestBody"]["content"].keys() == {
        *("multipart/form-data", "application/x-www-form-urlencoded"),
        *("application/json", "image/*"),
    }
    fields = operation["requestBody"]["content"]["multipart/form-data"]["schema"]["properties"]
    assert fields.keys() == {
        *("upload", "regions", "camera_id", "timestamp", "mmc", "config", "roi", "min_width")
    }
    assert "/info/" in schema["paths"]


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
        ({"roi": ["0,0,9,9", "1,1,9,9"]}, "roi"),
        ({"min_width": ["1", "2"]}, "min_width"),
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
