"""The supervisor without a Triton: restart budgets, child processes, the order of all parts."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from unittest.mock import DEFAULT, Mock, call

import psutil
import pytest
from serving_support import ticked_until
from support import is_alive

from api.status import Status, read_status
from plates.serving import child, supervisor
from plates.serving.errors import GaveUp, StartError
from plates.serving.healing import Prober
from plates.serving.supervisor import RestartBudget, Supervisor


@pytest.mark.parametrize(
    ("every_s", "is_well_between", "count"),
    [
        (0, False, 5),
        # Slow failures in a row use up the budget, too.
        (3 * supervisor.WINDOW_S, False, 5),
        # So do failures of a part that is well for a moment each time.
        (0, True, 10),
        (supervisor._RECENTLY_S + 1, True, None),
    ],
)
def test_restarts_are_limited_unless_they_are_rare(every_s, is_well_between, count, monkeypatch):
    clock = Mock(return_value=0.0)
    monkeypatch.setattr(supervisor, "time", Mock(monotonic=clock))
    restarts = RestartBudget("The part")
    pauses = []
    for _ in range(count or 30):
        clock.return_value += every_s
        pauses.append(restarts.spend("it is broken"))
        if is_well_between:
            restarts.well()
    clock.return_value += every_s
    if every_s == 0:
        assert pauses == [0, 0.5, 1, 2, 4, 8, 8, 8, 8, 8][:count]
    if count is None:
        assert set(pauses) == {0}
        restarts.spend("it is broken")
    else:
        expected = f"The part can't be healed: after {count} restarts it is broken"
        with pytest.raises(GaveUp, match=expected):
            restarts.spend("it is broken")


CODE = """
import os, signal, sys, time
give = int(sys.argv[-1])  # the file descriptor of --alive
for _ in range({signs}):
    os.write(give, b".")
    time.sleep(0.05)
{then}
"""


@contextlib.contextmanager
def child_process(signs, then, needed=True):  # gives so many signs of life, then runs `then`
    code = CODE.format(signs=signs, then=then)
    part = child.Child("gateway", [sys.executable, "-c", code], dict, needed=needed)
    try:
        yield part
    finally:
        part.stop()


def test_a_killed_child_is_restarted_even_if_the_restart_fails_at_first(monkeypatch):
    no_room = Mock(wraps=subprocess.Popen, side_effect=(OSError(11, "no room"), DEFAULT))
    no_pipe = Mock(wraps=os.pipe, side_effect=(OSError(24, "too many files"), *[DEFAULT] * 10))
    with child_process(10**6, "") as part:
        part.start()
        assert part.status == Status("ready", {"gateway": 0})
        first = part._process.pid
        assert os.getsid(first) == first, "Ctrl-C in a terminal would end it, too"
        open_files = psutil.Process().num_fds()
        monkeypatch.setattr(child.subprocess, "Popen", no_room)
        monkeypatch.setattr(child.os, "pipe", no_pipe)
        os.kill(first, signal.SIGKILL)
        ticked_until(part, lambda: no_room.call_count == 1)
        assert part.status.state == "healing"
        ticked_until(part, lambda: part.status.state == "ready")
        assert part.status.restarts["gateway"] == 3
        # Not ==: files that earlier tests left open may be closed meanwhile.
        assert psutil.Process().num_fds() <= open_files
        last = part._process.pid
    assert not is_alive(first) and not is_alive(last)


def test_a_child_that_is_not_needed_neither_delays_nor_ends_the_service(monkeypatch):
    monkeypatch.setattr(child, "_LONGEST_PAUSE_S", 0.0)
    monkeypatch.setattr(supervisor, "_LONGEST_PAUSE_S", 0.0)
    monkeypatch.setattr(supervisor, "MAX_IN_WINDOW", 2)
    with child_process(0, "sys.exit(7)", needed=False) as part:
        part.start()
        ticked_until(part, lambda: part.status.restarts["gateway"] == 4)
        monkeypatch.setattr(child, "_LONGEST_PAUSE_S", 60.0)
        ticked_until(part, lambda: part.status.restarts["gateway"] == 5)
        part.tick()
        assert part._process is None, "it would be started again without a pause"
        assert part.status.state == "ready"


def test_a_silent_child_is_killed_and_one_that_always_ends_is_given_up(tmp_path, monkeypatch):
    with child_process(1, "time.sleep(600)") as part:
        part.start()
        part._asked_at -= 100  # as if this process had been suspended, and the child with it
        part.tick()
        assert part.status == Status("ready", {"gateway": 0})
        monkeypatch.setattr(child, "SILENCE_S", 0.5)
        mute = part._process.pid
        ticked_until(part, lambda: part.status.restarts["gateway"] == 1)
        assert not is_alive(mute)
    finish = f"lambda *_: (time.sleep(0.5), os.mkdir({str(tmp_path / 'done')!r}), sys.exit())"
    begin = f"time.sleep(1); signal.signal(signal.SIGTERM, {finish}); os.write(give, b'.')"
    with child_process(0, f"{begin}; time.sleep(600)") as slow:
        slow.start()  # A start may take longer.
    assert (tmp_path / "done").exists(), "a stop gives it no time to finish its work"
    monkeypatch.setattr(supervisor, "_LONGEST_PAUSE_S", 0.0)
    monkeypatch.setattr(supervisor, "MAX_IN_WINDOW", 3)
    monkeypatch.setattr(supervisor, "MAX_IN_A_ROW", 2)  # It is well for a moment each time.
    with child_process(1, "sys.exit(7)") as part:
        part.start()
        with pytest.raises(GaveUp, match=r"The gateway can't be healed.*status 7"):
            ticked_until(part, lambda: False)
        assert part.status.restarts["gateway"] == 3
    with child_process(0, "sys.exit(7)") as part, pytest.raises(StartError, match="status 7"):
        part.start()


def test_parts_start_in_order_and_the_first_one_stops_last(tmp_path):
    path, service, barrier = tmp_path / "status.json", Mock(), threading.Barrier(2)
    service.three.status = Status("ready")
    # All parts but the first stop at the same time, as a camera takes a second or more.
    service.two.stop.side_effect = service.three.stop.side_effect = lambda: barrier.wait(5)
    service.one.status = Status("ready", {"one": 0}, 1, {"2": "it misreads"})
    service.two.status = Status("ready", {"two": 0})
    service.one.start.side_effect = lambda: seen.append(read_status(path))
    seen = []

    def break_down():
        seen.append(read_status(path))
        if len(seen) == 4:
            raise GaveUp("no hope")
        service.two.status = Status("healing", {"two": 1})

    service.two.tick.side_effect = break_down
    supervisor = Supervisor([service.one, service.two, service.three], path)
    with pytest.raises(GaveUp, match="no hope"):
        supervisor.run(service.announce)
    supervisor.stop()
    calls = [each for each in service.mock_calls if "tick" not in str(each)]
    assert calls[:3] == [call.one.start(), call.two.start(), call.three.start()]
    assert calls[3] == call.announce() and len(calls) == 7 and calls[6] == call.one.stop()
    ready = Status("ready", {"one": 0, "two": 0}, 1, {"2": "it misreads"})
    healing = replace(ready, state="healing", restarts={"one": 0, "two": 1})
    assert seen == [ready, ready, healing, healing]
    assert read_status(path) == replace(healing, state="failed")


def test_an_unexpected_error_ends_with_the_status_failed(tmp_path, caplog):
    folder, found = tmp_path / "later", []

    def tick():
        if folder.exists():
            found.append(read_status(folder / "status.json"))
            raise ZeroDivisionError
        folder.mkdir()

    status = Status("ready", {"one": 0})
    supervisor = Supervisor([Mock(status=status, tick=tick)], folder / "status.json")
    with pytest.raises(ZeroDivisionError):
        supervisor.run(lambda: None)
    assert found == [status]
    assert read_status(folder / "status.json") == replace(status, state="failed")
    assert caplog.text.count("status file can't be written") == 1, "each tick would repeat it"


def test_clients_photos_are_proof_once_every_model_has_answered():
    prober, read = Prober(triton := Mock(), threading.Event()), []
    counts = (9, 9), (9, 9), (10, 9), (11, 9), (11, 10), (11, 10), (1, 1), (2, 2)
    triton.http.successes.side_effect = [{"yolo": yolo, "stn": stn} for yolo, stn in counts]
    for _ in counts:  # The second net runs only for photos with plates; then Triton has restarted.
        prober.listen()
        read.append(prober.read_at == prober.heard_at)
    assert read == [False, False, False, False, True, False, False, True]
