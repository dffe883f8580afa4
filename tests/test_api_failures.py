"""The gateway with a Triton that does what a healthy one never does."""

import json
import socket
from pathlib import Path

import fake_triton
import grpc
import httpx
import numpy as np
import pytest
from fake_triton import FakeTriton, refusing, sleeping
from gateway_client import PHOTO, STATUS, assert_problem, post_raw, settings_for
from gateway_fixtures import running_gateway

from api.errors import PHOTO_PROBLEMS, kinds
from api.settings import Settings
from api.status import Status, write_status

AWAY = "recognizer-unavailable"


@pytest.mark.parametrize("slug", PHOTO_PROBLEMS)
def test_refusals_of_the_models_are_passed_on(
    client: httpx.Client, fake: FakeTriton, slug: str
) -> None:
    message = f"[request id: <id_unknown>] {slug}: The file is no good."
    fake.reply = refusing(grpc.StatusCode.INVALID_ARGUMENT, message)
    document = assert_problem(post_raw(client, PHOTO), STATUS[slug], slug)
    assert document["detail"] == "The file is no good."


@pytest.mark.parametrize(
    ("code", "message", "slug"),
    [
        (grpc.StatusCode.UNAVAILABLE, "Socket closed", AWAY),
        (grpc.StatusCode.UNAVAILABLE, "Stream removed (Socket closed)", AWAY),
        (grpc.StatusCode.UNAVAILABLE, "yolo: Stub process is not healthy", AWAY),
        (grpc.StatusCode.UNAVAILABLE, "Exceeds maximum queue size", "overloaded"),
        (grpc.StatusCode.UNAVAILABLE, "stn: Exceeds maximum queue size", "overloaded"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "", "overloaded"),
        (grpc.StatusCode.UNAVAILABLE, "Request timeout expired", "recognizer-timeout"),
        (grpc.StatusCode.UNAVAILABLE, "lprnet: Request timeout expired", "recognizer-timeout"),
        (grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'x' is not found", AWAY),
        (grpc.StatusCode.NOT_FOUND, "unknown model: 'x' has no available versions", AWAY),
        (grpc.StatusCode.INVALID_ARGUMENT, "Request for unknown model: 'x'", AWAY),
        (grpc.StatusCode.INTERNAL, "Stub process 'x' is not healthy.", AWAY),
        (grpc.StatusCode.INTERNAL, "Model 'lprnet' is not ready.", AWAY),
        (grpc.StatusCode.INTERNAL, "Received RST_STREAM with error code 2", AWAY),
        (grpc.StatusCode.UNKNOWN, "Stream removed", AWAY),
        (grpc.StatusCode.CANCELLED, "", AWAY),
        (grpc.StatusCode.INTERNAL, "Traceback: /srv/model.py", "recognizer-failed"),
        (grpc.StatusCode.INVALID_ARGUMENT, "unexpected output", "recognizer-mismatch"),
        (grpc.StatusCode.UNAUTHENTICATED, "no", "recognizer-mismatch"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "", "recognizer-timeout"),
    ],
)
def test_failures_of_triton(
    client: httpx.Client, fake: FakeTriton, code: grpc.StatusCode, message: str, slug: str
) -> None:
    fake.reply = refusing(code, message)
    response = post_raw(client, PHOTO)
    document = assert_problem(response, STATUS[slug], slug)
    assert "/srv" not in json.dumps(document)
    assert ("retry-after" in response.headers) == (response.status_code in (429, 503))


@pytest.mark.parametrize(
    "broken",
    [
        {"quads": None},
        {"quads": np.zeros((2, 8), np.float32)},
        {"formats": np.array(["ru.car"], object)},
        {"model_info": None},
        {"model_info": np.array(["{}"], object)},
        {"model_info": np.array(["no json"], object)},
    ],
)
def test_answers_of_another_shape_are_noticed(
    client: httpx.Client, fake: FakeTriton, broken: dict
) -> None:
    arrays = {k: v for k, v in (fake_triton.outputs() | broken).items() if v is not None}
    fake.reply = lambda _: arrays
    assert_problem(post_raw(client, PHOTO), 502, "recognizer-mismatch")


def test_triton_away_and_back() -> None:
    fake = FakeTriton()
    with running_gateway(settings_for(fake, ready_max_age_s=0.001)) as client:
        assert post_raw(client, PHOTO).status_code == 200
        fake.stop()
        response = post_raw(client, PHOTO)
        assert_problem(response, 503, "recognizer-unavailable")
        assert int(response.headers["retry-after"]) > 0
        assert client.get("/healthz").status_code == 200
        assert_problem(client.get("/readyz"), 503, None)


def test_gateway_starts_without_triton() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"127.0.0.1:{free.getsockname()[1]}"
        with running_gateway(Settings(triton_url=url)) as client:
            assert client.get("/healthz").json() == {"status": "alive"}
            assert_problem(client.get("/readyz"), 503, None)
            assert_problem(post_raw(client, PHOTO), 503, "recognizer-unavailable")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("POST", "/v1/plates/", 404),  # no redirect: it would have the photo sent again
        ("GET", "/v1/plates", 405),
        ("DELETE", "/healthz", 405),
    ],
)
def test_plain_http_errors_are_problem_documents(
    client: httpx.Client, method: str, path: str, status: int
) -> None:
    response = client.request(method, path)
    assert_problem(response, status, None)
    assert ("allow" in response.headers) == (status == 405)


@pytest.mark.usefixtures("fake")
def test_unexpected_errors_are_problem_documents(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("internal detail")

    monkeypatch.setattr("api.routes.plates.answer_from", fail)
    document = assert_problem(post_raw(client, PHOTO), 500, None)
    assert "internal detail" not in json.dumps(document)


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.slug)
def test_problem_types_explain_themselves(client: httpx.Client, kind: type) -> None:
    explanation = client.get(f"/problems/{kind.slug}").json()
    assert explanation["status"] == kind.status
    assert explanation["title"] == kind.title


@pytest.mark.parametrize("setting", ["status_file", "triton_status_file"])
def test_photos_that_a_restarted_model_held_are_answered(
    fake: FakeTriton, tmp_path: Path, setting: str
) -> None:
    """Triton says nothing of them: they would wait until their deadline."""
    status_file = tmp_path / "status.json"

    def restart_with(photo: bytes) -> dict[str, np.ndarray]:
        write_status(status_file, Status("healing", {"plate_recognition": 1}))
        return sleeping(10)(photo)

    fake.reply = restart_with
    with running_gateway(settings_for(fake, **{setting: status_file})) as client:
        answer = post_raw(client, PHOTO)
    assert answer.status_code == 503
    assert "restarted" in answer.json()["detail"]
    assert int(answer.headers["retry-after"]) >= 1
