"""A mixed load for a long time: does anything grow?

Photos of several sizes, hostile files, malformed forms, clients that disconnect, polls of
/metrics: at a moderate rate, chosen by the seed. Every few seconds the memory, the open files
and the shared memory of all processes of the service are measured. First every request is sent
once, then a mixture, several at a time, so that pools are as large as they will ever be.

Floors, after the first third of the time: resident memory, shared memory and open files do not
grow; that is, the 95 % interval of their slope reaches down to zero, or lies below 1 % of their
level per hour. No answer that is not expected, and no process that ends or starts.
"""

import argparse
import asyncio
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from plates.benchmarks.load import CLIENT_LEFT, LoadClient, Request, arrivals, sample_requests
from plates.benchmarks.report import Report, Rows, Verdict
from plates.benchmarks.service import Service, add_service, footprints, service
from plates.cli import CommandError
from plates.cli.options import add_number
from plates.serving.processes import leftovers

MEBIBYTE = 2**20
# Of a level, per hour: what surely grows, but by less, would take four days to double.
_TOLERANCE_PER_HOUR = 0.01
WARM_UP_SHARE = 1 / 3
# Memory moves in steps that last, and an interval for independent points would call every
# third flat series a leak. The medians of ten long parts are nearly independent.
_PARTS = 10
EVERY_S, _PATIENCE_S = 5.0, 40.0
# Photos that the gateway sends to Triton at a time, by default, and some that wait.
_AT_ONCE = 6
# Of all processes together.
MEMORY, SHARED, FILES = "memory, RSS in MiB", "shared memory, MiB", "open files"
_REFUSED = (400, 413, 415, 422)
# In pixels: a photo of each.
WIDTHS = (480, 480, 480, 1280, 1280, 1280, 1920, 1920, 4000)


def configure(parser: argparse.ArgumentParser) -> None:
    add_service(parser)
    add_number(parser, "--minutes", 20.0, "of load", least=0.01)
    add_number(parser, "--rate", 6.0, "requests per second", least=0.01)
    add_number(parser, "--seed", 0, "of the choice of requests")


def run(arguments: argparse.Namespace) -> Report:
    if arguments.url and arguments.pid is None:
        raise CommandError("--url needs --pid: without it there is no memory to measure")
    plan = (arguments.minutes * 60, arguments.rate, EVERY_S, arguments.seed)
    with service(arguments.url, arguments.pid) as serving:
        found = asyncio.run(soak(serving, *plan))
    trends, answers, samples = found.trends(), found.answers(), found.samples
    load = f"Answers in {arguments.minutes:g} minutes at {arguments.rate:g} requests/s"
    tables = {load: answers, "After the warm-up; by process RSS in MiB": trends}
    figures = {"answers": answers, "trends": trends, "samples": samples}
    parts = [trend["series"] for trend in trends if "(" in trend["series"]]
    style = {"x": "at_s", "xlabel": "s", "ylim": (0, None)}
    by_process = (samples, {**style, "y": parts, "ylabel": "RSS in MiB"})
    totals = (samples, {**style, "y": [MEMORY, SHARED, FILES]})
    return Report(tables, found.verdicts(), figures, [by_process, totals])


@dataclass(frozen=True)
class Soak:
    """The outcomes of requests, and measurements in their order."""

    rows: Rows  # see `load.Load`
    # "at_s", seconds since the load began, totals, and the memory of each "part (pid)".
    samples: list[dict[str, float]]

    def answers(self) -> Rows:
        """How many requests of each kind got which answers; a full queue refuses any with 429."""
        import pandas

        rows = pandas.DataFrame(self.rows)
        rows["answer"] = rows["status"].astype(str).where(rows["status"] > 0, rows["error"])
        left, refused = rows["error"] == CLIENT_LEFT, rows["status"] == 429
        rows["expected"] = rows["right"] | left | refused
        counts = rows.value_counts(["kind", "answer", "expected"], sort=False)
        return list(counts.reset_index(name="requests").to_dict("records"))

    def warm(self) -> Any:
        """The measurements after the warm-up: a pandas table, NaN where no process was."""
        import pandas

        table = pandas.DataFrame(self.samples)
        warm = table[table["at_s"] >= table["at_s"].iloc[-1] * WARM_UP_SHARE]
        return warm.dropna(axis="columns", how="all")

    def trends(self) -> Rows:
        """How each series moves after the warm-up: level, slope per hour, and its interval."""
        warm = self.warm().fillna(0.0)
        times, series = warm.pop("at_s").to_numpy(), warm.to_dict("list")
        return [{"series": name, **trend_of(times, values)} for name, values in series.items()]

    def verdicts(self) -> list[Verdict]:
        """Judge the totals, the answers and the processes."""
        totals = (MEMORY, SHARED, FILES)
        found = [steady(trend) for trend in self.trends() if trend["series"] in totals]
        unexpected = [row for row in self.answers() if not row["expected"]]
        wrong = ", ".join(map("{kind}: {answer}, {requests} times".format_map, unexpected))
        gaps = self.warm().isna().any()
        changed = ", ".join(sorted(gaps.index[gaps]))
        return [
            *found,
            Verdict("unexpected answers", wrong or "0", "0", not wrong),
            Verdict("processes ended or started", changed or "0", "0", not changed),
        ]


