"""Runs `plates bulk` as people do, and watches it: progress, memory, kills."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from plates.benchmarks.footprint import family, footprints
from plates.serving.processes import Process

PLATES = (sys.executable, "-P", "-m", "plates.cli.main", "bulk")
_EVERY_S = 0.5
# Shared pages are counted page by page: looking too often would take a tenth of a core.
_MEMORY_EVERY_S = 5.0
_GONE_WITHIN_S = 60.0


@dataclass(frozen=True)
class Memory:
    """What a run's processes hold at one time, in MiB of PSS.

    Attributes:
        at_s: Seconds since the run began.
        driver: The command's own process.
        actors: Those that read photos.
        ray: All others.
    """

    at_s: float
    driver: float
    actors: float
    ray: float

    @property
    def total(self) -> float:
        """All together."""
        return self.driver + self.actors + self.ray


@dataclass
class Watched:
    """One run of the command.

    Attributes:
        seconds: From its start to its end.
        status: Of its exit; negative where a signal ended it.
        memory: Over time.
        said: What it printed.
    """

    seconds: float = 0.0
    status: int = 0
    memory: list[Memory] = field(default_factory=list)
    said: str = ""


def parts_done(out: Path) -> int:
    """How many chunks are committed."""
    return sum(1 for _ in (out / "plates").glob("part-*.parquet"))


def watch(
    words: Sequence[str],
    look: "Callable[[subprocess.Popen[str]], None] | None" = None,
    with_memory: bool = True,
) -> Watched:
    """Run the command to its end.

    Args:
        words: Its arguments.
        look: Called twice a second, to kill something.
        with_memory: Measure it.

    Returns:
        What was seen.
    """
    watched, began = Watched(), time.monotonic()
    with subprocess.Popen(  # noqa: S603
        [*PLATES, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            while process.poll() is None:
                at_s = time.monotonic() - began
                if with_memory and at_s >= len(watched.memory) * _MEMORY_EVERY_S:
                    watched.memory.append(_memory(process.pid, at_s))
                if look is not None:
                    look(process)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_EVERY_S)
        except BaseException:
            process.send_signal(signal.SIGTERM)
            raise
        watched.said = process.stdout.read() if process.stdout else ""
    watched.seconds, watched.status = time.monotonic() - began, process.returncode
    return watched


def actors_of(driver: int) -> list[Process]:
    """The processes that read photos."""
    return [process for process in family(driver) if _is_actor(process.command)]


def _is_actor(command: tuple[str, ...]) -> bool:
    return bool(command) and command[0].startswith("ray::") and "MapWorker" in command[0]


def _memory(driver: int, at_s: float) -> Memory:
    held = {"driver": 0.0, "actors": 0.0, "ray": 0.0}
    for process in footprints(driver, with_pss=True):
        part = "actors" if _is_actor((process.part,)) else "ray"
        part = "driver" if process.pid == driver else part
        held[part] += (process.pss_bytes or 0) / 2**20
    return Memory(at_s, **held)


def wait_until_gone(processes: Sequence[Process]) -> bool:
    """Wait for the family of a killed driver to end.

    Returns:
        Whether all of it did.
    """
    deadline = time.monotonic() + _GONE_WITHIN_S
    while time.monotonic() < deadline:
        if not any(_lives(process) for process in processes):
            return True
        time.sleep(0.2)
    return False


def _lives(process: Process) -> bool:
    return any(p.began == process.began and not p.dead for p in family(process.pid)[:1])
