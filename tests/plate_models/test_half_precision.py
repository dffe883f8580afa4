"""What half precision does to the answers: why an engine may be built with --fp16."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support import SAMPLES
from torch import Tensor

from plate_models import images, weights
from plate_models.pipeline import PipelineConfig, read_plates


def halved(net: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    """Compute a net in float16 where that is done, and give float32, as the contract says."""

    def run(tensor: Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.float16):
            found = net(tensor)
        return tuple(map(Tensor.float, found)) if isinstance(found, tuple) else found.float()

    return run


@pytest.mark.parametrize("name", ["square_plates.jpg", "two_by_day.jpg"])
def test_half_precision_reads_the_same(name: str) -> None:
    modules = weights.load_modules()
    config = PipelineConfig.of(modules.specs, modules.calibration)
    nets = modules.detect, modules.rectify, modules.recognize
    photo = torch.from_numpy(images.decode((SAMPLES / name).read_bytes()))
    expected = read_plates(photo, *nets, config)
    found = read_plates(photo, *map(halved, nets), config)
    assert [plate.reading.text for plate in found] == [plate.reading.text for plate in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.reading.score == pytest.approx(other.reading.score, abs=0.01)
        if other.reading.readable:
            np.testing.assert_allclose(one.quad, other.quad, atol=0.3)
