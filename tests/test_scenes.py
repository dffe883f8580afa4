"""Painted and fully rendered scenes."""

import numpy as np
import pytest

from plate_models.training.synthetic.drawing import colour, fill, glow
from plate_models.training.synthetic.kinds import KINDS
from plate_models.training.synthetic.scenes import paint_plate, render_scene


def test_the_same_generator_renders_the_same_scene():
    first, again = (render_scene(np.random.default_rng(5), (640, 360)) for _ in range(2))
    assert np.array_equal(first.image, again.image)
    assert [p.text for p in first.plates] == [p.text for p in again.plates]
    other = render_scene(np.random.default_rng(6), (640, 360))
    assert not np.array_equal(first.image, other.image)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_each_car_carries_one_plate_inside_the_picture(count):
    scene = render_scene(np.random.default_rng(count), (960, 540), count)
    assert scene.image.shape == (540, 960, 3)
    assert scene.image.dtype == np.uint8
    assert len({plate.text for plate in scene.plates}) == count
    for plate in scene.plates:
        x0, y0, x1, y1 = plate.box.tolist()
        assert 0 <= x0 < x1 <= 960
        assert 0 <= y0 < y1 <= 540
        assert 3 < (x1 - x0) / (y1 - y0) < 5.5
        # Top left, top right, bottom right, bottom left.
        (tl, tr, br, bl) = plate.quad.tolist()
        assert tl[0] < tr[0]
        assert bl[0] < br[0]
        assert tl[1] < bl[1]
        assert tr[1] < br[1]


def test_plates_are_where_they_are_said_to_be():
    # Paper is brighter than the shaded hollow around it, and ink is darker than paper.
    for seed in range(4):
        scene = render_scene(np.random.default_rng(seed), (1280, 720), 1)
        x0, y0, x1, y1 = np.rint(scene.plates[0].box).astype(int)
        grey = scene.image.mean(axis=2)
        inside = grey[y0:y1, x0:x1]
        bright, dark = np.percentile(inside, (80, 8))
        assert bright > 1.6 * dark
        below = grey[y1 + 4 : y1 + 8, x0:x1]
        assert bright > below.mean()


def test_shapes_beyond_the_canvas_are_cut():
    canvas = np.zeros((20, 30, 3), np.float32)
    white = colour(255, 255, 255)
    fill(canvas, np.array([[-50.0, -50], [-10, -50], [-10, -10]]), white)
    glow(canvas, (500, 500), 5, white, 1.0)
    assert not canvas.any()
    fill(canvas, np.array([[-50.0, -50], [15, -50], [15, 60], [-50, 60]]), white)
    assert (canvas[:, :14] == 255).all()
    assert not canvas[:, 17:].any()


def test_gradients_run_from_top_to_bottom_even_if_cut():
    canvas = np.zeros((10, 10, 3), np.float32)
    corners = np.array([[-5.0, -10], [15, -10], [15, 20], [-5, 20]])
    fill(canvas, corners, colour(0, 0, 0), colour(255, 255, 255))
    assert 60 < canvas[0, 5, 0] < 110
    assert 140 < canvas[9, 5, 0] < 200


def _photo(box):
    """A grey photo with a striped plate in a box."""
    photo = np.full((240, 320, 3), 90, np.uint8)
    x0, y0, x1, y1 = box
    photo[y0:y1, x0:x1] = 230
    photo[y0 + 4 : y1 - 4, x0 + 6 : x1 - 6 : 5] = 20
    return photo


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("box", [(100, 100, 220, 126), (110, 80, 200, 140)])
def test_every_kind_replaces_a_long_and_a_high_plate(kind, box):
    photo = _photo(box)
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


def test_cars_carry_the_kinds_asked_for():
    kinds = ("ru.car.square", "ru.taxi")
    plates = [
        plate
        for seed in range(4)
        for plate in render_scene(np.random.default_rng(seed), (640, 360), 3, kinds).plates
    ]
    assert {plate.kind for plate in plates} == set(kinds)
    for plate in plates:
        x0, y0, x1, y1 = plate.box.tolist()
        assert plate.lines == (2 if plate.kind == "ru.car.square" else 1)
        assert ((x1 - x0) / (y1 - y0) < 2.2) == (plate.lines == 2)
