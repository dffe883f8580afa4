"""The APIs of Plate Recognizer and CodeProject.AI: every field of answers, and requests."""

import base64
import json
import re
from datetime import UTC, datetime, timedelta

import fake_triton
import pytest
from gateway_support import ALPR, READER
from support import PHOTO, running_gateway

BASE64 = base64.b64encode(PHOTO).decode()
READ = ["B840CK197"]  # the fake Triton's other plate has no text


def post(client, path, photo=PHOTO, **fields):
    return client.post(path, files={"upload": ("car.jpg", photo)}, data=fields)


def plates_of(response):
    answer = response.json()
    if "alpr" in response.url.path:
        assert (response.status_code, answer["success"]) == (200, True), response.text
        assert answer["count"] == len(answer["predictions"])
        return [prediction["plate"] for prediction in answer["predictions"]]
    assert response.status_code == 201, response.text
    return [result["plate"].upper() for result in answer["results"]]


def test_plate_recognizers_answer_has_exactly_these_fields(client):
    answer = post(client, READER).json()
    age = datetime.now(UTC) - datetime.fromisoformat(answer["timestamp"])
    assert timedelta() <= age < timedelta(minutes=1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", answer.pop("timestamp"))
    assert 0 < answer.pop("processing_time") < 60_000
    assert answer.pop("usage").keys() == {"calls", "max_calls"}
    (result,) = answer.pop("results")
    assert answer == {"filename": "car.jpg", "version": 1, "camera_id": None}
    assert all(type(side) is int for side in result["box"].values())
    nowhere = {"xmin": 0, "ymin": 0, "xmax": 0, "ymax": 0}
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
        "vehicle": {"score": 0.0, "type": "Unknown", "box": nowhere},
        "model_make": [{"make": "unknown", "model": "unknown", "score": 0}],
        "color": [{"color": "unknown", "score": 0}],
        "orientation": [{"orientation": "Unknown", "score": 0}],
    }


def test_codeproject_ais_answer_has_exactly_these_fields(client):
    answer = post(client, ALPR).json()
    assert type(answer["processMs"]) is type(answer["inferenceMs"]) is int
    assert 0 <= answer.pop("inferenceMs") <= answer.pop("processMs") < 60_000
    (prediction,) = answer.pop("predictions")
    assert answer == {"success": True, "count": 1, "message": "Found Plate: B840CK197"}
    box = {"x_min": 10, "y_min": 20, "x_max": 110, "y_max": 44}
    read = {"confidence": 0.9912, "label": "Plate: B840CK197", "plate": "B840CK197"}
    assert prediction == read | box


def test_answers_for_unknown_formats_boxes_beyond_the_photo_several_plates_and_none(client, fake):
    arrays = fake_triton.outputs()
    arrays["texts"][1], arrays["formats"][0] = "A1", "unknown"
    arrays["coordinates"][0] = [-3.2, 19.6, 900, 496.4]  # beyond the photo
    fake.reply = lambda _: arrays
    result, _ = post(client, READER).json()["results"]
    assert result["region"] == {"code": "unknown", "score": 0.0}
    assert result["box"] == {"xmin": 0, "ymin": 20, "xmax": 640, "ymax": 480}
    assert post(client, ALPR).json()["message"] == "Found Plate: B840CK197, Plate: A1"
    fake.reply = lambda _: fake_triton.outputs(0)
    assert plates_of(post(client, READER)) == plates_of(post(client, ALPR)) == []
    assert post(client, ALPR).json()["message"] == "No plates found"


@pytest.mark.parametrize("route", ["/v1/plate-reader", "/v1/vision/alpr", "/v1/image/alpr"])
def test_photos_are_accepted_on_the_routes_and_in_the_fields_of_clients(client, fake, route):
    for path in (route, f"{route}/"):
        for field in ("upload",) if "reader" in route else ("upload", "image", "file"):
            response = client.post(path, files={field: ("image", PHOTO)})
            assert plates_of(response) == READ
            assert not response.history  # a redirected POST loses its photo
            assert fake.photos.pop() == PHOTO


def test_usage_counts_photos_that_were_read(client):
    before = client.get("/info/").json()["usage"]["calls"]
    assert post(client, READER).json()["usage"]["calls"] == before + 1
    assert post(client, READER, b"broken").status_code == 400
    info = client.get("/info").json()
    assert isinstance(info.pop("version"), str)
    assert info.keys() == {"usage"}
    assert info["usage"]["calls"] == before + 1
    assert info["usage"]["max_calls"] > 1_000_000
    for path in ("/v1/statistics", "/v1/statistics/"):
        statistics = client.get(path).json()
        assert statistics.pop("total_calls") > 1_000_000
        assert statistics == info


URLENCODED = {"content-type": "application/x-www-form-urlencoded"}
# As node-red-contrib-plate-recognizer 1.0.3 sends it: no space before the parameter.
DASHES = {"content-type": f"multipart/form-data;boundary={'-' * 26}683467894704582608514088"}


