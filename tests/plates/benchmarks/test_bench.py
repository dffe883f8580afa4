"""`plates bench`: its load client measures a service rightly, its tools run and refuse."""

import asyncio
import time
import warnings
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import torch
from small_server import OK, REFUSAL, Reply, bench, small_server

from plates.benchmarks import serve
from plates.benchmarks import service as services
from plates.benchmarks.load import Load, LoadClient, Request
from plates.cli import main as command

Send = Callable[[LoadClient], Coroutine[Any, Any, Load]]
PHOTO, ONE_PLATE = Request(b"photo"), Reply(b'{"plates": [{"text": "A1"}]}')
RIGHT = {"status": 200, "retry_after": False, "right": True, "error": ""}


def load_on(url: str, send: Send, request: Request = PHOTO, timeout_s: float = 10.0) -> Load:
    return asyncio.run(send(LoadClient(url, [request], timeout_s)))


def once(client: LoadClient) -> Coroutine[Any, Any, Load]:
    return client.open_loop([0.0])


@pytest.mark.parametrize(
    ("answer", "request_", "row"),
    [
        (OK, PHOTO, RIGHT),
        (OK, Request(b"text", expected=(415,)), RIGHT | {"right": False}),
        (ONE_PLATE, Request(b"photo", texts=["A1"]), RIGHT),
        (OK, Request(b"photo", texts=["A1"]), RIGHT | {"right": False}),
        (REFUSAL, PHOTO, {"status": 429, "retry_after": True, "right": False, "error": ""}),
        (None, PHOTO, {"status": 0, "error": "ServerDisconnectedError: Server disconnected"}),
        (lambda _: time.sleep(0.6), PHOTO, {"status": 0, "error": "no answer in time"}),
    ],
)
def test_an_answer_is_judged(answer, request_, row):
    with small_server(answer) as server:
        (found,) = load_on(server.url, once, request_, 0.5).rows
    assert found | row == found
    assert "Cannot connect" in load_on(server.url, once).rows[0]["error"]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        *(("", 2, "TOOL"), ("fly", 2, "fly"), ("overload --seconds soon", 2, "soon")),
        *(("stages --check --write", 2, "not allowed"), ("soak --url http://h", 1, "--pid")),
        *(("serve --seconds 0", 1, "--seconds: expected"), ("serve --seconds nan", 1, "nan")),
        *(("overload --url ftp://h", 1, "http://"), ("bulk --photos 9", 1, "--photos: expected")),
        ("overload --url http://127.0.0.1:1", 1, "http://127.0.0.1:1 is not ready"),
        ("serve --published /nowhere", 1, "expected stn.pt and lprnet.pt"),
        ("serve --photo /nowhere/a.jpg", 1, "/nowhere/a.jpg: No such file"),
    ],
)
def test_tools_explain_themselves_and_refuse_what_makes_no_sense(
    words, status, said, capsys, monkeypatch
):
    monkeypatch.setattr(services, "_PATIENCE_S", 0.2)
    try:
        ended: Any = command.main(["bench", *words.split()])
    except SystemExit as done:
        ended = done.code
    assert (ended, said in "".join(capsys.readouterr())) == (status, True)


def save_published(folder: Path) -> None:
    """Stand-ins for the published recognizer, which is not part of the project."""
    flat = torch.nn.Sequential(torch.nn.AvgPool2d((24, 5)), torch.nn.Flatten(2))
    spread = torch.nn.Sequential(torch.nn.Conv2d(3, 23, 1), flat)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # The published ones are TorchScript.
        for name, net in (("stn", torch.nn.Identity()), ("lprnet", spread)):
            torch.jit.trace(net, torch.zeros(1, 3, 24, 94)).save(folder / f"{name}.pt")


def test_serve_measures_a_service_beside_the_published_pipeline(tmp_path, monkeypatch):
    monkeypatch.setattr(serve, "CONCURRENCIES", (1, 2))
    monkeypatch.setattr(serve, "_WARM_UPS", 0)
    monkeypatch.setenv("GOMP_SPINCOUNT", "0")  # The published shape unsets it.
    save_published(tmp_path)
    answer = Reply(b'{"plates": [{"box": [100, 100, 200, 130]}]}')
    with small_server(lambda _: time.sleep(0.1) or answer) as server:
        words = ["--url", server.url, "--published", str(tmp_path), "--seconds", "0.3"]
        status, found = bench(tmp_path, "serve", *words)
    assert status == 0
    assert [one["at once"] for one in found["loads"]] == [1, 2]
    ours, published = found["comparison"]
    assert (ours["reader"], published["reader"]) == (server.url, str(tmp_path))
    assert found["loads"][0]["p50 ms"] >= 100 and ours["p50 ms"] >= 100
    assert ours["ratio of p50s"] > 0 and ours["photos"] == published["photos"] >= 1
