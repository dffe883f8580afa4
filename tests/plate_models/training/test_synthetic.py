"""The renderer that training uses: texts, characters, kinds of plates, crops, painted photos."""

import os
import re
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageFont

from plate_models.formats import REGIONS
from plate_models.rectification import crop_boxes
from plate_models.spec import RECOGNIZER, RECTIFIER
from plate_models.training.synthetic.crops import CropStyle, cut_crop, render_crop
from plate_models.training.synthetic.glyphs import DIGITS, GLYPHS, LATIN_D, LETTERS, glyph_mask
from plate_models.training.synthetic.kinds import KINDS
from plate_models.training.synthetic.photo import PhotoStyle, photograph
from plate_models.training.synthetic.plates import PlateStyle, render_plate
from plate_models.training.synthetic.scenes import paint_plate
from plate_models.training.synthetic.texts import sample_text

# A camera without faults: what is left is geometry.
CLEAR_PHOTO = PhotoStyle(
    dark_share=0,
    day_gain=(1, 1),
    day_haze=(0, 0),
    gamma=(1, 1),
    shadow_share=0,
    glare_share=0,
    defocus=0.01,
    motion_share=0,
    resample_share=0,
    noise=(0.1, 0.2),
    denoise_share=0,
    sharpen_share=0,
    jpeg_quality=(94, 95),
)
NEW_PLATES = PlateStyle(
    jitter_mm=0, bolder_mm=(0.0,), ink=(20, 21), worn_share=0, dirty_share=0, snowy_share=0
)


def test_texts_cover_regions_and_repeats() -> None:
    rng = np.random.default_rng(1)
    texts = [sample_text(rng) for _ in range(4000)]
    moscow = sum(text[6:] == "777" for text in texts)
    tuva = sum(text[6:] == "17" for text in texts)
    assert moscow > 3 * tuva > 0
    repeats = sum(text[1] == text[2] == text[3] for text in texts)
    assert repeats > 0.08 * len(texts)
    assert {text[0] for text in texts} >= set("ABEKMHOPCTYX")
    assert 0 < sum("D" in text for text in texts) < 0.03 * len(texts)


def test_plates_with_different_texts_differ() -> None:
    pictures = [
        render_plate(text, np.random.default_rng(3)).rgb for text in ("H002EX71", "H002CX71")
    ]
    rows, columns = np.nonzero(np.abs(pictures[0].astype(int) - pictures[1]).max(axis=2) > 60)
    # Only the first letter after the digits changed: it is 34 to 41 mm wide.
    assert 10 < np.ptp(columns) < 50
    assert 10 < np.ptp(rows) < 62


def test_crops_do_not_depend_on_those_before() -> None:
    """Caches fill up while rendering; they must not leak into pictures."""
    early = render_crop(np.random.default_rng(7))
    for seed in range(8, 20):
        render_crop(np.random.default_rng(seed))
    assert np.array_equal(early.image, render_crop(np.random.default_rng(7)).image)


def test_quads_corners_are_in_order_and_inside() -> None:
    rng = np.random.default_rng(8)
    height, width = RECTIFIER.crop_hw
    outside = 0
    for _ in range(300):
        top_left, top_right, bottom_right, bottom_left = render_crop(rng).quad
        assert top_left[0] < top_right[0]
        assert bottom_left[0] < bottom_right[0]
        assert top_left[1] < bottom_left[1]
        assert top_right[1] < bottom_right[1]
        corners = np.array([top_left, top_right, bottom_right, bottom_left])
        outside += bool((corners < 0).any() or (corners > (width, height)).any())
    assert outside < 15


def _flat(sample_image: np.ndarray, quad: np.ndarray) -> np.ndarray:
    """The plate cut from a crop by its quad, as grey levels at 0.5 px/mm."""
    goal = np.array([[0, 0], [260, 0], [260, 56], [0, 56]], np.float32)
    # OpenCV counts from pixel centres, quads from pixel corners.
    warp = cv2.getPerspectiveTransform(quad - 0.5, goal - 0.5)
    return cv2.cvtColor(cv2.warpPerspective(sample_image, warp, (260, 56)), cv2.COLOR_RGB2GRAY)


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.corrcoef(first.ravel(), second.ravel())[0, 1])


def test_quad_lies_where_the_plate_is() -> None:
    """Moving the quads by half a pixel to any side makes the plates fit worse."""
    style = CropStyle((("ru.car", 1.0),), (250, 300), plate=NEW_PLATES, photo=CLEAR_PHOTO)
    moves = {(0.0, 0.0), (0.5, 0.0), (-0.5, 0.0), (0.0, 0.5), (0.0, -0.5)}
    fits: dict[tuple[float, float], list[float]] = {move: [] for move in moves}
    for seed in range(40):
        sample = render_crop(np.random.default_rng(seed), style)
        plain = render_plate(sample.text, np.random.default_rng(0), 0.5, NEW_PLATES)
        flat = _flat(plain.rgb, plain.quad)
        for move in moves:
            moved = sample.quad + np.array(move, np.float32)
            fits[move].append(_correlation(_flat(sample.image, moved), flat))
    means = {move: np.mean(values) for move, values in fits.items()}
    assert means[0.0, 0.0] > 0.75
    assert max(means, key=lambda move: means[move]) == (0.0, 0.0), means


