"""What the logs say, and what they and the metrics never say."""

import base64
import io
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import httpx
import pytest
from fake_triton import FakeTriton, refusing
from photo_files import BAD
from support import (
    PHOTO,
    SAMPLES,
    TritonEndpoints,
    post_form,
    post_raw,
    read_samples,
    running_gateway,
    serving,
    settings_for,
)

from api.errors import RecognizerTimeout
from api.observing import logs

TOKEN = "s3cret-token-of-the-gate"  # noqa: S105
WRONG = "wr0ng-token-of-a-stranger"
# What only ever came in; B840CK197 and its like are what fake_triton reads.
SENT = (
    "photo-of-my-car.jpg",
    "camera-at-the-yard",
    "form-value-7",
    "path-value-7",
    "query-value-7",
)
READ = ("B840CK197", "В840СК197", "B840CK191", "b840ck197")
MESSAGE = "a message that quotes B840CK197"


@contextmanager
def logged(format_name: logs.Format) -> Iterator[io.StringIO]:
    """What the process logs, as `plates serve` sets it up."""
    names = ("", "plates", "uvicorn.error")
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    written = io.StringIO()
    try:
        logs.configure(format_name)
        (handler,) = logging.getLogger().handlers
        assert isinstance(handler, logging.StreamHandler)
        handler.setStream(written)
        yield written
    finally:
        for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
            logger.handlers[:], logger.propagate = handlers, propagate
            logger.setLevel(level)


def lines(written: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in written.getvalue().splitlines()]


