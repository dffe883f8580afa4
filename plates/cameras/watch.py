"""Follow cameras from frames to reports, and the outputs of `plates watch`."""

import csv
import logging
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from threading import Lock
from urllib.parse import urlsplit

import av
import cv2
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.live import Live
from rich.table import Table

from plate_models.engines.loaded import Nets
from plate_models.spec import MODEL_VERSION
from plates.annotate import annotate
from plates.cameras.events import Model, Pass, Stream
from plates.cameras.frames import Frame, SeenPlate
from plates.cameras.fusion import Reader
from plates.cameras.lists import PlateList
from plates.cameras.passes import Passes, Report
from plates.cameras.recognizer import RecognizerAway, seen_plates
from plates.cameras.sources import FrameSource, MotionGate, Source, SourceError, redacted

CSV_COLUMNS = (
    *("camera", "first", "last", "text", "score", "readable", "format", "direction"),
    *("stationary", "frames_read", "list", "probability", "id"),
)
_HEADINGS = ("camera", "seen", "text", "format", "score", "motion", "list")
_SHOWN = 30  # passes in the table
# In annotated videos: ticks per second, and the longest gap in ticks; longer ones are left out.
_TICKS, _LONGEST_GAP = 1000, 3_600_000

log = logging.getLogger("plates.cameras")


@dataclass(frozen=True, eq=False)
class Step:
    """One frame of a camera with its plates and reports."""

    camera: str
    frame: Frame | None  # None if no frame came in time
    plates: Sequence[SeenPlate] | None  # None if the frame was not read
    reports: Sequence[Report]


Camera = tuple[FrameSource, Passes]
Output = Callable[[Step], None]
Read = Callable[[NDArray[np.uint8]], list[SeenPlate]]  # from (H, W, 3) uint8 BGR


def follow(source: FrameSource, passes: Passes, read: Read) -> Iterator[Step]:
    """Read a camera's frames until its source ends; frames without motion are not read."""
    gate = MotionGate()
    for frame in source.frames():
        plates: list[SeenPlate] | None = None
        if frame is None:
            reports = passes.advance()
        elif not gate.moved(frame):
            reports = passes.hold(frame)
        else:
            try:
                plates = read(frame.image)
            except RecognizerAway as error:
                log.warning("%s: a frame was not read: %s", passes.camera, error)
                gate = MotionGate()  # The old one counts this frame as read.
                reports = []  # The frame may show all plates, so end no pass.
            else:
                state = source.state
                stream = Stream(frames_dropped=state.frames_dropped, reconnects=state.reconnects)
                reports = passes.add(frame, plates, stream)
        yield Step(passes.camera, frame, plates, reports)
    yield Step(passes.camera, None, None, passes.close())


def follow_all(cameras: Sequence[Camera], nets: Nets, outputs: Sequence[Output]) -> None:
    """Follow several cameras, each in a thread, until all have ended; then close them.

    The nets in this process read one frame at a time, and the outputs get one step at a time. The
    error of a camera is raised after the others have ended.
    """
    turn = Lock()

    def read_in_turn(image: NDArray[np.uint8]) -> list[SeenPlate]:
        with turn:
            rgb = np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2RGB), np.uint8)
            return seen_plates(nets.read(rgb, still=False), image)

    def run(source: FrameSource, passes: Passes) -> None:
        for step in follow(source, passes, read_in_turn):
            with turn:
                for output in outputs:
                    output(step)
        if source.state.status == "failed":
            raise SourceError(f"{passes.camera}: {source.state.problem}")

    # The sources close before the pool waits, so that its threads end after Ctrl-C, too.
    with ThreadPoolExecutor(len(cameras)) as pool, ExitStack() as stack:
        for source, _ in cameras:
            stack.callback(source.close)
        followed = [pool.submit(run, *camera) for camera in cameras]
        wait(followed)
    for future in followed:
        future.result()


def open_cameras(
    addresses: Sequence[str], fps: float, lists: Sequence[PlateList], nets: Nets, weights: str
) -> list[Camera]:
    """Open a camera for each address, named after it, for nets in this process."""
    config, names = nets.config, list[str]()
    model = Model(version=MODEL_VERSION, weights=weights)
    reader = Reader(config.grammar, config.calibration, config.specs.recognizer, model)
    for url in map(urlsplit, map(redacted, addresses)):
        names.append(re.sub(r"[^\w-]+", "-", Path(url.path).stem or url.hostname or "camera"))
    for place in reversed(range(len(names))):  # so that the first of equal names stays
        while names.count(names[place]) > 1:
            names[place] += f"-{place + 1}"
    passes = (Passes(name, reader, lists=lists) for name in names)
    return [(Source(address, fps), each) for address, each in zip(addresses, passes, strict=True)]


