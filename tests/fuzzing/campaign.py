"""Sends everything, judges it, and prints what came."""

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from fuzzing.documents import send_documented
from fuzzing.exchange import send
from fuzzing.kinds import KINDS, LARGEST
from fuzzing.tensors import overflow, send_tensors
from fuzzing.verdicts import violation
from plates.benchmarks.service import ProcessFootprint, footprints
from plates.cli.serve import TRITON
from plates.serving.running import running_service

DOCUMENTED = "openapi document"
_DOCUMENTED_SHARE = 108
_WORKERS = 4
# The rest is a waste of time once the service is known to be broken.
_MAX_VIOLATIONS = 50
# Allocators keep some of what they were given once: measured over ten thousand requests.
_GROWTH_FACTOR, _GROWTH_MB = 1.15, 100.0
_HEALED_S = 60
# Longer than the service believes in a photo that was read.
_NOTICED_S = 3
# Short, because some kinds wait for it to pass.
_TIMEOUTS = {"PLATES_UPLOAD_TIMEOUT_S": "2", "PLATES_HEADER_TIMEOUT_S": "2"}


@dataclass(frozen=True)
class Service:
    """A running service, its log and its Triton's gRPC and HTTP; elsewhere only its address."""

    url: str
    pid: int | None = None
    log: Path | None = None
    triton: tuple[str, str] | None = None


@contextlib.contextmanager
def service_of_our_own(folder: Path) -> Iterator[Service]:
    """Run `plates serve` with a Triton of its own, on free ports."""
    log, printed = folder / "service.log", list[str]()
    with running_service(_TIMEOUTS, log, printed.append) as running:
        _wait_until_ready(running.url)
        (line,) = [line.removeprefix(TRITON) for line in printed if line.startswith(TRITON)]
        grpc_url, http_url = (address.split()[1] for address in line.split(","))
        yield Service(running.url, running.process.pid, log, (grpc_url, http_url))


def _wait_until_ready(url: str) -> float:
    """Wait until photos are read, and return how many seconds it took."""
    start = time.monotonic()
    while time.monotonic() - start < _HEALED_S:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/readyz", timeout=_HEALED_S).is_success:
                return time.monotonic() - start
        time.sleep(0.2)
    raise TimeoutError(f"not ready again within {_HEALED_S} s")


@dataclass
class Row:
    """What came of one kind."""

    count: int = 0
    slowest_s: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    violations: int = 0


