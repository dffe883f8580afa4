"""Kill -9 of every process of the service, under load: what senders see, and that it heals."""

from collections.abc import Callable

import pytest

from plates.benchmarks import faults
from plates.benchmarks.faults import FAULTS, Fault, Outcome

pytestmark = [pytest.mark.live, pytest.mark.control]

# The report's floor is 15 s on a machine that does nothing else; this one is for ever.
WITHOUT_A_HAND_S = 60
# `plates bench faults` has all: stn and lprnet are watched and loaded again just as yolo is.
BORNE = [fault for fault in FAULTS if fault.name not in ("kill stn", "kill lprnet")]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    """One service, which bears these faults one after the other."""
    found = faults.measure(BORNE, senders=3)
    faults.print_outcomes(found)
    return {outcome.fault: outcome for outcome in found}


@pytest.mark.parametrize("fault", BORNE, ids=lambda fault: fault.name)
def test_the_service_heals_without_a_hand(
    outcomes: dict[str, Outcome], fault: Fault, record_property: Callable[[str, object], None]
) -> None:
    outcome = outcomes[fault.name]
    assert outcome.problems(fault) == []
    assert outcome.healthy_s is not None and outcome.healthy_s < WITHOUT_A_HAND_S
    record_property("healthy_s", round(outcome.healthy_s, 1))
