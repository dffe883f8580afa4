"""What `plates bench sizing` found: tables and the picture."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from plates.benchmarks import report
from plates.benchmarks.summary import Summary


@dataclass(frozen=True)
class Carried:
    """One kind of photo.

    Attributes:
        kind: Of its camera.
        most: Closed loop: what the service reads at most.
        paced: Open loop at `sizing.SHARE` of that.
        cpu_ms: Processor time of the service per photo, in the closed loop.
    """

    kind: str
    most: Summary
    paced: Summary
    cpu_ms: float


@dataclass(frozen=True)
class Sized:
    """What one service carries.

    Attributes:
        cores: That it may run on.
        ready_mb: PSS of all its processes when it became ready.
        loaded_mb: After all kinds of photos.
        largest_mb: The most while photos of 64 megapixels were read.
        largest_rate: So many of those per second.
        carried: Each kind.
    """

    cores: int
    ready_mb: float
    loaded_mb: float
    largest_mb: float
    largest_rate: float
    carried: list[Carried] = field(default_factory=list)


@dataclass(frozen=True)
class Spread:
    """One service for each core, all under load at once.

    Attributes:
        rate: Standard photos per second of all together.
        p50_s: The slowest service's.
        mb: PSS of all their processes.
    """

    rate: float
    p50_s: float
    mb: float


def print_sizing(sizes: Sequence[Sized], spread: Spread) -> None:
    """Print all tables."""
    headings = ("cores", "photo", "photos/s", "a core", "CPU ms", "p50", "paced/s", "p50", "p99")
    rows = []
    for size in sizes:
        for one in size.carried:
            times = (one.paced.p50_s, one.paced.p99_s)
            rows.append(
                (
                    *(str(size.cores), one.kind),
                    *(f"{one.most.goodput:.1f}", f"{one.most.goodput / size.cores:.1f}"),
                    *(f"{one.cpu_ms:.0f}", report.milliseconds(one.most.p50_s)),
                    *(f"{one.paced.goodput:.1f}", *map(report.milliseconds, times)),
                )
            )
    report.print_table(headings, rows)
    print("\nMemory of all processes, PSS in MB; photos of 64 megapixels per second")
    report.print_table(
        ("cores", "ready", "after these", "64 MP, most", "64 MP/s"),
        [
            (
                str(size.cores),
                *(f"{mb:.0f}" for mb in (size.ready_mb, size.loaded_mb, size.largest_mb)),
                f"{size.largest_rate:.1f}",
            )
            for size in sizes
        ],
    )
    print(
        f"\n{len(sizes)} services on a core each: {spread.rate:.1f} standard photos/s, "
        f"p50 {report.milliseconds(spread.p50_s)} ms, {spread.mb:.0f} MB"
    )


def draw_sizing(sizes: Sequence[Sized], machine: str, path: Path) -> None:
    """Draw rates and memory over cores.

    Args:
        sizes: What was measured.
        machine: Its description.
        path: Of the picture.
    """
    drawn = report.figure(10, 4)
    rates, memory = drawn.subplots(1, 2)
    cores = [size.cores for size in sizes]
    for kinds in zip(*(size.carried for size in sizes), strict=True):
        rates.plot(cores, [one.most.goodput for one in kinds], "o-", label=kinds[0].kind)
    rates.set(xlabel="cores", ylabel="photos/s", title="Most photos per second")
    rates.legend()
    for name in ("ready_mb", "loaded_mb", "largest_mb"):
        memory.plot(cores, [getattr(size, name) for size in sizes], "o-", label=name[:-3])
    memory.set(xlabel="cores", ylabel="MB", title="Memory of all processes, PSS")
    memory.legend()
    for axes in (rates, memory):
        axes.set_ylim(bottom=0)
        axes.set_xticks(cores)
        axes.grid(alpha=0.3)
    drawn.suptitle(machine, fontsize=9)
    drawn.savefig(path, dpi=110)
