"""The gateway's own behaviour, with a Triton that does what a healthy one never does."""

import json
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fake_triton
import grpc
import httpx
import numpy as np
import pytest
from fake_triton import FakeTriton, refusing, sleeping
from gateway_fixtures import running_gateway
from photo_files import BAD, GOOD, HEIGHT, WIDTH, encode, pattern
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError

from api.errors import PHOTO_PROBLEMS, kinds
from api.schemas import EXAMPLE, PlatesAnswer
from api.settings import Settings

PHOTO = GOOD["jpeg"]


@pytest.fixture(scope="module")
def triton_of_module() -> Iterator[FakeTriton]:
    triton = FakeTriton()
    yield triton
    triton.stop()


@pytest.fixture
def triton(triton_of_module: FakeTriton) -> FakeTriton:
    triton_of_module.reply = lambda _: fake_triton.outputs()
    triton_of_module.photos.clear()
    return triton_of_module


def settings_for(triton: FakeTriton, **options: object) -> Settings:
    return Settings(triton_url=f"grpc://127.0.0.1:{triton.port}", **options)


@pytest.fixture(scope="module")
def client(triton_of_module: FakeTriton) -> Iterator[httpx.Client]:
    settings = settings_for(
        triton_of_module, max_bytes=100_000, triton_timeout_s=0.5, ready_max_age_s=0.2
    )
    with running_gateway(settings) as client:
        yield client


def post_raw(client: httpx.Client, photo: bytes, **parameters: object) -> httpx.Response:
    headers = {"content-type": "image/jpeg"}
    return client.post("/v1/plates", content=photo, headers=headers, params=parameters)


def post_form(client: httpx.Client, photo: bytes, **fields: object) -> httpx.Response:
    files = {"image": ("photo.jpg", photo)}
    return client.post("/v1/plates", files=files, data={k: str(v) for k, v in fields.items()})


def assert_problem(response: httpx.Response, status: int, slug: str | None) -> dict[str, object]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert document["status"] == status
    assert document["type"] == ("about:blank" if slug is None else f"/problems/{slug}")
    assert document["title"]
    assert document["detail"]
    assert document["instance"].startswith("urn:uuid:")
    return document


def test_answer_is_the_documented_json(client: httpx.Client, triton: FakeTriton) -> None:
    answer = post_form(client, PHOTO).json()
    assert triton.photos == [PHOTO]
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


def test_both_forms_give_the_same(client: httpx.Client, triton: FakeTriton) -> None:
    raw, form = post_raw(client, PHOTO).json(), post_form(client, PHOTO).json()
    raw.pop("timing_ms")
    form.pop("timing_ms")
    assert raw == form
    assert triton.photos == [PHOTO, PHOTO]


def test_no_plates_is_an_answer(client: httpx.Client, triton: FakeTriton) -> None:
    triton.reply = lambda _: fake_triton.outputs(0)
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
@pytest.mark.usefixtures("triton")
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
    client: httpx.Client, triton: FakeTriton, post: object, parameters: dict, name: str
) -> None:
    document = assert_problem(post(client, PHOTO, **parameters), 422, "invalid-parameter")
    assert [error["parameter"] for error in document["errors"]] == [name]
    assert name in document["detail"]
    assert not triton.photos


STATUS = {kind.slug: kind.status for kind in kinds()}
TOLD_BY_DECODING = {
    "truncated bmp",
    "truncated tiff",
    "truncated gif",
    "png of fewer rows than claimed",
}


@pytest.mark.parametrize("post", [post_raw, post_form])
@pytest.mark.parametrize("name", sorted(BAD.keys() - TOLD_BY_DECODING))
def test_bad_photos_never_reach_triton(
    client: httpx.Client, triton: FakeTriton, post: object, name: str
) -> None:
    photo, slug = BAD[name]
    assert_problem(post(client, photo), STATUS[slug], slug)
    assert not triton.photos
    assert post(client, PHOTO).status_code == 200


@pytest.mark.parametrize("slug", PHOTO_PROBLEMS)
def test_refusals_of_the_models_are_passed_on(
    client: httpx.Client, triton: FakeTriton, slug: str
) -> None:
    message = f"[request id: <id_unknown>] {slug}: The file is no good."
    triton.reply = refusing(grpc.StatusCode.INVALID_ARGUMENT, message)
    document = assert_problem(post_raw(client, PHOTO), STATUS[slug], slug)
    assert document["detail"] == "The file is no good."


