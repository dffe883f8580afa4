"""Canvases, tiles, the choice of boxes, crops and quads."""

from dataclasses import replace
from itertools import pairwise

import cv2
import numpy as np
import pytest
import torch

from plate_models import detection
from plate_models.detection import choose_canvas, letterbox, tiles_of
from plate_models.pixels import _one_field, crop, resample, stretch_contrast
from plate_models.rectification import crop_boxes, quads_from_theta, widen_boxes
from plate_models.spec import DETECTOR, RECTIFIER

CANVASES_HW = ((448, 768), (576, 576), (768, 448))
ONE = np.array([1])  # line of text
CHOICE = replace(DETECTOR, score_threshold=0.3, iou_threshold=0.5)


@pytest.fixture(params=[np.asarray, torch.from_numpy])
def kind(request):
    """Photos and crops are NumPy arrays or torch tensors."""
    return request.param


def ramp_photo(height, width):
    """A photo whose pixels have their position: red is the column, green the row; blue is 0."""
    photo = np.zeros((height, width, 3), np.uint8)
    photo[..., 0] = np.arange(width).clip(max=255)
    photo[..., 1] = np.arange(height).clip(max=255)[:, None]
    return photo


@pytest.mark.parametrize(
    ("photo_hw", "canvas_hw"),
    [((1080, 1920), (448, 768)), ((1000, 1000), (576, 576)), ((1, 1), (576, 576))],
)
def test_the_canvas_that_shrinks_the_photo_least_is_chosen(photo_hw, canvas_hw):
    assert choose_canvas(*photo_hw, CANVASES_HW) == canvas_hw
    # Of canvases that shrink the photo equally, the smallest is chosen.
    assert choose_canvas(64, 128, ((128, 128), (64, 128), (192, 128))) == (64, 128)


@pytest.mark.parametrize(
    ("width", "height", "count"), [(3840, 2160, 4), (3024, 4032, 6), (9238, 6928, 35)]
)
def test_tiles_cover_a_large_photo_and_overlap(width, height, count):
    tiles = tiles_of(height, width, CANVASES_HW)
    assert len(tiles) == count
    for first, last, side in ((0, 2, width), (1, 3, height)):
        stretches = sorted({(tile[first], tile[last]) for tile in tiles})
        assert (stretches[0][0], stretches[-1][1]) == (0, side)
        for (_, end), (start, _) in pairwise(stretches):
            assert end - start >= 239  # pixels: a plate cut by one tile is whole in its neighbour
    x0, y0, x1, y1 = tiles[0]
    canvas_h, canvas_w = choose_canvas(y1 - y0, x1 - x0, CANVASES_HW)
    assert min(canvas_h / (y1 - y0), canvas_w / (x1 - x0)) > 0.349
    for small_or_strip in ((1, 1), (1440, 2560), (1, 64_000_000)):
        assert tiles_of(*small_or_strip, CANVASES_HW) == []


def test_tiles_full_of_plates_return_as_many_boxes_as_one_run_of_the_detector():
    left, top = np.meshgrid(np.arange(20) * 37 + 15.0, np.arange(15) * 28 + 15.0)
    corner = np.column_stack((left.ravel(), top.ravel()))
    size, others = np.array((20, 8)), np.tile((0.9, 0), (DETECTOR.max_candidates, 1))
    candidates = np.concatenate((corner, corner + size, others), axis=1, dtype=np.float32)
    photo = np.zeros((2160, 3840, 3), np.uint8)
    boxes, _, _ = detection.find_boxes_in_tiles(photo, lambda _: candidates[None], DETECTOR)
    assert len(boxes) == DETECTOR.max_candidates


@pytest.mark.parametrize("size", [1, 3])
def test_boxes_on_the_canvas_frame_what_they_frame_in_the_photo(kind, size):
    photo = np.zeros((300 * size, 500 * size, 3), np.uint8)
    photo[90 * size : 150 * size, 200 * size : 400 * size] = 255
    canvas, placement = letterbox(kind(photo), (192, 192))
    framed = size * np.array([[200.0, 90.0, 400.0, 150.0]])
    box = (framed * np.tile(placement.scale_xy, 2) + np.tile(placement.offset_xy, 2))[0]
    np.testing.assert_allclose(placement.to_photo(box[None]), framed, rtol=1e-5)
    rows, columns = np.nonzero(np.asarray(canvas)[0] > 200)
    found = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    assert [int(v) for v in found] == pytest.approx(box.tolist(), abs=1)
    beyond = placement.to_photo(np.array([[-20.0, -20.0, 290.0, 290.0]])) / size
    assert beyond.tolist() == [[0.0, 0.0, 500.0, 300.0]]


