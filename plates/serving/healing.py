"""Keeps one Triton running and its model version up to date.

starting ── ready ──┬── Triton or a stub died, no answer, or no photo read ──── restarting
    ▲               └── a newer model version ── changing ── failed half-way ───────┤
    └───────────────────────────────────────────────────────────────────────────────┘
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from api.status import State, Status
from plate_models.release import DEFAULT_GOLDEN
from plates.serving.client import TritonHttp
from plates.serving.errors import EmbeddedTritonError, PreflightError, RequestError, VersionError
from plates.serving.supervisor import RestartBudget, log
from plates.serving.triton import EmbeddedTriton
from plates.serving.versions import ModelVersion, Versions, change_version, read_golden_photo

_PART = "triton"
_POLL_S = 0.25
_LISTEN_TIMEOUT_S = 1.5
# Longer than three requests that time out.
SILENCE_S = 5.0
# Longer while a model version is loaded, which keeps the machine busy.
_SILENCE_OF_CHANGE_S = 18.0
# The canary photo costs some 50 ms of CPU time: read it at most this often.
_READ_EVERY_S = 2.0
# The canary waits behind clients' photos. The largest take seconds, and must not cause a restart.
_READ_TIMEOUT_S = 40.0
STANDSTILL_S = 45.0
# The time in which Triton reaps a stub that it has ended itself.
_REAPED_S = 0.5
_JOIN_S = 1.0
# The part that failed, and the reason.
_Trouble = tuple[str, str]


class TritonHealer:
    """Triton as a part of the service.

    After the first start all work is done in a thread, as slow steps must not keep the supervisor
    from its other parts.
    """

    def __init__(self, triton: EmbeddedTriton) -> None:
        self._triton = triton
        self._stopped = threading.Event()
        self._prober = Prober(triton, self._stopped)
        self._budget = RestartBudget("Triton")
        self._versions = Versions(triton.repository)
        # The new model version while Triton changes to it, and the change's future.
        self._change: tuple[ModelVersion, Future[None]] | None = None
        self._state: State = "starting"
        self._restarts = {_PART: 0}
        self._stubs: dict[psutil.Process, str] = {}
        self._started_at = 0.0
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="triton", daemon=True)

    @property
    def status(self) -> Status:
        """See `plates.serving.supervisor.Part`; restarts are counted by the part that failed."""
        serving = self._versions.serving
        number = serving.number if serving else None
        return Status(self._state, dict(self._restarts), number, self._versions.refused)

    def start(self) -> None:
        """Start Triton with the newest model version that it can serve."""
        self._start()
        threading.Thread(target=self._prober.read_canary, daemon=True).start()
        self._thread.start()

    def tick(self) -> None:
        """Raise the error that ended the thread: `GaveUp`, if Triton was restarted too often."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Stop Triton, and with it the thread's work."""
        self._stopped.set()
        self._triton.stop()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)

    def _run(self) -> None:
        try:
            began = time.monotonic()
            while not self._stopped.wait(_POLL_S):
                if time.monotonic() - began > SILENCE_S:
                    # This process was suspended, and Triton with it.
                    self._started_at = time.monotonic()
                self._step()
                began = time.monotonic()
        except Exception as error:  # it is raised again by the next tick
            self._failure = error

    def _step(self) -> None:
        self._triton.tidy()
        self._prober.listen()
        trouble = self._find_trouble()
        if self._stopped.is_set():
            return
        if self._change and (trouble or self._change[1].done()):
            trouble = self._end_change(*self._change, trouble)
        if trouble:
            self._restart(*trouble)
        elif self._state != "ready":
            if self._prober.read_at > self._started_at:
                self._state = "ready"
                self._budget.well()
        elif not self._change and (view := self._versions.view) and (new := self._versions.due()):
            threads = ThreadPoolExecutor(1)
            self._change = new, threads.submit(change_version, self._triton.http, view, new)
            threads.shutdown(wait=False)

    def _start(self) -> None:
        """Start Triton; if it does not start with a model version, try the others."""
        while True:
            version = self._versions.choose()
            try:
                self._triton.start(self._versions.lay_out)
                if version and not self._versions.is_proven:
                    read_golden_photo(self._triton.http, version)
                    self._versions.prove(version)
                break
            except PreflightError:
                raise  # other versions would fail, too
            except (EmbeddedTritonError, OSError) as error:
                # Only Triton's log says why a request failed.
                tail = f"\n{self._triton.log_tail()}" if isinstance(error, RequestError) else ""
                self._triton.kill()
                # The version that was served is not the cause.
                if self._stopped.is_set() or version is None or self._versions.is_proven:
                    raise
                self._versions.refuse(version, f"{error}{tail}")
        self._find_stubs()
        self._started_at = time.monotonic()

    def _restart(self, part: str, reason: str) -> None:
        """Restart Triton until it starts, with a pause if the last restart was recent."""
        self._state = "healing"
        while True:
            tail = self._triton.log_tail()
            self._triton.kill()
            log.error("Restarting Triton: %s. The end of its log:\n%s", reason, tail)
            pause_s = self._budget.spend(f"{reason}\n{tail}".rstrip())
            self._restarts[part] = self._restarts.get(part, 0) + 1
            if self._stopped.wait(pause_s):
                break
            try:
                self._start()
                break
            except EmbeddedTritonError as error:
                part, reason = _PART, f"it can't start: {error}"

    def _end_change(
        self, new: ModelVersion, change: Future[None], trouble: _Trouble | None
    ) -> _Trouble | None:
        """Record how a change ended, or what interrupted it; returns the trouble, if any."""
        self._change = None
        problem = change.exception() if change.done() else None
        if problem and not isinstance(problem, VersionError):
            trouble = trouble or (_PART, str(problem))
        if trouble:
            self._versions.refuse(new, trouble[1])
            return trouble[0], f"while model version {new.number} was loaded: {trouble[1]}"
        self._find_stubs()
        if problem:
            self._versions.refuse(new, str(problem))
        else:
            self._versions.prove(new)
        return None

    def _find_trouble(self) -> _Trouble | None:
        if self._triton.poll() is not None:
            return _PART, "it has ended by itself"
        for stub, model in self._stubs.items():
            is_dead = is_zombie(stub) and not self._stopped.wait(_REAPED_S)
            if is_dead and is_zombie(stub):
                # All further requests to the model fail, and Triton does not report it.
                return model, f"a process of {model} has died"
        now = time.monotonic()
        silence_s = _SILENCE_OF_CHANGE_S if self._change else SILENCE_S
        if now - max(self._prober.heard_at, self._started_at) > silence_s:
            return _PART, f"it has answered nothing for {silence_s:g} s"
        standstill_s = now - max(self._prober.read_at, self._started_at)
        if self._change is None and standstill_s > STANDSTILL_S:
            return _PART, f"it has read no plate for {STANDSTILL_S:g} s"
        return None

    def _find_stubs(self) -> None:
        """Find the processes in which Triton runs Python (stubs), and their models."""
        self._stubs = {stub: _model_of(stub) for stub in self._triton.stubs}
        self._restarts = dict.fromkeys(self._stubs.values(), 0) | self._restarts


