"""The sources of a camera's frames: streams, files, devices, and pushed frames."""

import errno
import logging
import math
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import cast
from urllib.parse import unquote

import av
import av.error
import av.logging
import cv2
import numpy as np
from av.codec.hwaccel import HWAccel
from av.container import InputContainer
from numpy.typing import NDArray

from plates.cameras.frames import WHOLE, Clock, Crop, Frame, SourceState, Status

# A stream without a new picture for so many seconds is reconnected.
_SILENT_S, _NO_PICTURE = 8.0, "it has sent no picture that can be decoded for {:g} s"
_OPEN_S = 8.0
# If frames are later than this for another second, only keyframes are decoded until the reader has
# caught up. If it waits for packets during this share of that time, the camera's times are slow.
_LATE_S, _WAITING = 2.0, 0.25
# The least delay so far grows by this per frame, as clocks drift apart or are set.
_CREEP_S = 1e-4
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0  # before reconnecting
_HEARTBEAT_S = 1.0
# Capture times that are further from this machine's clock are ignored: some send local time as UTC.
_MOST_SKEW_S = 1500.0
_CLOSE_S = 2.0
_NO_TIMES = 0x80  # FFmpeg's AVFMT_NOTIMESTAMPS
# Passwords before the host, and in the path or query of some cameras: "?user=admin&pwd=…".
_PASSWORD = re.compile(
    r"(?<=://)([^/@\s:]*:).*(?=@)"
    r"|((?<![a-z])(?:(?:login)?pas\w*|psw|pwd|token|key)=)[^&\s]*",
    re.I,
)

# The formats that are accepted over HTTP.
_HTTP_FORMATS = (
    "mpjpeg,mjpeg,jpeg_pipe,image2,mpegts,mpeg,mpegvideo,m4v,h264,hevc,flv,asf,ogg,mov,matroska,avi"
)

log = logging.getLogger("plates.cameras")
# FFmpeg's own messages name addresses, with their passwords.
av.logging.set_level(None)


class SourceError(Exception):
    """A source can't be read; the message contains no password."""

    def __init__(self, problem: str, status: Status = "failed") -> None:
        super().__init__(problem)
        self.status = status


def redacted(text: str) -> str:
    """Replace the passwords of all addresses in a text."""
    return _PASSWORD.sub(r"\1\2***", text)


def file_path(address: str) -> str:
    """The path of a file:// URL; any other address as it is."""
    path = address.removeprefix("file://localhost").removeprefix("file://")
    return address if path == address else unquote(path)


