"""The renderer that training uses: texts, characters, kinds of plates, crops, painted photos."""

import re
from collections import Counter
from collections.abc import Callable

import cv2
import numpy as np
import pytest
import torch

from plate_models.formats import REGIONS, RUSSIA
from plate_models.rectification import crop_boxes
from plate_models.spec import RECOGNIZER, RECTIFIER
from plate_models.training.synthetic.crops import CropStyle, cut_crop, render_crop
from plate_models.training.synthetic.glyphs import GLYPHS, LATIN_D, glyph_mask
from plate_models.training.synthetic.kinds import KINDS
from plate_models.training.synthetic.photo import PhotoStyle
from plate_models.training.synthetic.plates import PlateStyle, render_plate
from plate_models.training.synthetic.scenes import paint_plate
from plate_models.training.synthetic.texts import sample_text

# A camera without faults: what is left is geometry.
CLEAR_PHOTO = PhotoStyle(
    **dict.fromkeys(("dark_share", "shadow_share", "glare_share", "motion_share"), 0),
    **dict.fromkeys(("resample_share", "denoise_share", "sharpen_share"), 0),
    **dict.fromkeys(("day_gain", "gamma"), (1, 1)),
    day_haze=(0, 0),
    defocus=0.01,
    noise=(0.1, 0.2),
    jpeg_quality=(94, 95),
)
NEW = {"worn_share": 0, "dirty_share": 0, "snowy_share": 0}
NEW_PLATES = PlateStyle(jitter_mm=0, bolder_mm=(0.0,), ink=(20, 21), **NEW)
# Every text of a kind as wide and dark as it gets, without what hides it.
CLEAN = PlateStyle(
    bolder_mm=(1.0,), relief=(0, 0), screw_shares=(0, 0), holder_share=0, flag_share=0, **NEW
)

FORMATS = {plate_format.name: plate_format for plate_format in RUSSIA.formats}


def match(kind: str, text: str) -> re.Match[str]:
    """Understand a text as the grammar has it."""
    return next(filter(None, (pattern.fullmatch(text) for pattern in FORMATS[kind].patterns)))


def test_all_kinds_are_trained_on() -> None:
    shares = dict(CropStyle().kinds)
    assert set(KINDS) == set(shares) and sum(shares.values()) == pytest.approx(1)
    grounds = {name: (kind.lines, kind.ground.name) for name, kind in KINDS.items()}
    assert grounds == {name: (known.lines, known.ground) for name, known in FORMATS.items()}
    assert set(RECOGNIZER.alphabet) <= set(GLYPHS)


# Texts


@pytest.mark.parametrize("kind", KINDS)
def test_texts_follow_the_grammar(kind: str) -> None:
    rng = np.random.default_rng(0)
    codes: Counter[str] = Counter()
    for _ in range(500):
        text = sample_text(rng, kind)
        found = match(kind, text)
        assert len(text) <= RECOGNIZER.max_text_length
        serial = text[: found.start("region")]
        assert not re.search(r"(?<!\d)0+(?!\d)", serial), f"{text}: a zero number"
        codes[found["region"]] += 1
    assert len(codes) > 25
    if kind == "ru.military":
        # Codes of districts, not of regions: Moscow's are no more frequent than others.
        assert sum(codes[code] for code in ("77", "97", "99")) < 27
    else:
        assert set(codes) <= set(REGIONS)


