"""How well passes of vehicles are found and read, in rendered films whose truth is known.

Each film goes through H.264, and each of its frames through the nets, once: what they see is kept
in --cache. Tracking and fusion work on that, so that they are soon measured again after a change.
Remove the folder after a change of nets or renderer.

A pass is missed, merged into another one's report, split (one report followed the other) or
doubled (two at once); a report is stray if there was no plate. A pass is clear if at least three
frames show its plate whole, near and 80 pixels wide. It is late by the seconds from the first frame
whose own reading is readable and right to the first report that is readable.
"""

import argparse
import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
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
from plate_models.training.benchmark.drives import FILM_KINDS
from plate_models.training.figures import proportion
from plate_models.training.labels import LabelledPlate
from plate_models.training.worker_pool import map_ahead
from plates.benchmarks.report import Report, at_most
from plates.cameras.events import Model, Pass, Stream
from plates.cameras.frames import Box, Frame, SeenPlate
from plates.cameras.fusion import Reader, fuse
from plates.cameras.passes import Passes
from plates.cameras.recognizer import seen_plates
from plates.cli.options import RELEASED_WEIGHTS, add_number

if TYPE_CHECKING:
    from plate_models.engines.nets import Nets

START = 1_700_000_000.0  # Unix time at which films begin
VERDICTS = MISSED, MERGED, SPLIT, DOUBLED, STRAY = "missed", "merged", "split", "doubled", "stray"
_CLEAR_FRAMES, _CLEAR_PX = 3, 80.0
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


@dataclass(frozen=True)
class Outcome:
    """What came of one true pass, or what was reported though nothing passed.

    Attributes:
        film: Such as "hidden-0017".
        plate: Kind of the plate, such as "ru.car"; "" of what is none.
        text: What stands on it.
        clear: Whether enough of it is shown; see above.
        verdict: "" if it was found, else one of `VERDICTS`.
        event: How it was reported at its end; of several reports the one with the most frames.
        late_s: See above; infinite without a readable report, None without such a frame.
        best_frame: The surest text of any single frame.
        fused: The text that all frames together make likeliest.
    """

    film: str
    plate: str = ""
    text: str = ""
    clear: bool = False
    verdict: str = STRAY
    event: Pass | None = None
    late_s: float | None = None
    best_frame: str = ""
    fused: str = ""

    @property
    def right(self) -> bool:
        """Whether the likeliest text of its report is the right one, readable or not."""
        return self.event is not None and [c.text for c in self.event.candidates[:1]] == [self.text]


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
        tuple(seen_plates(nets.read(torch.from_numpy(frame)), frame[..., ::-1]))
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


def judge(film: ReadFilm, reports: Sequence[tuple[float, Pass]], reader: Reader) -> list[Outcome]:
    """Compare what passed in a film with what was reported, and when: seconds of the film."""
    times = np.array(film.times_s)
    shown: dict[int, list[LabelledPlate]] = {}
    seen: dict[int, list[tuple[float, SeenPlate]]] = {}
    for time_s, truths, plates in zip(film.times_s, film.truths, film.plates, strict=True):
        for number, truth in truths:
            shown.setdefault(number, []).append(truth)
            seen.setdefault(number, [])
        for plate in plates:
            if (under := _under(plate.box, truths)) is not None:
                seen[under].append((time_s, plate))
    ended: dict[int, list[Pass]] = {number: [] for number in shown}
    outcomes = []
    for event in (event for _, event in reports if event.type == "pass.ended"):
        truths = film.truths[np.abs(times + START - event.time.best).argmin()]
        if (under := _under(event.best.box, truths)) is None:
            outcomes.append(Outcome(film.name, event=event))
        else:
            ended[under].append(event)
    # Frames that a pass's reports have beyond its own.
    taken = {
        number: sum(event.evidence.frames_seen for event in events) - len(seen[number])
        for number, events in ended.items()
    }
    for number, plates_shown in shown.items():
        mine, views, text = ended[number], seen[number], plates_shown[0].text
        mine.sort(key=lambda event: event.time.first)
        others = max((n for other, n in taken.items() if other != number), default=0)
        if not mine:
            verdict = MERGED if 0 < len(views) < 2 * others else MISSED
        elif len(mine) > 1:
            verdict = DOUBLED if mine[1].time.first <= mine[0].time.last else SPLIT
        else:
            verdict = ""
        clear = sum(plate.legible and _width(plate) >= _CLEAR_PX for plate in plates_shown)
        readable = [time_s for time_s, plate in views if plate.text == text]
        ids = {event.id for event in mine}
        sure = [time_s for time_s, event in reports if event.id in ids and event.readable]
        late = max(0.0, min(sure, default=np.inf) - readable[0]) if readable else None
        texts = best_and_fused([plate for _, plate in views], reader)
        longest = max(mine, key=lambda event: event.evidence.frames_seen, default=None)
        about = film.name, plates_shown[0].kind, text, clear >= _CLEAR_FRAMES, verdict
        outcomes.append(Outcome(*about, longest, late, *texts))
    return outcomes


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


