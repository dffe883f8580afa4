"""The detector's loss: which cells answer for a plate, and what a wrong answer costs."""

import pytest
import torch

from plate_models.nets.yolov5 import YOLOv5
from plate_models.training.detection_loss import DetectionLoss, Targets, assign, ciou

STRIDES = (8, 16, 32)


def test_ciou_of_equal_distant_and_misshapen_boxes():
    a = torch.tensor([[10.0, 10.0, 8.0, 4.0]]).repeat(3, 1)
    b = torch.tensor([[10.0, 10.0, 8.0, 4.0], [30.0, 10.0, 8.0, 4.0], [10.0, 10.0, 4.0, 8.0]])
    equal, distant, misshapen = ciou(a, b).tolist()
    assert equal == pytest.approx(1, abs=1e-5)
    assert distant == pytest.approx(-400 / (28**2 + 16), abs=1e-4)
    assert misshapen < 16 / 48  # their IoU


def test_a_plate_is_assigned_to_its_cell_and_the_two_nearest_neighbours():
    # Centre (44, 20) in cells of 8: (5.5, 2.5) → shift a little to the left and down.
    boxes = torch.tensor([[1.0, 27.0, 16.0, 59.0, 28.0]])  # centre (43, 22) = (5.375, 2.75)
    anchors = torch.tensor([[4.0, 1.5], [40.0, 1.5]])  # the second is ten times too wide
    found = assign(boxes, anchors, 8, (8, 8))
    assert set(zip(found.column.tolist(), found.row.tolist(), strict=True)) == {
        (5, 2),
        (4, 2),
        (5, 3),
    }
    assert found.anchor.tolist() == [0, 0, 0]
    assert found.image.tolist() == [1, 1, 1]
    centres = found.box[:, :2] + torch.stack((found.column, found.row), dim=1)
    torch.testing.assert_close(centres, torch.tensor([[5.375, 2.75]]).expand(3, 2))


def test_neighbours_beyond_the_edge_are_left_out():
    boxes = torch.tensor([[0.0, 0.0, 0.0, 6.0, 4.0], [0.0, 58.0, 60.0, 64.0, 64.0]])
    found = assign(boxes, torch.tensor([[0.75, 0.5]]), 8, (8, 8))
    cells = set(zip(found.column.tolist(), found.row.tolist(), strict=True))
    assert cells == {(0, 0), (7, 7)}


def perfect_heads(box: torch.Tensor, loss: DetectionLoss) -> list[torch.Tensor]:
    """Raw heads that decode to the box wherever the assignment asks for it."""
    heads = []
    for level, stride in enumerate(STRIDES):
        head = torch.full((1, 3, 128 // stride, 128 // stride, 7), -9.0)
        found = assign(box, loss.anchors[level], stride, (128 // stride,) * 2)
        share = torch.sqrt(found.box[:, 2:] / loss.anchors[level][found.anchor]) / 2
        raw = torch.full((len(share), 7), 9.0)
        raw[:, 0:2] = torch.logit((found.box[:, :2] + 0.5) / 2, eps=1e-4)
        raw[:, 2:4] = torch.logit(share, eps=1e-4)
        raw[:, 6] = -9.0
        head[found.image, found.anchor, found.row, found.column] = raw
        heads.append(head)
    return heads


def detection_loss() -> DetectionLoss:
    head = YOLOv5().head
    return DetectionLoss(head.anchors, head.strides)


NOTHING = torch.zeros(0, 5)
ONE_LINE = torch.tensor([1])


def test_perfect_predictions_cost_nothing():
    loss, box = detection_loss(), torch.tensor([[0.0, 40.0, 50.0, 90.0, 66.0]])
    total, parts = loss(perfect_heads(box, loss), Targets(box, NOTHING, ONE_LINE))
    assert total < 0.01
    moved = box + torch.tensor([0.0, 6.0, 0.0, 6.0, 0.0])
    worse, worse_parts = loss(perfect_heads(moved, loss), Targets(box, NOTHING, ONE_LINE))
    assert worse > 5 * total
    assert worse_parts["box"] > 10 * parts["box"]


def test_windows_without_plates_have_a_finite_loss():
    heads = [head.requires_grad_() for head in perfect_heads(NOTHING, detection_loss())]
    total, parts = detection_loss()(heads, Targets(NOTHING, NOTHING, ONE_LINE[:0]))
    total.backward()
    assert parts["box"] == parts["class"] == 0
    assert all(torch.isfinite(head.grad).all() for head in heads)


def test_unclear_places_are_not_judged():
    loss, box = detection_loss(), torch.tensor([[0.0, 40.0, 50.0, 90.0, 66.0]])
    heads = perfect_heads(box, loss)
    around = box + torch.tensor([0, -16, -16, 16, 16])
    blamed, _ = loss(heads, Targets(NOTHING, NOTHING, ONE_LINE[:0]))
    excused, _ = loss(heads, Targets(NOTHING, around, ONE_LINE[:0]))
    assert excused < 0.01 < blamed


@pytest.mark.parametrize(("lines", "right", "wrong"), [(1, 5, 6), (2, 6, 5)])
def test_the_class_is_the_number_of_lines(lines, right, wrong):
    gradients = class_gradients(lines)
    assert gradients[:, right].min() < 0 <= gradients[:, right].max()  # goes up
    assert gradients[:, wrong].max() > 0 >= gradients[:, wrong].min()  # goes down


def test_nothing_is_learnt_about_lines_that_nobody_counted():
    assert not class_gradients(0)[:, 5:].any()


def class_gradients(lines: int) -> torch.Tensor:
    """(all predictions, 7): the loss's gradients for one plate of so many lines."""
    loss, box = detection_loss(), torch.tensor([[0.0, 40.0, 50.0, 90.0, 66.0]])
    heads = [head.requires_grad_() for head in perfect_heads(box, loss)]
    loss(heads, Targets(box, NOTHING, torch.tensor([lines])))[0].backward()
    return torch.cat([head.grad.reshape(-1, 7) for head in heads])
