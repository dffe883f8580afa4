"""What an overload's figures say: floors, recovery, tables and pictures."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from plates.benchmarks import report
from plates.benchmarks.load import Load, Outcome
from plates.benchmarks.overload_plot import draw_overload
from plates.benchmarks.recovery import measure_recovery
from plates.benchmarks.summary import summarise
from plates.benchmarks.sweep import Overload, Phase, print_phases

NORMAL = [Outcome(index / 10, 0.1, 200) for index in range(100)]


def test_recovery_ends_with_the_last_refusal_and_normal_latency() -> None:
    slow = [Outcome(index / 10, 1.0 if index < 30 else 0.1, 200) for index in range(100)]
    assert measure_recovery(NORMAL, NORMAL).seconds == 0
    assert measure_recovery(NORMAL, slow).seconds == 3.0
    refused = [*slow, Outcome(4.2, 0.01, 429, 1.0)]
    assert measure_recovery(NORMAL, refused).seconds == 4.2


def test_a_service_that_stays_slow_or_refuses_has_not_recovered() -> None:
    slow = [Outcome(index / 10, 1.0, 200) for index in range(100)]
    refusing = [*NORMAL, Outcome(9.9, 0.01, 429, 1.0)]
    assert measure_recovery(NORMAL, slow).seconds is None
    assert measure_recovery(NORMAL, refusing).seconds is None


def overloaded(goodput_at_4: int, p99_s: float, status: int = 429) -> Overload:
    """A service that answers 10 photos a second, and so many at four times that."""

    def phase(factor: float, good: int, others: int) -> Phase:
        refusal = Outcome(0.0, 0.01, status, 1.0, "" if status else "cut off")
        outcomes = [Outcome(0.0, p99_s, 200)] * good + [refusal] * others
        return Phase(factor, summarise([Load(outcomes, 10.0)], 2.0), {})

    phases = [phase(0.5, 50, 0), phase(1.0, 100, 0), phase(4.0, goodput_at_4, 300)]
    return Overload("a machine", 2.0, 10.0, phases, measure_recovery(NORMAL, NORMAL))


def test_floors_of_an_overload(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = overloaded(95, 1.9)
    print_phases(good.phases)
    assert "4x" in capsys.readouterr().out
    draw_overload(good, tmp_path / "overload.png")
    report.write_json(tmp_path / "overload.json", asdict(good))
    assert json.loads((tmp_path / "overload.json").read_text())["capacity"] == 10
    assert report.print_verdicts(good.verdicts()) == 0


@pytest.mark.parametrize(
    ("found", "missed"),
    [
        (overloaded(89, 1.9), "goodput at 4 times"),
        (overloaded(95, 2.1), "p99 of accepted"),
        (overloaded(95, 1.9, status=504), "answers 5xx"),
        (overloaded(95, 1.9, status=0), "requests without an answer"),
    ],
)
def test_a_missed_floor_is_named(
    found: Overload, missed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report.print_verdicts(found.verdicts()) == 1
    assert f"MISSED  {missed}" in capsys.readouterr().out
