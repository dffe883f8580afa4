"""A short campaign of hostile requests; `make fuzz` runs the long one."""

from pathlib import Path

import pytest

from fuzzing.campaign import KINDS, Campaign, service_of_our_own

REQUESTS, SEED = 300, 4


@pytest.mark.live
@pytest.mark.control
def test_hostile_requests_do_no_harm(tmp_path: Path) -> None:
    with service_of_our_own(tmp_path) as service:
        # To make the largest pictures takes longer than all the rest: one is enough. So few
        # requests don't fill the pools before the rest is measured.
        campaign = Campaign(service, SEED, REQUESTS, tmp_path, least=1, growth_mb=500)
        campaign.run()
    assert not campaign.violations, campaign.table()
    assert KINDS.keys() < campaign.rows.keys()
    assert sum(row.count for row in campaign.rows.values()) >= REQUESTS
    assert sum(row.statuses["200"] for row in campaign.rows.values()) > REQUESTS / 20
