"""Uploads to the gateway: file names, and limits of bytes, time and memory."""

import asyncio
import base64
import contextlib
import json
import time
import tracemalloc
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from gateway_support import BATCH, MULTIPART, assert_dialect_error, form, part, send
from photo_files import GOOD
from raw_http import UPLOAD, assert_refused, begin_upload, connect, everything
from starlette.requests import Request
from support import PHOTO, assert_problem, number, post_form, post_raw, running_gateway, wait_until

from api.errors import InvalidForm
from api.settings import Settings
from api.uploads.receiving import UploadForm, UploadMemory, read_upload


def test_heic_photos_are_accepted_raw_and_in_forms(client, fake):
    photo = GOOD["heic, orientation 6"]
    for kind in ("image/heic", "image/heif", "Image/HEIC"):
        assert send(client, photo, kind=kind).status_code == 200
        assert client.post("/v1/plates", files={"image": ("a", photo, kind)}).status_code == 200
    assert fake.photos == [photo] * 6


@pytest.mark.parametrize(
    ("disposition", "filename"),
    [
        ('filename=""', None),
        ('filename="../../etc/passwd"', "passwd"),
        (r'filename="C:\photos\a.jpg"', "a.jpg"),
        ('filename="номер.jpg"', "номер.jpg"),
        ("filename*=UTF-8''%D0%BD%D0%BE%D0%BC%D0%B5%D1%80.jpg", "номер.jpg"),
        ("filename*=UTF-8''..%2F..%2Fetc%2Fpasswd", "passwd"),
        ("filename*=UTF-8''b.jpg; filename=a.jpg", "a.jpg"),
        ('filename="a%0d%0ab\x1b[31m.jpg"', "a%0d%0ab[31m.jpg"),
        (f'filename="{"x" * 300}"', "x" * 255),
    ],
)
def test_file_names_come_back_without_paths_and_control_characters(client, disposition, filename):
    body = form(part(PHOTO, f"form-data; name=image; {disposition}"))
    (result,) = send(client, body, BATCH).json()["results"]
    assert result["filename"] == filename
    reader = form(part(PHOTO, f"form-data; name=upload; {disposition}"))
    reader = reader.replace(b"Content-Disposition", b"content-disposition")  # Dart's spelling
    assert send(client, reader, "/v1/plate-reader/").json()["filename"] == (filename or "upload")


def padded(size):
    """A valid JPEG of exactly `size` bytes: decoders ignore the bytes after its end."""
    return PHOTO + bytes(size - len(PHOTO))


def test_photos_above_the_limit_of_bytes_are_refused(client, fake):
    for post in (post_raw, post_form):
        assert post(client, padded(100_000)).status_code == 200
        for size in (100_001, 150_000, 220_000, 5_000_000):
            assert_problem(post(client, padded(size)), 413, "too-many-bytes")
    assert len(fake.photos) == 2


def test_the_limit_of_bytes_applies_to_the_photo_decoded_from_text(client, fake):
    def requests_of(photo):
        text = base64.b64encode(photo).decode()
        fields = {"upload": text}
        return [{"files": {"upload": (None, text)}}, {"json": fields}, {"data": fields}]

    for options in requests_of(padded(100_000)):
        assert client.post("/v1/plate-reader", **options).status_code == 201
    begun = b'{"upload":"' + base64.b64encode(bytes(1_000_000))
    unfinished = {"content": begun, "headers": {"content-type": "application/json"}}
    for options in (*requests_of(padded(100_001)), requests_of(bytes(1_000_000))[0], unfinished):
        assert_dialect_error(client.post("/v1/plate-reader", **options), 413, "larger than")
    assert len(fake.photos) == 3


@pytest.mark.parametrize("length", [b"Content-Length: 1000000000", b"Transfer-Encoding: chunked"])
def test_the_connection_of_an_endless_body_is_closed(client, length):
    sent, chunk = 0, b"10000\r\n" + bytes(0x10000) + b"\r\n"
    with connect(client) as connection, pytest.raises(ConnectionError):
        connection.sendall(UPLOAD + length + b"\r\n\r\n")
        while sent < 10**8:
            sent += connection.send(chunk)
    assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize("setting", ["upload_timeout_s", "request_timeout_s", None])