def test_texts_cover_regions_repeats_and_marks() -> None:
    rng = np.random.default_rng(1)
    texts = [sample_text(rng) for _ in range(4000)]
    moscow, tuva = (sum(text[6:] == code for text in texts) for code in ("777", "17"))
    assert moscow > 3 * tuva > 0
    assert sum(text[1] == text[2] == text[3] for text in texts) > 0.08 * len(texts)
    assert {text[0] for text in texts} >= set("ABEKMHOPCTYX")
    assert 0 < sum("D" in text for text in texts) < 0.03 * len(texts)
    marks = Counter(re.sub(r"\d", "", sample_text(rng, "ru.diplomatic")) for _ in range(300))
    assert set(marks) == {"CD", "D", "T"} and min(marks.values()) > 60


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (lambda rng: sample_text(rng, "ru.boat"), r"ru\.car, .*got 'ru\.boat'"),
        (lambda rng: render_plate("A123BC77", rng, kind="ru.boat"), r"ru\.car, .*got 'ru\.boat'"),
        (lambda rng: render_crop(rng, kind="ru.boat"), r"ru\.car, .*got 'ru\.boat'"),
        (lambda rng: render_plate("", rng, kind="ru.taxi"), r"ru\.taxi has . "),
        (lambda rng: render_plate("AB123BC77", rng, kind="ru.taxi"), r"ru\.taxi has . "),
        (lambda rng: render_plate("1234AB777", rng, kind="ru.military"), r"ru\.military has . "),
        (lambda rng: paint_plate(striped(OLD), np.float32(OLD) + 900, rng), "inside the photo"),
    ],
)
def test_what_is_not_there_is_refused(refused: Callable[..., object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        refused(np.random.default_rng(0))


@pytest.mark.parametrize(
    ("kind", "text", "right", "wrong"),
    [("ru.diplomatic", "123D45677", LATIN_D, "D"), ("ru.car", "D123AA77", "D", LATIN_D)],
)
def test_the_d_of_diplomats_is_latin(kind: str, text: str, right: str, wrong: str) -> None:
    plate = render_plate(text, np.random.default_rng(4), 1.0, CLEAN, kind)
    grey = cv2.cvtColor(plate.rgb, cv2.COLOR_RGB2GRAY)
    ink = cv2.absdiff(grey, np.full_like(grey, int(np.median(grey))))
    fits = [
        cv2.matchTemplate(ink, glyph_mask(name, 1.0, 58, 1.0), cv2.TM_CCOEFF_NORMED).max()
        for name in (right, wrong)
    ]
    assert fits[0] > 0.9 > 0.8 > fits[1]


# Plates


def _changed_rows(first: str, second: str, kind: str, seed: int) -> np.ndarray:
    """Where two texts differ on otherwise equal plates, as shares of the height."""
    pictures = [
        render_plate(text, np.random.default_rng(seed), 2.0, CLEAN, kind).rgb.astype(int)
        for text in (first, second)
    ]
    rows = np.flatnonzero(np.abs(pictures[0] - pictures[1]).max(axis=(1, 2)) > 3)
    return np.array([rows.min(), rows.max() + 1]) / len(pictures[0])


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.lines == 2])
def test_lines_stay_in_their_halves(kind: str) -> None:
    first, other = ("A000", "B888") if kind == "ru.car.square" else ("0000", "8888")
    for seed in range(10):
        tail = ("EE99", "EE999")[seed % 2]
        top, foot = _changed_rows(first + tail, other + tail, kind, seed)
        assert 0.03 < top < 0.25 < foot <= 0.5
        top, foot = _changed_rows(first + "EE88", first + "BB00", kind, seed)
        assert 0.5 <= top < 0.65 < foot < 0.98


# Crops


def test_crops_follow_from_their_seed_alone() -> None:
    """Caches fill up while rendering; they must not leak into pictures."""
    early = {kind: render_crop(np.random.default_rng(5), kind=kind) for kind in KINDS}
    for kind, first in early.items():
        again, other = (render_crop(np.random.default_rng(seed), kind=kind) for seed in (5, 6))
        assert (first.text, "".join(first.rows)) == (again.text, again.text)
        assert first.lines == len(first.rows) == FORMATS[kind].lines
        assert np.array_equal(first.image, again.image)
        assert np.array_equal(first.quad, again.quad)
        assert not np.array_equal(first.image, other.image)
        assert first.image.shape == (*RECTIFIER.crop_hw, 3)
        height, width = RECTIFIER.crop_hw
        assert 0.2 * height * width < cv2.contourArea(first.quad, oriented=True) < height * width
    assert len(early["ru.car.square"].rows[0]) == 4


def test_quad_lies_where_the_plate_is() -> None:
    """Moving the quads by half a pixel to any side makes the plates fit worse."""

    def flat(image: np.ndarray, quad: np.ndarray) -> np.ndarray:
        goal = np.array([[0, 0], [260, 0], [260, 56], [0, 56]], np.float32)
        # OpenCV counts from pixel centres, quads from pixel corners.
        view = cv2.getPerspectiveTransform(quad - 0.5, goal - 0.5)
        return cv2.cvtColor(cv2.warpPerspective(image, view, (260, 56)), cv2.COLOR_RGB2GRAY)

    style = CropStyle((("ru.car", 1.0),), (250, 300), plate=NEW_PLATES, photo=CLEAR_PHOTO)
    moves = [(0.0, 0.0), (0.5, 0.0), (-0.5, 0.0), (0.0, 0.5), (0.0, -0.5)]
    fits: list[list[float]] = []
    for seed in range(40):
        sample = render_crop(np.random.default_rng(seed), style)
        plain = render_plate(sample.text, np.random.default_rng(0), 0.5, NEW_PLATES)
        expected = flat(plain.rgb, plain.quad).ravel()
        moved = [flat(sample.image, sample.quad + np.float32(move)).ravel() for move in moves]
        fits.append([np.corrcoef(seen, expected)[0, 1] for seen in moved])
    means = np.mean(fits, axis=0)
    assert means[0] > 0.75
    assert means.argmax() == 0, means


