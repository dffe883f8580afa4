"""Photos without their plates: what is blurred, what stays, and that nothing is kept."""

import io
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import fake_triton
import httpx
import numpy as np
import pytest
from fake_triton import FakeTriton
from gateway_client import PHOTO, assert_problem, settings_for
from gateway_fixtures import running_gateway
from noisy_photo import HEIGHT, WIDTH, detail, noise
from photo_files import encode, encode_rgba, exif
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from plate_models.images import decode

# Of the fake Triton's plates, both with what is around them.
AREAS = ((4, 14, 116, 50), (397, 297, 443, 315))


def redact(client: httpx.Client, photo: bytes, **fields: object) -> httpx.Response:
    data = {"redact": "true"} | {name: str(value) for name, value in fields.items()}
    return client.post("/v1/plates", files={"image": ("photo.jpg", photo)}, data=data)


def pixels_of(response: httpx.Response) -> np.ndarray:
    assert response.status_code == 200, response.text
    return np.asarray(Image.open(io.BytesIO(response.content)).convert("RGB"))


def outside(pixels: np.ndarray) -> np.ndarray:
    """Everything but the plates' areas, with the blocks that JPEG shares with them."""
    kept = np.ones(pixels.shape[:2], bool)
    for x0, y0, x1, y1 in AREAS:
        kept[y0 // 8 * 8 : -(-y1 // 8) * 8, x0 // 8 * 8 : -(-x1 // 8) * 8] = False
    return pixels[kept].astype(int)


@pytest.mark.usefixtures("fake")
def test_png_stays_as_it_was_around_the_plates(client: httpx.Client) -> None:
    before = noise()
    response = redact(client, encode(before, "PNG"))
    assert response.headers["content-type"] == "image/png"
    assert response.headers["x-plates-redacted"] == "2"
    assert response.headers["content-disposition"] == "inline"
    after = pixels_of(response)
    assert after.shape == before.shape
    assert (outside(after) == outside(before)).all()
    for x0, y0, x1, y1 in ((10, 20, 110, 44), (400, 300, 440, 312)):
        assert detail(after[y0:y1, x0:x1]) < 3 < 50 < detail(before[y0:y1, x0:x1])


@pytest.mark.parametrize("file_format", ["JPEG", "WEBP", "BMP", "TIFF", "GIF"])
@pytest.mark.usefixtures("fake")
def test_others_become_jpeg(fake: FakeTriton, file_format: str) -> None:
    photo = encode(cv2.GaussianBlur(noise(), (0, 0), 3), file_format)
    before = decode(photo)
    with running_gateway(settings_for(fake)) as client:
        response = redact(client, photo)
    assert response.headers["content-type"] == "image/jpeg"
    after = pixels_of(response)
    difference = np.abs(outside(after) - outside(before))
    assert difference.mean() < 5 and difference.max() < 40
    assert detail(after[20:44, 10:110]) < 8


def test_a_picture_too_long_for_a_jpeg_becomes_png(fake: FakeTriton) -> None:
    fake.reply = lambda _: fake_triton.outputs(0)
    before = np.full((8, 65_501, 3), 200, np.uint8)
    with running_gateway(settings_for(fake)) as client:
        response = redact(client, encode(before, "BMP"))
    assert response.headers["content-type"] == "image/png"
    assert (pixels_of(response) == before).all()


@pytest.mark.parametrize(
    "fields", [{}, {"roi": "600,400,640,480"}, {"min_width": 1000}, {"roi": "0,0,60,32"}]
)
@pytest.mark.usefixtures("fake")
def test_every_plate_is_blurred_whatever_is_chosen(client: httpx.Client, fields: dict) -> None:
    response = redact(client, encode(noise(), "PNG"), **fields)
    assert response.headers["x-plates-redacted"] == "2"
    for x0, y0, x1, y1 in ((10, 20, 110, 44), (400, 300, 440, 312)):
        assert detail(pixels_of(response)[y0:y1, x0:x1]) < 3


def test_photo_without_plates(client: httpx.Client, fake: FakeTriton) -> None:
    fake.reply = lambda _: fake_triton.outputs(0)
    response = redact(client, encode(noise(), "PNG"))
    assert response.headers["x-plates-redacted"] == "0"
    assert (pixels_of(response) == noise()).all()


@pytest.mark.parametrize("value", ["1", "true", "yes", "on"])
@pytest.mark.usefixtures("fake")
def test_asked_for_in_the_address(client: httpx.Client, value: str) -> None:
    headers = {"content-type": "image/jpeg"}
    params = {"redact": value}
    response = client.post("/v1/plates", content=PHOTO, headers=headers, params=params)
    assert response.headers["content-type"] == "image/jpeg"


@pytest.mark.usefixtures("fake")
def test_not_asked_for(client: httpx.Client) -> None:
    response = redact(client, PHOTO, redact="false")
    assert response.json()["plates"]
    assert_problem(redact(client, PHOTO, redact="perhaps"), 422, "invalid-parameter")


@pytest.mark.usefixtures("fake")
def test_photo_comes_upright_and_without_metadata(fake: FakeTriton) -> None:
    upright = noise()
    stored = np.ascontiguousarray(upright.transpose(1, 0, 2)[::-1])
    secret = encode(np.zeros((8, 8, 3), np.uint8), "JPEG", comment=b"secret thumbnail")
    photo = encode(stored, "JPEG", exif=exif(6, secret), comment=b"secret place", quality=95)
    with running_gateway(settings_for(fake)) as client:
        response = redact(client, photo)
    assert b"secret" in photo and b"Exif" in photo
    for word in (b"secret", b"Exif", b"http://ns.adobe.com"):
        assert word not in response.content
    image = Image.open(io.BytesIO(response.content))
    assert image.size == (WIDTH, HEIGHT)
    assert not image.getexif()
    assert image.info.keys() <= {"jfif", "jfif_version", "jfif_unit", "jfif_density"}
    assert np.abs(outside(np.asarray(image)) - outside(upright)).mean() < 25


@pytest.mark.usefixtures("fake")
def test_png_loses_its_metadata_and_its_transparency(fake: FakeTriton) -> None:
    """Pixels behind transparency, which no viewer shows, would otherwise stay readable."""
    about = PngInfo()
    about.add_text("Comment", "secret")
    buffer = io.BytesIO()
    Image.fromarray(noise()).save(buffer, "PNG", pnginfo=about, exif=exif(1)[6:])
    hidden = encode_rgba(np.dstack([noise(), np.zeros((HEIGHT, WIDTH), np.uint8)]), "PNG")
    with running_gateway(settings_for(fake)) as client:
        response = redact(client, buffer.getvalue())
        assert b"secret" not in response.content
        assert not Image.open(io.BytesIO(response.content)).info
        shown = pixels_of(redact(client, hidden))
    assert (outside(shown) == 255).all()


def test_few_photos_are_blurred_at_once(fake: FakeTriton, monkeypatch: pytest.MonkeyPatch) -> None:
    release, entered = threading.Event(), threading.Semaphore(0)

    def wait(*_: object) -> None:
        entered.release()
        release.wait(20)

    monkeypatch.setattr("api.redaction.blur_plates", wait)
    with running_gateway(settings_for(fake)) as client, ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(redact, client, PHOTO) for _ in range(4)]
        try:
            assert entered.acquire(timeout=20) and entered.acquire(timeout=20)
            assert not entered.acquire(timeout=0.3)
            assert client.get("/healthz").status_code == 200  # the event loop is free
        finally:
            release.set()
        assert [future.result().status_code for future in waiting] == [200] * 4


