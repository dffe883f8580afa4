"""`plates bench`: its load client, the comparison with the published pipeline, its verdicts."""

import asyncio
import math
import time

import pytest
import torch
from small_server import REFUSAL, Reply, bench, small_server

from plate_models.training.figures import median_ratio
from plates.benchmarks import serve
from plates.benchmarks.faults import FREEZE, judge
from plates.benchmarks.load import Load, LoadClient, Request, summarise

PHOTO, ONE_PLATE = Request(b"photo"), Reply(b'{"plates": [{"text": "A1"}]}')
RIGHT = {"status": 200, "retry_after": False, "right": True, "error": ""}
YOLO, GATEWAY = "kill yolo", "kill the gateway"


@pytest.mark.parametrize(
    ("answer", "request_", "row"),
    [
        (Reply(), PHOTO, RIGHT),
        (Reply(), Request(b"text", expected=(415,)), RIGHT | {"right": False}),
        (ONE_PLATE, Request(b"photo", texts=["A1"]), RIGHT),
        (Reply(), Request(b"photo", texts=["A1"]), RIGHT | {"right": False}),
        (REFUSAL, PHOTO, {"status": 429, "retry_after": True, "right": False, "error": ""}),
        (None, PHOTO, {"status": 0, "error": "ServerDisconnectedError: Server disconnected"}),
        (lambda _: time.sleep(3), PHOTO, {"status": 0, "error": "no answer in time"}),
    ],
)
def test_the_load_client_records_each_kind_of_answer(answer, request_, row):
    with small_server(answer) as server:
        client = LoadClient(server.url, [request_], timeout_s=2)
        (found,) = asyncio.run(client.open_loop([0.0])).rows
    assert found | row == found
    (found,) = asyncio.run(client.open_loop([0.0])).rows
    assert "Cannot connect" in found["error"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # TorchScript's
def test_serve_measures_a_service_beside_the_published_pipeline(tmp_path, monkeypatch):
    for name, value in (("CONCURRENCIES", (1, 2)), ("_WARM_UPS", 1), ("_LEAST_TURNS", 1)):
        monkeypatch.setattr(serve, name, value)
    monkeypatch.setenv("GOMP_SPINCOUNT", "0")  # the published pipeline unsets it
    # Fakes of the published recognizer, which is not part of the project.
    flat = torch.nn.Sequential(torch.nn.AvgPool2d((24, 5)), torch.nn.Flatten(2))
    spread = torch.nn.Sequential(torch.nn.Conv2d(3, 23, 1), flat)
    for name, net in (("stn", torch.nn.Identity()), ("lprnet", spread)):
        torch.jit.trace(net, torch.zeros(1, 3, 24, 94)).save(tmp_path / f"{name}.pt")
    answer, read = Reply(b'{"plates": [{"box": [100, 100, 200, 130]}]}'), []

    def reply(path):
        if path == "/metrics":
            return Reply(b'plates_stage_seconds_sum{stage="yolo"} %.2f\n' % (0.02 * len(read)))
        time.sleep(0.1)
        read.append(path)
        return answer

    with small_server(reply) as server:
        words = ["--url", server.url, "--published", str(tmp_path), "--seconds", "0.05"]
        status, found = bench(tmp_path, "serve", *words)
    assert status == 0
    assert [one["at once"] for one in found["loads"]] == [1, 2]
    assert [list(one["statuses"]) for one in found["loads"]] == [["200"], ["200"]]
    ours, published = found["comparison"]
    assert (ours["reader"], published["reader"]) == (server.url, str(tmp_path))
    assert found["loads"][0]["p50 ms"] >= 100 and ours["p50 ms"] >= 100
    assert [one["yolo ms"] for one in found["loads"]] == [20, 20]
    assert ours["ratio of p50s"] > 0 and ours["photos"] == published["photos"] >= 1


def test_the_ratio_of_medians_resamples_pairs_of_photos():
    # Each photo takes half the time, so any resampling has the ratio 0.5.
    slow = [100.0, 1000.0, 10.0, 300.0, 50.0]
    assert median_ratio([ms / 2 for ms in slow], slow) == (0.5, (0.5, 0.5))
    value, (low, high) = median_ratio([1.0, 2.0, 3.0, 4.0], [4.0, 2.0, 8.0, 4.0])
    assert value == pytest.approx(2.5 / 4) and low < value < high


def row(began, ended, status=200, **others):  # times in seconds
    basic = {"kind": "photo", "intended_s": began, "ended_s": ended, "status": status, "error": ""}
    return {**basic, "right": status == 200, "retry_after": status in (429, 503), **others}


RECOVERED = [row(11, 11.5)]


def test_goodput_counts_no_answers_after_the_deadline_or_the_end():
    rows = [
        row(0.0, 0.5),
        row(0.1, 3.1),  # after the deadline
        row(9.5, 10.3),  # after the end
        row(1.0, 1.1, 429, retry_after=False),
        row(1.0, 1.1, 503),
        row(1.0, 1.1, 0, error="cut off"),
    ]
    found = summarise([Load(rows, seconds=10.0)], deadline_s=2)
    assert (found["goodput/s"], found["offered/s"]) == (0.1, 0.6)
    assert found["statuses"] == {0: 1, 200: 3, 429: 1, 503: 1}
    assert (found["errors"], found["without Retry-After"]) == ({"cut off": 1}, 1)
    assert found["p50 ms"] == 800


def test_a_service_is_healed_at_the_first_right_answer_after_the_last_failure():
    rows = [
        row(10.5, 11, 503),
        row(11, 11.5),  # from another instance, which still works
        row(12, 13, 503),
        row(13, 14, 429),  # a full queue is no failure
        row(13, 15),
    ]
    assert judge(YOLO, 10, rows) == {
        **{"fault": "kill yolo", "healed s": 5.0, "late s": 0.0, "lost": 0, "problems": []},
        **{"200": 2, "429": 1, "503": 2, "504": 0},
    }
    assert judge(YOLO, 10, [*RECOVERED, row(11, 12, 503)])["healed s"] == math.inf
    assert judge(FREEZE, 10, [row(10, 16.5, 504), *RECOVERED])["late s"] == 1.5


@pytest.mark.parametrize(
    ("fault", "rows", "problem"),
    [
        (YOLO, [row(10, 11, 500)], "other statuses"),
        (YOLO, [row(10, 11, 503, retry_after=False)], "without Retry-After"),
        (YOLO, [row(10, 11, 0)], "photos lost"),
        (YOLO, [row(10, 11, 200, right=False)], "wrong readings"),
        # A killed gateway may lose only requests in flight; frozen processes time out.
        (GATEWAY, [row(9.9, 10, 0)], ""),
        (GATEWAY, [row(9.9, 10, 0), row(10.5, 10.6, 0)], "photos lost"),
        (FREEZE, [row(10, 15, 504)], ""),
    ],
)
def test_faults_report_answers_that_clients_must_not_get(fault, rows, problem):
    found = judge(fault, 10, [*rows, *RECOVERED])["problems"]
    assert len(found) == bool(problem) and problem in "".join(found)
