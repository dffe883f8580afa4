"""Fits `score` to the accuracy on rendered crops of known text, and measures it on other crops.

The crops show plates as a gate camera or a dashcam sees them, and clutter. A person can read the
plates: their size, blur and dirt are bounded in advance. The selection of crops doesn't depend on
the recognizer; clutter in which it reads a text counts as wrong. The pipeline of serving reads the
crops: it reads a plate with an uncertain number of lines both ways, and takes the surer reading.

A reading is a row of a table. Columns: kind (name of the plate's format), width_px (of the plate
in its photo), text (on the plate), read (the best candidate, readable or not), home (whether the
candidate's format is of the home country), eligible (whether the candidate is readable, apart from
the threshold), raw (the score before calibration, in [0, 1]), right (whether the whole text is).
`plate_models.recognition.calibration` applies the result.
"""

import shutil
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from tqdm import tqdm

from plate_models.engines.loaded import Nets
from plate_models.engines.nets import ensure_exported, load_exported
from plate_models.pipeline import PipelineConfig, read_plates
from plate_models.recognition.calibration import LOGIT_LIMIT, UNCALIBRATED, Calibration, logit
from plate_models.recognition.grammar import FormatError, Reading, country_of
from plate_models.release import CALIBRATION, write_manifest
from plate_models.training.imaging import Floats
from plate_models.training.synthetic.crops import CLUTTER, CropSample, CropStyle, render_crop
from plate_models.training.synthetic.kinds import CALIBRATION_SHARES, kind_named
from plate_models.training.synthetic.latin import LATIN
from plate_models.training.synthetic.photo import camera
from plate_models.training.synthetic.plates import PlateStyle
from plate_models.training.tables import choose
from plate_models.training.worker_pool import map_ahead
from plate_models.weights import load_modules, measured_with

_COLUMNS = ("kind", "width_px", "text", "read", "home", "eligible", "raw", "right")
_BLOCK = 100
# Lower limit of the thresholds, even if no text with a lower score is wrong.
_LEAST_SCORE = 0.5
# Half of the crops are Russian plates, as their shares add up to 1.
_KINDS = (*CALIBRATION_SHARES, (LATIN, 0.8), (CLUTTER, 0.2))
# Least height of a plate's smallest characters, which bounds its width: 56 px for a car's. The
# characters of `LATIN` plates have at least this share of the plate's width.
_CHARACTER_PX, _LATIN_CHARACTER = 6.25, 0.13
# A plate is wider than that by a log-normal factor, drawn again unless between 1 and the largest.
_MEDIAN_SIZE, _SIZE_SPREAD, _LARGEST = 2.6, 0.42, 10.0
_STYLE = CropStyle(
    steep_share=0.2,
    tilt_share=0.06,
    infrared_share=0.03,
    plate=PlateStyle(worn_share=0.1, dirty_share=0.1, snowy_share=0.01, hidden_share=0.02),
    photo=camera("calibration"),
)


def calibrate(
    weights: Path,
    folder: Path,
    crops: int,
    workers: int,
    most_wrong: float,
    most_wrong_elsewhere: float,
    seed: int,
) -> list[str]:
    """Fit a calibration to one set of crops and measure it on another; returns lines of a report.

    Writes ``calibration.json``, readings and curves into an existing folder. Each set has ``crops``
    crops. ``most_wrong`` is the accepted share of wrong texts among the readable texts of the home
    country's formats, ``most_wrong_elsewhere`` among the others. Raises WeightsError or ExportError
    if the weights can't be used, FormatError if no plate of the home country can be rendered.
    """
    sizes = [min(_BLOCK, crops - start) for start in range(0, crops, _BLOCK)]
    # Blocks have numbers, so that crops don't depend on the number of processes. Trainings' seeds
    # have no spawn keys, so their crops differ from these.
    blocks = [(part, place, size) for part in range(2) for place, size in enumerate(sizes)]
    with tempfile.TemporaryDirectory(prefix="plates-") as temporary:
        # Exported without the existing calibration, which may be another recognizer's.
        bare, repository = (Path(temporary, name) for name in ("weights", "repository"))
        shutil.copytree(weights, bare, ignore=shutil.ignore_patterns(CALIBRATION))
        write_manifest(bare)
        names = load_modules(bare).config.specs.recognizer.countries
        if (home := names[0]) not in {country_of(kind) for kind, _ in CALIBRATION_SHARES}:
            shares = "[formats.plate] with 'shares = { calibration = 1 }'"
            raise FormatError(f"{home}.toml: no plates to render: give a format {shares}")
        ensure_exported(bare, repository)
        found = map_ahead(partial(_read_block, repository=repository, seed=seed), workers, blocks)
        read = list(tqdm(found, "crops", len(blocks), unit="block", disable=None))
    halves = read[: len(sizes)], read[len(sizes) :]
    fit, measured = (pd.concat(half, ignore_index=True) for half in halves)
    pinned = replace(isotonic(fit.raw, fit.right), measured_with=measured_with(weights, names))
    calibration = with_thresholds(pinned, fit, most_wrong, most_wrong_elsewhere)
    as_read = describe(measured, UNCALIBRATED)
    calibrated = {**describe(measured, calibration), **_count_readable(measured, calibration)}
    report = {
        "date": datetime.now(UTC).date().isoformat(),
        "seed": seed,
        "crops_fitted": len(fit),
        "accepted_share_of_wrong_readable_texts": most_wrong,
        "accepted_share_elsewhere": most_wrong_elsewhere,
        "measured_uncalibrated": as_read,
        "measured": calibrated,
    }
    (folder / CALIBRATION).write_text(calibration.to_json(report), encoding="utf-8")
    fit.to_csv(folder / "fit.csv", index=False)
    measured.to_csv(folder / "measure.csv", index=False)
    _draw(calibration, measured, folder)
    table = pd.DataFrame({"as read": as_read, "calibrated": calibrated})
    return [
        "Measured on crops that were not used for the fit:",
        table.to_string(na_rep="", float_format="%g"),
        "",
        f"readable from {calibration.readable_from:.4f}, "
        f"elsewhere from {calibration.elsewhere_readable_from:.4f}",
    ]


