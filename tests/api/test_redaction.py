"""Redacted photos: what is blurred, what stays unchanged, and that nothing is stored."""

import base64
import io
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest
from fake_triton import Holding, outputs
from photo_files import encode, exif
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from support import PHOTO, assert_problem, files_limited_to, post_form, post_raw

from api.redaction import blur_plate
from plate_models.images import decode

pytestmark = pytest.mark.settings()  # default settings, not the small limits of other tests

WIDTH, HEIGHT = 640, 480
# The boxes of the fake Triton's plates, and these boxes with the blurred margin.
BOXES = ((10, 20, 110, 44), (400, 300, 440, 312))
AREAS = ((4, 14, 116, 50), (397, 297, 443, 315))


def noise():
    """A noisy photo, in which every blurred place is visible."""
    blocks = np.random.default_rng(7).integers(0, 256, (HEIGHT // 4, WIDTH // 4, 3), np.uint8)
    return np.ascontiguousarray(blocks.repeat(4, axis=0).repeat(4, axis=1))


def detail(pixels):
    """Standard deviation of the second derivative: high where letters have edges."""
    return float(cv2.Laplacian(pixels, cv2.CV_64F).std())


def redact(client, photo, **fields):
    response = post_form(client, photo, redact="true", **fields)
    assert response.status_code == 200, response.text
    return response


def pixels_of(response):
    return np.asarray(Image.open(io.BytesIO(response.content)).convert("RGB"))


def outside(pixels):
    """The pixels outside the plates' AREAS, which are extended to JPEG's blocks of 8 pixels."""
    kept = np.ones(pixels.shape[:2], bool)
    for x0, y0, x1, y1 in AREAS:
        kept[y0 // 8 * 8 : -(-y1 // 8) * 8, x0 // 8 * 8 : -(-x1 // 8) * 8] = False
    return pixels[kept].astype(int)


@pytest.mark.parametrize(
    "fields", [{}, {"roi": "600,400,640,480"}, {"min_width": 1000}, {"roi": "0,0,60,32"}]
)
def test_every_plate_is_blurred_whatever_the_parameters_choose(client, fields):
    before = noise()
    response = redact(client, encode(before, "PNG"), **fields)
    assert response.headers["content-type"] == "image/png"
    assert response.headers["x-plates-redacted"] == "2"
    assert response.headers["content-disposition"] == "inline"
    after = pixels_of(response)
    assert (outside(after) == outside(before)).all()
    for x0, y0, x1, y1 in BOXES:
        assert detail(after[y0:y1, x0:x1]) < 3 < 50 < detail(before[y0:y1, x0:x1])


@pytest.mark.parametrize("file_format", ["JPEG", "WEBP", "BMP", "TIFF", "GIF"])
def test_a_redacted_photo_is_a_jpeg_unless_it_was_a_png(client, file_format):
    photo = encode(cv2.GaussianBlur(noise(), (0, 0), 3), file_format)
    response = post_raw(client, photo, redact="yes")
    assert response.headers["content-type"] == "image/jpeg"
    after = pixels_of(response)
    difference = np.abs(outside(after) - outside(decode(photo)))
    assert difference.mean() < 5 and difference.max() < 40
    assert detail(after[20:44, 10:110]) < 8
    assert post_form(client, photo, redact="false").json()["plates"]


def test_a_photo_too_long_for_a_jpeg_becomes_a_png(client, fake):
    fake.reply = lambda _: outputs(0)
    before = np.full((8, 65_501, 3), 200, np.uint8)
    response = redact(client, encode(before, "BMP"))
    assert response.headers["content-type"] == "image/png"
    assert response.headers["x-plates-redacted"] == "0"
    assert (pixels_of(response) == before).all()


def test_a_redacted_photo_is_upright_and_has_no_metadata_and_no_transparency(client):
    upright = noise()
    stored = np.ascontiguousarray(upright.transpose(1, 0, 2)[::-1])
    secret = encode(np.zeros((8, 8, 3), np.uint8), "JPEG", comment=b"secret thumbnail")
    photo = encode(stored, "JPEG", exif=exif(6, secret), comment=b"secret place", quality=95)
    response = redact(client, photo)
    assert b"secret" in photo and b"Exif" in photo
    for word in (b"secret", b"Exif", b"http://ns.adobe.com"):
        assert word not in response.content
    image = Image.open(io.BytesIO(response.content))
    assert image.info.keys() <= {"jfif", "jfif_version", "jfif_unit", "jfif_density"}
    assert np.abs(outside(np.asarray(image)) - outside(upright)).mean() < 25
    about = PngInfo()
    about.add_text("Comment", "secret")
    response = redact(client, encode(upright, "PNG", pnginfo=about, exif=exif(1)[6:]))
    assert b"secret" not in response.content
    assert not Image.open(io.BytesIO(response.content)).info
    # Transparent pixels, which no viewer shows, would stay readable in the file.
    hidden = np.dstack([noise(), np.zeros((HEIGHT, WIDTH), np.uint8)])
    assert (outside(pixels_of(redact(client, encode(hidden, "PNG", "RGBA")))) == 255).all()


@pytest.mark.settings(request_timeout_s=1)
def test_one_photo_is_blurred_at_a_time(client, monkeypatch):
    blurring = Holding()
    monkeypatch.setattr("api.redaction.blur_plate", lambda *_: blurring(b""))
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(post_form, client, PHOTO, redact="true") for _ in range(4)]
        with blurring:
            assert blurring.arrived.acquire(timeout=20)
            assert not blurring.arrived.acquire(timeout=0.3)
            assert client.get("/healthz").status_code == 200  # the event loop is free
            # Blurring has the deadline, too.
            assert_problem(waiting[0].result(), 429, "overloaded")


def blurred(pixels, box, quad=None):
    """A copy of the pixels with one plate blurred; its quad defaults to the box's corners."""
    found, copy = np.array(box, np.float32), pixels.copy()
    corners = found[[0, 1, 2, 1, 2, 3, 0, 3]] if quad is None else np.array(quad, np.float32)
    blur_plate(copy, found, corners.reshape(4, 2))
    return copy


BOX = (200, 200, 300, 240)
TILTED = [[190, 180], [310, 220], [305, 262], [185, 220]]
FAR_AWAY = [[600, 600]] * 4
NOTHING = np.s_[:0]


@pytest.mark.parametrize(
    ("box", "quad", "covered", "kept"),
    [
        # The box's margin, and the corners of a tilted plate beyond the box.
        (BOX, None, np.s_[191:249, 191:309], np.s_[280:]),
        (BOX, TILTED, np.s_[180:262, 185:310], np.s_[320:]),
        (BOX, FAR_AWAY, np.s_[200:240, 200:300], np.s_[320:]),
        ((600, 460, 700, 500), None, np.s_[460:, 600:], np.s_[:420]),
        ((100, 100, 100, 100), None, NOTHING, np.s_[120:]),
    ],
)
def test_box_margin_and_quad_are_blurred_and_the_rest_is_unchanged(box, quad, covered, kept):
    pixels = blurred(noise(), box, quad)
    assert not pixels[covered].size or detail(pixels[covered]) < 3
    assert (pixels[kept] == noise()[kept]).all()


def test_different_texts_leave_the_same_pixels_behind():
    """Nobody can find the text by blurring guesses and comparing them with the photo."""
    left = set()
    for seed in range(64):
        random = np.random.default_rng(seed)
        pixels = np.full((100, 300, 3), 90, np.uint8)
        # The light differs as well; without rounding, it would stay known to a part in 256.
        pixels[40:64, 100:204] = random.integers(225, 250)
        # Eight letters of 12 columns, each black on its left or on its right.
        starts = 106 + 12 * np.arange(8) + 5 * random.integers(0, 2, 8)
        pixels[44:60, (starts[:, None] + np.arange(4)).ravel()] = 20
        left.add(blurred(pixels, (100, 40, 204, 64)).tobytes())
    assert len(left) <= 8


def test_nothing_is_written_to_disk(client, fake):
    photo = encode(np.random.default_rng(1).integers(0, 256, (900, 900, 3), np.uint8), "PNG")
    assert len(photo) > 2_000_000  # more than web frameworks keep in memory
    files, text = {"image": ("a.png", photo)}, base64.b64encode(photo)
    with files_limited_to(0):
        answers = [
            client.post("/v1/plates?redact=true", files=files),
            client.post("/v1/plates", files=files),
            client.post("/v1/plates", content=photo, headers={"content-type": "image/png"}),
            client.post("/v1/plates/batch", files=[("image", ("a.png", photo))] * 3),
            client.post("/v1/plate-reader/", files={"upload": (None, text)}),
            client.post("/v1/vision/alpr", files=files),
        ]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 201, 200]
    assert set(fake.photos) == {photo}
