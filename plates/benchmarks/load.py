"""Load on a service: at a given rate (open loop), or as fast as it answers (closed loop).

In an open loop every latency counts from the moment at which the request was scheduled: a client
that waits for answers before it sends hides the requests that a stalled service would have delayed
(coordinated omission: G. Tene, "How NOT to Measure Latency", 2013).
"""

import asyncio
import io
import itertools
import json
import time
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import numpy as np
import pandas

from plates.benchmarks.report import Rows
from plates.cli.samples import SAMPLES, expected_texts, missing_texts

OK = 200
# All figures of speed are for this photo, unless another is named. 1920x1080, 380 kB: a street by
# day with two cars, whose plates say Y287KT754 and C946MX550.
STANDARD_PHOTO = Path(__file__).with_name("standard_photo.jpg")
CLIENT_LEFT = "client left"
_LEAVES_AFTER_S = 0.03
_PAUSE_AFTER_FAILURE_S = 0.1


@dataclass(frozen=True, slots=True)
class Request:
    """A GET if there is no body, else a POST; `kind` is the name by which outcomes are counted.

    An answer is right if its status is `expected` and it has the `texts`, if they are given. A
    client that `leaves` disconnects instead of waiting for the answer.
    """

    body: bytes | None = None
    path: str = "/v1/plates"
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "image/jpeg"})
    kind: str = ""
    expected: Collection[int] = (OK,)
    texts: Sequence[str] | None = None
    leaves: bool = False


class Load(NamedTuple):
    """The outcomes and the duration of a load.

    A row is a request: its "kind", "intended_s" (when it was scheduled) and "ended_s" in seconds
    since the load began, "status" (0 without an answer; then "error" says why), "retry_after"
    (whether it has Retry-After), and "right" (whether it was answered right).
    """

    rows: Rows
    seconds: float


def sample_requests(deadline_s: float) -> list[Request]:
    """The scenes of tests/samples, with the texts that must be read in each."""
    headers = {"Content-Type": "image/jpeg", "X-Request-Timeout": f"{deadline_s:g}"}
    return [
        Request(path.read_bytes(), headers=headers, kind="photo", texts=texts)
        for path, texts in expected_texts(sorted(SAMPLES.glob("*.jpg"))).items()
    ]


def summarise(loads: Sequence[Load], deadline_s: float) -> dict[str, Any]:
    """Compute the figures of several periods of the same load: a row of a table.

    "goodput/s" counts answers with 200 within the deadline and before the last request was sent:
    answers to the queue that is left then would flatter the service.
    """
    rows = pandas.concat(pandas.DataFrame(load.rows).assign(end=load.seconds) for load in loads)
    seconds = sum(load.seconds for load in loads)
    latency, accepted = rows["ended_s"] - rows["intended_s"], rows["status"] == OK
    good = accepted & (latency <= deadline_s) & (rows["ended_s"] <= rows["end"])
    percentiles = (1000 * latency[accepted].quantile([0.5, 0.95, 0.99])).round(1)
    refused = rows[rows["status"].isin([429, 503])]
    return {
        "offered/s": round(len(rows) / seconds, 1),
        "goodput/s": round(float(good.sum()) / seconds, 2),
        **dict(zip(("p50 ms", "p95 ms", "p99 ms"), percentiles.tolist(), strict=True)),
        "requests": len(rows),
        "statuses": rows["status"].value_counts().sort_index().to_dict(),
        "errors": rows["error"][rows["error"] != ""].value_counts().to_dict(),
        "without Retry-After": int((~refused["retry_after"]).sum()),
    }


def arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """Draw a Poisson process: sorted moments in seconds from the start."""
    dice = np.random.default_rng(seed)
    return sorted(dice.uniform(0, seconds, dice.poisson(rate * seconds)).tolist())


class LoadClient:
    """Sends requests in turn, again and again, and waits `timeout_s` seconds for each answer.

    `rows` are those of the load in progress; see `Load`.
    """

    def __init__(self, url: str, requests: Iterable[Request], timeout_s: float) -> None:
        self.rows: Rows = []
        self._began_s = 0.0
        self._url, self._requests, self._timeout_s = url, itertools.cycle(requests), timeout_s

    async def open_loop(self, schedule: Sequence[float]) -> Load:
        """Send at the given moments (see `arrivals`), without waiting for answers."""

        async def send_at(intended: float) -> None:
            await asyncio.sleep(intended - self.now())
            await self._send(next(self._requests), intended)

        await self._run(map(send_at, schedule))
        return Load(self.rows, max(schedule, default=0.0))

    async def closed_loop(self, concurrency: int, seconds: float) -> Load:
        """Keep `concurrency` requests in flight, and send no more after `seconds`."""

        async def one_after_another() -> None:
            while (now := self.now()) < seconds:
                if not await self._send(next(self._requests), now):
                    await asyncio.sleep(_PAUSE_AFTER_FAILURE_S)

        await self._run(one_after_another() for _ in range(concurrency))
        return Load(self.rows, self.now())

    def now(self) -> float:
        """Seconds since the load began."""
        return time.perf_counter() - self._began_s

    async def _run(self, work: Iterable[Coroutine[Any, Any, None]]) -> None:
        self.rows, self._began_s = [], time.perf_counter()
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as self._session:
            await asyncio.gather(*work)

    async def _send(self, request: Request, intended: float) -> bool:
        """Send a request and record its outcome; returns whether the status was 200."""
        method, url = "GET" if request.body is None else "POST", self._url + request.path
        # aiohttp would copy bytes, and warn about 1 MiB or more.
        data = None if request.body is None else io.BytesIO(request.body)
        row = {"kind": request.kind, "intended_s": intended, "status": 0, "error": ""}
        row |= {"retry_after": False, "right": False}
        try:
            async with (
                asyncio.timeout(_LEAVES_AFTER_S if request.leaves else self._timeout_s),
                self._session.request(method, url, data=data, headers=request.headers) as got,
            ):
                content = await got.read()
        except TimeoutError:
            row["error"] = "no answer in time"
        except (aiohttp.ClientError, OSError) as broken:
            row["error"] = f"{type(broken).__name__}: {broken}"
        else:
            row |= {"status": got.status, "right": got.status in request.expected}
            row["retry_after"] = got.headers.get("Retry-After", "").isdigit()
            if row["right"] and request.texts is not None:
                read = [plate["text"] for plate in json.loads(content)["plates"]]
                row["right"] = not missing_texts(request.texts, read)
        if request.leaves:
            row |= {"status": 0, "error": CLIENT_LEFT}
        self.rows.append(row | {"ended_s": self.now()})
        return row["status"] == OK
