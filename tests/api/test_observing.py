"""Logs, metrics and the dashboard: what they contain, but no personal data or secrets."""

import base64
import json
import logging
import re
import sys
import time
from unittest.mock import Mock

import grpc
import pytest
from fake_triton import refusing, sleeping
from gateway_support import post_routes
from photo_files import BAD
from prometheus_client.parser import text_string_to_metric_families
from raw_http import answer_to
from small_server import Reply, small_server
from support import PHOTO, ROOT, SCENE, number, post_form, post_raw, running_gateway

from api.observing import logs, metrics
from api.status import Status, write_status
from plates.cameras.http import router_for

TOKEN = "s3cret-token-of-the-gate"  # noqa: S105
WRONG = "wr0ng-token-of-a-stranger"
# Texts that clients send in requests, and (READ) the plate text that fake_triton reads.
NAME, CAMERA = "photo-of-my-car.jpg", "camera-at-the-yard"
FORM, PATH, QUERY, METHOD = "form-value-7", "path-value-7", "query-value-7", "BREW"
READ = ("B840CK197", "В840СК197", "B840CK191", "b840ck197")
SECRETS = [TOKEN, WRONG, NAME, CAMERA, FORM, PATH, QUERY, METHOD, *READ]
for piece in (PHOTO[:60], PHOTO[len(PHOTO) // 2 :][:60]):
    SECRETS += [base64.b64encode(piece).decode(), base64.urlsafe_b64encode(piece).decode()]
    SECRETS += [piece.hex(), repr(piece)[2:40]]


@pytest.fixture
def configure_logs():
    """Configures the logs as `plates serve` does, on stderr; the test's end restores them."""
    root, ours = logging.getLogger(), logging.getLogger("plates")
    handlers, *levels = root.handlers[:], root.level, ours.level
    yield logs.configure
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def requests_of_all_kinds(client):
    """Send requests that contain everything that logs must not contain; yield the answers."""
    client.headers.update({"Authorization": f"Token {TOKEN}", "User-Agent": CAMERA})
    file, encoded = (NAME, PHOTO, "image/jpeg"), base64.b64encode(PHOTO).decode()
    yield post_raw(client, PHOTO)
    yield post_raw(client, PHOTO, redact="true")
    yield post_raw(client, PHOTO, roi=QUERY)
    yield post_form(client, PHOTO, min_width=1)
    yield post_form(client, PHOTO, note=FORM)
    yield client.post("/v1/plates", json={"image": encoded})
    yield client.post("/v1/plates/batch", files=[("image", file), ("image", (NAME, b"x"))])
    yield client.post("/v1/plate-reader/", files={"upload": file}, data={"camera_id": CAMERA})
    yield client.post("/v1/plate-reader", data={"upload": encoded, "regions": FORM})
    yield client.post("/v1/plate-reader", data={"upload": encoded, "config": f'{{"{FORM}": 1}}'})
    yield client.post("/v1/vision/alpr", files={"upload": file}, data={"min_confidence": "0.1"})
    yield client.get(f"/{PATH}/{READ[0]}", params={"plate": READ[0]})
    yield client.post(f"/{PATH}?q={QUERY}", content=PHOTO)
    yield client.request(METHOD, f"/v1/plates?{QUERY}")
    yield post_raw(client, PHOTO, {"Authorization": f"Bearer {WRONG}"})
    yield post_raw(client, PHOTO, {"X-Request-Timeout": QUERY})
    yield post_raw(client, PHOTO, {"X-Request-Id": f"{PATH} {QUERY}"})
    for photo, _ in BAD.values():
        yield post_raw(client, photo)


@pytest.mark.parametrize("format_name", ["json", "text"])
def test_logs_and_metrics_contain_nothing_that_was_sent_or_read(
    fake, format_name, monkeypatch, configure_logs, capsys
):
    fail = Mock(side_effect=RuntimeError(f"a message that quotes {READ[0]}"))
    configure_logs(format_name)
    with running_gateway(fake, tokens=TOKEN) as client:
        statuses = [answer.status_code for answer in requests_of_all_kinds(client)]
        for code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE):
            fake.reply = refusing(code, "unexpected KeyError, see the server's log")
            statuses += [post_raw(client, PHOTO).status_code, post_form(client, PHOTO).status_code]
        exposition = client.get("/metrics").text
        monkeypatch.setattr("api.reading.PhotoReader.read", fail)
        assert post_raw(client, PHOTO).status_code == 500
    assert {200, 400, 403, 404, 405, 413, 415, 422, 500, 503} <= set(statuses)
    written = capsys.readouterr().err
    assert "RuntimeError (its message is left out" in written
    assert written.count("answered") > len(statuses)
    for text in (written, exposition):
        for secret in SECRETS:
            assert secret not in text
            assert json.dumps(secret)[1:-1] not in text


def test_the_access_log_has_one_line_per_request(fake, configure_logs, capsys):
    configure_logs("json")
    with running_gateway(fake) as client:
        answers = [post_raw(client, PHOTO), post_raw(client, b""), client.get("/nowhere/at/all")]
        answers.append(post_raw(client, PHOTO, roi="secret"))
        answers.append(post_raw(client, b"x", {"content-type": "multipart/form-data; boundary=b"}))
        refused = answer_to(client, b"no HTTP\r\n\r\n")
    lines = list(map(json.loads, capsys.readouterr().err.splitlines()))
    assert any(str(line.get("request_id")).encode() in refused for line in lines)
    access = [line for line in lines if line["logger"] == "plates.access"]
    assert len(access) == len(answers)
    # A line is written after its answer is sent, so that lines may be in another order.
    by_id = {line.pop("request_id"): line for line in access}
    good, empty, nowhere, invalid, _ = (by_id[each.headers["x-request-id"]] for each in answers)
    assert {line["level"] for line in lines} == {"info"}  # Clients' faults are no warnings.
    assert good.pop("time").endswith("+00:00")
    assert good.pop("ms") > 0
    named = {"level": "info", "logger": "plates.access", "message": "answered"}
    asked = {"method": "POST", "route": "/v1/plates", "status": 200}
    assert good == named | asked | {"bytes_in": len(PHOTO), "plates": 2}
    assert (empty["status"], empty["refusal"]) == (400, "empty-image")
    assert "plates" not in empty
    assert (nowhere["route"], nowhere["status"]) == ("other", 404)
    assert (invalid["status"], invalid["refusal"]) == (422, "invalid-parameter")


@pytest.mark.parametrize("format_name", ["json", None])
def test_logs_of_libraries_and_tracebacks_have_no_exception_messages(
    format_name, monkeypatch, configure_logs, capsys
):
    plate = READ[0]
    # Without a format, logs on a terminal are text.
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    configure_logs(format_name)
    logging.getLogger("asyncio").error(f"first\nfuture: <Task exception=KeyError('{plate}')>")
    try:
        raise KeyError(f"a message that quotes {plate}") from ValueError(plate)
    except KeyError:
        logging.getLogger("plates.x").exception("one\ntwo")
    text = capsys.readouterr().err
    assert plate not in text
    assert text.index("ValueError (") < text.index("KeyError (")
    assert "test_observing.py" in text
    if format_name == "json":
        assert [json.loads(line)["message"] for line in text.splitlines()] == ["first", "one\ntwo"]
    else:
        assert text.splitlines()[1].endswith("ERROR plates.x: one | two")


@pytest.mark.settings()
def test_metrics_count_requests_and_plates(client, fake):
    fake.reply = sleeping(0.1)
    for photo in (PHOTO, PHOTO, b""):
        post_raw(client, photo)
    client.get("/nowhere/12345")
    for method in ("BREW", "WHEN"):  # invented methods share one time series
        client.request(method, "/")
    for sample, count in {
        'requests_total{method="POST",route="/v1/plates",status="200"}': 2,
        'requests_total{method="POST",route="/v1/plates",status="400"}': 1,
        'requests_total{method="GET",route="other",status="404"}': 1,
        'requests_total{method="other",route="/",status="405"}': 2,
        'request_seconds_count{route="/v1/plates"}': 3,
        "recognition_seconds_count": 2,
        "per_photo_sum": 4,
        "unreadable_total": 2,
    }.items():
        assert number(client, f"plates_{sample}") == count, sample
    assert 0.2 < number(client, "plates_recognition_seconds_sum") < 30


def test_restarts_states_and_releases_come_from_the_supervisors_status_files(fake, tmp_path):
    ours, tritons = tmp_path / "gateway.json", tmp_path / "triton.json"
    with running_gateway(fake, status_file=ours, triton_status_file=tritons) as client:
        assert "plates_restarts_total{" not in client.get("/metrics").text
        write_status(ours, Status("ready", {"gateway": 1}))
        assert number(client, 'plates_state{state="ready"}') == 1
        write_status(tritons, Status("healing", {"triton": 2, "yolo": 1}, 3, {"4": "it misreads"}))
        for sample, value in {
            'restarts_total{part="gateway"}': 1,
            'restarts_total{part="triton"}': 2,
            'restarts_total{part="yolo"}': 1,
            'state{state="healing"}': 1,
            'state{state="ready"}': 0,
            'release{version="3"}': 1,
            'release_refused{version="4"}': 1,
        }.items():
            assert number(client, f"plates_{sample}") == value, sample
        tritons.write_text("{")
        assert number(client, "plates_restarts_total{") == 1  # the gateway's
        assert number(client, "plates_release{") == 0


TRITONS = b"""\
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="yolo",version="1"} 7
"""


@pytest.mark.parametrize(
    ("answer", "up"),
    [
        (Reply(TRITONS), 1),
        (Reply(TRITONS, 503), 0),
        (None, 0),
        (lambda _: time.sleep(0.5) or Reply(TRITONS), 0),
    ],
)
def test_tritons_metrics_are_appended_if_triton_answers_in_time(fake, answer, up, monkeypatch):
    monkeypatch.setattr("api.observing.metrics._TRITON_TIMEOUT_S", 0.3)
    with small_server(answer) as server:
        address = server.url.removeprefix("http://")
        with running_gateway(fake, triton_metrics_url=address) as client:
            families = list(text_string_to_metric_families(client.get("/metrics").text))
            assert len({family.name for family in families}) == len(families) > 10
            assert number(client, "plates_triton_metrics_up") == up
            assert number(client, "nv_inference_request_success{") == 7 * up


@pytest.mark.live
def test_metrics_with_a_real_triton(triton):
    address = triton.embedded and triton.embedded.metrics_url
    with running_gateway(triton.grpc_url, triton_metrics_url=address) as client:
        assert post_raw(client, SCENE.read_bytes()).status_code == 200
        for stage in ("decode", "yolo", "stn", "lprnet", "rest"):
            assert number(client, f'plates_stage_seconds_count{{stage="{stage}"}}') == 1
            assert number(client, f'plates_stage_seconds_sum{{stage="{stage}"}}') > 0
        assert number(client, "plates_model_info{") == 1
        if address:  # known only for an embedded Triton
            assert number(client, "plates_triton_metrics_up") == 1
            assert number(client, "nv_inference_request_success") > 0


DASHBOARD = json.loads((ROOT / "docker/grafana/dashboard.json").read_text(encoding="utf-8"))
EXPRESSIONS = [t["expr"] for panel in DASHBOARD["panels"] for t in panel.get("targets", [])]
# Suffixes of a family's series; a series without values is not in the exposition.
ENDINGS = {"counter": ("_total", ""), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def names_in(expression):
    """The metrics that an expression queries."""
    return set(re.findall(r"\b(?:plates|nv)_[a-z0-9_]+", expression))


def test_the_dashboard_queries_existing_metrics_and_all_of_the_gateways(tmp_path):
    (tmp_path / "status.json").write_text('{"state": "ready", "restarts": {}}')
    exposition = metrics.Metrics(tmp_path / "status.json").exposition().decode()
    families = list(text_string_to_metric_families(exposition))
    exposed = {family.name + ending for family in families for ending in ENDINGS[family.type]}
    assert all(map(names_in, EXPRESSIONS))
    queried = set().union(*map(names_in, EXPRESSIONS))
    assert {name for name in queried if name.startswith("plates_")} <= exposed
    names = {family.name for family in families}
    assert not {name for name in names if not any(one.startswith(name) for one in queried)}


def test_the_answer_times_are_those_of_routes_that_read_photos(tmp_path):
    (asked,) = set(re.findall('request_seconds_bucket{route=~"(.*?)"', "".join(EXPRESSIONS)))
    (tmp_path / "cameras.toml").write_text("cameras = []")
    taking = post_routes(router_for(tmp_path / "cameras.toml"))
    assert "/v1/cameras/{camera}/frames" in taking
    assert [route for route in taking if not re.fullmatch(asked, route)] == []
    for other in ("/v1/events", "/v1/passes", "/v1/cameras", "/v1/statistics", "/info", "/readyz"):
        assert not re.fullmatch(asked, other), other