@pytest.mark.parametrize(
    ("code", "message", "slug"),
    [
        (grpc.StatusCode.UNAVAILABLE, "Socket closed", "recognizer-unavailable"),
        (grpc.StatusCode.UNAVAILABLE, "Exceeds maximum queue size", "overloaded"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "", "overloaded"),
        (grpc.StatusCode.NOT_FOUND, "unknown model", "recognizer-unavailable"),
        (grpc.StatusCode.INTERNAL, "Stub process 'x' is not healthy.", "recognizer-unavailable"),
        (grpc.StatusCode.INTERNAL, "Traceback: /srv/model.py", "recognizer-failed"),
        (grpc.StatusCode.INVALID_ARGUMENT, "unexpected output", "recognizer-mismatch"),
        (grpc.StatusCode.UNAUTHENTICATED, "no", "recognizer-mismatch"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "", "recognizer-timeout"),
    ],
)
def test_failures_of_triton(
    client: httpx.Client, triton: FakeTriton, code: grpc.StatusCode, message: str, slug: str
) -> None:
    triton.reply = refusing(code, message)
    response = post_raw(client, PHOTO)
    document = assert_problem(response, STATUS[slug], slug)
    assert "/srv" not in json.dumps(document)
    assert ("retry-after" in response.headers) == (response.status_code == 503)


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
    client: httpx.Client, triton: FakeTriton, broken: dict
) -> None:
    arrays = {k: v for k, v in (fake_triton.outputs() | broken).items() if v is not None}
    triton.reply = lambda _: arrays
    assert_problem(post_raw(client, PHOTO), 502, "recognizer-mismatch")


def test_slow_triton_is_given_up(client: httpx.Client, triton: FakeTriton) -> None:
    triton.reply = sleeping(2)
    assert_problem(post_raw(client, PHOTO), 504, "recognizer-timeout")
    assert triton.timeout_us == 500_000  # nor does it wait in Triton's queue for longer


def test_triton_away_and_back() -> None:
    triton = FakeTriton()
    with running_gateway(settings_for(triton)) as client:
        assert post_raw(client, PHOTO).status_code == 200
        triton.stop()
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
    ("options", "slug", "said"),
    [
        ({"files": {"photo": ("a.jpg", PHOTO)}}, "missing-image", "'photo'"),
        ({"files": {"x": ("", b"")}, "data": {}}, "missing-image", "'x'"),
        ({"data": {"image": "a"}, "files": {"f": ("a", b"a")}}, "missing-image", "as text"),
        (
            {"files": [("image", ("a.jpg", PHOTO)), ("image", ("b.jpg", PHOTO))]},
            "invalid-parameter",
            "One photo",
        ),
        (
            {"files": [("image", ("a.jpg", PHOTO)), ("other", ("b.jpg", PHOTO))]},
            "invalid-parameter",
            "other",
        ),
    ],
)
def test_forms_with_wrong_fields(
    client: httpx.Client, triton: FakeTriton, options: dict, slug: str, said: str
) -> None:
    document = assert_problem(client.post("/v1/plates", **options), 422, slug)
    assert said in document["detail"]
    assert not triton.photos


@pytest.mark.parametrize(
    ("content_type", "body", "status", "slug"),
    [
        ("multipart/form-data", b"x", 400, "invalid-form"),
        ("multipart/form-data; boundary=b", b"nonsense", 400, "invalid-form"),
        ("multipart/form-data; boundary=b", b"", 400, "invalid-form"),
        ("multipart/form-data; boundary=b", b"--b--\r\n", 422, "missing-image"),
        ("multipart/form-data; boundary=b", b"--b\r\n\r\n\r\n" * 40, 400, "invalid-form"),
        ("application/json", b"{}", 415, "unsupported-media-type"),
        ("application/x-www-form-urlencoded", PHOTO, 415, "unsupported-media-type"),
        ("", PHOTO, 415, "unsupported-media-type"),
    ],
)
def test_bodies_that_are_neither_form_nor_image(
    client: httpx.Client, content_type: str, body: bytes, status: int, slug: str
) -> None:
    headers = {"content-type": content_type}
    assert_problem(client.post("/v1/plates", content=body, headers=headers), status, slug)


