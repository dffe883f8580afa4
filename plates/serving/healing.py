"""Keeps one Triton running and its model version up to date.

starting ── ready ── watching ── ended, silent, at a standstill, or a stub died ── restarting
    ▲                │      ▲                                                         │
    │                └ changing the model version ── failed half-way ─────────────────┤
    └─────────────────────────────────────────────────────────────────────────────────┘
"""

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from api.status import State, Status
from plates.serving import processes
from plates.serving.change import change_version, read_golden_photo
from plates.serving.errors import EmbeddedTritonError, PreflightError, StartError, VersionError
from plates.serving.prober import SILENCE_S, STANDSTILL_S, Prober
from plates.serving.supervisor import RestartBudget
from plates.serving.triton import EmbeddedTriton
from plates.serving.versions import ModelVersion, Versions

_PART = "triton"
_POLL_S = 0.1
# Until Triton has reaped a stub that it has ended, or the guardian those of a dead server.
_REAPED_S = 1.0
# Loading keeps the machine busy.
_SILENCE_OF_CHANGE_S = 3 * SILENCE_S
_JOIN_S = 1.0
# What has failed, and how.
_Trouble = tuple[str, str]

log = logging.getLogger("plates.supervisor")


class TritonHealer:
    """The supervisor's part that is Triton.

    After the first start all work is done in a thread: what takes long must not keep the
    supervisor from its other parts.
    """

    def __init__(self, triton: EmbeddedTriton, photo: bytes) -> None:
        """Start nothing yet; the photo must show a plate, so that every model has work."""
        self._triton = triton
        self._prober = Prober(lambda: triton.http, photo)
        self._budget = RestartBudget("Triton")
        self._versions = Versions(triton.repository)
        self._state: State = "starting"
        self._restarts = {_PART: 0}
        self._stubs: dict[psutil.Process, str] = {}
        self._dead_since: dict[psutil.Process, float] = {}
        self._started_at = 0.0
        self._failure: Exception | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="triton", daemon=True)

    @property
    def status(self) -> Status:
        """See `plates.serving.supervisor.Part`; restarts are counted by what had failed."""
        serving = self._versions.serving
        number = serving.number if serving else None
        return Status(self._state, dict(self._restarts), number, self._versions.refused)

    def start(self) -> None:
        """Start Triton with the newest model version that it can serve."""
        self._start()
        self._prober.start()
        self._thread.start()

    def tick(self) -> None:
        """Raise what has ended the thread: `GaveUp`, if Triton was restarted too often."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """End Triton, and with it what the thread is doing."""
        self._stopped.set()
        self._prober.stop()
        self._triton.stop()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                trouble = self._watch()
                while trouble and not self._stopped.is_set():
                    trouble = self._restart(*trouble)
        except Exception as error:  # it is raised again by the next tick
            self._failure = error

    def _start(self) -> None:
        """Start Triton, and try other model versions if one does not start."""
        while True:
            version = self._versions.choose()
            try:
                self._triton.start(self._versions.lay_out)
                if version and not self._versions.is_proven(version):
                    read_golden_photo(self._triton.http, version)
                    self._versions.prove(version)
                break
            except PreflightError:
                raise  # another version would change nothing
            except EmbeddedTritonError as error:
                self._triton.kill()
                if self._stopped.is_set() or version is None:
                    raise
                if not self._versions.give_up(version, str(error)):
                    refused = self._versions.refused.items()
                    others = "".join(
                        f"\nVersion {number} is refused: {why}" for number, why in refused
                    )
                    reason = f"model version {version.number} can't be served: {error}{others}"
                    raise StartError(reason) from error
        self._find_stubs()
        self._prober.forget()
        self._started_at = time.monotonic()

    def _watch(self) -> _Trouble | None:
        """Watch Triton until something is wrong; None when stopped."""
        while not self._stopped.wait(_POLL_S):
            self._triton.bound_log()
            trouble = self._find_trouble()
            if trouble is None and self._state != "ready":
                if self._prober.read_at > self._started_at:
                    self._state = "ready"
                    self._budget.well()
            elif trouble is None and (new := self._versions.due()):
                trouble = self._change(new)
            if trouble is not None:
                return trouble
        return None

    def _find_trouble(self, *, changing: bool = False) -> _Trouble | None:
        if self._triton.poll() is not None:
            return _PART, "it has ended by itself"
        if model := self._find_dead_model():
            return model, f"a process of {model} has died"
        now = time.monotonic()
        silence_s = _SILENCE_OF_CHANGE_S if changing else SILENCE_S
        if now - max(self._prober.heard_at, self._started_at) > silence_s:
            return _PART, f"it has answered nothing for {silence_s:g} s"
        standstill_s = now - max(self._prober.read_at, self._started_at)
        if not changing and standstill_s > STANDSTILL_S:
            return _PART, f"it has read no plate for {STANDSTILL_S:g} s"
        return None

    def _change(self, new: ModelVersion) -> _Trouble | None:
        """Change the model version, and watch Triton meanwhile."""
        view, old, trouble = self._versions.view, self._versions.serving, None
        if view is None or old is None:
            return None
        threads = ThreadPoolExecutor(1)
        change = threads.submit(change_version, self._triton.http, view, old, new)
        threads.shutdown(wait=False)
        while not (change.done() or trouble or self._stopped.wait(_POLL_S)):
            trouble = self._find_trouble(changing=True)
        problem = change.exception() if change.done() else None
        if problem and not isinstance(problem, VersionError):
            trouble = trouble or (_PART, str(problem))
        if self._stopped.is_set():
            return None
        if trouble:
            self._versions.interrupt(new, trouble[1])
            return trouble[0], f"while model version {new.number} was loaded: {trouble[1]}"
        if problem:
            self._versions.refuse(new, str(problem))
        else:
            self._versions.prove(new)
        self._find_stubs()
        return None

    def _restart(self, part: str, reason: str) -> _Trouble | None:
        """Restart Triton after a pause; returns what is wrong if it does not start."""
        self._state = "healing"
        tail = self._triton.log_tail()
        self._triton.kill()
        log.error("Restarting Triton: %s. The end of its log:\n%s", reason, tail)
        pause_s = self._budget.spend(f"{reason}\n{tail}".rstrip())
        self._restarts[part] = self._restarts.get(part, 0) + 1
        if self._stopped.wait(pause_s):
            return None
        try:
            self._start()
        except EmbeddedTritonError as error:
            return _PART, f"it can't start: {error}"
        return None

    def _find_stubs(self) -> None:
        """Find the processes in which Triton runs Python, and their models."""
        stubs = processes.children(self._triton.pids.server)
        self._stubs = {stub: _model_of(stub) for stub in stubs}
        self._restarts = dict.fromkeys(self._stubs.values(), 0) | self._restarts

    def _find_dead_model(self) -> str | None:
        """Return the model of a stub that has died: it fails for ever, and Triton says nothing.

        The stub stays as a zombie; those that Triton has ended itself are reaped at once.
        """
        now = time.monotonic()
        for stub, model in self._stubs.items():
            if (
                processes.is_zombie(stub)
                and now - self._dead_since.setdefault(stub, now) > _REAPED_S
            ):
                return model
        return None


def _model_of(stub: psutil.Process) -> str:
    """Read a stub's model off its arguments: program, …/<model>/<version>/<file>."""
    try:
        return Path(stub.cmdline()[1]).parts[-3]
    except (psutil.Error, IndexError):  # it has died already
        return _PART
