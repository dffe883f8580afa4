"""The service to measure, which is started here or runs already, and its processes."""

import argparse
import contextlib
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas
import psutil

from plates.cli import CommandError
from plates.serving.running import running_service, tail, wait_until_ready
from plates.serving.triton import shared_memory

_START_S, _PATIENCE_S = 90.0, 15.0
# A stub has its instance's name, such as yolo_0_0: model, instance group, number.
_STUB = re.compile(r"/triton_python_backend_stub .* ([a-z][a-z_]*)_\d+_\w*\d+( |$)")
_MODULE = re.compile(r" (?:api|plates)\.(?:\w+\.)*(\w+)")


@dataclass(frozen=True)
class Service:
    """A service that is ready; only one that was started here has all fields."""

    url: str
    pid: int | None = None
    log: Path | None = None
    status_file: Path | None = None
    ready_s: float | None = None


def add_service(parser: argparse.ArgumentParser, measured: bool = True) -> None:
    """Declare --url, and --pid if the service's processes are measured."""
    elsewhere = "a running service (default: start one on loopback, and stop it)"
    parser.add_argument("--url", metavar="http://HOST:PORT", help=elsewhere)
    if measured:
        here = "process `plates serve` of that service on this machine, to measure it"
        parser.add_argument("--pid", type=int, help=here)


@contextlib.contextmanager
def service(url: str | None, pid: int | None = None, **settings: str) -> Iterator[Service]:
    """Yield the service at a URL, or start one with these settings on a free port and stop it.

    Raises CommandError if `pid` is wrong, or it isn't ready, stops badly or leaves shared memory.
    """
    if pid is not None and (not url or footprints(pid).empty):
        raise CommandError(f"--pid {pid}: expected a running process of yours that serves --url")
    if url:
        wait_until_ready(url, _PATIENCE_S)
        yield Service(url.rstrip("/"), pid)
        return
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="plates-bench-") as folder:
        log, status_file = Path(folder) / "serve.log", Path(folder) / "status.json"
        given = {"PLATES_STATUS_FILE": str(status_file)} | settings
        with running_service(given, log) as (process, url):
            wait_until_ready(url, _START_S, process, log)
            yield Service(url, process.pid, log, status_file, ready_s=time.monotonic() - began)
        if status := process.returncode:
            raise CommandError(f"the service ended with status {status}:\n{tail(log)}")
        if left := [path.name for path in shared_memory(f"plates_{process.pid}_")]:
            raise CommandError(f"the service has stopped and left shared memory: {left}")


def footprints(root: int | None) -> pandas.DataFrame:
    """Measure a process and its descendants, a row for each; those that end meanwhile are omitted.

    So are other users'. Shared pages count in full in "rss_bytes", once in "pss_bytes".
    """
    found = []
    if root is not None and psutil.pid_exists(root):
        first = psutil.Process(root)
        for process in [first, *first.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied), process.oneshot():
                memory, cpu = process.memory_full_info(), process.cpu_times()
                part = "plates serve" if process is first else part_of(process.cmdline())
                used = (memory.rss, memory.pss, cpu.user + cpu.system, process.num_fds())
                found.append((process.pid, part, *used))
    columns = ["pid", "part", "rss_bytes", "pss_bytes", "cpu_s", "files"]
    return pandas.DataFrame(found, columns=columns)


def total_by_part(root: int | None, column: str) -> "pandas.Series[float]":
    """Add up a column of `footprints` over the processes of each part."""
    return footprints(root).groupby("part")[column].sum().astype(float)


def part_of(command: list[str]) -> str:
    """Find the part of the service that a process is, by its arguments."""
    line = " ".join(command)
    if stub := _STUB.search(line):
        return f"stub {stub[1]}"
    if module := _MODULE.search(line):
        return module[1]
    return Path(command[0]).name if command else "?"
