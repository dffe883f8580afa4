"""Fits what `score` means to crops whose text is known, and measures it on others.

`plate_models.recognition.calibration` applies the result. Crops are read by the pipeline that
serves photos: a plate whose lines of text are in doubt is read both ways there, and the surer
reading is taken.
"""

import datetime
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from plate_models.pipeline import PipelineConfig, read_plates
from plate_models.recognition.calibration import (
    LOGIT_LIMIT,
    NAME,
    UNCALIBRATED,
    Calibration,
    logit,
)
from plate_models.training.figures import proportion
from plate_models.training.known_crops import (
    DEFAULT_MIX,
    SETS,
    Block,
    CropMix,
    KnownCrop,
    lay_out,
    plan,
)
from plate_models.training.worker_pool import map_ahead
from plate_models.weights import WEIGHTS_DIR, Modules, load_modules, measured_with

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Progress = Callable[[Iterable[list["Trial"]], str, int], Iterable[list["Trial"]]]

# Widths of plates in their photos, in pixels, at which the groups of the report part.
_WIDTHS = (0, 80, 110, 150, 220, np.inf)
# Accepted shares of wrong texts whose thresholds the report compares.
_SHARES_WRONG = (0.0005, 0.001, 0.002, 0.005, 0.01)


@dataclass(frozen=True)
class Trial:
    """One reading of a crop whose text is known."""

    source: str  # "rendered" or "painted"
    kind: str  # name of the plate's format
    width_px: float  # of the plate in its photo
    text: str  # what stands on the plate
    read: str  # the best candidate, readable or not
    eligible: bool  # whether it is readable but for the threshold
    raw: float  # the score before calibration, in [0, 1]


