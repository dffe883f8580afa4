"""Sends everything, judges it, and prints what came."""

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from fuzzing.attempts import Attempt, save, send
from fuzzing.connections import broken_connection
from fuzzing.documents import send_documented
from fuzzing.files import damaged_file
from fuzzing.forms import malformed_form
from fuzzing.parameters import odd_parameters
from fuzzing.pictures import largest_picture, odd_picture
from fuzzing.service import Process, Service
from fuzzing.tensors import overflow, send_tensors
from fuzzing.verdicts import violation

Made = Callable[[random.Random], Attempt]

LARGEST = "largest pictures"
# Parts of a thousand. What reaches the nets costs a hundred times what is refused before.
KINDS: dict[str, tuple[Made, int]] = {
    "damaged files": (damaged_file, 400),
    "malformed forms": (malformed_form, 150),
    "broken connections": (broken_connection, 130),
    "odd parameters": (odd_parameters, 150),
    "odd pictures": (odd_picture, 60),
    LARGEST: (largest_picture, 2),
}
DOCUMENTED, _DOCUMENTED_SHARE = "openapi document", 108
_WORKERS = 4
_LEAST = 5
# The rest is a waste of time once it is known to be broken.
_MAX_VIOLATIONS = 50
# Allocators keep some of what they were given once: measured over ten thousand requests.
GROWTH_FACTOR, GROWTH_MB = 1.15, 100.0
_HEALED_S = 60
# Longer than the service believes in a photo that was read.
_NOTICED_S = 3


@dataclass
class Row:
    """What came of one kind."""

    count: int = 0
    slowest_s: float = 0.0
    statuses: Counter[int | None] = field(default_factory=Counter)
    violations: int = 0