@pytest.mark.parametrize("size_wh", [(60, 15), (130, 80), (200, 60), (400, 120)])
def test_crops_are_cut_as_in_serving(size_wh: tuple[int, int]) -> None:
    widened = 1 + np.array(RECTIFIER.crop_margin_hw[::-1])
    width, height = (int(side) for side in np.round(widened * size_wh))
    photo = np.random.default_rng(12).integers(0, 256, (height + 20, width + 20, 3), np.uint8)
    photo = cv2.GaussianBlur(photo, (0, 0), 1)
    low, high = np.array([8.3, 9.6]), np.array([8.3 + width, 9.6 + height])
    crop, quad = cut_crop(photo, low, high, np.array([low, high]))
    margin = (high - low) * (1 - 1 / widened) / 2
    box = torch.from_numpy(np.concatenate([low + margin, high - margin]))[None]
    served = crop_boxes(torch.from_numpy(photo), box)[0].permute(1, 2, 0).numpy()
    assert np.abs(crop.astype(int) - served).max() <= 2
    assert np.allclose(quad, [[0, 0], RECTIFIER.crop_hw[::-1]])


@pytest.mark.parametrize(("kind", "margin_h"), [("ru.car", 0.5), ("ru.tractor", 0.3)])
def test_boxes_are_widened_by_the_margin_of_their_lines(kind: str, margin_h: float) -> None:
    style = CropStyle(box_jitter=(0, 0), holder_box_share=0, two_line_width_px=(150, 260))
    height, width = RECTIFIER.crop_hw
    hulls = [
        np.ptp(render_crop(np.random.default_rng(seed), style, kind).quad, axis=0) / (width, height)
        for seed in range(5)
    ]
    assert np.array(hulls) == pytest.approx(
        np.tile([1 / 1.3, 1 / (1 + margin_h)], (5, 1)), rel=0.01
    )


# Plates painted into photos


OLD = (100, 100, 220, 126)


def striped(box: tuple[int, ...]) -> np.ndarray:
    """A grey photo with a striped plate in a box."""
    photo = np.full((240, 320, 3), 90, np.uint8)
    x0, y0, x1, y1 = box
    photo[y0:y1, x0:x1] = 230
    photo[y0 + 4 : y1 - 4, x0 + 6 : x1 - 6 : 5] = 20
    return photo


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("box", [OLD, (110, 80, 200, 140)])
def test_every_kind_replaces_a_long_and_a_high_plate(kind: str, box: tuple[int, ...]) -> None:
    photo = striped(box)
    x0, y0, x1, y1 = box
    lines = FORMATS[kind].lines
    for seed in range(6):
        patch = paint_plate(photo, np.array(box, np.float32), np.random.default_rng(seed), kind)
        assert patch.lines == lines and match(kind, patch.text)
        width, height = patch.box[2:] - patch.box[:2]
        assert width < 1.1 * (x1 - x0)
        assert (width > 2.6 * height) == (lines == 1)
        # One line is as wide as the old plate, two are as high as they look in its place.
        assert 0.85 < (width / (x1 - x0) if lines == 1 else height / (y1 - y0)) < 1.75
        centre = (patch.box[:2] + patch.box[2:]) / 2
        assert abs(centre[0] - (x0 + x1) / 2) < 2 and y0 < centre[1] < y1
        painted = patch.paste(photo)
        left, top, right, bottom = np.rint(patch.box).astype(int)
        holder = round(0.3 * height)
        around = painted.mean(axis=2)
        around[top - holder : bottom + holder, left - holder : right + holder] = 90
        assert (around[y0:y1, x0:x1] > 150).mean() < 0.01, "the old plate is still seen"
        (x, y), (h, w) = patch.corner_xy, patch.image.shape[:2]
        changed = (painted != photo).any(axis=2)
        assert changed[y : y + h, x : x + w].sum() == changed.sum() > 0, "more than the patch"
