"""Measure how many cameras this machine can follow: frames dropped, delay, passes, memory.

Each camera has its own RTSP stream, in 1080p and H.264 with sensor noise: a car crosses, then the
street is empty. All cars cross at the same time, so that frames of several cameras must wait. After
a minute the RTSP server ends each stream, and the camera must reconnect. The server runs on the
same cores.
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
from plates.benchmarks.soak import EVERY_S, LEAST_MINUTES, MEBIBYTE, steady, trends_of
from plates.cli import CommandError
from plates.cli.options import add_number
from plates.cli.samples import CLIP, expected_texts

# Between two cars the street is empty for longer than the interval between two measurements.
_CARS, _CAR_EVERY_S, _BITRATE, _NOISE = 5, 12.0, 4_000_000, 2.0
_LIVE_S = 60.0
MEMORY = "memory of all processes, PSS in MiB"


def configure(parser: argparse.ArgumentParser) -> None:
    add_number(parser, "--cameras", 4, "number of cameras", least=1)
    add_number(parser, "--fps", 5.0, "frames per second to read from each camera", least=0.1)
    add_number(parser, "--minutes", 20.0, "minutes of streams", least=LEAST_MINUTES)


def run(arguments: argparse.Namespace) -> Report:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plates-bench-")))
        write_stream(folder / "street.mp4", 25, _CARS, _CAR_EVERY_S)
        port = stack.enter_context(rtsp_server(folder))
        tables = [
            f'[[cameras]]\nname = "camera-{number + 1}"\nfps = {arguments.fps}\n'
            f'source = "rtsp://127.0.0.1:{port}/street.mp4"\n'
            for number in range(arguments.cameras)
        ]
        settings = folder / "cameras.toml"
        settings.write_text("storage = {texts = true}\n" + "".join(tables))
        served = stack.enter_context(service(None, PLATES_CAMERAS=str(settings)))
        local = httpx.Client(base_url=served.url, timeout=30, trust_env=False)  # without a proxy
        client = stack.enter_context(local)
        _wait_until_live(client)
        samples, memory, cores = _measure(client, served.pid, arguments.minutes * 60)
        rows = [_row(client, str(name), states) for name, states in samples.groupby("name")]
    total = pandas.DataFrame(rows).sum(numeric_only=True)
    frames, cars = max(1, total["read"] + total["dropped"]), max(1, total["cars"])
    differ = sum(abs(row["cars"] - row["passes"]) for row in rows)
    [trend] = trends_of(pandas.DataFrame(memory))
    verdicts = [
        at_most("frames dropped", 100 * total["dropped"] / frames, 5, " %"),
        at_most("cars without exactly one pass", 100 * differ / cars, 1, " %"),
        at_most("passes with another text", 100 * total["wrong text"] / cars, 1, " %"),
        steady(trend),
    ]
    tables_of = {"cameras": rows, "cores in use": cores, "memory after the warm-up": [trend]}
    return Report(tables_of, verdicts, {"memory": memory})


def write_stream(path: Path, fps: int, cars: int, every_s: float) -> None:
    """Write a noisy video in which cars cross: H.264, 1080p, a keyframe every two seconds."""
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
    """Serve a folder's videos at rtsp://127.0.0.1:PORT/NAME, once per connection."""
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
        # Each stream needs a thread to send it.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(64))
        server = RtspServer(str(folder), "127.0.0.1", port)
        server.logger = logging.getLogger(__name__)  # The default logger prints every packet.
        await server.start()
        await asyncio.Event().wait()

    asyncio.run(serve())


def free_port() -> int:
    """A port of this machine that is not in use."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _wait_until_live(client: httpx.Client) -> None:
    deadline = time.monotonic() + _LIVE_S
    while not all(camera["state"] and camera["state"]["frames_read"] for camera in _states(client)):
        if time.monotonic() > deadline:
            raise CommandError(f"not all cameras were live after {_LIVE_S:g} s")
        time.sleep(0.2)


def _states(client: httpx.Client) -> Any:
    return client.get("/v1/cameras").raise_for_status().json()["cameras"]


def _measure(
    client: httpx.Client, pid: int | None, seconds: float
) -> tuple[pandas.DataFrame, Rows, Rows]:
    """Measure camera states and memory every few seconds, and the cores that each part uses."""
    began, used = time.time(), total_by_part(pid, "cpu_s")
    states: Rows = []
    memory: Rows = []
    while (now := time.time()) < began + seconds:
        pss = footprints(pid)["pss_bytes"].sum() / MEBIBYTE
        memory.append({"at_s": now - began, MEMORY: pss})
        states += [{"now": now, **one["state"], "name": one["name"]} for one in _states(client)]
        time.sleep(EVERY_S)
    used = total_by_part(pid, "cpu_s") - used
    cores = (used / (time.time() - began)).rename("cores").reset_index()
    return pandas.DataFrame(states), memory, cores[cores["cores"] >= 0.01].to_dict("records")


def _row(client: httpx.Client, name: str, states: pandas.DataFrame) -> dict[str, Any]:
    """Count a camera's frames, cars and passes; returns a row of the table."""
    [[text]] = expected_texts([CLIP]).values()
    first, last = states.iloc[0], states.iloc[-1]
    # Count only streams that have ended: they showed all their cars, and last an empty street.
    streams = int(last["reconnects"])
    over = states["now"][states["reconnects"] == streams].iloc[0] - EVERY_S
    until = datetime.fromtimestamp(over, UTC).isoformat()
    passes = _passes(client, {"camera": name, "until": until, "limit": 500})
    delay_p50, delay_p95 = states["delay_s"].quantile([0.5, 0.95])
    return {
        "camera": name,
        "read": last["frames_read"] - first["frames_read"],
        "dropped": last["frames_dropped"] - first["frames_dropped"],
        "delay p50 s": delay_p50,
        "delay p95 s": delay_p95,
        "reconnects": streams,
        "cars": streams * _CARS,
        "passes": len(passes),
        "wrong text": sum(one["text"] != text for one in passes),
    }


def _passes(client: httpx.Client, query: dict[str, Any]) -> Rows:
    page = client.get("/v1/passes", params=query).raise_for_status().json()
    found: Rows = page["passes"]
    return found + (_passes(client, query | {"before": page["next"]}) if page["next"] else [])