class FrameSource:
    """Yields a camera's frames, cropped: the newest one, if they come faster than they are read."""

    def __init__(self, crop: Crop = WHOLE) -> None:
        self.state = SourceState()
        self._crop = crop
        self._newest: Frame | None = None
        self._changed = threading.Condition()
        self._over = threading.Event()

    def frames(self) -> Iterator[Frame | None]:
        """Yield frames until the source ends; None about once a second while no frame comes."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._newest or self._over.is_set(), _HEARTBEAT_S)
                frame, self._newest = self._newest, None
                self._changed.notify_all()
            if frame:
                self.state.frames_read += 1
                self.state.delay_s = round(max(0.0, time.time() - frame.captured), 3)
            elif self._over.is_set():
                break
            yield frame

    def close(self) -> None:
        """End the source."""
        with self._changed:
            self._over.set()
            self._changed.notify_all()

    def _hand_over(self, frame: Frame) -> None:
        height, width = frame.image.shape[:2]
        x0, y0, x1, y1 = np.rint(np.multiply((width, height) * 2, self._crop)).astype(int)
        frame = replace(frame, image=np.ascontiguousarray(frame.image[y0:y1, x0:x1]))
        if not frame.image.size:  # The picture has only a few pixels.
            return
        with self._changed:
            self.state.frames_dropped += self._newest is not None
            self._newest = frame
            self._changed.notify_all()


class Source(FrameSource):
    """A stream (rtsp, http), a device (/dev/video0) or a video file, decoded in a thread.

    A stream yields its newest frame and drops those that came before it unread. A stream that ends,
    hangs or sends garbage is reconnected for ever, with exponential back-off. A file yields all
    frames; if it or its end can't be decoded, the last state is "failed". At most `fps` frames per
    second are yielded. The address includes user and password if the camera needs them.
    """

    def __init__(
        self, address: str, fps: float, hwaccel: str | None = None, crop: Crop = WHOLE
    ) -> None:
        super().__init__(crop)
        self._address, self._step_s, self._hwaccel = file_path(address), 1 / fps, hwaccel
        self._is_device = re.match("/dev/(?!fd/|stdin$)", self._address) is not None
        self._live = "://" in self._address or self._is_device
        self._over_http = self._address.startswith("http")
        self._picture, self._changed_at, self._worked = b"", 0.0, False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; while a camera doesn't answer, it may live on after this call."""
        super().close()
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._over.is_set():
            self._worked, problem_before = False, self.state.problem
            try:
                self._read()
                self.state.status, self.state.problem = "ended", ""
            except Exception as error:  # Whatever went wrong, a live source is reconnected.
                self.state.status, self.state.problem = _explained(error)
            if self.state.problem and (self._worked or self.state.problem != problem_before):
                log.warning("%s: %s", redacted(self._address), self.state.problem)
            if not self._live:
                break
            if self._worked or self.state.status == "frozen":
                pause_s = _FIRST_PAUSE_S
            self._over.wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            self.state.reconnects += 1
        super().close()

    def _open(self, kind: str | None) -> InputContainer:
        if not self.state.problem:
            self.state.status = "connecting"
        # By default FFmpeg analyzes five seconds of a stream before it yields frames.
        options = {"analyzeduration": "500000", "http_proxy": ""} if self._live else {}
        # A camera could use a playlist or redirect to make this machine open internal addresses.
        if self._over_http and ".m3u8" not in self._address:
            options |= {"format_whitelist": _HTTP_FORMATS, "max_redirects": "0"}
        if self._address.startswith("rtsp"):  # Audio would hide that the video has stopped.
            options |= {"rtsp_flags": "prefer_tcp", "allowed_media_types": "video"}
        hwaccel = HWAccel(self._hwaccel, allow_software_fallback=True) if self._hwaccel else None
        timeout, began = (_OPEN_S, _SILENT_S), time.monotonic()
        try:
            found = av.open(self._address, "r", kind, options, hwaccel=hwaccel, timeout=timeout)
            pictures = self._over_http and found.format.name in ("mpjpeg", "mjpeg", "image2")
            if not pictures or found.streams.video[0].width:
                return found
            found.close()
        except av.error.InvalidDataError as error:
            if time.monotonic() - began > 0.9 * _OPEN_S:
                raise SourceError(f"nothing was received for {_OPEN_S:g} s", "silent") from error
            if not self._over_http:
                raise
        except (av.error.OSError, av.error.ArgumentError) as error:
            if error.errno not in (errno.EIO, errno.EINVAL):
                raise
            if re.match("[^/]*//[^/@]*:.*[/?#].*@", self._address):
                raise SourceError("write / in the password as %2F, ? as %3F, # as %23") from error
            if not self._over_http:
                raise
            raise SourceError("no video is there, but a page, a playlist or a redirect") from error
        if kind:
            raise SourceError("it has sent no picture that can be decoded")
        return self._open("mjpeg")  # FFmpeg ignores headers of pictures that it doesn't accept.

    def _read(self) -> None:
        """Decode one connection until it ends."""
        with self._open("v4l2" if self._is_device else None) as container:
            if not container.streams.video or container.format.name == "tty":  # a text, drawn
                raise SourceError("it has no video")
            stream = container.streams.video[0]
            # With frame threading the decoder would delay the stream by a frame per thread.
            stream.thread_type = "SLICE"
            clock = _CaptureClock(container, self._address, self._live)
            due_s, frozen = -math.inf, False
            began = played = time.monotonic()  # when position 0 of a playlist or file was played
            for frame in _decoded(container, clock):
                if self._over.is_set():
                    return
                if not frame:
                    self.state.status, self.state.problem = "silent", _NO_PICTURE.format(_SILENT_S)
                    continue
                captured, position_s = clock.of(frame)
                # Segments of a playlist arrive in bursts, and a video file as fast as it is read.
                if self._over_http and (container.format.name == "hls" or container.duration):
                    early_s = played + position_s - time.monotonic()
                    if 0 < early_s < 1:
                        self._over.wait(early_s)
                    else:  # It is late, or its times have jumped.
                        played -= early_s
                now = time.monotonic()
                if clock.source == "rtcp":
                    stream.codec_context.skip_frame = "NONKEY" if clock.is_late else "DEFAULT"
                if due_s - self._step_s - 1 < position_s < due_s - self._step_s / 8:
                    continue
                on_time = 0 <= position_s - due_s + self._step_s / 8 < self._step_s
                due_s = self._step_s + (due_s if on_time else position_s)
                image = cast(NDArray[np.uint8], frame.to_ndarray(format="bgr24"))
                picture = image[::16, ::16].tobytes()
                if picture != self._picture:  # `_picture` may be of an earlier connection.
                    self._picture, self._changed_at = picture, now
                frozen = self._live and now - self._changed_at > _SILENT_S
                if not frozen:
                    upright = np.rot90(image, round(frame.rotation / 90))
                    self._hand_over(Frame(upright, captured, clock.source, position_s))
                elif time.monotonic() - began > _SILENT_S:  # Until then the picture may change.
                    break
            if frozen:
                raise SourceError(f"the picture has not changed for {_SILENT_S:g} s", "frozen")
            if not self._worked:
                raise SourceError("it ended before its first picture")

    def _hand_over(self, frame: Frame) -> None:
        self.state.status, self.state.problem, self._worked = "live", "", True
        with self._changed:
            if not self._live:
                self._changed.wait_for(lambda: self._newest is None or self._over.is_set())
            super()._hand_over(frame)


