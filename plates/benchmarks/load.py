"""Load on a service: at a given rate (open loop), or as fast as it answers (closed loop).

In an open loop every latency counts from the moment at which the request was meant to be
sent. A client that waits for answers before it sends the next request hides exactly the
requests that a stalled service would have made wait (coordinated omission: G. Tene, "How
NOT to Measure Latency", 2013).
"""

import asyncio
import io
import itertools
import json
import random
import signal
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any, Self

import aiohttp

from plates.cli.samples import missing_texts

OK = 200
CLIENT_LEFT = "client left"
_LEAVES_AFTER_S = 0.03
# Shorter than the service keeps idle connections: one that it closes is not used again.
_KEEP_IDLE_S = 2.0
_PAUSE_AFTER_FAILURE_S = 0.1
_RAW = {"Content-Type": "image/jpeg"}


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent: a GET without a body, else a POST.

    Attributes:
        kind: A name, to count outcomes by.
        texts: Of the plates that must be read; None where the answer isn't checked.
        leaves_after: The share of the body after which the client closes the connection
            without waiting for the answer; None waits.
    """

    body: bytes | None = None
    path: str = "/v1/plates"
    headers: Mapping[str, str] = field(default_factory=lambda: _RAW)
    kind: str = ""
    texts: Sequence[str] | None = None
    leaves_after: float | None = None


@dataclass(frozen=True)
class Load:
    """A stretch of load.

    Attributes:
        rows: Of each request its kind, "intended_s" (when it was to be sent) and "ended_s" in
            seconds since the load began, status (0 without an answer, and "error" says why),
            "retry_after" (whether the answer has it), and whether it is "right": 200, and all
            of the request's texts were read.
        seconds: To the end of the schedule (open loop) or to the last answer (closed loop).
        cpu_s: Processor time of the client.
    """

    rows: list[dict[str, Any]]
    seconds: float
    cpu_s: float


def summarise(loads: Sequence[Load], deadline_s: float) -> dict[str, Any]:
    """Work out the figures of stretches of the same load: a row of a table.

    "goodput/s" counts what was answered with 200 within the deadline and before the last
    request was sent: a queue that is worked off afterwards would make the service seem
    faster than it is. Percentiles are those of answers with 200.
    """
    import pandas

    frames = [pandas.DataFrame(load.rows).assign(end=load.seconds) for load in loads]
    rows, seconds = pandas.concat(frames), sum(load.seconds for load in loads)
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
        "client CPU ms": round(1000 * sum(load.cpu_s for load in loads) / len(rows), 2),
    }


def arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """Plan a Poisson process: moments in seconds from the start, in order."""
    dice = random.Random(seed)  # noqa: S311 - repeatable, not secret
    gaps = iter(lambda: dice.expovariate(rate), None)
    return list(itertools.takewhile(lambda moment: moment < seconds, itertools.accumulate(gaps)))


class LoadClient:
    """Sends requests in turn, again and again. An asynchronous context manager.

    An answer is waited for `timeout_s` seconds. `rows` and `began_s`, on the clock of
    `time.perf_counter`, are those of the load that is under way; see `Load`.
    """

    def __init__(self, url: str, requests: Iterable[Request], timeout_s: float) -> None:
        self.rows: list[dict[str, Any]] = []
        self.began_s = 0.0
        self._url, self._requests = url, itertools.cycle(requests)
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_IDLE_S)
        self._session = aiohttp.ClientSession(connector=connector, timeout=self._timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def open_loop(self, schedule: Sequence[float]) -> Load:
        """Send at the given moments, from `arrivals`, whatever becomes of earlier requests."""
        cpu_s, under_way = self._begin(), []
        for intended in schedule:
            await asyncio.sleep(intended - self._now())
            under_way.append(asyncio.create_task(self._send(next(self._requests), intended)))
        seconds = self._now()
        await asyncio.gather(*under_way)
        return Load(self.rows, seconds, time.process_time() - cpu_s)

    async def closed_loop(self, concurrency: int, seconds: float, pause_s: float = 0.0) -> Load:
        """Keep so many requests under way, each sent when the one before it is answered.

        Args:
            concurrency: How many.
            seconds: After which no more are sent.
            pause_s: Between an answer and the next request.
        """

        async def one_after_another() -> None:
            while (now := self._now()) < seconds:
                answered = await self._send(next(self._requests), now)
                await asyncio.sleep(pause_s if answered else max(pause_s, _PAUSE_AFTER_FAILURE_S))

        cpu_s = self._begin()
        await asyncio.gather(*(one_after_another() for _ in range(concurrency)))
        return Load(self.rows, self._now(), time.process_time() - cpu_s)

    def _begin(self) -> float:
        self.rows, self.began_s = [], time.perf_counter()
        return time.process_time()

    def _now(self) -> float:
        return time.perf_counter() - self.began_s

    async def _send(self, request: Request, intended: float) -> bool:
        """Send a request and note what became of it; whether it was answered with 200."""
        status, retry_after, right, error = 0, False, False, ""
        try:
            status, retry_after, right = await self._exchange(request)
        except TimeoutError:
            error = "no answer in time"
        except (aiohttp.ClientError, OSError) as broken:
            error = f"{type(broken).__name__}: {broken}"
        if request.leaves_after is not None:
            status, error = 0, CLIENT_LEFT
        row = {"kind": request.kind, "intended_s": intended, "ended_s": self._now()}
        answer = {"status": status, "retry_after": retry_after, "right": right, "error": error}
        self.rows.append(row | answer)
        return status == OK

    async def _exchange(self, request: Request) -> tuple[int, bool, bool]:
        """Send one request; its status, whether it has Retry-After, and whether it is right."""
        headers, body, leaves_s = dict(request.headers), request.body, None
        data: io.BytesIO | AsyncIterator[bytes] | None = io.BytesIO(body) if body else None
        if body and request.leaves_after is not None:
            leaves_s, headers["Content-Length"] = _LEAVES_AFTER_S, str(len(body))
            data = _part_of(body, request.leaves_after)
        method, url = "GET" if body is None else "POST", self._url + request.path
        sending = self._session.request(method, url, data=data, headers=headers)
        async with asyncio.timeout(leaves_s), sending as response:
            answer = await response.read()
        right = response.status == OK
        if right and request.texts is not None:
            read = [plate["text"] for plate in json.loads(answer)["plates"]]
            right = not missing_texts(request.texts, read)
        return response.status, response.headers.get("Retry-After", "").isdigit(), right


async def _part_of(body: bytes, share: float) -> AsyncIterator[bytes]:
    """Yield the first part of a body; the rest never comes."""
    yield body[: round(len(body) * share)]
    await asyncio.sleep(3600)


def process_of_its_own() -> ProcessPoolExecutor:
    """Make a process for a load client, so that its memory is not shared with the service.

    It runs one call at a time, and leaves Ctrl-C to this process.
    """
    ignored = (signal.SIGINT, signal.SIG_IGN)
    return ProcessPoolExecutor(1, get_context("spawn"), signal.signal, ignored)


def post_for(url: str, photo: bytes, at_once: int, seconds: float, timeout_s: float) -> Load:
    """Post a photo in a closed loop, in an event loop of its own."""

    async def run() -> Load:
        async with LoadClient(url, [Request(photo)], timeout_s) as client:
            return await client.closed_loop(at_once, seconds)

    return asyncio.run(run())
