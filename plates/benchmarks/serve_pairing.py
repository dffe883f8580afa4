"""HTTP and in process in turns: a machine drifts within minutes by more than they differ."""

import contextlib
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from plates.benchmarks.footprint import cpu_by_part
from plates.benchmarks.measuring_process import MeasuringProcess
from plates.benchmarks.serve_in_process import Readings, environment, read_for
from plates.benchmarks.serve_load import HTTP, Order, offer
from plates.benchmarks.service import Service
from plates.benchmarks.summary import percentile
from plates.cli import CommandError

BUSY = 4  # concurrency at which throughput is compared
_WARM_UP_S = 1.0


@dataclass(frozen=True)
class Round:
    """One turn of each; times in seconds.

    Attributes:
        in_process_p50: Of a photo in one process with all threads, alone on the machine.
        decode_p50: Of these, for decoding.
        http_p50: Of the same photo through HTTP, one at a time.
        in_process_rate: Photos per second of that one process.
        processes_rate: Of as many processes as cores with one thread each, together.
        http_rate: Through HTTP, at concurrency 4.
        idle_service: CPU seconds per second of the service while photos are read in process.
        idle_readers: The same of the processes that read them, while HTTP is measured.
    """

    in_process_p50: float
    decode_p50: float
    http_p50: float
    in_process_rate: float
    processes_rate: float
    http_rate: float
    idle_service: float
    idle_readers: float

    @property
    def extra_p50(self) -> float:
        """What HTTP takes longer."""
        return self.http_p50 - self.in_process_p50

    @property
    def extra_decodes(self) -> float:
        """The same in times that the file takes to decode."""
        return self.extra_p50 / self.decode_p50

    @property
    def share(self) -> float:
        """Throughput of HTTP over the most that is possible in process."""
        return self.http_rate / max(self.in_process_rate, self.processes_rate)


def median(rounds: Sequence[Round], name: str) -> float:
    """The median of an attribute over rounds."""
    return float(statistics.median(getattr(one, name) for one in rounds))


def measure_rounds(
    serving: Service, load: MeasuringProcess, photo: bytes, rounds: int, seconds: float, cores: int
) -> list[Round]:
    """Measure in turns: in process, HTTP alone, processes side by side, HTTP at concurrency 4.

    Args:
        serving: The service.
        load: Sends the photos.
        photo: A file's bytes.
        rounds: How often.
        seconds: For each turn.
        cores: How many processes with one thread.
    """
    with _readers(cores) as readers:
        for reader in readers:
            reader.call(read_for, _WARM_UP_S, photo)
        return [_round(serving, load, readers, photo, seconds) for _ in range(rounds)]


@contextlib.contextmanager
def _readers(cores: int) -> Iterator[list[MeasuringProcess]]:
    """One process with all threads, then as many as cores with one each."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(MeasuringProcess(environment(threads)))
            for threads in (cores, *[1] * cores)
        ]


def _round(
    serving: Service,
    load: MeasuringProcess,
    readers: Sequence[MeasuringProcess],
    photo: bytes,
    seconds: float,
) -> Round:
    single, several = readers[:1], readers[1:]
    (alone,), idle = _read(serving, single, photo, seconds)
    one = load.call(offer, Order(HTTP, seconds, concurrency=1), serving, [photo]).summary
    together, idle_too = _read(serving, several, photo, seconds)
    busy = load.call(offer, Order(HTTP, seconds, concurrency=BUSY), serving, [photo]).summary
    if one.p50_s is None or not busy.goodput:
        raise CommandError(f"photos were not read: {one.statuses} {busy.statuses} {busy.dropped}")
    return Round(
        in_process_p50=percentile(alone.whole_s, 50) or 0.0,
        decode_p50=percentile(alone.decode_s, 50) or 0.0,
        http_p50=one.p50_s,
        in_process_rate=alone.rate,
        processes_rate=sum(readings.rate for readings in together),
        http_rate=busy.goodput,
        idle_service=max(idle, idle_too),
        idle_readers=sum(r.idle_cpu_s for r in (alone, *together)) / (2 * seconds),
    )


def _read(
    serving: Service, readers: Sequence[MeasuringProcess], photo: bytes, seconds: float
) -> tuple[list[Readings], float]:
    """Have all of them read at once; and how busy the service was meanwhile."""
    before = sum(cpu_by_part(serving.pid).values())
    begun = [reader.start(read_for, seconds, photo) for reader in readers]
    found = [future.result() for future in begun]
    used = sum(cpu_by_part(serving.pid).values()) - before
    return found, used / max(readings.seconds for readings in found)
