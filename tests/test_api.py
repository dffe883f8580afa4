"""The gateway's answers: their JSON, the choice of plates, the documentation."""

import json
import re

import fake_triton
import httpx
import pytest
from fake_triton import FakeTriton
from gateway_client import PHOTO, assert_problem, post_form, post_raw

from api import answers
from api.answers import EXAMPLE, PlatesAnswer
from api.compat import codeproject_ai, plate_recognizer
from api.errors import kinds


def test_answer_is_the_documented_json(client: httpx.Client, fake: FakeTriton) -> None:
    answer = post_form(client, PHOTO).json()
    assert fake.photos == [PHOTO]
    assert answer.pop("timing_ms").keys() == {"total"}
    assert answer["image"] == {"width": 640, "height": 480}
    assert answer["model"] == {"version": "1", "weights": "sha256:0123", "device": "cpu"}
    readable, unreadable = answer["plates"]
    assert readable == {
        "text": "B840CK197",
        "text_native": "В840СК197",
        "score": 0.9912,
        "readable": True,
        "format": "ru.car",
        "region": {"code": "197", "name": "Moscow"},
        "box": [10, 20, 110, 44],
        "quad": [[10, 20], [110, 21], [110, 44], [10, 43]],
        "detection_score": 0.94,
        "characters": [
            {"char": char, "score": score}
            for char, score in zip("B840CK197", [0.998, *[1] * 7, 0.9], strict=True)
        ],
        "candidates": [
            {"text": "B840CK197", "score": 0.991},
            {"text": "B840CK191", "score": 0.002},
        ],
    }
    assert unreadable["text"] == unreadable["text_native"] == ""
    assert not unreadable["readable"]
    assert unreadable["region"] is None
    assert unreadable["candidates"] == [{"text": "A1", "score": 0.3}]
    assert unreadable["characters"] == [{"char": "A", "score": 0.5}, {"char": "1", "score": 0.4}]


def test_both_forms_give_the_same(client: httpx.Client, fake: FakeTriton) -> None:
    raw, form = post_raw(client, PHOTO).json(), post_form(client, PHOTO).json()
    raw.pop("timing_ms")
    form.pop("timing_ms")
    assert raw == form
    assert fake.photos == [PHOTO, PHOTO]


def test_no_plates_is_an_answer(client: httpx.Client, fake: FakeTriton) -> None:
    fake.reply = lambda _: fake_triton.outputs(0)
    response = post_raw(client, PHOTO)
    assert response.status_code == 200
    assert response.json()["plates"] == []


def test_example_of_the_documentation_is_valid() -> None:
    assert json.loads(PlatesAnswer.model_validate(EXAMPLE).model_dump_json()) == EXAMPLE


@pytest.mark.parametrize("post", [post_raw, post_form])
@pytest.mark.parametrize(
    ("parameters", "texts"),
    [
        ({"roi": "0,0,60,32"}, ["B840CK197"]),  # the centre is on the corner
        ({"roi": "0,0,59,100"}, []),
        ({"roi": "300, 200, 640, 480"}, [""]),
        ({"min_width": 100}, ["B840CK197"]),
        ({"min_width": 100.5}, []),
        ({"roi": "0,0,640,480", "min_width": 0}, ["B840CK197", ""]),
    ],
)
@pytest.mark.usefixtures("fake")
def test_plates_are_chosen(
    client: httpx.Client, post: object, parameters: dict, texts: list[str]
) -> None:
    answer = post(client, PHOTO, **parameters).json()
    assert [plate["text"] for plate in answer["plates"]] == texts


@pytest.mark.parametrize("post", [post_raw, post_form])
@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"roi": "1,2,3"}, "roi"),
        ({"roi": "1,2,3,x"}, "roi"),
        ({"roi": "5,5,1,9"}, "roi"),
        ({"roi": "nan,0,nan,9"}, "roi"),
        ({"min_width": "wide"}, "min_width"),
        ({"min_width": -1}, "min_width"),
        ({"min_width": "inf"}, "min_width"),
        ({"min_widht": 3}, "min_widht"),
    ],
)
def test_parameters_that_make_no_sense(
    client: httpx.Client, fake: FakeTriton, post: object, parameters: dict, name: str
) -> None:
    document = assert_problem(post(client, PHOTO, **parameters), 422, "invalid-parameter")
    assert [error["parameter"] for error in document["errors"]] == [name]
    assert name in document["detail"]
    assert not fake.photos


def test_openapi_documents_both_forms_and_every_problem(client: httpx.Client) -> None:
    schema = client.get("/openapi.json").json()
    operation = schema["paths"]["/v1/plates"]["post"]
    assert operation["requestBody"]["content"].keys() == {"multipart/form-data", "image/*"}
    names = {p["name"] for p in operation["parameters"] if p["in"] == "query"}
    assert names == {"roi", "min_width", "redact"}
    assert operation["responses"].keys() >= {str(kind.status) for kind in kinds()} | {"200"}
    assert schema["components"]["schemas"]["PlatesAnswer"]["example"] == EXAMPLE
    for status, response in operation["responses"].items():
        if status != "200":
            assert response["content"].keys() == {"application/problem+json"}
    for name in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(schema)):
        assert name in schema["components"]["schemas"]


def test_openapi_tells_which_routes_may_ask_for_a_token(client: httpx.Client) -> None:
    schema = client.get("/openapi.json").json()
    assert schema["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    asking = {
        (path, method)
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
        if "security" in operation
    }
    assert ("/v1/plates", "post") in asking
    assert {method for _, method in asking} == {"post"}
    assert {path for path, operations in schema["paths"].items() if "post" in operations} == {
        path for path, _ in asking
    }


def test_openapi_has_an_example_of_every_answer_to_a_photo(client: httpx.Client) -> None:
    schema = client.get("/openapi.json").json()
    models = schema["components"]["schemas"]
    routes = [item["post"] for path, item in schema["paths"].items() if "post" in item]
    assert len(routes) == 4
    for operation in routes:
        for status, response in operation["responses"].items():
            for kind, content in response["content"].items():
                described = content["schema"]
                name = described.get("$ref", "").rpartition("/")[2]
                described = models[name] if name else described
                assert "example" in described or kind.startswith("image/"), (operation, status)
    for name in ("PlatesAnswer", "BatchAnswer", "PlateReaderAnswer", "AlprAnswer"):
        model = {**vars(answers), **vars(plate_recognizer), **vars(codeproject_ai)}[name]
        example = models[name]["example"]
        assert json.loads(model.model_validate(example).model_dump_json()) == example


def test_pages_for_people(client: httpx.Client) -> None:
    assert "/v1/plates" in client.get("/").text
    assert client.get("/docs").status_code == 200
