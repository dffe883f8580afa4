"""What `plates bench serve` found, and its floors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from plates.benchmarks.batching import Served
from plates.benchmarks.report import Verdict
from plates.benchmarks.serve_load import GRPC, HTTP, Stretch
from plates.benchmarks.serve_pairing import BUSY, Round, median

READY_S = 10.0
MEMORY_MB = 700.0
EXTRA_DECODES = 1.5
SHARE = 0.75


@dataclass(frozen=True)
class ServeBench:
    """All figures of one run; what a service elsewhere does not tell is empty or None.

    Attributes:
        machine: Where it ran.
        cores: That may be used.
        ready_s: From the start of `plates serve` to the first 200 of /readyz.
        rounds: In process and HTTP in turns.
        stretches: Loads, closed loops first.
        pss_mb: Memory of each part of the service after the loads of one photo, in 10^6 bytes.
        mixed_pss_mb: The same after the mixed loads, with a detector for each canvas.
        models: How Triton serves them.
    """

    machine: str
    cores: int
    ready_s: float | None
    rounds: Sequence[Round]
    stretches: Sequence[Stretch]
    pss_mb: Mapping[str, float] = field(default_factory=dict)
    mixed_pss_mb: Mapping[str, float] = field(default_factory=dict)
    models: Sequence[Served] = ()

    def closed(self, way: str, mixed: bool = False) -> list[Stretch]:
        """Closed loops one way."""
        return [s for s in self.stretches if _is(s, way, mixed) and s.order.concurrency]

    def open(self, way: str) -> list[Stretch]:
        """Open loops one way."""
        return [s for s in self.stretches if _is(s, way, False) and not s.order.concurrency]

    def verdicts(self) -> list[Verdict]:
        """The floors of this benchmark, of what was measured."""
        return [
            *self._start_and_memory(),
            *(self._paired() if self.rounds else ()),
            *self._batching(),
            *self._threads(),
            self._answers(),
        ]

    def _start_and_memory(self) -> list[Verdict]:
        found = []
        if self.ready_s is not None:
            found.append(
                Verdict(
                    "from `plates serve` to ready",
                    f"{self.ready_s:.1f} s",
                    f"<= {READY_S:g} s",
                    self.ready_s <= READY_S,
                )
            )
        if self.pss_mb:
            together = sum(self.pss_mb.values())
            found.append(
                Verdict(
                    "memory of all processes after the loads of one photo (PSS)",
                    f"{together:.0f} MB",
                    f"<= {MEMORY_MB:g} MB",
                    together <= MEMORY_MB,
                )
            )
        return found

    def _paired(self) -> list[Verdict]:
        extra, decode = median(self.rounds, "extra_p50"), median(self.rounds, "decode_p50")
        decodes, share = median(self.rounds, "extra_decodes"), median(self.rounds, "share")
        return [
            Verdict(
                "p50 of HTTP minus p50 in process, in times of decoding the JPEG",
                f"{decodes:.2f} ({extra * 1000:.1f} ms over {decode * 1000:.1f} ms)",
                f"<= {EXTRA_DECODES:g}",
                decodes <= EXTRA_DECODES,
            ),
            Verdict(
                f"photos/s of HTTP at concurrency {BUSY}, over the most in process",
                f"{share:.2f}",
                f">= {SHARE:g}",
                share >= SHARE,
            ),
        ]

    def _batching(self) -> list[Verdict]:
        shared = [
            stretch.batches["yolo"].sharing
            for stretch in (*self.closed(HTTP), *self.closed(GRPC))
            if stretch.order.concurrency >= BUSY and "yolo" in stretch.batches
        ]
        if not shared:
            return []
        best = max(shared)
        return [
            Verdict(
                "photos of one canvas in flight together share executions of yolo",
                f"up to {best:.2f} per execution",
                "> 1",
                best > 1,
            )
        ]

    def _threads(self) -> list[Verdict]:
        graphs = [model for model in self.models if model.threads is not None]
        if not graphs:
            return []
        most = max(model.instances * (model.threads or 0) for model in graphs)
        return [
            Verdict(
                "threads x instances of each graph",
                f"at most {most}",
                f"<= {self.cores} cores",
                most <= self.cores,
            )
        ]

    def _answers(self) -> Verdict:
        failures = sum(stretch.failures for stretch in self.stretches)
        sent = sum(stretch.summary.requests for stretch in self.stretches)
        return Verdict("photos that were not read", f"{failures} of {sent}", "0", failures == 0)


def _is(stretch: Stretch, way: str, mixed: bool) -> bool:
    return stretch.order.way == way and stretch.order.mixed == mixed
