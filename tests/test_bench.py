"""The load generator tells the truth about a server that stalls, refuses and drops."""

import asyncio
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Coroutine
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from small_server import CLOSING, OK, REFUSAL, Reply, SmallServer, always, small_server

from plates.benchmarks.footprint import footprints, part_of, shared_memory
from plates.benchmarks.http1 import Connection, NoAnswer, Target, build_request
from plates.benchmarks.load import Generator, Load, Outcome, arrivals
from plates.benchmarks.summary import percentile, summarise
from plates.cli import main as cli
from plates.serving import processes

Measured = tuple[Load, SmallServer]


def load_on(
    reply: Reply,
    send: Callable[[Generator], Coroutine[Any, Any, Load]],
    timeout_s: float = 10.0,
) -> Measured:
    async def run() -> Measured:
        async with small_server(reply) as server:
            request = build_request(server.target, "POST", "/", b"photo")
            return await send(Generator(server.target, [request], timeout_s)), server

    return asyncio.run(run())


def test_a_request_is_what_http_wants() -> None:
    request = build_request(Target("h", 1), "POST", "/p?a=1", b"body", {"X-Y": "z"})
    assert request == (
        b"POST /p?a=1 HTTP/1.1\r\nHost: h:1\r\nX-Y: z\r\nContent-Length: 4\r\n\r\nbody"
    )
    assert b"Content-Length" not in build_request(Target("h", 1), "GET", "/")


@pytest.mark.parametrize("url", ["https://h", "h:80", "ftp://h/", "http://"])
def test_a_target_is_plain_http(url: str) -> None:
    with pytest.raises(ValueError, match="http://host:port"):
        Target.of(url)


def test_uniform_arrivals_are_equally_far_apart() -> None:
    assert arrivals(4, 1) == [0, 0.25, 0.5, 0.75]


def test_poisson_arrivals_have_the_rate_and_the_spread_of_it() -> None:
    moments = arrivals(50, 100, seed=1)
    gaps = [after - before for before, after in pairwise(moments)]
    assert len(moments) == pytest.approx(5000, rel=0.05)
    # Of an exponential distribution the standard deviation is the mean.
    assert statistics.stdev(gaps) == pytest.approx(1 / 50, rel=0.1)
    assert max(moments) < 100
    assert moments == arrivals(50, 100, seed=1) != arrivals(50, 100, seed=2)


def test_closed_loop_keeps_connections_and_ends_by_count() -> None:
    load, server = load_on(always(OK), lambda g: g.closed_loop(3, seconds=60, max_count=30))
    assert len(load.outcomes) == len(server.requests) == 30
    assert {outcome.status for outcome in load.outcomes} == {200}
    assert server.connections == 3
    assert server.requests[0].endswith(b"photo")


def test_closed_loop_ends_by_time() -> None:
    load, _ = load_on(always(OK, 0.01), lambda g: g.closed_loop(2, seconds=0.2))
    assert 0 < len(load.outcomes) <= 2 * 21


def test_open_loop_sends_on_while_the_server_stalls() -> None:
    """Each latency counts from when its request was to be sent, not from the stall's end."""
    all_came = asyncio.Event()

    async def reply(number: int) -> bytes:
        if number == 15:
            all_came.set()
        await all_came.wait()
        return OK

    load, server = load_on(reply, lambda g: g.open_loop(arrivals(40, 0.4)))
    assert server.connections == 16
    assert {outcome.status for outcome in load.outcomes} == {200}
    for outcome in load.outcomes:
        assert outcome.latency_s >= 15 / 40 - outcome.intended_s


def test_what_the_generator_is_late_is_counted_as_latency() -> None:
    async def late(generator: Generator) -> Load:
        import time

        task = asyncio.create_task(generator.open_loop([0.0, 0.05]))
        await asyncio.sleep(0.02)
        time.sleep(0.3)
        return await task

    load, _ = load_on(always(OK), late)
    last = max(load.outcomes, key=lambda outcome: outcome.intended_s)
    assert last.late_s >= 0.2
    assert last.latency_s >= last.late_s


def test_refusals_say_when_to_come_back() -> None:
    load, _ = load_on(always(REFUSAL), lambda g: g.open_loop(arrivals(100, 0.1)))
    assert [(o.status, o.retry_after_s) for o in load.outcomes] == [(429, 3.0)] * 10
    summary = summarise([load], deadline_s=1)
    assert (summary.refused, summary.goodput, summary.p99_s) == (10, 0, None)
    assert summary.without_retry_after == 0


def test_no_answer_is_counted_as_dropped() -> None:
    load, _ = load_on(always(None), lambda g: g.open_loop(arrivals(100, 0.1)))
    summary = summarise([load], deadline_s=1)
    assert summary.statuses == {0: 10}
    assert sum(summary.dropped.values()) == 10
    assert "cut off" in next(iter(summary.dropped))


def test_an_answer_is_not_waited_for_for_ever() -> None:
    load, _ = load_on(always(OK, 30), lambda g: g.open_loop([0.0, 0.01]), timeout_s=0.1)
    assert [outcome.dropped for outcome in load.outcomes] == ["no answer in time"] * 2


def test_so_many_are_waited_for_and_no_more() -> None:
    load, server = load_on(
        always(OK, 30), lambda g: g.open_loop(arrivals(100, 0.1), max_outstanding=4), timeout_s=2
    )
    assert len(server.requests) == 4
    assert summarise([load], 1).dropped == {"too many unanswered": 6, "no answer in time": 4}