@dataclass(frozen=True)
class CalibrationRun:
    """One experiment.

    Attributes:
        data: Holds ``world_photos/``, into which half of the plates are painted.
        weights: Folder of the nets.
        folder: Where the report goes.
        crops: In each of the two sets: the one to fit to, and the one to measure with.
        workers: Processes that make crops and read them.
        most_wrong: Share of wrong texts accepted among the readable ones.
        least: No text that scores less is readable, however few were wrong: what is no plate
            at all is not among the crops, and it scores low.
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
    mix: CropMix = DEFAULT_MIX


@dataclass(frozen=True)
class Result:
    """A calibration, and what is known of it as JSON-ready values."""

    calibration: Calibration
    report: dict[str, Any]

    def lines(self) -> list[str]:
        """The report for a terminal."""
        heads = ("crops", "right", "ece", "ece_doubtful", "brier", "right_at_95")
        rows = {"as read": "measured_uncalibrated", self.report["method"]: "measured"}
        table = pd.DataFrame({name: self.report[key] for name, key in rows.items()}).loc[
            list(heads)
        ]
        thresholds = pd.DataFrame(self.report["thresholds"])
        return [
            "Measured on crops that were not fitted to; in force is the last row:",
            table.T.astype({"crops": int}).to_string(),
            "",
            f"readable from {self.calibration.readable_from:.4f}; other thresholds give:",
            thresholds.to_string(index=False),
        ]


def calibrate(config: CalibrationRun, progress: Progress = lambda trials, *_: trials) -> Result:
    """Fit a calibration to one set of crops, measure it on another, write the report.

    ``progress`` wraps the trials of a set, given its name and its number of blocks. The
    calibration is written nowhere but to the report's folder.

    Raises:
        FileNotFoundError: There are no world photos.
        LabelError: Their table of labels is broken.
        ValueError: None of their plates is large enough, or there are too few crops.
        WeightsError: The weights can't be used.
    """
    if config.crops < 5:
        raise ValueError(f"expected at least 5 crops, got {config.crops}")
    # Both first: a folder without photos should not cost the time of a set.
    plans = {part: plan(config.data, part, config.crops, config.mix) for part in SETS}
    blocks = [block for part in plans.values() for block in part]
    read = partial(_read_block, weights=config.weights, seed=config.seed, mix=config.mix)
    found = map_ahead(read, blocks, config.workers)
    fit, measured = (
        frame_of(chain.from_iterable(progress(islice(found, len(part)), name, len(part))))
        for name, part in plans.items()
    )
    pins = measured_with(config.weights)
    # Raw scores are often as good: a map has to be better on crops that it was not fitted to.
    fitted = {"identity": Calibration(), "isotonic": isotonic(fit.raw, fit.right)}
    losses = {
        name: quality(apply_all(one, measured.raw), measured.right)["log_loss"]
        for name, one in fitted.items()
    }
    method = min(losses, key=losses.__getitem__)
    pinned = replace(fitted[method], measured_with=pins)
    calibration = with_threshold(pinned, fit, config.most_wrong, config.least)
    thresholds = []
    for most_wrong in _SHARES_WRONG:
        other = with_threshold(pinned, fit, most_wrong, config.least)
        head = {"accepted_wrong": most_wrong, "readable_from": round(other.readable_from, 5)}
        thresholds.append({**head, **_count_readable(measured, other)})
    report = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seed": config.seed,
        "measured_with": pins,
        "crops_fitted": len(fit),
        "method": method,
        "accepted_share_of_wrong_readable_texts": config.most_wrong,
        "measured_uncalibrated": quality(measured.raw, measured.right),
        "measured": describe(measured, calibration),
        "thresholds": thresholds,
        "groups": {name: describe(part, calibration) for name, part in groups_of(measured).items()},
        "mix": asdict(config.mix),
    }
    result = Result(calibration, report)
    config.folder.mkdir(parents=True, exist_ok=True)
    for name, frame in zip(SETS, (fit, measured), strict=True):
        frame.to_csv(config.folder / f"{name}.csv", index=False)
    text = json.dumps(report, indent=1, ensure_ascii=False)
    (config.folder / "report.json").write_text(text + "\n", encoding="utf-8")
    save(result, config.folder)
    _draw(calibration, measured, config.folder)
    return result


def save(result: Result, folder: Path) -> Path:
    """Write ``calibration.json`` into a folder; returns the file."""
    path = folder / NAME
    path.write_text(result.calibration.to_json(result.report), encoding="utf-8")
    return path


def frame_of(trials: Iterable[Trial]) -> pd.DataFrame:
    """Readings as a table: the columns are the fields of `Trial`, and "right"."""
    columns = list(Trial.__dataclass_fields__)
    frame = pd.DataFrame([asdict(trial) for trial in trials], columns=columns)
    return frame.assign(right=frame.read == frame.text, eligible=frame.eligible.astype(bool))


# Of this process: loading the nets for every block would take longer than reading it.
_loaded: dict[Path, Modules] = {}


def _read_block(block: Block, weights: Path, seed: int, mix: CropMix) -> list[Trial]:
    if weights not in _loaded:
        torch.set_num_threads(1)
        _loaded[weights] = load_modules(weights, calibrated=False)
    return read_crops(block.make(seed, mix), _loaded[weights])


def read_crops(crops: Sequence[KnownCrop], modules: Modules) -> list[Trial]:
    """Read crops as photos are read that are served, but without a calibration."""
    config = PipelineConfig.of(modules.specs, UNCALIBRATED)
    trials = []
    for part, photo, boxes in lay_out(crops, modules.specs):
        found = torch.zeros(1, modules.specs.detector.max_candidates, 6)
        found[0, : len(part), :4] = boxes
        # Plates come back with the most certain detection first.
        found[0, : len(part), 4] = torch.linspace(0.9, 0.8, len(part))
        found[0, : len(part), 5] = torch.tensor([crop.lines - 1 for crop in part])
        nets = partial(_answer, found), modules.rectify, modules.recognize
        for crop, plate in zip(part, read_plates(photo, *nets, config), strict=True):
            reading = plate.reading
            read = reading.candidates[0][0] if reading.candidates else ""
            about = crop.source, crop.kind, round(crop.width_px, 1), crop.text
            trials.append(Trial(*about, read, reading.readable, reading.score))
    return trials


def _answer(candidates: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """A detector that finds what is known to be there."""
    return candidates


def isotonic(raw: Floats, right: Bools) -> Calibration:
    """Find the monotone map next to what came true (Zadrozny and Elkan 2002).

    A step of it holds for all of its readings, so its knot stands at their mean logit; between
    knots the map rises, because a higher score should stay a higher score. A step of k right out
    of n counts as (k + 1/2) / (n + 1): even where all are right, the next one may be wrong.
    """
    logits = np.array([logit(score) for score in np.asarray(raw).tolist()])
    places, group = np.unique(logits, return_inverse=True)
    if len(places) < 2:
        return Calibration()
    mass = np.bincount(group).astype(np.float64)
    hits = np.bincount(group, weights=np.asarray(right, np.float64))
    ends = isotonic_regression(hits / mass, weights=mass).blocks
    knots, highest = [], -LOGIT_LIMIT
    for first, end in pairwise(ends):
        count, true = mass[first:end].sum(), hits[first:end].sum()
        place = float(np.average(places[first:end], weights=mass[first:end]))
        # Counting a half more moves small steps more than large ones: keep them in order.
        highest = max(highest, logit(float((true + 0.5) / (count + 1))))
        knots.append((min(max(place, -LOGIT_LIMIT), LOGIT_LIMIT), highest))
    if len(knots) == 1:
        # All alike: right or wrong does not depend on the score.
        knots = [(float(places[0]), highest), (float(places[-1]), highest)]
    return Calibration(tuple(knots))


def apply_all(calibration: Calibration, raw: Floats) -> Floats:
    """Calibrate (N,) raw scores."""
    return np.array([calibration.apply(score) for score in np.asarray(raw).tolist()], np.float64)


def with_threshold(
    calibration: Calibration, fit: pd.DataFrame, most_wrong: float, least: float
) -> Calibration:
    """Set the lowest score from which on so few eligible texts are wrong; 1 if there is none."""
    able = fit[fit.eligible]
    scores = apply_all(calibration, able.raw)
    # Of equal scores, which can't be told apart, all count.
    risks = pd.DataFrame({"score": scores, "wrong": ~able.right.to_numpy()})
    sums = risks.groupby("score")["wrong"].agg(["sum", "count"])[::-1].cumsum()
    accepted = sums.index[(sums["sum"] <= most_wrong * sums["count"]) & (sums.index >= least)]
    return replace(calibration, readable_from=float(min(accepted, default=1.0)))


def quality(scores: Floats, right: Bools) -> dict[str, float]:
    """How good scores are as probabilities, rounded to what the sample sizes bear.

    The calibration errors ("ece") are means over 15 bins of equal mass (Naeini et al. 2015),
    of all and of the least confident tenth: among all, those that are sure and right hide what
    the doubtful claim.
    """
    order = np.argsort(scores, kind="stable")
    scores, right = np.asarray(scores)[order], np.asarray(right, np.bool_)[order]
    doubtful = -(-len(scores) // 10)
    # Equal scores can't be told apart: the surest 95 % are all that score as much as the last.
    surest = scores >= scores[len(scores) // 20]
    claimed = np.clip(np.where(right, scores, 1 - scores), 1e-12, 1)
    values = {
        "crops": len(scores),
        "right": right.mean(),
        "claimed": scores.mean(),
        "ece": _calibration_error(scores, right),
        "ece_doubtful": _calibration_error(scores[:doubtful], right[:doubtful]),
        "brier": np.mean((scores - right) ** 2),
        "brier_constant": right.mean() * (1 - right.mean()),
        "log_loss": -np.log(claimed).mean(),
        "right_at_95": right[surest].mean(),
    }
    return {name: round(float(value), 6) for name, value in values.items()}


def _calibration_error(scores: Floats, right: Bools) -> float:
    bins = zip(np.array_split(scores, 15), np.array_split(right, 15), strict=True)
    return float(sum(abs(claimed.sum() - true.sum()) for claimed, true in bins)) / len(scores)


def describe(frame: pd.DataFrame, calibration: Calibration) -> dict[str, Any]:
    """Measure calibrated scores: as probabilities, and what is readable and yet wrong."""
    scores = apply_all(calibration, frame.raw)
    return {**quality(scores, frame.right), **_count_readable(frame, calibration)}


def _count_readable(frame: pd.DataFrame, calibration: Calibration) -> dict[str, int]:
    scores = apply_all(calibration, frame.raw)
    readable = frame.eligible & (scores >= calibration.readable_from)
    return {
        "readable": int(readable.sum()),
        "readable_and_wrong": int((readable & ~frame.right).sum()),
        "right_but_not_readable": int((~readable & frame.right).sum()),
    }


def groups_of(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Readings by source, by kind of plate and by width; each is in one group of every sort."""
    widths = "width " + pd.cut(frame.width_px, _WIDTHS, right=False).astype(str) + " px"
    sorts = (frame.source, frame.kind, widths)
    return {str(name): part for by in sorts for name, part in frame.groupby(by)}


