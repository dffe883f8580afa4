"""The native routes: their JSON, the selection of plates, batches."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import httpx
import numpy as np
import pytest
from fake_triton import Holding, Refusal, outputs, refusing, sleeping
from gateway_support import ALPR, BATCH
from pydantic import ValidationError
from support import PHOTO, assert_problem, post_form, post_raw, running_gateway, wait_until

from api.answers import BatchAnswer, PlatesAnswer
from api.compat.codeproject_ai import AlprAnswer
from api.compat.plate_recognizer import PlateReaderAnswer
from api.errors import KINDS
from api.settings import Settings


def plates_of(response):
    assert response.status_code == 200, response.text
    return [plate["text"] for plate in response.json()["plates"]]


def test_the_answer_is_the_documented_json(client, fake):
    answer, raw = post_form(client, PHOTO).json(), post_raw(client, PHOTO).json()
    assert fake.photos == [PHOTO, PHOTO]
    assert "authorization" not in fake.metadata
    # Crops are large, and no HTTP answer contains them.
    assert "crops" not in [output.name for output in fake.request.outputs]
    assert answer.pop("timing_ms").keys() == raw.pop("timing_ms").keys() == {"total"}
    assert raw == answer
    assert answer["image"] == {"width": 640, "height": 480}
    assert answer["model"] == {"version": "1", "weights": "sha256:0123", "device": "cpu"}
    readable, unreadable = answer["plates"]
    assert readable == {
        "text": "B840CK197",
        "text_native": "В840СК197",
        "score": 0.9912,
        "readable": True,
        "format": "ru.car",
        "region": {"code": "197", "name": "Moscow", "country": "ru"},
        "rows": ["B840CK197"],
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
    assert (unreadable["readable"], unreadable["format"]) == (False, "unknown")
    assert unreadable["region"] is None and unreadable["rows"] == ["A1"]
    assert unreadable["candidates"] == [{"text": "A1", "score": 0.3}]
    assert unreadable["characters"] == [{"char": "A", "score": 0.5}, {"char": "1", "score": 0.4}]
    changed = {"texts": np.array([[""]], object), "formats": np.array(["ru.car.square"], object)}
    fake.reply = lambda _: outputs(1) | changed
    (guess,) = post_raw(client, PHOTO).json()["plates"]
    assert (guess["text_native"], guess["region"], guess["rows"]) == ("", None, ["B840", "CK197"])


@pytest.mark.parametrize(
    ("parameters", "texts"),
    [
        ({"roi": "0,0,60,32"}, ["B840CK197"]),  # the centre is on the region's corner
        ({"roi": "0,0,59,100"}, []),
        ({"roi": "300, 200, 640, 480"}, [""]),
        ({"min_width": 100}, ["B840CK197"]),
        ({"min_width": 100.5}, []),
        ({"roi": "0,0,640,480", "min_width": 0}, ["B840CK197", ""]),
    ],
)
def test_parameters_choose_the_plates_of_the_answer(client, parameters, texts):
    assert plates_of(post_raw(client, PHOTO, **parameters)) == texts
    assert plates_of(post_form(client, PHOTO, **parameters)) == texts
    for result in results_of(post(client, PHOTO, PHOTO, **parameters)):
        assert [plate["text"] for plate in result["answer"]["plates"]] == texts
    # A form field overrides the query parameter of the same name.
    nothing = {"roi": "0,0,1,1", "min_width": 1000}
    options = {"data": parameters, "params": {name: nothing[name] for name in parameters}}
    assert plates_of(client.post("/v1/plates", files={"image": PHOTO}, **options)) == texts


def test_the_countries_of_the_request_or_the_setting_are_sent_to_triton(client, fake):
    post_raw(client, PHOTO)
    assert fake.countries == ""
    for send in (post_raw, post_form, post):
        assert send(client, PHOTO, countries="SK, cz").status_code == 200
        assert fake.countries == "sk,cz"
        post_raw(client, PHOTO)
    with running_gateway(fake, countries="kz,ru") as kazakh:
        post_raw(kazakh, PHOTO)
        assert fake.countries == "kz,ru"
        post_raw(kazakh, PHOTO, countries="ru")
        assert fake.countries == "ru"
    with pytest.raises(ValidationError, match=r"countries\n.*expected some of .*'zz'"):
        Settings(countries="zz,ru")
    refusal = "invalid-input: countries: expected some of ru, which these weights read, got 'sk'."
    fake.reply = refusing(grpc.StatusCode.INVALID_ARGUMENT, refusal)
    problem = post_raw(client, PHOTO, countries="sk").json()
    assert (problem["status"], problem["type"]) == (422, "/problems/invalid-parameter")
    assert problem["detail"] == refusal.removeprefix("invalid-input: ")


def post(client, *photos, field="image", **fields):
    files = [(field, (f"{number}.jpg", photo)) for number, photo in enumerate(photos)]
    return client.post(BATCH, files=files, data=fields)


def results_of(response):
    assert response.status_code == 200, response.text
    assert response.json().keys() == {"results"}
    return response.json()["results"]


def statuses_of(response):
    return [result["status"] for result in results_of(response)]


def numbered(count, start=0):
    """Photos that differ in one byte after their end, which decoders ignore."""
    return [PHOTO + bytes([number]) for number in range(start, start + count)]


@pytest.mark.parametrize("field", ["image", "images"])
def test_a_batch_has_one_result_for_each_photo(client, field):
    first, second, third = results_of(post(client, PHOTO, b"GIF", PHOTO, field=field))
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


def test_answers_belong_to_their_photos_and_one_failure_fails_no_other(client, fake, caplog):
    """Also if photos end in another order: the first one takes the longest."""

    def reply(photo):
        time.sleep(0.1 - 0.02 * photo[-1])
        if photo[-1] == 3:
            raise Refusal(grpc.StatusCode.INTERNAL, "Traceback: /srv/model.py")
        return outputs(photo[-1])

    fake.reply = reply
    response = post(client, *numbered(4), PHOTO + bytes(100_001))
    assert statuses_of(response) == [200, 200, 200, 500, 413]
    answers = [result["answer"] for result in results_of(response)[:3]]
    assert [len(answer["plates"]) for answer in answers] == [0, 1, 2]
    # Only the log has the cause.
    assert "/srv" not in response.text
    assert "/srv/model.py" in caplog.text


@pytest.mark.parametrize(
    ("code", "status", "slug", "retry_after"),
    [
        (grpc.StatusCode.UNAVAILABLE, 503, "recognizer-unavailable", "5"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 429, "overloaded", "1"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, 504, "recognizer-timeout", None),
    ],
)
def test_a_batch_fails_if_triton_reads_no_photo(client, fake, code, status, slug, retry_after):
    fake.reply = refusing(code, "")
    response = post(client, PHOTO, PHOTO)
    document = assert_problem(response, status, slug)
    assert response.headers.get("retry-after") == retry_after
    assert [result["status"] for result in document["results"]] == [status, status]
    assert {result["problem"]["type"] for result in document["results"]} == {document["type"]}
    # If a photo itself is at fault, the client can change the batch: it gets all results.
    assert statuses_of(post(client, PHOTO, b"")) == [status, 400]
    assert statuses_of(post(client, b"", b"GIF")) == [400, 415]


@pytest.mark.settings(max_bytes=100_000, upload_memory_bytes=1_000_000, batch_max_files=6)
def test_the_number_of_photos_in_a_batch_and_their_bytes_together_are_limited(client):
    half = PHOTO + bytes(50_000)
    assert statuses_of(post(client, half, half, half, half)) == [200] * 4
    document = assert_problem(post(client, *[half] * 6), 413, "too-many-bytes")
    assert "together" in document["detail"]
    assert_problem(post(client, *[PHOTO] * 7), 422, "invalid-parameter")
    assert statuses_of(post(client, *[PHOTO] * 6)) == [200] * 6


@pytest.mark.settings(concurrency=4, max_waiting=0)
def test_a_batch_takes_half_the_places_and_is_refused_if_none_is_free(client, fake):
    fake.reply = holding = Holding(but=PHOTO)
    with ThreadPoolExecutor(3) as pool:
        batch = pool.submit(post, client, *numbered(8))
        with holding:
            assert holding.arrived.acquire(timeout=20) and holding.arrived.acquire(timeout=20)
            assert post_raw(client, PHOTO).status_code == 200
            assert not holding.arrived.acquire(timeout=0.2)  # never more than two at once
            for photo in numbered(2):
                pool.submit(post_raw, client, photo)
                assert holding.arrived.acquire(timeout=20)
            response = post(client, PHOTO)
        assert statuses_of(batch.result()) == [200] * 8
    assert_problem(response, 429, "overloaded")


@pytest.mark.settings(request_timeout_s=2)
def test_the_photos_of_a_batch_have_one_deadline(client, fake):
    later = sleeping(4)
    fake.reply = lambda photo: outputs() if photo == PHOTO else later(photo)
    first, *others = statuses_of(post(client, PHOTO, *numbered(6)))
    assert first == 200 and set(others) <= {429, 504}


def test_a_batch_whose_client_disconnects_is_given_up(fake, caplog):
    fake.reply = holding = Holding(but=PHOTO)
    with holding, running_gateway(fake, concurrency=2, max_waiting=0) as client:
        files = [("image", photo) for photo in numbered(3, start=1)]
        with pytest.raises(httpx.ReadTimeout):
            client.post(BATCH, files=files, timeout=3)
        assert holding.arrived.acquire(timeout=20)
        wait_until(lambda: 'status="499"' in client.get("/metrics").text)
        assert post_raw(client, PHOTO).status_code == 200
        assert len(fake.photos) == 2  # the rest of the batch was never sent to Triton
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_openapi_documents_problems_and_has_valid_examples(client):
    schema = client.get("/openapi.json").json()
    for path in ("/v1/plates", BATCH, ALPR):
        operation = schema["paths"][path]["post"]
        assert operation["responses"].keys() >= {str(kind.status) for kind in KINDS.values()}, path
        # A query parameter must not be a form field, too: clients would send it twice.
        fields = operation["requestBody"]["content"]["multipart/form-data"]["schema"]["properties"]
        assert not fields.keys() & {each["name"] for each in operation["parameters"]}
        assert not any(field.get("default") or field.get("example") for field in fields.values())
        assert fields.get("image", {}).get("minItems") == (1 if path == BATCH else None)
    assert "binary" not in str(operation["requestBody"]["content"]["application/json"])
    refused = schema["paths"]["/v1/plates"]["post"]["responses"]["429"]["content"]
    problem = {"$ref": "#/components/schemas/ProblemDocument"}
    assert refused == {"application/problem+json": {"schema": problem}}
    assert "HTTPValidationError" not in schema["components"]["schemas"]  # it is never sent
    for model in (PlatesAnswer, BatchAnswer, PlateReaderAnswer, AlprAnswer):
        example = schema["components"]["schemas"][model.__name__]["example"]
        assert json.loads(model.model_validate(example).model_dump_json()) == example
