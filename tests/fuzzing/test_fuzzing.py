"""A campaign of hostile requests: a short one, or a longer one with `make fuzz`."""

import os

import pytest

from fuzzing.campaign import DOCUMENTED, TIMEOUTS, Campaign
from fuzzing.kinds import KINDS
from plates.benchmarks.cameras import free_port
from plates.benchmarks.service import service

REQUESTS = int(os.environ.get("FUZZ_REQUESTS") or 200)
SEED = int(os.environ.get("FUZZ_SEED") or 4)
URL = os.environ.get("FUZZ_URL")  # of a running service; by default the test starts one
# Few requests don't fill the memory pools before the measurement begins.
GROWTH_MB = 500 if REQUESTS < 1000 else 100


@pytest.mark.live
@pytest.mark.control
def test_hostile_requests_do_no_harm(tmp_path):
    port = None if URL else free_port()
    with service(URL, **TIMEOUTS, PLATES_TRITON_GRPC_PORT=str(port)) as serving:
        triton = f"127.0.0.1:{port}" if port else None
        campaign = Campaign(serving, triton, SEED, REQUESTS, tmp_path, GROWTH_MB)
        campaign.run()
    print(campaign.table())
    assert not campaign.violations
    kinds, named = {kind for kind, *_ in campaign.sent}, {*KINDS, DOCUMENTED}
    assert kinds > named or (URL and kinds == named)  # the further kinds are tensors to Triton
    assert len(campaign.sent) >= REQUESTS
    assert sum(status == "200" for _, status, *_ in campaign.sent) > REQUESTS / 20