def _draw(calibration: Calibration, measured: pd.DataFrame, folder: Path) -> None:
    """Draw what was claimed against what came true, and risk against coverage."""
    from matplotlib.figure import Figure

    reliability, risks = (Figure(figsize=(8, 5), layout="constrained") for _ in range(2))
    bins, curve = reliability.subplots(), risks.subplots()
    raw = measured.raw.to_numpy()
    for name, scores in (("as read", raw), ("calibrated", apply_all(calibration, raw))):
        order = np.argsort(scores, kind="stable")
        wrong = ~measured.right.to_numpy()[order]
        parts = [part for part in np.array_split(np.arange(len(order)), 15) if len(part)]
        counts = [proportion("", wrong[part].tolist()) for part in parts]
        rates = np.array([count.rate for count in counts], np.float64)
        reach = np.abs(np.array([count.interval_95 for count in counts]) - rates[:, None])
        claims = [1 - scores[order][part].mean() for part in parts]
        bins.errorbar(claims, rates, yerr=reach.T, fmt="o", label=name, ms=4, lw=1)
        answered = np.arange(1, len(scores) + 1)
        curve.plot(answered / len(scores), wrong[::-1].cumsum() / answered, label=name)
    bins.plot([1e-5, 1], [1e-5, 1], color="grey", lw=0.8, ls="--")
    bins.set(xscale="log", xlabel="1 - score", ylabel="share of wrong texts, 95 % interval")
    curve.set(xlabel="coverage: share of plates answered", ylabel="risk: share of wrong texts")
    for axes, figure, name in ((bins, reliability, "reliability"), (curve, risks, "risk_coverage")):
        axes.set_yscale("symlog", linthresh=1e-4)
        axes.grid(alpha=0.3)
        axes.legend()
        figure.savefig(folder / f"{name}.png", dpi=110)
