"""Heads, forms and routes: what sound requests consist of."""

import random
from pathlib import Path

PLATES, BATCH = "/v1/plates", "/v1/plates/batch"
SNAPSHOT, ALPR = "/v1/plate-reader/", "/v1/vision/alpr"
# Each with the field that a photo has there.
PHOTO_FIELDS = {
    PLATES: b"image",
    BATCH: b"image",
    SNAPSHOT: b"upload",
    "/v1/plate-reader": b"upload",
    ALPR: b"upload",
    "/v1/image/alpr": b"upload",
}
SINGLE = tuple(path for path in PHOTO_FIELDS if path != BATCH)
SAMPLES = sorted((Path(__file__).parent.parent / "samples").glob("*.jpg"))

Header = tuple[bytes, bytes]


def head(method: bytes, target: bytes, *headers: Header) -> bytes:
    """A request's head, its connection not kept."""
    fields = ((b"Host", b"localhost"), (b"Connection", b"close"), *headers)
    lines = (name + b": " + value + b"\r\n" for name, value in fields)
    return method + b" " + target + b" HTTP/1.1\r\n" + b"".join(lines) + b"\r\n"


def post(path: str, kind: bytes, body: bytes, *headers: Header, query: bytes = b"") -> bytes:
    """A whole POST request."""
    told = ((b"Content-Type", kind), (b"Content-Length", b"%d" % len(body)))
    return head(b"POST", path.encode() + query, *told, *headers) + body


def raw_photo(path: str, photo: bytes, *headers: Header, query: bytes = b"") -> bytes:
    """A photo as the body itself."""
    return post(path, b"image/jpeg", photo, *headers, query=query)


def part(name: bytes, content: bytes, filename: bytes | None = None, *lines: bytes) -> bytes:
    """One part of a form, without the boundary before it."""
    disposition = b'Content-Disposition: form-data; name="' + name + b'"'
    if filename is not None:
        disposition += b'; filename="' + filename + b'"'
    return b"\r\n".join((disposition, *lines, b"", content))


def form(boundary: bytes, *parts: bytes) -> bytes:
    """A sound form of these parts."""
    opened = b"".join(b"--" + boundary + b"\r\n" + each + b"\r\n" for each in parts)
    return opened + b"--" + boundary + b"--\r\n"


def form_type(boundary: bytes) -> bytes:
    """The Content-Type of a form."""
    return b"multipart/form-data; boundary=" + boundary


def photo_form(path: str, photo: bytes, *others: bytes, headers: tuple[Header, ...] = ()) -> bytes:
    """A photo in the form of a route, with further parts."""
    body = form(b"x-limit", part(PHOTO_FIELDS[path], photo, b"photo.jpg"), *others)
    return post(path, form_type(b"x-limit"), body, *headers)


def sample(rng: random.Random) -> bytes:
    """A photo with plates."""
    return rng.choice(SAMPLES).read_bytes()
