"""A mixed load for a long time: does anything grow?

Photos of several sizes, photos without plates, files that are no photos, malformed forms,
clients that disconnect, polls of /metrics and /readyz: at a moderate rate, chosen by the seed.
Every few seconds the memory, the open files and the shared memory of all processes of the
service are measured.

First every request is sent once, several at a time, so that pools are as large as they will
ever be.

Floors, after the first third of the time: the service's resident memory, its shared memory
and its open files do not grow; that is, the 95 % interval of their slope reaches down to
zero, or lies below 1 % of their level per hour. No answer that is not expected, and no
process that ends or starts.
"""

import argparse
import asyncio
import random
import struct
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx

from plates.benchmarks import report
from plates.benchmarks.load import CLIENT_LEFT, LoadClient, Request, arrivals
from plates.benchmarks.photos import samples
from plates.benchmarks.report import Verdict
from plates.benchmarks.service import Service, add_service, footprints, segments, service
from plates.cli import CommandError

MEBIBYTE = 2**20
# Of a level, per hour: what surely grows, but by less, would take four days to double.
TOLERANCE_PER_HOUR = 0.01
# In twenty minutes of traffic the heaps of Triton and of the gateway took six to reach their
# size, and grew no more after that.
WARM_UP_SHARE = 1 / 3
# Memory moves in steps that last, and an interval for independent points would call every
# third flat series a leak. The medians of ten long parts are nearly independent.
_PARTS = 10
_PATIENCE_S = 40.0
# Photos that the gateway sends to Triton at a time, by default, and some that wait.
_AT_ONCE = 6
# Of all processes together.
MEMORY, SHARED, FILES = "memory, RSS in MiB", "shared memory, MiB", "open files"
# How many photos there are of each width.
WIDTHS = {480: 3, 1280: 3, 1920: 2, 4000: 1}
_REFUSED = (400, 413, 415, 422)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_service(parser)
    report.add_outputs(parser, "soak")
    report.add_number(parser, "--minutes", 20.0, "of load")
    report.add_number(parser, "--rate", 6.0, "requests per second")
    report.add_number(parser, "--every", 5.0, "seconds between two measurements")
    report.add_number(parser, "--seed", 0, "of the choice of requests", least=0)


def run(arguments: argparse.Namespace) -> int:
    """Soak, print and draw; 0 if every floor holds, else 1."""
    report.make_folders(arguments)
    seconds, numbers = arguments.minutes * 60, (arguments.rate, arguments.every, arguments.seed)
    with service(arguments.url, arguments.pid) as serving:
        if serving.pid is None:
            raise CommandError("--url needs --pid: without it there is no memory to measure")
        found = asyncio.run(soak(serving, seconds, *numbers))
    print(report.describe_machine())
    print(f"{arguments.minutes:g} minutes at {arguments.rate:g} requests/s\n")
    report.print_table(found.answers())
    trends = found.trends()
    print("\nAfter the warm-up; by process RSS in MiB")
    report.print_table(trends)
    status = report.print_verdicts(found.verdicts(trends))
    minutes = [{**sample, "minutes": sample["at_s"] / 60} for sample in found.samples]
    parts = [trend["series"] for trend in trends if "(" in trend["series"]]
    style = {"x": "minutes", "ylim": (0, None)}
    left = (minutes, {**style, "y": parts, "ylabel": "RSS in MiB"})
    right = (minutes, {**style, "y": [MEMORY, SHARED, FILES]})
    figures = {"answers": found.answers(), "trends": trends, "samples": found.samples}
    report.write(arguments, figures, report.panels(left, right))
    return status


@dataclass(frozen=True)
class Soak:
    """What came of it: outcomes of requests, see `load.Load`, and measurements in their order.

    A measurement has "at_s", seconds since the load began, totals, and the resident memory of
    each process by "part (pid)".
    """

    rows: list[dict[str, Any]]
    samples: list[dict[str, float]]

    def answers(self) -> list[dict[str, Any]]:
        """How many requests of each kind got which answers."""
        got: dict[str, Counter[str]] = defaultdict(Counter)
        for row in self.rows:
            got[row["kind"]][_answer(row)] += 1
        return [{"kind": kind, "answers": dict(counts)} for kind, counts in got.items()]

    def unexpected(self) -> dict[str, int]:
        """Count the answers that must not come, by kind; a full queue refuses any with 429."""
        wrong = [row for row in self.rows if not row["right"] and row["status"] != 429]
        return Counter(
            f"{row['kind']}: {_answer(row)}" for row in wrong if row["error"] != CLIENT_LEFT
        )

    def warm(self) -> list[dict[str, float]]:
        """The measurements after the warm-up."""
        begin = self.samples[-1]["at_s"] * WARM_UP_SHARE
        return [sample for sample in self.samples if sample["at_s"] >= begin]

    def trends(self) -> list[dict[str, Any]]:
        """How each series moves after the warm-up: level, slope per hour, and its interval."""
        warm = self.warm()
        times = [sample["at_s"] for sample in warm]
        return [
            {"series": name, **trend_of(times, [sample.get(name, 0.0) for sample in warm])}
            for name in warm[-1]
            if name != "at_s"
        ]

    def verdicts(self, trends: list[dict[str, Any]]) -> list[Verdict]:
        """Judge the totals, the answers and the processes."""
        found = []
        for trend in (one for one in trends if one["series"] in (MEMORY, SHARED, FILES)):
            came = "{slope/h:+.2f} per hour, 95 %: {low:+.2f} to {high:+.2f}".format(**trend)
            least = TOLERANCE_PER_HOUR * trend["median"]
            holds = trend["low"] <= 0 or trend["high"] <= least
            floor = f"the interval reaches 0, or lies below {least:.2f}"
            found.append(Verdict(trend["series"], came, floor, holds))
        wrong = ", ".join(f"{what} {count} times" for what, count in self.unexpected().items())
        changed = ", ".join(sorted(set(self.warm()[0]) ^ set(self.warm()[-1])))
        return [
            *found,
            Verdict("unexpected answers", wrong or "0", "0", not wrong),
            Verdict("processes ended or started", changed or "0", "0", not changed),
        ]


