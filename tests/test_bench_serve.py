"""`plates bench serve`: its floors, Triton's statistics, its helpers, its orders."""

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from fake_triton import FakeTriton, refusing
from gateway_client import PHOTO, settings_for
from patience import wait_until
from small_server import OK, always, small_server

from api import cli
from api.bench import report, serve, serve_load
from api.bench.batching import Batches, Served, batches_of, between, served_as
from api.bench.helpers import Helper
from api.bench.load import Load, Outcome
from api.bench.serve_load import GRPC, HTTP, Order, Stretch, TritonGenerator, offer
from api.bench.serve_pairing import Round
from api.bench.serve_report import draw_serve, print_bench
from api.bench.serve_result import ServeBench
from api.bench.service import Service
from api.bench.summary import summarise
from api.commands import CommandError
from api.embedded import processes
from api.triton import TritonClient

GOOD_ROUND = Round(
    in_process_p50=0.050,
    decode_p50=0.008,
    http_p50=0.060,
    in_process_rate=20.0,
    processes_rate=25.0,
    http_rate=20.0,
    idle_service=0.01,
    idle_helpers=0.0,
)


def stretch(way: str, at_once: int, sharing: int = 1, mixed: bool = False) -> Stretch:
    """Six photos a second at a tenth of a second each; `sharing` of them in an execution."""
    outcomes = [Outcome(index / 10, 0.1, 200) for index in range(60)]
    yolo = Batches(60, 60, 60 // sharing, {sharing: 60 // sharing})
    order = Order(way, 10.0, concurrency=at_once, rate=0.0 if at_once else 6.0, mixed=mixed)
    summary = summarise([Load(outcomes, 10.0, cpu_s=0.06)], 30.0)
    return Stretch(order, summary, {"worker": 5.0, "stub yolo": 30.0}, {"yolo": yolo})


GOOD = ServeBench(
    machine="a machine",
    cores=2,
    ready_s=8.0,
    rounds=[GOOD_ROUND] * 3,
    stretches=[
        *(stretch(way, 1) for way in (HTTP, GRPC)),
        *(stretch(way, 4, sharing=2) for way in (HTTP, GRPC)),
        stretch(HTTP, 0),
        stretch(GRPC, 0),
        stretch(HTTP, 4, mixed=True),
    ],
    pss_mb={"worker": 80.0, "stub yolo": 500.0},
    models=[Served("yolo", "openvino", 1, 2), Served("plate_recognition", "python", 4, None)],
)


def failing(bench: ServeBench) -> ServeBench:
    """One of the photos is answered with 503."""
    outcomes = [Outcome(0.0, 0.1, 200), Outcome(0.1, 0.1, 503)]
    bad = replace(bench.stretches[0], summary=summarise([Load(outcomes, 10.0)], 30.0))
    return replace(bench, stretches=[bad, *bench.stretches[1:]])


def test_all_is_told_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_bench(GOOD)
    told = capsys.readouterr().out
    assert "4 at once, mixed" in told
    assert "2.00 / 2.00" in told
    assert "580" in told  # MB in sum
    draw_serve(GOOD, tmp_path / "serve.png")
    report.write_json(tmp_path / "serve.json", asdict(GOOD))
    assert json.loads((tmp_path / "serve.json").read_text())["ready_s"] == 8
    assert report.print_verdicts(GOOD.verdicts()) == 0


def test_an_empty_bench_is_told_and_drawn(tmp_path: Path) -> None:
    empty = ServeBench("a machine", 2, None, [], [])
    print_bench(empty)
    draw_serve(empty, tmp_path / "serve.png")
    assert [verdict.what for verdict in empty.verdicts()] == ["photos that were not read"]


@pytest.mark.parametrize(
    ("found", "missed"),
    [
        (replace(GOOD, ready_s=10.1), "from `plates serve` to ready: 10.1 s"),
        (replace(GOOD, pss_mb={"worker": 400.0, "stub yolo": 301.0}), "memory of all processes"),
        (replace(GOOD, rounds=[replace(GOOD_ROUND, http_p50=0.0621)]), "p50 of HTTP minus"),
        (replace(GOOD, rounds=[replace(GOOD_ROUND, http_rate=18.7)]), "photos/s of HTTP"),
        (replace(GOOD, rounds=[replace(GOOD_ROUND, in_process_rate=26.7)]), "photos/s of HTTP"),
        (replace(GOOD, stretches=[stretch(HTTP, 1, 2), stretch(HTTP, 4)]), "photos of one canvas"),
        (replace(GOOD, models=[Served("yolo", "openvino", 2, 2)]), "threads x instances"),
        (failing(GOOD), "photos that were not read: 1 of"),
    ],
)
def test_a_missed_floor_is_named(
    found: ServeBench, missed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report.print_verdicts(found.verdicts()) == 1
    told = capsys.readouterr().out
    assert f"MISSED  {missed}" in told
    assert told.count("MISSED") == 1


def test_rounds_are_compared_by_their_median() -> None:
    """A single round that the machine spoilt decides nothing."""
    spoilt = replace(GOOD_ROUND, http_p50=0.5, http_rate=1.0)
    rounds = [GOOD_ROUND, spoilt, GOOD_ROUND]
    assert all(verdict.holds for verdict in replace(GOOD, rounds=rounds).verdicts())


# --- Triton's statistics ---


def statistics(executions: dict[int, int], requests: int) -> dict[str, Any]:
    """As protobuf writes them: 64 bits as text, zeros left out."""
    return {
        "name": "yolo",
        "inference_count": str(sum(size * count for size, count in executions.items())),
        "execution_count": str(sum(executions.values())),
        "inference_stats": {
            "success": {"count": str(requests), "ns": "900"},
            "fail": {},
            "queue": {"count": str(requests), "ns": "400"},
            "compute_infer": {"count": str(requests), "ns": "500"},
        },
        "batch_stats": [
            {"batch_size": str(size), "compute_infer": {"count": str(count), "ns": "1"}}
            for size, count in executions.items()
        ],
    }


def test_batches_are_counted_between_two_moments() -> None:
    idle = {"name": "stn"}  # loaded, and asked for nothing yet
    before = batches_of({"model_stats": [statistics({1: 3}, 3), idle]})
    after = batches_of({"model_stats": [statistics({1: 5, 4: 2}, 9), idle]})
    done = between(before, after)
    assert done.keys() == {"yolo"}
    assert done["yolo"] == Batches(6, 10, 4, {1: 2, 4: 2})
    assert (done["yolo"].mean_size, done["yolo"].sharing) == (2.5, 1.5)
    assert between({}, after)["yolo"].executions == 7
    assert Batches(0, 0, 0, {}).mean_size == Batches(0, 0, 0, {}).sharing == 0


@pytest.mark.parametrize(
    "document",
    [
        {"model_stats": [{"inference_count": "1"}]},
        {"model_stats": [3]},
        {"model_stats": [{"name": "yolo", "batch_stats": [{"batch_size": "1"}]}]},
        {"model_stats": [{"name": "yolo", "inference_count": "many"}]},
    ],
)
def test_statistics_of_another_kind_are_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        batches_of(document)


def test_a_models_threads_are_those_of_its_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLATES_THREADS", "3")
    config = {
        "name": "yolo",
        "backend": "openvino",
        "instance_group": [{"count": 2}, {"count": "1"}],
        "parameters": {"INFERENCE_NUM_THREADS": {"string_value": "0"}},
    }
    assert served_as(config) == Served("yolo", "openvino", 3, 3)
    config["parameters"] = {"intra_op_thread_count": {"string_value": "2"}}
    assert served_as(config).threads == 2
    assert served_as({"name": "x", "backend": "python"}) == Served("x", "python", 1, None)


# --- helpers and loads ---


def test_a_helper_is_a_process_of_its_own() -> None:
    with Helper({"PLATES_BENCH_TEST": "seen"}) as helper:
        pid = helper.call(os.getpid)
        assert pid != os.getpid()
        assert helper.call(os.getenv, "PLATES_BENCH_TEST") == "seen"
        assert helper.call(signal.getsignal, signal.SIGINT) == signal.SIG_IGN
        with pytest.raises(ZeroDivisionError):
            helper.call(divmod, 1, 0)
        with pytest.raises(CommandError, match="expected"):
            helper.call(_refuse, "expected so much")
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


def test_a_triton_without_statistics_is_named(fake: FakeTriton) -> None:
    address = settings_for(fake).triton_address
    with pytest.raises(CommandError, match="statistics"):
        offer(Order(GRPC, 0.1, 1), Service("http://127.0.0.1:1", triton=address), [PHOTO])


def orders(triton: str | None) -> Sequence[Order]:
    done: list[Stretch] = []
    found = []
    for order in serve._orders(Service("http://127.0.0.1:1", triton=triton), 5.0, done):
        found.append(order)
        done.append(stretch(order.way, order.concurrency or 1))
    return found


def test_open_loops_go_by_what_closed_ones_gave() -> None:
    found = orders("127.0.0.1:1")
    assert {order.way for order in found} == {HTTP, GRPC}
    rates = [order.rate for order in found if order.way == HTTP and not order.concurrency]
    assert rates == pytest.approx([share * 6.0 for share in serve.SHARES])
    at_once = [order.concurrency for order in found if order.way == GRPC and order.mixed]
    assert at_once == list(serve.CONCURRENCIES)
    assert {order.way for order in orders(None)} == {HTTP}


@pytest.mark.parametrize(
    "words",
    [["--seconds", "0"], ["--seconds", "nan"], ["--rounds", "0"], ["--rounds", "1.5"]],
)
def test_numbers_that_make_no_sense_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main(["bench", "serve", *words])
    assert done.value.code == 2


def test_a_triton_alone_is_no_service(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--triton", "127.0.0.1:1", "--plot", str(tmp_path / "serve.png")]
    assert cli.main(["bench", "serve", *words]) == 1
    assert "--url" in capsys.readouterr().err


def test_mixed_photos_need_a_canvas_each() -> None:
    from plate_models.geometry import choose_canvas
    from plate_models.spec import DETECTOR

    canvases = [choose_canvas(h, w, DETECTOR.canvases_hw) for w, h in serve_load.MIXED_WH]
    assert len(set(canvases)) == len(canvases) == 3
