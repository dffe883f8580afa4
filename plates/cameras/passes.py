"""Turn the plates in frames into events: one pass per vehicle, from first to last detection."""

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

# An unreadable plate is reported if it has at least this width in pixels and was seen in at least
# so many frames with a direction: else signs and stickers would be reported for ever.
_UNREAD_PX, _UNREAD_FRAMES = 60.0, 3
# In fewer frames it must surely be a plate: one of them needs at least this detection score, and a
# best candidate with at least so many characters.
_SURE_DETECTION, _LEAST_CHARACTERS = 0.7, 4
# The picture's edge may cut a plate that is nearer to it than this share of the plate's height.
_EDGE = 0.12
# The least change that is a direction: of the log of the plate's width; sideways, in plate widths.
_NEARER, _SIDEWAYS = 0.15, 1.0
# A match is reported from this probability on, and again after each rise by the second number.
_LEAST_MATCH, _SURER_MATCH = 0.5, 0.01
# Frames' times may be out of order by so many seconds; beyond that, the clock was set back. If this
# machine's clock gains more than the second number on the monotonic clock, it was set forward.
_OUT_OF_ORDER_S, _MOST_GAIN_S = 1.0, 30.0
# While no frame comes, passes end one frame interval after their time-out, at most so much later.
_LONGEST_INTERVAL_S = 15.0


@dataclass(frozen=True, eq=False)
class Report:
    """An event, and the plate in its best frame: (48, 188, 3) uint8 RGB, rectified."""

    event: Pass
    crop: NDArray[np.uint8]


class _Detection(NamedTuple):
    """A plate in one frame."""

    plate: SeenPlate
    time: float  # seconds of the passes' own clock
    position_s: float  # the frame's, in seconds since the stream's beginning
    picture_width: int  # in pixels


@dataclass(eq=False)
class _OpenPass:
    """A pass that has not ended: one track, or several that turned out to be of one plate."""

    fusion: Fusion
    first: _Detection
    clock: tuple[Clock, float]  # of its times, and what they are ahead of the passes' own clock
    stream_at_start: Stream
    id: str = field(default_factory=events.new_id)
    revision: int = 0  # of the last event; 0 before any
    frames: int = 1
    zones: dict[str, None] = field(default_factory=dict)
    stationary: bool = False
    # The last event's text, the list and text of its match, and the match's probability (else 1).
    reported: tuple[str, tuple[str, str] | None] = "", None
    match_probability: float = 1.0

    def __post_init__(self) -> None:
        plate = self.first.plate
        self.last = self.best = self.first
        self.width = plate.width  # the greatest so far, in pixels
        # The first and the last detection that the picture's edge doesn't cut.
        self.whole = [self.first] if plate.log_probs.size else []
        self.frames_read = int(plate.text != "")
        text = plate.candidates[0][0] if plate.candidates else ""
        found = plate.detection_score >= _SURE_DETECTION
        self.surely_plate = found and len(text) >= _LEAST_CHARACTERS

    def join(self, other: "_OpenPass") -> None:
        """Merge a later detection, or a whole other pass, but not its text, which `fusion` has."""
        self.frames += other.frames
        self.frames_read += other.frames_read
        self.zones |= other.zones
        self.stationary |= other.stationary
        self.surely_plate |= other.surely_plate
        if other.first.time < self.first.time:  # The other one began earlier, but was unreadable.
            self.first, self.clock = other.first, other.clock
            self.stream_at_start = other.stream_at_start
        self.last = other.last
        bests = other.best, self.best
        self.best = max(bests, key=lambda found: (found.plate.text != "", found.plate.score))
        self.width = max(self.width, other.width)
        self.whole = sorted(self.whole + other.whole, key=lambda found: found.time)
        del self.whole[1:-1]

    @property
    def direction(self) -> events.Direction:
        """The direction from the first to the last detection in `whole`."""
        if not self.whole:
            return "unknown"
        first, last = self.whole[0].plate, self.whole[-1].plate
        nearer = float(np.log(last.width / first.width))
        across = last.middle[0] - first.middle[0]
        # Compare both movements, assuming a focal length of about the picture's width.
        if abs(nearer) >= max(_NEARER, abs(across) / self.first.picture_width):
            return "approaching" if nearer > 0 else "leaving"
        if abs(across) >= _SIDEWAYS * self.width:
            return "right" if across > 0 else "left"
        return "unknown"


