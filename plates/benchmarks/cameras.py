"""How many cameras this machine carries: frames read and dropped, delay, passes, memory.

Each camera is an RTSP stream of its own, in 1080p and H.264 with sensor noise: a car crosses, then
the street is empty; all do so at the same time, so that frames have to wait for each other. After a
minute the server ends the stream, and the camera must connect again. The server runs on the same
cores.
"""

import argparse
import asyncio
import contextlib
import logging
import socket
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import av
import httpx
import numpy as np
import pandas

from plates.benchmarks.report import Report, Rows, at_most
from plates.benchmarks.service import footprints, service, total_by_part
from plates.benchmarks.soak import EVERY_S, MEBIBYTE, steady, trends_of
from plates.cli import CommandError
from plates.cli.options import add_number
from plates.cli.samples import CLIP, expected_texts

# Between two cars the street is empty for longer than the measurements lie apart.
_CARS, _CAR_EVERY_S, _BITRATE, _NOISE = 5, 12.0, 4_000_000, 2.0
_LIVE_S = 60.0
MEMORY = "memory of all processes, PSS in MiB"


def configure(parser: argparse.ArgumentParser) -> None:
    add_number(parser, "--cameras", 4, "that are watched", least=1)
    add_number(parser, "--fps", 5.0, "frames a second of each that are to be read", least=0.1)
    add_number(parser, "--minutes", 20.0, "of streams", least=0.5)


def run(arguments: argparse.Namespace) -> Report:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plates-bench-")))
        write_stream(folder / "street.mp4", 25, _CARS, _CAR_EVERY_S)
        port = stack.enter_context(rtsp_server(folder))
        names = [f"camera-{number + 1}" for number in range(arguments.cameras)]
        tables = [
            f'[[cameras]]\nname = "{name}"\nfps = {arguments.fps}\n'
            f'source = "rtsp://127.0.0.1:{port}/street.mp4"\n'
            for name in names
        ]
        settings = folder / "cameras.toml"
        settings.write_text("storage = {texts = true}\n" + "".join(tables))
        served = stack.enter_context(service(None, PLATES_CAMERAS=str(settings)))
        with httpx.Client(base_url=served.url, timeout=30) as client:
            _wait_until_live(client)
            samples, cores = _measure(client, served.pid, arguments.minutes * 60)
            passes = _passes(client)
    return _report(names, samples, passes, cores)


def write_stream(path: Path, fps: int, cars: int, every_s: float) -> None:
    """Write a street in which cars cross: H.264 in 1080p, a keyframe every two seconds, noisy."""
    with av.open(CLIP) as clip:
        pictures = [(f.time or 0.0, f.to_ndarray(format="yuv420p")) for f in clip.decode(video=0)]
    times, dice = np.array([moment for moment, _ in pictures]), np.random.default_rng(0)
    noises = dice.normal(0, _NOISE, (8, *pictures[0][1].shape)).astype(np.int8)
    with av.open(path, "w") as container:
        stream = container.add_stream("libx264", rate=fps, options={"preset": "veryfast"})
        stream.bit_rate, stream.gop_size, stream.max_b_frames = _BITRATE, 2 * fps, 0
        height, width = pictures[0][1].shape
        stream.width, stream.height = width, height * 2 // 3
        for number in range(round(cars * every_s * fps)):
            moment = number / fps % every_s
            picture = pictures[int(np.searchsorted(times, moment, "right")) - 1][1]
            noisy = np.clip(picture + noises[number % len(noises)].astype(np.int16), 0, 255)
            frame = av.VideoFrame.from_ndarray(noisy.astype(np.uint8), "yuv420p")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


@contextlib.contextmanager
def rtsp_server(folder: Path, port: int = 0) -> Iterator[int]:
    """Serve a folder's videos at rtsp://127.0.0.1:PORT/NAME, each once a connection."""
    port = port or free_port()
    process = get_context("spawn").Process(target=_serve_rtsp, args=(folder, port), daemon=True)
    process.start()
    try:
        yield port
    finally:
        process.kill()
        process.join()


