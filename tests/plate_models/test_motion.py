"""Motion blur: its direction is estimated, crops are deblurred, blurred plates are read."""

import cv2
import numpy as np
import pytest
from support import SAMPLES

from plate_models import rectification
from plate_models.engines.nets import load_nets
from plate_models.images import decode
from plate_models.motion import blur_of, without_motion
from plate_models.pixels import crop
from plate_models.recognition import ctc


def blur(image, x, y):
    """Blur a picture like a straight motion by (x, y) pixels during the exposure."""
    shifts = (np.array([[1, 0, x * part], [0, 1, y * part]]) for part in np.linspace(-0.5, 0.5, 31))
    point = np.pad(np.ones((1, 1)), 16)
    trace = np.mean([cv2.warpAffine(point, by, point.shape) for by in shifts], axis=0)
    return cv2.filter2D(image, -1, trace, borderType=cv2.BORDER_REFLECT)


@pytest.mark.parametrize(
    ("name", "way", "texts"),
    [
        ("two_at_night.jpg", (14, 0), {"H781CC105", "B294XX164"}),
        ("square_plates.jpg", (0, 9), {"A110AM77", "A432BO07"}),
        ("portrait.jpg", (11, -3), {"T810BA790", "K343ME74"}),
    ],
)
def test_plates_with_motion_blur_are_read_in_photos(name, way, texts):
    nets, photo = load_nets(), blur(decode((SAMPLES / name).read_bytes()), *way)
    plates, alphabet = nets.read(photo), nets.config.specs.recognizer.alphabet
    assert {plate.reading.text for plate in plates} == texts
    assert {ctc.greedy_decode(plate.log_probs, alphabet) for plate in plates} == texts
    # A camera's frames are not deblurred: sharper frames may follow.
    assert {plate.reading.text for plate in nets.read(photo, still=False)} != texts


@pytest.mark.parametrize("way", [(9, 0), (0, -6), (6, 5)])
def test_deblurring_brings_a_crop_closer_to_the_sharp_one(way):
    photo, box = decode((SAMPLES / "two_by_day.jpg").read_bytes()), (280.0, 490.0, 460.0, 550.0)
    sharp, blurred = (crop(each, box, (64, 160)) for each in (photo, blur(photo, *way)))
    in_crop = np.array([way], np.float32) * (160 / 180, 64 / 60)
    again, middle = without_motion(blurred, in_crop), np.s_[:, :, 16:-16, 30:-30]
    left, before = (abs(each - sharp)[middle].mean() for each in (again, blurred))
    assert left < 0.6 * before


@pytest.mark.parametrize("degrees", [0, 40, 90, 130])
def test_the_direction_of_the_blur_is_estimated_for_tilted_plates(degrees):
    radians = np.radians(degrees)
    noise = np.random.default_rng(0).integers(0, 256, (300, 300, 3), np.uint8)
    photo = blur(cv2.GaussianBlur(noise, (0, 0), 1.5), 12 * np.cos(radians), 12 * np.sin(radians))
    quad = np.array([[60, 100], [220, 130], [235, 170], [75, 140]], np.float32)
    corners = np.array([[0, 0], [188, 0], [188, 48], [0, 48]], np.float32)
    plate = cv2.warpPerspective(photo, cv2.getPerspectiveTransform(quad, corners), (188, 48))
    way, sharpness = blur_of(plate, quad)
    off = np.degrees(np.angle(way)) - degrees
    assert abs((off + 90) % 180 - 90) < 8 and abs(abs(way) - 1) < 1e-6 and sharpness < 0.5
    still = cv2.warpPerspective(noise, cv2.getPerspectiveTransform(quad, corners), (188, 48))
    assert 0.5 < blur_of(still, quad)[1] <= 1


def test_a_blurred_plate_cut_by_its_box_is_cropped_and_deblurred_again(monkeypatch):
    asked, straight = [], np.array([[0.8, 0, 0], [0, 0.8, 0]], np.float32)
    monkeypatch.setattr(rectification, "without_motion", lambda *a: asked.append(a[1]) or a[0])

    def rectify(crops):  # In the first batch the last plate reaches the edges of its crop.
        theta = np.stack([straight] * len(crops)) / np.linspace(1, 0.8, len(crops))[:, None, None]
        return crops[:, :, :24, :94], theta.astype(np.float32)

    boxes = np.array([[20, 20, 180, 84], [20, 120, 180, 184]], np.float32)
    photo, ways = np.zeros((300, 300, 3), np.uint8), np.array([[9, 0], [0, 6]], np.float32)
    rectification.straighten(photo, boxes, np.array([1, 1]), rectify, motions=ways)
    first, again = asked
    assert np.allclose(first, [[9 / 1.3, 0], [0, 6 / 1.5]])  # pixels of crops, which have margins
    assert again.shape == (1, 2) and again[0, 0] == 0 < again[0, 1] < first[1, 1]
