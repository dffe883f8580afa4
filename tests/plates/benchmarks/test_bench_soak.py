"""What a soak finds: a leak is told from noise, and every surprise is named."""

import asyncio
import os
from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from small_server import OK, REFUSAL, Reply, always, small_server

from plates.benchmarks import soak
from plates.benchmarks.load import CLIENT_LEFT
from plates.benchmarks.service import Service
from plates.benchmarks.soak import Soak, mixed_traffic, trend_of
from plates.cli import CommandError

TIMES = np.arange(0, 900, 5.0)


def sticky_noise(seed: int, correlation: float = 0.9) -> NDArray[np.float64]:
    """Memory as it is: 3 MiB up and down, each step much like the one before."""
    dice = np.random.default_rng(seed)
    noise = np.zeros(len(TIMES))
    for index in range(1, len(noise)):
        step = dice.normal() * 3 * np.sqrt(1 - correlation**2)
        noise[index] = correlation * noise[index - 1] + step
    return noise


def test_a_slope_is_found_whatever_outliers_there_are() -> None:
    values = 5.0 + 7.2 * TIMES / 3600
    values[::10] += 400
    assert trend_of(TIMES, values)["slope/h"] == pytest.approx(7.2, rel=0.2)


def test_the_interval_knows_that_neighbours_are_alike() -> None:
    """150 MiB an hour is what a leak of 7 KiB at each of 6 requests a second makes."""
    flat = [trend_of(TIMES, 1000 + sticky_noise(seed)) for seed in range(20)]
    leak = 1000 + 150 * TIMES / 3600
    leaking = [trend_of(TIMES, leak + sticky_noise(seed)) for seed in range(20)]
    assert sum(trend["low"] <= 0 for trend in flat) >= 18
    assert all(trend["low"] > 10 for trend in leaking)
    assert sum(trend["low"] <= 150 <= trend["high"] for trend in leaking) >= 17


def test_a_trend_needs_points() -> None:
    with pytest.raises(CommandError, match="10 measurements"):
        trend_of(TIMES[:9], TIMES[:9])


def soaked(growth: float = 0.0) -> Soak:
    """Fifteen minutes of a service that grows by so many MiB an hour."""
    memory = 1000 + sticky_noise(0) + growth * TIMES / 3600
    totals = {soak.SHARED: 7.0, soak.FILES: 100.0, "tritonserver (2)": 50.0}
    samples = [
        {"at_s": float(at), soak.MEMORY: float(value), **totals}
        for at, value in zip(TIMES, memory, strict=True)
    ]
    return Soak([row("photo", 200), row("photo", 429), row("leaves", 0, CLIENT_LEFT)], samples)


def row(kind: str, status: int, error: str = "") -> dict[str, Any]:
    return {"kind": kind, "status": status, "error": error, "right": status == 200}


def missed(found: Soak) -> list[str]:
    return [str(one) for one in found.verdicts(found.trends()) if not one.holds]


def test_a_flat_service_holds_every_floor() -> None:
    assert missed(soaked()) == []
    assert missed(soaked(growth=2)) == [], "by next to nothing"
    assert soaked().answers() == [
        {"kind": "photo", "answers": {"200": 1, "429": 1}},
        {"kind": "leaves", "answers": {CLIENT_LEFT: 1}},
    ]


def test_growth_surprises_and_restarts_miss_their_floors() -> None:
    (line,) = missed(soaked(growth=150))
    assert soak.MEMORY in line
    found = soaked()
    found.rows.extend([row("photo", 500), row("photo", 500), row("photo", 0, "cut off")])
    last = found.samples[-1]
    last["tritonserver (3)"] = last.pop("tritonserver (2)")
    surprises, processes = missed(found)
    assert "photo: 500 2 times, photo: cut off 1 times" in surprises
    assert "tritonserver (2), tritonserver (3)" in processes


@pytest.mark.parametrize(
    ("answer", "surprises"),
    [
        (OK, {"hostile file: 200", "malformed form: 200"}),
        (REFUSAL, set()),
        (None, {"no plates", "photo 480 px", "batch"}),
    ],
)
def test_a_soak_sends_every_request_and_names_what_must_not_come(
    answer: Reply | None, surprises: set[str]
) -> None:
    """A server that takes everything, one that is busy, and one that hangs up."""
    with small_server(always(answer)) as server:
        service = Service(server.url, os.getpid())
        found = asyncio.run(soak.soak(service, seconds=0.3, rate=20, every_s=0.02))
    sent = Counter(row["kind"] for row in found.rows)
    assert sent >= Counter(request.kind for request in mixed_traffic())
    assert {"/metrics", "/readyz", "redacted", "photo 4000 px"} <= set(sent)
    assert len(found.samples) >= 2
    unexpected = " ".join(found.unexpected())
    assert all(one in unexpected for one in surprises) and bool(surprises) == bool(unexpected)
    assert {r["error"] for r in found.rows if r["kind"].startswith("leaves")} == {CLIENT_LEFT}
