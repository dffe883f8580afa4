"""Rendered plates of any country with Latin letters, and recognizers grown from smaller ones."""

import re
import runpy
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from plate_models import release, weights
from plate_models.nets.lprnet import LPRNet
from plate_models.spec import RECOGNIZER, RecognizerSpec
from plate_models.training.recognizer import take_over
from plate_models.training.synthetic import kinds, latin


def test_texts_have_the_alphabets_characters_and_plausible_lengths(monkeypatch):
    rng = np.random.default_rng(1)
    plates = [latin.sample_latin(rng) for _ in range(500)]
    assert {len(plate.rows) for plate in plates} == {1, 2}
    texts = ["".join(plate.rows).replace(" ", "") for plate in plates]
    assert all(re.fullmatch("[0-9A-Z]{3,10}", text) for text in texts)
    assert set("".join(texts)) == set(RECOGNIZER.alphabet)
    other = replace(RECOGNIZER, alphabet="0123456789XYZ", countries=("de",))
    monkeypatch.setattr("plate_models.spec.RECOGNIZER", other)
    assert runpy.run_path(latin.__file__)["_LETTERS"] == ["X", "Y", "Z"]
    assert runpy.run_path(kinds.__file__)["TRAINING_SHARES"] == ()


@pytest.mark.parametrize("rows", [("AB 123CD",), ("AB", "1234")])
def test_each_row_of_ink_lies_where_rows_are_cut(rows):
    """Characters leave ink but don't merge; each row of two stays in its half of the plate."""
    plate = latin.LatinPlate(rows, (520, 112) if len(rows) == 1 else (280, 200))
    filled = []
    for seed in range(20):
        rgb, ink = latin.paint_latin(plate, np.random.default_rng(seed), 1.0)
        assert rgb.shape == (*ink.shape, 3)
        middle = ink[:, 10:-10]
        filled.append((middle[8:-8] > 128).mean())
        if len(rows) == 2:
            height = len(ink)
            assert (ink[height // 2 - 3 : height // 2 + 3, 20:-20] > 128).mean() < 0.2
    assert min(filled) > 0.05 and max(filled) < 0.6


def test_no_character_of_a_typeface_is_cut_off():
    """Not even J and Q, which reach below the baseline in typefaces not made for plates."""
    for face, char in product(latin.fonts_in(latin.FONTS), RECOGNIZER.alphabet):
        mask = latin.draw_glyph(face, char, 4)
        assert not any(side.any() for side in (mask[0], mask[-1], mask[:, 0], mask[:, -1])), char
        if char == "J":  # its foot points to the left
            foot_row = -latin.PAD_PX - 3
            stem, foot = (np.flatnonzero(mask[row])[0] for row in (len(mask) // 2, foot_row))
            assert foot < stem - 9


def test_made_up_letters_fill_their_height_and_are_distinct():
    """Only O and 0, and I and 1, may be equal: many countries stamp them with one die."""
    rng, pad = np.random.default_rng(2), latin.PAD_PX
    for _ in range(20):
        face = latin.make_up(rng)
        masks = {char: latin.draw_glyph(face, char, 0) for char in RECOGNIZER.alphabet}
        for char, mask in masks.items():
            rows = np.flatnonzero((mask > 128).any(axis=1))
            assert rows[0] <= pad + 2 and rows[-1] >= pad + latin.CAPITALS_PX - 3, char
        assert (masks["5"][pad + 45 : pad + 80, pad + int(48 * face.pen)] < 99).sum() > 8
        pictures = {mask.tobytes() for mask in masks.values()}
        assert len(pictures) >= len(masks) - 2


def test_an_error_names_the_folder_without_typefaces(tmp_path, monkeypatch):
    monkeypatch.setattr(latin, "FONTS", tmp_path)
    cure = rf"{tmp_path}: expected typefaces.*make fonts"
    with pytest.raises(FileNotFoundError, match=cure):
        latin.paint_latin(latin.LatinPlate(("A1",), (520, 112)), np.random.default_rng(1), 1.0)


def test_a_larger_recognizer_computes_the_same_as_the_one_it_starts_from():
    """Added blocks change nothing at first, and known characters keep their logits.

    Added steps repeat the existing ones, which spells the same text.
    """
    file = weights.read_file(release.WEIGHTS_DIR / "recognizer.safetensors")
    released = weights.load_modules()
    old = released.config.specs.recognizer
    larger = RecognizerSpec(depths=(old.depths[0] + 1, old.depths[1] + 2), steps=2 * old.steps)
    new = LPRNet(larger)
    take_over(new, file)
    rows = [larger.alphabet.index(char) for char in old.alphabet] + [-1]
    plates = torch.randn(2, 3, 24, 94)
    with torch.no_grad():
        expected, found = released.recognize(plates), new.eval()(plates)
    twice = expected.repeat_interleave(2, dim=2)
    torch.testing.assert_close(found[:, rows], twice, rtol=1e-4, atol=1e-4)
    file.contract["alphabet"] = "Ж" + old.alphabet[1:]
    with pytest.raises(release.WeightsError, match=r"knows .*Ж.*alphabet lacks"):
        take_over(LPRNet(RECOGNIZER), file)
