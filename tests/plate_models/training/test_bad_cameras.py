"""What bad cameras make of training crops: codecs, grey photos, tilt, obstacles."""

from dataclasses import replace

import cv2
import numpy as np
import pytest

from plate_models.spec import RECTIFIER
from plate_models.training.imaging import Image
from plate_models.training.synthetic.crops import CropStyle, render_crop
from plate_models.training.synthetic.photo import BAD_CAMERAS, PhotoStyle, film, photograph
from plate_models.training.synthetic.plates import PlateStyle, render_plate


def plate(seed: int = 0, style: PlateStyle | None = None) -> Image:
    """A plate of 260 x 56 px or, in a holder, larger."""
    style = style or PlateStyle(holder_share=0, hidden_share=0)
    return render_plate("A123BC77", np.random.default_rng(seed), 0.5, style).rgb


def error(first: Image, second: Image) -> float:
    return float(np.abs(first.astype(float) - second).mean())


def test_the_coarser_the_codec_the_less_is_left() -> None:
    scene = plate()
    for seed in range(6):
        filmed = [film(scene, np.random.default_rng(seed), qp) for qp in (18, 30, 42)]
        assert {picture.shape for picture in filmed} == {scene.shape}
        losses = [error(picture, scene) for picture in filmed]
        assert losses[0] < 6 and losses[0] < losses[1] < losses[2]


def test_videos_end_where_the_picture_is() -> None:
    """However the scene moved before, no other place fits the last frame better."""
    scene = cv2.GaussianBlur(plate(), (0, 0), 1)
    for seed in range(6):
        last = film(scene, np.random.default_rng(seed), 24)
        fits = {
            (x, y): error(np.roll(last, (y, x), (0, 1)), scene)
            for x in (-1, 0, 1)
            for y in (-1, 0, 1)
        }
        assert min(fits, key=lambda place: fits[place]) == (0, 0)


@pytest.mark.parametrize("video_share", [0, 1])
def test_grey_photos_have_no_colour(video_share: float) -> None:
    for seed in range(20):
        style = replace(BAD_CAMERAS, grey_share=1, video_share=video_share)
        photo = photograph(plate(seed), np.random.default_rng(seed), style)
        assert (photo == photo[..., :1]).all()
    assert (photograph(plate(), np.random.default_rng(0), PhotoStyle()).std(axis=2) > 0).any()


def test_infrared_leaves_the_plate_alone_bright() -> None:
    for seed in range(20):
        style = CropStyle(infrared_share=1, photo=PhotoStyle(glare_share=0), holder_box_share=0)
        sample = render_crop(np.random.default_rng(seed), style, "ru.car")
        inside = np.zeros(sample.image.shape[:2], np.uint8)
        cv2.fillConvexPoly(inside, np.rint(sample.quad).astype(np.int32), 1)
        bright = np.percentile(sample.image[inside == 1], 70)
        assert bright > np.percentile(sample.image[inside == 0], 50) + 20


def test_the_same_chance_gives_the_same_crop() -> None:
    """Codecs and whatever else bad cameras do depend on nothing but the generator."""
    style = CropStyle(photo=replace(BAD_CAMERAS, video_share=1, headlight_share=1))
    for seed in range(4):
        first, second = (render_crop(np.random.default_rng(seed), style) for _ in range(2))
        assert (first.image == second.image).all() and (first.quad == second.quad).all()


def test_tilted_plates_lie_within_their_crops() -> None:
    height, width = RECTIFIER.crop_hw
    style = CropStyle(tilt_share=1, sloppy_share=0, holder_box_share=0)
    tilts = []
    for seed in range(60):
        quad = render_crop(np.random.default_rng(seed), style, "ru.car").quad
        assert (quad > -2).all() and (quad < (width + 2, height + 2)).all()
        # Crops are squeezed, so a turn shows in the share of the height that the upper edge takes.
        tilts.append(abs(quad[1, 1] - quad[0, 1]) / height)
    assert np.mean(np.array(tilts) > 0.3) > 0.3


def test_obstacles_hide_only_a_small_part() -> None:
    hidden = []
    for seed in range(60):
        free, covered = (plate(seed, PlateStyle(hidden_share=share)) for share in (0, 1))
        hidden.append((free != covered).any(axis=2).mean())
    assert max(hidden) < 0.5 and np.mean(hidden) > 0.01