def summarize(outcomes: Sequence[Outcome]) -> Report:
    """Make tables by kind of film and by way of joining frames, and judge the floors."""
    from plate_models.training.calibration import describe

    kinds = dict.fromkeys(outcome.film.rpartition("-")[0] for outcome in outcomes)
    rows = [_row(k, [o for o in outcomes if o.film.startswith(f"{k}-")]) for k in kinds]
    rows.append(whole := _row("all", outcomes))
    passed = [outcome for outcome in outcomes if outcome.verdict != STRAY]
    clear = [outcome for outcome in passed if outcome.clear]
    groups = {
        "clear passes of Russian plates": [o for o in clear if country_of(o.plate) == "ru"],
        "clear passes of other plates": [o for o in clear if country_of(o.plate) != "ru"],
        "all passes": passed,
    }
    ways = [compare(name, group) for name, group in groups.items()]
    scored = [(o.event.score, o.right) for o in passed if o.event]
    ece = describe(pandas.DataFrame(scored, columns=["raw", "right"]), UNCALIBRATED)["ece"]
    late = [outcome.late_s for outcome in passed if outcome.late_s is not None]
    unlike = sum(whole[verdict] for verdict in (MERGED, SPLIT, DOUBLED))
    floors = [
        ("passes missed", whole[MISSED] / len(passed), 1),
        ("passes split, merged or doubled", unlike / len(passed), 2),
        ("clear passes whose text isn't exact", whole["clear, wrong"] / max(1, whole["clear"]), 2),
        ("errors per error of the best frame", ways[-1]["errors per error of best frame"], 50),
        ("calibration error (ECE)", ece, 3),
        (f"not sure after {_SOON_S:g} s", np.mean(np.array(late) > _SOON_S), 0),
    ]
    verdicts = [at_most(what, 100 * float(value), limit, " %") for what, value, limit in floors]
    tables = {"Passes": rows, "Texts of all frames together, and of the best one": ways}
    return Report(tables, verdicts, {"kinds": rows, "ways": ways, "late_s": late, "ece": ece})


def _row(kind: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    counts = Counter(outcome.verdict for outcome in outcomes)
    clear = [outcome for outcome in outcomes if outcome.clear]
    late = [outcome.late_s for outcome in outcomes if outcome.late_s is not None]
    readings = [(o.event.text, o.text) for o in outcomes if o.event]
    return {
        "kind": kind,
        "passes": len(outcomes) - counts[STRAY],
        **{verdict: counts[verdict] for verdict in VERDICTS},
        "clear": len(clear),
        "clear, wrong": sum(not outcome.right for outcome in clear),
        "wrong": sum(not o.right for o in outcomes if o.verdict != STRAY),
        "readable, wrong": sum(text not in ("", true) for text, true in readings),
        "late p95 s": float(np.percentile(late, 95, method="higher")) if late else None,
    }


def compare(name: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """How many passes all frames together, and the best one, read wrong: a row of a table."""
    best, fused = (
        proportion(way, [getattr(outcome, way) != outcome.text for outcome in outcomes])
        for way in ("best_frame", "fused")
    )
    ratio = fused.hits / max(1, best.hits)
    row = {"passes": name, "best frame wrong": best.cell, "fusion wrong": fused.cell}
    return {**row, "errors per error of best frame": ratio}