# Once per process: loading the nets for each block would take longer than reading the block.
_load = cache(load_exported)


def _read_block(block: tuple[int, int, int], repository: Path, seed: int) -> pd.DataFrame:
    """Render and read a block of crops: (number of the set, number of the block, crops)."""
    *key, size = block
    nets = _load(repository)
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
    rows = []
    for _ in range(size):
        (kind,) = choose(_KINDS, rng)
        sample, width = render_known(rng, kind)
        reading = read_crop(sample, nets)
        read = reading.best
        if kind == CLUTTER and not read:
            continue
        home = country_of(reading.format) == nets.config.specs.recognizer.countries[0]
        about = kind, round(width, 1), sample.text, read, home
        rows.append((*about, reading.readable, reading.score, read == sample.text))
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def render_known(rng: np.random.Generator, kind: str) -> tuple[CropSample, float]:
    """Render a legible plate, or clutter of such a size; returns the width in pixels, too."""
    free = kind in (LATIN, CLUTTER)
    share = _LATIN_CHARACTER if free else kind_named(kind).smallest_character
    size = 0.0
    while not 1 <= size <= _LARGEST:
        size = _MEDIAN_SIZE * float(np.exp(rng.normal(0, _SIZE_SPREAD)))
    width = _CHARACTER_PX / share * size
    style = replace(_STYLE, width_px=(width, width), two_line_width_px=(width, width))
    return render_crop(rng, style, kind), width


def read_crop(crop: CropSample, nets: Nets) -> Reading:
    """Read a crop with the pipeline of serving, but without a calibration."""
    specs = nets.config.specs
    canvas_hw, crop_hw = np.array(specs.detector.canvases_hw[0]), np.array(specs.rectifier.crop_hw)
    # The pipeline may crop a wider region, so the edge pixels are repeated up to the canvas size.
    before = (canvas_hw - crop_hw) // 2
    around = [*zip(before, canvas_hw - crop_hw - before, strict=True), (0, 0)]
    photo = np.pad(crop.image, around, mode="edge")
    # A stand-in for the detector finds the known plate.
    lines = len(crop.rows)
    half = crop_hw / (1 + np.array(specs.rectifier.margin_hw(lines))) / 2
    middle = before + crop_hw / 2
    box = np.concatenate(((middle - half)[::-1], (middle + half)[::-1]))
    found = np.zeros((1, specs.detector.max_candidates, 6), np.float32)
    found[0, 0] = *box, 0.9, lines - 1
    every = Calibration(readable_from=0.0, elsewhere_readable_from=0.0)
    config = replace(PipelineConfig.of(specs, every), square_pixels=False)
    finds = iter((found, np.zeros_like(found)))  # nothing in a second run, on a smaller photo
    (plate,) = read_plates(photo, lambda _: next(finds), nets.rectify, nets.recognize, config)
    return plate.reading


