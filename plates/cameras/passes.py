"""From the plates in frames to events: a pass for each vehicle, from first to last sight."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from api.answers import Candidate, answer_of
from plates.cameras import events
from plates.cameras.events import Match, Pass, Stream
from plates.cameras.frames import Clock, Frame, SeenPlate
from plates.cameras.fusion import Fused, Fusion, Reader
from plates.cameras.lists import PlateList
from plates.cameras.settings import Polygon
from plates.cameras.tracking import Track, assign

# What can't be read is reported if it is that wide, was seen that often and went somewhere: signs
# and stickers would be reported for ever. In fewer frames it must be a plate beyond doubt: by the
# detector's score, and by what can't be read, which has so many characters.
_UNREAD_PX, _UNREAD_FRAMES = 60.0, 3
_SURELY_FOUND, _CHARACTERS = 0.7, 4
# A plate nearer to the picture's edge than this share of its height may go on behind it.
_EDGE = 0.12
# What is a direction: of the log of the plate's width, of its widths sideways.
_NEARER, _SIDEWAYS = 0.15, 1.0
# A match is reported from this probability on, and again when it has risen by as much.
_LEAST_MATCH, _SURER_MATCH = 0.5, 0.01
# Seconds by which times may be out of order; beyond, the clock was set back.
_OUT_OF_ORDER_S = 1.0
# The longest that a pass waits for a next frame where frames are rare.
_LONGEST_PACE_S = 15.0


@dataclass(frozen=True, eq=False)
class Report:
    """An event, and the plate's best view: (48, 188, 3) uint8 RGB, rectified."""

    event: Pass
    crop: NDArray[np.uint8]


class _View(NamedTuple):
    """A plate in one frame, at a time of the passes' own clock."""

    plate: SeenPlate
    now: float


@dataclass(eq=False)
class _Run:
    """A pass that goes on: of one track, or several that turned out to be of one plate."""

    fusion: Fusion
    first: _View
    begin: Frame
    clock_ahead: float  # of frames' times before the passes' own
    stream_before: Stream
    id: str = field(default_factory=events.new_id)
    revision: int = 0
    frames: int = 1
    zones: dict[str, None] = field(default_factory=dict)
    stationary: bool = False
    # What was reported: the text, the match's list and text, its highest probability.
    reported: tuple[str, tuple[str, str] | None] = "", None
    match_score: float = 1.0

    def __post_init__(self) -> None:
        plate = self.first.plate
        self.last = self.best = self.widest = self.first
        self.whole = [self.first] if plate.log_probs.size else []  # first and last that surely is
        self.frames_read = int(plate.text != "")
        text = plate.candidates[0][0] if plate.candidates else ""
        found = plate.detection_score >= _SURELY_FOUND
        self.surely_plate = found and len(text) >= _CHARACTERS

    def join(self, other: "_Run") -> None:
        """Take what another one has, but for the text: a later view, or all of another track."""
        self.frames += other.frames
        self.frames_read += other.frames_read
        self.zones |= other.zones
        self.stationary |= other.stationary
        self.surely_plate |= other.surely_plate
        if other.first.now < self.first.now:  # It was there before, unread.
            self.first, self.begin = other.first, other.begin
            self.clock_ahead, self.stream_before = other.clock_ahead, other.stream_before
        self.last = other.last
        bests = other.best, self.best
        self.best = max(bests, key=lambda view: (view.plate.text != "", view.plate.score))
        self.widest = max(other.widest, self.widest, key=lambda view: view.plate.width)
        self.whole = sorted(self.whole + other.whole, key=lambda view: view.now)
        del self.whole[1:-1]

    @property
    def direction(self) -> events.Direction:
        """From the first to the last view that the picture's edge doesn't cut."""
        if not self.whole:
            return "unknown"
        first, last = self.whole[0].plate, self.whole[-1].plate
        nearer = float(np.log(last.width / first.width))
        across = last.middle[0] - first.middle[0]
        # As seen by a camera whose focal length is about the picture's width.
        if abs(nearer) >= max(_NEARER, abs(across) / self.begin.image.shape[1]):
            return "approaching" if nearer > 0 else "leaving"
        if abs(across) >= _SIDEWAYS * self.widest.plate.width:
            return "right" if across > 0 else "left"
        return "unknown"