class PushedFrames(FrameSource):
    """A camera whose frames are pushed one by one; "silent" after `_SILENT_S` without one."""

    _first = 0.0  # the first frame's time

    def put(self, image: NDArray[np.uint8], captured: float | None) -> None:
        """Add (H, W, 3) uint8 BGR, captured at a Unix time in seconds; None means now."""
        clock: Clock = "arrival" if captured is None else "rtcp"
        moment = time.time() if captured is None else captured
        self._first = self._first or moment
        self._hand_over(Frame(image, moment, clock, moment - self._first))

    def frames(self) -> Iterator[Frame | None]:
        """See `FrameSource`."""
        heard_at = -math.inf
        for frame in super().frames():
            heard_at = time.monotonic() if frame else heard_at
            self.state.status = "live" if time.monotonic() - heard_at < _SILENT_S else "silent"
            yield frame


class _CaptureClock:
    """Determines when frames were captured, and by which clock."""

    def __init__(self, container: InputContainer, address: str, live: bool) -> None:
        self._container, self._live = container, live
        self.source: Clock = "arrival" if live else "file"
        if not live:  # `_began` is the first frame's time; a file was modified at its last frame.
            try:
                created = container.metadata["creation_time"]
                self._began = datetime.fromisoformat(created).timestamp()
            except (KeyError, ValueError):
                duration_s = (container.duration or 0) / av.time_base
                self._began = Path(address).stat().st_mtime - duration_s
        self._time_s, self._first_s, self._least_s = 0.0, math.inf, math.inf
        self._stamp: float | None = None  # the last frame's own time
        self._repeated, self._arrived = 0, time.monotonic()
        self._epoch_s = 0.0  # Unix time of the stream's time 0; 0 if unknown
        self.is_late = False  # whether frames are late because the reader can't keep up
        self._late_since, self._waited_s = math.inf, 0.0

    def hear(self, packet: "av.Packet[av.VideoStream]", waited_s: float) -> None:
        """Note the wait for a packet, and the camera's last RTCP report: its clocks drift apart."""
        self._waited_s += waited_s
        if packet.pts is not None and packet.has_sidedata("prft"):
            [began_us] = np.frombuffer(bytes(packet.get_sidedata("prft")), np.int64, 1)
            self._epoch_s = began_us / 1e6 - float(packet.pts * packet.time_base)

    def of(self, frame: av.VideoFrame) -> tuple[float, float]:
        """Unix seconds, and seconds since the first frame."""
        now, before, self._arrived = time.time(), self._arrived, time.monotonic()
        self._repeated = self._repeated + 1 if frame.time == self._stamp else 0
        self._stamp = time_s = frame.time
        # MJPEG and raw H.264 have no timestamps; FFmpeg assumes 25 frames a second, or gives none.
        # Some cameras send none, or the same one in all frames.
        timeless = self._repeated > 1
        if time_s is None or timeless or self._container.format.flags & _NO_TIMES:
            time_s = self._time_s + (self._arrived - before if self._live else 1 / 25)
        if time_s < self._time_s - 1.0:  # The camera set its clock back: the position goes on.
            self._first_s += time_s - self._time_s
        self._first_s = min(self._first_s, time_s)
        self._time_s = time_s
        position_s = time_s - self._first_s
        if not self._live:
            return self._began + position_s, position_s
        late_s = self._measure_delay(self._arrived - position_s)
        # Frames before the first report with side data use the container's start time.
        epoch_s = self._epoch_s or (self._container.start_time_realtime or 0) / 1e6
        known = epoch_s + time_s
        if epoch_s and not timeless and abs(known - now) < _MOST_SKEW_S:
            self.source = "rtcp"
            return known, position_s
        self.source = "arrival"
        return now - min(late_s, _SILENT_S), position_s

    def _measure_delay(self, delay_s: float) -> float:
        """Seconds beyond the least delay; by the monotonic clock, as wall clocks may be set."""
        self._least_s = min(self._least_s + _CREEP_S, delay_s)
        late_s = delay_s - self._least_s
        if late_s <= _LATE_S:
            self._late_since = math.inf
        elif self._late_since == math.inf:
            self._late_since, self._waited_s = self._arrived, 0.0
        late_for_s = self._arrived - self._late_since
        waits = self._waited_s > _WAITING * late_for_s
        self.is_late = late_for_s > 1 and not waits
        if late_for_s > 1 and waits:  # Nothing is waiting to be read.
            self._least_s = delay_s
        return late_s


