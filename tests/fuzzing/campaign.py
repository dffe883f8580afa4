"""Sends everything, judges it, and prints what came."""

import contextlib
import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import pandas as pd
from support import wait_until

from fuzzing.documents import send_documented
from fuzzing.exchange import send
from fuzzing.kinds import KINDS
from fuzzing.tensors import overflow, send_tensors
from fuzzing.verdicts import violation
from plates.benchmarks.service import footprints
from plates.cli.serve import TRITON
from plates.serving.running import running_service

DOCUMENTED = "openapi document"
_DOCUMENTED_SHARE = 0.1
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
    """A running service, its log and its Triton's gRPC address; elsewhere only its address."""

    url: str
    pid: int | None = None
    log: Path | None = None
    triton: str | None = None

    def is_ready(self) -> bool:
        """Whether photos are read."""
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/readyz", timeout=_HEALED_S).is_success
        return False

    def parts(self) -> Counter[str]:
        """How many processes of each part run."""
        return Counter(footprints(self.pid)["part"])


@contextlib.contextmanager
def service_of_our_own(folder: Path) -> Iterator[Service]:
    """Run `plates serve` with a Triton of its own, on free ports."""
    log, printed = folder / "service.log", list[str]()
    with running_service(_TIMEOUTS, log, printed.append) as running:
        (line,) = [line.removeprefix(TRITON) for line in printed if line.startswith(TRITON)]
        service = Service(running.url, running.process.pid, log, line.split(",")[0].split()[1])
        wait_until(service.is_ready, _HEALED_S)
        yield service


class Campaign:
    """One run of all kinds against one service."""

    def __init__(
        self, service: Service, seed: int, count: int, folder: Path, growth_mb: float = _GROWTH_MB
    ) -> None:
        """Plan to send `count` requests; failing ones are saved to `folder`.

        Memory may grow by `growth_mb` above its share: pools fill in short campaigns, too.
        """
        self._service, self._seed, self._count, self._folder = service, seed, count, folder
        self._growth_mb = growth_mb
        # Kind, status, seconds and what was wrong, for each request.
        self.sent: list[tuple[str, str, float, str | None]] = []
        self.violations: list[str] = []  # what was wrong, as sentences
        self._notes: list[str] = []

    def run(self) -> None:
        """Warm up, send everything, and look at the processes before and after."""
        service, seed = self._service, self._seed
        share = round(self._count * _DOCUMENTED_SHARE)
        send_documented(service.url, seed, share, lambda *a: self._note(DOCUMENTED, *a))
        shares = [share for _, share in KINDS.values()]
        kinds = random.Random(seed).choices([*KINDS], shares, k=self._count - len(self.sent))
        planned, warm_up = [*enumerate(kinds)], len(kinds) // 4
        self._send_all(planned[:warm_up])
        before = footprints(service.pid)
        self._send_all(planned[warm_up:])
        after = footprints(service.pid)
        if service.triton:
            for model, status, wrong in send_tensors(service.triton, seed, self._count // 50):
                self._note(model, status, 0.0, wrong)
        self._judge(before, after)
        if service.triton:  # The last kind ends a process, and the supervisor must see to that.
            whole = service.parts()
            self._notes.append(f"a shape that overflows, to Triton: {overflow(service.triton)}")
            time.sleep(_NOTICED_S)
            self._expect_healed(whole)

    def _send_all(self, planned: list[tuple[int, str]]) -> None:
        with ThreadPoolExecutor(_WORKERS) as pool:
            list(pool.map(lambda pair: self._send(*pair), planned))

    def _send(self, number: int, kind: str) -> None:
        if len(self.violations) >= _MAX_VIOLATIONS:
            return
        attempt = KINDS[kind][0](random.Random(f"{self._seed} {kind} {number}"))
        start = time.monotonic()
        answer = send(attempt, self._service.url)
        took = time.monotonic() - start
        wrong = violation(attempt, answer)
        if wrong:
            file = self._folder / f"{number:05d}-{kind.replace(' ', '-')}.http"
            file.write_bytes(b"".join(attempt.pieces))
            wrong = f"{attempt.path}: {wrong} (replay: nc HOST PORT < {file})"
        self._note(kind, answer.status, took, wrong)

    def _note(self, kind: str, status: object, seconds: float, wrong: str | None) -> None:
        self.sent.append((kind, str(status), seconds, wrong))
        self.violations += [f"{kind}: {wrong}"] if wrong else []

    def _judge(self, before: pd.DataFrame, after: pd.DataFrame) -> None:
        """No process ended or grew, none is still at work, nothing was logged."""
        if {*before["pid"]} != {*footprints(self._service.pid)["pid"]}:
            self.violations.append("processes ended or began meanwhile")
        warm, end = (side["rss_bytes"].sum() / 2**20 for side in (before, after))
        self._notes.append(f"memory of all processes: {warm:.0f} MB, {end:.0f} MB at the end")
        if end > _GROWTH_FACTOR * warm + self._growth_mb:
            self.violations.append(f"memory grew from {warm:.0f} to {end:.0f} MB")
        log = self._service.log.read_text(errors="replace") if self._service.log else ""
        lines = [line for line in log.splitlines() if "Traceback (most recent" in line]
        self.violations += [f"in the log: {line[:300]}" for line in lines]
        self._expect_healed()

    def _expect_healed(self, parts: Counter[str] | None = None) -> None:
        start = time.monotonic()
        try:
            wait_until(lambda: parts in (None, self._service.parts()), _HEALED_S)
            wait_until(self._service.is_ready, _HEALED_S)
            self._notes.append(f"whole and ready after {time.monotonic() - start:.1f} s")
        except AssertionError:
            self.violations.append(f"not whole and ready again: {self._service.parts()}")

    def table(self) -> str:
        """What came, as text: kinds with their statuses, then processes, then what was wrong."""
        rows = pd.DataFrame(self.sent, columns=["kind", "status", "seconds", "wrong"])
        table = rows.groupby(["kind", "status"]).agg(
            sent=("wrong", "size"), slowest_s=("seconds", "max"), wrong=("wrong", "count")
        )
        lines = [table.to_string(float_format="%.2f"), "", *self._notes, ""]
        lines += [f"WRONG {number}: {text}" for number, text in enumerate(self.violations, 1)]
        return "\n".join(lines)
