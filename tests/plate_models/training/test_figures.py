"""The scoreboard's arithmetic: counts and intervals."""

import pytest

from plate_models.training.figures import median_ratio


def test_ratio_of_medians_pairs_the_photos() -> None:
    # Photo by photo always half: whatever is drawn, the ratio is one half.
    slow = [100.0, 1000.0, 10.0, 300.0, 50.0]
    assert median_ratio([ms / 2 for ms in slow], slow) == (0.5, (0.5, 0.5))
    value, (low, high) = median_ratio([1.0, 2.0, 3.0, 4.0], [4.0, 2.0, 8.0, 4.0])
    assert value == pytest.approx(2.5 / 4) and low < value < high
