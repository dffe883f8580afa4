"""The service under overload, mixed traffic and kill -9: short runs of `plates bench`.

The long runs have floors for goodput, latency, growth and time. A test can't have them, as it is
short and shares its machine.
"""

import pandas
import pytest
from small_server import bench
from support import REPOSITORY

from plates.benchmarks import faults, overload, soak
from plates.benchmarks.service import service

pytestmark = [pytest.mark.live, pytest.mark.control]

# From the first third to the end; a leak of one photo's pixels per request would be 300 MiB.
GROWTH_MIB = 150.0
# The limit of `plates bench` is for an idle machine; this one holds on every machine.
WITHOUT_A_HAND_S = 60
# `plates bench faults` has all: the others are of these kinds, or are in the tests of serving.
BORNE = ("kill yolo", "kill the gateway", "freeze Triton")


def test_overload_is_refused_politely_and_mixed_traffic_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(soak, "EVERY_S", 1.0)
    monkeypatch.setattr(overload, "ROUNDS", 1)
    monkeypatch.setattr(overload, "FACTORS", (0.5, 4.0))
    with service(None, PLATES_MODEL_REPOSITORY=str(REPOSITORY)) as served:
        here = ("--url", served.url, "--pid", str(served.pid))
        # Long enough that no deadline expires, on slow machines either: only the queue refuses.
        words = ("--seconds", "3", "--deadline", "10")
        _, overloaded = bench(tmp_path, "overload", *here, *words)
        # After the overload, so that its remains are found, too.
        _, soaked = bench(tmp_path, "soak", *here, "--minutes", "0.34")
        assert served.log is not None and served.ready_s is not None and served.ready_s > 0
        assert "Traceback" not in served.log.read_text(errors="replace")
    normal, worst = overloaded["rates"]
    assert (normal["load"], worst["load"]) == ("0.5x", "4x")
    assert set(worst["statuses"]) == {"200", "429"}, worst
    assert worst["without Retry-After"] == 0
    assert worst["goodput/s"] > 0 and normal["goodput/s"] > 0
    # The gateway's deadline begins with the request's head, after this clock.
    assert worst["p99 ms"] < 2 * 1000 * 10
    answers = pandas.DataFrame(soaked["answers"])
    assert answers["expected"].all(), answers
    kinds = {"photo 4000 px", "hostile file", "redacted", "leaves while sending", "batch"}
    assert kinds | {"/metrics", "malformed form"} < set(answers["kind"])
    samples = pandas.DataFrame(soaked["samples"])
    warm = samples[len(samples) // 3 :]
    assert not warm.isna().any(axis=None), "a process ended or started"
    growth = warm.iloc[-1] - warm.iloc[0]
    # Triton's pools grow with the largest photo and keep their size.
    assert growth[soak.MEMORY] < GROWTH_MIB and growth[soak.SHARED] < 64


def test_the_service_heals_without_a_hand(tmp_path, monkeypatch):
    """One service suffers all faults, one after the other."""
    monkeypatch.setattr(faults, "FAULTS", {fault: faults.FAULTS[fault] for fault in BORNE})
    _, found = bench(tmp_path, "faults")
    assert [row["fault"] for row in found["faults"]] == [*BORNE]
    for row in found["faults"]:
        assert row["problems"] == [] and row["healed s"] < WITHOUT_A_HAND_S, row
