"""How well passes of vehicles are found and read, in rendered films whose truth is known.

Each film goes through H.264, and each of its frames through the nets, once: what they see is kept
in --cache. Tracking and fusion work on that, so that they are soon measured again after a change.
Remove the folder after a change of nets or renderer.

A pass is missed without a report of its own, and split if it has several; a report is stray if
there was no plate. A pass is clear if at least three frames show its plate whole, near and 80
pixels wide. It is late by the seconds from the first frame whose own reading is readable and right
to the first report that is readable.
"""

import argparse
import pickle
from collections.abc import Sequence
from functools import cache, partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas
from tqdm import tqdm

from plate_models.recognition import calibration
from plate_models.recognition.calibration import UNCALIBRATED
from plate_models.recognition.grammar import country_of
from plate_models.training.benchmark.passes import FILM_KINDS
from plate_models.training.figures import proportion
from plate_models.training.labels import LabelledPlate
from plate_models.training.worker_pool import map_ahead
from plates.benchmarks.report import Report, Rows, at_most
from plates.cameras.events import Model, Pass, Stream
from plates.cameras.frames import Box, Frame, SeenPlate
from plates.cameras.fusion import Reader, fuse
from plates.cameras.passes import Passes
from plates.cameras.recognizer import seen_plates
from plates.cli.options import RELEASED_WEIGHTS, add_number

if TYPE_CHECKING:
    from plate_models.engines.nets import Nets

START = 1_700_000_000.0  # Unix time at which films begin
MISSED, SPLIT, STRAY = "missed", "split", "stray"
_CLEAR_FRAMES, _CLEAR_PX = 3, 80.0
# A row that says nothing; see `judge`.
_BLANK = {"home": False, "clear": False, "verdict": "", "right": False, "wrong": False}
_BLANK |= {"best frame": False, "fusion": False, "score": None, "late_s": None}
_SOON_S = 0.5

# Numbers of passes and their plates, in one frame.
Truths = tuple[tuple[int, LabelledPlate], ...]


class ReadFilm(NamedTuple):
    """A film's truth, as in `benchmark.passes.Film`, and what the nets see in each frame."""

    name: str
    size_wh: tuple[int, int]
    times_s: tuple[float, ...]
    truths: tuple[Truths, ...]
    plates: tuple[tuple[SeenPlate, ...], ...]


def configure(parser: argparse.ArgumentParser) -> None:
    add_number(parser, "--films", 10, "of each kind", least=1)
    add_number(parser, "--workers", 2, "processes that render and read")
    cache = Path("build/bench/passes")
    text = f"keeps what the nets saw (default: {cache})"
    parser.add_argument("--cache", type=Path, metavar="DIR", default=cache, help=text)


def run(arguments: argparse.Namespace) -> Report:
    arguments.cache.mkdir(parents=True, exist_ok=True)
    reader = Reader(calibration=calibration.load(RELEASED_WEIGHTS / calibration.NAME))
    numbered = [(kind, number) for number in range(arguments.films) for kind in FILM_KINDS]
    films = map_ahead(partial(read_film, folder=arguments.cache), numbered, arguments.workers)
    shown = tqdm(films, "films", len(numbered), disable=None)
    return summarize([one for film in shown for one in judge(film, watch(film, reader), reader)])


def read_film(numbered: tuple[str, int], folder: Path) -> ReadFilm:
    """Render and read a film of a kind and number; what was read before comes from the folder."""
    path = folder / "{}-{:06d}.pickle".format(*numbered)
    if path.exists():
        kept: ReadFilm = pickle.loads(path.read_bytes())  # noqa: S301 - our own
        return kept
    import torch

    from plate_models.training.benchmark.passes import render_film

    torch.set_num_threads(1)
    film, nets = render_film(*numbered), _nets()
    plates = tuple(
        tuple(seen_plates(nets.read(torch.from_numpy(frame), second_looks=False), frame[..., ::-1]))
        for frame in film.frames()
    )
    read = ReadFilm(film.name, film.size_wh, film.times_s, film.truths, plates)
    part = path.with_suffix(".part")
    part.write_bytes(pickle.dumps(read))
    part.rename(path)
    return read


@cache
def _nets() -> "Nets":
    from plate_models.engines.nets import load_nets

    return load_nets()


def watch(film: ReadFilm, reader: Reader) -> list[tuple[float, Pass]]:
    """What a camera reports that sees a film, and when, in seconds of the film."""
    passes = Passes("benchmark", reader, Model(version="", weights=""))
    image = np.broadcast_to(np.uint8(0), (*film.size_wh[::-1], 3))
    reports = []
    for time_s, plates in zip(film.times_s, film.plates, strict=True):
        frame = Frame(image, START + time_s, "file", time_s)
        reports += [(time_s, report.event) for report in passes.add(frame, plates, Stream())]
    return reports + [(film.times_s[-1], report.event) for report in passes.close()]