@dataclass
class Report:
    """What came of a campaign.

    Attributes:
        rows: By kind.
        violations: Each as a sentence, with the file that repeats it.
        before: Processes after the warm-up.
        after: Processes when the last request to the gateway was answered.
        notes: Further lines to print.
    """

    rows: dict[str, Row] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    before: list[Process] = field(default_factory=list)
    after: list[Process] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Campaign:
    """One run of all kinds against one service."""

    def __init__(
        self,
        service: Service,
        seed: int,
        count: int,
        folder: Path,
        growth_mb: float = GROWTH_MB,
    ) -> None:
        """Plan to send `count` requests; failing ones are saved to `folder`.

        `growth_mb`: by how much memory may grow besides its share; more in a campaign so
        short that pools fill after its warm-up.
        """
        self._service, self._seed, self._count, self._folder = service, seed, count, folder
        self._growth_mb = growth_mb
        self._lock = threading.Lock()
        self.report = Report()

    def run(self) -> Report:
        """Warm up, send everything, and look at the processes before and after."""
        # First, because it decides by itself how many requests make sense.
        self._send_documented(self._count * _DOCUMENTED_SHARE // 1000)
        kinds = self._plan(self._count - self.report.rows[DOCUMENTED].count)
        # The largest pictures come first: what they leave behind is no growth.
        kinds.sort(key=lambda planned: planned[0] != LARGEST)
        warm_up = len(kinds) // 4
        self._send_all(kinds[:warm_up])
        self.report.before = self._service.processes()
        self._send_all(kinds[warm_up:])
        self.report.after = self._service.processes()
        self._send_tensors()
        self._judge_processes()
        self._send_overflow()
        return self.report

    def _plan(self, count: int) -> list[tuple[str, int]]:
        """Kinds and numbers, in an order that only the seed decides."""
        whole = sum(share for _, share in KINDS.values())
        planned = [
            (kind, number)
            for kind, (_, share) in KINDS.items()
            for number in range(max(_LEAST, round(count * share / whole)))
        ]
        # What rounding left over.
        most = sum(kind == "damaged files" for kind, _ in planned)
        missing = range(most, most + count - len(planned))
        planned += [("damaged files", number) for number in missing]
        random.Random(self._seed).shuffle(planned)
        return planned

    def _send_all(self, planned: list[tuple[str, int]]) -> None:
        with ThreadPoolExecutor(_WORKERS) as pool:
            for _ in pool.map(lambda pair: self._send(*pair), planned):
                pass

    def _send(self, kind: str, number: int) -> None:
        if len(self.report.violations) >= _MAX_VIOLATIONS:
            return
        attempt = KINDS[kind][0](random.Random(f"{self._seed} {kind} {number}"))
        answer = send(attempt, self._service.host, self._service.port)
        wrong = violation(attempt, answer)
        with self._lock:
            row = self.report.rows.setdefault(kind, Row())
            row.count += 1
            row.slowest_s = max(row.slowest_s, answer.seconds)
            row.statuses[answer.status] += 1
            if wrong:
                row.violations += 1
                path = save(attempt, self._folder, number)
                self.report.violations.append(f"{attempt.path}: {wrong} (replay: {path})")

    def _send_documented(self, count: int) -> None:
        found = send_documented(self._service.url, self._seed, count)
        row = Row(found.sent, found.slowest_s, found.statuses, len(found.violations))
        self.report.rows[DOCUMENTED] = row
        for reason, command in itertools.zip_longest(found.violations, found.commands):
            self.report.violations.append(f"{reason} (replay: {command})")

    def _send_tensors(self) -> None:
        grpc_address, http_address = self._service.triton_grpc, self._service.triton_http
        if grpc_address is None or http_address is None:
            return
        rounds = max(1, self._count // 500)
        outcome = send_tensors(grpc_address, http_address, self._seed, rounds)
        self.report.notes.append("tensors straight to Triton:")
        for case, statuses in outcome.statuses.items():
            self.report.notes.append(f"  {case:22} {_counts(statuses)}")
        self.report.violations += outcome.violations

    def _judge_processes(self) -> None:
        """Nobody died, nobody grew, nobody is still at work, nothing was logged."""
        before, after = self.report.before, self.report.after
        if _pids(before) != _pids(self._service.processes()):
            self.report.violations.append("processes ended or began meanwhile")
        bound = GROWTH_FACTOR * _rss(before) + self._growth_mb
        if _rss(after) > bound:
            text = f"memory grew from {_rss(before):.0f} to {_rss(after):.0f} MB"
            self.report.violations.append(f"{text}; at most {bound:.0f} were expected")
        self.report.violations += [f"in the log: {line}" for line in self._service.tracebacks()]
        self._expect_ready()

    def _expect_ready(self) -> None:
        try:
            took = self._service.wait_until_ready(_HEALED_S)
        except TimeoutError as error:
            self.report.violations.append(str(error))
        else:
            self.report.notes.append(f"ready after {took:.1f} s")

    def _send_overflow(self) -> None:
        """The last kind: it ends a process, and the supervisor must see to that."""
        address = self._service.triton_grpc
        if address is None or self._service.pid is None:
            return
        status = overflow(address)
        self.report.notes.append(f"a shape that overflows, straight to Triton: {status}")
        names, start = _names(self.report.after), time.monotonic()
        time.sleep(_NOTICED_S)
        while _names(self._service.processes()) != names:
            if time.monotonic() - start > _HEALED_S:
                now = dict(_names(self._service.processes()))
                self.report.violations.append(
                    f"not healed within {_HEALED_S} s: {now} instead of {dict(names)}"
                )
                return
            time.sleep(0.2)
        self._expect_ready()
        self.report.notes[-1] += f", all processes are back after {time.monotonic() - start:.1f} s"


def _pids(processes: list[Process]) -> set[int]:
    return {process.pid for process in processes}


def _names(processes: list[Process]) -> Counter[str]:
    return Counter(process.name for process in processes)


def _rss(processes: list[Process]) -> float:
    return sum(process.rss_mb for process in processes)


def _counts(statuses: Counter[int | None] | Counter[str]) -> str:
    ordered = sorted(statuses.items(), key=lambda item: str(item[0]))
    return "  ".join(f"{status or 'none'}: {count}" for status, count in ordered)


def table_of(report: Report) -> str:
    """What came, as text: kinds, then processes, then what was wrong."""
    lines = [f"{'kind':20}{'sent':>7}{'slowest':>10}{'wrong':>7}  statuses"]
    for kind, row in report.rows.items():
        told = f"{row.count:7}{row.slowest_s:8.2f} s{row.violations:7}  {_counts(row.statuses)}"
        lines.append(f"{kind:20}{told}")
    lines += ["", *report.notes]
    if report.before:
        lines += ["", f"{'process':46}{'warm':>9}{'at the end':>12}"]
        ends = {process.pid: process.rss_mb for process in report.after}
        for process in report.before:
            end = f"{ends[process.pid]:9.0f} MB" if process.pid in ends else "ended".rjust(12)
            lines.append(f"{process.name:46}{process.rss_mb:6.0f} MB{end}")
        lines.append(f"{'all':46}{_rss(report.before):6.0f} MB{_rss(report.after):9.0f} MB")
    lines += ["", *(f"WRONG {number}: {text}" for number, text in enumerate(report.violations, 1))]
    return "\n".join(lines)
