"""Hostile requests: files, forms, pictures, connections and parameters, and their shares."""

import random
import struct
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

import cv2
import numpy as np
from photo_bombs import CHEAP, REFUSED, flat, jpeg_of_scans, png_of_zeros
from photo_files import BAD, GOOD

from fuzzing.exchange import (
    ALPR,
    BATCH,
    FORM,
    PHOTO_FIELDS,
    PLATES,
    READER,
    SINGLE,
    Attempt,
    Header,
    form,
    head,
    part,
    post,
    raw_photo,
)
from plate_models.spec import LIMITS

PHOTO = GOOD["jpeg"]
SAMPLES = sorted((Path(__file__).parent.parent / "samples").glob("*.jpg"))
_FILES = tuple(GOOD.values())
_BOMBS = tuple(make for make, _ in REFUSED.values()) + tuple(CHEAP.values())
# What a fuzzer sends should be many, not long.
_MAX_BOMB_BYTES = 300_000
_SIDE = int(LIMITS.max_pixels**0.5)

# What the formats' parts begin with, and numbers at the edge of what they hold.
_WORDS = (
    *(b"\xff\xd8", b"\xff\xd9", b"\xff\xda", b"\xff\xc0", b"\xff\xc2", b"\xff\xc4", b"\xff\xdd"),
    *(b"IHDR", b"IDAT", b"IEND", b"PLTE", b"tRNS", b"eXIf", b"acTL", b"fcTL", b"iCCP"),
    *(b"RIFF", b"WEBP", b"VP8X", b"VP8L", b"VP8 ", b"ALPH", b"ANIM", b"ANMF", b"EXIF"),
    *(b"GIF89a", b"!\xf9\x04", b"!\xff\x0b", b"\x2c", b"\x3b", b"BM", b"II*\0", b"MM\0*"),
    *(b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\x01", b"\xff\xff"),
    *(struct.pack("<HHI", tag, kind, 2**31) for tag in (256, 259, 273, 322) for kind in (3, 4)),
)


def _flip(rng: random.Random, data: bytes) -> bytes:
    damaged = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16, 64))):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def _damage(rng: random.Random, data: bytes) -> bytes:
    place, word, other = rng.randrange(len(data)), rng.choice(_WORDS), rng.choice(_FILES)
    match rng.randrange(8):
        case 0:  # headers are short, and most of a file is pixels
            end = rng.choice((200, len(data)))
            return _flip(rng, data[:end]) + data[end:]
        case 1:
            return data[: place + 1]
        case 2 | 3:  # between what is there, or over it
            return data[:place] + word + data[place + rng.choice((0, len(word))) :]
        case 4:  # a number of two or four bytes, where headers have theirs
            place, size = place % 120, rng.choice((2, 4))
            edges = (0, 1, 256**size - 1, 256**size // 2, 256**size // 2 - 1, len(data))
            number = rng.choice((*edges, rng.randrange(256**size))) % 256**size
            lie = number.to_bytes(size, rng.choice(("little", "big")))
            return data[:place] + lie + data[place + size :]
        case 5:  # a piece is lost, or comes several times
            piece = data[place : place + rng.randrange(1, 400)]
            return data[:place] + piece * rng.choice((0, 2, 50, 500)) + data[place + len(piece) :]
        case 6:
            return data[: place + 1] + other[rng.randrange(len(other)) :]
        case _:
            return data + other if rng.random() < 0.5 else other[: rng.randrange(4, 40)] + data


@cache
def _made(make: Callable[[], bytes]) -> bytes:
    return make()


def hostile_file(rng: random.Random) -> bytes:
    """A file, mostly one that was sound before."""
    choice = rng.random()
    if choice < 0.04:
        return rng.choice(tuple(BAD.values()))[0]
    if choice < 0.08:
        return _made(rng.choice(_BOMBS))[:_MAX_BOMB_BYTES]
    data = rng.choice(_FILES)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = _damage(rng, data)
    return data


def damaged_file(rng: random.Random) -> Attempt:
    """A hostile file, raw or in a form, on any route that takes photos."""
    photo = hostile_file(rng)
    if rng.random() < 0.1:
        # One bad file must not fail the rest: the answer is always 200.
        files = [photo, *(hostile_file(rng) for _ in range(rng.randrange(4)))]
        body = form(*(part(PHOTO_FIELDS[BATCH], each, b"a.jpg") for each in files))
        return Attempt(BATCH, (post(BATCH, FORM, body),), statuses=frozenset({200, 429}))
    path = rng.choice(tuple(SINGLE))
    body = form(part(SINGLE[path], photo, b"a.jpg"))
    return Attempt(path, (rng.choice((raw_photo(path, photo), post(path, FORM, body))),))


_NAMES = (b"", b"\0", b"image\0", b"a" * 5000, b'"', b"\xff\xfe", b"../../etc/passwd", b"image[]")
_TYPES = (
    *(b"multipart/form-data", b"multipart/form-data; boundary=", b"multipart/mixed; boundary=b"),
    *(FORM.replace(b"=", b'="'), FORM + b"b" * 3000, FORM + b"; boundary=c", FORM + b"\xff\0"),
    *(b"application/json", b"application/x-www-form-urlencoded", b"text/plain", b"image/", b""),
    *(b"image/jpeg; charset=utf-32", FORM + b"; charset=\xd0\xb6"),
)
_ENCODINGS = (b"base64", b"quoted-printable", b"7bit", b"x-uuencode", b"\xff")
_BASE64 = (b"=" * 5000, b"A", b"data:image/png;base64,", b"\xff\xd8", b"AA==AA==", b"%%%")


def _form_around(rng: random.Random, name: bytes) -> tuple[bytes, bytes]:
    """Type and body: malformed, or sound and out of all proportion."""
    sound = form(part(name, PHOTO, b"a.jpg"))
    match rng.randrange(11):
        case 0 | 1:  # bytes around the photo are lost, gained or changed
            edge = sound.index(PHOTO)
            places = [*range(edge), *range(edge + len(PHOTO), len(sound))]
            body = bytearray(sound)
            for _ in range(rng.choice((1, 2, 8))):
                place = rng.choice(places) % len(body)
                doubled = body[place : place + 1] + bytes([rng.choice(b'\r\n-\0"; :')])
                body[place : place + 1] = rng.choice((rng.randbytes(1), b"", doubled))
            return FORM, bytes(body)
        case 2:
            return FORM, sound[: rng.randrange(len(sound))]
        case 3:
            return rng.choice(_TYPES), sound
        case 4:
            one = part(name, rng.choice((b"", b"x", b"x" * 40)), rng.choice((None, b"a.jpg")))
            return FORM, form(*[one] * rng.choice((17, 100, 5000)))
        case 5:
            line = (b"X: " + b"y" * 100_000, b"X" * 50_000 + b": y", b"X: y\r\n" * 3000)
            return FORM, form(part(name, PHOTO, b"a.jpg", rng.choice(line)))
        case 6:
            return FORM, form(part(rng.choice((name, *_NAMES)), PHOTO, rng.choice(_NAMES)))
        case 7:
            more = part(name, PHOTO, b"b.jpg"), part(name, b"text"), part(b"roi", b"0,0,9,9")
            return FORM, form(part(name, PHOTO, b"a.jpg"), *rng.choices(more, k=3))
        case 8:
            encoding = b"Content-Transfer-Encoding: " + rng.choice(_ENCODINGS)
            kind = b"Content-Type: " + rng.choice((*_TYPES, b"image/svg+xml", b"a" * 4000))
            return FORM, form(part(name, PHOTO, b"a.jpg", encoding, kind))
        case 9:
            body = PHOTO
            for level in range(rng.choice((1, 3, 40))):
                limit = b"c%d" % level
                kind = b"Content-Type: multipart/form-data; boundary=" + limit
                body = form(part(name, body, b"a.jpg", kind), boundary=limit)
            return FORM, form(part(name, body, b"a.jpg"))
        case _:  # Base64 that is none, in a form, in an urlencoded one, or in JSON
            name = rng.choice((b"upload", name))
            text = rng.choice((*_BASE64, b"/9j/" + b"A" * rng.randrange(4000)))
            json = b'{"' + name + b'": "' + text + b'"}'
            deep = b'{"' + name + b'": ' + b"[" * 30_000 + b"]" * 30_000 + b"}"
            fields = name + b"=" + text + b"&" * rng.randrange(3000)
            json = rng.choice((json, deep, b"[]", b"{}", b"null", b"1e999"))
            urlencoded = b"application/x-www-form-urlencoded", fields
            return rng.choice(
                ((FORM, form(part(name, text))), urlencoded, (b"application/json", json))
            )


def malformed_form(rng: random.Random) -> Attempt:
    """A malformed body, on any route that takes photos."""
    path = rng.choice((*PHOTO_FIELDS, BATCH))
    return Attempt(path, (post(path, *_form_around(rng, PHOTO_FIELDS[path])),))


@cache
def _scene(path: Path) -> np.ndarray:
    return cv2.imread(str(path))


def _picture(rng: random.Random) -> np.ndarray:
    """(H, W, 3) uint8."""
    scene = _scene(rng.choice(SAMPLES))
    noise = np.random.default_rng(rng.randrange(2**32))
    match rng.randrange(6):
        case 0 | 1:  # one pixel, or a line of pixels, or nearly that, or many
            line = [rng.choice((1, 1, 2, 3, 7)), rng.choice((1, 2, 31, 500, 5000, 60_000))]
            sides = rng.choice((line, line[::-1], rng.choices((1, 8, 64, 640, 1100), k=2)))
            if rng.random() < 0.3:
                return np.full((*sides, 3), rng.choice((0, 1, 127, 254, 255)), np.uint8)
            return noise.integers(0, 256, (*sides, 3), np.uint8)
        case 2:  # every pixel or every stride of the nets another way: the sharpest edges there are
            y, x = np.mgrid[: rng.randrange(1, 900), : rng.randrange(1, 1300)]
            step = rng.choice((1, 2, 4, 8, 16, 32))
            return np.dstack([((x // step + y // step) % 2 * 255).astype(np.uint8)] * 3)
        case 3:  # a sample over and over, as small as its plates can be found
            small = cv2.resize(scene, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
            return np.tile(small, (rng.choice((2, 4)), rng.choice((2, 5)), 1))
        case 4:  # a piece so near that a plate may be larger than the canvas
            y, x = (rng.randrange(side - 90) for side in scene.shape[:2])
            near = scene[y : y + rng.randrange(8, 90), x : x + rng.randrange(8, 90)]
            return cv2.resize(near, (rng.randrange(50, 3000), rng.randrange(50, 2000)))
        case _:  # turned, and then mirrored, inverted, squeezed, or in single bits
            scene = np.ascontiguousarray(np.rot90(scene, rng.randrange(4)))
            changed = (
                scene[::-1],
                255 - scene,
                cv2.resize(scene, (rng.randrange(1, 2000), rng.randrange(1, 1500))),
                (scene > rng.randrange(256)).astype(np.uint8) * 255,
                scene ^ np.uint8(rng.randrange(256)),
            )
            return np.ascontiguousarray(rng.choice(changed))


_READ = frozenset({200, 201, 429})


def odd_picture(rng: random.Random) -> Attempt:
    """An odd picture in a sound file: it must be read, and what the nets make of it be sound."""
    photo = cv2.imencode(rng.choice((".png", ".jpg", ".bmp")), _picture(rng))[1].tobytes()
    path = rng.choice((PLATES, PLATES, *SINGLE))
    return Attempt(path, (raw_photo(path, photo),), statuses=_READ)


_LARGEST = (
    lambda: png_of_zeros(_SIDE, 8, 2),
    lambda: png_of_zeros(_SIDE, 16, 6),
    lambda: jpeg_of_scans(20, _SIDE),
    lambda: flat(_SIDE, "TIFF", "RGB", compression="tiff_lzw"),
    lambda: flat(_SIDE, "GIF", "P"),
)


def make_largest() -> None:
    """Make the largest pictures, which stops this process's other threads for seconds.

    While they send, the service would give up on connections that they have opened.
    """
    for make in _LARGEST:
        _made(make)


def largest_picture(rng: random.Random) -> Attempt:
    """The most pixels that are allowed."""
    return Attempt(PLATES, (raw_photo(PLATES, _made(rng.choice(_LARGEST))),), statuses=_READ)


_METHODS = (b"GET", b"PUT", b"DELETE", b"TRACE", b"CONNECT", b"PRI", b"get", b"P\0ST", b"A" * 3000)
_TARGETS = (
    *(b"*", b"", b"/" * 300, b"/..%2f..%2fetc/passwd", b"/%00", b"/%ff%fe", b"/\xff"),
    *(b"/v1/plates/", b"//v1/plates", b"http://127.0.0.1:1/v1/plates", b"/?" + b"a=b&" * 1500),
    *(b"/docs", b"/metrics", b"/readyz", b"/openapi.json", b"/info/", b"/" + b"a" * 20_000),
    b"/static/../../pyproject.toml",
)
_ODD_HEADERS: tuple[Header, ...] = (
    *((b"Content-Length", v) for v in (b"-1", b"1e3", b"0x10", b"9" * 30, b"5, 6", b"", b"+5")),
    *((b"Transfer-Encoding", v) for v in (b"chunked", b"gzip, chunked", b"identity", b"xchunked")),
    *((b"Expect", v) for v in (b"100-continue", b"200-ok", b"x" * 500)),
    *((b"Upgrade", v) for v in (b"h2c", b"websocket")),
    *((b"Host", v) for v in (b"", b"\0", b"a" * 2000, b"[::1", b"evil\r\nX: y")),
    *((b"Range", v) for v in (b"bytes=0-" + b"0," * 500, b"bytes=-1")),
    *((b"Cookie", v) for v in (b"a=b; " * 900, b"\xff\xff")),
    *((b"X-Forwarded-For", v) for v in (b"127.0.0.1", b"x" * 4000)),
    *((b"X" * 300, b"y"), (b"X\0", b"y"), (b"", b"y"), (b"X y", b"z")),
)
_CHUNK_SIZES = (
    *(b"%x" % len(PHOTO), b"-1", b"0x10", b"f" * 20, b"a;" + b"a" * 9000, b"zz", b"", b"0"),
)
_JUNK = (b"", b"\x16\x03\x01\x02\0\x01\0", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\r\n" * 40)


def broken_connection(rng: random.Random) -> Attempt:
    """A connection that no client would make."""
    path = rng.choice((*SINGLE, *PHOTO_FIELDS))
    target, sound = path.encode(), raw_photo(path, PHOTO)
    options: dict[str, Any] = {"may_stay_silent": True, "may_time_out": True}
    chunked = ((b"Content-Type", b"image/jpeg"), (b"Transfer-Encoding", b"chunked"))
    match rng.randrange(12):
        case 0 | 1 | 2:
            method = rng.choice((b"POST", *_METHODS))
            target = rng.choice((target, *_TARGETS))
            path = target.decode("latin-1")
            pieces = [head(method, target, *rng.choices(_ODD_HEADERS, k=rng.randrange(3)))]
        case 3:
            damaged, end = bytearray(sound), sound.index(b"\r\n\r\n")
            for _ in range(rng.choice((1, 2, 5))):
                damaged[rng.randrange(end)] = rng.randrange(256)
            pieces = [bytes(damaged)]
        case 4:
            value = b"y" * rng.choice((1, 100))
            fields = [(b"X-%d" % number, value) for number in range(rng.choice((99, 101, 5000)))]
            pieces = [post(path, b"image/jpeg", PHOTO, *fields)]
        case 5:  # more is promised than comes, and the sender goes; or less, and junk follows
            more = (len(PHOTO) + 1000, 10**9, 10**20)
            promised = rng.choice((0, 1, len(PHOTO) - 1, *more))
            length = (b"Content-Length", b"%d" % promised)
            pieces = [head(b"POST", target, (b"Content-Type", b"image/jpeg"), length) + PHOTO]
            options["hangs_up"] = promised in more and rng.random() < 0.8
        case 6 | 7:
            sizes = rng.choices(_CHUNK_SIZES, k=rng.randrange(1, 4))
            wrong = b"".join(size + b"\r\n" + PHOTO + b"\r\n" for size in sizes)
            tiny = b"".join(b"1\r\n%c\r\n" % byte for byte in PHOTO)
            pieces = [head(b"POST", target, *chunked), rng.choice((wrong, tiny)) + b"0\r\n\r\n"]
        case 8:  # up to the last byte: the nets are at work when the client is gone
            sent = raw_photo(path, rng.choice(SAMPLES).read_bytes())
            pieces = [sent[: rng.choice((len(sent), rng.randrange(1, len(sent))))]]
            options["hangs_up"] = True
        case 9:
            sent = raw_photo(path, PHOTO, (b"X-Request-Timeout", b"0.3"))
            cuts = [0, *sorted(rng.randrange(len(sent)) for _ in range(5)), len(sent)]
            pieces = [sent[a:b] for a, b in pairwise(cuts)]
            options["pause_s"] = 0.12
        case 10:  # several at once; the first one's answer is looked at
            pieces = [sound.replace(b"Connection: close\r\n", b"") * rng.choice((2, 5))]
        case _:
            pieces = [rng.choice(_JUNK) + rng.randbytes(rng.choice((1, 10, 1000, 30_000)))]
            options["hangs_up"] = rng.random() < 0.9
    return Attempt(path, tuple(pieces), **options)


_NUMBERS = (
    *(b"0", b"-0", b"-1", b"1e308", b"1e309", b"-1e400", b"nan", b"inf", b"-Infinity", b"0x10"),
    *(b"1_000", b"\xd9\xa1\xd9\xa2", b" 1 ", b"1,0", b"", b"true", b"9" * 400, b"1e-400", b"\0"),
)
_TEXTS = (
    *(b"", b"\0", b"\xff\xfe", b"' OR 1=1 --", b"../../etc/passwd", b"${jndi:ldap://127.0.0.1}"),
    *(b"<script>alert(1)</script>", b"\xf0\x9f\x9a\x97" * 50, b"%s%n%x", b"a" * 3000),
    b"\xe2\x80\xae",
)
_CONFIGS = (
    *(b"{}", b"[]", b"null", b"{", b'{"threshold_d": NaN}', b'{"threshold_d": 1e999}'),
    *(b'{"threshold_o": -1}', b'{"threshold_d": "0.5"}', b'{"mode": "redaction"}', b'"x"'),
    *(b'{"region": "strict"}', b'{"region": []}', b'{"mode": {"a": 1}}', b"[" * 12_000, b"\xff"),
    *(b'{"a": ' * 3000 + b"1" + b"}" * 3000, b'{"threshold_d": ' + b"9" * 5000 + b"}"),
    b'{"threshold_d": 0.1, "threshold_d": 5}',
)
_TIMES = (
    *(b"2026-08-19T13:11:25Z", b"0001-01-01T00:00:00+14:00", b"9999-12-31T23:59:59-14:00"),
    *(b"2026-02-30", b"1e9", b"now", b"2026-W01-1", b"2026-01-01T00:00:00+99:99", b"\xd9\xa1"),
)
_FIELDS: dict[bytes, tuple[bytes, ...]] = {
    b"min_width": _NUMBERS,
    b"redact": (b"true", b"1", b"yes", b"maybe", b"", b"\0"),
    b"regions": (b"ru", b"", b"," * 4000, *_TEXTS),
    b"camera_id": _TEXTS,
    b"timestamp": (*_TIMES, *_TEXTS),
    b"mmc": (b"true", b"maybe", b"2"),
    b"config": _CONFIGS,
    b"min_confidence": _NUMBERS,
    b"upload_url": (b"http://127.0.0.1:9/", b"file:///etc/passwd", b"gopher://127.0.0.1", b"//a/"),
    b"unknown": _TEXTS,
    b"__proto__": _TEXTS,
}
_HEADERS: dict[bytes, tuple[bytes, ...]] = {
    b"X-Request-Timeout": (b"0.001", b"0.05", b"1e-300", b"30", b"1e300", *_NUMBERS),
    b"X-Request-Id": (b"a" * 64, b"a" * 65, b"../x", b"\xff", b"a\tb", b"a,b", b"", b"{0}", b"%n"),
    b"Authorization": (b"", b"Bearer", b"Bearer ", b"Token \xff", b"Basic Og==", b"a" * 9000),
    b"Accept": (b"text/html", b"*/*;q=nan", b"image/webp", b"\xff", b"," * 4000),
    b"Accept-Encoding": (b"gzip, br;q=9", b"identity;q=0"),
    b"Origin": (b"null", b"http://evil.example", b"\xff"),
}


def _roi(rng: random.Random) -> bytes:
    count = rng.choice((4, 4, 4, 4, 0, 1, 3, 5, 2000))
    sides = rng.choices((*_NUMBERS, b"0", b"10", b"5000", b"0.5"), k=count)
    return rng.choice((b",", b",", b";", b" ")).join(sides)


def odd_parameters(rng: random.Random) -> Attempt:
    """A sound photo with odd company: in the address, in the form, in the head."""
    path = rng.choice((PLATES, PLATES, READER, ALPR, BATCH))
    names = rng.choices((b"roi", *_FIELDS), k=rng.choice((1, 1, 2, 4)))
    given = [(n, _roi(rng) if n == b"roi" else rng.choice(_FIELDS[n])) for n in names]
    chosen = rng.choices(tuple(_HEADERS), k=rng.choice((0, 0, 1, 2)))
    headers = [(name, rng.choice(_HEADERS[name])) for name in chosen]
    if rng.random() < 0.5:
        fields = (part(name, value) for name, value in given)
        body = form(part(PHOTO_FIELDS[path], PHOTO, b"photo.jpg"), *fields)
        sent = post(path, FORM, body, *headers)
    else:
        query = b"?" + b"&".join(n + b"=" + quote_from_bytes(v).encode() for n, v in given)
        sent = raw_photo(path, PHOTO, *headers, query=query)
    return Attempt(path, (sent,), may_time_out=b"X-Request-Timeout" in chosen)


LARGEST = "largest pictures"
# Parts of a thousand. What reaches the nets costs a hundred times what is refused before.
KINDS: dict[str, tuple[Callable[[random.Random], Attempt], int]] = {
    LARGEST: (largest_picture, 2),
    "damaged files": (damaged_file, 400),
    "malformed forms": (malformed_form, 150),
    "broken connections": (broken_connection, 130),
    "odd parameters": (odd_parameters, 150),
    "odd pictures": (odd_picture, 60),
}
