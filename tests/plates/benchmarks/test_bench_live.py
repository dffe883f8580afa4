"""The service under overload, mixed traffic and kill -9: short versions of `plates bench`.

The long ones have floors for goodput, latency, growth and time; a test that has the machine
for itself neither in space nor in time can't.
"""

import pandas
import pytest
from small_server import bench
from support import REPOSITORY

from plates.benchmarks import faults, overload, soak
from plates.benchmarks.service import service

pytestmark = [pytest.mark.live, pytest.mark.control]

# Between the first third and the end; a leak of one photo's pixels per request is 300 MiB.
GROWTH_MIB = 150.0
# The bench's floor is for a machine that does nothing else; this one is for every machine.
WITHOUT_A_HAND_S = 60
# `plates bench faults` has all: of these kinds, and what tests of serving kill.
BORNE = ("kill yolo", "kill the gateway", "freeze Triton")


def test_overload_is_refused_politely_and_mixed_traffic_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(soak, "EVERY_S", 1.0)
    monkeypatch.setattr(overload, "ROUNDS", 1)
    monkeypatch.setattr(overload, "FACTORS", (0.5, 4.0))
    with service(None, PLATES_MODEL_REPOSITORY=str(REPOSITORY)) as served:
        here = ("--url", served.url, "--pid", str(served.pid))
        # Long enough that only the queue refuses, on slow machines too.
        words = ("--seconds", "3", "--deadline", "10")
        _, overloaded = bench(tmp_path, "overload", *here, *words)
        # Also shows what the overload left.
        _, soaked = bench(tmp_path, "soak", *here, "--minutes", "0.34")
        assert served.log is not None and served.ready_s is not None and served.ready_s > 0
        assert "Traceback" not in served.log.read_text(errors="replace")
    normal, worst = overloaded["rates"]
    assert (normal["load"], worst["load"]) == ("0.5x", "4x")
    assert set(worst["statuses"]) == {"200", "429"}, worst
    assert worst["without Retry-After"] == 0
    assert worst["goodput/s"] > 0 and normal["goodput/s"] > 0
    # The deadline is the gateway's, from the request's head; this clock began before it.
    assert worst["p99 ms"] < 2 * 1000 * 10
    answers = pandas.DataFrame(soaked["answers"])
    assert answers["expected"].all(), answers
    kinds = {"photo 4000 px", "hostile file", "redacted", "leaves while sending", "batch"}
    assert kinds | {"/metrics", "malformed form"} < set(answers["kind"])
    samples = pandas.DataFrame(soaked["samples"])
    warm = samples[len(samples) // 3 :]
    assert not warm.isna().any(axis=None), "a process ended or started"
    growth = warm.iloc[-1] - warm.iloc[0]
    # Triton's pools grow with the largest photo, and stay.
    assert growth[soak.MEMORY] < GROWTH_MIB and growth[soak.SHARED] < 64


def test_the_service_heals_without_a_hand(tmp_path, monkeypatch):
    """One service, which bears these faults one after the other."""
    monkeypatch.setattr(faults, "FAULTS", {fault: faults.FAULTS[fault] for fault in BORNE})
    _, found = bench(tmp_path, "faults")
    assert [row["fault"] for row in found["faults"]] == [*BORNE]
    for row in found["faults"]:
        assert row["problems"] == [] and row["healed s"] < WITHOUT_A_HAND_S, row
