"""STN and LPRNet: shapes, geometry, and independence of a batch's neighbours."""

import pytest
import torch

from plate_models.nets.lprnet import LPRNet, unit_power
from plate_models.nets.stn import STN
from plate_models.rectification import corners_in_crop, rectified_rgb, resample
from plate_models.spec import RECOGNIZER, RECTIFIER


@pytest.fixture
def plates() -> torch.Tensor:
    return torch.randn(4, 3, *RECTIFIER.rectified_hw, generator=torch.Generator().manual_seed(3))


def test_lprnet_output_has_the_shape_of_the_spec(plates: torch.Tensor) -> None:
    torch.manual_seed(0)
    logits = LPRNet().eval()(plates)
    assert logits.shape == (4, RECOGNIZER.classes, RECOGNIZER.steps)


def test_a_plate_is_read_the_same_alone_and_in_a_batch(plates: torch.Tensor) -> None:
    torch.manual_seed(0)
    net = LPRNet().eval()
    plates[1] *= 40  # A neighbour so bright that any mean over the batch would move.
    together = net(plates)
    alone = torch.cat([net(plate[None]) for plate in plates])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)


def test_unit_power_scales_each_sample_to_mean_square_one() -> None:
    features = torch.randn(3, 8, 6, 24) * torch.tensor([0.1, 1, 50]).reshape(3, 1, 1, 1)
    power = unit_power(features).square().mean(dim=(1, 2, 3))
    torch.testing.assert_close(power, torch.ones(3), rtol=1e-2, atol=1e-2)


def test_untrained_stn_cuts_off_the_margins() -> None:
    height, width = RECTIFIER.crop_hw
    margin_h, margin_w = RECTIFIER.crop_margin_hw
    _, theta = STN().eval()(torch.zeros(1, 3, height, width))
    corners = (corners_in_crop(theta)[0] + 1) / 2 * torch.tensor([width, height])
    box_w, box_h = width / (1 + margin_w), height / (1 + margin_h)
    torch.testing.assert_close(corners[2] - corners[0], torch.tensor([box_w, box_h]))


def test_sampling_with_the_identity_changes_nothing() -> None:
    crops = torch.randn(2, 3, 12, 20)
    identity = torch.tensor([[1.0, 0, 0], [0, 1, 0]]).expand(2, 2, 3)
    torch.testing.assert_close(resample(crops, identity, (12, 20)), crops, rtol=0, atol=1e-5)


def test_sampling_the_left_half_stretches_it() -> None:
    crops = torch.cat([torch.zeros(1, 1, 4, 8), torch.ones(1, 1, 4, 8)], dim=3)
    left = torch.tensor([[[0.5, 0, -0.5], [0, 1, 0]]])
    assert resample(crops, left, (4, 16))[..., :-1].max() == 0


def test_sampling_outside_the_net_is_the_same() -> None:
    draw = torch.Generator().manual_seed(4)
    crops = torch.rand(3, 3, *RECTIFIER.crop_hw, generator=draw) * 2 - 1
    tilted = torch.tensor([[0.7, 0.1, 0.05], [-0.2, 0.6, -0.3]])
    theta = tilted + 0.3 * torch.rand(3, 2, 3, generator=draw)  # here and there past the edge
    with torch.inference_mode():
        resample(crops, theta, (24, 94))  # trainings may come to the same frame later
    theta.requires_grad_()
    seen = resample(crops, theta, (24, 94))
    torch.testing.assert_close(seen, resample(crops, theta, (24, 94)), rtol=0, atol=1e-4)
    seen.sum().backward()


def test_shown_plates_are_pixels_again() -> None:
    grey = torch.tensor([0.0, 100.4, 255.0]).view(1, 3, 1, 1).expand(1, 3, *RECTIFIER.crop_hw)
    crops = (grey - RECTIFIER.mean) / RECTIFIER.std
    theta = torch.tensor([[[1.0, 0, 0], [0, 1, 0]]])
    shown = rectified_rgb(crops, theta)
    assert shown.shape == (1, *RECTIFIER.shown_hw, 3)
    assert (shown == torch.tensor([0, 100, 255], dtype=torch.uint8)).all()