def isotonic(raw: Floats, right: NDArray[np.bool_]) -> Calibration:
    """Fit a monotone map from scores to accuracy (isotonic regression, Zadrozny and Elkan 2002).

    Each step of the regression becomes a knot at the mean logit of its readings; between knots the
    map rises, so that a higher raw score stays higher. A step with k of n right counts as (k + 1/2)
    / (n + 1): even if all n are right, the next one may be wrong.
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
        # The added half moves small steps more than large ones: keep the knots monotone.
        highest = max(highest, logit(float((true + 0.5) / (count + 1))))
        knots.append((min(max(place, -LOGIT_LIMIT), LOGIT_LIMIT), highest))
    if len(knots) == 1:
        # A single step: the accuracy doesn't depend on the score.
        knots = [(float(places[0]), highest), (float(places[-1]), highest)]
    return Calibration(tuple(knots))


def apply_all(calibration: Calibration, raw: Floats) -> Floats:
    """Calibrate (N,) raw scores."""
    return np.array([calibration.apply(score) for score in np.asarray(raw).tolist()], np.float64)


def with_thresholds(
    calibration: Calibration, fit: pd.DataFrame, most_wrong: float, most_wrong_elsewhere: float
) -> Calibration:
    """Set the lowest thresholds that keep to the accepted shares of wrong texts; 1 if none does.

    One threshold is for formats of the home country, one for all other texts, if there are enough
    of them for an estimate.
    """
    able = fit[fit.eligible.astype(bool)]
    home, elsewhere = able[able.home.astype(bool)], able[~able.home.astype(bool)]
    found = replace(calibration, readable_from=_threshold(calibration, home, most_wrong))
    if len(elsewhere) * most_wrong_elsewhere < 1:
        return found
    least = _threshold(calibration, elsewhere, most_wrong_elsewhere)
    return replace(found, elsewhere_readable_from=least)


def _threshold(calibration: Calibration, able: pd.DataFrame, most_wrong: float) -> float:
    # No threshold separates equal scores, so they count together.
    risks = pd.DataFrame({"score": apply_all(calibration, able.raw), "wrong": ~able.right})
    sums = risks.groupby("score")["wrong"].agg(["sum", "count"])[::-1].cumsum()
    few = sums["sum"] <= most_wrong * sums["count"]
    return float(min(sums.index[few & (sums.index >= _LEAST_SCORE)], default=1.0))


def describe(readings: pd.DataFrame, calibration: Calibration) -> dict[str, float]:
    """Measure calibrated scores as probabilities, rounded to six decimals.

    The expected calibration error ("ece") is a mean over 15 bins of equally many readings (Naeini
    et al. 2015).
    """
    scores = apply_all(calibration, readings.raw)
    order = np.argsort(scores, kind="stable")
    scores, right = scores[order], readings.right.to_numpy()[order]
    bins = zip(np.array_split(scores, 15), np.array_split(right, 15), strict=True)
    values = {
        "crops": len(scores),
        "right": right.mean(),
        "ece": sum(abs(claimed.sum() - true.sum()) for claimed, true in bins) / len(scores),
        "brier": np.mean((scores - right) ** 2),
    }
    return {name: round(float(value), 6) for name, value in values.items()}


def _count_readable(readings: pd.DataFrame, calibration: Calibration) -> dict[str, int]:
    scores = apply_all(calibration, readings.raw)
    least = np.where(readings.home, calibration.readable_from, calibration.elsewhere_readable_from)
    readable = readings.eligible & (scores >= least)
    return {
        "readable": int(readable.sum()),
        "readable_and_wrong": int((readable & ~readings.right).sum()),
        "right_but_not_readable": int((~readable & readings.right).sum()),
    }


def _draw(calibration: Calibration, measured: pd.DataFrame, folder: Path) -> None:
    """Plot a reliability diagram, and risk against coverage."""
    from matplotlib.figure import Figure

    figures = {name: Figure(figsize=(8, 5)) for name in ("reliability", "risk_coverage")}
    reliability, risk = (figure.subplots() for figure in figures.values())
    for name, by in (("as read", UNCALIBRATED), ("calibrated", calibration)):
        claims = pd.DataFrame({"claim": 1 - apply_all(by, measured.raw), "wrong": ~measured.right})
        claims = claims.sort_values("claim", kind="stable", ignore_index=True)
        means = claims.groupby(claims.index * 15 // len(claims)).mean()
        reliability.plot(means.claim, means.wrong, "o", label=name)
        answered = claims.index + 1
        risk.plot(answered / len(claims), claims.wrong.cumsum() / answered, label=name)
    reliability.plot([1e-5, 1], [1e-5, 1], color="grey", ls="--")
    reliability.set(xscale="log", xlabel="1 - score", ylabel="share of wrong texts")
    risk.set(xlabel="coverage: share of plates answered", ylabel="risk: share of wrong texts")
    for name, figure in figures.items():
        figure.gca().set_yscale("symlog", linthresh=1e-4)
        figure.gca().legend()
        figure.savefig(folder / f"{name}.png")
