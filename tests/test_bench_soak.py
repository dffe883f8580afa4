"""What a soak finds: a leak is told from noise, and every surprise is named."""

import asyncio
import json
import os
from pathlib import Path

import numpy as np
import pytest
from small_server import OK, REFUSAL, always, small_server

from plates.benchmarks import report, soak, soak_report, soaking
from plates.benchmarks.http1 import Target
from plates.benchmarks.soaking import Sample, Soak
from plates.benchmarks.traffic import mixed_load, sample_photos
from plates.benchmarks.trend import Floats, trend_of

TIMES = np.arange(0, 900, 5.0)
LEVEL = 1000.0
FOREIGN = {"/v1/plate-reader/", "/v1/vision/alpr"}


def sticky_noise(seed: int, correlation: float = 0.9) -> Floats:
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
    trend = trend_of(TIMES, values)
    assert trend.slope == pytest.approx(7.2, rel=0.2)


def test_leaks_are_caught_and_noise_is_not() -> None:
    """150 MiB an hour is what a leak of 7 KiB at each of 6 requests a second makes."""
    flat = [trend_of(TIMES, LEVEL + sticky_noise(seed)) for seed in range(20)]
    leak = 150 * TIMES / 3600
    leaking = [trend_of(TIMES, LEVEL + leak + sticky_noise(seed)) for seed in range(20)]
    assert sum(trend.within_noise(10) for trend in flat) >= 18
    assert not any(trend.within_noise(10) for trend in leaking)
    assert sum(trend.low <= 150 <= trend.high for trend in leaking) >= 17


def test_what_surely_grows_by_next_to_nothing_is_tolerated() -> None:
    trend = trend_of(TIMES, LEVEL + 2 * TIMES / 3600)
    assert trend.within_noise(10)
    assert not trend.within_noise(1)


def test_what_does_not_move_has_no_trend() -> None:
    trend = trend_of(TIMES, np.full(len(TIMES), 7.0))
    assert (trend.slope, trend.low, trend.high, trend.level) == (0, 0, 0, 7)


def test_a_trend_needs_points() -> None:
    with pytest.raises(ValueError, match="8 points"):
        trend_of(TIMES[:7], TIMES[:7])


def soaked(growth: float = 0.0, segments: int = 5) -> Soak:
    """Fifteen minutes of a service whose gateway grows by so many MiB an hour."""
    noise = sticky_noise(0)
    found = Soak(seconds=900)
    for moment, wobble in zip(TIMES, noise, strict=True):
        rss = {"plates serve (1)": 100 + wobble + growth * moment / 3600, "tritonserver (2)": 50.0}
        found.samples.append(Sample(float(moment), rss, 120.0, 7.0, segments, 100))
    return found


def verdicts(found: Soak) -> dict[str, bool]:
    return {verdict.what: verdict.holds for verdict in found.verdicts()}


def test_a_flat_service_holds_every_floor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = soaked()
    found.answers = {"photo 480 px": {"200": 7, "429": 1}}
    assert all(verdicts(found).values())
    soak_report.print_answers(found)
    soak_report.print_memory(found)
    assert "200: 7, 429: 1" in capsys.readouterr().out
    soak_report.draw_soak(found, tmp_path / "soak.png")
    report.write_json(tmp_path / "soak.json", soak.document_of(found))
    assert json.loads((tmp_path / "soak.json").read_text())["samples"][0]["rss"]


def test_a_growing_service_misses_the_floor_of_memory() -> None:
    assert [what for what, holds in verdicts(soaked(150)).items() if not holds] == [
        "resident memory, MiB"
    ]


def test_surprises_and_restarts_miss_their_floors() -> None:
    found = soaked()
    found.unexpected = {"photo 480 px: 500": 2}
    last = found.samples[-1].rss
    last["tritonserver (3)"] = last.pop("tritonserver (2)")
    lines = [str(verdict) for verdict in found.verdicts() if not verdict.holds]
    assert any("photo 480 px: 500 2 times" in line for line in lines)
    assert any("+tritonserver (3), -tritonserver (2)" in line for line in lines)


def test_the_mixed_load_has_every_kind() -> None:
    everything = frozenset({"/v1/plates", "/v1/plates/batch", *FOREIGN})
    target = Target("127.0.0.1", 1)
    few = {kind.name for kind in mixed_load(target, sample_photos(), frozenset())}
    many = {kind.name for kind in mixed_load(target, sample_photos(), everything)}
    assert many - few == {"redacted", "batch", *FOREIGN}
    assert {"hostile file", "malformed form", "leaves while sending", "no plates"} < few


@pytest.mark.parametrize(
    ("answer", "surprises"),
    [(OK, {"hostile file", "malformed form"}), (REFUSAL, set()), (None, {"no plates"})],
)
def test_what_must_not_come_is_named(answer: bytes | None, surprises: set[str]) -> None:
    """A server that takes everything, one that is busy, and one that hangs up."""

    async def run() -> Soak:
        async with small_server(always(answer)) as server:
            kinds = mixed_load(server.target, sample_photos(), frozenset())
            found = Soak(seconds=1)
            for kind in kinds:
                await soaking.send_one(server.target, kind, kind.requests[-1], found)
            return found

    found = asyncio.run(run())
    named = {what.partition(":")[0] for what in found.unexpected}
    assert surprises <= named
    assert bool(named) == bool(surprises)
    assert found.answers["leaves while sending"] == {soaking.GONE: 1}


def test_a_soak_begins_with_every_request() -> None:
    document = json.dumps({"paths": {}}).encode()
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(document), document)

    async def run() -> tuple[Soak, int]:
        async with small_server(always(answer)) as server:
            kinds = mixed_load(server.target, sample_photos(), frozenset())
            found = await soaking.soak(server.target, os.getpid(), 0.3, rate=20, every_s=0.1)
            return found, sum(len(kind.requests) for kind in kinds if kind.expected)

    found, answered = asyncio.run(run())
    assert sum(counts.get("200", 0) for counts in found.answers.values()) > answered
    assert len(found.samples) >= 1
