"""What comes in through a public door: good photos, empty and broken ones, people who leave."""

import json
import random
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from plates.benchmarks.http1 import Target, build_request
from plates.cli.samples import SAMPLES

# Widths that good photos are scaled to: a thumbnail, a sample as it is, HD, a phone's.
WIDTHS = (480, 1280, 1920, 4000)
_MUTATIONS = 24
_BOUNDARY = "plates-bench"
_FORM = {"Content-Type": f"multipart/form-data; boundary={_BOUNDARY}"}
_RAW = {"Content-Type": "image/jpeg"}

GOOD = frozenset({200})
BAD = frozenset({400, 413, 415, 422})
# A service may always say that it is busy.
BUSY = frozenset({429})


@dataclass(frozen=True)
class Kind:
    """Requests of one kind.

    Attributes:
        name: For tables.
        weight: How often it comes, relative to the others.
        requests: One is taken at random.
        expected: Statuses that are right; none where nobody waits for an answer.
        sent_share: How much of the request is sent before the sender leaves.
        leaves_after_s: When the sender leaves after having sent it; None waits.
    """

    name: str
    weight: float
    requests: Sequence[bytes]
    expected: frozenset[int]
    sent_share: float = 1.0
    leaves_after_s: float | None = None


def mixed_load(target: Target, photos: Sequence[bytes], paths: frozenset[str]) -> list[Kind]:
    """Make all kinds of requests.

    Args:
        target: Where they go.
        photos: JPEG files with plates.
        paths: Of the service, as its OpenAPI document lists them; those for many files and
            for other services' clients are left out where they are not there.
    """
    post = _Poster(target)
    scaled = {width: [_scaled(photo, width) for photo in photos[:3]] for width in WIDTHS}
    return [
        *_good(post, scaled),
        *_bad(post, scaled[1280][0]),
        *_impatient([post.raw(photo) for photo in scaled[1280]]),
        Kind("/metrics", 1, [post.get("/metrics")], GOOD),
        Kind("/readyz", 1, [post.get("/readyz")], GOOD),
        *_further(post, scaled[480], paths),
    ]


def _good(post: "_Poster", scaled: Mapping[int, Sequence[bytes]]) -> list[Kind]:
    kinds = [
        Kind(f"photo {width} px", weight, [post.raw(photo) for photo in scaled[width]], GOOD)
        for width, weight in zip(WIDTHS, (3, 5, 2, 0.3), strict=True)
    ]
    forms = [post.form({"image": photo}) for photo in scaled[480]]
    empty = [post.raw(_without_plates(seed)) for seed in range(3)]
    return [*kinds, Kind("photo in a form", 3, forms, GOOD), Kind("no plates", 2, empty, GOOD)]


def _bad(post: "_Poster", photo: bytes) -> list[Kind]:
    dice = random.Random(0)  # noqa: S311 - repeatable, not secret
    mutated = [post.raw(_mutated(photo, dice)) for _ in range(_MUTATIONS)]
    nowhere = [post.get("/nothing/here"), post.get("/../etc/passwd")]
    return [
        Kind("hostile file", 3, [post.raw(file) for file in _hostile(photo)], BAD),
        Kind("mutated file", 3, mutated, BAD | GOOD),
        Kind("malformed form", 2, _malformed(post, photo), BAD),
        Kind("wrong address", 0.5, nowhere, frozenset({400, 404})),
    ]


def _impatient(requests: Sequence[bytes]) -> list[Kind]:
    nobody = frozenset[int]()
    return [
        Kind("leaves while sending", 1, requests, nobody, sent_share=0.5),
        Kind("leaves after sending", 1, requests, nobody, leaves_after_s=0.03),
    ]


