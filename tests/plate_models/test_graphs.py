"""When two implementations of an exported net agree."""

import pytest
import torch
from torch import Tensor

from plate_models import export


def candidates(*rows: tuple[float, ...]) -> tuple[Tensor]:
    padding = [(0.0,) * 6] * (4 - len(rows))
    return (torch.tensor([[*rows, *padding]]),)


ROW, OTHER = (10.0, 10.0, 50.0, 20.0, 0.9, 0.0), (60.0, 10.0, 90.0, 20.0, 0.9, 1.0)


def test_equal_scores_may_change_places() -> None:
    assert export.compare_candidates(candidates(ROW, OTHER), candidates(OTHER, ROW)) == 0


@pytest.mark.parametrize(
    "found",
    [
        (10.1, 10.0, 50.0, 20.0, 0.9, 0.0),
        (10.0, 10.0, 50.0, 20.0, 0.902, 0.0),
        (10.0, 10.0, 50.0, 20.0, 0.9, 1.0),
        (10.0, 10.0, 50.0, 20.0, float("nan"), 0.0),
        (float("nan"), 10.0, 50.0, 20.0, 0.9, 0.0),
        (0.0,) * 6,
    ],
)
def test_candidates_that_differ(found: tuple[float, ...]) -> None:
    difference = export.compare_candidates(candidates(ROW), candidates(found))
    assert not difference < 1
    # Something found that is not there is as bad.
    assert not export.compare_candidates(candidates(), candidates(ROW)) < 1


def test_values_that_differ() -> None:
    one, nan = torch.ones(2, 2), torch.tensor([[1.0, 1.0], [float("nan"), 1.0]])
    assert export.compare_values((one, one), (one, one + 5e-4)) < 1
    assert not export.compare_values((one, one), (one, one + 2e-3)) < 1
    assert not export.compare_values((one, one), (nan, one)) < 1
    assert not export.compare_values((one, one), (one, nan)) < 1