def test_form_cut_off_in_the_photo(client: httpx.Client, triton: FakeTriton) -> None:
    request = client.build_request("POST", "/v1/plates", files={"image": ("a.jpg", PHOTO)})
    body = request.read()[: len(PHOTO) // 2]
    headers = {"content-type": request.headers["content-type"]}
    response = client.post("/v1/plates", content=body, headers=headers)
    document = assert_problem(response, 400, "invalid-form")
    assert "cut off" in document["detail"]
    assert not triton.photos


def padded(size: int) -> bytes:
    """A valid JPEG of exactly that many bytes: what follows its end does not matter."""
    return PHOTO + bytes(size - len(PHOTO))


@pytest.mark.parametrize("post", [post_raw, post_form])
def test_file_limit(client: httpx.Client, triton: FakeTriton, post: object) -> None:
    assert post(client, padded(100_000)).status_code == 200
    for size in (100_001, 150_000, 220_000, 5_000_000):
        assert_problem(post(client, padded(size)), 413, "too-many-bytes")
    assert len(triton.photos) == 1
    assert post(client, PHOTO).status_code == 200


def test_file_limit_holds_without_a_content_length(client: httpx.Client) -> None:
    """A sender that never stops is cut off soon after the limit, its bytes not kept."""
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield PHOTO
        for _ in range(10_000):
            sent += 20_000
            yield bytes(20_000)

    headers = {"content-type": "image/jpeg"}
    try:
        response = client.post("/v1/plates", content=endless(), headers=headers)
        assert_problem(response, 413, "too-many-bytes")
    except (httpx.WriteError, httpx.ReadError):  # cut off while it was still sending
        pass
    assert sent < 50_000_000
    assert client.get("/healthz").status_code == 200


def test_pixel_limit(triton: FakeTriton) -> None:
    with running_gateway(settings_for(triton, max_pixels=WIDTH * HEIGHT)) as client:
        assert post_raw(client, PHOTO).status_code == 200
        larger = encode(pattern(WIDTH, HEIGHT + 1), "PNG")
        assert_problem(post_raw(client, larger), 413, "too-many-pixels")


def test_sender_that_hangs_up(
    client: httpx.Client, triton: FakeTriton, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
        connection.sendall(
            b"POST /v1/plates HTTP/1.1\r\nHost: x\r\nContent-Type: image/jpeg\r\n"
            b"Content-Length: 5000\r\n\r\n" + PHOTO[:100]
        )
    for _ in range(20):
        assert post_raw(client, PHOTO).status_code == 200
    assert set(triton.photos) == {PHOTO}
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_places_are_limited(triton: FakeTriton) -> None:
    release, arrived = threading.Event(), threading.Semaphore(0)

    def wait(_: bytes) -> dict[str, np.ndarray]:
        arrived.release()
        release.wait(20)
        return fake_triton.outputs()

    triton.reply = wait
    settings = settings_for(triton, max_in_flight=2)
    with running_gateway(settings) as client, ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(post_raw, client, PHOTO) for _ in range(2)]
        try:
            for _ in waiting:
                assert arrived.acquire(timeout=20)
            response = post_raw(client, PHOTO)
        finally:
            release.set()
        assert_problem(response, 503, "overloaded")
        assert response.headers["retry-after"] == "1"
        assert [future.result().status_code for future in waiting] == [200, 200]
        assert post_raw(client, PHOTO).status_code == 200


def test_token_goes_to_triton(triton: FakeTriton) -> None:
    with running_gateway(settings_for(triton, triton_token="secret")) as client:  # noqa: S106
        assert post_raw(client, PHOTO).status_code == 200
    assert triton.metadata["authorization"] == "Bearer secret"


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A private key and a certificate of its own for 127.0.0.1."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl here to make a certificate with")
    command = f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    return key, certificate


def test_triton_over_tls(certificate: tuple[Path, Path]) -> None:
    key, trusted = certificate
    triton = FakeTriton((key.read_bytes(), trusted.read_bytes()))
    try:
        url = f"grpcs://127.0.0.1:{triton.port}"
        token = {"triton_token": "secret"}
        with running_gateway(Settings(triton_url=url, triton_ca_file=trusted, **token)) as client:
            assert post_raw(client, PHOTO).status_code == 200
        assert triton.metadata["authorization"] == "Bearer secret"
        with running_gateway(Settings(triton_url=url)) as client:  # not a certificate it trusts
            assert_problem(post_raw(client, PHOTO), 503, "recognizer-unavailable")
    finally:
        triton.stop()


def test_token_is_not_sent_unless_set(client: httpx.Client, triton: FakeTriton) -> None:
    post_raw(client, PHOTO)
    assert "authorization" not in triton.metadata
    assert "crops" not in triton.requested  # large, and nobody sees them over HTTP