class Passes:
    """The passes before one camera.

    A pass is updated once its text is surely read or may be a listed one, and again when that
    changes; it ends once, after some seconds without sight. A text that is surely read while a pass
    with that text goes on, is that pass. Where there are zones, only passes that touch one are
    reported. Frames' times may leap; time is taken to stand still where they are set back.
    """

    def __init__(
        self,
        camera: str,
        reader: Reader,
        model: events.Model,
        zones: Mapping[str, Polygon] | None = None,
        lists: Sequence[PlateList] = (),
    ) -> None:
        self.camera = camera  # its name
        self.model = model  # what reads the plates; may change
        self.reader = reader  # how texts are chosen; may change for passes that are yet to begin
        self._zones = {
            name: np.array(polygon, np.float32) for name, polygon in (zones or {}).items()
        }
        self._lists = lists
        self._runs: dict[Track, _Run] = {}
        self._stream = Stream()
        self._now, self._clock_ahead, self._came = 0.0, 0.0, 0.0
        self._pace = 0.0  # seconds between the last two frames, by this machine's clock
        self._clock: Clock | None = None

    def add(self, frame: Frame, plates: Sequence[SeenPlate], stream: Stream) -> list[Report]:
        """Take the plates of the next frame; the stream's counts are those since its beginning."""
        self._take_time(frame)
        self._stream = stream
        sighted: dict[_Run, _Run] = {}
        whole = [plate if _is_whole(plate, frame) else _unread(plate) for plate in plates]
        # A pass keeps the width of its first picture, not the pixels.
        begin = replace(frame, image=frame.image[:1].copy())
        # Weights of another alphabet know nothing of earlier frames: those passes end.
        alphabet = self.reader.spec.alphabet
        tracks = [track for track in self._runs if track.fusion.alphabet == alphabet]
        for track in assign(whole, tracks, self._now, self.reader):
            view = _View(track.plate, self._now)
            new = _Run(track.fusion, view, begin, self._clock_ahead, stream)
            run = self._runs.setdefault(track, new)
            run.stationary |= track.stands
            sighted.setdefault(run, new)
        reports = []
        for run, new in sighted.items():
            if new is not run:
                run.join(new)
            height, width = frame.image.shape[:2]
            x, y = new.first.plate.middle
            for name, polygon in self._zones.items():
                if cv2.pointPolygonTest(polygon, (x / width, y / height), False) >= 0:
                    run.zones[name] = None
            reports += self._update(run)
        return reports + self._end(self._now)

    def hold(self, frame: Frame) -> list[Report]:
        """Take a frame in which nothing has moved since the one before."""
        before = self._now
        self._take_time(frame)
        for track, run in self._runs.items():
            if track.seen >= before:
                track.stay(self._now)
                run.last = _View(track.plate, self._now)
                run.stationary |= track.stands
        return self._end(self._now)

    def advance(self) -> list[Report]:
        """No frame has come: end what has not been seen for too long by this machine's clock."""
        waited = time.monotonic() - self._came
        return self._end(self._now + max(0.0, waited - self._pace))

    def close(self) -> list[Report]:
        """End all."""
        return self._end(inf)

    def _take_time(self, frame: Frame) -> None:
        came = time.monotonic()
        if frame.clock != self._clock:  # Between two clocks, this machine's tells what has passed.
            passed = came - self._came if self._clock else 0.0
            self._clock_ahead = frame.captured - self._now - passed
        elif frame.captured - self._clock_ahead < self._now - _OUT_OF_ORDER_S:
            self._clock_ahead = frame.captured - self._now
        self._now = max(self._now, frame.captured - self._clock_ahead)
        self._pace = min(came - self._came, _LONGEST_PACE_S) if self._came else 0.0
        self._clock, self._came = frame.clock, came

    def _update(self, run: _Run) -> list[Report]:
        """Report what is new; a pass that is found to be another one joins it."""
        fused, match = self._read(run)
        text = fused.reading.text
        if text and not run.revision:
            same = text, run.fusion.alphabet
            for other in self._runs.values():
                if (other.reported[0], other.fusion.alphabet) == same:
                    other.fusion.join(run.fusion)
                    other.join(run)
                    for track in [track for track, its in self._runs.items() if its is run]:
                        self._runs[track], track.fusion = other, other.fusion
                    return []
        state = text, (match.list, match.text) if match else None
        surer = match is not None and match.probability >= run.match_score + _SURER_MATCH
        if not self._counts(run) or (state == run.reported and not surer):
            return []
        run.reported, run.match_score = state, match.probability if match else 1.0
        return [self._report(run, "pass.updated", fused, match)]

    def _end(self, now: float) -> list[Report]:
        gone = [track for track in self._runs if track.is_over(now)]
        runs = dict.fromkeys(self._runs.pop(track) for track in gone)
        over = [run for run in runs if run not in self._runs.values() and self._is_reported(run)]
        return [self._report(run, "pass.ended", *self._read(run)) for run in over]

    def _is_reported(self, run: _Run) -> bool:
        """Whether its end is; what was updated ends in any case."""
        if run.revision:
            return True
        if not self._counts(run) or run.widest.plate.width < _UNREAD_PX:
            return False
        return run.surely_plate if run.frames < _UNREAD_FRAMES else run.direction != "unknown"

    def _counts(self, run: _Run) -> bool:
        return bool(run.zones) or not self._zones

    def _read(self, run: _Run) -> tuple[Fused, Match | None]:
        fused = run.fusion.result()
        texts = [text for text, _ in fused.reading.candidates]
        near = [(each.name, text) for each in self._lists for text in sorted(each.near(texts))]
        if not {text for _, text in near} <= fused.probabilities.keys():
            fused = run.fusion.result([text for _, text in near])
        found = [(fused.probabilities[text], name, text) for name, text in near]
        probability, name, text = max(found, default=(0.0, "", ""), key=lambda match: match[0])
        if probability < _LEAST_MATCH:
            return fused, None
        return fused, Match(list=name, text=text, probability=round(probability, 4))

    def _report(self, run: _Run, kind: events.Kind, fused: Fused, match: Match | None) -> Report:
        best, ahead = run.best.plate, run.clock_ahead
        run.revision += 1
        read = answer_of(fused.reading, best.box, best.quad, best.detection_score)
        text = best.candidates[0][0] if best.candidates else ""
        event = Pass(
            **read.model_dump(),  # What a photo's answer has besides is ignored.
            id=run.id,
            type=kind,
            revision=run.revision,
            camera=self.camera,
            evidence=events.Evidence(
                frames_seen=run.frames,
                frames_read=run.frames_read,
                best_single=Candidate(text=text, score=round(best.score, 4)),
            ),
            time=events.Times(
                first=run.first.now + ahead,
                last=run.last.now + ahead,
                best=run.best.now + ahead,
                source=run.begin.clock,
                position_s=round(run.begin.position_s, 3),
            ),
            motion=events.Motion(
                direction=run.direction, stationary=run.stationary, zones=list(run.zones)
            ),
            best=events.BestView(box=read.box, quad=read.quad),
            match=match,
            stream=Stream(
                frames_dropped=self._stream.frames_dropped - run.stream_before.frames_dropped,
                reconnects=self._stream.reconnects - run.stream_before.reconnects,
            ),
            model=self.model,
        )
        return Report(event, best.crop)


def _is_whole(plate: SeenPlate, frame: Frame) -> bool:
    """Whether no part of it can be outside the picture."""
    (x0, y0, x1, y1), (height, width) = plate.box, frame.image.shape[:2]
    return min(x0, y0, width - x1, height - y1) >= _EDGE * (y1 - y0)


def _unread(plate: SeenPlate) -> SeenPlate:
    """A plate of which nothing is read: a part of a text looks like another one."""
    nothing = plate.log_probs[:, :0]
    return replace(plate, text="", score=0.0, candidates=(), log_probs=nothing)
