"""One calibration from beginning to end: crops, readings, fit, measures, report."""

import datetime
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from plate_models.recognition.calibration import NAME, Calibration
from plate_models.training.calibrating import fitting
from plate_models.training.calibrating.mix import DEFAULT_MIX, CalibrationMix
from plate_models.training.calibrating.pictures import draw_reliability, draw_risk_coverage
from plate_models.training.calibrating.trials import (
    SETS,
    Block,
    Trial,
    eligibles,
    plan,
    raw_scores,
    rights,
    try_blocks,
    write_csv,
)
from plate_models.weights import WEIGHTS_DIR

Progress = Callable[[Iterable[list[Trial]], str, int], Iterable[list[Trial]]]

# Widths of plates in their photos, in pixels, at which the groups of the report part.
_WIDTHS = (80, 110, 150, 220)
# Accepted shares of wrong texts whose thresholds the report compares.
_SHARES_WRONG = (0.0005, 0.001, 0.002, 0.005, 0.01)


@dataclass(frozen=True)
class CalibrationRun:
    """One experiment.

    Attributes:
        data: Holds ``world_photos/``, into which half of the plates are painted.
        weights: Folder of the nets.
        folder: Where the report goes.
        crops: In each of the two sets: the one to fit to, and the one to measure with.
        workers: Processes that make crops and read them.
        most_wrong: Share of wrong texts accepted among the readable ones: one in 200, what the
            project asks of its most confident answers. To be stricter makes many right texts
            unreadable for each wrong one: the report's "thresholds" say how many.
        least: No text that scores less is readable, see :func:`fitting.threshold_of`.
        seed: Of everything.
        mix: How hard the crops are.
    """

    data: Path
    weights: Path = WEIGHTS_DIR
    folder: Path = Path("runs/calibration")
    crops: int = 20_000
    workers: int = 2
    most_wrong: float = 0.005
    least: float = 0.5
    seed: int = 577
    mix: CalibrationMix = DEFAULT_MIX


@dataclass(frozen=True)
class Result:
    """A calibration and what is known of it.

    Attributes:
        calibration: For the weights it was fitted to.
        summary: JSON-ready, short: goes beside the weights.
        report: JSON-ready, everything.
    """

    calibration: Calibration
    summary: dict[str, Any]
    report: dict[str, Any]


def calibrate(config: CalibrationRun, progress: Progress = lambda trials, *_: trials) -> Result:
    """Fit a calibration to one set of crops, measure it on another, write the report.

    Args:
        config: The experiment.
        progress: Wraps the trials of a set, given its name and its number of blocks.

    Returns:
        The calibration, which has been written nowhere but to the report's folder.

    Raises:
        FileNotFoundError: There are no world photos.
        LabelError: Their table of labels is broken.
        ValueError: None of their plates is large enough, or there are too few crops.
        WeightsError: The weights can't be used.
    """
    if config.crops < fitting.FOLDS:
        raise ValueError(f"expected at least {fitting.FOLDS} crops, got {config.crops}")
    # Both first: a folder without photos should not cost the time of a set.
    plans = {part: plan(config.data, part, config.crops, config.mix) for part in SETS}
    fit, measured = _try(config, plans, progress)
    digest = hashlib.sha256((config.weights / "recognizer.safetensors").read_bytes()).hexdigest()
    calibration, choice = fit_to(fit, config, digest)
    result = _result(config, calibration, choice, fit, measured)
    config.folder.mkdir(parents=True, exist_ok=True)
    for part, trials in zip(SETS, (fit, measured), strict=True):
        write_csv(trials, config.folder / f"{part}.csv")
    report = json.dumps(result.report, indent=1, ensure_ascii=False)
    (config.folder / "report.json").write_text(report + "\n", encoding="utf-8")
    save(result, config.folder)
    _draw(calibration, measured, config.folder)
    return result


def save(result: Result, folder: Path) -> Path:
    """Write the calibration with its summary; beside the weights it is in force."""
    path = folder / NAME
    path.write_text(result.calibration.to_json(result.summary), encoding="utf-8")
    return path


def _try(
    config: CalibrationRun, plans: Mapping[str, Sequence[Block]], progress: Progress
) -> list[list[Trial]]:
    """Make and read the crops of all sets; one list for each."""
    blocks = [block for part in plans.values() for block in part]
    found = try_blocks(blocks, config.weights, config.seed, config.mix, config.workers)
    with closing(found):
        return [
            list(chain.from_iterable(progress(islice(found, len(part)), name, len(part))))
            for name, part in plans.items()
        ]


