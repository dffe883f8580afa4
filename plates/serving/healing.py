"""Keeps one Triton well: loads models whose processes died, restarts a server that ended or hangs.

changing ── done ── watching ── a stub died ──── reloading ── failed, or too slow ──┐
    └─── newer release ┘│ └──── ended, silent, or at a standstill ────────────── pausing
                        └────── ready ────────── starting ───── launched ───────────┘
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping

from api.status import State
from plates.serving import processes
from plates.serving.budget import RestartBudget
from plates.serving.change import Change, read_golden_photo
from plates.serving.choosing import Releases
from plates.serving.client import PHOTO_MODEL
from plates.serving.errors import EmbeddedTritonError, GaveUp, PreflightError, StartError
from plates.serving.prober import BUSY_STANDSTILL_S, SILENCE_S, STANDSTILL_S, Prober
from plates.serving.releases import Repository
from plates.serving.reloading import RELOAD_S, Reload
from plates.serving.server import EmbeddedTriton
from plates.serving.stubs import Stub, StubWatch

_SEGMENT_AGE_S = 2.0
# Until Triton takes note of the end of a process that it has ended itself.
_REAPED_S = 1.0
# Loading keeps the machine busy.
_SILENCE_OF_CHANGE_S = 3 * SILENCE_S
_PART = "triton"

log = logging.getLogger("plates.supervisor")


class TritonHealer:
    """The supervisor's part that is Triton; see `plates.serving.supervisor.Part`."""

    def __init__(self, triton: EmbeddedTriton, photo: bytes) -> None:
        """Nothing is started yet.

        Args:
            triton: Started, restarted and stopped from here.
            photo: With a plate, so that every model has work.
        """
        self.state: State = "starting"
        self.restarts: Counter[str] = Counter({_PART: 0})
        self._triton = triton
        self._prober = Prober(lambda: triton.http, photo)
        self._budgets: dict[str, RestartBudget] = {}
        self._step: Callable[[], None] = self._watch
        self._since = self._launch_at = 0.0
        self._stubs: StubWatch | None = None
        self._reload: Reload | None = None
        self._change: Change | None = None
        self._died_at = float("inf")
        self._releases = Releases(Repository(triton.repository, triton.profile))
        triton.lay_out = self._releases.lay_out

    @property
    def release(self) -> int | None:
        """See `plates.serving.supervisor.Part`."""
        return self._releases.serving.version if self._releases.serving else None

    @property
    def refused(self) -> Mapping[str, str]:
        """See `plates.serving.supervisor.Part`."""
        return self._releases.refused

    def start(self) -> None:
        """Start Triton with the newest release that it can serve.

        Raises:
            EmbeddedTritonError: It can't be started, or serve any release.
        """
        while True:
            try:
                self._triton.start()
                self._prove()
                break
            except PreflightError:
                raise
            except EmbeddedTritonError as error:
                self._triton.kill()  # nobody has asked it anything
                if not self._releases.give_up_start(str(error)):
                    raise
        self._note_stubs()
        self._prober.start()
        self._go(self._watch)

    def tick(self) -> None:
        """Look at Triton and do what is due.

        Raises:
            GaveUp: It can't be healed.
        """
        self._step()

    def stop(self) -> None:
        """End Triton; a reload under way fails by itself."""
        self._prober.stop()
        self._triton.stop()

    def _go(self, step: Callable[[], None]) -> None:
        self._step, self._since = step, time.monotonic()

    def _watch(self) -> None:
        self._triton.bound_log()
        now = time.monotonic()
        if self._has_ended():
            self._restart("it has ended by itself")
        elif self._stubs and (dead := self._stubs.dead()):
            self._reload_models_of(dead)
        elif now - max(self._prober.heard_at, self._since) > SILENCE_S:
            self._restart(f"it has said nothing for {SILENCE_S:g} s")
        elif now - max(self._prober.read_at, self._since) > self._patience_s(now):
            self._restart(f"it has read no plate for {self._patience_s(now):g} s")
        elif self.state != "ready":
            if self._prober.read_at > self._since:
                self._be_well()
        elif self._releases.view and self._releases.serving and (new := self._releases.due()):
            old, view = self._releases.serving, self._releases.view
            self._change = Change(self._triton.http, view, old, new)
            self._go(self._await_change)

    def _await_change(self) -> None:
        """Photos are read meanwhile; what died is healed as soon as the change has ended."""
        change, stubs, now = self._change, self._stubs, time.monotonic()
        if change is None or stubs is None:
            self._go(self._watch)
        elif self._has_ended():
            self._break_off(change, "Triton has ended by itself")
        elif change.outcome == "broken":
            self._break_off(change, change.reason)
        elif change.outcome is not None:
            self._end_change(change, stubs)
        elif now - max(self._prober.heard_at, self._since) > _SILENCE_OF_CHANGE_S:
            self._break_off(change, f"Triton has said nothing for {_SILENCE_OF_CHANGE_S:g} s")
        else:
            stubs.settle()
            self._died_at = min(self._died_at, now) if stubs.dead() else float("inf")
            if now - self._died_at > _REAPED_S:
                change.cancel()

    def _break_off(self, change: Change, reason: str) -> None:
        self._releases.interrupt(change.new, reason)
        self._restart(f"while release {change.new.version} was loaded: {reason}")

    def _end_change(self, change: Change, stubs: StubWatch) -> None:
        stubs.settle()
        if change.outcome == "changed":
            self._releases.prove(change.new)
        elif stubs.dead():
            self._releases.interrupt(change.new, change.reason)
        else:
            self._releases.refuse(change.new, change.reason)
        self._go(self._watch)

    def _patience_s(self, now: float) -> float:
        """How long it may read no plate: longer while it answers photos without any."""
        answers = now - max(self._prober.answered_at, self._since) < STANDSTILL_S
        return BUSY_STANDSTILL_S if answers else STANDSTILL_S

    def _be_well(self) -> None:
        """Photos are being read."""
        self.state = "ready"
        for budget in self._budgets.values():
            budget.well()
        if self._stubs:
            self._stubs.end_former()
        for path in processes.sweep_unmapped(self._triton.shm_prefix, _SEGMENT_AGE_S):
            log.info("Removed the shared memory %s, which nobody uses.", path.name)

    def _reload_models_of(self, dead: list[Stub]) -> None:
        # Those first that others ask.
        models = sorted({stub.model for stub in dead}, key=lambda name: (name == PHOTO_MODEL, name))
        if "" in models:
            self._restart("a process of it has died as soon as it began")
            return
        try:
            for model in models:
                self._budget(model).spend("one of its processes died again")
        except GaveUp as error:
            self._restart(str(error))
            return
        self.state = "healing"
        self.restarts.update(models)
        log.warning("Processes of %s have died: loading again.", ", ".join(models))
        self._reload = Reload(self._triton.http, models)
        self._go(self._await_reload)

    def _await_reload(self) -> None:
        reload = self._reload
        if self._has_ended():
            self._restart("it has ended by itself")
        elif reload is None or reload.error is not None:
            self._restart(f"a model can't be loaded again: {reload and reload.error}")
        elif reload.done:
            if self._stubs:
                self._stubs.replaced(reload.models)
            self._prober.forget()
            self._go(self._watch)
        elif time.monotonic() - self._since > RELOAD_S:
            self._restart(f"a model was not loaded again within {RELOAD_S:g} s")

    def _restart(self, reason: str) -> None:
        """End what is left of Triton, and start it again after a pause.

        Raises:
            GaveUp: It was restarted too often.
        """
        self.state = "healing"
        self._reload = None
        tail = self._triton.log_tail()
        self._triton.kill()
        log.error("Restarting Triton: %s. The end of its log:\n%s", reason, tail)
        pause = self._budget("Triton").spend(f"{reason}\n{tail}".rstrip())
        self.restarts[_PART] += 1
        self._launch_at = time.monotonic() + pause
        self._go(self._pause)

    def _pause(self) -> None:
        if time.monotonic() < self._launch_at:
            return
        try:
            self._triton.launch()
        except (EmbeddedTritonError, OSError) as error:
            self._fail_start(f"it can't start: {error}")
        else:
            self._go(self._await_start)

    def _await_start(self) -> None:
        if self._triton.poll() is not None:
            self._fail_start("it ended while it started")
        elif self._triton.http.is_ready():
            self._welcome()
        elif time.monotonic() - self._since > self._triton.ready_timeout:
            self._fail_start(f"it was not ready after {self._triton.ready_timeout:g} s")

    def _welcome(self) -> None:
        """It is ready: see whether it reads what its release must."""
        try:
            self._prove()
            self._note_stubs()
        except StartError:
            return  # it has just ended, as the next look tells
        except EmbeddedTritonError as error:
            self._fail_start(str(error))
        else:
            self._prober.forget()
            self._go(self._watch)

    def _fail_start(self, reason: str) -> None:
        self._releases.give_up_start(f"{reason}\n{self._triton.log_tail()}")
        self._restart(reason)

    def _prove(self) -> None:
        if release := self._releases.needs_check():
            read_golden_photo(self._triton.http, release)
            self._releases.prove(release)

    def _has_ended(self) -> bool:
        """Whether Triton or its guardian is gone, whoever of them notices first."""
        server_lives = self._stubs is None or self._stubs.server_lives
        return self._triton.poll() is not None or not server_lives

    def _note_stubs(self) -> None:
        self._stubs = StubWatch(self._triton.pids.server)
        for model in self._stubs.models:
            self.restarts.setdefault(model, 0)

    def _budget(self, part: str) -> RestartBudget:
        return self._budgets.setdefault(part, RestartBudget(part))
