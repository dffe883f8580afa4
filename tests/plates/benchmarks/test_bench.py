"""`plates bench`: its load client tells the truth about a service, its tools judge it."""

import asyncio
import json
import os
import socket
import statistics
import threading
import time
from collections.abc import Callable, Coroutine
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from published_recognizer import save_stand_ins
from small_server import OK, REFUSAL, Reply, always, small_server

from plate_models.engines.nets import load_nets
from plate_models.images import decode
from plate_models.training.baseline import Baseline, PublishedShape
from plates.benchmarks import overload, serve
from plates.benchmarks import service as services
from plates.benchmarks.load import Load, LoadClient, Request, arrivals, summarise
from plates.benchmarks.photos import STANDARD_PHOTO, STANDARD_TEXTS
from plates.benchmarks.service import footprints, part_of
from plates.cli import main as command

Send = Callable[[LoadClient], Coroutine[Any, Any, Load]]
PHOTO = Request(b"photo")


def load_on(url: str, send: Send, request: Request = PHOTO, timeout_s: float = 10.0) -> Load:
    return asyncio.run(send(LoadClient(url, [request], timeout_s)))


def bench(tmp_path: Path, *words: str) -> int:
    outputs = ["--plot", str(tmp_path / "new" / "plot.png"), "--json", str(tmp_path / "all.json")]
    return command.main(["bench", *words, *outputs])


def figures(tmp_path: Path) -> dict[str, Any]:
    assert (tmp_path / "new" / "plot.png").read_bytes().startswith(b"\x89PNG")
    found: dict[str, Any] = json.loads((tmp_path / "all.json").read_text())
    assert "core" in found["machine"]
    return found


def test_arrivals_have_the_rate_and_the_spread_of_a_poisson_process() -> None:
    moments = arrivals(50, 100, seed=1)
    gaps = [after - before for before, after in pairwise(moments)]
    assert len(moments) == pytest.approx(5000, rel=0.05)
    # Of an exponential distribution the standard deviation is the mean.
    assert statistics.stdev(gaps) == pytest.approx(1 / 50, rel=0.1)
    assert max(moments) < 100
    assert moments == arrivals(50, 100, seed=1) != arrivals(50, 100, seed=2)


def test_a_closed_loop_keeps_so_many_requests_under_way() -> None:
    together = threading.Barrier(3)

    def reply(path: str, body: bytes) -> Reply:
        together.wait(timeout=10)  # breaks unless three requests are here at once
        return OK

    with small_server(reply) as server:
        load = load_on(server.url, lambda client: client.closed_loop(3, seconds=0.2))
    assert {row["status"] for row in load.rows} == {200}
    assert set(server.requests) == {b"photo"}


def test_an_open_loop_sends_on_while_the_server_stalls() -> None:
    """Each latency counts from when its request was to be sent, not from the stall's end."""
    all_came, moments = threading.Event(), [index / 40 for index in range(16)]

    def reply(path: str, body: bytes) -> Reply:
        if len(server.requests) == len(moments):
            all_came.set()
        assert all_came.wait(10)
        return OK

    with small_server(reply) as server:
        load = load_on(server.url, lambda client: client.open_loop(moments))
    assert {row["status"] for row in load.rows} == {200}
    assert all(row["ended_s"] >= moments[-1] for row in load.rows)
    assert sorted(row["intended_s"] for row in load.rows) == moments


@pytest.mark.parametrize(
    ("answer", "request_", "status", "retry_after", "right"),
    [
        (REFUSAL, PHOTO, 429, True, False),
        (OK, PHOTO, 200, False, True),
        (OK, Request(b"photo", texts=["A1"]), 200, False, False),
        (Reply(b'{"plates": [{"text": "A1"}]}'), Request(b"photo", texts=["A1"]), 200, False, True),
    ],
)
def test_an_answer_is_judged(
    answer: Reply, request_: Request, status: int, retry_after: bool, right: bool
) -> None:
    with small_server(always(answer)) as server:
        (row,) = load_on(server.url, lambda client: client.open_loop([0.0]), request_).rows
    assert (row["status"], row["retry_after"], row["right"]) == (status, retry_after, right)
    assert not row["error"]


def test_no_answer_has_a_reason() -> None:
    def once(client: LoadClient) -> Coroutine[Any, Any, Load]:
        return client.open_loop([0.0])

    stop = threading.Event()
    with small_server(always(None)) as server:
        assert load_on(server.url, once).rows[0]["error"].startswith("ServerDisconnected")
    assert "Cannot connect" in load_on(server.url, once).rows[0]["error"]
    with small_server(lambda *_: OK if stop.wait(10) else None) as server:
        (row,) = load_on(server.url, once, timeout_s=0.1).rows
        stop.set()
    assert (row["status"], row["error"]) == (0, "no answer in time")