class Campaign:
    """One run of all kinds against one service: `rows` by kind, `violations` as sentences."""

    def __init__(
        self,
        service: Service,
        seed: int,
        count: int,
        folder: Path,
        least: int = 5,
        growth_mb: float = _GROWTH_MB,
    ) -> None:
        """Plan to send `count` requests, `least` of each kind; failing ones are saved to `folder`.

        Memory may grow by `growth_mb` above its share: pools fill in short campaigns, too.
        """
        self._service, self._seed, self._count, self._folder = service, seed, count, folder
        self._least, self._growth_mb = least, growth_mb
        self._lock = threading.Lock()
        self.rows: dict[str, Row] = {}
        self.violations: list[str] = []
        self.notes: list[str] = []

    def run(self) -> None:
        """Warm up, send everything, and look at the processes before and after."""
        # First, because it decides by itself how many requests make sense.
        share = self._count * _DOCUMENTED_SHARE // 1000
        send_documented(self._service.url, self._seed, share, lambda *a: self._note(DOCUMENTED, *a))
        planned = self._plan(self._count - self.rows[DOCUMENTED].count)
        warm_up = len(planned) // 4
        self._send_all(planned[:warm_up])
        before = footprints(self._service.pid)
        self._send_all(planned[warm_up:])
        after = footprints(self._service.pid)
        if self._service.triton:
            rounds = max(1, self._count // 500)
            for case, status, wrong in send_tensors(*self._service.triton, self._seed, rounds):
                self._note(case, status, 0.0, wrong)
        self._judge(before, after)
        if self._service.triton:
            self._send_overflow(self._service.triton[0])

    def _plan(self, count: int) -> list[tuple[str, int]]:
        """Kinds and numbers, in an order that only the seed decides."""
        rng, shares = random.Random(self._seed), [share for _, share in KINDS.values()]
        kinds = [*KINDS] * self._least
        kinds += rng.choices([*KINDS], shares, k=max(0, count - len(kinds)))
        rng.shuffle(kinds)
        # The largest come first: what they leave behind is no growth.
        kinds.sort(key=lambda kind: kind != LARGEST)
        return [(kind, number) for number, kind in enumerate(kinds)]

    def _send_all(self, planned: list[tuple[str, int]]) -> None:
        with ThreadPoolExecutor(_WORKERS) as pool:
            list(pool.map(lambda pair: self._send(*pair), planned))

    def _send(self, kind: str, number: int) -> None:
        if len(self.violations) >= _MAX_VIOLATIONS:
            return
        attempt = KINDS[kind][0](random.Random(f"{self._seed} {kind} {number}"))
        start = time.monotonic()
        answer = send(attempt, self._service.url)
        took = time.monotonic() - start
        wrong = violation(attempt, answer)
        if wrong:
            name = f"{number:05d}-{kind.replace(' ', '-')}.http"
            wrong = f"{attempt.path}: {wrong} (replay: {attempt.save(self._folder / name)})"
        self._note(kind, answer.status, took, wrong)

    def _note(self, kind: str, status: object, seconds: float, wrong: str | None) -> None:
        with self._lock:
            row = self.rows.setdefault(kind, Row())
            row.count += 1
            row.slowest_s = max(row.slowest_s, seconds)
            row.statuses[str(status)] += 1
            if wrong:
                row.violations += 1
                self.violations.append(f"{kind}: {wrong}")

    def _judge(self, before: list[ProcessFootprint], after: list[ProcessFootprint]) -> None:
        """No process ended or grew, none is still at work, nothing was logged."""
        ends = {one.pid: f"{one.rss_bytes / 2**20:9.0f} MB" for one in after}
        for one in before:
            end = ends.get(one.pid, "ended")
            self.notes.append(f"{one.part:46}{one.rss_bytes / 2**20:6.0f} MB{end}")
        if {one.pid for one in before} != {one.pid for one in footprints(self._service.pid)}:
            self.violations.append("processes ended or began meanwhile")
        warm, end = (sum(one.rss_bytes for one in found) / 2**20 for found in (before, after))
        self.notes.append(f"{'all':46}{warm:6.0f} MB{end:9.0f} MB")
        if end > _GROWTH_FACTOR * warm + self._growth_mb:
            self.violations.append(f"memory grew from {warm:.0f} to {end:.0f} MB")
        log = self._service.log.read_text(errors="replace") if self._service.log else ""
        for line in log.splitlines():
            if "Traceback (most recent" in line:
                self.violations.append(f"in the log: {line[:300]}")
        self._expect_ready()

    def _expect_ready(self) -> None:
        try:
            self.notes.append(f"ready after {_wait_until_ready(self._service.url):.1f} s")
        except TimeoutError as error:
            self.violations.append(str(error))

    def _send_overflow(self, address: str) -> None:
        """The last kind: it ends a process, and the supervisor must see to that."""

        def parts() -> Counter[str]:
            return Counter(one.part for one in footprints(self._service.pid))

        whole = parts()
        self.notes.append(f"a shape that overflows, straight to Triton: {overflow(address)}")
        start = time.monotonic()
        time.sleep(_NOTICED_S)
        while parts() != whole:
            if time.monotonic() - start > _HEALED_S:
                self.violations.append(f"not healed: {parts()} instead of {whole}")
                return
            time.sleep(0.2)
        self._expect_ready()
        self.notes.append(f"all processes were back after {time.monotonic() - start:.1f} s")

    def table(self) -> str:
        """What came, as text: kinds, then processes, then what was wrong."""
        lines = [f"{'kind':40}{'sent':>7}{'slowest':>10}{'wrong':>7}  statuses"]
        for kind, row in self.rows.items():
            statuses = ", ".join(f"{status}: {n}" for status, n in sorted(row.statuses.items()))
            figures = f"{row.count:7}{row.slowest_s:8.2f} s{row.violations:7}"
            lines.append(f"{kind:40}{figures}  {statuses}")
        lines += ["", *self.notes, ""]
        lines += [f"WRONG {number}: {text}" for number, text in enumerate(self.violations, 1)]
        return "\n".join(lines)
