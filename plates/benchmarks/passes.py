"""How well passes of vehicles are found and read, in rendered films whose truth is known.

Each film goes through H.264, and each of its frames through the nets, once: what they see is kept
in --cache. Tracking and fusion work on that, so that they are soon measured again after a change.
Remove the folder after a change of nets or renderer.

A pass is clear if at least three frames show its plate whole, near and 80 pixels wide.
"""

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from plate_models.recognition import calibration
from plate_models.recognition.calibration import Calibration
from plate_models.recognition.grammar import country_of
from plate_models.training.benchmark.drives import FILM_KINDS
from plate_models.training.worker_pool import map_ahead
from plates.benchmarks import outcomes as of
from plates.benchmarks.films import ReadFilm, read_film
from plates.benchmarks.outcomes import START, Outcome
from plates.benchmarks.report import Report, at_most
from plates.cameras.events import Model, Pass, Stream
from plates.cameras.frames import Frame
from plates.cameras.fusion import Reader
from plates.cameras.passes import Passes
from plates.cli.options import RELEASED_WEIGHTS, add_number

# Films to fit a calibration to; those that are scored have smaller numbers.
_FIT_FROM = 100_000
_RAW = Calibration(elsewhere_readable_from=0.0)
_SOON_S = 0.5


def configure(parser: argparse.ArgumentParser) -> None:
    add_number(parser, "--films", 10, "of each kind", least=1)
    add_number(parser, "--workers", 2, "processes that render and read")
    cache = Path("build/bench/passes")
    text = f"keeps what the nets saw (default: {cache})"
    parser.add_argument("--cache", type=Path, metavar="DIR", default=cache, help=text)
    text = "fit what scores mean to as many other films, write it there, and apply it"
    parser.add_argument("--calibration", type=Path, metavar="FILE", help=text)


def run(arguments: argparse.Namespace) -> Report:
    arguments.cache.mkdir(parents=True, exist_ok=True)
    reader = Reader(calibration=calibration.load(RELEASED_WEIGHTS / calibration.NAME))
    if arguments.calibration:
        fitted = of.fit_calibration(measure(arguments, replace(reader, passes=_RAW), _FIT_FROM))
        arguments.calibration.write_text(fitted.to_json(), encoding="utf-8")
        reader = replace(reader, passes=fitted)
    return summarize(measure(arguments, reader))


def measure(arguments: argparse.Namespace, reader: Reader, first: int = 0) -> list[Outcome]:
    """What comes of the passes in films of each kind, numbered from the first one on."""
    numbered = [(kind, first + n) for n in range(arguments.films) for kind in FILM_KINDS]
    films = map_ahead(partial(read_film, folder=arguments.cache), numbered, arguments.workers)
    shown = tqdm(films, "films", len(numbered), disable=None)
    return [one for film in shown for one in of.judge(film, watch(film, reader), reader)]


def watch(film: ReadFilm, reader: Reader) -> list[tuple[float, Pass]]:
    """What a camera reports that sees a film, and when, in seconds of the film."""
    passes = Passes("benchmark", reader, Model(version="", weights=""))
    image = np.broadcast_to(np.uint8(0), (*film.size_wh[::-1], 3))
    reports = []
    for time_s, plates in zip(film.times_s, film.plates, strict=True):
        frame = Frame(image, START + time_s, "file", time_s)
        reports += [(time_s, report.event) for report in passes.add(frame, plates, Stream())]
    return reports + [(film.times_s[-1], report.event) for report in passes.close()]


def summarize(outcomes: Sequence[Outcome]) -> Report:
    """Make tables by kind of film and by way of joining frames, and judge the floors."""
    kinds = dict.fromkeys(outcome.film.rpartition("-")[0] for outcome in outcomes)
    rows = [_row(k, [o for o in outcomes if o.film.startswith(f"{k}-")]) for k in kinds]
    rows.append(whole := _row("all", outcomes))
    passed = [outcome for outcome in outcomes if outcome.verdict != of.STRAY]
    clear = [outcome for outcome in passed if outcome.clear]
    groups = {
        "clear passes of Russian plates": [o for o in clear if country_of(o.plate) == "ru"],
        "clear passes of other plates": [o for o in clear if country_of(o.plate) != "ru"],
        "all passes": passed,
    }
    ways = {f"Texts of {name}": of.compare(group) for name, group in groups.items() if group}
    scored = [(o.event.score, o.right) for o in passed if o.event]
    late = [outcome.late_s for outcome in passed if outcome.late_s is not None]
    unlike = sum(whole[verdict] for verdict in (of.MERGED, of.SPLIT, of.DOUBLED))
    fused = next(row for row in ways["Texts of all passes"] if row["way"] == of.FUSED)
    figures = {"kinds": rows, "ways": ways, "late_s": late, "ece": of.calibration_error(scored)}
    floors = [
        ("passes missed", whole[of.MISSED] / len(passed), 1),
        ("passes split, merged or doubled", unlike / len(passed), 2),
        ("clear passes whose text isn't exact", whole["clear, wrong"] / max(1, whole["clear"]), 2),
        ("errors per error of the best frame", fused["per error of best frame"], 50),
        ("calibration error (ECE)", figures["ece"], 3),
        (
            f"sure {_SOON_S:g} s after the first readable frame",
            np.mean(np.array(late) > _SOON_S),
            0,
        ),
    ]
    verdicts = [at_most(what, 100 * float(value), limit, " %") for what, value, limit in floors]
    style = {"kind": "bar", "x": "way", "y": "wrong", "xlabel": ""}
    plots = [(table, {**style, "title": heading}) for heading, table in ways.items()]
    return Report({"Passes": rows, **ways}, verdicts, figures, plots)


def _row(kind: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    counts = Counter(outcome.verdict for outcome in outcomes)
    clear = [outcome for outcome in outcomes if outcome.clear]
    late = [outcome.late_s for outcome in outcomes if outcome.late_s is not None]
    readings = [(o.event.text, o.text) for o in outcomes if o.event]
    return {
        "kind": kind,
        "passes": len(outcomes) - counts[of.STRAY],
        **{verdict: counts[verdict] for verdict in of.VERDICTS},
        "clear": len(clear),
        "clear, missed": sum(outcome.verdict == of.MISSED for outcome in clear),
        "clear, wrong": sum(not outcome.right for outcome in clear),
        "wrong": sum(not o.right for o in outcomes if o.verdict != of.STRAY),
        "readable, wrong": sum(text not in ("", true) for text, true in readings),
        "late p50 s": float(np.percentile(late, 50)) if late else None,
        "late p95 s": float(np.percentile(late, 95, method="higher")) if late else None,
    }
