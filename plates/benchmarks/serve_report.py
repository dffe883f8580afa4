"""Tables and the picture of `plates bench serve`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plates.benchmarks import report
from plates.benchmarks.batching import Batches
from plates.benchmarks.serve_load import GRPC, HTTP, Stretch
from plates.benchmarks.serve_pairing import BUSY, Round
from plates.benchmarks.serve_result import ServeBench

_COLOURS = {HTTP: "tab:blue", GRPC: "tab:orange"}
_GRAPHS = ("yolo", "stn", "lprnet")


def print_bench(found: ServeBench) -> None:
    """Print all tables."""
    print(f"\n{found.machine}")
    if found.rounds:
        print("\nIn process and HTTP in turns, ms and photos/s")
        _print_rounds(found.rounds)
    print("\nLatency of one photo, ms; CPU ms per photo")
    _print_loads(found)
    if any(stretch.batches for stretch in found.stretches):
        print("\nRows per execution / requests per execution, by Triton's counts")
        _print_batches(found)
    if found.models:
        print(f"\nThreads of {found.cores} cores")
        rows = [(m.model, m.backend, str(m.instances), str(m.threads or "-")) for m in found.models]
        report.print_table(("model", "backend", "instances", "threads"), rows)
    if found.pss_mb:
        print("\nMemory after the loads of one photo, and after those of all canvases, PSS in MB")
        columns = (found.pss_mb, found.mixed_pss_mb)
        sums = tuple({**column, "sum": sum(column.values())} for column in columns)
        parts = [(part, *(f"{column.get(part, 0):.0f}" for column in sums)) for part in sums[0]]
        report.print_table(("part", "one photo", "mixed"), parts)


def _print_rounds(rounds: Sequence[Round]) -> None:
    report.print_table(
        (
            *("round", "in process p50", "decode", "HTTP p50", "more", "decodes"),
            *("in process/s", "processes/s", f"HTTP/s at {BUSY}", "share"),
            *("idle service", "idle readers"),
        ),
        [_round_row(number, one) for number, one in enumerate(rounds, 1)],
    )


def _round_row(number: int, one: Round) -> list[str]:
    times = (one.in_process_p50, one.decode_p50, one.http_p50, one.extra_p50)
    rates = (one.in_process_rate, one.processes_rate, one.http_rate)
    return [
        str(number),
        *(f"{seconds * 1000:.1f}" for seconds in times),
        f"{one.extra_decodes:.2f}",
        *(f"{rate:.1f}" for rate in rates),
        f"{one.share:.2f}",
        f"{one.idle_service:.1%}",
        f"{one.idle_readers:.1%}",
    ]


def _print_loads(found: ServeBench) -> None:
    parts = list(dict.fromkeys(part for s in found.stretches for part in s.cpu_ms))
    headings = ["way", "load", "photos/s", "p50", "p95", "p99", "photos", "generator", "service"]
    report.print_table(
        [*headings, *(part.removeprefix("stub ") for part in parts)],
        [_load_row(stretch, parts) for stretch in found.stretches],
    )


def _load_row(stretch: Stretch, parts: Sequence[str]) -> list[str]:
    summary, cpu_ms = stretch.summary, stretch.cpu_ms
    return [
        stretch.order.way,
        _load_of(stretch),
        f"{summary.goodput:.1f}",
        *map(report.milliseconds, (summary.p50_s, summary.p95_s, summary.p99_s)),
        str(summary.requests),
        f"{summary.generator_cpu_ms:.1f}",
        f"{sum(cpu_ms.values()):.1f}" if cpu_ms else "-",
        *(f"{cpu_ms.get(part, 0.0):.1f}" for part in parts),
    ]


def _load_of(stretch: Stretch) -> str:
    order = stretch.order
    if order.concurrency:
        return f"{order.concurrency} at once" + (", mixed" if order.mixed else "")
    return f"{order.rate:.1f}/s"


def _print_batches(found: ServeBench) -> None:
    rows = [
        (stretch.order.way, _load_of(stretch), *(_shared(stretch.batches.get(m)) for m in _GRAPHS))
        for stretch in found.stretches
    ]
    report.print_table(("way", "load", *_GRAPHS), rows)


def _shared(batches: Batches | None) -> str:
    return f"{batches.mean_size:.2f} / {batches.sharing:.2f}" if batches else "-"


def draw_serve(found: ServeBench, path: Path) -> None:
    """Draw latency over throughput both ways, and batches over concurrency.

    Args:
        found: What was measured.
        path: Of the picture.
    """
    drawn = report.figure(12, 4.8)
    times, batches = drawn.subplots(1, 2)
    for way, colour in _COLOURS.items():
        _draw_times(times, found, way, colour)
        for mixed in (False, True):
            _draw_batches(batches, found.closed(way, mixed), f"{way}{', mixed' * mixed}", colour)
    times.set(xlabel="photos/s", ylabel="ms", title="Latency (whiskers: p95)")
    batches.set(xlabel="at once", ylabel="photos per execution", title="Batches of yolo")
    for axes in (times, batches):
        axes.grid(alpha=0.3)
        axes.set_ylim(bottom=0)
        if axes.get_legend_handles_labels()[0]:
            axes.legend()
    drawn.suptitle(found.machine, fontsize=9)
    drawn.savefig(path, dpi=110)


def _draw_times(axes: Any, found: ServeBench, way: str, colour: str) -> None:
    for stretches, style, name in (
        (found.closed(way), "o-", "closed loop, 1 to 16 at once"),
        (found.open(way), "s--", "open loop"),
    ):
        known = [s.summary for s in stretches if s.summary.p50_s is not None]
        if not known:
            continue
        p50 = [(one.p50_s or 0.0) * 1000 for one in known]
        up = [(one.p95_s or 0.0) * 1000 - middle for one, middle in zip(known, p50, strict=True)]
        axes.errorbar(
            [one.goodput for one in known],
            p50,
            yerr=[[0.0] * len(up), up],
            fmt=style,
            color=colour,
            mfc="white" if style == "s--" else colour,
            capsize=3,
            label=f"{way}, {name}",
        )


def _draw_batches(axes: Any, stretches: Sequence[Stretch], name: str, colour: str) -> None:
    known = [s for s in stretches if "yolo" in s.batches]
    if known:
        axes.plot(
            [stretch.order.concurrency for stretch in known],
            [stretch.batches["yolo"].sharing for stretch in known],
            "^:" if known[0].order.mixed else "o-",
            color=colour,
            label=name,
        )
