"""The plate's characters: their shapes, and how close they come to a reference typeface."""

import os
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from plate_models.spec import RECOGNIZER
from plate_models.training.synthetic.glyphs import DIGITS, GLYPHS, LETTERS, glyph_mask

REFERENCE_FONT = os.environ.get("PLATES_REFERENCE_FONT", "")
# The font has no plate glyph for the letter De.
COMPARED = sorted(set(DIGITS | LETTERS) - {"D"})


def ink_box(mask: np.ndarray) -> np.ndarray:
    """Cut a coverage mask to what is inked; returns bool."""
    inked = mask > 127
    rows, columns = np.flatnonzero(inked.any(axis=1)), np.flatnonzero(inked.any(axis=0))
    return inked[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def overlap(first: np.ndarray, second: np.ndarray) -> float:
    """Best intersection over union of two bool masks, moved by a few pixels."""
    height = max(first.shape[0], second.shape[0]) + 12
    width = max(first.shape[1], second.shape[1]) + 12
    still = np.zeros((height, width), bool)
    still[6 : 6 + first.shape[0], 6 : 6 + first.shape[1]] = first
    best = 0.0
    for top in range(13):
        for left in range(13):
            moved = np.zeros_like(still)
            window = moved[top : top + second.shape[0], left : left + second.shape[1]]
            window[:] = second[: window.shape[0], : window.shape[1]]
            best = max(best, (still & moved).sum() / (still | moved).sum())
    return best


def test_every_character_of_the_alphabet_is_drawn() -> None:
    assert set(RECOGNIZER.alphabet) <= set(GLYPHS)


@pytest.mark.parametrize("char", sorted(GLYPHS))
def test_glyph_fills_its_box(char: str) -> None:
    glyph = GLYPHS[char]
    inked = ink_box(glyph_mask(char, 4.0, glyph.height))
    assert inked.shape[0] == pytest.approx(4 * glyph.height, abs=4)
    assert inked.shape[1] == pytest.approx(4 * glyph.width, abs=8)


def test_characters_are_distinct() -> None:
    masks = {char: ink_box(glyph_mask(char, 2.0, 76.0)) for char in RECOGNIZER.alphabet}
    for first in masks:
        for second in masks:
            # A digit and a letter of one shape differ by their size on the plate.
            if first < second and {first, second} != {"0", "O"}:
                assert overlap(masks[first], masks[second]) < 0.93, (first, second)


def test_holes() -> None:
    """Letters are told apart by their holes: the plate's 4 is open, its 6 is not."""
    expected = dict.fromkeys("123457EKMHCTYX", 0)
    expected |= dict.fromkeys("069AOPD", 1) | dict.fromkeys("8B", 2)
    for char, holes in expected.items():
        mask = glyph_mask(char, 2.0, 76.0)
        paper = np.pad((mask <= 127).astype(np.uint8), 1, constant_values=1)
        assert cv2.connectedComponents(paper, connectivity=4)[0] - 2 == holes, char


def test_bolder_strokes_cover_more() -> None:
    thin, plain, bold = (glyph_mask("8", 2.0, 76.0, bolder).sum() for bolder in (-2.0, 0.0, 2.0))
    assert thin < plain < bold


def test_mask_is_shared_and_protected() -> None:
    mask = glyph_mask("8", 1.0, 76.0)
    assert mask is glyph_mask("8", 1.0, 76.0)
    with pytest.raises(ValueError, match="read-only"):
        mask[0, 0] = 1


def _reference(char: str, pixels: int) -> np.ndarray:
    """The reference font's glyph; its capital O is 58 mm high where digits are 76 mm."""
    font = ImageFont.truetype(str(Path(REFERENCE_FONT)), pixels)
    left, top, right, bottom = font.getbbox(char)
    canvas = Image.new("L", (right - left + 20, bottom - top + 20), 0)
    ImageDraw.Draw(canvas).text((10 - left, 10 - top), char, font=font, fill=255)
    return ink_box(np.asarray(canvas))


@pytest.mark.skipif(
    not REFERENCE_FONT, reason="PLATES_REFERENCE_FONT names no font to compare with"
)
def test_glyphs_look_like_the_reference() -> None:
    size = 400
    scale = _reference("1", size).shape[0] / 76.0
    scores = {}
    for char in COMPARED:
        ours = ink_box(glyph_mask(char, scale, GLYPHS[char].height))
        scores[char] = overlap(_reference(char, size), ours)
    # E, T and H follow photos of plates, where they are wider or narrower than here.
    assert min(scores.values()) > 0.75, scores
    assert np.mean(list(scores.values())) > 0.9, scores