def test_photos_one_pixel_wide_or_high_fit_and_large_ones_are_averaged(kind):
    for size_hw in ((3000, 1), (1, 3000)):
        canvas, _ = letterbox(kind(np.full((*size_hw, 3), 9, np.uint8)), (768, 448))
        assert (np.asarray(canvas) == 9).any()
    # Shrinking uses every pixel of a large photo: noise is averaged away.
    noise = np.random.default_rng(4).integers(0, 100, (1536, 1536, 3)).astype(np.uint8)
    assert np.asarray(letterbox(kind(noise), (192, 192))[0]).std() < 6


@pytest.mark.parametrize(
    "image", [np.zeros((10, 10, 3)), np.zeros((3, 10, 10), "uint8"), np.zeros((0, 0, 3), "uint8")]
)
def test_anything_but_an_image_is_refused(image, kind):
    for other in (kind(image), None, "photo.jpg"):
        with pytest.raises(ValueError, match="expected an image"):
            letterbox(other, (64, 64))
    with pytest.raises(ValueError, match="expected an image"):
        crop_boxes(kind(image), np.zeros((1, 4)), ONE)


# Each row is x0, width, score and class of a box 10 pixels high; `kept` has the chosen rows.
@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        ([(0, 50, 0.9, 0), (100, 50, 0.3, 0), (200, 50, 0.29, 0)], [0, 1]),
        ([(0, 50, 0.9, 0), (1, 50, 0.8, 1), (2, 50, 0.7, 0)], [0]),  # of any class
        # The third box overlaps the second, which is dropped, but not the first.
        ([(0, 60, 0.9, 0), (18, 60, 0.8, 0), (36, 60, 0.7, 0)], [0, 2]),
        ([(0, 9, np.nan, 0), (np.nan, 9, 0.9, 0), (5, 0, 0.9, 0)], []),
        ([], []),
        ([(20 * i, 15, 1 - i / 10000, 0) for i in range(300)], list(range(300))),
    ],
)
def test_boxes_are_dropped_for_a_low_score_or_an_overlap_with_a_better_box(rows, kept):
    candidates = [(x, 0, x + w, 10, score, kind) for x, w, score, kind in rows]
    candidates = np.array(candidates, np.float32).reshape(-1, 6)
    boxes, scores, lines = detection.select_boxes(candidates, CHOICE)
    assert boxes.shape == (len(kept), 4)
    assert (boxes == candidates[kept, :4]).all() and (scores == candidates[kept, 4]).all()
    assert lines.tolist() == [1] * len(kept)


@pytest.mark.parametrize("width", [40.0, 100.0, 190.0])
def test_crops_show_the_pixels_of_their_boxes(width, kind):
    # Any symmetric filter keeps a linear ramp linear, so that values are positions.
    photo, box = kind(ramp_photo(200, 250)), np.array([[20.3, 50.6, 20.3 + width, 100.6]])
    crop = np.asarray(crop_boxes(photo, box, ONE)[0], np.float32)
    x0, y0, x1, y1 = widen_boxes(box, ONE)[0].tolist()
    height_px, width_px = RECTIFIER.crop_hw
    columns = x0 + (np.arange(width_px) + 0.5) * (x1 - x0) / width_px - 0.5
    rows = y0 + (np.arange(height_px) + 0.5) * (y1 - y0) / height_px - 0.5
    inside = slice(4, -4)  # the ramp isn't linear at the photo's edge
    assert abs(crop[0] - columns.clip(0, 249))[inside, inside].max() <= 0.51
    assert abs(crop[1] - rows[:, None].clip(0, 199))[inside, inside].max() <= 0.51


def test_only_crops_with_little_contrast_are_changed(kind):
    clear = np.random.default_rng(1).integers(0, 256, (3, *RECTIFIER.crop_hw)).astype(np.float32)
    foggy, dark = 0.2 * clear + 190, 0.1 * clear + 5
    flat = np.full_like(clear, 9)
    flat[:, ::2] += 2  # contrast no higher than that of noise
    overexposed = np.where(clear < 90, 130 + clear, 255).astype(np.float32)
    crops = np.stack((clear, foggy, dark, flat, overexposed))
    lifted = np.asarray(stretch_contrast(kind(crops)))
    assert (lifted[0] == clear).all()
    for before, after in zip(crops[1:3], lifted[1:3], strict=True):
        assert np.quantile(after, (0.02, 0.98)) == pytest.approx((25, 225), abs=3)
        # All pixels and channels are stretched equally: shades and hues are kept.
        within = (after > 0) & (after < 255)
        slope, _ = np.polyfit(before[within], after[within], 1)
        assert slope > 3 and np.corrcoef(before[within], after[within])[0, 1] > 0.999
    assert (lifted[3] == flat).all()
    shown = np.unique(overexposed), np.unique(lifted[4])
    assert len(shown[0]) == len(shown[1]) and shown[1][0] < 50 and shown[1][-1] == 255