def _further(post: "_Poster", photos: Sequence[bytes], paths: frozenset[str]) -> list[Kind]:
    """Requests to routes that a service may or may not have."""
    several = {f"photo{index}": photo for index, photo in enumerate(photos)}
    found = []
    if "/v1/plates" in paths:
        redacted = [post.form({"image": photo}, "/v1/plates?redact=true") for photo in photos]
        found.append(Kind("redacted", 1, redacted, GOOD))
    if "/v1/plates/batch" in paths:
        mixed = [("image", photos[0]), ("image", photos[1][:2000]), ("image", photos[2])]
        found.append(Kind("batch", 0.5, [post.form_of(mixed, "/v1/plates/batch")], GOOD))
    for path in ("/v1/plate-reader/", "/v1/vision/alpr"):
        if path in paths:
            answers = GOOD | {201}
            requests = [post.form({"upload": photo}, path) for photo in several.values()]
            found.append(Kind(path, 1, requests, answers))
    return found


class _Poster:
    """Builds requests to one service."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def get(self, path: str) -> bytes:
        return build_request(self._target, "GET", path)

    def raw(self, photo: bytes, headers: Mapping[str, str] = _RAW) -> bytes:
        return build_request(self._target, "POST", "/v1/plates", photo, headers)

    def form(self, files: Mapping[str, bytes], path: str = "/v1/plates") -> bytes:
        return self.form_of(files.items(), path)

    def form_of(self, files: Iterable[tuple[str, bytes]], path: str = "/v1/plates") -> bytes:
        parts = [
            f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"; '
            f'filename="photo.jpg"\r\n\r\n'.encode()
            + content
            for name, content in files
        ]
        body = b"\r\n".join([*parts, f"--{_BOUNDARY}--\r\n".encode()])
        return build_request(self._target, "POST", path, body, _FORM)


def _malformed(post: _Poster, photo: bytes) -> list[bytes]:
    whole = post.form({"image": photo})
    _, _, body = whole.partition(b"\r\n\r\n")
    return [
        post.raw(photo, {"Content-Type": "multipart/form-data"}),
        post.raw(body[: len(body) // 2], _FORM),
        post.raw(b"", _FORM),
        post.form({"picture": photo}),
        post.form({"image": photo, "another": photo}),
        post.raw(photo, {"Content-Type": "application/json"}),
        post.raw(b"--" * 5000, _FORM),
    ]


def _hostile(photo: bytes) -> list[bytes]:
    """Files that lie about their size, are cut off, or are no photos at all."""
    frame = photo.index(b"\xff\xc0") + 5
    return [
        b"",
        photo[: len(photo) // 3],
        photo[:frame] + struct.pack(">HH", 65_000, 65_000) + photo[frame + 4 :],
        _png_claiming(100_000, 100_000),
        _png_claiming(3_000, 3_000),
        b"GIF89a" + struct.pack("<HH", 65_535, 65_535) + bytes(200),
        b"II*\0" + b"\xff" * 200,
        b"RIFF" + struct.pack("<I", 2**31) + b"WEBPVP8 " + bytes(100),
        struct.pack(">I", 24) + b"ftypheic" + bytes(4) + b"mif1heic" + bytes(200),
        b"<?xml version='1.0'?><!DOCTYPE x SYSTEM 'http://127.0.0.1:1/'><svg/>",
        bytes(range(256)) * 400,
    ]


def _png_claiming(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + checksum

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(bytes(1000))
    signature = b"\x89PNG\r\n\x1a\n"
    return signature + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


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
    _, data = cv2.imencode(".jpg", cv2.resize(pixels, (width, height)))
    return data.tobytes()


def _without_plates(seed: int) -> bytes:
    """Coloured clouds, 1280x720."""
    import cv2
    import numpy as np

    coarse = np.random.default_rng(seed).integers(0, 255, (9, 16, 3), dtype=np.uint8)
    _, data = cv2.imencode(".jpg", cv2.resize(coarse, (1280, 720), interpolation=cv2.INTER_CUBIC))
    return data.tobytes()


def paths_of(openapi: bytes) -> frozenset[str]:
    """The paths that an OpenAPI document lists."""
    return frozenset(json.loads(openapi)["paths"])


def sample_photos() -> list[bytes]:
    """The rendered scenes of tests/samples: JPEG files with plates."""
    return [path.read_bytes() for path in sorted(SAMPLES.glob("*.jpg"))]