def _answer(row: dict[str, Any]) -> str:
    return str(row["status"] or row["error"])


def trend_of(times_s: Sequence[float], values: Sequence[float]) -> dict[str, float]:
    """Find how a series moves per hour.

    Returns:
        The "median" of all values; "slope/h", the median of the slopes between all pairs of
        points (Sen 1968); "low" and "high", its 95 % interval.

    Raises:
        CommandError: There are too few points.
    """
    import numpy as np
    from scipy.stats import theilslopes

    if len(values) < _PARTS:
        raise CommandError(
            f"a trend needs {_PARTS} measurements after the warm-up, got {len(values)}: "
            "measure longer (--minutes) or more often (--every)"
        )
    hours = [np.mean(part) / 3600 for part in np.array_split(times_s, _PARTS)]
    medians = [np.median(part) for part in np.array_split(values, _PARTS)]
    slope, _, low, high = theilslopes(medians, hours, 0.95)
    found = {"median": np.median(values), "slope/h": slope, "low": low, "high": high}
    return {name: round(float(value), 2) for name, value in found.items()}


async def soak(
    serving: Service, seconds: float, rate: float, every_s: float, seed: int = 0
) -> Soak:
    """Send `mixed_traffic` at `rate` requests per second, and measure every `every_s` seconds."""
    requests = await asyncio.to_thread(mixed_traffic)
    # By chance alone the largest photos meet each other so rarely that pools and heaps would
    # grow for hours, as if there were a leak.
    requests.sort(key=lambda request: len(request.body or b""))
    rows: list[dict[str, Any]] = []
    client = LoadClient(serving.url, requests, _PATIENCE_S)
    for _ in range(0, len(requests), _AT_ONCE):
        rows += (await client.open_loop([0.0] * _AT_ONCE)).rows
    moments = arrivals(rate, seconds, seed)
    dice = random.Random(seed)  # noqa: S311 - repeatable, not secret
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
        "all, PSS in MiB": sum(one.pss_bytes for one in found) / MEBIBYTE,
        SHARED: sum(path.stat().st_blocks * 512 for path in segments(pid)) / MEBIBYTE,
        FILES: sum(one.files for one in found),
        **{f"{one.part} ({one.pid})": one.rss_bytes / MEBIBYTE for one in found},
    }


def mixed_traffic() -> list[Request]:
    """Make the requests that come in through a public door; each is sent as often as another."""
    import cv2
    import numpy as np

    images: list[Any] = [cv2.imread(str(path)) for path in samples()]
    photo, small = _jpeg(images[0], 1280), _jpeg(images[1], 480)
    clouds = np.random.default_rng(0).integers(0, 255, (9, 16, 3), dtype=np.uint8)
    size = photo.index(b"\xff\xc0") + 5
    bomb = photo[:size] + struct.pack(">HH", 65_000, 65_000) + photo[size + 4 :]
    svg = b"<?xml version='1.0'?><!DOCTYPE x SYSTEM 'http://127.0.0.1:1/'><svg/>"
    hostile = [bomb, photo[: len(photo) // 3], svg, bytes(range(256)) * 400]
    form = _form("photo in a form", small)
    malformed: Any = {"kind": "malformed form", "expected": _REFUSED}
    more_to_come = {"Content-Type": "image/jpeg", "Content-Length": str(2 * len(photo))}
    return [
        *(
            Request(_jpeg(image, width), kind=f"photo {width} px")
            for width, count in WIDTHS.items()
            for image in images[:count]
        ),
        *[form, _form("redacted", small, path="/v1/plates?redact=true")],
        Request(_jpeg(clouds, 1280), kind="no plates"),
        *(Request(body, kind="hostile file", expected=_REFUSED) for body in hostile),
        Request(small, headers=form.headers, **malformed),
        replace(_form("", small, small), **malformed),
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
