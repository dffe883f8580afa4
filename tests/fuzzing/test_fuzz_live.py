"""A short campaign of hostile requests; `make fuzz` runs the long one."""

from pathlib import Path

import pytest

from fuzzing import campaign
from fuzzing.campaign import Campaign, table_of
from fuzzing.service import service_of_our_own

REQUESTS, SEED = 300, 4
# Of each kind. To draw and compress the largest pictures takes longer than all the rest.
LEAST = 1
# So few requests don't fill the pools before the rest is measured.
GROWTH_MB = 500.0


@pytest.mark.live
@pytest.mark.control
def test_hostile_requests_do_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "_LEAST", LEAST)
    with service_of_our_own(tmp_path) as service:
        report = Campaign(service, SEED, REQUESTS, tmp_path / "failed", GROWTH_MB).run()
    assert not report.violations, table_of(report)
    assert sum(row.count for row in report.rows.values()) >= REQUESTS
    assert sum(row.statuses[200] for row in report.rows.values()) > REQUESTS / 20
