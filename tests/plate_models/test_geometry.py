"""Canvas, choice of boxes, crops, quads."""

from dataclasses import replace

import pytest
import torch

from plate_models.detection import choose_canvas, letterbox, select_boxes
from plate_models.rectification import crop_boxes, quads_from_theta, resample, widen_boxes
from plate_models.spec import DETECTOR, RECTIFIER

CANVASES_HW = ((448, 768), (576, 576), (768, 448))
CHOICE = replace(DETECTOR, score_threshold=0.3, iou_threshold=0.5)
NAN = float("nan")


def ramp_photo(height: int, width: int) -> torch.Tensor:
    """Red grows by one per column, green by one per row; blue is 0."""
    photo = torch.zeros(height, width, 3, dtype=torch.uint8)
    photo[..., 0] = torch.arange(width).clamp(max=255)
    photo[..., 1] = torch.arange(height).clamp(max=255)[:, None]
    return photo


@pytest.mark.parametrize(
    ("photo_hw", "canvas_hw"),
    [
        ((1080, 1920), (448, 768)),
        ((1000, 1000), (576, 576)),
        ((1, 1), (576, 576)),
    ],
)
def test_the_canvas_that_shrinks_least_is_chosen(photo_hw, canvas_hw):
    assert choose_canvas(*photo_hw, CANVASES_HW) == canvas_hw
    # Of equal canvases it is the smaller one.
    assert choose_canvas(64, 128, ((128, 128), (64, 128), (192, 128))) == (64, 128)


def test_what_the_box_frames_lies_in_its_box_on_the_canvas():
    photo = torch.zeros(300, 500, 3, dtype=torch.uint8)
    photo[90:150, 200:400] = 255
    canvas, placement = letterbox(photo, (192, 192))
    framed = torch.tensor([[200.0, 90.0, 400.0, 150.0]])
    scale, offset = map(torch.tensor, (placement.scale_xy, placement.offset_xy))
    box = (framed * scale.repeat(2) + offset.repeat(2))[0]
    torch.testing.assert_close(placement.to_photo(box[None]), framed)
    rows, columns = (canvas[0] > 200).nonzero().unbind(dim=1)
    found = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    assert [int(v) for v in found] == pytest.approx(box.tolist(), abs=1)
    beyond = placement.to_photo(torch.tensor([[-20.0, -20.0, 290.0, 290.0]]))
    assert beyond.tolist() == [[0.0, 0.0, 500.0, 300.0]]


@pytest.mark.parametrize(
    "image", [torch.zeros(10, 10, 3), torch.zeros(3, 10, 10).byte(), torch.zeros(0, 0, 3).byte()]
)
def test_what_is_no_image_is_refused(image):
    with pytest.raises(ValueError, match="expected an image"):
        letterbox(image, (64, 64))
    with pytest.raises(ValueError, match="expected an image"):
        crop_boxes(image, torch.zeros(1, 4))


# Each row is x0, width, score, class of a box that is 10 high; those of `kept` stay.
@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        ([(0, 50, 0.9, 0), (100, 50, 0.3, 0), (200, 50, 0.29, 0)], [0, 1]),
        ([(0, 50, 0.9, 0), (1, 50, 0.8, 1), (2, 50, 0.7, 0)], [0]),  # whatever their class
        # The third overlaps the second, which is gone, but not the first.
        ([(0, 60, 0.9, 0), (18, 60, 0.8, 0), (36, 60, 0.7, 0)], [0, 2]),
        ([(0, 9, NAN, 0), (NAN, 9, 0.9, 0), (5, 0, 0.9, 0)], []),
        ([], []),
        ([(20 * i, 15, 1 - i / 10000, 0) for i in range(300)], list(range(300))),
    ],
)
def test_strong_boxes_that_overlap_no_better_one_are_chosen(rows, kept):
    candidates = torch.tensor([(x, 0, x + w, 10, score, kind) for x, w, score, kind in rows])
    candidates = candidates.reshape(-1, 6).float()
    boxes, scores, lines = select_boxes(candidates, CHOICE)
    assert boxes.shape == (len(kept), 4)
    assert torch.equal(boxes, candidates[kept, :4]) and torch.equal(scores, candidates[kept, 4])
    assert lines.tolist() == [1] * len(kept)


@pytest.mark.parametrize("width", [40.0, 100.0, 190.0])
def test_crops_lie_where_their_boxes_lie(width):
    # A linear ramp stays linear through any symmetric filter: values tell positions.
    photo, box = ramp_photo(200, 250), torch.tensor([[20.3, 50.6, 20.3 + width, 100.6]])
    crop = crop_boxes(photo, box)[0].float()
    x0, y0, x1, y1 = widen_boxes(box)[0].tolist()
    height_px, width_px = RECTIFIER.crop_hw
    columns = x0 + (torch.arange(width_px) + 0.5) * (x1 - x0) / width_px - 0.5
    rows = y0 + (torch.arange(height_px) + 0.5) * (y1 - y0) / height_px - 0.5
    inside = slice(4, -4)  # the photo's edge bends the ramp
    assert (crop[0] - columns.clamp(0, 249))[inside, inside].abs().max() <= 0.51
    assert (crop[1] - rows[:, None].clamp(0, 199))[inside, inside].abs().max() <= 0.51


def test_the_photo_edge_is_repeated_beyond_it():
    photo = torch.full((20, 20, 3), 60, dtype=torch.uint8)
    photo[:10, :10] = 200  # wrapping around would bring in the other quarters
    crops = crop_boxes(photo, torch.tensor([[-40.0, -40.0, -4.0, -4.0], [24.0, 24.0, 60.0, 60.0]]))
    assert (crops[0] == 200).all()
    assert (crops[1] == 60).all()


def test_quads_show_what_the_sampler_sampled():
    # Values of the ramp photo are positions, so the rectified corners must name the quad.
    photo, boxes = ramp_photo(240, 250), torch.tensor([[60.0, 80.0, 180.0, 130.0]])
    theta = torch.tensor([[[0.7, -0.15, 0.05], [0.2, 0.6, -0.1]]])
    rectified = resample(crop_boxes(photo, boxes).float(), theta, (48, 188))
    seen = rectified[0, :2][:, [0, 0, -1, -1], [0, -1, -1, 0]].T + 0.5
    torch.testing.assert_close(quads_from_theta(theta, boxes)[0], seen, atol=1.5, rtol=0)
