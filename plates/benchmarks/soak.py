"""Run a mixed load for a long time: does memory or the number of open files grow?

The load is moderate: photos of several sizes, hostile files, malformed forms, clients that
disconnect, polls of /metrics. Every few seconds the memory, the open files and the shared memory of
all processes of the service are measured; --json writes them. Before, all requests are sent for a
minute in the order of their size, several at a time, so that pools reach their final size.

Floors, after the first third of the time: resident memory, shared memory and open files do not
grow; that is, the 95 % interval of their slope reaches down to zero, or lies below 1 % of their
level per hour. Every answer is an expected one, and no process ends or starts.
"""

import argparse
import asyncio
import random
from typing import Any

import cv2
import httpx
import numpy as np
import pandas

from plates.benchmarks.load import CLIENT_LEFT, LoadClient, Request, arrivals, sample_requests
from plates.benchmarks.report import Report, Rows, Verdict, none_of
from plates.benchmarks.service import Service, add_service, footprints, service
from plates.cli import CommandError
from plates.cli.options import add_number
from plates.serving.triton import shared_memory

MEBIBYTE = 2**20
# Share of the level, per hour: at this rate it would take four days to double.
_TOLERANCE_PER_HOUR = 0.01
_WARM_UP_SHARE = 1 / 3
# Memory changes in lasting steps: an interval for independent points would report every third flat
# series as a leak. The medians of ten long parts are nearly independent.
_PARTS = 10
EVERY_S, _PATIENCE_S, _FILL_S = 5.0, 40.0, 60.0
LEAST_MINUTES = 2 * _PARTS * EVERY_S / 60  # enough for `_PARTS` on a slow machine, too
# As many as the gateway sends to Triton at a time by default, and some that wait.
_AT_ONCE = 6
# Sums over all processes.
MEMORY, SHARED, FILES = "memory, RSS in MiB", "shared memory, MiB", "open files"
_REFUSED = (400, 413, 415, 422)
# The widths of the photos, in pixels.
_WIDTHS = (480, 480, 480, 1280, 1280, 1280, 1920, 1920, 4000)


def configure(parser: argparse.ArgumentParser) -> None:
    add_service(parser)
    add_number(parser, "--minutes", 20.0, "minutes of load", least=LEAST_MINUTES)
    add_number(parser, "--rate", 6.0, "requests per second", least=0.01)


def run(arguments: argparse.Namespace) -> Report:
    if arguments.url and arguments.pid is None:
        raise CommandError("--url needs --pid of a running `plates serve`, to measure its memory")
    with service(arguments.url, arguments.pid) as serving:
        rows, samples = asyncio.run(soak(serving, arguments.minutes * 60, arguments.rate))
    table = pandas.DataFrame(samples)
    came, trends = answers(rows), trends_of(table)
    unexpected = [row for row in came if not row["expected"]]
    gaps = warm(table).isna().any()
    verdicts = [
        *(steady(trend) for trend in trends if trend["series"] in (MEMORY, SHARED, FILES)),
        none_of("unexpected answers", map("{kind}: {answer}, {requests}x".format_map, unexpected)),
        none_of("processes ended or started", sorted(gaps.index[gaps])),
    ]
    return Report({"answers": came, "trends": trends}, verdicts, {"samples": samples})


async def soak(serving: Service, seconds: float, rate: float) -> tuple[Rows, Rows]:
    """Send `mixed_traffic` at `rate` requests per second, and measure every few seconds.

    Returns the rows of the load (see `load.Load`), and a row for each measurement: "at_s" in
    seconds since the load began, the totals, and the memory of each "part (pid)".
    """
    requests = await asyncio.to_thread(mixed_traffic)
    # At random the largest photos would be in flight together so rarely that pools and heaps would
    # grow for hours, as if there were a leak.
    requests.sort(key=lambda request: len(request.body or b""))
    client = LoadClient(serving.url, requests, _PATIENCE_S)
    rows = (await client.closed_loop(_AT_ONCE, min(_FILL_S, _WARM_UP_SHARE * seconds))).rows
    moments = arrivals(rate, seconds, seed=0)
    mixture = random.Random(0).choices(requests, k=len(moments))  # noqa: S311 - repeatable
    client = LoadClient(serving.url, mixture, _PATIENCE_S)
    sending = asyncio.create_task(client.open_loop(moments))
    await asyncio.sleep(0)  # lets the load begin
    samples: Rows = []
    while not sending.done():
        at_s = client.now()
        samples.append({"at_s": at_s, **await asyncio.to_thread(_measure, serving.pid or 0)})
        await asyncio.wait([sending], timeout=EVERY_S)
    return rows + (await sending).rows, samples