@pytest.mark.parametrize("size_wh", [(60, 15), (130, 80), (200, 60), (400, 120)])
def test_crops_are_cut_as_in_serving(size_wh: tuple[int, int]) -> None:
    widened = 1 + np.array(RECTIFIER.crop_margin_hw[::-1])
    width, height = (int(side) for side in np.round(widened * size_wh))
    photo = np.random.default_rng(12).integers(0, 256, (height + 20, width + 20, 3), np.uint8)
    photo = cv2.GaussianBlur(photo, (0, 0), 1)
    low, high = np.array([8.0, 9.0]), np.array([8.0 + width, 9.0 + height])
    crop, quad = cut_crop(photo, low, high, np.array([low, high]))
    margin = (high - low) * (1 - 1 / widened) / 2
    box = torch.from_numpy(np.concatenate([low + margin, high - margin]))[None]
    served = crop_boxes(torch.from_numpy(photo), box)[0].permute(1, 2, 0).numpy()
    assert np.abs(crop.astype(int) - served).mean() < 1.2
    assert np.allclose(quad, [[0, 0], RECTIFIER.crop_hw[::-1]])


def test_photo_keeps_the_order_of_channels() -> None:
    red = np.zeros((32, 64, 3), np.uint8)
    red[..., 0] = 200
    photo = photograph(red, np.random.default_rng(10), CLEAR_PHOTO)
    assert photo[..., 0].mean() > 150
    assert photo[..., 1:].mean() < 40


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
    assert set(KINDS) == set(GRAMMAR)
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


def _striped(box: tuple[int, ...]) -> np.ndarray:
    """A grey photo with a striped plate in a box."""
    photo = np.full((240, 320, 3), 90, np.uint8)
    x0, y0, x1, y1 = box
    photo[y0:y1, x0:x1] = 230
    photo[y0 + 4 : y1 - 4, x0 + 6 : x1 - 6 : 5] = 20
    return photo


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("box", [(100, 100, 220, 126), (110, 80, 200, 140)])
def test_every_kind_replaces_a_long_and_a_high_plate(kind: str, box: tuple[int, ...]) -> None:
    photo = _striped(box)
    x0, y0, x1, y1 = box
    lines = KINDS[kind].lines
    for seed in range(6):
        rng = np.random.default_rng(seed)
        patch = paint_plate(photo, np.array(box, np.float32), rng, kind)
        assert (patch.kind, patch.lines) == (kind, lines)
        width, height = patch.box[2:] - patch.box[:2]
        assert width < 1.1 * (x1 - x0)
        assert (width > 2.6 * height) == (lines == 1)
        if lines == 2:
            # As high as it looks in the place of a long plate; the long way is not filled.
            assert 0.75 < height / (y1 - y0) < 1.75
        centre = (patch.box[:2] + patch.box[2:]) / 2
        assert abs(centre[0] - (x0 + x1) / 2) < 2
        assert y0 < centre[1] < y1
        painted = patch.paste(photo).mean(axis=2)
        left, top, right, bottom = np.rint(patch.box).astype(int)
        holder = round(0.3 * height)
        painted[top - holder : bottom + holder, left - holder : right + holder] = 90
        assert (painted[y0:y1, x0:x1] > 150).mean() < 0.01, "the old plate is still seen"


def test_a_painted_plate_lies_in_the_box_and_changes_nothing_else() -> None:
    box = np.array([100, 100, 180, 120], np.float32)
    image = _striped((100, 100, 180, 120))
    patch = paint_plate(image, box, np.random.default_rng(0))
    painted = patch.paste(image)
    (x, y), (h, w) = patch.corner_xy, patch.image.shape[:2]
    outside = np.ones(painted.shape[:2], bool)
    outside[y : y + h, x : x + w] = False
    assert np.array_equal(painted[outside], image[outside])
    assert (painted[~outside] != image[~outside]).any()
    x0, y0, x1, y1 = box.tolist()
    assert abs((patch.box[0] + patch.box[2]) / 2 - (x0 + x1) / 2) < 5
    assert 0.85 * (x1 - x0) < patch.box[2] - patch.box[0] < 1.1 * (x1 - x0)
    assert y0 - 15 < (patch.box[1] + patch.box[3]) / 2 < y1 + 15
    assert len(patch.text) in (8, 9)


def test_a_box_outside_the_photo_is_refused() -> None:
    photo = _striped((100, 100, 180, 120))
    with pytest.raises(ValueError, match="inside the photo"):
        paint_plate(photo, np.array([900, 900, 980, 920], np.float32), np.random.default_rng(0))
