"""From the plates in frames to events: a pass for each vehicle, from first to last sight."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from api.answers import plate_from
from plates.cameras.events import (
    BestSingle,
    BestView,
    Direction,
    Evidence,
    Match,
    Model,
    Motion,
    Pass,
    Stream,
    Times,
    new_id,
)
from plates.cameras.frames import Frame, SeenPlate
from plates.cameras.fusion import Fused, Reader
from plates.cameras.lists import PlateList
from plates.cameras.settings import Zone
from plates.cameras.tracking import Track, Tracker

# What can't be read is reported if it was seen that often, is that wide, and went somewhere: signs
# and stickers would be reported for ever.
_UNREAD_FRAMES, _UNREAD_PX = 5, 60.0
# Who moves by less than a third of a plate's width in that time stands.
_STANDING_S, _STANDING_WIDTHS = 5.0, 1 / 3
# What is a direction: by the log of the plate's width, that for each width sideways, and by widths
# sideways.
_NEARER, _OBLIQUE, _SIDEWAYS = 0.15, 0.1, 1.0
# So near to the picture's edge, as a share of its sides, a plate may be cut.
_EDGE = 0.003
_LEAST_MATCH = 0.5
# What an event has as the answer for a photo has it.
_OF_A_PLATE = {
    *("text", "text_native", "score", "readable", "format", "region", "characters", "candidates"),
}

log = logging.getLogger("plates.cameras")


@dataclass(frozen=True, eq=False)
class Report:
    """An event, and the plate's best view: (48, 188, 3) uint8 RGB, rectified."""

    event: Pass
    crop: NDArray[np.uint8]


@dataclass(eq=False)
class _View:
    """A plate in one frame."""

    plate: SeenPlate
    captured: float

    @property
    def middle(self) -> NDArray[np.float64]:
        x0, y0, x1, y1 = self.plate.box
        return np.array(((x0 + x1) / 2, (y0 + y1) / 2))

    @property
    def width(self) -> float:
        return max(self.plate.box[2] - self.plate.box[0], 1.0)


@dataclass(eq=False)
class _Run:
    """A pass that goes on."""

    track: Track
    first: _View
    position_s: float
    fused: Fused
    id: str = field(default_factory=new_id)
    revision: int = 0
    frames: int = 0
    frames_read: int = 0
    zones: dict[str, None] = field(default_factory=dict)
    stationary: bool = False
    match: Match | None = None
    reported: tuple[str, Match | None] | None = None
    stream_before: Stream = field(default_factory=Stream)
    stream: Stream = field(default_factory=Stream)

    def __post_init__(self) -> None:
        self.last = self.best = self.widest = self.anchor = self.first

    def add(self, view: _View) -> None:
        """See it once more."""
        self.frames += 1
        self.frames_read += view.plate.readable
        self.last = view
        if view.width > self.widest.width:
            self.widest = view
        if (view.plate.readable, view.plate.score) >= (
            self.best.plate.readable,
            self.best.plate.score,
        ):
            self.best = view
        self.stand(view)

    def stand(self, view: _View) -> None:
        """Note whether it has been where it was."""
        moved = float(np.hypot(*(view.middle - self.anchor.middle))) / view.width
        if moved > _STANDING_WIDTHS:
            self.anchor = view
        elif view.captured - self.anchor.captured >= _STANDING_S:
            self.stationary = True

    @property
    def direction(self) -> Direction:
        """From its first and last view."""
        nearer = float(np.log(self.last.width / self.first.width))
        across = float((self.last.middle - self.first.middle)[0]) / self.widest.width
        if abs(nearer) >= max(_NEARER, _OBLIQUE * abs(across)):
            return "approaching" if nearer > 0 else "leaving"
        if abs(across) >= _SIDEWAYS:
            return "right" if across > 0 else "left"
        return "unknown"


