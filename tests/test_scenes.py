"""Painted and fully rendered scenes."""

import numpy as np
import pytest

from plate_models.synthetic.drawing import colour, fill, glow
from plate_models.synthetic.scenes import render_scene


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
