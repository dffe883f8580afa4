"""Choice of boxes among candidates."""

from dataclasses import replace

import pytest
import torch

from plate_models.detection import select_boxes
from plate_models.spec import DETECTOR

SPEC = replace(DETECTOR, score_threshold=0.3, iou_threshold=0.5)


def candidates(*rows: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float32).reshape(-1, 6)


def test_weak_candidates_are_dropped():
    rows = candidates((0, 0, 50, 10, 0.9, 0), (100, 0, 150, 10, 0.3, 0), (200, 0, 250, 10, 0.29, 0))
    boxes, scores, _ = select_boxes(rows, SPEC)
    assert boxes.tolist() == [[0, 0, 50, 10], [100, 0, 150, 10]]
    assert scores.tolist() == pytest.approx([0.9, 0.3])


def test_of_overlapping_candidates_the_best_stays_whatever_its_class():
    rows = candidates((0, 0, 50, 10, 0.9, 0), (1, 0, 51, 10, 0.8, 1), (0, 1, 50, 11, 0.7, 0))
    boxes, scores, _ = select_boxes(rows, SPEC)
    assert boxes.tolist() == [[0, 0, 50, 10]]
    assert scores.tolist() == pytest.approx([0.9])


def test_a_dropped_candidate_drops_no_other():
    # The third overlaps the second, which is gone, but not the first.
    rows = candidates((0, 0, 60, 10, 0.9, 0), (18, 0, 78, 10, 0.8, 0), (36, 0, 96, 10, 0.7, 0))
    boxes, _, _ = select_boxes(rows, SPEC)
    assert boxes[:, 0].tolist() == [0, 36]


def test_neighbours_with_little_overlap_stay():
    rows = candidates((0, 0, 60, 10, 0.9, 0), (30, 0, 90, 10, 0.8, 0))
    assert len(select_boxes(rows, SPEC)[0]) == 2


@pytest.mark.parametrize("rows", [candidates(), torch.zeros(300, 6)])
def test_no_plates(rows):
    boxes, scores, _ = select_boxes(rows, SPEC)
    assert boxes.shape == (0, 4)
    assert scores.shape == (0,)


def test_broken_candidates_are_dropped():
    nan = float("nan")
    rows = candidates((0, 0, 9, 9, nan, 0), (nan, 0, 9, 9, 0.9, 0), (5, 5, 5, 9, 0.9, 0))
    assert len(select_boxes(rows, SPEC)[0]) == 0


def test_three_hundred_plates_stay():
    left = torch.arange(300.0) * 20
    rows = torch.stack((left, left * 0, left + 15, left * 0 + 5, 1 - left / 10000, left * 0), dim=1)
    boxes, _, _ = select_boxes(rows, SPEC)
    assert torch.equal(boxes, rows[:, :4])


@pytest.mark.parametrize("shape", [(300, 5), (1, 300, 6), (6,)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match="expected candidates"):
        select_boxes(torch.zeros(shape), SPEC)
