"""Bodies: damaged image files, malformed forms, and pictures that no camera takes."""

import random
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path

import cv2
import numpy as np
from photo_bomb_parts import flat, jpeg_of_scans, png_of_zeros
from photo_bombs import CHEAP, REFUSED
from photo_files import BAD, GOOD

from fuzzing.exchange import (
    BATCH,
    FORM,
    PHOTO_FIELDS,
    PLATES,
    SINGLE,
    Attempt,
    form,
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
    match rng.randrange(10):
        case 0:
            return _flip(rng, data)
        case 1:  # headers are short, and most of a file is pixels
            return _flip(rng, data[:200]) + data[200:]
        case 2:
            return data[: place + 1]
        case 3:
            return data[:place] + word + data[place:]
        case 4:
            return data[:place] + word + data[place + len(word) :]
        case 5:  # a number of two or four bytes, where headers have theirs
            place, size = place % 120, rng.choice((2, 4))
            edges = (0, 1, 256**size - 1, 256**size // 2, 256**size // 2 - 1, len(data))
            number = rng.choice((*edges, rng.randrange(256**size))) % 256**size
            lie = number.to_bytes(size, rng.choice(("little", "big")))
            return data[:place] + lie + data[place + size :]
        case 6:
            return data[:place] + data[rng.randrange(place, len(data)) :]
        case 7:
            piece = data[place : place + rng.randrange(1, 400)]
            return data[:place] + piece * rng.choice((2, 3, 50, 500)) + data[place:]
        case 8:
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
        case _:
            return _text_of_photo(rng, rng.choice((b"upload", name)))


def _text_of_photo(rng: random.Random, name: bytes) -> tuple[bytes, bytes]:
    """Base64 that is none, in a form, in an urlencoded one, or in JSON."""
    text = rng.choice((*_BASE64, b"/9j/" + b"A" * rng.randrange(4000)))
    match rng.randrange(4):
        case 0:
            json = b'{"' + name + b'": "' + text + b'"}'
            deep = b'{"' + name + b'": ' + b"[" * 30_000 + b"]" * 30_000 + b"}"
            return b"application/json", rng.choice((json, deep, b"[]", b"{}", b"null", b"1e999"))
        case 1:
            ends = b"&" * rng.randrange(3000)
            return b"application/x-www-form-urlencoded", name + b"=" + text + ends
        case _:
            return FORM, form(part(name, text))


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
    match rng.randrange(8):
        case 0 | 1:  # one pixel, or a line of pixels, or nearly that
            sides = [rng.choice((1, 1, 2, 3, 7)), rng.choice((1, 2, 31, 500, 5000, 60_000))]
            rng.shuffle(sides)
            return noise.integers(0, 256, (*sides, 3), np.uint8)
        case 2:
            sides = rng.choices((1, 8, 64, 640, 1500), k=2)
            return np.full((*sides, 3), rng.choice((0, 1, 127, 254, 255)), np.uint8)
        case 3:  # every pixel or every stride of the nets another way: the sharpest edges there are
            y, x = np.mgrid[: rng.randrange(1, 900), : rng.randrange(1, 1300)]
            step = rng.choice((1, 2, 4, 8, 16, 32))
            return np.dstack([((x // step + y // step) % 2 * 255).astype(np.uint8)] * 3)
        case 4:
            sides = rng.randrange(1, 700), rng.randrange(1, 1200)
            return noise.integers(0, 256, (*sides, 3), np.uint8)
        case 5:  # a sample over and over, as small as its plates can be found
            small = cv2.resize(scene, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
            return np.tile(small, (rng.choice((2, 4)), rng.choice((2, 5)), 1))
        case 6:  # a piece so near that a plate may be larger than the canvas
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
    lambda: png_of_zeros(_SIDE, _SIDE, 8, 2),
    lambda: png_of_zeros(_SIDE, _SIDE, 16, 6, interlaced=1),
    lambda: jpeg_of_scans(20, _SIDE),
    lambda: flat(_SIDE, "TIFF", "RGB", compression="tiff_lzw"),
    lambda: flat(_SIDE, "GIF", "P"),
)


def largest_picture(rng: random.Random) -> Attempt:
    """The most pixels that are allowed."""
    return Attempt(PLATES, (raw_photo(PLATES, _made(rng.choice(_LARGEST))),), statuses=_READ)