def test_ready_asks_once_for_many(triton: FakeTriton) -> None:
    triton.reply = sleeping(0.2)
    with running_gateway(settings_for(triton)) as client, ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: client.get("/readyz"), range(6)))
    assert [(answer.status_code, answer.json()) for answer in answers] == [
        (200, {"status": "ready"})
    ] * 6
    assert len(triton.photos) == 1


def test_ready_notices_dead_models(client: httpx.Client, triton: FakeTriton) -> None:
    triton.reply = refusing(grpc.StatusCode.INTERNAL, "Stub process is not healthy")
    client_sees = []
    for _ in range(50):
        client_sees.append(client.get("/readyz"))
        if client_sees[-1].status_code == 503:
            break
        threading.Event().wait(0.05)
    assert_problem(client_sees[-1], 503, None)
    assert "retry-after" in client_sees[-1].headers


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nowhere", 404), ("GET", "/v1/plates", 405), ("DELETE", "/healthz", 405)],
)
def test_plain_http_errors_are_problem_documents(
    client: httpx.Client, method: str, path: str, status: int
) -> None:
    response = client.request(method, path)
    assert_problem(response, status, None)
    assert ("allow" in response.headers) == (status == 405)


@pytest.mark.usefixtures("triton")
def test_unexpected_errors_are_problem_documents(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("internal detail")

    monkeypatch.setattr("api.routes.answer_from", fail)
    document = assert_problem(post_raw(client, PHOTO), 500, None)
    assert "internal detail" not in json.dumps(document)


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.slug)
def test_problem_types_explain_themselves(client: httpx.Client, kind: type) -> None:
    explanation = client.get(f"/problems/{kind.slug}").json()
    assert explanation["status"] == kind.status
    assert explanation["title"] == kind.title


def samples(client: httpx.Client) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {
        (sample.name, *(v for _, v in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_metrics_count_requests_and_plates(triton: FakeTriton) -> None:
    with running_gateway(settings_for(triton)) as client:
        post_raw(client, PHOTO)
        post_raw(client, PHOTO)
        post_raw(client, b"")
        client.get("/nowhere/12345")
        found = samples(client)
        exposition = client.get("/metrics")
    assert found["plates_requests_total", "POST", "/v1/plates", "200"] == 2
    assert found["plates_requests_total", "POST", "/v1/plates", "400"] == 1
    assert found["plates_requests_total", "GET", "other", "404"] == 1
    assert found["plates_request_seconds_count", "/v1/plates"] == 3
    assert found["plates_recognition_seconds_count",] == 2
    assert found["plates_per_photo_sum",] == 4
    assert found["plates_unreadable_total",] == 2
    assert found["plates_in_flight",] == 0
    assert "B840CK197" not in exposition.text
    assert "12345" not in exposition.text


def test_openapi_documents_both_forms_and_every_problem(client: httpx.Client) -> None:
    schema = client.get("/openapi.json").json()
    operation = schema["paths"]["/v1/plates"]["post"]
    assert operation["requestBody"]["content"].keys() == {"multipart/form-data", "image/*"}
    assert {p["name"] for p in operation["parameters"]} == {"roi", "min_width"}
    assert operation["responses"].keys() >= {str(kind.status) for kind in kinds()} | {"200"}
    assert schema["components"]["schemas"]["PlatesAnswer"]["example"] == EXAMPLE
    for status, response in operation["responses"].items():
        if status != "200":
            assert response["content"].keys() == {"application/problem+json"}
    for name in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(schema)):
        assert name in schema["components"]["schemas"]


def test_pages_for_people(client: httpx.Client) -> None:
    assert "/v1/plates" in client.get("/").text
    assert client.get("/docs").status_code == 200


@pytest.mark.parametrize(
    "url", ["http://triton:8000", "triton", "grpc://triton", "https://triton:443"]
)
def test_triton_urls_that_can_not_work(url: str) -> None:
    with pytest.raises(ValidationError, match="8001"):
        Settings(triton_url=url)


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLATES_TRITON_URL", "grpcs://triton.example:443")
    monkeypatch.setenv("PLATES_PORT", "9000")
    settings = Settings()
    assert settings.triton_address == "triton.example:443"
    assert settings.triton_tls
    assert settings.port == 9000
    assert not Settings(triton_url="triton:8001").triton_tls