def test_deadline_holds_for_blurring(fake: FakeTriton, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr("api.redaction.blur_plates", lambda *_: release.wait(20))
    with running_gateway(settings_for(fake, request_timeout_s=0.5)) as client:
        try:
            response = redact(client, PHOTO)
        finally:
            release.set()
        assert_problem(response, 429, "overloaded")


NO_WRITES = """
import base64, os, resource, sys
import api.main, fake_triton  # whatever is imported may be compiled and cached now
from gateway_client import settings_for
from gateway_fixtures import running_gateway
from photo_files import encode
import numpy as np

written = []
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND

def note(event, arguments):
    if event == "open":
        path, mode, flags = arguments
        if (isinstance(mode, str) and set(mode) & set("wax+")) or (flags or 0) & WRITING:
            written.append(str(path))
    elif event.startswith("tempfile.") or event in ("os.mkdir", "os.rename"):
        written.append(event)

photo = encode(np.random.default_rng(1).integers(0, 256, (900, 900, 3), np.uint8), "PNG")
assert len(photo) > 2_000_000  # above what frameworks keep in memory
fake = fake_triton.FakeTriton()
with running_gateway(settings_for(fake)) as client:
    client.get("/healthz")
    # What neither Python nor its audit hooks see can't write a byte to a file, either.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    sys.addaudithook(note)
    files, text = {"image": ("a.png", photo)}, base64.b64encode(photo)
    answers = [
        client.post("/v1/plates?redact=true", files=files),
        client.post("/v1/plates", files=files),
        client.post("/v1/plates", content=photo, headers={"content-type": "image/png"}),
        client.post("/v1/plates/batch", files=[("image", ("a.png", photo))] * 3),
        client.post("/v1/plate-reader/", files={"upload": (None, text)}),
        client.post("/v1/vision/alpr", files=files),
    ]
    print([answer.status_code for answer in answers], written)
fake.stop()
"""


def test_nothing_is_written_to_disk() -> None:
    tests = Path(__file__).parent
    run = subprocess.run(
        [sys.executable, "-B", "-c", NO_WRITES],
        capture_output=True,
        text=True,
        cwd=tests.parent,
        env={"PYTHONPATH": f"{tests}:{tests.parent}", "PATH": "/usr/bin:/bin"},
        timeout=120,
    )
    assert run.stdout.strip() == "[200, 200, 200, 200, 201, 200] []", run.stderr