@pytest.mark.parametrize(
    ("path", "options"),
    [
        (READER, {"content": f"upload={BASE64}", "headers": URLENCODED}),  # plus signs not escaped
        (READER, {"files": {"upload": (None, BASE64)}, "headers": DASHES}),
        (READER, {"files": {"upload": (None, base64.encodebytes(PHOTO).replace(b"\n", b"\r\n"))}}),
        (READER, {"files": {"upload": (None, base64.urlsafe_b64encode(PHOTO).rstrip(b"="))}}),
        (READER, {"json": {"upload": BASE64, "camera_id": None, "regions": ["ru"], "mmc": False}}),
        (READER, {"json": {"upload": f"data:image/jpeg;base64,{BASE64}", "config": {}}}),
        (ALPR, {"data": {"upload": BASE64}}),
        (ALPR, {"json": {"image": BASE64}}),
    ],
)
def test_photos_may_come_as_base64_text(client, fake, path, options):
    assert plates_of(client.post(path, **options)) == READ
    assert fake.photos == [PHOTO]


def test_the_timestamp_comes_back_in_utc_and_the_last_camera_id_counts(client):
    for given, answered in (
        ("2026-08-19T13:11:25", "2026-08-19T13:11:25.000000Z"),
        ("2026-11-21T19:43:21.121Z", "2026-11-21T19:43:21.121000Z"),
        ("2026-08-19T13:11:25+03:00", "2026-08-19T10:11:25.000000Z"),
        ("0001-01-01T00:00:00", "0001-01-01T00:00:00.000000Z"),  # .NET's time that is not set
    ):
        answer = post(client, READER, timestamp=given, camera_id=["gate 0", "gate 1"]).json()
        assert (answer["timestamp"], answer["camera_id"]) == (answered, "gate 1")


@pytest.mark.parametrize(
    ("path", "fields", "plates"),
    [
        (READER, {"config": '{"threshold_d": 0.94, "threshold_o": 0.99}'}, READ),
        (READER, {"config": '{"threshold_d": 0.95}'}, []),
        (READER, {"config": '{"mode": "fast", "detection_rule": "strict"}'}, READ),
        (READER, {"config": '{"region": "strict"}', "regions": ["zz", "RU"]}, READ),
        (READER, {"config": '{"region": "strict"}', "regions": "zz,pl"}, []),
        (READER, {"config": '{"region": "strict"}'}, READ),
        (READER, {"config": '{"region": "False"}', "regions": "zz"}, READ),
        (READER, {"config": '{"mode": "redaction", "threshold_o": 0.5}'}, [*READ, ""]),
        # What the vendor's plate_recognition.py and, in the next line, deepstack-python 0.9 send.
        (READER, {"config": json.dumps('{"threshold_d": 0.95}'), "mmc": "True"}, []),
        (ALPR, {"min_confidence": "0.45", "api_key": "key"}, READ),
        (READER, {"some_new_field": "x", "camera_id": "", "timestamp": ""}, READ),
        (ALPR, {"min_confidence": "0.99", "operation": "plate"}, READ),
        (ALPR, {"min_confidence": "0.995"}, []),
        (ALPR, {"min_confidence": ""}, READ),
        # Parameters of our own API.
        *((path, {"roi": "0,0,59,100"}, []) for path in (READER, ALPR)),
        *((path, {"min_width": 101}, []) for path in (READER, ALPR)),
    ],
)
def test_parameters_choose_the_plates_of_the_answer(client, path, fields, plates):
    assert plates_of(post(client, path, **fields)) == plates
    if {"roi", "min_width"} & fields.keys():
        # Unknown parameters in the address are ignored, also repeated ones.
        params = fields | {"x": [1, 2]}
        assert plates_of(client.post(path, files={"upload": PHOTO}, params=params)) == plates


@pytest.mark.parametrize(
    ("setting", "fields", "countries"),
    [
        ((), {}, ""),
        ((), {"regions": "zz,yy-ca"}, ""),  # no known country
        ((), {"regions": ["zz", "PL", "cz-11"]}, "pl,cz,*"),
        ((), {"regions": "sk", "config": '{"region": "strict"}'}, "sk,*"),
        ((), {"regions": "sk", "countries": "cz"}, "cz"),  # our own parameter
        # Regions add no country to those of the setting.
        (("sk", "cz"), {"regions": ""}, "sk,cz"),
        (("sk", "cz"), {"regions": "cz"}, "cz,sk,cz"),
        (("sk", "cz"), {"regions": "pl"}, "sk,cz"),
    ],
)
def test_regions_become_the_countries_that_triton_prefers(fake, setting, fields, countries):
    with running_gateway(fake, countries=setting) as client:
        assert post(client, READER, **fields).status_code == 201
    assert fake.countries == countries
