"""Multipart bodies that are malformed, or sound and out of all proportion."""

import random
from collections.abc import Callable

from photo_files import GOOD

from fuzzing.attempts import Attempt
from fuzzing.requests import BATCH, PHOTO_FIELDS, form, form_type, part, post

_PHOTO = GOOD["jpeg"]
_NAMES = (b"", b"\0", b"image\0", b"a" * 5000, b'"', b"\xff\xfe", b"../../etc/passwd", b"image[]")
_TYPES = (
    *(b"multipart/form-data", b"multipart/form-data; boundary=", b"multipart/mixed; boundary=b"),
    *(b'multipart/form-data; boundary="b', b"multipart/form-data; boundary=" + b"b" * 3000),
    *(b"multipart/form-data; boundary=b; boundary=c", b"multipart/form-data; boundary=\xff\0"),
    *(b"application/json", b"application/x-www-form-urlencoded", b"text/plain", b"image/", b""),
    *(b"image/jpeg; charset=utf-32", b"multipart/form-data; boundary=b; charset=\xd0\xb6"),
)

Made = Callable[[random.Random, bytes], tuple[bytes, bytes]]


def _sound(field: bytes) -> bytes:
    return form(b"b", part(field, _PHOTO, b"a.jpg"))


def _damaged(rng: random.Random, field: bytes) -> tuple[bytes, bytes]:
    """A sound form that lost, gained or changed bytes around its photo."""
    body = bytearray(_sound(field))
    edge = body.index(_PHOTO)
    places = [*range(edge), *range(edge + len(_PHOTO), len(body))]
    for _ in range(rng.choice((1, 2, 8))):
        place = rng.choice(places)
        change = rng.randrange(3)
        if change == 0:
            body[place % len(body)] = rng.randrange(256)
        elif change == 1:
            del body[place % len(body)]
        else:
            body.insert(place, rng.choice(b'\r\n-\0"; :'))
    return form_type(b"b"), bytes(body)


def _cut_off(rng: random.Random, field: bytes) -> tuple[bytes, bytes]:
    body = _sound(field)
    return form_type(b"b"), body[: rng.randrange(len(body))]


def _odd_type(rng: random.Random, field: bytes) -> tuple[bytes, bytes]:
    return rng.choice(_TYPES), _sound(field)


def _many_parts(rng: random.Random, field: bytes) -> tuple[bytes, bytes]:
    count = rng.choice((17, 100, 5000))
    content = rng.choice((b"", b"x", b"x" * 40))
    name = rng.choice((None, b"a.jpg"))
    return form_type(b"b"), form(b"b", *(part(field, content, name) for _ in range(count)))


def _huge_header(rng: random.Random, field: bytes) -> tuple[bytes, bytes]:
    line = rng.choice((b"X: " + b"y" * 100_000, b"X" * 50_000 + b": y", b"X: y\r\n" * 3000))
    return form_type(b"b"), form(b"b", part(field, _PHOTO, b"a.jpg", line))


def _odd_names(rng: random.Random, field: bytes) -> tuple[bytes, bytes]:
    name = rng.choice((field, *_NAMES))
    return form_type(b"b"), form(b"b", part(name, _PHOTO, rng.choice(_NAMES)))


def _repeated(rng: random.Random, field: bytes) -> tuple[bytes, bytes]:
    others = [part(field, _PHOTO, b"b.jpg"), part(field, b"text"), part(b"roi", b"0,0,9,9")]
    return form_type(b"b"), form(b"b", part(field, _PHOTO, b"a.jpg"), *rng.choices(others, k=3))


def _encoded(rng: random.Random, field: bytes) -> tuple[bytes, bytes]:
    kinds = (b"base64", b"quoted-printable", b"7bit", b"x-uuencode", b"\xff")
    lines = (
        b"Content-Transfer-Encoding: " + rng.choice(kinds),
        b"Content-Type: " + rng.choice((*_TYPES, b"image/svg+xml", b"a" * 4000)),
    )
    return form_type(b"b"), form(b"b", part(field, _PHOTO, b"a.jpg", *lines))


def _nested(rng: random.Random, field: bytes) -> tuple[bytes, bytes]:
    body = _PHOTO
    for level in range(rng.choice((1, 3, 40))):
        boundary = b"c%d" % level
        body = form(boundary, part(field, body, b"a.jpg", b"Content-Type: " + form_type(boundary)))
    return form_type(b"b"), form(b"b", part(field, body, b"a.jpg"))


def _base64(rng: random.Random, field: bytes) -> tuple[bytes, bytes]:
    texts = (b"=" * 5000, b"A", b"data:image/png;base64,", b"\xff\xd8", b"AA==AA==", b"%%%")
    text = rng.choice((*texts, b"/9j/" + b"A" * rng.randrange(4000)))
    name = rng.choice((b"upload", field))
    json = b'{"' + name + b'": "' + text + b'"}'
    deep = b'{"' + name + b'": ' + b"[" * 30_000 + b"]" * 30_000 + b"}"
    choice = rng.randrange(4)
    if choice == 0:
        return b"application/json", rng.choice((json, deep, b"[]", b"{}", b"null", b"1e999"))
    if choice == 1:
        return b"application/x-www-form-urlencoded", name + b"=" + text + b"&" * rng.randrange(3000)
    return form_type(b"b"), form(b"b", part(name, text))


_FORMS: tuple[Made, ...] = (
    *(_damaged, _damaged, _cut_off, _odd_type, _many_parts, _huge_header),
    *(_odd_names, _repeated, _encoded, _nested, _base64),
)


def malformed_form(rng: random.Random) -> Attempt:
    """A malformed body, on any route that takes photos."""
    path = rng.choice((*PHOTO_FIELDS, BATCH))
    kind, body = rng.choice(_FORMS)(rng, PHOTO_FIELDS[path])
    # Bytes that no header may hold are the head's fault, not the form's.
    return Attempt("malformed forms", path, (post(path, kind, body),))