def _decoded(container: InputContainer, clock: _CaptureClock) -> Iterator[av.VideoFrame | None]:
    """Decode the stream; skip broken packets, unless nothing else comes for too long.

    Yields None for each packet after a while without a picture. A stream may begin up to 20 seconds
    before its first keyframe.
    """
    decoded_at = asked_at = time.monotonic()
    broken, longest_s = False, 3 * _SILENT_S
    try:
        for packet in container.demux(video=0):
            clock.hear(packet, waited_s := time.monotonic() - asked_at)
            if waited_s > _SILENT_S:  # Interrupted, FFmpeg gives the picture that its parser held.
                raise TimeoutError
            broken = packet.is_corrupt if packet.size else broken  # A file's last packet is empty.
            try:
                frames = packet.decode()
            except av.error.InvalidDataError:
                frames, broken = [], True
            waited_s = time.monotonic() - decoded_at
            if frames:
                yield from frames  # A file waits here for its reader.
                decoded_at, longest_s = time.monotonic(), _SILENT_S
            elif waited_s > longest_s:
                raise SourceError(_NO_PICTURE.format(longest_s))
            elif waited_s > _SILENT_S:
                yield None
            asked_at = time.monotonic()
    except av.error.OSError as error:  # A response over HTTP without a length ends like this.
        if error.errno != errno.EIO or not container.name.startswith("http"):
            raise
    if broken:
        raise SourceError("its end can't be decoded")


def _explained(error: Exception) -> tuple[Status, str]:
    if isinstance(error, av.error.ExitError | TimeoutError):
        return "silent", f"nothing was received for {_SILENT_S:g} s"
    if isinstance(error, av.error.HTTPUnauthorizedError):
        return "failed", "it refuses the user name or the password, or a digest with MD5"
    status = error.status if isinstance(error, SourceError) else "failed"
    return status, redacted(getattr(error, "strerror", None) or str(error))


class MotionGate:
    """Selects the frames in which something moved; the others need not be read."""

    # Tiles, smaller than a far plate; the least change of grey levels: above noise and its drift.
    _TILES_WH, _LEAST = (160, 90), 6.0
    # After so many seconds a frame is read even without motion.
    _AT_LEAST_EVERY_S = 1.0

    def __init__(self) -> None:
        self._seen, self._read_at = np.empty(0, np.int16), -math.inf  # the last selected frame

    def moved(self, frame: Frame) -> bool:
        """Whether to read a frame: it differs from the last selected one, or that is long ago."""
        now = cv2.resize(frame.image, self._TILES_WH, interpolation=cv2.INTER_AREA).astype(np.int16)
        is_recent = 0 <= frame.captured - self._read_at < self._AT_LEAST_EVERY_S
        if is_recent and np.abs(now - self._seen).max() < self._LEAST:
            return False
        self._seen, self._read_at = now, frame.captured
        return True