def fit_to(
    trials: Sequence[Trial], config: CalibrationRun, sha256: str | None
) -> tuple[Calibration, dict[str, Any]]:
    """Fit the better method to all trials and set the threshold.

    Args:
        trials: Of the set to fit to.
        config: The seed, and how many may be wrong.
        sha256: Of the recognizer's weights.

    Returns:
        The calibration, and how it was chosen: the method and what each gave in
        cross-validation.
    """
    raw, right = raw_scores(trials), rights(trials)
    found = fitting.cross_validate(raw, right, np.random.default_rng(config.seed))
    method = fitting.choose(found)
    fitted = Calibration(fitting.METHODS[method](raw, right).knots, recognizer_sha256=sha256)
    choice = {
        "method": method,
        "cross_validation": {name: quality.to_dict() for name, quality in found.items()},
        "accepted_share_of_wrong_readable_texts": config.most_wrong,
    }
    return with_threshold(fitted, trials, config.most_wrong, config.least), choice


def with_threshold(
    calibration: Calibration, trials: Sequence[Trial], most_wrong: float, least: float
) -> Calibration:
    """Set the threshold of what is readable; see :func:`fitting.threshold_of`."""
    able = eligibles(trials)
    scores = fitting.apply_all(calibration, raw_scores(trials))[able]
    threshold = fitting.threshold_of(scores, rights(trials)[able], most_wrong, least)
    return replace(calibration, readable_from=threshold)


def describe(trials: Sequence[Trial], calibration: Calibration) -> dict[str, Any]:
    """Measure calibrated scores: as probabilities, and what is readable and yet wrong."""
    scores, right = fitting.apply_all(calibration, raw_scores(trials)), rights(trials)
    return {
        **fitting.quality_of(scores, right).to_dict(),
        **count_readable(trials, calibration),
    }


def count_readable(trials: Sequence[Trial], calibration: Calibration) -> dict[str, int]:
    """Count what is readable, what of it is wrong, and what is right and yet not readable."""
    scores, right = fitting.apply_all(calibration, raw_scores(trials)), rights(trials)
    readable = eligibles(trials) & (scores >= calibration.readable_from)
    return {
        "readable": int(readable.sum()),
        "readable_and_wrong": int((readable & ~right).sum()),
        "right_but_not_readable": int((~readable & right).sum()),
    }


def thresholds_of(
    calibration: Calibration, fit: Sequence[Trial], measured: Sequence[Trial], least: float
) -> list[dict[str, float]]:
    """What other thresholds would give: set on one set, counted on the other."""
    rows = []
    for most_wrong in _SHARES_WRONG:
        other = with_threshold(calibration, fit, most_wrong, least)
        threshold = {"accepted_wrong": most_wrong, "readable_from": round(other.readable_from, 5)}
        rows.append({**threshold, **count_readable(measured, other)})
    return rows


def groups_of(trials: Sequence[Trial]) -> dict[str, list[Trial]]:
    """Sort trials by source, by kind of plate and by width; a trial is in one of each."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        band = sum(trial.width_px >= edge for edge in _WIDTHS)
        low, high = (0, *_WIDTHS)[band], (*_WIDTHS, 0)[band]
        width = f"width {low} to {high} px" if high else f"width from {low} px"
        for name in (trial.source, trial.kind, width):
            groups.setdefault(name, []).append(trial)
    return dict(sorted(groups.items()))


def _result(
    config: CalibrationRun,
    calibration: Calibration,
    choice: dict[str, Any],
    fit: Sequence[Trial],
    measured: Sequence[Trial],
) -> Result:
    raw = fitting.quality_of(raw_scores(measured), rights(measured)).to_dict()
    summary = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seed": config.seed,
        "crops_fitted": len(fit),
        **choice,
        "measured_uncalibrated": raw,
        "measured": describe(measured, calibration),
        "mix": asdict(config.mix),
    }
    scores = fitting.apply_all(calibration, raw_scores(measured))
    wrong = [
        {**asdict(trial), "score": round(score, 5)}
        for trial, score in zip(measured, scores.tolist(), strict=True)
        if trial.eligible and not trial.right and score >= calibration.readable_from
    ]
    report = {
        **summary,
        "readable_from": calibration.readable_from,
        "knots": calibration.knots,
        "thresholds": thresholds_of(calibration, fit, measured, config.least),
        "fitted": describe(fit, calibration),
        "groups": {
            name: describe(trials, calibration) for name, trials in groups_of(measured).items()
        },
        "readable_and_wrong": sorted(wrong, key=lambda row: -row["score"]),
    }
    return Result(calibration, summary, report)


def _draw(calibration: Calibration, measured: Sequence[Trial], folder: Path) -> None:
    """Draw the curves of the measured set and of its two sources."""
    raw, right = raw_scores(measured), rights(measured)
    scores = fitting.apply_all(calibration, raw)
    both = {"calibrated": (scores, right), "as read": (raw, right)}
    draw_reliability(both, folder / "reliability.png")
    sources = np.array([trial.source for trial in measured])
    parts = {name: (scores[sources == name], right[sources == name]) for name in np.unique(sources)}
    curves = {"all": (scores, right), **parts}
    draw_risk_coverage(curves, folder / "risk_coverage.png", calibration.readable_from)
