"""What the supervisor makes of a change of releases, without a Triton: each way it can end."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from patience import Clock

from plates.serving import EmbeddedTriton, healing
from plates.serving.errors import EmbeddedTritonError, ReleaseError, StartError
from plates.serving.healing import TritonHealer
from plates.serving.releases import Release


class HealerOfATest(TritonHealer):
    """With a release served and a change to another begun.

    Attributes:
        dead: Stubs that have died.
        ended: Whether Triton has.
        told: Restarts and the releases' fates, in order.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(EmbeddedTriton(folder), b"photo")
        self.dead: list[str] = []
        self.ended = False
        self.told: list[str] = []
        self.clock = Clock()
        monkeypatch.setattr(healing, "time", SimpleNamespace(monotonic=self.clock))
        self._stubs = SimpleNamespace(  # type: ignore[assignment]
            settle=lambda: None, dead=lambda: self.dead, models=set(), server_lives=True
        )
        for fate in ("refuse", "interrupt"):
            monkeypatch.setattr(
                self._releases, fate, lambda r, _, f=fate: self.told.append(f"{f} {r.version}")
            )
        monkeypatch.setattr(self._releases, "prove", lambda r: self.told.append(f"{r.version}"))
        self._prober.heard_at = 0.0
        self.change = SimpleNamespace(
            new=Release(2, folder, {}, [], "two"), outcome=None, reason="why", cancelled=False
        )
        self.change.cancel = lambda: setattr(self.change, "cancelled", True)
        self._change = self.change  # type: ignore[assignment]
        self._go(self._await_change)

    def _has_ended(self) -> bool:
        return self.ended

    def _restart(self, reason: str) -> None:
        self.told.append(f"restart: {reason}")


@pytest.fixture
def healer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HealerOfATest:
    return HealerOfATest(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("outcome", "dead", "told"),
    [
        ("changed", [], ["2"]),
        ("changed", ["a stub"], ["2"]),
        ("refused", [], ["refuse 2"]),
        # It may have been refused for that.
        ("refused", ["a stub"], ["interrupt 2"]),
        ("broken", [], ["interrupt 2", "restart: while release 2 was loaded: why"]),
    ],
)
def test_each_end_of_a_change_has_its_consequence(
    healer: HealerOfATest, outcome: str, dead: list[str], told: list[str]
) -> None:
    healer.tick()
    assert healer.told == []
    healer.change.outcome, healer.dead = outcome, dead
    healer.tick()
    assert healer.told == told
    assert (healer._step == healer._watch) == (outcome != "broken")


def test_a_triton_that_ends_meanwhile_is_restarted(healer: HealerOfATest) -> None:
    healer.ended = True
    healer.tick()
    assert healer.told[0] == "interrupt 2" and "has ended by itself" in healer.told[1]


def test_a_change_is_given_more_time_than_silence(healer: HealerOfATest) -> None:
    healer.clock.now = healing.SILENCE_S + 1
    healer.tick()
    assert healer.told == []
    healer.clock.now = 3 * healing.SILENCE_S + 1
    healer.tick()
    assert healer.told[0] == "interrupt 2" and "has said nothing for" in healer.told[1]


def test_a_death_breaks_a_change_off_unless_it_is_about_to_be_reaped(
    healer: HealerOfATest,
) -> None:
    healer.dead = ["a stub"]
    healer.tick()
    assert not healer.change.cancelled
    healer.dead = []
    healer.clock.now = 2.0
    healer.tick()
    healer.dead = ["another"]
    healer.tick()
    assert not healer.change.cancelled
    healer.clock.now = 4.0
    healer.tick()
    assert healer.change.cancelled and healer.told == []


@pytest.mark.parametrize("error", [StartError("it ended"), ReleaseError("it misreads")])
def test_a_start_goes_on_with_the_next_release(
    healer: HealerOfATest, monkeypatch: pytest.MonkeyPatch, error: EmbeddedTritonError
) -> None:
    attempts = iter([error, None])
    given_up: list[str] = []

    def start() -> None:
        if problem := next(attempts):
            raise problem

    monkeypatch.setattr(healer._triton, "start", start)
    monkeypatch.setattr(healer, "_note_stubs", lambda: None)
    monkeypatch.setattr(healer._prober, "start", lambda: None)
    monkeypatch.setattr(
        healer._releases, "give_up_start", lambda reason: bool(given_up.append(reason)) or True
    )
    healer.start()
    assert given_up == [str(error)]


def test_a_start_without_another_release_fails_as_it_does(
    healer: HealerOfATest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start() -> None:
        raise StartError("the port was taken")

    monkeypatch.setattr(healer._triton, "start", start)
    with pytest.raises(StartError, match="the port was taken"):
        healer.start()