class Passes:
    """The passes before one camera.

    A pass is updated once its text is surely read, and again when the text or its match changes; it
    ends once, after some seconds without sight. Where there are zones, only passes that touch one
    are reported.
    """

    def __init__(
        self,
        camera: str,
        reader: Reader,
        model: Model,
        zones: Sequence[Zone] = (),
        lists: Sequence[PlateList] = (),
    ) -> None:
        self._camera, self._model = camera, model
        self._zones = [(z.name, np.array(z.polygon, np.float32)) for z in zones]
        self._lists = lists
        self._tracker = Tracker(reader)
        self._runs: dict[Track, _Run] = {}
        self._frame: Frame | None = None
        self._came = time.monotonic()

    def add(self, frame: Frame, plates: Sequence[SeenPlate], stream: Stream) -> list[Report]:
        """Take the plates of the next frame."""
        reports = self._end(frame.captured)
        self._take_time(frame)
        whole = [plate if _is_whole(plate, frame) else _unread(plate) for plate in plates]
        tracks = self._tracker.update(whole, frame.captured)
        for track in tracks:
            view, (fused, match) = _View(track.plate, frame.captured), self._fuse(track)
            if track not in self._runs:
                run = _Run(track, view, frame.position_s, fused, stream_before=stream)
                self._runs[track] = run
            run = self._runs[track]
            run.fused, run.match, run.stream = fused, match, stream
            run.add(view)
            self._note_zones(run, view, frame)
        for run in [self._runs[track] for track in tracks]:
            now = run.fused.reading.text, run.match
            if not run.fused.reading.readable or run.reported == now or not self._counts(run):
                continue
            if run.revision or not self._is_known(run, tracks):
                run.reported = now
                reports.append(self._report(run, "pass.updated"))
        return reports

    def hold(self, frame: Frame) -> list[Report]:
        """Take a frame in which nothing has moved since the one before."""
        before = self._frame
        self._take_time(frame)
        if before is not None:
            self._tracker.hold(before.captured, frame.captured)
            for run in self._runs.values():
                if run.track.seen == frame.captured:
                    run.last = _View(run.track.plate, frame.captured)
                    run.stand(run.last)
        return self._end(frame.captured)

    def advance(self) -> list[Report]:
        """No frame has come: end what has not been seen for too long by this machine's clock."""
        if self._frame is None:
            return []
        return self._end(self._frame.captured + time.monotonic() - self._came)

    def close(self) -> list[Report]:
        """End all."""
        return self._ended(self._tracker.close())

    def texts(self, plates: Sequence[SeenPlate]) -> list[str]:
        """What the passes say of the last frame's plates; "" where they are not sure."""
        known = {id(run.last.plate): run.fused.reading.text for run in self._runs.values()}
        return [known.get(id(plate), "") for plate in plates]

    def _take_time(self, frame: Frame) -> None:
        self._frame, self._came = frame, time.monotonic()

    def _end(self, now: float) -> list[Report]:
        return self._ended(self._tracker.ended(now))

    def _ended(self, tracks: Sequence[Track]) -> list[Report]:
        runs = [self._runs.pop(track) for track in tracks if track in self._runs]
        return [self._report(run, "pass.ended") for run in runs if self._is_over(run)]

    def _is_over(self, run: _Run) -> bool:
        """Whether its end is reported."""
        if run.revision:
            return True
        readable = run.fused.reading.readable
        seen = run.frames >= _UNREAD_FRAMES and run.widest.width >= _UNREAD_PX
        return self._counts(run) and (readable or (seen and run.direction != "unknown"))

    def _counts(self, run: _Run) -> bool:
        return bool(run.zones) or not self._zones

    def _is_known(self, run: _Run, in_sight: Sequence[Track]) -> bool:
        """Whether a new run is one that was lost from sight, or is seen twice: then it joins it."""
        text = run.fused.reading.text
        for other in list(self._runs.values()):
            if other is run or other.revision == 0 or other.reported is None:
                continue
            if other.reported[0] != text:
                continue
            if other.track not in in_sight and other.last.captured <= run.first.captured:
                # The new track goes on: it knows where the plate is.
                run.track.fusion.join(other.track.fusion)
                self._tracker.forget(other.track)
                del self._runs[other.track]
                run.id, run.revision, run.reported = other.id, other.revision, other.reported
                run.first, run.position_s = other.first, other.position_s
                run.frames += other.frames
                run.frames_read += other.frames_read
                run.stationary |= other.stationary
                run.zones |= other.zones
            return True
        return False

    def _note_zones(self, run: _Run, view: _View, frame: Frame) -> None:
        height, width = frame.image.shape[:2]
        x, y = view.middle / (width, height)
        for name, polygon in self._zones:
            if cv2.pointPolygonTest(polygon, (float(x), float(y)), False) >= 0:
                run.zones[name] = None

    def _fuse(self, track: Track) -> tuple[Fused, Match | None]:
        fused = track.fusion.result()
        texts = [text for text, _ in fused.reading.candidates]
        near = {each.name: each.near(texts) for each in self._lists}
        if not any(near.values()):
            return fused, None
        fused = track.fusion.result(sorted(set[str]().union(*near.values())))
        found = [
            (fused.probabilities.get(text, 0.0), name, text)
            for name, listed in near.items()
            for text in listed
        ]
        probability, name, text = max(found)
        if probability < _LEAST_MATCH:
            return fused, None
        return fused, Match(list=name, text=text, probability=round(probability, 4))

    def _report(self, run: _Run, kind: Literal["pass.updated", "pass.ended"]) -> Report:
        reading, best = run.fused.reading, run.best.plate
        run.revision += 1
        read = plate_from(
            text=reading.text,
            score=reading.score,
            format_name=reading.format,
            box=best.box,
            quad=best.quad,
            detection_score=best.detection_score,
            characters=reading.characters,
            candidates=reading.candidates,
        )
        event = Pass(
            **read.model_dump(include=_OF_A_PLATE),
            id=run.id,
            type=kind,
            revision=run.revision,
            camera=self._camera,
            evidence=Evidence(
                frames_seen=run.frames,
                frames_read=run.frames_read,
                best_single=BestSingle(
                    text=best.candidates[0][0] if best.candidates else "",
                    score=round(best.score, 4),
                ),
            ),
            time=Times(
                first=run.first.captured,
                last=run.last.captured,
                best=run.best.captured,
                source=self._frame.clock if self._frame else "arrival",
                position_s=round(run.position_s, 3),
            ),
            motion=Motion(
                direction=run.direction, stationary=run.stationary, zones=list(run.zones)
            ),
            best=BestView(box=read.box, quad=read.quad),
            match=run.match,
            stream=Stream(
                frames_dropped=run.stream.frames_dropped - run.stream_before.frames_dropped,
                reconnects=run.stream.reconnects - run.stream_before.reconnects,
            ),
            model=self._model,
        )
        return Report(event, best.crop)


def _is_whole(plate: SeenPlate, frame: Frame) -> bool:
    """Whether none of a plate can be outside the picture."""
    (x0, y0, x1, y1), (height, width) = plate.box, frame.image.shape[:2]
    dx, dy = _EDGE * width, _EDGE * height
    return x0 > dx and y0 > dy and x1 < width - dx and y1 < height - dy


def _unread(plate: SeenPlate) -> SeenPlate:
    """A plate of which nothing is read: a part of a text looks like another one."""
    nothing = np.full_like(plate.log_probs, np.nan)
    return replace(plate, text="", score=0.0, candidates=(), log_probs=nothing)
