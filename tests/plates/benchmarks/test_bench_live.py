"""The service under overload, mixed traffic and kill -9: short versions of `plates bench`.

Only the long versions check goodput, latency, memory growth and time strictly: tests share the
machine with other processes.
"""

import pandas
import pytest
from small_server import bench
from support import REPOSITORY

from plates.benchmarks import faults, overload, soak
from plates.benchmarks.service import service

pytestmark = [pytest.mark.live, pytest.mark.control]

# From a third of the run to its end; a leak of one photo's pixels per request would be 300 MiB.
GROWTH_MIB = 150.0
# `plates bench faults` allows 10 seconds, on an idle machine; this limit is for any machine.
HEALED_WITHIN_S = 60
# One fault of each kind; `plates bench faults` and the tests of serving have the others.
FAULTS = ("kill yolo", "kill the gateway", "freeze Triton")


def test_overload_is_refused_with_429_and_mixed_traffic_leaks_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(soak, "EVERY_S", 1.0)
    monkeypatch.setattr(soak, "LEAST_MINUTES", 0.34)
    monkeypatch.setattr(overload, "ROUNDS", 1)
    monkeypatch.setattr(overload, "FACTORS", (0.5, 4.0))
    with service(None, PLATES_MODEL_REPOSITORY=str(REPOSITORY)) as served:
        here = ("--url", served.url)
        # A deadline so long that on slow machines, too, only a full queue refuses requests.
        words = ("--seconds", "3", "--deadline", "10")
        _, overloaded = bench(tmp_path, "overload", *here, *words)
        # Its memory also includes what the overload may have leaked.
        _, soaked = bench(tmp_path, "soak", *here, "--pid", str(served.pid), "--minutes", "0.34")
        assert served.log is not None and served.ready_s is not None and served.ready_s > 0
        assert "Traceback" not in served.log.read_text(errors="replace")
    normal, worst = overloaded["rates"]
    assert (normal["load"], worst["load"]) == ("0.5x", "4x")
    assert set(worst["statuses"]) == {"200", "429"}, worst
    assert worst["without Retry-After"] == 0
    assert worst["goodput/s"] > 0 and normal["goodput/s"] > 0
    # The gateway's deadline starts with the request's head, the client's clock before it.
    assert worst["p99 ms"] < 2 * 1000 * 10
    answers = pandas.DataFrame(soaked["answers"])
    assert answers["expected"].all(), answers
    kinds = {"photo 4000 px", "hostile file", "redacted", "leaves while sending", "batch"}
    assert kinds | {"/metrics", "malformed form"} < set(answers["kind"])
    samples = pandas.DataFrame(soaked["samples"])
    warm = samples[len(samples) // 3 :]
    assert not warm.isna().any(axis=None), "a process ended or started"
    growth = warm.iloc[-1] - warm.iloc[0]
    # Triton's memory pools grow with the largest photo, and keep their size.
    assert growth[soak.MEMORY] < GROWTH_MIB and growth[soak.SHARED] < 64


def test_the_service_recovers_from_faults_by_itself(tmp_path, monkeypatch):
    """A single service has these faults one after the other."""
    monkeypatch.setattr(faults, "FAULTS", {name: faults.FAULTS[name] for name in FAULTS})
    _, found = bench(tmp_path, "faults")
    assert [row["fault"] for row in found["faults"]] == [*FAULTS]
    for row in found["faults"]:
        assert row["problems"] == [] and row["healed s"] < HEALED_WITHIN_S, row
