"""What came of true passes: found or not, read or not, and how sure a reader was of it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from plate_models.recognition.calibration import Calibration
from plate_models.recognition.grammar import country_of
from plate_models.training.labels import LabelledPlate
from plates.benchmarks.films import ReadFilm, Truths
from plates.benchmarks.report import Rows
from plates.cameras.events import Pass
from plates.cameras.frames import Box, SeenPlate
from plates.cameras.fusion import Reader, fuse

Value = TypeVar("Value")

START = 1_700_000_000.0  # Unix time at which films begin
BEST, FUSED = "best frame", "fusion"
VERDICTS = MISSED, MERGED, SPLIT, DOUBLED, STRAY = "missed", "merged", "split", "doubled", "stray"
_CLEAR_FRAMES, _CLEAR_PX = 3, 80.0
_RESAMPLES, _BINS = 2000, 10
# Of readable texts of home's formats, and of others.
_MOST_WRONG, _MOST_WRONG_ELSEWHERE = 0.005, 0.09


@dataclass(frozen=True)
class Outcome:
    """What came of one true pass, or what was reported though nothing passed.

    Attributes:
        film: Such as "hidden-0017".
        plate: Kind of the plate, such as "ru.car"; "" of what is none.
        text: What stands on it.
        clear: Whether at least three frames show it legible and 80 pixels wide.
        verdict: "" if it was found; MISSED; MERGED into another one's report; SPLIT, so that one
            report followed the other; DOUBLED, two at once; STRAY: there was no plate.
        event: How it was reported at its end; of several reports the one with the most frames.
        late_s: From the first frame whose own reading is readable and right to the first report
            that is readable; infinite without any, None without such a frame.
        guesses: Texts that `join` finds likeliest, by way.
    """

    film: str
    plate: str
    text: str
    clear: bool
    verdict: str
    event: Pass | None
    late_s: float | None
    guesses: Mapping[str, str]

    @property
    def right(self) -> bool:
        """Whether the likeliest text of its report is the right one, readable or not."""
        return self.event is not None and [c.text for c in self.event.candidates[:1]] == [self.text]


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
            outcomes.append(Outcome(film.name, "", "", False, STRAY, event, None, {}))
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
        guesses = join([plate for _, plate in views], reader)
        longest = max(mine, key=lambda event: event.evidence.frames_seen, default=None)
        about = film.name, plates_shown[0].kind, text, clear >= _CLEAR_FRAMES, verdict
        outcomes.append(Outcome(*about, longest, late, guesses))
    return outcomes


def _under(box: Box, truths: Truths) -> int | None:
    """The pass whose plate is where the middle of a box is."""
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    boxes = ((number, plate.box) for number, plate in truths)
    return next((n for n, (x0, y0, x1, y1) in boxes if x0 <= x <= x1 and y0 <= y <= y1), None)


def _width(plate: LabelledPlate) -> float:
    corners = np.array(plate.quad)
    return float(np.hypot(*(corners[[1, 2]] - corners[[0, 3]]).T).mean())


def join(plates: Sequence[SeenPlate], reader: Reader) -> dict[str, str]:
    """The likeliest text by four ways of joining views of one plate; "" where none was seen."""
    # Of equally many, the one that scores highest counts.
    read = sorted((p.candidates[0] for p in plates if p.candidates), key=lambda found: -found[1])
    texts = [text for text, _ in read] or [""]
    length = _most(map(len, texts))
    columns = zip(*(text for text in texts if len(text) == length), strict=True)
    fused = fuse(plates, reader).reading.candidates
    return {
        BEST: texts[0],
        "majority of strings": _most(texts),
        "majority per character": "".join(map(_most, columns)),
        FUSED: fused[0][0] if fused else "",
    }


def _most(values: Iterable[Value]) -> Value:
    return Counter(values).most_common(1)[0][0]


def compare(outcomes: Sequence[Outcome]) -> Rows:
    """How many passes each way reads wrong, with 95 % intervals over passes (Efron 1979)."""
    drawn = np.random.default_rng(0).integers(0, len(outcomes), (_RESAMPLES, len(outcomes)))
    ways = outcomes[0].guesses
    wrong = {way: np.array([o.guesses[way] != o.text for o in outcomes]) for way in ways}
    of_best = wrong[BEST][drawn].sum(axis=1)
    rows = []
    for way, errors in wrong.items():
        counts = errors[drawn].sum(axis=1)
        # Where the best frames make no error, there is nothing to compare with.
        ratios = (counts / np.maximum(of_best, 1))[of_best > 0]
        row = {"way": way, "passes": len(errors), "wrong": int(errors.sum())}
        row |= {
            "exact %": 100 * (1 - errors.mean()),
            "95 %": _span(100 - 100 * counts / len(errors)),
        }
        row["per error of best frame"] = errors.sum() / max(1, wrong[BEST].sum())
        rows.append({**row, "95 % of that": _span(ratios)})
    return rows


def _span(values: NDArray[np.float64]) -> str:
    low, high = np.percentile(values, (2.5, 97.5)) if len(values) else (np.nan, np.nan)
    return f"{low:.3g} - {high:.3g}"


def calibration_error(scored: Sequence[tuple[float, bool]]) -> float:
    """Mean distance of scores from the share of right ones, over ten bins of equal counts."""
    ordered = np.array(sorted(scored, key=lambda one: one[0]), np.float64).reshape(-1, 2)
    bins = np.array_split(ordered, _BINS)
    gaps = [abs(score - right) for score, right in (each.sum(axis=0) for each in bins)]
    return float(sum(gaps)) / max(1, len(scored))


def fit_calibration(outcomes: Iterable[Outcome]) -> Calibration:
    """Fit what a pass's score means to passes whose scores are raw."""
    import pandas as pd

    from plate_models.training.calibration import isotonic, with_thresholds

    home, columns = Reader().grammar.name, ("raw", "right", "eligible", "home")
    rows = [
        (event.score, outcome.right, event.readable, country_of(event.format) == home)
        for outcome in outcomes
        if (event := outcome.event) and event.candidates
    ]
    fit = pd.DataFrame(rows, columns=list(columns))
    found = isotonic(fit.raw.to_numpy(), fit.right.to_numpy())
    return with_thresholds(found, fit, _MOST_WRONG, _MOST_WRONG_ELSEWHERE)
