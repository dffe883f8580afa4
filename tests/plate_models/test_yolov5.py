"""YOLOv5: shapes, keys, decoding, the exported graph."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from plate_models.export import compare_candidates
from plate_models.nets.yolov5 import (
    YOLOv5,
    YOLOv5Graph,
    cell_places,
    decode_boxes,
    flatten_heads,
)
from plate_models.spec import DETECTOR

COCO = tuple(f"class {index}" for index in range(80))
KEYS = {
    "model.0.conv.weight": (16, 3, 6, 6),
    "model.0.bn.running_var": (16,),
    "model.2.cv1.conv.weight": (16, 32, 1, 1),
    "model.4.m.1.cv2.conv.weight": (32, 32, 3, 3),
    "model.6.m.2.cv1.bn.weight": (64,),
    "model.9.cv2.conv.weight": (256, 512, 1, 1),
    "model.13.cv2.conv.weight": (64, 256, 1, 1),
    "model.18.conv.weight": (64, 64, 3, 3),
    "model.23.cv3.conv.weight": (256, 256, 1, 1),
    "model.24.anchors": (3, 3, 2),
    "model.24.m.0.weight": (21, 64, 1, 1),
    "model.24.m.2.bias": (21,),
}


@pytest.fixture(scope="module")
def graph() -> YOLOv5Graph:
    """A net with random weights whose output depends on its input, in evaluation mode."""
    torch.manual_seed(0)
    net = YOLOv5()
    for head in net.head.m:
        torch.nn.init.normal_(head.weight, std=0.5)
    # Norms that have seen data: without, each layer fades the signal until none is left.
    norms = [module for module in net.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad():
        net.train()(random_canvases(2, 128, 128).float() / 255)
    return YOLOv5Graph(net).eval().requires_grad_(False)


def random_canvases(count: int, height: int, width: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, 3, height, width), dtype=torch.uint8, generator=generator)


def decode_heads(
    heads: list[torch.Tensor], anchors: torch.Tensor, strides: tuple[int, ...]
) -> torch.Tensor:
    """Every row decoded, of which the graph decodes the best: centre x, y, w, h, probabilities."""
    rows = flatten_heads(heads)
    boxes = decode_boxes(rows[..., :4], cell_places(heads, anchors, strides))
    return torch.cat((boxes, rows[..., 4:].sigmoid()), dim=-1)


def test_keys_follow_the_published_layout():
    state = YOLOv5().state_dict()
    assert {key: tuple(state[key].shape) for key in KEYS} == KEYS
    assert {key.split(".")[0] for key in state} == {"model"}
    without_parameters = {"11", "12", "15", "16", "19", "22"}
    assert {key.split(".")[1] for key in state} == {str(i) for i in range(25)} - without_parameters


# What YOLOv5 v6 prints for 80 classes before its norms are fused: n, s, m, l.
@pytest.mark.parametrize(
    ("width", "depth", "parameters"),
    [
        (0.25, 0.33, 1_872_157),
        (0.50, 0.33, 7_235_389),
        (0.75, 0.67, 21_190_557),
        (1.00, 1.00, 46_563_709),
    ],
)
def test_sizes_are_the_published_ones(width, depth, parameters):
    spec = replace(DETECTOR, classes=COCO, width_multiple=width, depth_multiple=depth)
    with torch.device("meta"):
        net = YOLOv5(spec)
    assert sum(p.numel() for p in net.parameters()) == parameters


def test_heads_have_the_shapes_of_their_strides():
    heads = YOLOv5().eval()(torch.zeros(2, 3, 64, 96))
    assert [tuple(head.shape) for head in heads] == [
        (2, 3, 8, 12, 7),
        (2, 3, 4, 6, 7),
        (2, 3, 2, 3, 7),
    ]


def test_decoding_follows_the_formulas():
    torch.manual_seed(0)
    heads = [torch.randn(1, 3, 4, 6, 7), torch.randn(1, 3, 2, 3, 7), torch.randn(1, 3, 1, 2, 7)]
    anchors = torch.rand(3, 3, 2) + 0.5
    decoded = decode_heads(heads, anchors, (8, 16, 32))[0].numpy()
    expected = []
    for head, sizes, stride in zip(heads, anchors.numpy(), (8, 16, 32), strict=True):
        sigma = 1 / (1 + np.exp(-head[0].numpy()))
        for a, y, x in np.ndindex(sigma.shape[:3]):
            tx, ty, tw, th, *rest = sigma[a, y, x]
            centre = ((2 * tx - 0.5 + x) * stride, (2 * ty - 0.5 + y) * stride)
            size = ((2 * tw) ** 2 * sizes[a, 0] * stride, (2 * th) ** 2 * sizes[a, 1] * stride)
            expected.append((*centre, *size, *rest))
    np.testing.assert_allclose(decoded, np.array(expected), rtol=1e-4, atol=1e-4)


def test_candidates_are_sorted_and_within_their_ranges(graph):
    rows = graph(random_canvases(2, 128, 160))
    assert rows.shape == (2, DETECTOR.max_candidates, 6)
    assert rows.dtype == torch.float32
    scores = rows[..., 4]
    assert (scores.diff(dim=1) <= 0).all()
    assert ((scores >= 0) & (scores <= 1)).all()
    assert set(rows[..., 5].unique().tolist()) <= {0.0, 1.0}
    assert (rows[..., 2:4] >= rows[..., :2]).all()


def test_candidates_are_the_cells_that_no_neighbour_exceeds(graph):
    canvases = random_canvases(1, 96, 128) // 3
    head = graph.net.head
    heads = graph.net(canvases.float() / 255)
    expected = []
    for level in heads:
        every = level[0].sigmoid()
        scores = (every[..., 4] * every[..., 5:].amax(dim=-1)).detach().numpy()
        _, rows, columns = scores.shape
        for a, y, x in np.ndindex(scores.shape):
            around = scores[
                :, max(0, y - 1) : min(rows, y + 2), max(0, x - 1) : min(columns, x + 2)
            ]
            expected.append(scores[a, y, x] if scores[a, y, x] >= around.max() else 0.0)
    best = torch.tensor(sorted(expected, reverse=True)[: DETECTOR.max_candidates])
    found = graph(canvases)[0]
    torch.testing.assert_close(found[:, 4], best)
    assert 0 < (best > 0).sum() < DETECTOR.max_candidates  # unused rows score 0
    # The best box is one of those that decoding all of them gives the highest score.
    every = decode_heads(heads, head.anchors, head.strides)[0]
    score = every[:, 4] * every[:, 5:].amax(dim=1)
    centre, size = every[score >= score.max() - 1e-6, :4].split(2, dim=1)
    boxes = torch.cat((centre - size / 2, centre + size / 2), dim=1)
    assert (boxes - found[0, :4]).abs().amax(dim=1).min() < 1e-3


def test_a_canvas_does_not_depend_on_its_neighbours(graph):
    canvases = random_canvases(3, 96, 128)
    alone = torch.cat([graph(canvas[None]) for canvas in canvases])
    # Random weights score many cells alike: who comes first is chance.
    assert compare_candidates((alone,), (graph(canvases),)) < 1


# Deprecated in torch 2.13, and still the way into Triton's PyTorch backend.
@pytest.mark.filterwarnings("ignore:`torch.jit.trace.*:DeprecationWarning")
def test_one_trace_serves_every_batch_and_canvas(graph):
    traced = torch.jit.trace(graph, random_canvases(1, 96, 128))
    for count, height, width in ((2, 160, 96), (1, 96, 224)):
        canvases = random_canvases(count, height, width)
        torch.testing.assert_close(traced(canvases), graph(canvases), rtol=1e-3, atol=0.05)


def test_fused_norms_change_nothing_but_the_time(graph: YOLOv5Graph) -> None:
    photo = random_canvases(1, 96, 128).float() / 255
    fused = deepcopy(graph.net).fuse()
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in fused.modules())
    for found, expected in zip(fused(photo), graph.net(photo), strict=True):
        torch.testing.assert_close(found, expected, atol=2e-3, rtol=1e-3)
