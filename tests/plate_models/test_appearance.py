"""What a plate's look tells of its format: the ground's colour, the aspect ratio, a band on top."""

import cv2
import numpy as np
import pytest

from plate_models.recognition.appearance import evidence_of, ground_likelihoods
from plate_models.recognition.grammar import GROUNDS
from plate_models.spec import RECTIFIER

HEIGHT, WIDTH = RECTIFIER.shown_hw
# The shares of light that a ground (red, green, blue) and its ink reflect.
SURFACES = {
    "white": ((0.85, 0.85, 0.85), 0.06),
    "yellow": ((0.85, 0.6, 0.12), 0.06),
    "blue": ((0.06, 0.18, 0.55), 0.85),
    "black": ((0.06, 0.06, 0.07), 0.85),
    "red": ((0.6, 0.07, 0.07), 0.85),
}


def draw_plate(colour, light=(255, 255, 255), haze=0.0, blur=0.8):
    ink = np.zeros((HEIGHT, WIDTH), np.float32)
    cv2.putText(ink, "A123BC 77", (6, 36), cv2.FONT_HERSHEY_SIMPLEX, 1.05, 1.0, 4, cv2.LINE_AA)
    ink = np.asarray(cv2.GaussianBlur(ink, (0, 0), blur), np.float32)[..., None]
    ground, ink_share = SURFACES[colour]
    pixels = (np.array(ground) * (1 - ink) + ink_share * ink) * np.array(light) + haze
    pixels += np.random.default_rng(0).normal(0, 2, pixels.shape)
    return np.clip(pixels, 0, 255).astype(np.uint8)


def likelihoods_of(plate, colourless=False):
    (found,) = ground_likelihoods(plate[None], colourless)
    return dict(zip(GROUNDS, found, strict=True))


@pytest.mark.parametrize("colour", GROUNDS)
def test_exposure_haze_blur_and_colour_cast_do_not_change_the_ground(colour):
    for light, haze, blur in (
        ((255, 255, 255), 0, 0.8),
        ((130, 130, 130), 80, 0.8),
        ((230, 255, 245), 10, 2.5),
        ((255, 235, 205), 5, 0.8),
    ):
        found = likelihoods_of(draw_plate(colour, light, haze, blur))
        assert max(found, key=found.__getitem__) == colour, found
        assert sum(found.values()) == pytest.approx(1) and min(found.values()) >= 0.01 - 1e-9
    if colour in ("white", "blue"):  # a shadow across the plate is not taken for ink
        shade = np.linspace(0.2, 1, WIDTH)[None, :, None]
        assert likelihoods_of((draw_plate(colour) * shade).astype(np.uint8))[colour] > 0.8


@pytest.mark.parametrize("level", [0, 3, 128, 255])
def test_a_crop_without_text_is_no_evidence_of_a_colour(level):
    flat = likelihoods_of(np.full((HEIGHT, WIDTH, 3), level, np.uint8))
    # Neither dark nor light ink is preferred, and grey is no evidence of a colour.
    assert flat["white"] == pytest.approx(flat["black"], rel=0.2)
    noise = np.random.default_rng(1).normal(level, 3, (HEIGHT, WIDTH, 3)).clip(0, 255)
    assert max(likelihoods_of(noise.astype(np.uint8)).values()) < 0.85


@pytest.mark.parametrize("colour", GROUNDS)
def test_grey_pictures_tell_only_dark_ink_from_light_ink(colour):
    """A picture without colour, as in infrared light, is no evidence against a colour."""
    grey = draw_plate(colour) @ np.array([0.299, 0.587, 0.114])
    grey = np.repeat(grey.round().astype(np.uint8)[..., None], 3, axis=2)
    found = likelihoods_of(grey, colourless=True)
    dark_ink, light_ink = ("white", "yellow"), ("blue", "black", "red")
    likely, others = (dark_ink, light_ink) if colour in dark_ink else (light_ink, dark_ink)
    assert len({found[name] for name in likely}) == len({found[name] for name in others}) == 1
    assert found[likely[0]] > 5 * found[others[0]]
    assert sum(found.values()) == pytest.approx(1)


def test_the_aspect_ratio_and_a_band_along_the_top_are_measured():
    plain, banded = draw_plate("white", (150, 140, 130)), draw_plate("white", (150, 140, 130))
    banded[: HEIGHT // 5] = (10, 30, 80)
    aslant, square = [(0, 0), (300, 30), (310, 130), (10, 100)], [(0, 0), (9, 0), (9, 9), (0, 9)]
    pair = np.stack([plain, banded]), [aslant, square], [1, 2]
    seen = evidence_of(*pair, colourless=False)
    assert [each.lines for each in seen] == [1, 2]
    assert [each.aspect for each in seen] == pytest.approx([3.0, 1.0], rel=0.01)
    assert seen[0].top_band < 0.1 and seen[1].top_band > 0.9
    assert evidence_of(*pair, colourless=True) == seen  # a coloured plate on a white page
    grey = pair[0][..., :1].repeat(3, axis=3)
    assert [each.top_band for each in evidence_of(grey, *pair[1:], True)] == [0.5, 0.5]


def test_each_plate_of_a_batch_has_the_likelihoods_that_it_has_alone():
    plates = np.stack([draw_plate(colour) for colour in GROUNDS])
    for plate, found in zip(plates, ground_likelihoods(plates), strict=True):
        assert found == pytest.approx(tuple(likelihoods_of(plate).values()), abs=1e-5)