def _measure(pid: int) -> dict[str, float]:
    found = footprints(pid)
    names = found["part"] + " (" + found["pid"].astype(str) + ")"
    memory = found["rss_bytes"] / MEBIBYTE
    shared = sum(path.stat().st_blocks * 512 for path in shared_memory(f"plates_{pid}_"))
    totals = {MEMORY: memory.sum(), SHARED: shared / MEBIBYTE, FILES: found["files"].sum()}
    return totals | dict(zip(names, memory, strict=True))


def answers(rows: Rows) -> Rows:
    """Count the answers to each kind of request; 429 is always expected: the queue may be full."""
    found = pandas.DataFrame(rows)
    found["answer"] = found["status"].astype(str).where(found["status"] > 0, found["error"])
    left, refused = found["error"] == CLIENT_LEFT, found["status"] == 429
    found["expected"] = found["right"] | left | refused
    counts = found.value_counts(["kind", "answer", "expected"], sort=False)
    return list(counts.reset_index(name="requests").to_dict("records"))


def warm(samples: pandas.DataFrame) -> pandas.DataFrame:
    """The measurements after the warm-up, with NaN where a process did not exist."""
    begin = _WARM_UP_SHARE * samples["at_s"].iloc[-1]
    return samples[samples["at_s"] >= begin].dropna(axis="columns", how="all")


def trends_of(samples: pandas.DataFrame) -> Rows:
    """Compute the change of each series per hour after the warm-up: a row of a table.

    "slope/h" is the median of the slopes between all pairs of points (Sen 1968), "low" and "high"
    its 95 % interval.
    """
    from scipy.stats import theilslopes

    found = warm(samples).fillna(0.0)
    parts = found.groupby(np.arange(len(found)) * _PARTS // len(found))
    hours, rows = parts["at_s"].mean() / 3600, []
    for name, medians in parts.median().drop(columns="at_s").items():
        slope, _, low, high = theilslopes(medians, hours, 0.95)
        values = {"median": found[name].median(), "slope/h": slope, "low": low, "high": high}
        rows.append({"series": name, **{key: round(float(v), 2) for key, v in values.items()}})
    return rows


def steady(trend: dict[str, Any]) -> Verdict:
    """Judge whether a series, a row of `trends_of`, does not grow."""
    came = "{slope/h:+.2f} per hour, 95 %: {low:+.2f} to {high:+.2f}".format(**trend)
    least = _TOLERANCE_PER_HOUR * trend["median"]
    holds = trend["low"] <= 0 or trend["high"] <= least
    floor = f"the interval reaches 0, or lies below {least:.2f}"
    return Verdict(trend["series"], came, floor, holds)


def mixed_traffic() -> list[Request]:
    """Make the requests that a public service receives; all are sent equally often."""
    scenes = [request.body or b"" for request in sample_requests(_PATIENCE_S)]
    images = [cv2.imdecode(np.frombuffer(scene, np.uint8), 1) for scene in scenes]
    photo, small = _jpeg(images[0], 1280), _jpeg(images[1], 480)
    clouds = np.random.default_rng(0).integers(0, 255, (9, 16, 3), dtype=np.uint8)
    hostile = [photo[: len(photo) // 3], b"<svg/>"]
    form = _form("redacted", small, path="/v1/plates?redact=true")
    more_to_come = {"Content-Type": "image/jpeg", "Content-Length": str(2 * len(photo))}
    return [
        *(
            Request(_jpeg(image, width), kind=f"photo {width} px")
            for image, width in zip(images, _WIDTHS, strict=False)
        ),
        form,
        Request(_jpeg(clouds, 1280), kind="no plates"),
        *(Request(body, kind="hostile file", expected=_REFUSED) for body in hostile),
        Request(small, headers=form.headers, kind="malformed form", expected=_REFUSED),
        Request(photo, headers=more_to_come, kind="leaves while sending", leaves=True),
        Request(photo, kind="leaves after sending", leaves=True),
        _form("batch", small, small[:2000], photo, path="/v1/plates/batch"),
        *(Request(path=path, kind=path) for path in ("/metrics", "/readyz")),
    ]


def _jpeg(image: Any, width: int) -> bytes:
    size = (width, round(image.shape[0] * width / image.shape[1]))
    scaled = cv2.resize(image, size, interpolation=cv2.INTER_CUBIC)
    return cv2.imencode(".jpg", scaled)[1].tobytes()


def _form(kind: str, *files: bytes, path: str) -> Request:
    parts = [("image", ("a.jpg", content)) for content in files]
    form = httpx.Request("POST", "http://localhost", files=parts)
    return Request(form.read(), path, {"Content-Type": form.headers["Content-Type"]}, kind)
