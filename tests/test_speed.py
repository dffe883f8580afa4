"""What the measuring in one process says: turns, stages, arithmetic, growth, creep."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from plate_models import detection, pipeline
from plate_models.cores import THREADS
from plate_models.engines.nets import Nets, load_nets
from plate_models.weights import WEIGHTS_DIR, load_modules
from plates.benchmarks.photos import standard_photo
from plates.benchmarks.speed.arithmetic import inputs_of, measure_floors, multiply_adds
from plates.benchmarks.speed.creep import (
    COMPARED,
    Ratio,
    Record,
    RecordError,
    crept,
    measure_record,
)
from plates.benchmarks.speed.scaling import Growth
from plates.benchmarks.speed.stages import STAGES, StageClock, measure_stages, read_file
from plates.benchmarks.speed.turns import WARM_UP, Times, percentile, take_turns


@pytest.fixture(scope="module")
def nets() -> Iterator[Nets]:
    """Nets on one thread: threads that wait for a busy machine spin."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(THREADS, "1")
        yield load_nets()
    torch.set_num_threads(before)


def test_turns_are_taken_forwards_and_backwards_after_a_warm_up() -> None:
    done: list[str] = []
    works = {name: (lambda name=name: done.append(name)) for name in "ab"}
    times = take_turns(works, seconds=0, least=4)
    assert "".join(done) == "ab" * WARM_UP + "abbaabba"
    assert {name: len(of.wall_ms) for name, of in times.items()} == {"a": 4, "b": 4}


def test_elapsed_time_and_processor_time_are_told_apart() -> None:
    times = take_turns({"sleeping": lambda: time.sleep(0.02)}, seconds=0.1)["sleeping"]
    assert len(times.wall_ms) <= 5
    assert times.p95_ms >= times.p50_ms >= 20 > percentile(times.cpu_ms, 50)


def test_stages_cover_the_whole_and_leave_the_pipeline_as_it_was(nets: Nets) -> None:
    before = dict(vars(pipeline))
    found, others = measure_stages(standard_photo(), {"ours": nets}, 0.5, {"nothing": int})
    ours = found["ours"]
    assert tuple(ours.stages) == STAGES and set(others) == {"nothing"}
    used = {stage: percentile(of.cpu_ms, 50) for stage, of in ours.stages.items()}
    # A stage whose function the pipeline no longer calls takes no time at all.
    assert all(used[stage] > 0 for stage in STAGES if stage != "rest"), used
    # In the best turn: threads that wait for a busy machine spin wherever they are.
    shares = zip(ours.stages["rest"].cpu_ms, ours.clocked.cpu_ms, strict=True)
    assert min(rest / total for rest, total in shares) < 0.3
    for index, total in enumerate(ours.clocked.wall_ms):
        assert sum(of.wall_ms[index] for of in ours.stages.values()) == pytest.approx(total)
    assert vars(pipeline) == before


def test_time_is_charged_to_the_outermost_stage_that_spends_it(nets: Nets) -> None:
    def slow(plates: Tensor) -> Tensor:
        time.sleep(0.2)
        detection.choose_canvas(10, 10)
        return nets.recognize(plates)

    clock = StageClock()
    with clock.watching():
        plates = read_file(standard_photo(), clock.with_nets(replace(nets, recognize=slow)))
    wall = {stage: of[0] for stage, of in clock.take().items()}
    assert len(plates) == 2
    assert wall["lprnet"] >= 200
    assert not any(sum(of) for of in clock.take().values())
    inner = clock.timed("yolo", lambda: time.sleep(0.01))
    clock.timed("stn", inner)()
    taken = clock.take()
    assert taken["stn"][0] >= 10 and taken["yolo"] == (0, 0)


@pytest.mark.parametrize(
    ("net", "shape", "count"),
    [
        (torch.nn.Conv2d(3, 8, 3, padding=1), (2, 3, 10, 12), 2 * 8 * 10 * 12 * 3 * 9),
        (torch.nn.Conv2d(4, 8, 3, stride=2, groups=2), (1, 4, 9, 9), 8 * 4 * 4 * 2 * 9),
        (torch.nn.Linear(7, 5), (4, 7), 4 * 7 * 5),
        (torch.nn.ReLU(), (4, 7), 0),
    ],
)
def test_multiply_adds_are_counted_exactly(
    net: torch.nn.Module, shape: tuple[int, ...], count: int
) -> None:
    assert multiply_adds(net, torch.zeros(shape)) == count


