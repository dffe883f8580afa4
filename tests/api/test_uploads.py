"""Photos on their way into the gateway: broken, too large, cut off, or too many."""

import asyncio
import base64
import json
import socket
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import fake_triton
import httpx
import numpy as np
import pytest
from fake_triton import FakeTriton
from photo_files import BAD, GOOD, HEIGHT, WIDTH, encode, pattern
from starlette.requests import Request
from support import (
    PHOTO,
    STATUS,
    assert_problem,
    post_form,
    post_raw,
    running_gateway,
    settings_for,
)

from api.errors import Overloaded
from api.settings import Settings
from api.uploads.receiving import COPIES_AT_TRITON, UploadForm, UploadMemory, read_upload

# Types whose end only the decoder, in Triton, can miss.
TOLD_BY_DECODING = {
    "truncated jpeg",
    "truncated jpeg with a whole thumbnail",
    "truncated bmp",
    "truncated tiff",
    "truncated gif",
    "png of fewer rows than claimed",
}


@pytest.mark.parametrize("post", [post_raw, post_form])
@pytest.mark.parametrize("name", sorted(BAD.keys() - TOLD_BY_DECODING))
def test_bad_photos_never_reach_triton(
    client: httpx.Client, fake: FakeTriton, post: object, name: str
) -> None:
    photo, slug = BAD[name]
    assert_problem(post(client, photo), STATUS[slug], slug)
    assert not fake.photos
    assert post(client, PHOTO).status_code == 200


@pytest.mark.parametrize("media_type", ["image/heic", "image/heif"])
def test_heic_is_taken_where_jpeg_is(
    client: httpx.Client, fake: FakeTriton, media_type: str
) -> None:
    photo = GOOD["heic, orientation 6"]
    raw = client.post("/v1/plates", content=photo, headers={"content-type": media_type})
    form = client.post("/v1/plates", files={"image": ("IMG_1.HEIC", photo, media_type)})
    for answer in (raw, form):
        assert answer.status_code == 200
    assert fake.photos == [photo, photo]


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
    client: httpx.Client, fake: FakeTriton, options: dict, slug: str, said: str
) -> None:
    document = assert_problem(client.post("/v1/plates", **options), 422, slug)
    assert said in document["detail"]
    assert not fake.photos


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