def test_slow_uploads_get_408(fake, setting):
    limits = {setting: 0.3} if setting else {}
    # Upload, queue and recognition share one deadline.
    headers = () if setting else (b"X-Request-Timeout: 0.3",)
    with (
        running_gateway(fake, **limits) as client,
        begin_upload(client, PHOTO[:-1], *headers) as connection,
    ):
        assert_refused(everything(connection), 408, "upload-timeout")
    assert not fake.photos


@pytest.mark.settings(upload_memory_bytes=250_000, max_bytes=100_000, concurrency=4)
def test_uploads_beyond_the_memory_limit_are_refused(client):
    """A photo counts five times, because Triton holds copies of it."""
    for _ in range(3):
        assert_problem(post_raw(client, padded(50_001)), 413, "too-many-bytes")
        assert post_raw(client, PHOTO).status_code == 200  # a small one still fits
        assert post_raw(client, padded(50_000)).status_code == 200
        assert post_form(client, padded(50_000)).status_code == 200
    batch = [("image", photo) for photo in (padded(30_000), PHOTO, padded(30_000))]
    assert_problem(client.post(BATCH, files=batch), 413, "too-many-bytes")  # two at a time

    def is_refused_beside_another():
        with begin_upload(client, bytes(99_000), length=100_000):
            time.sleep(0.05)  # The upload must be first: the later one is refused.
            return post_raw(client, padded(40_000)).status_code == 429

    wait_until(is_refused_beside_another)
    wait_until(lambda: post_raw(client, padded(40_000)).status_code == 200)
    assert number(client, 'plates_refused_total{reason="memory"}') >= 1


PIXELS = bytes(3_000_000)
ENCODED = base64.b64encode(PIXELS)
WIDE = json.dumps({"upload": ENCODED.decode(), "camera": "\U0001f600"}, ensure_ascii=False)
URLENCODED = "application/x-www-form-urlencoded"
BODIES = {
    "raw": ("image/jpeg", PIXELS),
    "json": ("application/json", json.dumps({"upload": ENCODED.decode()}).encode()),
    "json of wide characters": ("application/json", WIDE.encode()),
    "escapes, no photo": ("application/json", b'{"upload": {"": "\\ud83d\\ude00%s"}}' % ENCODED),
    "DEL, no photo": ("application/json", b'{"camera": {"": "%s"}}' % (b"\x7f" * 4_000_000)),
    "escaped": (URLENCODED, b"upload=" + quote(ENCODED).encode()),
    "lines": (URLENCODED, b"upload=" + quote(base64.encodebytes(PIXELS)).encode()),
    "form": (MULTIPART, form(part(PIXELS, "form-data; name=upload; filename=a"))),
    "text in a form": (MULTIPART, form(part(ENCODED, "form-data; name=upload"))),
}


@pytest.mark.parametrize("name", BODIES)
def test_reading_an_upload_holds_no_more_memory_than_is_counted(name):
    content_type, body = BODIES[name]
    counted = [0]
    chunks = [body[at : at + 65536] for at in range(0, len(body), 65536)]

    async def receive():
        return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks)}

    async def read():
        memory, deadline = UploadMemory(2**40), SimpleNamespace(remaining_s=60)
        headers = [(b"content-type", content_type.encode())]
        request = Request({"type": "http", "method": "POST", "headers": headers}, receive)
        refused = pytest.raises(InvalidForm) if "no photo" in name else contextlib.nullcontext()
        with memory.share() as take, refused:

            def note(count):
                take(count)
                counted.append(memory.used)

            context = SimpleNamespace(request=request, deadline=deadline, take=note)
            upload = await read_upload(context, UploadForm(("upload",), text=True), Settings())
            assert memory.used == 5 * len(upload.photo) == 5 * len(PIXELS)
        assert memory.used == 0

    tracemalloc.start()
    try:
        asyncio.run(read())
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    copied = len(body) if name in ("raw", "form") else 0  # briefly, by the event loop
    assert held < max(counted) + copied + 2**20
