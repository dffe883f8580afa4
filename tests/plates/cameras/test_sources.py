"""Sources: files, a real RTSP server, MJPEG over HTTP, and faulty servers."""

import base64
import logging
import os
import re
import socket
import struct
import time
from contextlib import closing, contextmanager, suppress
from http.server import SimpleHTTPRequestHandler
from types import SimpleNamespace
from unittest.mock import Mock

import av
import cv2
import numpy as np
import pytest
from small_server import QuietHandler, SmallServer
from support import ROOT, write_files

from plates.benchmarks.cameras import free_port, rtsp_server
from plates.cameras import sources
from plates.cameras.frames import Frame
from plates.cameras.sources import MotionGate, PushedFrames, Source, redacted

START = 1_769_860_800.0
SIZE_WH = (320, 240)


def picture(number):
    """(H, W, 3) uint8 BGR: a square whose place depends on the number."""
    image = np.full((SIZE_WH[1], SIZE_WH[0], 3), 40, np.uint8)
    x = 10 + 2 * number % 250
    cv2.rectangle(image, (x, 100), (x + 40, 140), (40, 200, 250), cv2.FILLED)
    return image


def write_video(path, seconds=2, fps=10, **metadata):
    with av.open(path, "w") as container:
        container.metadata.update(metadata)
        stream = container.add_stream("libx264", rate=fps, options={"g": "10", "bf": "0"})
        stream.width, stream.height = SIZE_WH
        for number in range(round(seconds * fps)):
            frame = av.VideoFrame.from_ndarray(picture(number), "bgr24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


class MjpegHandler(QuietHandler):
    """Send pictures until the client leaves: the path selects moving ones, a few, or garbage.

    "frozen" moves from the third connection on; "playlist" and "redirect" lead to another path.
    """

    requests, stream = (), b""

    def do_GET(self):  # noqa: N802 - http.server's name
        name = self.path.strip("/")
        MjpegHandler.requests += (name,)
        expected = "Basic " + base64.b64encode(b"viewer:right").decode()
        if name == "guarded" and self.headers.get("Authorization") != expected:
            self.begin(401, www_authenticate='Basic realm="camera"')
            return
        if name in ("playlist", "redirect"):
            status, kind = 200 if name == "playlist" else 302, "application/vnd.apple.mpegurl"
            self.begin(status, location="/inside.ts", content_type=kind)
            self.wfile.write(b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n/inside.ts\n")
            return
        if name.endswith(".jpg"):
            data = cv2.imencode(".jpg", picture(0))[1].tobytes()
            self.begin(**{"content_length": len(data)} if name == "snapshot.jpg" else {})
            self.wfile.write(data)
            return
        if name == "stops.ts":
            self.begin(content_type="video/mp2t")
            self.wfile.write(MjpegHandler.stream)
            time.sleep(30)
        self.begin(content_type="multipart/x-mixed-replace; boundary=frame")
        with suppress(OSError):
            for number in range(10**4):
                if name == "mute" and (number > 3 or MjpegHandler.requests.count(name) > 1):
                    time.sleep(30)
                still = name == "frozen" and (number < 9 or MjpegHandler.requests.count(name) < 3)
                shown = picture(0 if still else number)
                data = cv2.imencode(".jpg", shown)[1].tobytes()
                data = bytes(len(data)) if name == "lying" else data
                of = "jpg" if name == "jpg" else "jpeg"
                head = f"--frame\r\nContent-Type: image/{of}\r\nContent-Length: {len(data)}\r\n\r\n"
                self.wfile.write(head.encode() + data + b"\r\n")
                time.sleep({"slow": 0.2, "lying": 0}.get(name, 0.04))


@pytest.fixture(scope="module")
def mjpeg():
    with SmallServer(MjpegHandler) as server:
        yield f"127.0.0.1:{server.server_port}"


@contextmanager
def opened(address, fps=25, **options):
    with closing(Source(str(address), fps, **options)) as source:
        yield source, source.frames()


def wait_for(source, frames, condition):
    """Take frames until a condition is true; returns the frames."""
    until, taken = time.monotonic() + 120, []
    while not condition():
        assert time.monotonic() < until, source.state
        frame = next(frames)
        taken += [frame] if frame else []
    return taken


def test_every_sampled_frame_of_a_file_is_read_with_its_time(tmp_path):
    path = write_video(tmp_path / "a b.mp4", 4, creation_time="2026-01-31T12:00:00Z")
    data = path.read_bytes()
    matrix = data.index(b"tkhd") + 44
    upright = struct.pack(">9i", 0, 1 << 16, 0, -1 << 16, 0, 0, 0, 0, 1 << 30)  # 90 degrees
    path.write_bytes(data[:matrix] + upright + data[matrix + 36 :])
    with opened(path.as_uri(), 5, crop=(0, 0, 1, 0.75)) as (source, frames):
        taken = []
        for frame in frames:
            taken += [frame] if frame else []
            time.sleep(0.02)  # No frame of a file is dropped, however slow the reader is.
    assert [frame.position_s for frame in taken] == pytest.approx(np.arange(0, 4, 0.2).tolist())
    assert [f.captured for f in taken] == pytest.approx([START + f.position_s for f in taken])
    assert {frame.clock for frame in taken} == {"file"}
    for number, frame in enumerate(taken):
        assert frame.image.shape == (240, 240, 3)
        expected = np.rot90(picture(2 * number), -1)[:240]
        assert np.abs(frame.image.astype(int) - expected).mean() < 4
    state = source.state
    assert (state.status, state.frames_read, state.frames_dropped) == ("ended", 20, 0)


@pytest.mark.parametrize(
    ("name", "fps", "every_s"), [("a.mp4", 10, 2), ("a.h264", 25, 0.2), ("a.ts", 25, 0.2)]
)
def test_frames_may_be_seconds_apart_and_raw_streams_get_times(tmp_path, name, fps, every_s):
    path = write_video(tmp_path / name, 7, fps)
    if name == "a.ts":  # Its packets say that they have no time stamps.
        head_with_times = rb"(?s)(\x00\x00\x01\xe0..[\x80-\x8f])[\x80\xc0]"
        path.write_bytes(re.sub(head_with_times, rb"\1\0", path.read_bytes()))
    os.utime(path, (START, START))
    with opened(path, 1 / every_s) as (_, frames):
        taken = [frame for frame in frames if frame]
    times = [frame.position_s for frame in taken]
    # A file's time is that of its last frame, or of its first one if its duration is unknown.
    assert taken[0].captured == pytest.approx(START - 7 * (name == "a.mp4"), abs=0.1)
    assert times == pytest.approx(np.arange(0, 7, every_s).tolist(), abs=every_s / 8)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        *(("none.mp4", "No such file"), ("/dev/fd/99", "No such file"), ("bad", "Invalid")),
        *(("bad.txt", "it has no video"), ("empty.ts", "it ended before its first picture")),
    ],
)
def test_files_that_cannot_be_read_are_logged_with_their_problem(tmp_path, caplog, name, problem):
    write_files(tmp_path, dict.fromkeys(("bad", "bad.txt"), b"no video at all" * 100))
    begun = write_video(tmp_path / "empty.ts").read_bytes()[:564]  # three packets
    (tmp_path / "empty.ts").write_bytes(begun)
    with opened(tmp_path / name) as (source, frames):
        assert not any(frames)
    assert source.state.status == "failed" and problem in source.state.problem
    assert f"{name}: {problem}" in caplog.text


