"""What a real service does with photos that come together, by Triton's own counts."""

import asyncio

import pytest
from command_line import SCENE
from conftest import TritonEndpoints

from api.settings import Settings
from api.triton import TritonClient
from plate_models.cores import usable_cores
from plates.benchmarks.batching import Batches, batches_of, between
from plates.benchmarks.serve_load import (
    GRPC,
    HTTP,
    MODELS,
    Order,
    TritonGenerator,
    models_of,
    offer,
)
from plates.benchmarks.service import Service

pytestmark = pytest.mark.live

SENDERS, PHOTOS, TRIES = 6, 24, 10


def test_photos_of_one_canvas_share_executions_of_the_detector(triton: TritonEndpoints) -> None:
    """How many do is chance: it is enough that some do, in one of some tries."""

    async def counted() -> Batches:
        async with TritonClient(Settings(triton_url=triton.grpc_url)) as client:
            before = batches_of(await client.statistics())
            generator = TritonGenerator(client, [SCENE.read_bytes()], timeout_s=60)
            load = await generator.closed_loop(SENDERS, 120, max_count=PHOTOS)
            assert {outcome.status for outcome in load.outcomes} == {200}
            return between(before, batches_of(await client.statistics()))["yolo"]

    for _ in range(TRIES):
        yolo = asyncio.run(counted())
        assert yolo.requests >= PHOTOS
        assert sum(size * count for size, count in yolo.sizes.items()) == yolo.rows
        assert sum(yolo.sizes.values()) == yolo.executions
        if yolo.executions < yolo.requests:
            return
    pytest.fail(f"{TRIES} times {PHOTOS} photos from {SENDERS} senders never shared one")


@pytest.mark.parametrize("way", [HTTP, GRPC])
def test_a_load_is_measured_both_ways(triton: TritonEndpoints, gateway_url: str, way: str) -> None:
    serving = Service(gateway_url, triton=triton.grpc_url)
    found = offer(Order(way, 1.0, concurrency=2), serving, [SCENE.read_bytes()])
    assert found.failures == 0
    assert set(MODELS) <= set(found.batches)
    assert found.batches["yolo"].requests >= found.summary.requests > 0


def test_graphs_have_no_more_threads_than_there_are_cores(triton: TritonEndpoints) -> None:
    found = {model.model: model for model in models_of(triton.grpc_url)}
    assert set(found) == set(MODELS)
    if triton.embedded is None:
        return  # another machine's cores
    for name in ("yolo", "stn", "lprnet"):
        assert found[name].instances * (found[name].threads or 0) <= usable_cores()