def _serve_rtsp(folder: Path, port: int) -> None:
    from aio_rtsp_toolkit.server import RtspServer

    async def serve() -> None:
        # A thread sends each stream.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(64))
        server = RtspServer(str(folder), "127.0.0.1", port)
        server.logger = logging.getLogger(__name__)  # Its own prints every packet.
        await server.start()
        await asyncio.Event().wait()

    asyncio.run(serve())


def free_port() -> int:
    """A port of this machine that is not in use."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _wait_until_live(client: httpx.Client) -> None:
    deadline = time.monotonic() + _LIVE_S
    while not all(s["state"] and s["state"]["frames_read"] for s in _states(client)):
        if time.monotonic() > deadline:
            raise CommandError(f"not all cameras were live after {_LIVE_S:g} s")
        time.sleep(0.2)


def _measure(client: httpx.Client, pid: int | None, seconds: float) -> tuple[Rows, Rows]:
    """States of the cameras and memory every few seconds, and the cores that each part used."""
    began, used = time.time(), total_by_part(pid, "cpu_s")
    samples: Rows = []
    while (now := time.time()) < began + seconds:
        memory = footprints(pid)["pss_bytes"].sum() / MEBIBYTE
        states = {state["name"]: state["state"] for state in _states(client)}
        samples.append({"now": now, "at_s": now - began, MEMORY: memory, "cameras": states})
        time.sleep(EVERY_S)
    used = total_by_part(pid, "cpu_s") - used
    cores = (used / (time.time() - began)).rename("cores").reset_index()
    return samples, cores[cores["cores"] >= 0.01].to_dict("records")


def _states(client: httpx.Client) -> Any:
    return client.get("/v1/cameras").raise_for_status().json()["cameras"]


def _passes(client: httpx.Client) -> Rows:
    found: Rows = []
    query = {"limit": 500}
    while True:
        page = client.get("/v1/passes", params=query).raise_for_status().json()
        found += page["passes"]
        if page["next"] is None:
            return found
        query["before"] = page["next"]


def _report(names: list[str], samples: Rows, passes: Rows, cores: Rows) -> Report:
    [[text]] = expected_texts([CLIP]).values()
    rows = [_row(n, samples, [p for p in passes if p["camera"] == n], text) for n in names]
    total = pandas.DataFrame(rows).sum(numeric_only=True)
    differ = sum(abs(row["cars"] - row["passes"]) for row in rows)
    [trend] = trends_of(pandas.DataFrame(samples)[["at_s", MEMORY]])
    frames, cars = max(1, total["read"] + total["dropped"]), max(1, total["cars"])
    verdicts = [
        at_most("frames dropped", 100 * total["dropped"] / frames, 5, " %"),
        at_most("cars without exactly one pass", 100 * differ / cars, 1, " %"),
        at_most("passes with another text", 100 * total["wrong text"] / cars, 1, " %"),
        steady(trend),
    ]
    tables = {"Cameras": rows, "Cores in use": cores, "After the warm-up": [trend]}
    return Report(tables, verdicts, {**tables, "samples": samples})


def _row(name: str, samples: Rows, passes: Rows, text: str) -> dict[str, Any]:
    states = [sample["cameras"][name] for sample in samples]
    first, last = states[0], states[-1]
    # Streams that have ended show all their cars, and an empty street in the end.
    streams = last["reconnects"]
    over = next(s["now"] for s in samples if s["cameras"][name]["reconnects"] == streams) - EVERY_S
    begin = datetime.fromtimestamp(over, UTC).isoformat()
    counted = [one for one in passes if one["time"]["first"] < begin]
    delay_p50, delay_p95 = np.percentile([state["delay_s"] for state in states], (50, 95)).tolist()
    return {
        "camera": name,
        "read": last["frames_read"] - first["frames_read"],
        "dropped": last["frames_dropped"] - first["frames_dropped"],
        "delay p50 s": delay_p50,
        "delay p95 s": delay_p95,
        "reconnects": streams,
        "cars": streams * _CARS,
        "passes": len(counted),
        "wrong text": sum(one["text"] != text for one in counted),
    }
