"""The service that is measured: one started here, or one that runs already; its processes."""

import argparse
import contextlib
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from plates.cli import CommandError
from plates.serving.running import running_service, tail

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - Triton's choice
_START_S, _PATIENCE_S, _PAUSE_S = 90.0, 15.0, 0.1
_AS_IT_IS: Mapping[str, str] = {}
# Triton names the instance of a stub, such as yolo_0_0: model, instance group, number.
_INSTANCE = re.compile(r"([a-z][a-z_]*)_\d+_\w*\d+")


@dataclass(frozen=True)
class Service:
    """A service that is ready: its first process, log and start-up time where they are known."""

    url: str
    pid: int | None = None
    log: Path | None = None
    ready_s: float | None = None


@dataclass(frozen=True, slots=True)
class ProcessFootprint:
    """What one process holds and has used; `part` is such as "gateway" or "stub yolo".

    Memory that is shared with others counts in full in `rss_bytes`, in parts in `pss_bytes`.
    """

    pid: int
    part: str
    rss_bytes: int
    pss_bytes: int
    cpu_s: float
    files: int


def add_service(parser: argparse.ArgumentParser) -> None:
    """Declare --url and --pid."""
    elsewhere = "a service that runs already (default: one is started on loopback, and stopped)"
    parser.add_argument("--url", metavar="http://HOST:PORT", help=elsewhere)
    here = "its first process, where it runs here, to be measured as well"
    parser.add_argument("--pid", type=int, help=here)


@contextlib.contextmanager
def service(
    url: str | None, pid: int | None = None, settings: Mapping[str, str] = _AS_IT_IS
) -> Iterator[Service]:
    """Yield the service at a URL, or start one on a free loopback port and stop it.

    Args:
        url: http://host:port of one that runs; None starts one.
        pid: Its first process, if it is to be measured.
        settings: Environment variables of the one that is started, with their prefix.

    Raises:
        CommandError: It doesn't get ready, doesn't stop cleanly or leaves shared memory.
    """
    if url:
        _wait_until_ready(url, time.monotonic() + _PATIENCE_S)
        yield Service(url.rstrip("/"), pid)
        return
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="plates-bench-") as folder:
        log = Path(folder) / "serve.log"
        with running_service(settings, log) as running:
            _wait_until_ready(running.url, began + _START_S, log)
            yield Service(running.url, running.process.pid, log, time.monotonic() - began)
        if status := running.process.returncode:
            raise CommandError(f"the service ended with status {status}:\n{tail(log)}")
        if left := [path.name for path in segments(running.process.pid)]:
            raise CommandError(f"the service has stopped and left shared memory: {left}")


def _wait_until_ready(url: str, deadline: float, log: Path | None = None) -> None:
    while True:
        try:
            answer = httpx.get(f"{url}/readyz", timeout=_PATIENCE_S, trust_env=False)
            if answer.is_success:
                return
            reason = f"/readyz says {answer.status_code} {answer.text[:300]}"
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise CommandError(f"expected http://host:port, got {url!r}: {error}") from error
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
        if time.monotonic() > deadline:
            logged = f"\n{tail(log)}" if log else ""
            raise CommandError(f"the service at {url} is not ready: {reason}{logged}")
        time.sleep(_PAUSE_S)


def footprints(root: int | None) -> list[ProcessFootprint]:
    """Measure a process and all below it; those that end meanwhile are left out."""
    found: list[ProcessFootprint] = []
    if root is None or not psutil.pid_exists(root):
        return found
    first = psutil.Process(root)
    for process in [first, *first.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess), process.oneshot():
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            memory, cpu = process.memory_full_info(), process.cpu_times()
            part = part_of(process.cmdline(), process is first)
            values = (memory.rss, memory.pss, cpu.user + cpu.system, process.num_fds())
            found.append(ProcessFootprint(process.pid, part, *values))
    return found


def part_of(command: list[str], is_root: bool) -> str:
    """Name the part of the service that a process is, by its arguments."""
    if is_root:
        return "plates serve"
    program = Path(command[0]).name if command else "?"
    if program.startswith("triton_python_backend_stub"):
        names = [found[1] for word in command[2:] if (found := _INSTANCE.fullmatch(word))]
        return f"stub {names[-1] if names else '?'}"
    modules = [word for word in command if word.startswith(("api.", "plates."))]
    name = modules[0].rpartition(".")[2] if modules else program
    return "gateway" if name.startswith("gateway") else name


def cpu_by_part(root: int | None) -> dict[str, float]:
    """Add up the processor time, in seconds, that each part of a service has used."""
    used: dict[str, float] = {}
    for one in footprints(root):
        used[one.part] = used.get(one.part, 0.0) + one.cpu_s
    return used


def segments(root: int) -> list[Path]:
    """List the shared-memory segments of the Triton below a `plates serve`."""
    return list(SHARED_MEMORY.glob(f"plates_{root}_*"))
