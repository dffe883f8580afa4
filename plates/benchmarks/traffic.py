"""What comes in through a public door: good photos, empty and broken ones, clients that leave."""

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from plates.benchmarks.load import Request
from plates.benchmarks.photos import samples

# Widths that good photos are scaled to, and how often they come: a thumbnail, a sample as it
# is, HD, a phone's.
WIDTHS = {480: 3.0, 1280: 5.0, 1920: 2.0, 4000: 0.3}
_MUTATIONS = 24
_BOUNDARY = "plates-bench"
_FORM = {"Content-Type": f"multipart/form-data; boundary={_BOUNDARY}"}
GOOD = frozenset({200})
BAD = frozenset({400, 413, 415, 422})


@dataclass(frozen=True)
class Kind:
    """Requests of one kind: how often they come, and the statuses that are right beside 429."""

    name: str
    weight: float
    expected: frozenset[int]
    requests: Sequence[Request]


def mixed_load(paths: frozenset[str]) -> list[Kind]:
    """Make all kinds of requests, without those to routes that are not among `paths`."""
    photos = [path.read_bytes() for path in list(samples())[:3]]
    scaled = {width: [_scaled(photo, width) for photo in photos] for width in WIDTHS}
    photo, small, leaving = scaled[1280][0], scaled[480], Request(scaled[1280][1])
    dice = random.Random(0)  # noqa: S311 - repeatable, not secret
    mutated = [_mutated(photo, dice) for _ in range(_MUTATIONS)]
    batch = _form(small[0], small[1][:2000], small[2], path="/v1/plates/batch")
    kinds = [
        *(Kind(f"photo {w} px", WIDTHS[w], GOOD, _raw(scaled[w])) for w in WIDTHS),
        Kind("photo in a form", 3, GOOD, [_form(one) for one in small]),
        Kind("redacted", 1, GOOD, [_form(one, path="/v1/plates?redact=true") for one in small]),
        Kind("no plates", 2, GOOD, _raw([_without_plates(seed) for seed in range(3)])),
        Kind("hostile file", 3, BAD, _raw(_hostile(photo))),
        Kind("mutated file", 3, BAD | GOOD, _raw(mutated)),
        Kind("malformed form", 2, BAD, _malformed(photo)),
        Kind("leaves while sending", 1, GOOD, [replace(leaving, leaves_after=0.5)]),
        Kind("leaves after sending", 1, GOOD, [replace(leaving, leaves_after=1.0)]),
        Kind("batch", 0.5, GOOD, [batch]),
        *(Kind(path, 1, GOOD, [Request(path=path)]) for path in ("/metrics", "/readyz")),
        *(
            Kind(path, 1, GOOD | {201}, [_form(one, name="upload", path=path) for one in small])
            for path in ("/v1/plate-reader/", "/v1/vision/alpr")
        ),
    ]
    return [
        replace(kind, requests=[replace(one, kind=kind.name) for one in kind.requests])
        for kind in kinds
        if kind.requests[0].path.partition("?")[0] in paths
    ]


def _raw(bodies: Sequence[bytes]) -> list[Request]:
    return [Request(body) for body in bodies]


def _form(*files: bytes, name: str = "image", path: str = "/v1/plates") -> Request:
    head = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"; filename="a.jpg"'
    parts = [f"{head}\r\n\r\n".encode() + content + b"\r\n" for content in files]
    return Request(b"".join([*parts, f"--{_BOUNDARY}--\r\n".encode()]), path, _FORM)


def _malformed(photo: bytes) -> list[Request]:
    body = _form(photo).body or b""
    return [
        Request(photo, headers={"Content-Type": "multipart/form-data"}),
        Request(photo, headers={"Content-Type": "application/json"}),
        *(Request(part, headers=_FORM) for part in (b"", b"--" * 5000, body[: len(body) // 2])),
        _form(photo, name="picture"),
        _form(photo, photo),
    ]


def _hostile(photo: bytes) -> list[bytes]:
    """Files that lie about their size, are cut off, or are no photos at all."""
    frame = photo.index(b"\xff\xc0") + 5
    return [
        photo[: len(photo) // 3],
        photo[:frame] + struct.pack(">HH", 65_000, 65_000) + photo[frame + 4 :],
        b"GIF89a" + struct.pack("<HH", 65_535, 65_535) + bytes(200),
        b"RIFF" + struct.pack("<I", 2**31) + b"WEBPVP8 " + bytes(100),
        b"<?xml version='1.0'?><!DOCTYPE x SYSTEM 'http://127.0.0.1:1/'><svg/>",
        bytes(range(256)) * 400,
    ]


def _mutated(photo: bytes, dice: random.Random) -> bytes:
    damaged = bytearray(photo)
    for _ in range(dice.choice((1, 4, 16, 64))):
        damaged[dice.randrange(2, len(damaged))] = dice.randrange(256)
    return bytes(damaged)


def _scaled(photo: bytes, width: int) -> bytes:
    import cv2
    import numpy as np

    pixels = cv2.imdecode(np.frombuffer(photo, np.uint8), cv2.IMREAD_COLOR)
    height = round(pixels.shape[0] * width / pixels.shape[1])
    return cv2.imencode(".jpg", cv2.resize(pixels, (width, height)))[1].tobytes()


def _without_plates(seed: int) -> bytes:
    """Coloured clouds, 1280x720."""
    import cv2
    import numpy as np

    coarse = np.random.default_rng(seed).integers(0, 255, (9, 16, 3), dtype=np.uint8)
    clouds = cv2.resize(coarse, (1280, 720), interpolation=cv2.INTER_CUBIC)
    return cv2.imencode(".jpg", clouds)[1].tobytes()
