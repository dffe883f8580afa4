"""YOLOv5 and LPRNet: shapes, candidates, activations, independence within a batch."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from plate_models import export, release, weights
from plate_models.detection import letterbox
from plate_models.images import decode
from plate_models.nets.lprnet import LPRNet
from plate_models.nets.yolov5 import YOLOv5
from plate_models.spec import DETECTOR, RECTIFIER


@pytest.fixture(scope="module")
def graph():
    return weights.load_modules().detect


def scenes(count, *canvas_hw):
    """(N, 3, H, W) uint8 canvases with the golden photo, each darker than the one before."""
    photo = decode(release.DEFAULT_GOLDEN.read_bytes())
    canvases = [letterbox(photo // (1 + n), canvas_hw)[0] for n in range(count)]
    return torch.from_numpy(np.stack(canvases))


def test_candidates_are_the_cells_whose_score_no_neighbour_exceeds(graph):
    canvases = scenes(1, 96, 128)
    heads = graph.net(canvases.float() / 255)
    assert [tuple(head.shape[2:]) for head in heads] == [(12, 16, 7), (6, 8, 7), (3, 4, 7)]
    expected = []
    for level in heads:
        every = level[0].sigmoid()
        scores = (every[..., 4] * every[..., 5:].amax(dim=-1)).numpy()
        for a, y, x in np.ndindex(scores.shape):
            around = scores[:, max(0, y - 1) : y + 2, max(0, x - 1) : x + 2]
            expected.append(scores[a, y, x] if scores[a, y, x] >= around.max() else 0.0)
    best = torch.tensor(sorted(expected, reverse=True)[: DETECTOR.max_candidates])
    (found,) = graph(canvases)
    torch.testing.assert_close(found[:, 4], best)
    assert set(found[:, 5].unique().tolist()) <= {0.0, 1.0}
    assert (found[:, 2:4] >= found[:, :2]).all()
    assert 0 < (best > 0).sum() < DETECTOR.max_candidates  # unused rows score 0


@pytest.mark.parametrize(("activation", "function"), [("silu", F.silu), ("hardswish", F.hardswish)])
def test_convolutions_are_followed_by_the_activation_of_the_spec(activation, function):
    stem = YOLOv5(replace(DETECTOR, activation=activation)).eval().model[0]
    image = torch.rand(1, 3, 32, 32)
    torch.testing.assert_close(stem(image), function(stem.bn(stem.conv(image))))


def test_a_canvas_does_not_depend_on_its_neighbours(graph):
    canvases = scenes(3, 96, 128)
    alone = torch.cat([graph(canvas[None]) for canvas in canvases])
    # Cells with equal scores come in any order, which the comparison ignores.
    assert export.compare_candidates((alone,), (graph(canvases),)) < 1


def test_a_plate_is_read_the_same_alone_and_in_a_batch():
    torch.manual_seed(0)
    net, plates = LPRNet().eval(), torch.randn(4, 3, *RECTIFIER.rectified_hw)
    plates[1] *= 40  # so bright that it would change any mean over the batch
    together = net(plates)
    alone = torch.cat([net(plate[None]) for plate in plates])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)
