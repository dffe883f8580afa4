"""A short campaign of hostile requests."""

import pytest

from fuzzing.campaign import DOCUMENTED, TIMEOUTS, Campaign
from fuzzing.kinds import KINDS
from plates.benchmarks.cameras import free_port
from plates.benchmarks.service import service

REQUESTS = 200


@pytest.mark.live
@pytest.mark.control
def test_hostile_requests_do_no_harm(tmp_path):
    port = free_port()
    with service(None, **TIMEOUTS, PLATES_TRITON_GRPC_PORT=str(port)) as serving:
        # So few requests don't fill the pools before the rest is measured.
        campaign = Campaign(serving, port, 4, REQUESTS, tmp_path, growth_mb=500)
        campaign.run()
    assert not campaign.violations, campaign.table()
    assert {*KINDS, DOCUMENTED} < {kind for kind, *_ in campaign.sent}
    assert len(campaign.sent) >= REQUESTS
    assert sum(status == "200" for _, status, *_ in campaign.sent) > REQUESTS / 20
