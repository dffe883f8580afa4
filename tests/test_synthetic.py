"""The renderer: texts, flat plates and the crops made of them."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from plate_models.formats import format_of, region_of, to_latin
from plate_models.rectification import crop_boxes
from plate_models.spec import RECOGNIZER, RECTIFIER
from plate_models.training.synthetic.crops import CropStyle, contact_sheet, cut_crop, render_crop
from plate_models.training.synthetic.photo import PhotoStyle, compress, photograph
from plate_models.training.synthetic.plates import PlateStyle, render_plate
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


def test_texts_follow_the_grammar() -> None:
    rng = np.random.default_rng(0)
    texts = [sample_text(rng) for _ in range(3000)]
    for text in texts:
        assert set(text) <= set(RECOGNIZER.alphabet)
        # "D" stands for a letter that the grammar of today does not know.
        assert format_of(text.replace("D", "A")) == "ru.car"
        assert region_of(text.replace("D", "A")) is not None


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


def test_flat_plate_has_a_plates_proportions() -> None:
    plate = render_plate("H002EX71", np.random.default_rng(2), px_per_mm=0.5)
    width, height = np.ptp(plate.quad, axis=0)
    assert (width, height) == (260, 56)
    assert plate.rgb.shape == (*plate.alpha.shape, 3)
    assert plate.rgb.dtype == plate.alpha.dtype == np.uint8
    assert (plate.quad >= 0).all()
    assert (plate.quad <= plate.alpha.shape[::-1]).all()


def test_plates_with_different_texts_differ() -> None:
    pictures = [
        render_plate(text, np.random.default_rng(3)).rgb for text in ("H002EX71", "H002CX71")
    ]
    rows, columns = np.nonzero(np.abs(pictures[0].astype(int) - pictures[1]).max(axis=2) > 60)
    # Only the first letter after the digits changed: it is 34 to 41 mm wide.
    assert 10 < np.ptp(columns) < 50
    assert 10 < np.ptp(rows) < 62


@pytest.mark.parametrize("text", ["", "H002EX7", "H002EX7777"])
def test_plate_refuses_a_text_of_another_length(text: str) -> None:
    with pytest.raises(ValueError, match="8 or 9 characters"):
        render_plate(text, np.random.default_rng(0))


def test_crop_has_the_rectifiers_shape() -> None:
    rng = np.random.default_rng(4)
    for _ in range(100):
        sample = render_crop(rng)
        assert sample.image.shape == (*RECTIFIER.crop_hw, 3)
        assert sample.image.dtype == np.uint8
        assert sample.quad.shape == (4, 2)
        assert sample.quad.dtype == np.float32
        assert sample.text == to_latin(sample.text)


def test_same_seed_gives_the_same_crop() -> None:
    first, again, other = (render_crop(np.random.default_rng(seed)) for seed in (5, 5, 6))
    assert first.text == again.text
    assert np.array_equal(first.image, again.image)
    assert np.array_equal(first.quad, again.quad)
    assert not np.array_equal(first.image, other.image)


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


def test_photo_keeps_size_and_type() -> None:
    rng = np.random.default_rng(9)
    for height, width in ((20, 61), (97, 240), (300, 900)):
        scene = rng.integers(0, 256, (height, width, 3), np.uint8)
        photo = photograph(scene, rng)
        assert photo.shape == scene.shape
        assert photo.dtype == np.uint8


def test_photo_keeps_the_order_of_channels() -> None:
    red = np.zeros((32, 64, 3), np.uint8)
    red[..., 0] = 200
    photo = photograph(red, np.random.default_rng(10), CLEAR_PHOTO)
    assert photo[..., 0].mean() > 150
    assert photo[..., 1:].mean() < 40


def test_low_quality_loses_more() -> None:
    scene = render_plate("A123BC77", np.random.default_rng(11)).rgb
    losses = []
    for quality in (10, 90):
        style = PhotoStyle(jpeg_quality=(quality, quality + 1), second_jpeg_share=0)
        stored = compress(scene, np.random.default_rng(0), style)
        losses.append(np.abs(stored.astype(int) - scene).mean())
    assert losses[0] > 1.5 * losses[1]


def test_contact_sheet_writes_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "sheet.png"
    contact_sheet(5, seed=1, path=path)
    sheet = cv2.imread(str(path))
    assert sheet.shape == (3 * 80, 2 * 160, 3)