def test_form_cut_off_in_the_photo(client: httpx.Client, fake: FakeTriton) -> None:
    request = client.build_request("POST", "/v1/plates", files={"image": ("a.jpg", PHOTO)})
    body = request.read()[: len(PHOTO) // 2]
    headers = {"content-type": request.headers["content-type"]}
    response = client.post("/v1/plates", content=body, headers=headers)
    document = assert_problem(response, 400, "invalid-form")
    assert "cut off" in document["detail"]
    assert not fake.photos


def padded(size: int) -> bytes:
    """A valid JPEG of exactly that many bytes: what follows its end does not matter."""
    return PHOTO + bytes(size - len(PHOTO))


@pytest.mark.parametrize("post", [post_raw, post_form])
def test_file_limit(client: httpx.Client, fake: FakeTriton, post: object) -> None:
    assert post(client, padded(100_000)).status_code == 200
    for size in (100_001, 150_000, 220_000, 5_000_000):
        assert_problem(post(client, padded(size)), 413, "too-many-bytes")
    assert len(fake.photos) == 1
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


def test_pixel_limit(fake: FakeTriton) -> None:
    with running_gateway(settings_for(fake, max_pixels=WIDTH * HEIGHT)) as client:
        assert post_raw(client, PHOTO).status_code == 200
        larger = encode(pattern(WIDTH, HEIGHT + 1), "PNG")
        assert_problem(post_raw(client, larger), 413, "too-many-pixels")


def test_sender_that_hangs_up(
    client: httpx.Client, fake: FakeTriton, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
        connection.sendall(
            b"POST /v1/plates HTTP/1.1\r\nHost: x\r\nContent-Type: image/jpeg\r\n"
            b"Content-Length: 5000\r\n\r\n" + PHOTO[:100]
        )
    for _ in range(20):
        assert post_raw(client, PHOTO).status_code == 200
    assert set(fake.photos) == {PHOTO}
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def begin_upload(client: httpx.Client, size: int, sent: int, *headers: str) -> socket.socket:
    """Send the head of a photo and leave it at that."""
    connection = socket.create_connection((client.base_url.host, client.base_url.port), timeout=20)
    head = (
        f"POST /v1/plates HTTP/1.1\r\nHost: x\r\nContent-Type: image/jpeg\r\nContent-Length: {size}"
    )
    head = "\r\n".join([head, *headers])
    connection.sendall(f"{head}\r\n\r\n".encode() + padded(size)[:sent])
    return connection


@pytest.mark.parametrize(
    ("settings", "headers"),
    [
        ({"upload_timeout_s": 0.3}, []),
        ({"request_timeout_s": 0.3}, []),
        ({}, ["X-Request-Timeout: 0.3"]),  # one deadline for upload, queue and recognition
    ],
)
def test_slow_uploads_are_given_up(fake: FakeTriton, settings: dict, headers: list[str]) -> None:
    with (
        running_gateway(settings_for(fake, **settings)) as client,
        begin_upload(client, 5000, 4999, *headers) as connection,
        connection.makefile("rb") as stream,
    ):
        answer = stream.read()  # to its end: the gateway closes the connection
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"\r\nconnection: close" in head.lower()
    assert json.loads(body)["type"] == "/problems/upload-timeout"
    assert not fake.photos


def test_a_refused_client_gets_its_answer_by_the_deadline(fake: FakeTriton) -> None:
    """Though the rest of the photo has not come yet."""
    with (
        running_gateway(settings_for(fake, max_bytes=100_000)) as client,
        begin_upload(client, 200_000, 0, "X-Request-Timeout: 0.3") as connection,
    ):
        assert connection.recv(12) == b"HTTP/1.1 413"


def test_slow_uploads_take_no_place(fake: FakeTriton) -> None:
    settings = settings_for(fake, concurrency=1, max_waiting=0)
    with running_gateway(settings) as client, begin_upload(client, 5000, 4999):
        for _ in range(20):
            assert post_raw(client, PHOTO).status_code == 200


def test_uploads_share_a_limited_memory() -> None:
    memory = UploadMemory(100)
    with memory.share() as take:
        take(60)
        with pytest.raises(Overloaded), memory.share() as another:
            another(40)
            another(1)
        with memory.share() as another:  # what the refused one held is free again
            another(40)
            another(-30)
            another(30)
    with memory.share() as take:
        take(100)


def test_uploads_beyond_the_memory_are_refused(fake: FakeTriton) -> None:
    """A photo counts with its copies at Triton: five times."""
    settings = settings_for(fake, upload_memory_bytes=250_000, max_bytes=100_000)
    with running_gateway(settings) as client:
        for _ in range(3):
            assert_problem(post_raw(client, padded(50_001)), 429, "overloaded")
            assert post_raw(client, PHOTO).status_code == 200  # a small one still fits
            assert post_raw(client, padded(50_000)).status_code == 200
            assert post_form(client, padded(50_000)).status_code == 200
        assert 'plates_refused_total{reason="memory"} 3.0' in client.get("/metrics").text


ENCODED = base64.b64encode(PHOTO + bytes(3_000_000))
AS_TEXT = UploadForm(("upload",), text=True)
WIDE = json.dumps({"upload": ENCODED.decode(), "camera": "\U0001f600"}, ensure_ascii=False)
BODIES = {
    "raw": ("image/jpeg", PHOTO + bytes(3_000_000)),
    "json": ("application/json", json.dumps({"upload": ENCODED.decode()}).encode()),
    "json of wide characters": ("application/json", WIDE.encode()),
    "escaped": ("application/x-www-form-urlencoded", b"upload=" + quote(ENCODED).encode()),
    "lines": (
        "application/x-www-form-urlencoded",
        b"upload=" + quote(base64.encodebytes(bytes(3_000_000))).encode(),
    ),
    "form": (
        "multipart/form-data; boundary=b",
        b'--b\r\nContent-Disposition: form-data; name="upload"; filename="a"\r\n\r\n'
        + bytes(3_000_000)
        + b"\r\n--b--\r\n",
    ),
    "text in a form": (
        "multipart/form-data; boundary=b",
        b'--b\r\nContent-Disposition: form-data; name="upload"\r\n\r\n'
        + ENCODED
        + b"\r\n--b--\r\n",
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_no_form_holds_more_than_is_counted(name: str) -> None:
    content_type, body = BODIES[name]
    counted: list[int] = [0]
    chunks = [body[at : at + 65536] for at in range(0, len(body), 65536)]

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks)}

    async def read() -> None:
        memory = UploadMemory(2**40)
        headers = [(b"content-type", content_type.encode())]
        request = Request({"type": "http", "method": "POST", "headers": headers}, receive)
        context = SimpleNamespace(request=request, deadline=SimpleNamespace(remaining_s=60))
        with memory.share() as take:

            def note(count: int) -> None:
                take(count)
                counted.append(memory.used)

            upload = await read_upload(context, AS_TEXT, Settings(), note)
            assert memory.used == 5 * len(upload.photo)
        assert memory.used == 0

    tracemalloc.start()
    try:
        asyncio.run(read())
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    copied = len(body) if name == "raw" or name == "form" else 0  # for a moment, by the loop alone
    assert held < max(counted) + copied + 2**20


COPIES = """
import asyncio, gc, re, sys
from api.settings import Settings
from api.triton import TritonClient

def peak():
    with open("/proc/self/status") as status:
        return int(re.search(r"VmHWM:[^0-9]+([0-9]+)", status.read())[1]) * 1024

async def main():
    async with TritonClient(Settings(triton_url=sys.argv[1])) as client:
        await client.recognize(b"x", 20)
        photo = b"x" * 16_000_000
        gc.collect()
        with open("/proc/self/clear_refs", "w") as reset:
            reset.write("5")
        before = peak()
        await client.recognize(photo, 20)
        print((peak() - before) / len(photo))

asyncio.run(main())
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
def test_a_photo_at_triton_has_no_more_copies_than_are_counted(fake: FakeTriton) -> None:
    command = [sys.executable, "-c", COPIES, f"127.0.0.1:{fake.port}"]
    measured = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert float(measured.stdout) < COPIES_AT_TRITON + 0.5


def test_places_are_limited(fake: FakeTriton) -> None:
    release, arrived = threading.Event(), threading.Semaphore(0)

    def wait(_: bytes) -> dict[str, np.ndarray]:
        arrived.release()
        release.wait(20)
        return fake_triton.outputs()

    fake.reply = wait
    settings = settings_for(fake, concurrency=2, max_waiting=0)
    with running_gateway(settings) as client, ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(post_raw, client, PHOTO) for _ in range(2)]
        try:
            for _ in waiting:
                assert arrived.acquire(timeout=20)
            response = post_raw(client, PHOTO)
        finally:
            release.set()
        assert_problem(response, 429, "overloaded")
        assert int(response.headers["retry-after"]) >= 1
        assert [future.result().status_code for future in waiting] == [200, 200]
        assert post_raw(client, PHOTO).status_code == 200
