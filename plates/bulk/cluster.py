"""Ray: one of our own on this machine, or a cluster by its address; chunks go through Ray Data.

Only numbers of chunks travel: actors read the files and write the results themselves. Ray
Data keeps a few chunks in flight for each actor, starts an actor again that died, and gives
its chunk to it once more, as often as it takes; `journal` sees to it that this ends.
"""

import contextlib
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plate_models.cores import usable_cores
from plates.bulk import ClusterError, require

if TYPE_CHECKING:
    from plates.bulk.chunks import Job, Outcome

# One is worked on, the next one waits: nobody idles between two.
_CHUNKS_IN_FLIGHT = 2
# Ray Data keeps some kilobytes for each block until a run of it ends: so a run has an end.
_CHUNKS_PER_ROUND = 2000
# It carries numbers of chunks; Ray would take a third of the machine's memory.
_OBJECT_STORE_BYTES = 80 * 2**20
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@dataclass(frozen=True)
class Resources:
    """What the work is spread over.

    Attributes:
        workers: Actors; None takes one per usable core, or per GPU.
        gpus: GPUs that the actors share evenly; 0 for none.
        address: Of a cluster, as `ray.init` takes it; None starts a Ray on this machine.
    """

    workers: int | None = None
    gpus: int = 0
    address: str | None = None


class Cluster:
    """A running Ray.

    Attributes:
        workers: Actors that it shall run.
    """

    def __init__(self, ray: Any, resources: Resources) -> None:
        self._ray, self._gpus = ray, resources.gpus
        cores = int(ray.cluster_resources().get("CPU", 1))
        self.workers = resources.workers or resources.gpus or cores

    def read(self, job: "Job", chunks: Sequence[int]) -> "Iterator[Outcome]":
        """Read chunks, in rounds.

        Args:
            job: What is read, and where to.
            chunks: Their numbers.

        Yields:
            What became of each, in the order in which they end.

        Raises:
            ClusterError: Ray gave up, or the actors can't load the nets.
        """
        size = max(_CHUNKS_PER_ROUND, 100 * self.workers)
        for start in range(0, len(chunks), size):
            yield from self._round(job, chunks[start : start + size])

    def _round(self, job: "Job", chunks: Sequence[int]) -> "Iterator[Outcome]":
        from plates.bulk.chunks import Outcome

        (data,) = require("ray.data")
        numbers = [{"chunk": chunk} for chunk in chunks]
        blocks = data.from_items(numbers, override_num_blocks=len(chunks))
        pool = data.ActorPoolStrategy(
            size=min(self.workers, len(chunks)), max_tasks_in_flight_per_actor=_CHUNKS_IN_FLIGHT
        )
        outcomes = blocks.map_batches(
            Actor,
            fn_constructor_args=(job,),
            batch_size=1,
            compute=pool,
            num_cpus=1,
            num_gpus=self._gpus / self.workers if self._gpus else None,
        )
        try:
            for row in outcomes.iter_rows():
                yield Outcome(**json.loads(row["outcome"]))
        except self._ray.exceptions.RayError as error:
            raise ClusterError(f"Ray gave up: {_cause_of(error)}") from error


class Actor:
    """What Ray Data runs in each of its processes."""

    def __init__(self, job: "Job") -> None:
        from plates.bulk.chunks import ChunkReader

        self._reader = ChunkReader(job)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        """Read the chunks of a batch."""
        outcomes = [self._reader.read(int(chunk)) for chunk in batch["chunk"]]
        return {"outcome": [json.dumps(asdict(outcome)) for outcome in outcomes]}


@contextlib.contextmanager
def started(resources: Resources, out: Path) -> Iterator[Cluster]:
    """Start Ray on this machine, or connect to a cluster, and let go of it at the end.

    Args:
        resources: What is wanted.
        out: The output folder: a run into the same one removes what a killed one left.

    Raises:
        ClusterError: Ray can't be started, or there is none at the address.
        BulkError: It is not installed.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    ray, data = require("ray", "ray.data")
    folder = _folder_for(out)
    settings: dict[str, Any] = {"address": resources.address}
    if resources.address is None:
        shutil.rmtree(folder, ignore_errors=True)
        settings = {
            "address": "local",
            "num_cpus": max(resources.workers or resources.gpus or usable_cores(), 1),
            "num_gpus": resources.gpus,
            "include_dashboard": False,
            "object_store_memory": _OBJECT_STORE_BYTES,
            "_temp_dir": str(folder),
        }
    try:
        _connect(ray, settings)
        _quieten(data)
        yield Cluster(ray, resources)
    finally:
        ray.shutdown()
        if resources.address is None:
            shutil.rmtree(folder, ignore_errors=True)


def _connect(ray: Any, settings: dict[str, Any]) -> None:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with _stderr_closed():
            ray.init(logging_level=logging.ERROR, log_to_driver=False, **settings)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ClusterError(f"Ray can't be used: {_cause_of(error)}") from error
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():  # Ray would exit on the spot
                signal.signal(number, handler)


@contextlib.contextmanager
def _stderr_closed() -> Iterator[None]:
    """Ray's native part tells there that it was told to be quiet; errors are raised."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _folder_for(out: Path) -> Path:
    """Ray's sockets lie below it, and their paths may have 107 bytes."""
    name = f"plates-ray-{sha256(os.fsencode(out.resolve())).hexdigest()[:8]}"
    return Path(tempfile.gettempdir()) / name


def _quieten(data: Any) -> None:
    """What Ray Data would tell and draw is told by us; and chunks may take their time."""
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.execution_no_progress_timeout_s = -1


def _cause_of(error: BaseException) -> str:
    """The innermost reason, in one line."""
    while isinstance(inner := getattr(error, "cause", None) or error.__cause__, BaseException):
        error = inner
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