class Passes:
    """The passes of one camera.

    `pass.updated` is reported when the text becomes readable or matches a list, and when either of
    these changes; `pass.ended` once, after some seconds without a detection. A track whose text
    becomes readable joins the open pass with the same text, if there is one. With zones, only
    passes that touch a zone are reported. Frames' times may jump; where they jump back, no time
    passes. If this machine's clock is set, the open passes' times follow: they were wrong before.
    """

    def __init__(
        self,
        camera: str,
        reader: Reader,
        zones: Mapping[str, Polygon] | None = None,
        lists: Sequence[PlateList] = (),
    ) -> None:
        self.camera = camera  # the name
        self.reader = reader  # may be changed; new tracks use the new one
        self._zones = {name: np.array(area, np.float32) for name, area in (zones or {}).items()}
        self._lists = lists
        self._open: dict[Track, _OpenPass] = {}
        self._stream = Stream()
        self._now, self._clock_offset, self._arrived = 0.0, 0.0, 0.0
        self._interval = 0.0  # seconds between the last two frames, by this machine's clock
        self._clock: Clock = "arrival"

    def add(self, frame: Frame, plates: Sequence[SeenPlate], stream: Stream) -> list[Report]:
        """Add the next frame's plates; `stream` has the counts since the stream's beginning."""
        self._take_time(frame)
        self._stream = stream
        detected: dict[_OpenPass, _OpenPass] = {}
        plates = [_whole_or_unread(plate, frame) for plate in plates]
        height, width = frame.image.shape[:2]
        # Readings with another alphabet can't be fused with earlier frames: those passes end.
        alphabet = self.reader.spec.alphabet
        tracks = [track for track in self._open if track.fusion.alphabet == alphabet]
        for track in assign(plates, tracks, self._now, self.reader):
            first = _Detection(track.plate, self._now, frame.position_s, width)
            new = _OpenPass(track.fusion, first, (self._clock, self._clock_offset), stream)
            pass_ = self._open.setdefault(track, new)
            pass_.stationary |= track.stationary
            detected.setdefault(pass_, new)
        reports = []
        for pass_, new in detected.items():
            if new is not pass_:
                pass_.join(new)
            x, y = new.first.plate.middle
            for name, area in self._zones.items():
                if cv2.pointPolygonTest(area, (x / width, y / height), False) >= 0:
                    pass_.zones[name] = None
            reports += self._update(pass_)
        return reports + self._end(self._now)

    def hold(self, frame: Frame) -> list[Report]:
        """Note a frame in which nothing has moved since the previous one."""
        before = self._now
        self._take_time(frame)
        for track, pass_ in self._open.items():
            if track.last_seen >= before:
                track.stay(self._now)
                pass_.last = pass_.last._replace(time=self._now)
                pass_.stationary |= track.stationary
        return self._end(self._now)

    def advance(self) -> list[Report]:
        """While no frame comes: end passes whose time-out is over by this machine's clock."""
        return self._end(self._now + time.monotonic() - self._arrived - self._interval)

    def close(self) -> list[Report]:
        """End all passes."""
        return self._end(inf)

    def _take_time(self, frame: Frame) -> None:
        arrived = time.monotonic()
        waited = arrived - self._arrived if self._arrived else 0.0
        passed = frame.captured - self._clock_offset - self._now
        set_forward = frame.clock == "arrival" and passed > waited + _MOST_GAIN_S
        # The monotonic clock measures the time between two clocks.
        if frame.clock != self._clock or set_forward:
            self._clock_offset += passed - waited
        elif passed < -_OUT_OF_ORDER_S:
            self._clock_offset += passed
        self._now = max(self._now, frame.captured - self._clock_offset)
        self._interval = min(waited, _LONGEST_INTERVAL_S)
        self._clock, self._arrived = frame.clock, arrived
        for pass_ in self._open.values():
            if pass_.clock[0] == "arrival":
                pass_.clock = self._clock, self._clock_offset

    def _update(self, pass_: _OpenPass) -> list[Report]:
        """Report a new text or match; a pass with the text of another open pass joins that one."""
        fused, match = self._read(pass_)
        text = fused.reading.text
        if text and not pass_.revision:
            same = text, pass_.fusion.alphabet
            for other in self._open.values():
                if (other.reported[0], other.fusion.alphabet) == same:
                    other.fusion.join(pass_.fusion)
                    other.join(pass_)
                    for track in [track for track, owner in self._open.items() if owner is pass_]:
                        self._open[track], track.fusion = other, other.fusion
                    return []
        state = text, (match.list, match.text) if match else None
        surer = match is not None and match.probability >= pass_.match_probability + _SURER_MATCH
        if not self._is_in_zone(pass_) or (state == pass_.reported and not surer):
            return []
        pass_.reported, pass_.match_probability = state, match.probability if match else 1.0
        return [self._report(pass_, "pass.updated", fused, match)]

    def _end(self, now: float) -> list[Report]:
        gone = [track for track in self._open if track.is_over(now)]
        passes = dict.fromkeys(self._open.pop(track) for track in gone)
        over = [p for p in passes if p not in self._open.values() and self._is_reported(p)]
        return [self._report(pass_, "pass.ended", *self._read(pass_)) for pass_ in over]

    def _is_reported(self, pass_: _OpenPass) -> bool:
        """Whether the end of a pass is reported: always after a `pass.updated`."""
        if pass_.revision:
            return True
        if not self._is_in_zone(pass_) or pass_.width < _UNREAD_PX:
            return False
        return pass_.surely_plate if pass_.frames < _UNREAD_FRAMES else pass_.direction != "unknown"

    def _is_in_zone(self, pass_: _OpenPass) -> bool:
        return bool(pass_.zones) or not self._zones

    def _read(self, pass_: _OpenPass) -> tuple[Fused, Match | None]:
        fused = pass_.fusion.result()
        texts = [text for text, _ in fused.reading.candidates]
        near = [(each.name, text) for each in self._lists for text in sorted(each.near(texts))]
        if not {text for _, text in near} <= fused.probabilities.keys():
            fused = pass_.fusion.result([text for _, text in near])
        found = [(fused.probabilities[text], name, text) for name, text in near]
        probability, name, text = max(found, default=(0.0, "", ""), key=lambda match: match[0])
        if probability < _LEAST_MATCH:
            return fused, None
        return fused, Match(list=name, text=text, probability=round(probability, 4))

    def _report(
        self, pass_: _OpenPass, kind: events.Kind, fused: Fused, match: Match | None
    ) -> Report:
        best, (clock, offset) = pass_.best.plate, pass_.clock
        pass_.revision += 1
        read = answer_of(fused.reading, best.box, best.quad, best.detection_score)
        text = best.candidates[0][0] if best.candidates else ""
        event = Pass(
            **read.model_dump(),  # Pydantic ignores the fields that only a photo's answer has.
            id=pass_.id,
            type=kind,
            revision=pass_.revision,
            camera=self.camera,
            evidence=events.Evidence(
                frames_seen=pass_.frames,
                frames_read=pass_.frames_read,
                best_single=Candidate(text=text, score=round(best.score, 4)),
            ),
            time=events.Times(
                first=pass_.first.time + offset,
                last=pass_.last.time + offset,
                best=pass_.best.time + offset,
                source=clock,
                position_s=round(pass_.first.position_s, 3),
            ),
            motion=events.Motion(
                direction=pass_.direction, stationary=pass_.stationary, zones=list(pass_.zones)
            ),
            best=events.BestView(box=read.box, quad=read.quad),
            match=match,
            stream=Stream(
                frames_dropped=self._stream.frames_dropped - pass_.stream_at_start.frames_dropped,
                reconnects=self._stream.reconnects - pass_.stream_at_start.reconnects,
            ),
            model=self.reader.model,
        )
        return Report(event, best.crop)


def _whole_or_unread(plate: SeenPlate, frame: Frame) -> SeenPlate:
    """The plate; as unreadable if the edge may cut it: a part of a text looks like another."""
    (x0, y0, x1, y1), (height, width) = plate.box, frame.image.shape[:2]
    if min(x0, y0, width - x1, height - y1) >= _EDGE * (y1 - y0):
        return plate
    return replace(plate, text="", score=0.0, candidates=(), log_probs=plate.log_probs[:, :0])
