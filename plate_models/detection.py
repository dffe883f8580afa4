"""From the detector's candidates to boxes: one box per plate."""

from dataclasses import dataclass

from torch import Tensor

from plate_models.devices import host_sees, rows_that_count
from plate_models.geometry import box_iou_xyxy
from plate_models.spec import DETECTOR, DetectorSpec

# Rounds of suppression on a device: photos need two. Whether they were enough is told.
ROUNDS = 4


@dataclass(frozen=True)
class Selection:
    """Boxes of plates, best first; N rows, of which the first ones count.

    Attributes:
        boxes: (N, 4) float32 x0, y0, x1, y1; 0 in rows that don't count.
        scores: (N,) float32 in [0, 1].
        lines: (N,) int64 lines of text, 1 or 2.
        counts: (N,) bool, which rows are plates. On the host all are: there are no others.
        certain: () bool, whether the choice is final: else more rounds are needed.
    """

    boxes: Tensor
    scores: Tensor
    lines: Tensor
    counts: Tensor
    certain: Tensor


def select_boxes(
    candidates: Tensor, spec: DetectorSpec = DETECTOR
) -> tuple[Tensor, Tensor, Tensor]:
    """Drop weak candidates, then all that overlap a better one, whatever their class.

    Args:
        candidates: (N, 6) float32 x0, y0, x1, y1, score, class, best first, as one
            row of the graph's output; unused rows have score 0.
        spec: Holds the lowest score kept and the overlap above which two boxes are
            one plate.

    Returns:
        Boxes (K, 4) float32 x0, y0, x1, y1 in the candidates' coordinates, their
        scores (K,) float32 in [0, 1], best first, and the plates' lines of text (K,)
        int64, 1 or 2.

    Raises:
        ValueError: The candidates are not (N, 6).
    """
    found = mark_boxes(candidates, spec)
    if not found.certain:
        found = mark_boxes(candidates, spec, rounds=len(candidates) + 1)
    kept = found.counts
    return found.boxes[kept], found.scores[kept], found.lines[kept]


def mark_boxes(
    candidates: Tensor, spec: DetectorSpec = DETECTOR, rounds: int = ROUNDS
) -> Selection:
    """Do what :func:`select_boxes` does without waiting for a device.

    Args:
        candidates: See :func:`select_boxes`.
        spec: See :func:`select_boxes`.
        rounds: Of suppression on a device, at least 1; one more than there are candidates
            always suffices. The host goes on until it is certain.

    Returns:
        The boxes: on the host those alone, on a device as many rows as candidates.

    Raises:
        ValueError: The candidates are not (N, 6).
    """
    if candidates.ndim != 2 or candidates.shape[1] != 6:
        raise ValueError(f"expected candidates (N, 6), got {tuple(candidates.shape)}")
    sides = candidates[:, 2:4] - candidates[:, :2]
    # NaN compares false: a broken row is dropped here.
    sound = (candidates[:, 4] >= spec.score_threshold) & (sides > 0).all(dim=1)
    rows = rows_that_count(sound)
    strong, sound = candidates[rows], sound[rows]
    overlaps = box_iou_xyxy(strong[:, :4], strong[:, :4]) > spec.iou_threshold
    kept, certain = suppress(overlaps, sound, rounds)
    rows = rows_that_count(kept)
    best, counts = strong[rows], kept[rows]
    boxes = best[:, :4].where(counts[:, None], 0)
    return Selection(boxes, best[:, 4], (best[:, 5] == 1) + 1, counts, certain)


def suppress(overlaps: Tensor, sound: Tensor, rounds: int) -> tuple[Tensor, Tensor]:
    """Keep what overlaps nothing better that is kept: greedy non-maximum suppression.

    Whether a row is kept follows from those before it. So if it is worked out for all rows
    at once from the round before, the first row is right after one round, the second after
    two at the latest, and a round that changes nothing has found the one answer there is.

    Args:
        overlaps: (N, N) bool, which pairs of rows exclude each other; best row first.
        sound: (N,) bool, the rows that may be kept.
        rounds: See :func:`mark_boxes`.

    Returns:
        (N,) bool, the rows kept, and () bool, whether the last round changed nothing.
    """
    better = overlaps.triu(diagonal=1)  # row i excludes row j only where i < j
    kept, certain = sound, sound.new_zeros(())
    on_host = host_sees(sound)
    for _ in range(len(sound) + 1 if on_host else rounds):
        before, kept = kept, sound & ~(better & kept[:, None]).any(dim=0)
        certain = (kept == before).all()
        if on_host and certain:
            break
    return kept, certain
