"""What a service's processes hold and use: memory, CPU time, files, shared memory."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from plates.serving import processes

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_BLOCK_BYTES = 512
_INSTANCE = re.compile(r"([a-z][a-z_]*)_\d+_\w*\d+")


@dataclass(frozen=True, slots=True)
class ProcessFootprint:
    """What one process holds and has used.

    Attributes:
        pid: Its process id.
        part: Which part of the service it is, such as "gateway" or "stub yolo".
        rss_bytes: Resident memory; pages shared with others count in each.
        pss_bytes: Resident memory; shared pages count in parts. None if not asked for.
        cpu_s: Processor time since it began.
        files: Open file descriptors.
    """

    pid: int
    part: str
    rss_bytes: int
    pss_bytes: int | None
    cpu_s: float
    files: int


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """What lies in /dev/shm.

    Attributes:
        segments: How many.
        allocated_bytes: What they really take, not what they could grow to.
    """

    segments: int
    allocated_bytes: int


def family(pid: int) -> list[processes.Process]:
    """List a process and all below it that live."""
    own = [process for process in processes.process_table() if process.pid == pid]
    return [p for p in own + processes.descendants(pid) if not p.dead]


def footprints(root: int, with_pss: bool = False) -> list[ProcessFootprint]:
    """Measure a process and all below it.

    Args:
        root: The service's first process.
        with_pss: Ask for `pss_bytes`, too: some milliseconds per process.

    Returns:
        Living processes, parents first; those that end meanwhile are left out.
    """
    measured = (_footprint(process, root, with_pss) for process in family(root))
    return [footprint for footprint in measured if footprint]


def shared_memory(root: int | None) -> SharedMemory:
    """Measure the shared memory of a service.

    Args:
        root: Its first process; None measures all that there is on this machine.
    """
    prefixes = [""] if root is None else [f"plates_{process.pid}_" for process in family(root)]
    segments = {path for prefix in prefixes for path in processes.SHARED_MEMORY.glob(f"{prefix}*")}
    sizes = [size for path in segments if (size := _allocated_bytes(path)) is not None]
    return SharedMemory(len(sizes), sum(sizes))


def cpu_by_part(root: int | None) -> dict[str, float]:
    """Add up the processor time, in seconds, that each part of a service has used.

    Args:
        root: Its first process; None finds nothing.
    """
    used: dict[str, float] = {}
    for footprint in footprints(root) if root is not None else ():
        used[footprint.part] = used.get(footprint.part, 0.0) + footprint.cpu_s
    return used


def part_of(command: tuple[str, ...], is_root: bool) -> str:
    """Name the part of the service that a process is, by its arguments.

    Args:
        command: The arguments.
        is_root: Whether it is the service's first process.
    """
    if is_root:
        return "plates serve"
    program = Path(command[0]).name if command else "?"
    if program.startswith("triton_python_backend_stub"):
        # Triton names the instance, such as yolo_0_0: model, instance group, number.
        names = [found[1] for word in command[2:] if (found := _INSTANCE.fullmatch(word))]
        return f"stub {names[-1] if names else '?'}"
    if program == "tritonserver":
        return program
    modules = [word for word in command if word.startswith("api.")]
    return modules[0].rpartition(".")[2] if modules else program


def _footprint(process: processes.Process, root: int, with_pss: bool) -> ProcessFootprint | None:
    folder = Path("/proc") / str(process.pid)
    try:
        pages = int((folder / "statm").read_text().split()[1])
        # Fields count from the last bracket: the name may hold anything.
        stat = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        pss = _pss_bytes(folder) if with_pss else None
        files = sum(1 for _ in (folder / "fd").iterdir())
    except OSError:  # ended while we looked
        return None
    cpu_s = (int(stat[11]) + int(stat[12])) / _TICKS_PER_S
    part = part_of(process.command, process.pid == root)
    return ProcessFootprint(process.pid, part, pages * _PAGE_BYTES, pss, cpu_s, files)


def _pss_bytes(folder: Path) -> int | None:
    for line in (folder / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return None


def _allocated_bytes(path: Path) -> int | None:
    try:
        return path.stat().st_blocks * _BLOCK_BYTES
    except OSError:  # removed while we looked
        return None