def test_a_client_can_leave_half_way() -> None:
    """The server never gets the body that was announced."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        leaving = Request(bytes(500), headers={"Content-Length": "1000"}, leaves=True)
        load = load_on(url, lambda client: client.open_loop([0.0]), leaving)
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as received:
            head, _, body = received.read().partition(b"\r\n\r\n")
    assert load.rows[0]["error"] == "client left"
    assert b"Content-Length: 1000" in head and len(body) == 500


def row(intended: float, ended: float, status: int = 200, **others: Any) -> dict[str, Any]:
    known = {"kind": "", "intended_s": intended, "ended_s": ended, "status": status}
    return {**known, "retry_after": False, "right": status == 200, "error": "", **others}


def test_goodput_counts_neither_the_late_nor_what_came_after_the_end() -> None:
    rows = [
        row(0.0, 0.5),
        row(0.1, 3.1),  # after the deadline
        row(9.5, 10.3),  # after the end
        row(1.0, 1.1, 429),
        row(1.0, 1.1, 503, retry_after=True),
        row(1.0, 1.1, 0, error="cut off"),
    ]
    found = summarise([Load(rows, seconds=10.0, cpu_s=0.012)], deadline_s=2)
    assert (found["goodput/s"], found["offered/s"]) == (0.1, 0.6)
    assert found["statuses"] == {0: 1, 200: 3, 429: 1, 503: 1}
    assert (found["errors"], found["without Retry-After"]) == ({"cut off": 1}, 1)
    assert (found["client CPU ms"], found["p50 ms"]) == (2, 800)
    # What a round leaves behind is not made good by the next one.
    both = [Load(rows, 10.0, 0.0), Load([row(0.0, 0.5)], 10.0, 0.0)]
    assert summarise(both, deadline_s=2)["goodput/s"] == 0.1


def test_a_process_is_measured_with_those_below_it() -> None:
    (first, *_) = footprints(os.getpid())
    assert (first.pid, first.part) == (os.getpid(), "plates serve")
    assert 0 < first.pss_bytes <= first.rss_bytes and first.cpu_s > 0
    with Path(__file__).open():
        assert footprints(os.getpid())[0].files == first.files + 1
    assert footprints(None) == []


def test_parts_of_the_service_have_names() -> None:
    parts = {
        "/w/bin/tritonserver --model-repository=/m": "tritonserver",
        "/w/triton_python_backend_stub /b/model.py plates_1_a_f0 9 /b 320 yolo_0_0 DEFAULT": (
            "stub yolo"
        ),
        "/v/python -I -m plates.serving.guardian --parent 1 -- x": "guardian",
        "/v/python -P -m plates.serving.gateway_process --listen 3": "gateway",
        "/v/python -P something": "python",
    }
    assert {line: part_of(line.split()) for line in parts} == parts


@pytest.mark.parametrize("tool", ["serve", "overload", "faults", "soak", "stages"])
def test_tools_explain_themselves(tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        command.main(["bench", tool, "--help"])
    assert done.value.code == 0
    assert "--plot" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        *("", "fly", "overload --seconds soon", "stages --seconds 0", "serve --rounds 0"),
        *("serve --seconds nan", "soak --seed -1", "stages --check --write"),
    ],
)
def test_tools_refuse_what_makes_no_sense(words: str) -> None:
    with pytest.raises(SystemExit) as done:
        command.main(["bench", *words.split()])
    assert done.value.code == 2


@pytest.mark.parametrize(
    ("url", "reason"), [("http://127.0.0.1:1", "is not ready"), ("ftp://h", "expected http://")]
)
def test_a_service_that_is_not_there_is_named(
    url: str,
    reason: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(services, "_PATIENCE_S", 0.2)
    assert bench(tmp_path, "overload", "--url", url) == 1
    error = capsys.readouterr().err
    assert url in error and reason in error


def test_serve_measures_a_service_beside_another_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "CONCURRENCIES", (1, 2))
    photo = tmp_path / "photo.jpg"
    photo.write_bytes(b"photo")

    def slow(path: str, body: bytes) -> Reply:
        time.sleep(0.1)
        return OK

    with small_server(slow) as server, small_server(always(OK)) as other:
        words = ["--url", server.url, "--beside", other.url, "--photo", str(photo)]
        assert bench(tmp_path, "serve", *words, "--seconds", "0.3", "--rounds", "2") == 0
    assert "In turns" in capsys.readouterr().out
    found = figures(tmp_path)
    assert [one["at once"] for one in found["loads"]] == [1, 2]
    assert found["loads"][0]["p50 ms"] >= 100
    (ours, theirs) = found["comparisons"][0]
    assert (ours["reader"], theirs["reader"]) == (server.url, other.url)
    assert ours["ratio of p50s"] > 1 and ours["photos"] == theirs["photos"] >= 2


def test_serve_measures_the_published_shape(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "CONCURRENCIES", (1,))
    published = tmp_path / "published"
    published.mkdir()
    save_stand_ins(published)
    answer = Reply(b'{"plates": [{"box": [100, 100, 200, 130]}]}')
    with small_server(always(answer)) as server:
        words = ["--url", server.url, "--published", str(published)]
        assert bench(tmp_path, "serve", *words, "--seconds", "0.1", "--rounds", "1") == 0
        (_, theirs) = figures(tmp_path)["comparisons"][0]
        assert theirs["reader"] == str(published) and theirs["photos"] >= 1
        assert bench(tmp_path, "serve", "--url", server.url, "--published", str(tmp_path)) == 1
    assert "expected stn.pt and lprnet.pt" in capsys.readouterr().err


def test_serve_names_what_it_misses() -> None:
    rows = [{"requests": 3, "statuses": {200: 2, 503: 1}}]
    missed = [str(one) for one in serve.verdicts(10.1, {"gateway": 701}, rows) if not one.holds]
    assert len(missed) == 3 and "1 of 3" in missed[2]
    rows = [{"requests": 3, "statuses": {200: 3}}]
    assert all(one.holds for one in serve.verdicts(9.9, {"gateway": 699}, rows))


def test_the_published_shape_reads_the_boxes_it_is_given(tmp_path: Path) -> None:
    shape = PublishedShape(Baseline(save_stand_ins(tmp_path)))
    image = np.zeros((720, 1280, 3), np.uint8)
    boxes = [(10.0, 10.0, 90.0, 30.0), (1200.0, 700.0, 1280.0, 720.0)]
    assert shape.read(image, boxes) == ["0", "0"]


def test_overload_offers_multiples_of_the_capacity(tmp_path: Path) -> None:
    lane = threading.Lock()

    def one_at_a_time(path: str, body: bytes) -> Reply:
        if path == "/readyz":
            return OK
        if not lane.acquire(blocking=False):
            return REFUSAL
        time.sleep(0.02)
        lane.release()
        return OK

    with small_server(one_at_a_time) as server:
        words = ["--url", server.url, "--seconds", "0.5", "--rounds", "1", "--factors", "4", "1"]
        assert bench(tmp_path, "overload", *words) in (0, 1)
    found = figures(tmp_path)
    assert [one["load"] for one in found["rates"]] == ["1x", "4x"]
    assert found["capacity"] > 0 and found["rates"][1]["statuses"]["429"] > 0


def rate(load: str, goodput: float, p99_ms: float, status: int = 429) -> dict[str, Any]:
    statuses = {200: 100, status: 300}
    return {"load": load, "goodput/s": goodput, "p99 ms": p99_ms, "statuses": statuses}


@pytest.mark.parametrize(
    ("highest", "missed"),
    [
        (rate("4x", 9.5, 1900), None),
        (rate("4x", 8.9, 1900), "goodput at 4 times"),
        (rate("4x", 9.5, 2100), "p99 of accepted"),
        (rate("4x", 9.5, 1900, status=504), "answers 5xx"),
        (rate("4x", 9.5, 1900, status=0), "requests without an answer"),
    ],
)
def test_overload_names_the_floor_that_is_missed(
    highest: dict[str, Any], missed: str | None
) -> None:
    verdicts = overload.verdicts([rate("1x", 10.0, 500), highest], deadline_s=2)
    found = [str(verdict) for verdict in verdicts if not verdict.holds]
    assert [line.startswith(f"MISSED  {missed}") for line in found] == [True] * bool(missed)


def test_the_standard_photo_is_what_a_camera_sends_and_reads_as_promised() -> None:
    image = decode(STANDARD_PHOTO.read_bytes())
    assert image.shape == (1080, 1920, 3)
    assert 350_000 <= len(STANDARD_PHOTO.read_bytes()) <= 450_000
    plates = load_nets("torch").read(torch.from_numpy(image))
    assert sorted(plate.reading.text for plate in plates) == sorted(STANDARD_TEXTS)
