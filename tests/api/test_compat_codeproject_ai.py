"""The dialect of CodeProject.AI's ALPR, field by field."""

import base64

import compat_requests
import fake_triton
import grpc
import httpx
import pytest
from fake_triton import FakeTriton, refusing
from support import PHOTO, running_gateway, settings_for

from api.errors import kinds

PATH = "/v1/vision/alpr"


def post(client: httpx.Client, photo: bytes = PHOTO, **fields: object) -> httpx.Response:
    return client.post(PATH, files={"upload": ("car.jpg", photo)}, data=fields)


def plates_of(response: httpx.Response) -> list[str]:
    assert response.status_code == 200, response.text
    answer = response.json()
    assert answer["success"] is True
    assert answer["count"] == len(answer["predictions"])
    return [prediction["plate"] for prediction in answer["predictions"]]


def assert_refused(response: httpx.Response, status: int, said: str) -> None:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    answer = response.json()
    assert said in answer.pop("error")
    assert answer == {"success": False, "code": status}


@pytest.mark.usefixtures("fake")
def test_answer_field_by_field(client: httpx.Client) -> None:
    answer = post(client).json()
    for name in ("processMs", "inferenceMs"):
        assert type(answer[name]) is int
    assert 0 <= answer.pop("inferenceMs") <= answer.pop("processMs") < 60_000
    assert answer == {
        "success": True,
        "count": 1,
        "message": "Found Plate: B840CK197",
        "predictions": [
            {
                "confidence": 0.9912,
                "label": "Plate: B840CK197",
                "plate": "B840CK197",
                "x_min": 10,
                "y_min": 20,
                "x_max": 110,
                "y_max": 44,
            }
        ],
    }


def test_no_plate_is_a_success(client: httpx.Client, fake: FakeTriton) -> None:
    fake.reply = lambda _: fake_triton.outputs(0)
    answer = post(client).json()
    assert plates_of(post(client)) == []
    assert answer["predictions"] == []
    assert answer["message"] == "No plates found"


def test_several_plates_are_all_in_the_message(client: httpx.Client, fake: FakeTriton) -> None:
    arrays = fake_triton.outputs()
    arrays["texts"][1] = "A1"
    fake.reply = lambda _: arrays
    assert post(client).json()["message"] == "Found Plate: B840CK197, Plate: A1"


@pytest.mark.parametrize("route", ["/v1/vision/alpr", "/v1/image/alpr"])
@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("field", ["upload", "image", "file"])
def test_routes_and_fields_that_clients_use(
    client: httpx.Client, fake: FakeTriton, route: str, slash: str, field: str
) -> None:
    response = client.post(route + slash, files={field: ("image", PHOTO)})
    assert plates_of(response) == ["B840CK197"]
    assert not response.history
    assert fake.photos == [PHOTO]


def test_photo_as_text(client: httpx.Client, fake: FakeTriton) -> None:
    text = base64.b64encode(PHOTO).decode()
    assert plates_of(client.post(PATH, data={"upload": text})) == ["B840CK197"]
    assert plates_of(client.post(PATH, json={"image": text})) == ["B840CK197"]
    assert fake.photos == [PHOTO, PHOTO]


@pytest.mark.parametrize(
    ("fields", "plates"),
    [
        ({"min_confidence": "0.99", "operation": "plate"}, ["B840CK197"]),
        ({"min_confidence": "0.995"}, []),
        ({"min_confidence": ""}, ["B840CK197"]),
        ({"roi": "0,0,60,32"}, ["B840CK197"]),
        ({"roi": "0,0,59,100"}, []),
        ({"min_width": 101}, []),
    ],
)
@pytest.mark.usefixtures("fake")
def test_plates_are_chosen(client: httpx.Client, fields: dict, plates: list[str]) -> None:
    assert plates_of(post(client, **fields)) == plates
    roi = {name: value for name, value in fields.items() if name in ("roi", "min_width")}
    if roi:
        assert plates_of(client.post(PATH, files={"upload": PHOTO}, params=roi)) == plates


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"min_confidence": "2"}, "min_confidence"),
        ({"min_confidence": "nan"}, "min_confidence"),
        ({"min_confidence": "high"}, "min_confidence"),
        ({"roi": "1,2,3"}, "roi"),
        ({"roi": ["0,0,9,9", "1,1,9,9"]}, "roi"),
        ({"min_width": ["1", "2"]}, "min_width"),
    ],
)
def test_fields_that_make_no_sense(
    client: httpx.Client, fake: FakeTriton, fields: dict, said: str
) -> None:
    assert_refused(post(client, **fields), 422, said)
    assert not fake.photos


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        ({"files": {"upload": b"GIF"}}, 415, "not an image"),
        ({"files": {"upload": b""}}, 400, "empty"),
        ({"files": {"upload": PHOTO + bytes(200_000)}}, 413, "larger"),
        ({"data": {"operation": "plate"}}, 422, "'operation'"),
        ({"data": {"upload": "?"}}, 400, "base64"),
        ({"files": [("a", PHOTO), ("b", PHOTO)]}, 422, "One photo"),
        ({"content": b"x", "headers": {"content-type": "text/plain"}}, 415, "text/plain"),
    ],
)
def test_photos_that_are_none(
    client: httpx.Client, fake: FakeTriton, options: dict, status: int, said: str
) -> None:
    assert_refused(client.post(PATH, **options), status, said)
    assert not fake.photos


def test_failures(client: httpx.Client, fake: FakeTriton) -> None:
    for code, status in (
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 429),
        (grpc.StatusCode.UNAVAILABLE, 503),
        (grpc.StatusCode.INTERNAL, 500),
    ):
        fake.reply = refusing(code, "Traceback")
        response = post(client)
        assert_refused(response, status, "")
        assert ("retry-after" in response.headers) == (status != 500)
    assert_refused(client.get(PATH), 405, "GET")


def test_tokens(fake: FakeTriton) -> None:
    with running_gateway(settings_for(fake, tokens="secret")) as client:
        assert_refused(post(client), 401, "oken")
        headers = {"Authorization": "Bearer secret"}
        response = client.post(PATH, files={"upload": PHOTO}, headers=headers)
        assert plates_of(response) == ["B840CK197"]


@pytest.mark.parametrize(
    "recorded", [compat_requests.codeproject_ai_api, compat_requests.deepstack_python]
)
def test_recorded_requests(client: httpx.Client, fake: FakeTriton, recorded: object) -> None:
    request = recorded(PHOTO)
    response = client.post(request.path, content=request.body, headers=request.headers)
    assert plates_of(response) == ["B840CK197"]
    assert fake.photos == [PHOTO]


def test_documentation(client: httpx.Client) -> None:
    operation = client.get("/openapi.json").json()["paths"][PATH]["post"]
    assert operation["responses"].keys() == {str(kind.status) for kind in kinds()} | {"200"}
    fields = operation["requestBody"]["content"]["multipart/form-data"]["schema"]["properties"]
    assert fields.keys() == {"upload", "min_confidence", "roi", "min_width"}