def judge(film: ReadFilm, reports: Sequence[tuple[float, Pass]], reader: Reader) -> Rows:
    """Compare what passed in a film with what was reported, and when: seconds of the film.

    A row stands for a true pass, or for a stray report: its film's kind, home (whether its plate
    is Russian), clear, the verdict ("" if it was found), the report's score (of several reports
    that of the one with the most frames), right (whether its likeliest text is), wrong (whether
    its readable text is not), late_s (infinite without a readable report, None without a readable
    frame), and whether the best frame and all frames together are read wrong.
    """
    times, kind = np.array(film.times_s), film.name.rpartition("-")[0]
    shown: dict[int, list[LabelledPlate]] = {}
    seen: dict[int, list[tuple[float, SeenPlate]]] = {}
    for time_s, truths, plates in zip(film.times_s, film.truths, film.plates, strict=True):
        for number, truth in truths:
            shown.setdefault(number, []).append(truth)
            seen.setdefault(number, [])
        for plate in plates:
            if (under := _under(plate.box, truths)) is not None:
                seen[under].append((time_s, plate))
    ended: dict[int | None, list[Pass]] = {number: [] for number in (None, *shown)}
    for event in (event for _, event in reports if event.type == "pass.ended"):
        truths = film.truths[np.abs(times + START - event.time.best).argmin()]
        ended[_under(event.best.box, truths)].append(event)
    stray = _BLANK | {"kind": kind, "verdict": STRAY}
    rows: Rows = [stray | {"wrong": event.text != ""} for event in ended[None]]
    for number, plates_shown in shown.items():
        mine, views, text = ended[number], seen[number], plates_shown[0].text
        longest = max(mine, key=lambda event: event.evidence.frames_seen, default=None)
        clear = sum(plate.legible and _width(plate) >= _CLEAR_PX for plate in plates_shown)
        readable = [time_s for time_s, plate in views if plate.text == text]
        ids = {event.id for event in mine}
        sure = [time_s for time_s, event in reports if event.id in ids and event.readable]
        best_frame, fused = best_and_fused([plate for _, plate in views], reader)
        row: dict[str, Any] = _BLANK | {
            "kind": kind,
            "home": country_of(plates_shown[0].kind) == "ru",
            "clear": clear >= _CLEAR_FRAMES,
            "verdict": SPLIT if len(mine) > 1 else "" if mine else MISSED,
            "late_s": max(0.0, min(sure, default=np.inf) - readable[0]) if readable else None,
            "best frame": best_frame != text,
            "fusion": fused != text,
        }
        if longest:
            row["score"] = longest.score
            row["right"] = [c.text for c in longest.candidates[:1]] == [text]
            row["wrong"] = longest.text not in ("", text)
        rows.append(row)
    return rows


def _under(box: Box, truths: Truths) -> int | None:
    """The pass whose plate is where the middle of a box is."""
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    boxes = ((number, plate.box) for number, plate in truths)
    return next((n for n, (x0, y0, x1, y1) in boxes if x0 <= x <= x1 and y0 <= y <= y1), None)


def _width(plate: LabelledPlate) -> float:
    corners = np.array(plate.quad)
    return float(np.hypot(*(corners[[1, 2]] - corners[[0, 3]]).T).mean())


def best_and_fused(plates: Sequence[SeenPlate], reader: Reader) -> tuple[str, str]:
    """The text of the surest view of a plate, and that of all together; "" where none was seen."""
    views = (plate.candidates[0] for plate in plates if plate.candidates)
    best_frame, _ = max(views, key=itemgetter(1), default=("", 0.0))
    fused = fuse(plates, reader).reading.candidates
    return best_frame, fused[0][0] if fused else ""


def summarize(rows: Rows) -> Report:
    """Make tables by kind of film and by way of joining frames, and judge the floors."""
    from plate_models.training.calibration import describe

    found = pandas.DataFrame(rows)
    kinds = [_sum_up(str(kind), films) for kind, films in found.groupby("kind", sort=False)]
    kinds.append(whole := _sum_up("all", found))
    passed = found[found["verdict"] != STRAY]
    clear = passed[passed["clear"]]
    ways = [
        _compare("clear passes of Russian plates", clear[clear["home"]]),
        _compare("clear passes of other plates", clear[~clear["home"]]),
        _compare("all passes", passed),
    ]
    scored = passed.dropna(subset="score").rename(columns={"score": "raw"})
    ece = describe(scored, UNCALIBRATED)["ece"]
    late = passed["late_s"].dropna()
    clear_wrong = whole["clear, wrong"] / max(1, whole["clear"])
    floors = [
        ("passes missed", whole[MISSED] / len(passed), 1),
        ("passes split", whole[SPLIT] / len(passed), 2),
        ("clear passes whose text isn't exact", clear_wrong, 2),
        ("errors per error of the best frame", ways[-1]["errors per error of best frame"], 50),
        ("calibration error (ECE)", ece, 3),
        (f"not sure after {_SOON_S:g} s", (late > _SOON_S).mean(), 0),
    ]
    verdicts = [at_most(what, 100 * float(value), limit, " %") for what, value, limit in floors]
    tables = {"Passes": kinds, "Texts of all frames together, and of the best one": ways}
    return Report(tables, verdicts, {"kinds": kinds, "ways": ways, "ece": ece})


def _sum_up(kind: str, rows: pandas.DataFrame) -> dict[str, Any]:
    """A row of the table of kinds."""
    verdicts = rows["verdict"].value_counts()
    passed = rows[rows["verdict"] != STRAY]
    right, clear = passed["right"], passed["clear"]
    return {
        "kind": kind,
        "passes": len(passed),
        **{verdict: int(verdicts.get(verdict, 0)) for verdict in (MISSED, SPLIT, STRAY)},
        "clear": int(clear.sum()),
        "clear, wrong": int((clear & ~right).sum()),
        "wrong": int((~right).sum()),
        "readable, wrong": int(rows["wrong"].sum()),
        "late p95 s": passed["late_s"].astype(float).quantile(0.95, interpolation="higher"),
    }


def _compare(name: str, passed: pandas.DataFrame) -> dict[str, Any]:
    """How many passes the best frame, and all frames together, read wrong: a row of a table."""
    best, fused = (proportion(way, passed[way].tolist()) for way in ("best frame", "fusion"))
    ratio = fused.hits / max(1, best.hits)
    row = {"passes": name, "best frame wrong": best.cell, "fusion wrong": fused.cell}
    return {**row, "errors per error of best frame": ratio}