def test_a_connection_that_was_closed_meanwhile_is_opened_anew() -> None:
    """As servers do with idle ones; only a fresh connection's failure is the server's."""

    async def reply(number: int) -> bytes | None:
        return None if number == 1 else OK

    load, server = load_on(reply, lambda g: g.closed_loop(1, 60, max_count=2))
    assert [outcome.status for outcome in load.outcomes] == [200, 200]
    assert (load.resent, server.connections) == (1, 2)


def test_a_server_that_closes_is_believed() -> None:
    load, server = load_on(always(CLOSING), lambda g: g.closed_loop(1, 60, max_count=3))
    assert [outcome.status for outcome in load.outcomes] == [200] * 3
    assert (load.resent, server.connections) == (0, 3)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0 hello\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\n",
        b"x" * 200_000,
    ],
)
def test_what_is_no_http_is_no_answer(answer: bytes) -> None:
    load, _ = load_on(always(answer), lambda g: g.open_loop([0.0]), timeout_s=5)
    assert load.outcomes[0].status == 0
    assert load.outcomes[0].dropped != "no answer in time"


def test_nobody_listening_is_no_answer() -> None:
    async def run() -> None:
        async with small_server(always(OK)) as server:
            target = server.target
        with pytest.raises(NoAnswer, match="connect"):
            await Connection.open(target)

    asyncio.run(run())


def test_percentiles_are_values_that_came() -> None:
    assert percentile([], 50) is None
    assert percentile([3.0], 1) == percentile([3.0], 100) == 3.0
    assert [percentile([4, 1, 3, 2], p) for p in (25, 50, 51, 99)] == [1, 2, 3, 4]


def test_goodput_counts_neither_the_late_nor_what_came_after_the_end() -> None:
    outcomes = [
        Outcome(0.0, 0.5, 200),
        Outcome(0.1, 3.0, 200),  # after the deadline
        Outcome(9.5, 0.8, 200),  # after the end
        Outcome(1.0, 0.1, 429),
        Outcome(1.0, 0.1, 503, 2.0),
    ]
    summary = summarise([Load(outcomes, seconds=10.0, cpu_s=0.01)], deadline_s=2)
    assert summary.goodput == pytest.approx(0.1)
    assert (summary.late, summary.server_errors, summary.without_retry_after) == (1, 1, 1)
    assert summary.generator_cpu_ms == pytest.approx(2)
    # What a round leaves behind is not made good by the next one.
    both = summarise([Load(outcomes, 10.0), Load([Outcome(0.0, 0.5, 200)], 10.0)], deadline_s=2)
    assert both.goodput == pytest.approx(0.1)
    assert both.offered_rate == pytest.approx(0.3)


def test_a_schedule_of_two_parts_is_told_apart() -> None:
    outcomes = [Outcome(moment, 0.1, 200) for moment in (0.0, 1.0, 2.0, 2.5)]
    first, later = Load(outcomes, 3.0, cpu_s=4.0).split(2.0)
    assert [outcome.intended_s for outcome in first.outcomes] == [0.0, 1.0]
    assert [outcome.intended_s for outcome in later.outcomes] == [0.0, 0.5]
    assert (first.seconds, later.seconds, first.cpu_s) == (2.0, 1.0, 2.0)


def test_a_process_is_measured_with_those_below_it() -> None:
    measured = footprints(os.getpid(), with_pss=True)
    assert measured[0].pid == os.getpid()
    assert measured[0].part == "plates serve"
    assert 0 < measured[0].pss_bytes <= measured[0].rss_bytes
    assert measured[0].cpu_s > 0
    before = measured[0].files
    with Path(__file__).open():
        assert footprints(os.getpid())[0].files == before + 1


@pytest.mark.parametrize(
    ("command", "part"),
    [
        ("/w/bin/tritonserver --model-repository=/m", "tritonserver"),
        (
            "/w/triton_python_backend_stub /b/onnxruntime/model.py plates_1_a_f0 1 1 9 "
            "/b 320 yolo_0_0 DEFAULT",
            "stub yolo",
        ),
        ("/v/python -I -m plates.serving.guardian --parent 1 -- x", "guardian"),
        ("/v/python -P something", "python"),
    ],
)
def test_parts_of_the_service_have_names(command: str, part: str) -> None:
    assert part_of(tuple(command.split()), is_root=False) == part


def test_shared_memory_is_that_of_the_family() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        # Not of this process: other tests' servers are its family.
        segment = processes.SHARED_MEMORY / f"plates_{child.pid}_test"
        segment.write_bytes(bytes(8192))
        try:
            found = shared_memory(child.pid)
            assert (found.segments, found.allocated_bytes) == (1, 8192)
            assert shared_memory(None).segments >= 1
        finally:
            segment.unlink()


@pytest.mark.parametrize("tool", ["serve", "overload", "soak"])
def test_tools_explain_themselves(tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main(["bench", tool, "--help"])
    assert done.value.code == 0
    assert "--plot" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["fly"], ["overload", "--seconds", "soon"]])
def test_tools_refuse_what_makes_no_sense(words: list[str]) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main(["bench", *words])
    assert done.value.code == 2


def test_a_service_that_is_not_there_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    from plates.benchmarks import service

    monkeypatch.setattr(service, "_PATIENCE_S", 0.2)
    words = ["--url", "http://127.0.0.1:1", "--plot", str(tmp_path / "new" / "a.png")]
    assert cli.main(["bench", "overload", *words]) == 1
    assert "http://127.0.0.1:1" in capsys.readouterr().err