def test_a_floor_is_the_arithmetic_at_the_speed_of_the_matrix_multiply(nets: Nets) -> None:
    precisions = dict.fromkeys(("yolo", "stn", "lprnet"), "float32") | {"yolo": "bfloat16"}
    modules = load_modules(WEIGHTS_DIR)
    floors, products = measure_floors(standard_photo(), nets, modules, precisions, 0.1, (64, 96))
    assert {name: one.left.dtype for name, one in products.items()} == {
        "bfloat16": torch.bfloat16,
        "float32": torch.float32,
    }
    yolo, stn, lprnet = floors
    assert (yolo.net, yolo.batch) == ("yolo", (1, 3, 448, 768))
    assert stn.batch[0] == lprnet.batch[0] == 2
    # The whole net does more than its first convolution, and less than 100 times the count.
    assert 1e9 < yolo.multiply_adds < 4e9
    assert yolo.ratio == pytest.approx(
        yolo.times.p50_ms * yolo.rates["bfloat16"] / yolo.multiply_adds
    )
    assert stn.floor_ms("float32") * stn.rates["float32"] == pytest.approx(stn.multiply_adds)


def test_a_photo_without_plates_has_no_floor(nets: Nets) -> None:
    nothing = replace(nets, detect=lambda canvas: torch.zeros(len(canvas), 300, 6))
    with pytest.raises(ValueError, match="a photo with a plate"):
        inputs_of(standard_photo(), nothing)


def growth(*p50_ms: float) -> Growth:
    amounts = (1.0, 4.0, 16.0, 64.0)
    return Growth("plate", amounts, tuple(Times((ms,), (ms,)) for ms in p50_ms))


def test_a_straight_line_does_not_steepen() -> None:
    straight = growth(32, 38, 62, 158)
    assert straight.line() == pytest.approx((2, 30))
    assert straight.steepening() == pytest.approx(1)
    assert straight.deviation() == pytest.approx(0, abs=1e-9)


def test_what_costs_more_and_more_steepens_and_what_saturates_does_not() -> None:
    assert growth(*(30 + 0.1 * n**2 for n in (1, 4, 16, 64))).steepening() > 1.5
    assert growth(30, 40, 50, 55).steepening() < 1
    assert growth(30, 40, 50, 45).steepening() == 0
    assert growth(30, 30, 30, 90).steepening() == float("inf")
    assert growth(32, 38, 62, 300).deviation() > 0.1


def record(**changed: Ratio) -> Record:
    stages = dict.fromkeys(COMPARED, Ratio(1.0, (0.9, 1.1))) | {"whole": Ratio(10.0, (9.0, 11.0))}
    return Record("a machine", 5.0, stages | changed)


@pytest.mark.parametrize(
    ("now", "named"),
    [
        (Ratio(1.3, (1.2, 1.4)), True),
        (Ratio(1.3, (1.1, 1.5)), False),  # perhaps noise
        (Ratio(1.1, (1.05, 1.15)), False),
        (Ratio(0.5, (0.4, 0.6)), False),
    ],
)
def test_a_stage_crept_where_even_its_lower_bound_is_beyond_the_tolerance(
    now: Ratio, named: bool
) -> None:
    slower = crept(record(stn=now), record())
    assert [line.split()[0] for line in slower] == ["stn"] * named


def test_what_is_next_to_nothing_may_double() -> None:
    doubled, small = Ratio(0.1, (0.09, 0.11)), Ratio(0.05, (0.04, 0.06))
    assert not crept(record(NMS=doubled), record(NMS=small))


def test_a_stage_that_was_slowed_down_is_named(nets: Nets) -> None:
    def slow(plates: Tensor) -> Tensor:
        for _ in range(5):
            nets.recognize(plates)
        return nets.recognize(plates)

    kept = measure_record(standard_photo(), nets, 0.5, "a machine")
    now = measure_record(standard_photo(), replace(nets, recognize=slow), 0.5, "a machine")
    assert "lprnet" in [line.split()[0] for line in crept(now, kept)]


def test_kept_figures_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "speed.json"
    record(stn=Ratio(1.23456, (1.0, 2.0))).write(path)
    assert Record.read(path) == record(stn=Ratio(1.235, (1.0, 2.0)))


STAGES_OF = (
    '{"machine": "a", "yardstick_ms": 1, '
    '"stages": {"stn": {"ratio": %s, "interval_95": [0.1, 0.2]}}}'
)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "expected figures as"),
        ("[]", "expected figures as"),
        ('{"machine": "a", "yardstick_ms": 1, "stages": {"stn": {"ratio": 1}}}', "expected fig"),
        (STAGES_OF % "NaN", "expected fig"),
        (STAGES_OF % "0", "expected fig"),
        ('{"machine": "a", "yardstick_ms": 1, "stages": {}}', "no figures for decode, letterbox"),
    ],
)
def test_broken_figures_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "speed.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=complaint):
        Record.read(path)
    with pytest.raises(RecordError, match="make it with --write"):
        Record.read(tmp_path / "none.json")