def test_the_canvas_has_more_contrast_in_fog_but_not_at_night(kind):
    blocks = np.random.default_rng(2).integers(0, 256, (30, 40, 1)).repeat(10, 0).repeat(10, 1)
    fog = (0.15 * np.tile(blocks, 3) + 200).astype(np.uint8)
    canvas = np.asarray(letterbox(kind(fog), (448, 448))[0]).astype(int)
    bars, photo = canvas[:, :56], canvas[:, 56:392]
    assert (bars == DETECTOR.pad_value).all()
    assert np.quantile(photo, (0.02, 0.98)) == pytest.approx((25, 225), abs=12)
    # A stretch at night would overexpose a plate brighter than all else: its shades must be kept.
    night = np.random.default_rng(3).integers(8, 40, (400, 400, 3)).astype(np.uint8)
    night[200:214, 150:206] = 110
    night[204:210, 156:200:12] = 70  # characters
    canvas = np.asarray(letterbox(kind(night), (448, 448))[0]).astype(int)
    assert np.ptp(canvas[:, 227:236, 171:227]) > 30  # without its rim


def test_crops_of_interlaced_photos_use_one_field(kind):
    columns = np.arange(250)
    stripes = [((columns + moved) // 9 % 2 * 200).astype(np.uint8) for moved in (0, 6)]
    first, second = (np.tile(each[None, :, None], (200, 1, 3)) for each in stripes)
    interlaced = first.copy()
    interlaced[1::2] = second[1::2]
    box = np.array([[60.0, 81, 180, 131]])
    crops = (np.asarray(crop_boxes(kind(each), box, ONE)) for each in (first, interlaced))
    assert np.abs(np.subtract(*crops)).max() <= 1
    noise = np.random.default_rng(5).integers(0, 256, (60, 90, 3), np.uint8)
    still = cv2.GaussianBlur(noise, (0, 0), 1)
    assert (np.asarray(_one_field(kind(still))) == still).all()


def test_crops_beyond_the_photo_repeat_its_edge(kind):
    photo = np.full((20, 20, 3), 60, np.uint8)
    photo[:10, :10] = 200  # wrapping around would show the other quarters
    boxes = np.array([[-40.0, -40, -4, -4], [24, 24, 60, 60]])
    crops = crop_boxes(kind(photo), boxes, ONE.repeat(2))
    assert (crops[0] == 200).all()
    assert (crops[1] == 60).all()
    # In a wide box pixels are skipped: in the photo and beyond its edge in the same steps.
    wide = np.asarray(crop(kind(ramp_photo(40, 720)), (-700, 10, 700, 30), (4, 160)))[0, 0]
    expected = -700 + 8.75 * (np.arange(160) + 0.5) - 0.5
    assert abs(wide - np.clip(expected, 0, 255))[:, 82:105].max() < 0.6 and not wide[:, :78].any()


def test_quads_are_where_the_sampler_samples(kind):
    # Values of the ramp photo are positions, so that the rectified corners have the quad's.
    photo, boxes = kind(ramp_photo(240, 250)), np.array([[60.0, 80.0, 180.0, 130.0]])
    theta = np.array([[[0.7, -0.15, 0.05], [0.2, 0.6, -0.1]]], np.float32)
    rectified = np.asarray(resample(crop_boxes(photo, boxes, ONE), theta, (48, 188)))
    seen = rectified[0, :2][:, [0, 0, -1, -1], [0, -1, -1, 0]].T + 0.5
    np.testing.assert_allclose(quads_from_theta(theta, boxes, ONE)[0], seen, atol=1.5, rtol=0)
    flat, far = np.full((1, 3, 8, 8), 9, np.float32), 2 * np.eye(2, 3, dtype=np.float32)[None]
    assert (np.asarray(resample(kind(flat), far, (4, 4))) == 9).all()  # the edge is repeated
