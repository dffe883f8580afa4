"""A short campaign of hostile requests."""

import pytest

from fuzzing.campaign import DOCUMENTED, Campaign, service_of_our_own
from fuzzing.kinds import KINDS

REQUESTS = 200


@pytest.mark.live
@pytest.mark.control
def test_hostile_requests_do_no_harm(tmp_path):
    with service_of_our_own(tmp_path) as service:
        # So few requests don't fill the pools before the rest is measured.
        campaign = Campaign(service, 4, REQUESTS, tmp_path, growth_mb=500)
        campaign.run()
    assert not campaign.violations, campaign.table()
    assert {*KINDS, DOCUMENTED} < {kind for kind, *_ in campaign.sent}
    assert len(campaign.sent) >= REQUESTS
    assert sum(status == "200" for _, status, *_ in campaign.sent) > REQUESTS / 20