def test_a_truncated_film_is_read_to_the_cut_and_then_fails(tmp_path):
    clip = (ROOT / "tests" / "clips" / "crossing.mp4").read_bytes()
    (path := tmp_path / "cut.mp4").write_bytes(clip[: len(clip) // 2])
    with opened(path) as (source, frames):
        assert [frame for frame in frames if frame]
    assert (source.state.status, source.state.problem) == ("failed", "its end can't be decoded")


def test_damaged_parts_of_a_stream_are_skipped(tmp_path):
    data = bytearray(write_video(tmp_path / "a.ts", 6).read_bytes())
    middle = len(data) // 2
    data[middle : middle + 800] = np.random.default_rng(1).bytes(800)
    (tmp_path / "a.ts").write_bytes(data)
    with opened(tmp_path / "a.ts", 10) as (_, frames):
        taken = [frame for frame in frames if frame]
    assert len(taken) > 40


def test_the_newest_frame_of_a_stream_is_read_and_dropped_ones_are_counted(mjpeg, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # must be ignored for private addresses
    with opened(f"http://{mjpeg}/moving") as (source, frames):
        wait_for(source, frames, lambda: source.state.frames_read > 2)
        time.sleep(1)
        frame = next(frames)
        state = source.state
        assert state.status == "live" and state.frames_dropped > 10
        assert frame.clock == "arrival" and 0 <= time.time() - frame.captured < 0.5
        assert state.delay_s < 0.5


def test_rtsp_is_read_and_reconnected(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_LONGEST_PAUSE_S", 0.5)
    write_video(tmp_path / "a.mp4", 8)
    port = free_port()
    with opened(f"rtsp://127.0.0.1:{port}/a.mp4") as (source, frames):
        assert next(frames) is None  # None without a frame, so that passes can end.
        assert source.state.problem == "Connection refused"
        for _ in range(2):
            before = source.state.frames_read
            with rtsp_server(tmp_path, port):
                goal = before + 5
                taken = wait_for(source, frames, lambda: source.state.frames_read > goal)  # noqa: B023
                assert source.state.status == "live"
        assert source.state.reconnects >= 2
        times = [frame.captured for frame in taken]
        assert times == sorted(times) and abs(times[-1] - time.time()) < 10
        # The server reports when it took its first picture.
        assert {frame.clock for frame in taken[-3:]} == {"rtcp"}


def test_a_clock_that_is_set_delays_nothing_and_late_readers_read_keyframes(tmp_path, monkeypatch):
    behind_s, real, of = [300.0], time.time, sources._CaptureClock.of
    monkeypatch.setattr(time, "time", lambda: real() - behind_s[0])

    def set_back(clock, frame):  # When this clock is set forward, the camera's seems set back.
        return of(clock, SimpleNamespace(time=(frame.time or 0.0) - 300 + behind_s[0]))

    monkeypatch.setattr(sources._CaptureClock, "of", set_back)
    write_video(tmp_path / "a.mp4", 12)
    with (
        rtsp_server(tmp_path) as port,
        opened(f"rtsp://127.0.0.1:{port}/a.mp4") as (source, frames),
    ):
        wait_for(source, frames, lambda: source.state.frames_read > 22)
        behind_s[0] = 0.0
        taken = wait_for(source, frames, lambda: source.state.frames_read > 34)
        assert np.diff([frame.position_s for frame in taken]).max() == pytest.approx(0.1, abs=0.05)
        monkeypatch.setattr(sources, "_LATE_S", 0.5)
        hand_over = Source._hand_over  # which now takes longer than the time between two frames
        monkeypatch.setattr(Source, "_hand_over", lambda *its: (time.sleep(0.3), hand_over(*its)))
        taken = wait_for(source, frames, lambda: source.state.frames_read > 48)
    assert np.diff([frame.position_s for frame in taken]).max() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(
    ("name", "status", "problem"),
    [
        ("frozen", "frozen", "has not changed"),
        ("mute", "silent", "nothing was received"),
        ("lying", "failed", "no picture that can be decoded"),
    ],
)
def test_a_faulty_stream_is_detected_and_reconnected(mjpeg, monkeypatch, name, status, problem):
    monkeypatch.setattr(sources, "_SILENT_S", 1.0)
    with opened(f"http://{mjpeg}/{name}") as (source, frames):
        wait_for(source, frames, lambda: bool(source.state.problem))
        assert (source.state.status, problem in source.state.problem) == (status, True)
        wait_for(source, frames, lambda: source.state.reconnects > 0)
        wait_for(source, frames, lambda: name != "frozen" or source.state.status == "live")


def test_a_stream_that_stops_is_silent_despite_a_held_picture(tmp_path, mjpeg, monkeypatch, caplog):
    monkeypatch.setattr(sources, "_SILENT_S", 4.0)
    MjpegHandler.stream = write_video(tmp_path / "a.ts").read_bytes()
    with opened(f"http://{mjpeg}/stops.ts") as (source, frames):
        wait_for(source, frames, lambda: source.state.frames_read)
        began = time.monotonic()
        wait_for(source, frames, lambda: source.state.reconnects)
        assert time.monotonic() - began < 7
    assert "nothing was received for 4 s" in caplog.messages[0]


def test_a_stream_may_begin_long_before_its_first_keyframe(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(sources, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def packet(time_s, *frames):
        return SimpleNamespace(
            size=1, is_corrupt=False, decode=lambda: (now.insert(0, time_s), frames)[1]
        )

    packets = [packet(7), packet(20), packet(23, "picture"), packet(30), packet(32)]
    camera = SimpleNamespace(name="rtsp://gate", demux=Mock(return_value=packets))
    decoded = sources._decoded(camera, Mock())
    assert [next(decoded), next(decoded)] == [None, "picture"]
    with pytest.raises(sources.SourceError, match="for 8 s"):
        next(decoded)


@pytest.mark.parametrize("name", ["playlist", "redirect"])
def test_redirects_and_playlists_of_a_camera_are_not_followed(mjpeg, name):
    with opened(f"http://{mjpeg}/{name}") as (source, frames):
        wait_for(source, frames, lambda: source.state.reconnects > 0)
        assert (source.state.status, "redirect" in source.state.problem) == ("failed", True)
    assert name in MjpegHandler.requests and "inside.ts" not in MjpegHandler.requests


@pytest.mark.parametrize("name", ["slow", "jpg", "snapshot.jpg", "without_length.jpg"])
def test_pictures_without_times_have_their_arrival_times(mjpeg, caplog, name):
    with opened(f"http://{mjpeg}/{name}", 6) as (source, frames):
        taken = wait_for(source, frames, lambda: source.state.frames_read > 5)
        assert 0 <= time.time() - taken[-1].captured < 0.5
    assert not caplog.text


@pytest.mark.parametrize("name", ["live.m3u8", "film.mkv"])
def test_playlists_and_films_over_http_are_read_at_their_pace(tmp_path, monkeypatch, name):
    monkeypatch.chdir(write_video(tmp_path / name, 4).parent)
    with SmallServer(SimpleHTTPRequestHandler) as web, opened(f"{web.url}/{name}") as (s, them):
        taken = wait_for(s, them, lambda: s.state.frames_read > 30)
    assert taken[-1].captured - taken[0].captured > 2


def test_a_server_that_accepts_connections_but_never_answers_is_silent(monkeypatch):
    monkeypatch.setattr(sources, "_OPEN_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        with opened(f"rtsp://127.0.0.1:{mute.getsockname()[1]}/a") as (source, frames):
            wait_for(source, frames, lambda: source.state.status == "silent")
            began = time.monotonic()
        assert time.monotonic() - began < 3  # It is closed soon all the same.


def test_no_message_contains_a_password(mjpeg, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    wrong = ("viewer:wrong", "refuses"), ("viewer:ri/ght", "%2F"), ("none.invalid:12#34", "%2F")
    for login, problem in (*wrong, ("viewer:right", "")):
        with opened(f"http://{login}@{mjpeg}/guarded") as (source, frames):
            condition = (lambda: source.state.problem) if problem else (lambda: next(frames))
            wait_for(source, frames, condition)
            assert problem in source.state.problem
            assert login.partition(":")[2] not in source.state.problem
    assert redacted("rtsp://u:p@s/s 1@host/1") == "rtsp://u:***@host/1"
    assert redacted("rtsp://h/user=u&password=p&ch=1") == "rtsp://h/user=u&password=***&ch=1"
    assert redacted("rtsp://h/user=u_password=p_ch=1?s") == "rtsp://h/user=u_password=***"
    assert redacted("http://h/?loginuse=u&loginpas=p") == "http://h/?loginuse=u&loginpas=***"


def test_a_camera_that_is_away_is_retried_with_back_off_and_logged_once(caplog, monkeypatch):
    monkeypatch.setattr(sources, "_FIRST_PAUSE_S", 0.05)
    with opened(f"rtsp://viewer:topsecret@127.0.0.1:{free_port()}/a") as (source, _):
        time.sleep(2)
    assert 2 < source.state.reconnects < 7
    assert caplog.text.count("viewer:***@") == 1
    assert "topsecret" not in source.state.problem + caplog.text


def test_pushed_frames_have_their_own_or_their_arrival_time(monkeypatch):
    frames = PushedFrames(crop=(0, 0.25, 0.5, 1))
    taken = frames.frames()
    assert next(taken) is None and frames.state.status == "silent"
    frames.put(np.zeros((1, 1, 3), np.uint8), START)  # nothing is left of it after the crop
    frames.put(picture(0), START)
    assert next(taken).captured == START and frames.state.status == "live"
    assert next(taken) is None and frames.state.status == "live"  # it may send one each second
    monkeypatch.setattr(sources, "_SILENT_S", 0.0)
    assert next(taken) is None and frames.state.status == "silent"
    frames.put(picture(0), None)
    frame = next(taken)
    assert abs(frame.captured - time.time()) < 5 and frame.clock == "arrival"
    frames.put(picture(0), None)
    frames.put(picture(9), None)
    assert np.array_equal(next(taken).image, picture(9)[60:, :160])
    assert frames.state.frames_dropped == 1
    frames.close()
    assert list(taken) == []


def make_clock():
    kind = SimpleNamespace(name="rtsp", flags=0)
    container = SimpleNamespace(format=kind, start_time_realtime=None)
    return sources._CaptureClock(container, "rtsp://camera", live=True)


def report(pts_s, moment):  # a packet with a sender report: the Unix time of its frame
    side_data = Mock(return_value=struct.pack("=q8x", int(moment * 1e6)))
    return SimpleNamespace(pts=pts_s, time_base=1, has_sidedata=side_data, get_sidedata=side_data)


@pytest.mark.parametrize(
    ("step_s", "waited_s", "most_s"),  # between two frames' times, for a packet, of a frame's delay
    [(0.2, 0, 0.2), (0.1, 0.15, 3.2), (0.19, 0, 8), (0.4, 0.15, 0.3), (0, 0.15, 0.5), (None, 0, 0)],
    ids=["right", "slow", "right, but read too slowly", "fast", "constant", "none"],
)
def test_capture_times_follow_any_times_of_a_camera(monkeypatch, step_s, waited_s, most_s):
    """The camera's clock is a bit slow, too, and this machine's is set."""
    clock, now, set_s, delays, late = make_clock(), START, 0, [], []
    monkeypatch.setattr(time, "time", lambda: now + set_s)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for number in range(5 * 3600 * 3):  # 3 hours at 5 frames a second; delays up to 0.1 s
        now = START + number / 5 + 0.05 * (number % 3)
        set_s = 600 if 3600 < number < 7200 else 0  # forward, and back
        clock.hear(SimpleNamespace(pts=None), waited_s)
        frame = SimpleNamespace(time=None if step_s is None else number * step_s * (1 - 1e-4))
        delays.append(time.time() - clock.of(frame)[0])
        late.append(clock.is_late)
    assert min(delays) >= 0 and max(delays) <= most_s and clock.source == "arrival"
    assert any(late) == (most_s == 8)
    now += 60  # The camera stopped for a minute, and so did its clock.
    assert now - clock.of(frame)[0] <= 8


@pytest.mark.parametrize("ahead_s", [0, 3600, -3600])
def test_the_clock_of_a_camera_that_sends_local_time_as_utc_is_ignored(ahead_s):
    clock, began = make_clock(), time.time() - 0.3 + ahead_s
    clock.hear(report(0, began), 0)
    clock.of(SimpleNamespace(time=0.0))
    assert clock.source == ("arrival" if ahead_s else "rtcp")
    clock.hear(report(9_000, now := time.time()), 0)  # corrects the frames' drift
    assert clock.of(SimpleNamespace(time=9_000.0))[0] == pytest.approx(now, abs=1e-3)


def scene(rng, x=None):
    image = np.full((1080, 1920, 3), 90, np.int16)
    image[400:] = 60
    if x is not None:
        cv2.rectangle(image, (x, 500), (x + 20, 505), (90, 90, 90), cv2.FILLED)
    return np.clip(image + 8 * rng.standard_normal(image.shape, "f4"), 0, 255).astype(np.uint8)


def test_the_motion_of_a_far_plate_is_detected_and_noise_is_not():
    rng, gate = np.random.default_rng(3), MotionGate()
    read = [gate.moved(Frame(scene(rng), START + n / 25, "arrival", 0)) for n in range(20)]
    assert read == [True] + 19 * [False]
    for number in range(1, 6):  # five pixels a frame: walking pace
        frame = Frame(scene(rng, 800 + 5 * number), START + (20 + number) / 25, "arrival", 0)
        read.append(gate.moved(frame))
    assert read[20] and sum(read[20:]) >= 2
    # Without motion a frame is still read every second.
    assert gate.moved(Frame(scene(rng, 825), START + 2.2, "arrival", 0))
