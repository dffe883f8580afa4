"""Load on the gateway, or past it on Triton, and what the service did meanwhile.

Called in a `MeasuringProcess`, whose CPU time is the load generator's.
"""

import asyncio
import itertools
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from plates.benchmarks.batching import Batches, Served, batches_of, between, served_as
from plates.benchmarks.footprint import cpu_by_part
from plates.benchmarks.http1 import build_request
from plates.benchmarks.load import Generator, LoadGenerator, arrivals
from plates.benchmarks.service import Service
from plates.benchmarks.summary import OK, Summary, summarise
from plates.cli import CommandError
from plates.cli.options import triton_client

if TYPE_CHECKING:
    from api.triton import TritonClient

T = TypeVar("T")

HTTP, GRPC = "HTTP", "gRPC"
MODELS = ("plate_recognition", "yolo", "stn", "lprnet")
TIMEOUT_S = 30.0
# Before each load, unmeasured: connections, and what grows with so many photos at once.
_WARM_UP_S = 1.0
# Sizes of photos whose canvases differ: landscape, square, portrait; equally many pixels.
MIXED_WH = ((1920, 1080), (1440, 1440), (1080, 1920))


@dataclass(frozen=True)
class Order:
    """One stretch of load.

    Attributes:
        way: ``HTTP`` through the gateway, or ``GRPC`` straight to Triton.
        seconds: How long.
        concurrency: Of a closed loop; 0 in an open one.
        rate: Photos per second of an open loop; 0 in a closed one.
        mixed: Photos of three canvases in turn, instead of one photo.
    """

    way: str
    seconds: float
    concurrency: int = 0
    rate: float = 0.0
    mixed: bool = False


@dataclass(frozen=True)
class Stretch:
    """What came of it.

    Attributes:
        order: What was offered.
        summary: Latencies and rates.
        cpu_ms: CPU time of each part of the service per photo, in milliseconds; empty
            where it runs elsewhere.
        batches: What each model did; empty without Triton's address.
    """

    order: Order
    summary: Summary
    cpu_ms: Mapping[str, float]
    batches: Mapping[str, Batches]

    @property
    def failures(self) -> int:
        """Requests that were not answered with 200."""
        return self.summary.requests - self.summary.statuses.get(OK, 0)


class TritonGenerator(LoadGenerator):
    """Asks Triton itself, over gRPC."""

    def __init__(self, client: "TritonClient", photos: Sequence[bytes], timeout_s: float) -> None:
        """Describe the load; nothing is sent yet.

        Args:
            client: To Triton.
            photos: Sent in turn.
            timeout_s: After which an answer is not waited for any more.
        """
        super().__init__(timeout_s)
        self._client, self._photos = client, itertools.cycle(photos)

    async def _exchange(self) -> tuple[int, float | None]:
        from api.errors import Problem

        try:
            await self._client.recognize(next(self._photos), self._timeout_s)
        except Problem as problem:
            return problem.status, None
        return OK, None


def photos_for(mixed: bool) -> list[bytes]:
    """Make the photos that are sent.

    Args:
        mixed: One for each canvas, each with two plates, instead of the standard photo.
    """
    from plates.benchmarks.photos import standard_photo

    if not mixed:
        return [standard_photo()]
    import cv2
    import numpy as np

    from plate_models.training.synthetic.scenes import render_scene

    scenes = (render_scene(np.random.default_rng(0), size, plates=2) for size in MIXED_WH)
    return [cv2.imencode(".jpg", scene.image[..., ::-1])[1].tobytes() for scene in scenes]


def offer(order: Order, serving: Service, photos: Sequence[bytes]) -> Stretch:
    """Offer one stretch of load, after a short warm-up.

    Args:
        order: What.
        serving: The service; ``GRPC`` needs its Triton's address.
        photos: From `photos_for`.

    Raises:
        CommandError: Triton does not tell what it did.
    """
    return _run(_offer(order, serving, photos))


async def _offer(order: Order, serving: Service, photos: Sequence[bytes]) -> Stretch:
    if serving.triton is None:
        return await _measured(order, serving, len(photos), http_generator(serving, photos))
    async with triton_client(serving.triton) as client:
        generator = (
            TritonGenerator(client, photos, TIMEOUT_S)
            if order.way == GRPC
            else http_generator(serving, photos)
        )
        return await _measured(order, serving, len(photos), generator, client)


async def _measured(
    order: Order,
    serving: Service,
    photos: int,
    generator: LoadGenerator,
    client: "TritonClient | None" = None,
) -> Stretch:
    at_once = order.concurrency or 1
    # Each photo once: the first of a canvas has the detector compiled for it.
    await generator.closed_loop(at_once, TIMEOUT_S, max_count=photos)
    await generator.closed_loop(at_once, min(_WARM_UP_S, order.seconds / 4))
    before = batches_of(await client.statistics()) if client else {}
    cpu_s = cpu_by_part(serving.pid)
    if order.concurrency:
        load = await generator.closed_loop(order.concurrency, order.seconds)
    else:
        load = await generator.open_loop(arrivals(order.rate, order.seconds, seed=0))
    used = {part: now - cpu_s.get(part, 0.0) for part, now in cpu_by_part(serving.pid).items()}
    after = batches_of(await client.statistics()) if client else {}
    summary = summarise([load], TIMEOUT_S)
    count = max(summary.statuses.get(OK, 0), 1)
    per_photo = {part: seconds / count * 1000 for part, seconds in used.items()}
    return Stretch(order, summary, per_photo, between(before, after))


def http_generator(serving: Service, photos: Sequence[bytes]) -> Generator:
    """Post JPEG files, in turn, through a service's gateway."""
    headers = {"Content-Type": "image/jpeg"}
    requests = [
        build_request(serving.target, "POST", "/v1/plates", photo, headers) for photo in photos
    ]
    return Generator(serving.target, requests, TIMEOUT_S)


def models_of(address: str) -> list[Served]:
    """Ask a Triton how it serves its models.

    Args:
        address: host:port of its gRPC.

    Raises:
        CommandError: It does not answer as documented.
    """

    async def ask() -> list[Served]:
        async with triton_client(address) as client:
            return [served_as(await client.configuration(name)) for name in MODELS]

    return _run(ask())


def _run(work: Coroutine[Any, Any, T]) -> T:
    from api.errors import Problem

    try:
        return asyncio.run(work)
    except (Problem, ValueError, KeyError) as error:
        raise CommandError(f"Triton's statistics or configuration: {error}") from error
