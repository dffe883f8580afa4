"""Suppression in rounds gives what its definition gives, on the host and on a device."""

import pytest
import torch
from stand_in_device import DEVICE, watch
from torch import Tensor

from plate_models import detection, geometry
from plate_models.spec import DETECTOR


def boxes_of_a_kind(kind: str, count: int, seed: int) -> Tensor:
    """(count, 4) boxes: anywhere, heaped up, in chains, or all the same."""
    generator = torch.Generator().manual_seed(seed)
    if kind == "chain":
        left = torch.arange(count) * torch.randint(20, 60, (1,), generator=generator)
        return torch.stack((left, left * 0, left + 100, left * 0 + 30), dim=1).float()
    if kind == "same":
        return torch.tensor([[5.0, 5, 50, 20]]).repeat(count, 1)
    spread = {"anywhere": 700.0, "heap": 60.0}[kind]
    corner = torch.rand(count, 2, generator=generator) * spread
    return torch.cat((corner, corner + 20 + torch.rand(count, 2, generator=generator) * 80), dim=1)


def suppress_one_by_one(overlaps: Tensor, sound: Tensor) -> list[bool]:
    """The definition: best first, whatever overlaps a better one that is kept goes."""
    kept: list[bool] = []
    for row, flag in enumerate(sound.tolist()):
        kept.append(flag and not any(kept[i] and overlaps[i, row] for i in range(row)))
    return kept


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["anywhere", "heap", "chain", "same"])
@pytest.mark.parametrize("count", [0, 1, 2, 60])
def test_suppression_in_rounds_is_exact(kind: str, count: int, seed: int) -> None:
    boxes = boxes_of_a_kind(kind, count, seed)
    overlaps = geometry.box_iou_xyxy(boxes, boxes) > DETECTOR.iou_threshold
    sound = torch.rand(count, generator=torch.Generator().manual_seed(seed)) < 0.9
    expected = suppress_one_by_one(overlaps, sound)
    assert detection.suppress(overlaps, sound, 1)[0].tolist() == expected  # the host goes on
    with watch():
        there = overlaps.to(DEVICE), sound.to(DEVICE)
        for rounds in (1, 2, 3, 5, count + 1):
            kept, certain = (part.cpu() for part in detection.suppress(*there, rounds))
            # Never certain of anything else; certain at the latest one round after the last row.
            assert not certain or kept.tolist() == expected
        assert certain