def steady(trend: dict[str, Any]) -> Verdict:
    """Judge whether a series, named in a trend of `trend_of`, does not grow."""
    came = "{slope/h:+.2f} per hour, 95 %: {low:+.2f} to {high:+.2f}".format(**trend)
    least = _TOLERANCE_PER_HOUR * trend["median"]
    holds = trend["low"] <= 0 or trend["high"] <= least
    floor = f"the interval reaches 0, or lies below {least:.2f}"
    return Verdict(trend["series"], came, floor, holds)


def trend_of(times_s: Sequence[float], values: Sequence[float]) -> dict[str, float]:
    """Find how a series moves per hour; raises CommandError if there are too few points.

    "slope/h" is the median of the slopes between all pairs of points (Sen 1968), "low" and "high"
    its 95 % interval.
    """
    import numpy as np
    from scipy.stats import theilslopes

    if len(values) < _PARTS:
        raise CommandError(
            f"a trend needs {_PARTS} measurements after the warm-up, got {len(values)}: "
            "measure longer"
        )
    hours = [np.mean(part) / 3600 for part in np.array_split(times_s, _PARTS)]
    medians = [np.median(part) for part in np.array_split(values, _PARTS)]
    slope, _, low, high = theilslopes(medians, hours, 0.95)
    found = {"median": np.median(values), "slope/h": slope, "low": low, "high": high}
    return {name: round(float(value), 2) for name, value in found.items()}


async def soak(serving: Service, seconds: float, rate: float, every_s: float, seed: int) -> Soak:
    """Send `mixed_traffic` at `rate` requests per second, and measure every `every_s` seconds."""
    requests = await asyncio.to_thread(mixed_traffic)
    # By chance alone the largest photos meet each other so rarely that pools and heaps would
    # grow for hours, as if there were a leak.
    requests.sort(key=lambda request: len(request.body or b""))
    moments = arrivals(rate, seconds, seed)
    dice = random.Random(seed)  # noqa: S311 - repeatable, not secret
    mixture = dice.choices(requests, k=min(len(moments) // 3, 600))
    rows: Rows = []
    client = LoadClient(serving.url, requests + mixture, _PATIENCE_S)
    for _ in range(0, len(requests + mixture), _AT_ONCE):
        rows += (await client.open_loop([0.0] * _AT_ONCE)).rows
    measured: list[dict[str, float]] = []
    client = LoadClient(serving.url, dice.choices(requests, k=len(moments)), _PATIENCE_S)
    sending = asyncio.create_task(client.open_loop(moments))
    await asyncio.sleep(0)  # begins the load
    while not sending.done():
        at_s = client.now()
        measured.append({"at_s": at_s, **await asyncio.to_thread(_measure, serving.pid or 0)})
        await asyncio.wait([sending], timeout=every_s)
    rows += (await sending).rows
    return Soak(rows, measured)


def _measure(pid: int) -> dict[str, float]:
    found = footprints(pid)
    return {
        MEMORY: sum(one.rss_bytes for one in found) / MEBIBYTE,
        SHARED: sum(path.stat().st_blocks * 512 for path in leftovers(f"plates_{pid}_")) / MEBIBYTE,
        FILES: sum(one.files for one in found),
        **{f"{one.part} ({one.pid})": one.rss_bytes / MEBIBYTE for one in found},
    }


def mixed_traffic() -> list[Request]:
    """Make the requests that come in through a public door; each is sent as often as another."""
    import cv2
    import numpy as np

    scenes = [request.body or b"" for request in sample_requests(_PATIENCE_S)]
    images = [cv2.imdecode(np.frombuffer(scene, np.uint8), 1) for scene in scenes]
    photo, small = _jpeg(images[0], 1280), _jpeg(images[1], 480)
    clouds = np.random.default_rng(0).integers(0, 255, (9, 16, 3), dtype=np.uint8)
    size = photo.index(b"\xff\xc0") + 5
    bomb = photo[:size] + struct.pack(">HH", 65_000, 65_000) + photo[size + 4 :]
    hostile = [bomb, photo[: len(photo) // 3], b"<svg/>"]
    form = _form("redacted", small, path="/v1/plates?redact=true")
    more_to_come = {"Content-Type": "image/jpeg", "Content-Length": str(2 * len(photo))}
    return [
        *(
            Request(_jpeg(image, width), kind=f"photo {width} px")
            for image, width in zip(images, WIDTHS, strict=False)
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
    import cv2

    size = (width, round(image.shape[0] * width / image.shape[1]))
    scaled = cv2.resize(image, size, interpolation=cv2.INTER_CUBIC)
    return cv2.imencode(".jpg", scaled)[1].tobytes()


def _form(kind: str, *files: bytes, path: str = "/v1/plates") -> Request:
    parts = [("image", ("a.jpg", content)) for content in files]
    form = httpx.Request("POST", "http://localhost", files=parts)
    return Request(form.read(), path, {"Content-Type": form.headers["Content-Type"]}, kind)
