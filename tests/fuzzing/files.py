"""Image files with damage: in any byte, in lengths, in headers, in their order."""

import random
import struct
from collections.abc import Callable
from functools import cache

from photo_bombs import CHEAP, REFUSED
from photo_files import BAD, GOOD

from fuzzing.attempts import Attempt
from fuzzing.requests import BATCH, PHOTO_FIELDS, SINGLE, form, form_type, part, photo_form, post
from fuzzing.requests import raw_photo as raw

_WORDS = (
    *(b"\xff\xd8", b"\xff\xd9", b"\xff\xda", b"\xff\xc0", b"\xff\xc2", b"\xff\xc4", b"\xff\xdd"),
    *(b"IHDR", b"IDAT", b"IEND", b"PLTE", b"tRNS", b"eXIf", b"acTL", b"fcTL", b"iCCP"),
    *(b"RIFF", b"WEBP", b"VP8X", b"VP8L", b"VP8 ", b"ALPH", b"ANIM", b"ANMF", b"EXIF"),
    *(b"GIF89a", b"!\xf9\x04", b"!\xff\x0b", b"\x2c", b"\x3b", b"BM", b"II*\0", b"MM\0*"),
    *(b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\x01", b"\xff\xff"),
    *(struct.pack("<HHI", tag, kind, 2**31) for tag in (256, 259, 273, 322) for kind in (3, 4)),
)
_FILES = tuple(GOOD.values())
_BOMBS = tuple(make for make, _ in REFUSED.values()) + tuple(CHEAP.values())
# What a fuzzer sends should be many, not long.
_MAX_BOMB_BYTES = 300_000

Damage = Callable[[random.Random, bytes], bytes]


def _flip(rng: random.Random, data: bytes) -> bytes:
    damaged = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16, 64))):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def _flip_header(rng: random.Random, data: bytes) -> bytes:
    """Headers are short, and most of a file is pixels."""
    length = min(len(data), 200)
    return _flip(rng, data[:length]) + data[length:]


def _truncate(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(1, len(data))]


def _insert(rng: random.Random, data: bytes) -> bytes:
    place = rng.randrange(len(data))
    return data[:place] + rng.choice(_WORDS) + data[place:]


def _overwrite(rng: random.Random, data: bytes) -> bytes:
    place, word = rng.randrange(len(data)), rng.choice(_WORDS)
    return data[:place] + word + data[place + len(word) :]


def _lie_about_length(rng: random.Random, data: bytes) -> bytes:
    """Set a number of two or four bytes, where headers have theirs, to an extreme."""
    place = rng.randrange(min(len(data), 120))
    size, order = rng.choice((2, 4)), rng.choice(("<", ">"))
    most = 256**size
    value = rng.choice((0, 1, most - 1, most // 2, most // 2 - 1, len(data), rng.randrange(most)))
    number = struct.pack(order + ("H" if size == 2 else "I"), value % most)
    return data[:place] + number + data[place + size :]


def _cut_out(rng: random.Random, data: bytes) -> bytes:
    start, end = sorted(rng.randrange(len(data)) for _ in range(2))
    return data[:start] + data[end:] or b"\0"


def _repeat(rng: random.Random, data: bytes) -> bytes:
    start = rng.randrange(len(data))
    piece = data[start : start + rng.randrange(1, 400)]
    return data[:start] + piece * rng.choice((2, 3, 50, 500)) + data[start:]


def _splice(rng: random.Random, data: bytes) -> bytes:
    other = rng.choice(_FILES)
    return data[: rng.randrange(1, len(data))] + other[rng.randrange(len(other)) :]


def _concatenate(rng: random.Random, data: bytes) -> bytes:
    other = rng.choice(_FILES)
    return data + other if rng.random() < 0.5 else other[: rng.randrange(4, 40)] + data


_DAMAGES: tuple[Damage, ...] = (
    *(_flip, _flip_header, _truncate, _insert, _overwrite),
    *(_lie_about_length, _cut_out, _repeat, _splice, _concatenate),
)


@cache
def _bomb(index: int) -> bytes:
    return _BOMBS[index]()[:_MAX_BOMB_BYTES]


def hostile_file(rng: random.Random) -> bytes:
    """A file, mostly one that was sound before."""
    choice = rng.random()
    if choice < 0.04:
        return rng.choice(tuple(BAD.values()))[0]
    if choice < 0.08:
        return _bomb(rng.randrange(len(_BOMBS)))
    data = rng.choice(_FILES)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = rng.choice(_DAMAGES)(rng, data)
    return data


def damaged_file(rng: random.Random) -> Attempt:
    """A hostile file, raw or in a form, on any route that takes photos."""
    photo = hostile_file(rng)
    if rng.random() < 0.1:
        return _batch(rng, photo)
    path = rng.choice(SINGLE)
    sent = raw(path, photo) if rng.random() < 0.5 else photo_form(path, photo)
    return Attempt("damaged files", path, (sent,))


def _batch(rng: random.Random, photo: bytes) -> Attempt:
    """One bad file must not fail the rest: the answer is always 200."""
    name = PHOTO_FIELDS[BATCH]
    files = [photo, *(hostile_file(rng) for _ in range(rng.randrange(4)))]
    body = form(b"x-limit", *(part(name, each, b"a.jpg") for each in files))
    sent = post(BATCH, form_type(b"x-limit"), body)
    return Attempt("damaged files", BATCH, (sent,), statuses=frozenset({200, 429}))