def is_zombie(process: psutil.Process) -> bool:
    """Report whether a process has ended but is not reaped yet."""
    try:
        return process.is_running() and process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _model_of(stub: psutil.Process) -> str:
    """Take a stub's model from its arguments: program, …/<model>/<version>/<file>."""
    try:
        return Path(stub.cmdline()[1]).parts[-3]
    except (psutil.Error, IndexError):  # it has died already
        return _PART


class Prober:
    """Finds out whether the current Triton reads photos.

    Triton reports that it is ready even if its models are dead. Clients' photos are cheap proof
    that it works: Triton's statistics count them, so a server under heavy load is not taken for one
    that hangs. If there are none, or none with plates, a thread has Triton read a canary photo.

    At `heard_at` Triton last answered any request, at `read_at` all models were last known to work,
    both on `time.monotonic`'s clock.
    """

    def __init__(self, triton: EmbeddedTriton, stopped: threading.Event) -> None:
        self.heard_at = self.read_at = float("-inf")
        self._triton, self._stopped = triton, stopped
        # The canary shows a plate, so that every model has work.
        self._photo = DEFAULT_GOLDEN.read_bytes()
        self._counts: dict[str, int] = {}

    def listen(self) -> None:
        """Fetch the statistics; if all models have answered since the last proof, set `read_at`."""
        before = self._counts
        counts = self._ask(lambda triton: triton.successes(_LISTEN_TIMEOUT_S))
        if counts is None:
            return
        if before and all(counts.get(model, 0) > count for model, count in before.items()):
            self.read_at = self.heard_at
        elif before and all(counts.get(model, -1) >= count for model, count in before.items()):
            return  # some models have not answered yet; none was unloaded
        self._counts = counts

    def read_canary(self) -> None:
        """Have the canary read at intervals, unless clients' photos were read; for a thread."""
        while not self._stopped.wait(_POLL_S):
            if time.monotonic() - self.read_at < _READ_EVERY_S:
                continue
            if self._ask(lambda triton: triton.plates(self._photo, _READ_TIMEOUT_S)) is not None:
                self.read_at = self.heard_at

    def _ask(self, question: Callable[[TritonHttp], Any]) -> Any:
        """Send a request, and set `heard_at` on an answer; None if it was refused or failed."""
        answer = None
        try:
            answer = question(self._triton.http)
        except RequestError as error:
            if error.status is None:
                return None
        self.heard_at = time.monotonic()
        return answer
