"""Photos on their way into the gateway: odd, hostile, broken, too large, cut off, or too many."""

import asyncio
import base64
import json
import time
import tracemalloc
from types import SimpleNamespace
from urllib.parse import quote

import httpx
import pytest
from fake_triton import FakeTriton
from gateway_support import UPLOAD, assert_refused, begin_upload, connect, everything
from photo_files import BAD, GOOD, HEIGHT, WIDTH, encode, pattern
from starlette.requests import Request
from support import (
    PHOTO,
    STATUS,
    assert_problem,
    number,
    post_form,
    post_raw,
    running_gateway,
    settings_for,
    wait_until,
)

from api.settings import Settings
from api.uploads.receiving import UploadForm, UploadMemory, read_upload

BATCH = "/v1/plates/batch"
MULTIPART = "multipart/form-data; boundary=b"
# Types whose end only the decoder, in Triton, can miss.
REFUSED_BY_TRITON = {
    "truncated jpeg",
    "truncated jpeg with a whole thumbnail",
    "truncated bmp",
    "truncated tiff",
    "truncated gif",
    "png of fewer rows than claimed",
}


@pytest.mark.parametrize("post", [post_raw, post_form])
@pytest.mark.parametrize("name", sorted(BAD.keys() - REFUSED_BY_TRITON))
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


def part(content: bytes = PHOTO, disposition: str = "", *headers: str) -> bytes:
    disposition = disposition or 'form-data; name="image"; filename="a.jpg"'
    head = "\r\n".join(["--b", f"Content-Disposition: {disposition}", *headers, "", ""])
    return head.encode() + content + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--b--\r\n"


def send(
    client: httpx.Client, body: bytes, path: str = "/v1/plates", kind: str = MULTIPART
) -> httpx.Response:
    return client.post(path, content=body, headers={"content-type": kind})


