"""The photos that speed is measured on: what is in them, and that it is found."""

import numpy as np
import pytest
import torch

from plate_models.engines.nets import Nets, load_nets
from plate_models.images import decode
from plate_models.pipeline import Plate
from plates.benchmarks.photos import STANDARD_TEXTS, STANDARD_WH, photo_with, standard_photo


@pytest.fixture(scope="module")
def nets() -> Nets:
    return load_nets("torch")


def read(nets: Nets, file: bytes) -> list[Plate]:
    return nets.read(torch.from_numpy(decode(file)))


def test_the_standard_photo_is_what_a_camera_sends_and_reads_as_promised(nets: Nets) -> None:
    file = standard_photo()
    assert decode(file).shape == (STANDARD_WH[1], STANDARD_WH[0], 3)
    assert 350_000 <= len(file) <= 450_000
    assert sorted(plate.reading.text for plate in read(nets, file)) == sorted(STANDARD_TEXTS)


@pytest.mark.parametrize(("plates", "megapixels"), [(1, 2), (4, 2), (16, 2), (2, 1), (2, 4)])
def test_as_many_plates_are_found_and_read_as_were_drawn(
    nets: Nets, plates: int, megapixels: float
) -> None:
    file = photo_with(plates, megapixels)
    height, width = decode(file).shape[:2]
    assert height * width == pytest.approx(megapixels * 1e6, rel=0.01)
    assert width / height == pytest.approx(16 / 9, rel=0.01)
    assert [plate.reading.readable for plate in read(nets, file)] == [True] * plates


def test_a_photo_of_one_kind_is_the_same_each_time() -> None:
    photo_with.cache_clear()
    first = photo_with(2, 1)
    photo_with.cache_clear()
    assert np.array_equal(decode(first), decode(photo_with(2, 1)))


@pytest.mark.parametrize(("plates", "megapixels"), [(0, 2), (65, 2), (2, 0), (2, 13), (2, -1)])
def test_a_photo_that_cannot_be_is_refused(plates: int, megapixels: float) -> None:
    with pytest.raises(ValueError, match=f"got {plates} and {megapixels:g}"):
        photo_with(plates, megapixels)
