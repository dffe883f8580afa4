"""What blurring leaves of plates, whatever their boxes and corners."""

import numpy as np
import pytest
from noisy_photo import detail, noise

from api.redaction import blur_plates


def areas_of(*boxes: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    found = np.array(boxes, np.float32).reshape(-1, 4)
    return found, found[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)


def test_nothing_to_blur() -> None:
    pixels = noise()
    blur_plates(pixels, *areas_of())
    assert (pixels == noise()).all()


@pytest.mark.parametrize(
    "box",
    [
        (-50, -20, 60, 30),
        (600, 460, 700, 500),
        (-900, -900, -800, -850),
        (100, 100, 100, 100),
        (0, 0, 640, 480),
        (639, 0, 640, 1),
        (100.4, 50.6, 230.2, 80.9),
    ],
)
def test_boxes_anywhere(box: tuple[float, ...]) -> None:
    pixels = noise()
    blur_plates(pixels, *areas_of(box))
    x0, y0, x1, y1 = (max(0, round(side)) for side in box)
    inside = pixels[y0:y1, x0:x1]
    if min(inside.shape[:2]) > 3:
        assert detail(inside) < 3
    height = max(8.0, y1 - y0)
    far = pixels[int(y1 + height) :, int(x1 + height) :]
    assert (far == noise()[int(y1 + height) :, int(x1 + height) :]).all()


def test_tilted_plate_is_covered_by_its_quad() -> None:
    """The corners of a tilted plate reach beyond the detector's box."""
    pixels, boxes = noise(), areas_of((200, 200, 300, 240))[0]
    quad = np.array([[[190, 180], [310, 220], [305, 262], [185, 220]]], np.float32)
    blur_plates(pixels, boxes, quad)
    assert detail(pixels[180:262, 185:310]) < 3


def test_letters_at_the_edge_of_the_box_are_covered() -> None:
    pixels = noise()
    blur_plates(pixels, *areas_of((200, 200, 300, 240)))
    assert detail(pixels[191:249, 191:309]) < 3


def test_corners_far_away_blur_no_more_than_the_surroundings() -> None:
    pixels, boxes = noise(), areas_of((200, 200, 260, 220))[0]
    blur_plates(pixels, boxes, np.full((1, 4, 2), 600, np.float32))
    assert (pixels[260:] == noise()[260:]).all()


def plate_of(letters: np.ndarray, brightness: int) -> np.ndarray:
    """A white plate of 104x24 pixels with eight places, each black on its left or right."""
    plate = np.full((24, 104, 3), brightness, np.uint8)
    for place, right in enumerate(letters):
        x = 6 + place * 12 + (5 if right else 0)
        plate[4:20, x : x + 4] = 20
    return plate


def test_different_texts_leave_the_same_behind() -> None:
    """Not only unreadable for people: there is nothing to compare guesses with."""
    left = set()
    for seed in range(64):
        random = np.random.default_rng(seed)
        pixels = np.full((100, 300, 3), 90, np.uint8)
        # Light differs as well; unrounded, it would be told to a part in 256.
        pixels[40:64, 100:204] = plate_of(random.integers(0, 2, 8), random.integers(225, 250))
        blur_plates(pixels, *areas_of((100, 40, 204, 64)))
        left.add(pixels.tobytes())
    assert len(left) <= 8