ODD = {
    "line end first": b"\r\n" + part(),
    "type and encoding": part(
        PHOTO, "", "Content-Type: image/jpeg", "Content-Transfer-Encoding: binary"
    ),
    "headers in capitals": part().replace(b"Content-Disposition", b"CONTENT-DISPOSITION"),
    "name without quotes": part(PHOTO, "form-data; name=image; filename=a.jpg"),
    "very long name": part(PHOTO, f'form-data; name="image"; filename="{"x" * 3000}"'),
    "eight headers": part(PHOTO, "", *[f"X-{n}: y" for n in range(7)]),
    "header twice": part(PHOTO, "", 'Content-Disposition: form-data; name="other"'),
    "boundary inside the photo's end": part(PHOTO + b"\r\n--c--\r\n--"),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_forms_are_read(client: httpx.Client, fake: FakeTriton, name: str) -> None:
    assert send(client, form(ODD[name])).status_code == 200
    assert fake.photos[0].startswith(PHOTO)


@pytest.mark.parametrize(
    ("disposition", "filename"),
    [
        ('filename="a.jpg"', "a.jpg"),
        ('filename=""', None),
        ('filename="../../etc/passwd"', "passwd"),
        (r'filename="C:\photos\a.jpg"', "a.jpg"),
        ('filename="номер.jpg"', "номер.jpg"),
        ("filename*=UTF-8''%D0%BD%D0%BE%D0%BC%D0%B5%D1%80.jpg", "номер.jpg"),
        ("filename*=iso-8859-1'en'%A3%20rates.jpg", "£ rates.jpg"),
        ("filename*=UTF-8''%FF%FE.jpg", "\ufffd\ufffd.jpg"),
        ("filename*=UTF-8''..%2F..%2Fetc%2Fpasswd", "passwd"),
        ("filename=\"plain.jpg\"; filename*=UTF-8''other.jpg", "plain.jpg"),
        ('filename="a%0d%0ab\x1b[31m.jpg"', "a%0d%0ab[31m.jpg"),
        (f'filename="{"x" * 300}"', "x" * 255),
    ],
)
@pytest.mark.usefixtures("fake")
def test_file_names_come_back_harmless(
    client: httpx.Client, disposition: str, filename: str | None
) -> None:
    body = form(part(PHOTO, f"form-data; name=image; {disposition}"))
    (result,) = send(client, body, BATCH).json()["results"]
    assert result["filename"] == filename
    reader = form(part(PHOTO, f"form-data; name=upload; {disposition}"))
    assert send(client, reader, "/v1/plate-reader/").json()["filename"] == (filename or "upload")


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_forms_in_pieces_of_any_size(client: httpx.Client, fake: FakeTriton, size: int) -> None:
    body = form(part(b"0,0,60,32", "form-data; name=roi"), part())
    pieces = (body[at : at + size] for at in range(0, len(body), size))
    response = client.post("/v1/plates", content=pieces, headers={"content-type": MULTIPART})
    assert [plate["text"] for plate in response.json()["plates"]] == ["B840CK197"]
    assert fake.photos == [PHOTO]


HOSTILE = {
    "empty": (b"", "cut off"),
    "nonsense": (b"nonsense", "not a valid"),
    "no closing boundary": (part(), "cut off"),
    "half a closing boundary": (part() + b"--b", "cut off"),
    "cut off in the photo": (part()[: len(PHOTO) // 2], "cut off"),
    "cut off in a header": (b"--b\r\nContent-Dispo", "cut off"),
    "part without headers": (form(b"--b\r\n\r\nx\r\n"), "no name"),
    "part without a name": (form(part(PHOTO, "form-data; filename=a")), "no name"),
    "attachment": (form(part(PHOTO, 'attachment; name="image"')), "no name"),
    "long field name": (form(part(b"1", f'form-data; name="{"x" * 300}"')), "255 characters"),
    "nine headers": (form(part(PHOTO, "", *[f"X-{n}: y" for n in range(8)])), "eader"),
    "long header": (form(part(PHOTO, "", f"X: {'y' * 5000}")), "eader"),
    "header without an end": (b"--b\r\nX: " + b"y" * 50_000, "eader"),
    "many parts": (form(*[part(b"1", f"form-data; name=a{n}") for n in range(40)]), "parts"),
    "long text": (form(part(), part(b"1" * 20_000, "form-data; name=roi")), "'roi' is longer"),
    "form in the form": (
        form(part(b"--c--", "", "Content-Type: multipart/mixed; boundary=c")),
        "form inside the form",
    ),
    "base64": (
        form(part(base64.b64encode(PHOTO), "", "Content-Transfer-Encoding: base64")),
        "as they are",
    ),
    "made-up encoding": (form(part(PHOTO, "", "Content-Transfer-Encoding: x")), "as they are"),
    "null bytes": (b"\0" * 1000, "not a valid"),
    "other boundary": (form(part()).replace(b"--b", b"--c"), "not a valid"),
    "bare line feeds": (form(part()).replace(b"\r\n", b"\n"), "not a valid"),
}


@pytest.mark.parametrize("path", ["/v1/plates", BATCH])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_forms_are_refused(
    client: httpx.Client, fake: FakeTriton, name: str, path: str
) -> None:
    body, reason = HOSTILE[name]
    detail = assert_problem(send(client, body, path), 400, "invalid-form")["detail"]
    assert reason in detail and len(detail) < 500
    assert not fake.photos
    assert send(client, form(part()), path).status_code == 200


OTHER = part(PHOTO, "form-data; name=other; filename=a.jpg")


@pytest.mark.parametrize(
    ("kind", "body", "slug", "reason"),
    [
        (MULTIPART, form(OTHER), "missing-image", "'other'"),
        (MULTIPART, form(), "missing-image", "none"),
        (MULTIPART, form(part(b"a", "form-data; name=image")), "missing-image", "as text"),
        (MULTIPART, form(part(), part()), "invalid-parameter", "One photo"),
        (MULTIPART, form(part(), OTHER), "invalid-parameter", "other"),
        ("multipart/form-data", b"x", "invalid-form", "no boundary"),
        (f"{MULTIPART}{'b' * 256}", b"x", "invalid-form", "exceeds maximum"),
        (f"{MULTIPART}{'b' * 5000}", b"x", "invalid-form", "exceeds maximum"),
        ("application/json", b"{}", "unsupported-media-type", "application/json"),
        ("application/x-www-form-urlencoded", PHOTO, "unsupported-media-type", "urlencoded"),
        ("", PHOTO, "unsupported-media-type", "missing"),
    ],
)
def test_bodies_without_one_photo(
    client: httpx.Client, fake: FakeTriton, kind: str, body: bytes, slug: str, reason: str
) -> None:
    document = assert_problem(send(client, body, kind=kind), STATUS[slug], slug)
    assert reason in document["detail"]
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


def test_pixel_limit(fake: FakeTriton) -> None:
    with running_gateway(settings_for(fake, max_pixels=WIDTH * HEIGHT)) as client:
        assert post_raw(client, PHOTO).status_code == 200
        larger = encode(pattern(WIDTH, HEIGHT + 1), "PNG")
        assert_problem(post_raw(client, larger), 413, "too-many-pixels")


@pytest.mark.parametrize("length", [b"Content-Length: 1000000000", b"Transfer-Encoding: chunked"])
def test_a_body_without_an_end_is_cut_off_soon_after_the_limit(
    client: httpx.Client, length: bytes
) -> None:
    sent, chunk = 0, b"10000\r\n" + bytes(0x10000) + b"\r\n"
    with connect(client) as connection, pytest.raises(ConnectionError):
        connection.sendall(UPLOAD + length + b"\r\n\r\n")
        while sent < 10**8:
            sent += connection.send(chunk)
    assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize("setting", ["upload_timeout_s", "request_timeout_s", None])
def test_slow_uploads_are_given_up(fake: FakeTriton, setting: str | None) -> None:
    limits = {setting: 0.3} if setting else {}
    # One deadline for upload, queue and recognition.
    headers = () if setting else (b"X-Request-Timeout: 0.3",)
    with (
        running_gateway(settings_for(fake, **limits)) as client,
        begin_upload(client, PHOTO[:-1], *headers) as connection,
    ):
        assert_refused(everything(connection), 408, "upload-timeout")
    assert not fake.photos


def test_uploads_beyond_the_memory_are_refused(fake: FakeTriton) -> None:
    """A photo counts with its copies at Triton: five times."""
    settings = settings_for(fake, upload_memory_bytes=250_000, max_bytes=100_000)
    with running_gateway(settings) as client:
        for _ in range(3):
            assert_problem(post_raw(client, padded(50_001)), 429, "overloaded")
            assert post_raw(client, PHOTO).status_code == 200  # a small one still fits
            assert post_raw(client, padded(50_000)).status_code == 200
            assert post_form(client, padded(50_000)).status_code == 200

        def is_refused_beside_another() -> bool:
            with begin_upload(client, bytes(99_000), length=100_000):
                time.sleep(0.05)  # Were it later, it would be the one that is refused.
                return post_raw(client, padded(40_000)).status_code == 429

        wait_until(is_refused_beside_another)
        wait_until(lambda: post_raw(client, padded(40_000)).status_code == 200)
        assert number(client, 'plates_refused_total{reason="memory"}') >= 4


PIXELS = bytes(3_000_000)
ENCODED = base64.b64encode(PIXELS)
WIDE = json.dumps({"upload": ENCODED.decode(), "camera": "\U0001f600"}, ensure_ascii=False)
AS_TEXT_TOO = UploadForm(("upload",), text=True)
URLENCODED = "application/x-www-form-urlencoded"
BODIES = {
    "raw": ("image/jpeg", PIXELS),
    "json": ("application/json", json.dumps({"upload": ENCODED.decode()}).encode()),
    "json of wide characters": ("application/json", WIDE.encode()),
    "escaped": (URLENCODED, b"upload=" + quote(ENCODED).encode()),
    "lines": (URLENCODED, b"upload=" + quote(base64.encodebytes(PIXELS)).encode()),
    "form": (MULTIPART, form(part(PIXELS, "form-data; name=upload; filename=a"))),
    "text in a form": (MULTIPART, form(part(ENCODED, "form-data; name=upload"))),
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

            upload = await read_upload(context, AS_TEXT_TOO, Settings(), note)
            assert memory.used == 5 * len(upload.photo) == 5 * len(PIXELS)
        assert memory.used == 0

    tracemalloc.start()
    try:
        asyncio.run(read())
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    copied = len(body) if name in ("raw", "form") else 0  # for a moment, by the loop alone
    assert held < max(counted) + copied + 2**20
