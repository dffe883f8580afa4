"""Triton's own counts of executions, and how it serves its models."""

from typing import Any

import pytest

from plates.benchmarks.batching import Batches, Served, batches_of, between, served_as


def statistics(executions: dict[int, int], requests: int) -> dict[str, Any]:
    """As protobuf writes them: 64 bits as text, zeros left out."""
    return {
        "name": "yolo",
        "inference_count": str(sum(size * count for size, count in executions.items())),
        "execution_count": str(sum(executions.values())),
        "inference_stats": {
            "success": {"count": str(requests), "ns": "900"},
            "fail": {},
            "queue": {"count": str(requests), "ns": "400"},
            "compute_infer": {"count": str(requests), "ns": "500"},
        },
        "batch_stats": [
            {"batch_size": str(size), "compute_infer": {"count": str(count), "ns": "1"}}
            for size, count in executions.items()
        ],
    }


def test_batches_are_counted_between_two_moments() -> None:
    idle = {"name": "stn"}  # loaded, and asked for nothing yet
    before = batches_of({"model_stats": [statistics({1: 3}, 3), idle]})
    after = batches_of({"model_stats": [statistics({1: 5, 4: 2}, 9), idle]})
    done = between(before, after)
    assert done.keys() == {"yolo"}
    assert done["yolo"] == Batches(6, 10, 4, {1: 2, 4: 2})
    assert (done["yolo"].mean_size, done["yolo"].sharing) == (2.5, 1.5)
    assert between({}, after)["yolo"].executions == 7
    assert Batches(0, 0, 0, {}).mean_size == Batches(0, 0, 0, {}).sharing == 0


@pytest.mark.parametrize(
    "document",
    [
        {"model_stats": [{"inference_count": "1"}]},
        {"model_stats": [3]},
        {"model_stats": [{"name": "yolo", "batch_stats": [{"batch_size": "1"}]}]},
        {"model_stats": [{"name": "yolo", "inference_count": "many"}]},
    ],
)
def test_statistics_of_another_kind_are_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        batches_of(document)


def test_a_models_threads_are_those_of_its_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLATES_THREADS", "3")
    config = {
        "name": "yolo",
        "backend": "openvino",
        "instance_group": [{"count": 2}, {"count": "1"}],
        "parameters": {"INFERENCE_NUM_THREADS": {"string_value": "0"}},
    }
    assert served_as(config) == Served("yolo", "openvino", 3, 3)
    config["parameters"] = {"intra_op_thread_count": {"string_value": "2"}}
    assert served_as(config).threads == 2
    assert served_as({"name": "x", "backend": "python"}) == Served("x", "python", 1, None)
