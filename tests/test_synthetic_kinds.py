"""The nine kinds of plates: their texts, sizes, lines, colours and crops."""

import re
from collections import Counter

import cv2
import numpy as np
import pytest

from plate_models.formats import REGIONS
from plate_models.spec import RECOGNIZER, RECTIFIER
from plate_models.training.synthetic.crops import CropStyle, render_crop
from plate_models.training.synthetic.glyphs import LATIN_D, glyph_mask
from plate_models.training.synthetic.kinds import KINDS
from plate_models.training.synthetic.plates import PlateStyle, render_plate
from plate_models.training.synthetic.texts import sample_text

_L = "[ABEKMHOPCTYX]"
GRAMMAR = {
    "ru.car": r"[ABEKMHOPCTYXD]\d{3}[ABEKMHOPCTYXD]{2}(\d{2,3})",
    "ru.car.square": rf"{_L}\d{{3}}{_L}{{2}}(\d{{2,3}})",
    "ru.motorcycle": rf"\d{{4}}{_L}{{2}}(\d{{2,3}})",
    "ru.tractor": rf"\d{{4}}{_L}{{2}}(\d{{2,3}})",
    "ru.trailer": rf"{_L}{{2}}\d{{4}}(\d{{2,3}})",
    "ru.taxi": rf"{_L}{{2}}\d{{3}}(\d{{2,3}})",
    "ru.police": rf"{_L}\d{{4}}(\d{{2,3}})",
    "ru.military": rf"\d{{4}}{_L}{{2}}(\d{{2}})",
    "ru.diplomatic": r"\d{3}(?:CD\d|D\d{3}|T\d{3})(\d{2})",
}
LONG = {(520, 112)}
SIZES_MM = dict.fromkeys(GRAMMAR, LONG) | {
    "ru.car.square": {(290, 170)},
    "ru.motorcycle": {(190, 145), (245, 185)},
    "ru.tractor": {(288, 206)},
}
TWO_LINES = [name for name, sizes in SIZES_MM.items() if sizes != LONG]
# Every text of a kind as wide and dark as it gets, without what hides it.
CLEAN = PlateStyle(
    bolder_mm=(1.0,),
    relief=(0, 0),
    screw_shares=(0, 0),
    worn_share=0,
    dirty_share=0,
    snowy_share=0,
    holder_share=0,
    flag_share=0,
)


def test_there_are_these_kinds() -> None:
    assert set(KINDS) == set(GRAMMAR)


@pytest.mark.parametrize("kind", GRAMMAR)
def test_texts_follow_the_grammar(kind: str) -> None:
    rng = np.random.default_rng(0)
    codes: Counter[str] = Counter()
    for _ in range(500):
        text = sample_text(rng, kind)
        match = re.fullmatch(GRAMMAR[kind], text)
        assert match, text
        assert set(text) <= set(RECOGNIZER.alphabet)
        assert len(text) <= RECOGNIZER.max_text_length
        serial = text[: match.start(1)]
        assert not re.search(r"(?<!\d)0+(?!\d)", serial), f"{text}: no number is zero"
        codes[match[1]] += 1
    assert len(codes) > 25
    if kind == "ru.military":
        # Codes of districts, not of regions: Moscow's are no more frequent than others.
        assert sum(codes[code] for code in ("77", "97", "99")) < 27
    else:
        assert set(codes) <= set(REGIONS)


def test_diplomats_plates_come_with_all_three_marks() -> None:
    rng = np.random.default_rng(1)
    marks = Counter(re.sub(r"\d", "", sample_text(rng, "ru.diplomatic")) for _ in range(300))
    assert set(marks) == {"CD", "D", "T"}
    assert min(marks.values()) > 60


@pytest.mark.parametrize("kind", GRAMMAR)
def test_plates_have_their_size_and_lines(kind: str) -> None:
    rng = np.random.default_rng(2)
    sizes = set()
    for _ in range(30):
        plate = render_plate(sample_text(rng, kind), rng, 1.0, kind=kind)
        sizes.add(tuple(np.ptp(plate.quad, axis=0).astype(int).tolist()))
        assert (plate.kind, plate.lines) == (kind, 2 if kind in TWO_LINES else 1)
        assert plate.rgb.shape == (*plate.alpha.shape, 3)
    assert sizes == SIZES_MM[kind]


def _changed_rows(first: str, second: str, kind: str, seed: int) -> np.ndarray:
    """Where two texts differ on otherwise equal plates, as shares of the height."""
    pictures = [
        render_plate(text, np.random.default_rng(seed), 2.0, CLEAN, kind).rgb.astype(int)
        for text in (first, second)
    ]
    rows = np.flatnonzero(np.abs(pictures[0] - pictures[1]).max(axis=(1, 2)) > 3)
    return np.array([rows.min(), rows.max() + 1]) / len(pictures[0])


@pytest.mark.parametrize("kind", TWO_LINES)
def test_lines_stay_in_their_halves(kind: str) -> None:
    first = "A000" if kind == "ru.car.square" else "0000"
    other = "B888" if kind == "ru.car.square" else "8888"
    for seed in range(40):
        tail = ("EE99", "EE999")[seed % 2]
        top, foot = _changed_rows(first + tail, other + tail, kind, seed)
        assert 0.03 < top < 0.25 < foot <= 0.5
        top, foot = _changed_rows(first + "EE88", first + "BB00", kind, seed)
        assert 0.5 <= top < 0.65 < foot < 0.98


