"""A fuzzing campaign: sends all requests, judges the answers, and reports them."""

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from support import wait_until

from fuzzing.documents import send_documented
from fuzzing.exchange import send, violation
from fuzzing.kinds import KINDS
from fuzzing.tensors import overflow, send_tensors
from plates.benchmarks.service import Service, footprints
from plates.cli import CommandError
from plates.serving.running import wait_until_ready

DOCUMENTED = "openapi document"
_DOCUMENTED_SHARE = 0.1
# The campaign ends after so many violations: the service is broken.
_MAX_VIOLATIONS = 50
# Memory may grow by this factor, as allocators keep freed memory; measured over 10,000 requests.
_GROWTH_FACTOR = 1.15
_HEALED_S = 60
# Seconds until the service notices an ended process: longer than a read photo proves readiness.
_NOTICED_S = 3
# Settings of a service that the campaign starts: short, because some kinds wait for a time-out.
TIMEOUTS = {"PLATES_UPLOAD_TIMEOUT_S": "2", "PLATES_HEADER_TIMEOUT_S": "2"}


@dataclass
class Campaign:
    """One run of all kinds against a service, and its Triton if the gRPC address is known."""

    service: Service
    triton: str | None
    seed: int
    count: int  # of requests
    folder: Path  # for failed requests and the service's log
    growth_mb: float  # memory may grow by so much beyond _GROWTH_FACTOR
    # Kind, status, seconds and violation of each request.
    sent: list[tuple[str, str, float, str | None]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)  # as sentences
    _notes: list[str] = field(default_factory=list)

    def run(self):
        """Warm up, send all requests, and compare the processes before and after."""
        service, seed = self.service, self.seed
        share = round(self.count * _DOCUMENTED_SHARE)
        send_documented(service.url, seed, share, lambda *a: self._note(DOCUMENTED, *a))
        shares = [share for _, share in KINDS.values()]
        kinds = random.Random(seed).choices([*KINDS], shares, k=self.count - len(self.sent))
        planned, warm_up = [*enumerate(kinds)], len(kinds) // 4
        self._send_all(planned[:warm_up])
        before = footprints(service.pid)
        self._send_all(planned[warm_up:])
        after = footprints(service.pid)
        if self.triton:
            for model, status, wrong in send_tensors(self.triton, seed, self.count // 50):
                self._note(model, status, 0.0, wrong)
        self._judge(before, after)
        if self.triton:  # This ends a process; the supervisor must restart it.
            whole = self._parts()
            self._notes.append(f"a shape that overflows, to Triton: {overflow(self.triton)}")
            time.sleep(_NOTICED_S)
            self._expect_healed(whole)

    def _send_all(self, planned):
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda pair: self._send(*pair), planned))

    def _send(self, number, kind):
        if len(self.violations) >= _MAX_VIOLATIONS:
            return
        attempt = KINDS[kind][0](random.Random(f"{self.seed} {kind} {number}"))
        start = time.monotonic()
        answer = send(attempt, self.service.url)
        took = time.monotonic() - start
        wrong = violation(attempt, answer)
        if wrong:
            file = self.folder / f"{number:05d}-{kind.replace(' ', '-')}.http"
            file.write_bytes(b"".join(attempt.pieces))
            wrong = f"{attempt.path}: {wrong} (replay: nc HOST PORT < {file})"
        self._note(kind, answer.status, took, wrong)

    def _note(self, kind, status, seconds, wrong):
        self.sent.append((kind, str(status), seconds, wrong))
        self.violations += [f"{kind}: {wrong}"] if wrong else []

    def _judge(self, before, after):
        """Note violations: ended or grown processes, logged tracebacks, a service not ready."""
        if {*before["pid"]} != {*footprints(self.service.pid)["pid"]}:
            self.violations.append("processes ended or began meanwhile")
        warm, end = (side["rss_bytes"].sum() / 2**20 for side in (before, after))
        self._notes.append(f"memory of all processes: {warm:.0f} MB, {end:.0f} MB at the end")
        if end > _GROWTH_FACTOR * warm + self.growth_mb:
            self.violations.append(f"memory grew from {warm:.0f} to {end:.0f} MB")
        log = self.service.log.read_text(errors="replace") if self.service.log else ""
        (self.folder / "service.log").write_text(log)
        lines = [line for line in log.splitlines() if "Traceback (most recent" in line]
        self.violations += [f"in the log: {line[:300]}" for line in lines]
        self._expect_healed()

    def _expect_healed(self, parts=None):
        start = time.monotonic()
        try:
            wait_until(lambda: parts in (None, self._parts()), _HEALED_S)
            wait_until_ready(self.service.url, _HEALED_S)
            self._notes.append(f"whole and ready after {time.monotonic() - start:.1f} s")
        except (AssertionError, CommandError):
            self.violations.append(f"not whole and ready again: {self._parts()}")

    def _parts(self):
        return Counter(footprints(self.service.pid)["part"])

    def table(self):
        """The report as text: kinds with their statuses, processes, violations."""
        rows = pd.DataFrame(self.sent, columns=["kind", "status", "seconds", "wrong"])
        table = rows.groupby(["kind", "status"]).agg(
            sent=("wrong", "size"), slowest_s=("seconds", "max"), wrong=("wrong", "count")
        )
        lines = [table.to_string(float_format="%.2f"), "", *self._notes, ""]
        lines += [f"WRONG {number}: {text}" for number, text in enumerate(self.violations, 1)]
        return "\n".join(lines)