def print_json(step: Step) -> None:
    """Print each event of a step as a line of JSON."""
    for report in step.reports:
        print(report.event.model_dump_json(ensure_ascii=sys.stdout.encoding != "utf-8"), flush=True)


def print_csv(step: Step) -> None:
    """Print a row with `CSV_COLUMNS` for each pass that has ended."""
    for event in _ended(step):
        match = (event.match.list, event.match.probability) if event.match else ("", "")
        times = event.model_dump(mode="json", include={"time"})["time"]
        reading = event.text, event.score, str(event.readable).lower(), event.format
        motion = event.motion.direction, str(event.motion.stationary).lower()
        row = (event.camera, times["first"], times["last"], *reading, *motion)
        rows = csv.writer(sys.stdout, lineterminator="\n")
        rows.writerow((*row, event.evidence.frames_read, *match, event.id))
        sys.stdout.flush()


@contextmanager
def live_table() -> Iterator[Output]:
    """Show a live table of the last passes; if stdout is not a terminal, print ended passes."""
    console, passes = Console(), dict[str, Pass]()
    live = Live(console=console, auto_refresh=False)

    def print_lines(step: Step) -> None:
        for event in _ended(step):
            print(_line(_cells(event)), flush=True)

    def update(step: Step) -> None:
        if not step.reports:
            return
        passes.update({report.event.id: report.event for report in step.reports})
        for old in list(passes)[:-_SHOWN]:
            del passes[old]
        table = Table(*_HEADINGS, "")
        table.columns[_HEADINGS.index("text")].no_wrap = True  # others shrink in a narrow terminal
        for event in reversed(passes.values()):  # A small terminal cuts off the oldest.
            table.add_row(*_cells(event), "" if event.type == "pass.ended" else "in sight")
        live.update(table, refresh=True)

    if console.is_terminal:
        with live:
            yield update
    else:
        print(_line(_HEADINGS))
        yield print_lines


@contextmanager
def annotated_videos(folder: Path, fps: float) -> Iterator[Output]:
    """Write a video per camera, with the plates drawn in, to a folder.

    A frame that was not read shows the plates of the previous frame.
    """
    folder.mkdir(parents=True, exist_ok=True)
    videos: dict[str, tuple[av.container.OutputContainer, av.VideoStream]] = {}
    seen: dict[str, Sequence[SeenPlate]] = {}
    times: dict[str, tuple[float, int]] = {}  # the first frame's time, the last one's in ticks

    def write(step: Step) -> None:
        if step.frame is None:
            return
        if step.plates is not None:
            seen[step.camera] = step.plates
        rgb = cv2.cvtColor(step.frame.image, cv2.COLOR_BGR2RGB)  # five times as fast as [..., ::-1]
        drawn = annotate(np.asarray(rgb, np.uint8), seen.get(step.camera, ()))
        drawn = drawn[: drawn.shape[0] // 2 * 2, : drawn.shape[1] // 2 * 2]  # even, for H.264
        if step.camera not in videos:
            (path := folder / f"{step.camera}.mp4").write_bytes(b"")  # PyAV's error names no file.
            container = av.open(path, "w")
            stream = container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1000))
            stream.height, stream.width = drawn.shape[:2]
            stream.codec_context.time_base = Fraction(1, _TICKS)
            videos[step.camera] = container, stream
        container, stream = videos[step.camera]
        frame = av.VideoFrame.from_ndarray(drawn, "rgb24")
        # Stream positions restart after a reconnection; a video's timestamps must increase.
        first, last = times.get(step.camera, (step.frame.captured, -1))
        now = round((step.frame.captured - first) * _TICKS)
        if not last < now <= last + _LONGEST_GAP:  # The clock may have been set.
            now = last + 1
            first = step.frame.captured - now / _TICKS
        times[step.camera] = first, now
        frame.pts, frame.time_base = now, Fraction(1, _TICKS)
        container.mux(stream.encode(frame))

    try:
        yield write
    finally:
        for container, stream in videos.values():
            container.mux(stream.encode(None))
            container.close()


def _ended(step: Step) -> list[Pass]:
    return [each.event for each in step.reports if each.event.type == "pass.ended"]


def _cells(event: Pass) -> tuple[str, ...]:
    seen = time.strftime("%H:%M:%S", time.localtime(event.time.first))
    listed = f"{event.match.list} {event.match.probability:.3f}" if event.match else ""
    motion = "stationary" if event.motion.stationary else event.motion.direction
    reading = event.text_native or "?", event.format, f"{event.score:.3f}"
    return event.camera, seen, *reading, motion, listed


def _line(cells: Sequence[str]) -> str:
    return " ".join(f"{cell:<12}" for cell in cells).rstrip()
