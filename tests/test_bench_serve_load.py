"""The load of `plates bench serve`: both ways, by a process of its own."""

import asyncio
import os
import signal

import grpc
import pytest
from fake_triton import FakeTriton, refusing
from gateway_client import PHOTO, settings_for
from patience import wait_until
from small_server import OK, always, small_server

from api.triton import TritonClient
from plates.benchmarks.load import Load
from plates.benchmarks.measuring_process import MeasuringProcess
from plates.benchmarks.serve_load import GRPC, HTTP, Order, Stretch, TritonGenerator, offer
from plates.benchmarks.service import Service
from plates.cli import CommandError
from plates.serving import processes


def test_what_measures_is_a_process_of_its_own() -> None:
    with MeasuringProcess({"PLATES_BENCH_TEST": "seen"}) as process:
        pid = process.call(os.getpid)
        assert pid != os.getpid()
        assert process.call(os.getenv, "PLATES_BENCH_TEST") == "seen"
        assert process.call(signal.getsignal, signal.SIGINT) == signal.SIG_IGN
        with pytest.raises(ZeroDivisionError):
            process.call(divmod, 1, 0)
        with pytest.raises(CommandError, match="expected"):
            process.call(_refuse, "expected so much")
    wait_until(lambda: not processes.is_alive(pid))
    assert "PLATES_BENCH_TEST" not in os.environ


def _refuse(message: str) -> None:
    raise CommandError(message)


def ask_triton(fake: FakeTriton, count: int) -> Load:
    async def run() -> Load:
        async with TritonClient(settings_for(fake)) as client:
            generator = TritonGenerator(client, [PHOTO, PHOTO + b"x"], 10)
            return await generator.closed_loop(2, 60, max_count=count)

    return asyncio.run(run())


def test_photos_go_straight_to_triton_in_turn(fake: FakeTriton) -> None:
    load = ask_triton(fake, 4)
    assert [outcome.status for outcome in load.outcomes] == [200] * 4
    assert sorted(fake.photos) == sorted([PHOTO, PHOTO + b"x"] * 2)


def test_what_triton_refuses_is_no_answer_of_200(fake: FakeTriton) -> None:
    fake.reply = refusing(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
    assert {outcome.status for outcome in ask_triton(fake, 2).outcomes} == {429}


def test_a_service_elsewhere_is_offered_http_alone() -> None:
    async def run() -> tuple[Stretch, int]:
        async with small_server(always(OK)) as server:
            serving = Service(f"http://{server.target.host}:{server.target.port}")
            found = await asyncio.to_thread(offer, Order(HTTP, 0.2, 2), serving, [PHOTO])
            return found, len(server.requests)

    found, came = asyncio.run(run())
    assert found.failures == 0
    assert found.cpu_ms == found.batches == {}
    # The warm-up is not among those that count.
    assert 0 < found.summary.requests < came


def test_an_address_that_is_none_is_refused_in_one_line() -> None:
    with pytest.raises(CommandError, match=r"^--triton: .*'nowhere' has no port[^\n]*$"):
        offer(Order(GRPC, 0.1, 1), Service("http://127.0.0.1:1", triton="nowhere"), [PHOTO])


def test_a_triton_without_statistics_is_named(fake: FakeTriton) -> None:
    address = settings_for(fake).triton_address
    with pytest.raises(CommandError, match="statistics"):
        offer(Order(GRPC, 0.1, 1), Service("http://127.0.0.1:1", triton=address), [PHOTO])
