"""Measure how well vehicles are found and read in rendered films, whose plates are known.

Each film is compressed with H.264; its frames go through the nets, tracking and fusion, as with a
camera.

A pass is missed if it has no report, and split if it has several; a report is stray if there was no
plate. A pass is clear if at least three frames show its plate whole, near and 80 pixels wide. A
pass is late by the seconds from the first frame whose own reading is right and readable to the
first report that is readable.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from operator import itemgetter
from typing import Any

import numpy as np
import pandas
from tqdm import tqdm

from plate_models.cores import usable_cores
from plate_models.engines.nets import load_nets
from plate_models.recognition.calibration import UNCALIBRATED
from plate_models.recognition.grammar import country_of
from plate_models.training.benchmark.passes import FILM_KINDS, Film, render_film
from plate_models.training.figures import proportion
from plate_models.training.labels import LabelledPlate
from plate_models.training.worker_pool import map_ahead
from plates.benchmarks.report import Report, Rows, at_most
from plates.cameras.events import Pass, Stream
from plates.cameras.frames import Box, Frame, SeenPlate
from plates.cameras.fusion import Reader
from plates.cameras.passes import Passes
from plates.cameras.recognizer import seen_plates
from plates.cli.options import add_number

START = 1_700_000_000.0  # Unix time at which films begin
_CLEAR_FRAMES, _CLEAR_PX = 3, 80.0
_SOON_S = 0.5
# The properties of passes and stray reports that are counted.
COUNTED = (
    *("passes", "missed", "split", "stray", "clear", "clear, wrong", "wrong", "readable, wrong"),
)

# Loaded once per process.
_nets = cache(load_nets)
Seen = Sequence[Sequence[SeenPlate]]


def configure(parser: argparse.ArgumentParser) -> None:
    add_number(parser, "--films", 10, "number of films of each kind", least=1)


def run(arguments: argparse.Namespace) -> Report:
    films = [(kind, number) for number in range(arguments.films) for kind in FILM_KINDS]
    judged = map_ahead(measure, usable_cores(), *zip(*films, strict=True))
    shown = tqdm(judged, "films", len(films), disable=None)
    return summarize([row for rows in shown for row in rows])


def measure(kind: str, number: int) -> Rows:
    """Render a film of a kind and number, and judge the reports of a camera that sees it."""
    film, nets = render_film(kind, number), _nets()
    config = nets.config
    reader = Reader(config.grammar, config.calibration, config.specs.recognizer)
    plates = [seen_plates(nets.read(rgb, still=False), rgb[..., ::-1]) for rgb in film.frames()]
    return judge(film, plates, watch(film, plates, reader))


def watch(film: Film, seen: Seen, reader: Reader) -> list[tuple[float, Pass]]:
    """The reports of a camera that sees a film, and their times in seconds of the film."""
    passes = Passes("benchmark", reader)
    image = np.broadcast_to(np.uint8(0), (*film.size_wh[::-1], 3))
    reports = []
    for time_s, plates in zip(film.times_s, seen, strict=True):
        frame = Frame(image, START + time_s, "file", time_s)
        reports += [(time_s, report.event) for report in passes.add(frame, plates, Stream())]
    return reports + [(film.times_s[-1], report.event) for report in passes.close()]


def judge(film: Film, seen: Seen, reports: Sequence[tuple[float, Pass]]) -> Rows:
    """Compare the passes in a film with the reports and their times, in seconds of the film.

    A row is a true pass or a stray report: its film's kind, home (whether its plate is Russian),
    which of `COUNTED` it is, the score of its report (if it has several, of the one with the most
    frames), late_s (infinite without a readable report, None without a readable frame), and whether
    the best frame's reading is wrong. A report is right if its likeliest text is.
    """
    times = np.array(film.times_s)
    blank: dict[str, Any] = dict.fromkeys((*COUNTED, "home", "best frame"), False)
    blank |= {"kind": film.name.rpartition("-")[0], "score": None, "late_s": None}
    shown = defaultdict[int, list[LabelledPlate]](list)
    views_of = defaultdict[int, list[tuple[float, SeenPlate]]](list)
    for time_s, truths, plates in zip(film.times_s, film.truths, seen, strict=True):
        for number, truth in truths:
            shown[number].append(truth)
        for plate in plates:
            if (under := _under(plate.box, truths)) is not None:
                views_of[under].append((time_s, plate))
    ended = defaultdict[int | None, list[Pass]](list)
    for event in (event for _, event in reports if event.type == "pass.ended"):
        truths = film.truths[np.abs(times + START - event.time.best).argmin()]
        ended[_under(event.best.box, truths)].append(event)
    rows: Rows = [blank | {"stray": True, "readable, wrong": e.text != ""} for e in ended[None]]
    for number, plates_shown in shown.items():
        own, views, text = ended[number], views_of[number], plates_shown[0].text
        ids = {event.id for event in own}
        sure = [time_s for time_s, event in reports if event.id in ids and event.readable]
        readable = [time_s for time_s, plate in views if plate.text == text]
        likeliest = [plate.candidates[0] for _, plate in views if plate.candidates]
        clear = sum(plate.legible and _width(plate) >= _CLEAR_PX for plate in plates_shown)
        row = blank | {
            "home": country_of(plates_shown[0].kind) == "ru",
            "passes": True,
            "missed": not own,
            "split": len(own) > 1,
            "clear": clear >= _CLEAR_FRAMES,
            "wrong": True,
            "late_s": max(0.0, min(sure, default=np.inf) - readable[0]) if readable else None,
            "best frame": max(likeliest, key=itemgetter(1), default=("", 0.0))[0] != text,
        }
        if own:
            longest = max(own, key=lambda event: event.evidence.frames_seen)
            row["score"] = longest.score
            row["wrong"] = [c.text for c in longest.candidates[:1]] != [text]
            row["readable, wrong"] = longest.text not in ("", text)
        rows.append(row | {"clear, wrong": row["clear"] and row["wrong"]})
    return rows


def _under(box: Box, truths: Sequence[tuple[int, LabelledPlate]]) -> int | None:
    """The number of the pass whose plate contains the centre of a box, or None."""
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    boxes = ((number, plate.box) for number, plate in truths)
    return next((n for n, (x0, y0, x1, y1) in boxes if x0 <= x <= x1 and y0 <= y <= y1), None)


def _width(plate: LabelledPlate) -> float:
    corners = np.array(plate.quad)
    return float(np.hypot(*(corners[[1, 2]] - corners[[0, 3]]).T).mean())


def summarize(rows: Rows) -> Report:
    """Make a table by kind of film and a comparison with the best frame, and judge the floors."""
    from plate_models.training.calibration import describe

    found = pandas.DataFrame(rows)
    kinds = found.groupby("kind", sort=False)[[*COUNTED]].sum()
    kinds.loc["all"] = whole = kinds.sum()
    passed = found[found["passes"]]
    clear = passed[passed["clear"]]
    ways = [
        _compare("clear passes of Russian plates", clear[clear["home"]]),
        _compare("clear passes of other plates", clear[~clear["home"]]),
        _compare("all passes", passed),
    ]
    scored = passed.dropna(subset="score")
    ece = describe(scored.assign(raw=scored["score"], right=~scored["wrong"]), UNCALIBRATED)["ece"]
    late = passed["late_s"].dropna()
    floors = [
        ("passes missed", whole["missed"] / whole["passes"], 1),
        ("passes split", whole["split"] / whole["passes"], 2),
        ("clear passes whose text isn't exact", whole["clear, wrong"] / max(1, whole["clear"]), 2),
        ("errors per error of the best frame", ways[-1]["errors per error of best frame"], 50),
        ("calibration error (ECE)", ece, 3),
        (f"not sure after {_SOON_S:g} s", (late > _SOON_S).mean(), 0),
    ]
    verdicts = [at_most(what, 100 * float(value), limit, " %") for what, value, limit in floors]
    tables = {"kinds": kinds.reset_index().to_dict("records"), "ways": ways}
    return Report(tables, verdicts, {"ece": ece})


def _compare(name: str, passed: pandas.DataFrame) -> dict[str, Any]:
    """Count the passes that the best frame, and all frames together, read wrong: a table's row."""
    best, fused = (proportion(way, passed[way].tolist()) for way in ("best frame", "wrong"))
    ratio = fused.hits / max(1, best.hits)
    row = {"passes": name, "best frame wrong": best.cell, "all frames wrong": fused.cell}
    return {**row, "errors per error of best frame": ratio}