def traces_of_the_photo() -> list[str]:
    """The beginning of the photo and a piece of it, as each could be written by mistake."""
    pieces = (PHOTO[:60], PHOTO[len(PHOTO) // 2 :][:60])
    written = [base64.b64encode(piece).decode() for piece in pieces]
    written += [base64.urlsafe_b64encode(piece).decode() for piece in pieces]
    written += [piece.hex() for piece in pieces]
    return written + [repr(piece)[2:40] for piece in pieces]


def ask_everything(client: httpx.Client, fake: FakeTriton) -> list[int]:
    """Requests of all kinds, with everything that must not be told."""
    name, camera, form, path, query = SENT
    good = {"Authorization": f"Token {TOKEN}", "User-Agent": camera}
    jpeg = good | {"Content-Type": "image/jpeg"}
    file = (name, PHOTO, "image/jpeg")
    encoded = base64.b64encode(PHOTO).decode()
    client.headers.update(good)
    answers = [
        post_raw(client, PHOTO),
        post_raw(client, PHOTO, redact="true"),
        post_form(client, PHOTO, min_width=1),
        post_form(client, PHOTO, note=form),
        post_raw(client, PHOTO, roi=query),
        client.post("/v1/plates/batch", files=[("image", file), ("image", (name, b"x"))]),
        client.post("/v1/plate-reader/", files={"upload": file}, data={"camera_id": camera}),
        client.post("/v1/plate-reader", data={"upload": encoded, "regions": form}),
        client.post("/v1/plate-reader", data={"upload": encoded, "config": f'{{"{form}": 1}}'}),
        client.post("/v1/vision/alpr", files={"upload": file}, data={"min_confidence": "0.1"}),
        client.post("/v1/plates", json={"image": encoded}),
        client.get(f"/{path}/{READ[0]}", params={"plate": READ[0]}),
        client.post(f"/{path}?q={query}", content=PHOTO),
        client.request("BREW", f"/v1/plates?{query}"),
        client.post(
            "/v1/plates", content=PHOTO, headers=jpeg | {"Authorization": f"Bearer {WRONG}"}
        ),
        client.post("/v1/plates", content=PHOTO, headers=jpeg | {"X-Request-Timeout": query}),
        client.post(
            "/v1/plates", content=PHOTO, headers=jpeg | {"X-Request-Id": f"{path} {query}"}
        ),
    ]
    answers += [post_raw(client, photo) for photo, _ in BAD.values()]
    for code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE):
        fake.reply = refusing(code, "unexpected KeyError, see the server's log")
        answers += [post_raw(client, PHOTO), post_form(client, PHOTO)]
    return [answer.status_code for answer in answers]


def assert_nothing_told(*told: str) -> None:
    for text in told:
        assert text
        for secret in (TOKEN, WRONG, *SENT, *READ, *traces_of_the_photo()):
            assert secret not in text, secret
            assert json.dumps(secret)[1:-1] not in text, secret


@pytest.mark.parametrize("format_name", ["json", "text"])
def test_logs_and_metrics_tell_nothing_of_what_was_sent(
    fake: FakeTriton, format_name: logs.Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError(MESSAGE)

    with (
        logged(format_name) as written,
        running_gateway(settings_for(fake, tokens=TOKEN)) as client,
    ):
        statuses = ask_everything(client, fake)
        exposition = client.get("/metrics").text
        fake.reply = lambda _: {}
        monkeypatch.setattr("api.routes.plates.answer_from", fail)
        monkeypatch.setattr("api.reading.PhotoReader.read", fail)
        assert post_raw(client, PHOTO).status_code == 500
    assert {200, 400, 403, 404, 405, 413, 415, 422, 500, 503} <= set(statuses)
    assert "RuntimeError (its message is left out" in written.getvalue()
    assert written.getvalue().count("answered") > len(statuses)
    assert_nothing_told(written.getvalue(), exposition)


def test_the_search_finds_what_is_told() -> None:
    for text in (
        f"x{READ[1]}x",
        SENT[0],
        repr(PHOTO),
        base64.b64encode(PHOTO).decode(),
        PHOTO.hex(),
    ):
        with pytest.raises(AssertionError):
            assert_nothing_told("fine", text)


@pytest.mark.live
def test_real_plates_stand_in_no_log(triton: TritonEndpoints, tmp_path: Path) -> None:
    log = tmp_path / "stderr.log"
    environment = {"PLATES_TRITON_URL": triton.grpc_url, "PLATES_TOKENS": TOKEN}
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "image/jpeg"}
    photo = (SAMPLES / next(iter(read_samples()))).read_bytes()
    with serving(log, **environment) as served:
        answer = httpx.post(f"{served.url}/v1/plates", content=photo, headers=headers, timeout=60)
        exposition = httpx.get(f"{served.url}/metrics").text
    told = log.read_text(encoding="utf-8") + exposition
    assert answer.headers["x-request-id"] in told
    texts = [plate["text"] for plate in answer.json()["plates"] if plate["readable"]]
    assert texts
    for secret in (TOKEN, base64.b64encode(photo[:60]).decode(), *texts):
        assert secret not in told


def test_a_line_per_request(fake: FakeTriton) -> None:
    with logged("json") as written, running_gateway(settings_for(fake)) as client:
        answers = [post_raw(client, PHOTO), post_raw(client, b""), client.get("/nowhere/at/all")]
    told_of = [line for line in lines(written) if line["logger"] == "plates.access"]
    assert len(told_of) == len(answers)
    # A line is written once its answer is on the way: the next request may be told of first.
    by_id = {line["request_id"]: line for line in told_of}
    good, empty, nowhere = (by_id[answer.headers["x-request-id"]] for answer in answers)
    assert good["time"].endswith("+00:00")
    assert good["ms"] > 0
    told = {name: good[name] for name in good.keys() - {"time", "request_id", "ms"}}
    assert told == {
        "level": "info",
        "logger": "plates.access",
        "message": "answered",
        "method": "POST",
        "route": "/v1/plates",
        "status": 200,
        "bytes_in": len(PHOTO),
        "plates": 2,
    }
    assert (empty["status"], empty["refusal"]) == (400, "empty-image")
    assert "plates" not in empty
    assert (nowhere["route"], nowhere["status"]) == ("other", 404)


def test_failures_are_told_with_the_requests_id(fake: FakeTriton) -> None:
    fake.reply = refusing(grpc.StatusCode.INTERNAL, "unexpected KeyError")
    with logged("json") as written, running_gateway(settings_for(fake)) as client:
        request_id = post_raw(client, PHOTO).headers["x-request-id"]
    errors = [line for line in lines(written) if line["level"] == "error"]
    assert errors
    assert {line["request_id"] for line in errors} == {request_id}
    assert any("unexpected KeyError" in str(line["message"]) for line in errors)


def test_an_invalid_request_is_logged_as_refused(fake: FakeTriton) -> None:
    with logged("json") as written, running_gateway(settings_for(fake)) as client:
        assert post_raw(client, PHOTO, roi="secret").status_code == 422
    (line,) = [line for line in lines(written) if line["logger"] == "plates.access"]
    assert (line["status"], line["refusal"]) == (422, "invalid-parameter")


@pytest.mark.parametrize(("by_client", "level"), [(True, "info"), (False, "error")])
def test_a_clients_own_short_limit_is_no_error(
    fake: FakeTriton, monkeypatch: pytest.MonkeyPatch, by_client: bool, level: str
) -> None:
    async def give_up(*_: object) -> None:
        error = RecognizerTimeout("No answer in time.")
        error.by_client = by_client
        raise error from ValueError("Deadline Exceeded")

    monkeypatch.setattr("api.reading.PhotoReader.read", give_up)
    with logged("json") as written, running_gateway(settings_for(fake)) as client:
        assert post_raw(client, PHOTO).status_code == 504
    (line,) = [line for line in lines(written) if line["logger"] == "plates.gateway"]
    assert line["level"] == level
    assert "Deadline Exceeded" in str(line["message"])


def test_uvicorn_speaks_through_the_same_format(fake: FakeTriton) -> None:
    with logged("json") as written, running_gateway(settings_for(fake)):
        logging.getLogger("uvicorn.error").warning("two\nlines")
        logging.getLogger("asyncio").error("first\nfuture: <Task exception=KeyError('B840CK197')>")
    assert [line["message"] for line in lines(written)] == ["two\nlines", "first"]


def record_of(message: str, error: BaseException | None = None) -> logging.LogRecord:
    info = (type(error), error, error.__traceback__) if error else None
    return logging.LogRecord("plates.x", logging.ERROR, "file", 1, message, None, info)


def test_text_is_a_line_per_record() -> None:
    text = logs.TextFormatter().format(record_of("one\ntwo"))
    assert text.endswith("ERROR plates.x: one | two")


@pytest.mark.parametrize("formatter", [logs.TextFormatter(), logs.JsonFormatter()])
def test_tracebacks_of_causes_have_no_messages(formatter: logging.Formatter) -> None:
    plate = READ[0]
    try:
        try:
            int(plate)
        except ValueError as error:
            raise KeyError(MESSAGE) from error
    except KeyError as error:
        text = formatter.format(record_of("failed", error))
    assert "B840CK197" not in text.replace('int("B840CK197")', "").replace(
        'int(\\"B840CK197\\")', ""
    )
    assert text.index("ValueError (") < text.index("KeyError (")
    assert "test_logs.py" in text


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_gets_text(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with logged("json"):
        logs.configure(None)
        (handler,) = logging.getLogger().handlers
        assert isinstance(handler.formatter, logs.TextFormatter) == terminal
