"""Letterbox, boxes, crops and quads."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from plate_models.detection import box_iou_xyxy, choose_canvas, letterbox
from plate_models.rectification import (
    box_cxcywh_to_xyxy,
    box_xyxy_to_cxcywh,
    crop_boxes,
    quads_from_theta,
    widen_boxes,
)
from plate_models.spec import DETECTOR, RECTIFIER

CANVASES_HW = ((448, 768), (576, 576), (768, 448))


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
        ((1920, 1080), (768, 448)),
        ((1000, 1000), (576, 576)),
        ((1200, 1600), (448, 768)),
        ((1100, 1000), (576, 576)),
        ((300, 4000), (448, 768)),
        ((1, 1), (576, 576)),
    ],
)
def test_the_canvas_that_shrinks_least_is_chosen(photo_hw, canvas_hw):
    assert choose_canvas(*photo_hw, CANVASES_HW) == canvas_hw


def test_of_equal_canvases_the_smaller_is_chosen():
    assert choose_canvas(64, 128, ((128, 128), (64, 128), (192, 128))) == (64, 128)


def test_letterbox_keeps_the_aspect_and_pads_with_grey():
    photo = torch.full((50, 200, 3), 7, dtype=torch.uint8)
    canvas, placement = letterbox(photo, (64, 96))
    assert canvas.shape == (3, 64, 96)
    assert canvas.dtype == torch.uint8
    assert placement.offset_xy == (0, 20)
    assert (canvas[:, 20:44] == 7).all()
    assert (canvas[:, :20] == DETECTOR.pad_value).all()
    assert (canvas[:, 44:] == DETECTOR.pad_value).all()


def to_canvas(placement, boxes):
    scale, offset = map(torch.tensor, (placement.scale_xy, placement.offset_xy))
    return boxes * scale.repeat(2) + offset.repeat(2)


def test_a_photo_of_the_canvas_size_is_not_touched():
    photo = ramp_photo(64, 96)
    canvas, _ = letterbox(photo, (64, 96))
    assert torch.equal(canvas, photo.permute(2, 0, 1))


@pytest.mark.parametrize("photo_hw", [(1080, 1920), (37, 211), (211, 37), (3, 3)])
@pytest.mark.parametrize("canvas_hw", CANVASES_HW)
def test_boxes_survive_the_way_to_the_canvas_and_back(photo_hw, canvas_hw):
    height, width = photo_hw
    photo = torch.zeros(height, width, 3, dtype=torch.uint8)
    boxes = torch.tensor([[0.0, 0.0, width, height], [0.3, 0.6, width / 2, height / 3]])
    _, placement = letterbox(photo, canvas_hw)
    on_canvas = to_canvas(placement, boxes)
    assert (on_canvas >= 0).all()
    assert (on_canvas <= torch.tensor([canvas_hw[1], canvas_hw[0]] * 2) + 1e-3).all()
    torch.testing.assert_close(placement.to_photo(on_canvas), boxes, rtol=0, atol=2e-3)


def test_what_the_box_frames_lies_in_its_box_on_the_canvas():
    photo = torch.zeros(300, 500, 3, dtype=torch.uint8)
    photo[90:150, 200:400] = 255
    canvas, placement = letterbox(photo, (192, 192))
    box = to_canvas(placement, torch.tensor([[200.0, 90.0, 400.0, 150.0]]))[0]
    x0, y0, x1, y1 = box.tolist()
    rows, columns = (canvas[0] > 200).nonzero().unbind(dim=1)
    found = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    assert [int(v) for v in found] == pytest.approx([x0, y0, x1, y1], abs=1)


def test_shrinking_onto_a_canvas_averages():
    photo = torch.zeros(300, 600, 3, dtype=torch.uint8)
    photo[:, ::2] = 255
    canvas, _ = letterbox(photo, (100, 200))
    assert (canvas.float() - 127.5).abs()[:, :, 2:-2].max() < 30


@pytest.mark.parametrize("photo_hw", [(270, 480), (97, 31), (1, 50)])
def test_the_canvas_holds_the_photo_as_torch_shrinks_it(photo_hw):
    draw = torch.Generator().manual_seed(5)
    photo = torch.randint(0, 256, (*photo_hw, 3), dtype=torch.uint8, generator=draw)
    # Rows that lie apart, as those of a view do, and colours in the order of `cv2.imread`.
    for image in (photo, photo.repeat(1, 2, 1)[:, : photo_hw[1]], photo.flip(2)):
        canvas, placement = letterbox(image, (64, 96))
        (left, top), (x, y) = placement.offset_xy, placement.scale_xy
        height, width = round(photo_hw[0] * y), round(photo_hw[1] * x)
        planes = image.permute(2, 0, 1)[None].contiguous()
        shrunk = F.interpolate(planes, (height, width), mode="bilinear", antialias=True)
        bars = (left, 96 - width - left, top, 64 - height - top)
        assert torch.equal(canvas, F.pad(shrunk[0], bars, value=DETECTOR.pad_value))


def test_boxes_are_cut_at_the_photo():
    _, placement = letterbox(torch.zeros(100, 200, 3, dtype=torch.uint8), (64, 64))
    boxes = placement.to_photo(torch.tensor([[-20.0, -20.0, 90.0, 90.0]]))
    assert boxes.tolist() == [[0.0, 0.0, 200.0, 100.0]]


def test_no_boxes_are_no_boxes():
    none = torch.zeros(0, 4)
    _, placement = letterbox(torch.zeros(10, 10, 3, dtype=torch.uint8), (64, 64))
    assert placement.to_photo(none).shape == (0, 4)
    assert box_xyxy_to_cxcywh(none).shape == (0, 4)
    assert box_cxcywh_to_xyxy(none).shape == (0, 4)
    assert widen_boxes(none).shape == (0, 4)
    assert box_iou_xyxy(none, torch.zeros(3, 4)).shape == (0, 3)
    assert quads_from_theta(torch.zeros(0, 2, 3), none).shape == (0, 4, 2)
    crops = crop_boxes(torch.zeros(10, 10, 3, dtype=torch.uint8), none)
    assert crops.shape == (0, 3, *RECTIFIER.crop_hw)


@pytest.mark.parametrize(
    "image",
    [
        torch.zeros(10, 10, 3),
        torch.zeros(3, 10, 10, dtype=torch.uint8),
        torch.zeros(10, 10, dtype=torch.uint8),
        torch.zeros(0, 0, 3, dtype=torch.uint8),
    ],
)
def test_what_is_no_image_is_refused(image):
    with pytest.raises(ValueError, match="expected an image"):
        letterbox(image, (64, 64))
    with pytest.raises(ValueError, match="expected an image"):
        crop_boxes(image, torch.zeros(1, 4))


def test_box_formats():
    boxes = torch.tensor([[10.0, 20.0, 50.0, 30.0]])
    assert box_xyxy_to_cxcywh(boxes).tolist() == [[30.0, 25.0, 40.0, 10.0]]
    assert torch.equal(box_cxcywh_to_xyxy(box_xyxy_to_cxcywh(boxes)), boxes)


def test_iou():
    a = torch.tensor([[0.0, 0.0, 10.0, 10.0], [5.0, 5.0, 5.0, 5.0]])
    b = torch.tensor([[0.0, 0.0, 10.0, 10.0], [5.0, 0.0, 15.0, 10.0], [20.0, 20.0, 30.0, 30.0]])
    expected = torch.tensor([[1.0, 1 / 3, 0.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(box_iou_xyxy(a, b), expected)


def test_margins_are_shares_of_height_and_width():
    boxes = torch.tensor([[100.0, 100.0, 200.0, 120.0]])
    spec = replace(RECTIFIER, crop_margin_hw=(0.5, 0.2), two_line_margin_hw=(0.2, 0.4))
    assert widen_boxes(boxes, torch.tensor([2]), spec).tolist() == [[80.0, 98.0, 220.0, 122.0]]
    assert widen_boxes(boxes, spec=spec).tolist() == [[90.0, 95.0, 210.0, 125.0]]


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


def test_shrinking_averages():
    photo = torch.zeros(400, 800, 3, dtype=torch.uint8)
    photo[::2, ::2] = 255
    photo[1::2, 1::2] = 255
    crop = crop_boxes(photo, torch.tensor([[100.0, 100.0, 700.0, 300.0]]))
    assert (crop.float() - 127.5).abs().max() < 5


def test_huge_boxes_are_sampled_but_still_averaged():
    generator = torch.Generator().manual_seed(0)
    photo = torch.randint(0, 256, (900, 3000, 3), dtype=torch.uint8, generator=generator)
    crop = crop_boxes(photo, torch.tensor([[100.0, 100.0, 2900.0, 800.0]])).float()
    # A single pixel deviates by 74 grey levels, the mean of a dozen samples by 21.
    assert crop.std() < 25


def test_boxes_of_any_size_take_little_memory():
    photo = torch.full((40, 90_000, 3), 9, dtype=torch.uint8)
    crop = crop_boxes(photo, torch.tensor([[0.0, 0.0, 90_000.0, 40.0]]))
    assert (crop == 9).all()


def test_the_photo_edge_is_repeated_beyond_it():
    photo = torch.full((20, 20, 3), 60, dtype=torch.uint8)
    photo[:10, :10] = 200  # wrapping around would bring in the other quarters
    crops = crop_boxes(photo, torch.tensor([[-40.0, -40.0, -4.0, -4.0], [24.0, 24.0, 60.0, 60.0]]))
    assert (crops[0] == 200).all()
    assert (crops[1] == 60).all()


def test_a_crop_does_not_depend_on_its_neighbours():
    photo = torch.randint(0, 256, (120, 160, 3), dtype=torch.uint8)
    boxes = torch.tensor([[10.0, 20.0, 60.0, 40.0], [70.5, 30.2, 150.0, 61.0]])
    together = crop_boxes(photo, boxes)
    alone = torch.cat([crop_boxes(photo, box[None]) for box in boxes])
    assert torch.equal(together, alone)


def test_identity_theta_gives_the_corners_of_the_widened_box():
    theta = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    boxes = torch.tensor([[100.0, 100.0, 200.0, 120.0]])
    x0, y0, x1, y1 = widen_boxes(boxes)[0].tolist()
    quad = quads_from_theta(theta, boxes)[0]
    torch.testing.assert_close(quad, torch.tensor([[x0, y0], [x1, y0], [x1, y1], [x0, y1]]))


def test_quads_show_what_the_sampler_sampled():
    # Values of the ramp photo are positions, so the rectified corners must name the quad.
    photo, boxes = ramp_photo(240, 250), torch.tensor([[60.0, 80.0, 180.0, 130.0]])
    theta = torch.tensor([[[0.7, -0.15, 0.05], [0.2, 0.6, -0.1]]])
    crops = crop_boxes(photo, boxes).float()
    grid = F.affine_grid(theta, [1, 3, 48, 188], align_corners=False)
    rectified = F.grid_sample(crops, grid, align_corners=False)
    seen = rectified[0, :2][:, [0, 0, -1, -1], [0, -1, -1, 0]].T + 0.5
    torch.testing.assert_close(quads_from_theta(theta, boxes)[0], seen, atol=1.5, rtol=0)