def test_rows_split_the_text() -> None:
    rng = np.random.default_rng(3)
    square = render_crop(rng, kind="ru.car.square")
    assert square.lines == 2
    assert [len(square.rows[0]), "".join(square.rows)] == [4, square.text]
    trailer = render_crop(rng, kind="ru.trailer")
    assert (trailer.lines, trailer.rows) == (1, (trailer.text,))


def _sheet_and_ink(kind: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Colours (3,) of the ground and of the characters of a clean plate."""
    rng = np.random.default_rng(seed)
    plate = render_plate(sample_text(rng, kind), rng, 1.0, CLEAN, kind)
    pixels = plate.rgb[8:-8, 8:-8].reshape(-1, 3).astype(int)
    sheet = np.median(pixels, axis=0)
    return sheet, pixels[np.abs(pixels - sheet).sum(axis=1).argmax()]


def _look(colour: np.ndarray) -> str:
    red, green, blue = (float(c) for c in colour)
    if max(colour) - min(colour) < 45:
        return "white" if green > 150 else "black"
    if red > 1.8 * max(green, blue):
        return "red"
    return "blue" if blue > 1.3 * max(red, green) else "yellow" if green > 1.5 * blue else "odd"


@pytest.mark.parametrize(
    ("kind", "ground", "ink"),
    [
        ("ru.car", "white", "black"),
        ("ru.car.square", "white", "black"),
        ("ru.motorcycle", "white", "black"),
        ("ru.tractor", "white", "black"),
        ("ru.trailer", "white", "black"),
        ("ru.taxi", "yellow", "black"),
        ("ru.police", "blue", "white"),
        ("ru.military", "black", "white"),
        ("ru.diplomatic", "red", "white"),
    ],
)
def test_colours(kind: str, ground: str, ink: str) -> None:
    assert KINDS[kind].ground.name == ground
    for seed in range(12):
        sheet, characters = _sheet_and_ink(kind, seed)
        assert (_look(sheet), _look(characters)) == (ground, ink), (sheet, characters)


@pytest.mark.parametrize(("kind", "latin"), [("ru.diplomatic", True), ("ru.car", False)])
def test_the_d_of_diplomats_is_latin(kind: str, latin: bool) -> None:
    text = "123D45677" if latin else "D123AA77"
    plate = render_plate(text, np.random.default_rng(4), 1.0, CLEAN, kind)
    grey = cv2.cvtColor(plate.rgb, cv2.COLOR_RGB2GRAY)
    ink = cv2.absdiff(grey, np.full_like(grey, int(np.median(grey))))
    fits = {
        name: cv2.matchTemplate(ink, glyph_mask(name, 1.0, 58, 1.0), cv2.TM_CCOEFF_NORMED).max()
        for name in (LATIN_D, "D")
    }
    right, wrong = (LATIN_D, "D") if latin else ("D", LATIN_D)
    assert fits[right] > 0.9 > 0.8 > fits[wrong]


@pytest.mark.parametrize("kind", GRAMMAR)
def test_the_same_seed_gives_the_same_crop(kind: str) -> None:
    first, again, other = (render_crop(np.random.default_rng(s), kind=kind) for s in (5, 5, 6))
    assert first.text == again.text
    assert first.kind == kind
    assert np.array_equal(first.image, again.image)
    assert np.array_equal(first.quad, again.quad)
    assert not np.array_equal(first.image, other.image)
    assert first.image.shape == (*RECTIFIER.crop_hw, 3)


@pytest.mark.parametrize(("kind", "margin_h"), [("ru.car", 0.5), ("ru.tractor", 0.3)])
def test_boxes_are_widened_by_the_margin_of_their_lines(kind: str, margin_h: float) -> None:
    style = CropStyle(box_jitter=(0, 0), holder_box_share=0, two_line_width_px=(150, 260))
    height, width = RECTIFIER.crop_hw
    hulls = [
        np.ptp(render_crop(np.random.default_rng(seed), style, kind).quad, axis=0) / (width, height)
        for seed in range(30)
    ]
    # The box is rounded to whole pixels of the photo, outwards.
    assert np.mean(hulls, axis=0) == pytest.approx([1 / 1.3, 1 / (1 + margin_h)], rel=0.03)


def test_kinds_are_drawn_by_their_shares() -> None:
    style = CropStyle(
        kinds=(("ru.taxi", 3.0), ("ru.motorcycle", 1.0)),
        width_px=(48, 49),
        two_line_width_px=(30, 31),
    )
    rng = np.random.default_rng(7)
    drawn = Counter(render_crop(rng, style).kind for _ in range(300))
    assert set(drawn) == {"ru.taxi", "ru.motorcycle"}
    assert 0.65 < drawn["ru.taxi"] / 300 < 0.85


def test_all_kinds_are_trained_on() -> None:
    shares = dict(CropStyle().kinds)
    assert set(shares) == set(KINDS)
    assert sum(shares.values()) == pytest.approx(1)


def test_a_kind_that_is_not_there_is_refused() -> None:
    rng = np.random.default_rng(0)
    for refuses in (
        lambda: sample_text(rng, "ru.boat"),
        lambda: render_plate("A123BC77", rng, kind="ru.boat"),
        lambda: render_crop(rng, kind="ru.boat"),
    ):
        with pytest.raises(ValueError, match=r"ru\.car, .*got 'ru\.boat'"):
            refuses()


@pytest.mark.parametrize(
    ("kind", "text"), [("ru.taxi", ""), ("ru.taxi", "AB123BC77"), ("ru.military", "1234AB777")]
)
def test_a_text_that_does_not_fit_is_refused(kind: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"{kind} has . "):
        render_plate(text, np.random.default_rng(0), kind=kind)
