"""The benchmark's photos, rendered by other processes while this one reads them."""

from collections.abc import Iterable, Iterator
from functools import partial

from plate_models.training.benchmark.photos import SEED, BenchmarkPhoto, render_photo
from plate_models.training.worker_pool import map_ahead


def render_photos(
    numbered: Iterable[tuple[str, int]], workers: int, seed: int = SEED
) -> Iterator[BenchmarkPhoto]:
    """Render photos in the order asked for.

    Args:
        numbered: Kind and number of each.
        workers: Processes; 0 renders in this one.
        seed: Of the whole benchmark.
    """
    return map_ahead(partial(_render, seed=seed), numbered, workers)


def _render(numbered: tuple[str, int], seed: int) -> BenchmarkPhoto:
    return render_photo(*numbered, seed)
