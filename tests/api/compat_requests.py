"""What clients of other services send, byte for byte; only the photo is put in.

Recorded with the package that is named, pointed at a socket that only listens. The
vendor's script is no package: its request is put together after its source.
"""

import base64
from typing import NamedTuple

BOUNDARY = "--------------------------683467894704582608514088"


class Recorded(NamedTuple):
    """A request: its path, headers that matter, and its body."""

    path: str
    headers: dict[str, str]
    body: bytes


def _form(parts: list[tuple[str, bytes]], boundary: str) -> bytes:
    lines = [
        f"--{boundary}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n".encode()
        + content
        + b"\r\n"
        for disposition, content in parts
    ]
    return b"".join(lines) + f"--{boundary}--\r\n".encode()


def node_red(photo: bytes) -> Recorded:
    """node-red-contrib-plate-recognizer 1.0.3: base64 in a multipart form."""
    parts = [
        ('name="upload"', base64.b64encode(photo)),
        ('name="mmc"', b"false"),
        ('name="camera_id"', b"gate-1"),
        ('name="timestamp"', b"2026-11-21T19:43:21.121Z"),
        ('name="regions"', b"ru"),
        ('name="regions"', b"gb"),
    ]
    headers = {
        "Authorization": "Token secret",
        # No space before the parameter.
        "Content-Type": f"multipart/form-data;boundary={BOUNDARY}",
        "Accept": "*/*",
        "User-Agent": "node-fetch/1.0 (+https://github.com/bitinn/node-fetch)",
        "Accept-Encoding": "gzip,deflate",
        "Connection": "close",
    }
    return Recorded("/v1/plate-reader/", headers, _form(parts, BOUNDARY))


def plate_recognizer_script(photo: bytes) -> Recorded:
    """The vendor's plate_recognition.py with --engine-config: JSON encoded twice."""
    boundary = "72b8b325cc9f2fced3792c67e189c751"
    parts = [
        ('name="regions"', b"ru"),
        ('name="config"', rb'"{\"region\": \"strict\"}"'),
        ('name="camera_id"', b"Camera1"),
        ('name="mmc"', b"True"),
        ('name="upload"; filename="car.jpg"', photo),
    ]
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}", "Accept": "*/*"}
    return Recorded("/v1/plate-reader/", headers, _form(parts, boundary))


def codeproject_ai_api(photo: bytes) -> Recorded:
    """codeproject-ai-api 0.1: the file is in `image`."""
    boundary = "1fe7b8c5d062a56f3753281333786670"
    parts = [('name="min_confidence"', b"0.45"), ('name="image"; filename="image"', photo)]
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}", "Accept": "*/*"}
    return Recorded("/v1/image/alpr", headers, _form(parts, boundary))


def deepstack_python(photo: bytes) -> Recorded:
    """deepstack-python 0.9: the same, with a key in the form."""
    boundary = "d1249ea646c88fbe4eb975689e7f27fd"
    parts = [
        ('name="api_key"', b"key"),
        ('name="min_confidence"', b"0.45"),
        ('name="image"; filename="image"', photo),
    ]
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}", "Accept": "*/*"}
    return Recorded("/v1/vision/alpr", headers, _form(parts, boundary))
