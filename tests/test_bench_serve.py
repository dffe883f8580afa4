"""`plates bench serve`: its floors, its tables, its turns, its orders."""

import json
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from gateway_client import PHOTO

from plates.benchmarks import report, serve, serve_load, serve_pairing
from plates.benchmarks.batching import Batches, Served
from plates.benchmarks.load import Load, Outcome
from plates.benchmarks.serve_in_process import Readings
from plates.benchmarks.serve_load import GRPC, HTTP, Order, Stretch, offer
from plates.benchmarks.serve_pairing import Round
from plates.benchmarks.serve_report import draw_serve, print_bench
from plates.benchmarks.serve_result import ServeBench
from plates.benchmarks.service import Service
from plates.benchmarks.summary import summarise
from plates.cli import main as cli

GOOD_ROUND = Round(
    in_process_p50=0.050,
    decode_p50=0.008,
    http_p50=0.060,
    in_process_rate=20.0,
    processes_rate=25.0,
    http_rate=20.0,
    idle_service=0.01,
    idle_readers=0.0,
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
    assert not any(order.mixed for order in found)
    mixed = list(serve._mixed_orders(Service("http://127.0.0.1:1", triton="127.0.0.1:1"), 5.0))
    assert all(order.mixed for order in mixed)
    at_once = [order.concurrency for order in mixed if order.way == GRPC]
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


class RecordingProcess:
    """Answers at once with what a photo would take, and remembers what was asked."""

    def __init__(self, name: str, asked: list[str], photo_s: float) -> None:
        self._name, self._asked, self._photo_s = name, asked, photo_s

    def start(self, function: Any, *words: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        future.set_result(self.call(function, *words))
        return future

    def call(self, function: Any, first: Any, *_: Any) -> Any:
        if function is offer:
            self._asked.append(f"{first.way} {first.concurrency}")
            return stretch(first.way, first.concurrency)
        self._asked.append(self._name)
        return Readings([self._photo_s] * 10, [0.01] * 10, 10 * self._photo_s, idle_cpu_s=0.5)


def test_in_process_and_http_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    speeds = {"all threads": 0.05, "one thread a": 0.08, "one thread b": 0.08}
    readers = [RecordingProcess(name, asked, seconds) for name, seconds in speeds.items()]
    monkeypatch.setattr(serve_pairing, "_readers", lambda _: nullcontext(readers))
    load: Any = RecordingProcess("load", asked, 0.0)
    serving = Service("http://127.0.0.1:1")
    found = serve_pairing.measure_rounds(serving, load, PHOTO, rounds=2, seconds=5.0, cores=2)
    turn = ["all threads", "HTTP 1", "one thread a", "one thread b", "HTTP 4"]
    assert asked == [*speeds, *turn, *turn]  # first they warm up
    assert found[0] == found[1]
    assert (found[0].in_process_rate, found[0].processes_rate) == pytest.approx((20, 25))
    assert found[0].extra_p50 == pytest.approx(0.1 - 0.05)
    assert found[0].extra_decodes == pytest.approx(5)
    assert found[0].share == pytest.approx(6 / 25)
    assert found[0].idle_readers == pytest.approx(3 * 0.5 / 10)


@pytest.mark.parametrize(("ready_s", "status"), [(9.9, 0), (10.1, 1)])
def test_the_tool_ends_with_1_where_a_floor_is_missed(
    ready_s: float, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Service] = []

    def measure(serving: Service, *_: Any) -> ServeBench:
        asked.append(serving)
        return replace(GOOD, ready_s=ready_s)

    running = Service("http://127.0.0.1:1", 1)
    monkeypatch.setattr(serve, "service", lambda *_: nullcontext(running))
    monkeypatch.setattr(serve, "_measure", measure)
    words = ["--url", running.url, "--triton", "127.0.0.1:2"]
    files = [tmp_path / "new" / name for name in ("serve.png", "serve.json")]
    words += ["--plot", str(files[0]), "--json", str(files[1])]
    assert cli.main(["bench", "serve", *words]) == status
    assert all(file.stat().st_size for file in files)
    assert asked == [replace(running, triton="127.0.0.1:2")]
