"""Plates of any Latin country are rendered; a recognizer grows from one of fewer characters."""

import re
from itertools import product

import numpy as np
import pytest
import torch

from plate_models import release, weights
from plate_models.nets.lprnet import LPRNet
from plate_models.spec import RECOGNIZER, RecognizerSpec
from plate_models.training.recognizer import take_over
from plate_models.training.synthetic import latin
from plate_models.training.synthetic.crops import CLUTTER, render_crop
from plate_models.training.synthetic.latin import (
    CAPITALS_PX,
    LATIN,
    PAD_PX,
    FontsMissingError,
    LatinPlate,
    draw_glyph,
    fonts_in,
    make_up,
    paint_latin,
    sample_latin,
)


def test_texts_are_of_the_alphabet_and_as_long_as_plates_are() -> None:
    rng = np.random.default_rng(1)
    plates = [sample_latin(rng) for _ in range(500)]
    assert {len(plate.rows) for plate in plates} == {1, 2}
    texts = ["".join(plate.rows).replace(" ", "") for plate in plates]
    assert all(re.fullmatch("[0-9A-Z]{3,10}", text) for text in texts)
    assert set("".join(texts)) == set(RECOGNIZER.alphabet)


@pytest.mark.parametrize("rows", [("AB 123CD",), ("AB", "1234")])
def test_ink_stands_where_the_rows_are_cut(rows: tuple[str, ...]) -> None:
    """Each of many characters leaves ink, apart from the others; rows stay in their halves."""
    plate = LatinPlate(rows, (520, 112) if len(rows) == 1 else (280, 200))
    filled = []
    for seed in range(20):
        rgb, ink = paint_latin(plate, np.random.default_rng(seed), 1.0)
        assert rgb.shape == (*ink.shape, 3)
        middle = ink[:, 10:-10]
        filled.append((middle[8:-8] > 128).mean())
        if len(rows) == 2:
            height = len(ink)
            assert (ink[height // 2 - 3 : height // 2 + 3, 20:-20] > 128).mean() < 0.2
    assert min(filled) > 0.05 and max(filled) < 0.6


def test_no_character_of_a_typeface_is_cut() -> None:
    """Not even J and Q, which reach below the others where letters are not plates'."""
    for face, char in product(fonts_in(latin.FONTS), RECOGNIZER.alphabet):
        mask = draw_glyph(face, char, 4)
        assert not any(side.any() for side in (mask[0], mask[-1], mask[:, 0], mask[:, -1])), char
        if char == "J":  # its foot is left of the rest
            stem, foot = (np.flatnonzero(mask[row])[0] for row in (mask.shape[0] // 2, -PAD_PX - 3))
            assert foot < stem - 9


def test_block_letters_fill_their_height_and_differ() -> None:
    """But for O and 0, I and 1, which many countries stamp with one tool."""
    rng = np.random.default_rng(2)
    for _ in range(20):
        face = make_up(rng)
        masks = {char: draw_glyph(face, char, 0) for char in RECOGNIZER.alphabet}
        for char, mask in masks.items():
            rows = np.flatnonzero((mask > 128).any(axis=1))
            assert rows[0] <= PAD_PX + 2 and rows[-1] >= PAD_PX + CAPITALS_PX - 3, char
        assert (masks["5"][PAD_PX + 45 : PAD_PX + 80, PAD_PX + int(48 * face.pen)] < 99).sum() > 8
        pictures = {mask.tobytes() for mask in masks.values()}
        assert len(pictures) >= len(masks) - 2


def test_the_crop_says_what_stands_on_it() -> None:
    sample = render_crop(np.random.default_rng(3), kind=LATIN)
    assert sample.text == "".join(sample.rows) and sample.lines == len(sample.rows)
    nothing = render_crop(np.random.default_rng(4), kind=CLUTTER)
    assert nothing.text == "" and nothing.rows == ("",) and nothing.lines == 1


def test_a_folder_without_typefaces_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(latin, "FONTS", tmp_path)
    with pytest.raises(FontsMissingError, match=rf"{tmp_path}: expected typefaces.*make fonts"):
        paint_latin(LatinPlate(("A1",), (520, 112)), np.random.default_rng(1), 1.0)


def test_a_larger_recognizer_answers_as_the_one_it_starts_from() -> None:
    """Blocks that were added change nothing at first, and known characters keep their logits.

    Steps that were added repeat those before them, which spells the same text.
    """
    file = weights.read_file(release.WEIGHTS_DIR / "recognizer.safetensors")
    old_alphabet, steps = file.contract["alphabet"], file.contract["steps"]
    depths = file.contract.get("depths", RecognizerSpec().depths)
    old = LPRNet(RecognizerSpec(alphabet=old_alphabet, depths=tuple(depths), steps=steps))
    old.load_state_dict(file.state, strict=False)
    larger = RecognizerSpec(depths=(depths[0] + 1, depths[1] + 2), steps=2 * steps)
    new = LPRNet(larger)
    take_over(new, file)
    rows = [larger.alphabet.index(char) for char in old_alphabet] + [-1]
    plates = torch.randn(2, 3, 24, 94)
    with torch.no_grad():
        expected, found = old.eval()(plates), new.eval()(plates)
    twice = expected.repeat_interleave(2, dim=2)
    torch.testing.assert_close(found[:, rows], twice, rtol=1e-4, atol=1e-4)


def test_a_recognizer_of_unknown_characters_is_no_start() -> None:
    file = weights.read_file(release.WEIGHTS_DIR / "recognizer.safetensors")
    file.contract["alphabet"] = "Ж" + file.contract["alphabet"][1:]
    with pytest.raises(release.WeightsError, match=r"knows .*Ж.*alphabet lacks"):
        take_over(LPRNet(RECOGNIZER), file)
