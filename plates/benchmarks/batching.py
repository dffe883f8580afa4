"""How requests shared executions, by Triton's own counts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plate_models.cores import choose_threads

_THREADS = ("INFERENCE_NUM_THREADS", "intra_op_thread_count", "INTRA_OP_THREAD_COUNT")


@dataclass(frozen=True)
class Batches:
    """What one model has done.

    Attributes:
        requests: Answered. A photo is one for `yolo`; for `stn` and `lprnet` one or two, of
            as many rows as it has plates or lines.
        rows: Of all their batches together; Triton calls them inferences.
        executions: Computations, each of one request or of several together.
        sizes: Rows to the number of executions with so many.
        queue_ns: What requests have waited for their turn, in nanoseconds.
        infer_ns: What they were computed for.
    """

    requests: int
    rows: int
    executions: int
    sizes: Mapping[int, int]
    queue_ns: int = 0
    infer_ns: int = 0

    @property
    def mean_size(self) -> float:
        """Rows per execution; zero without any."""
        return self.rows / self.executions if self.executions else 0.0

    @property
    def sharing(self) -> float:
        """Requests per execution: 1 where none ever shared one; zero without any."""
        return self.requests / self.executions if self.executions else 0.0

    def since(self, earlier: "Batches") -> "Batches":
        """What was done between two counts of the same model."""
        sizes = {size: n - earlier.sizes.get(size, 0) for size, n in self.sizes.items()}
        return Batches(
            self.requests - earlier.requests,
            self.rows - earlier.rows,
            self.executions - earlier.executions,
            {size: n for size, n in sorted(sizes.items()) if n},
            self.queue_ns - earlier.queue_ns,
            self.infer_ns - earlier.infer_ns,
        )


def batches_of(document: Mapping[str, Any]) -> dict[str, Batches]:
    """Read Triton's statistics.

    Args:
        document: `ModelStatisticsResponse` as JSON; see `TritonClient.statistics`.

    Returns:
        Model name to what it has done since it was loaded.

    Raises:
        ValueError: They are not as documented.
    """
    try:
        return {model["name"]: _batches(model) for model in document.get("model_stats", ())}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"Triton's statistics are not as documented: {error!r}") from error


def _batches(model: Mapping[str, Any]) -> Batches:
    spent = model.get("inference_stats", {})
    return Batches(
        requests=_number(spent.get("success", {}), "count"),
        rows=_number(model, "inference_count"),
        executions=_number(model, "execution_count"),
        sizes={
            _number(batch, "batch_size"): _number(batch["compute_infer"], "count")
            for batch in model.get("batch_stats", ())
        },
        queue_ns=_number(spent.get("queue", {}), "ns"),
        infer_ns=_number(spent.get("compute_infer", {}), "ns"),
    )


def _number(part: Mapping[str, Any], name: str) -> int:
    # In JSON, protobuf leaves out zeros and writes 64 bits as texts.
    return int(part.get(name, 0))


def between(before: Mapping[str, Batches], after: Mapping[str, Batches]) -> dict[str, Batches]:
    """What each model has done between two counts; one that was idle is left out."""
    nothing = Batches(0, 0, 0, {})
    done = {name: found.since(before.get(name, nothing)) for name, found in after.items()}
    return {name: batches for name, batches in done.items() if batches.executions}


@dataclass(frozen=True)
class Served:
    """How a model is served.

    Attributes:
        model: Its name.
        backend: Such as "openvino".
        instances: How many run side by side.
        threads: With which each computes; None for a model that is no graph.
    """

    model: str
    backend: str
    instances: int
    threads: int | None


def served_as(config: Mapping[str, Any]) -> Served:
    """Read a model's configuration; threads that it leaves open are chosen as there.

    Args:
        config: `ModelConfig` as JSON; see `TritonClient.configuration`.
    """
    counts = [_number(group, "count") for group in config.get("instance_group", ())]
    parameters = config.get("parameters", {})
    given = [parameters[name]["string_value"] for name in _THREADS if name in parameters]
    threads = choose_threads(int(given[0])) if given else None
    return Served(config["name"], config.get("backend", "?"), sum(counts) or 1, threads)
