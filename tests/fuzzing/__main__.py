"""`make fuzz`: FUZZ_REQUESTS (10000), FUZZ_SEED (1); PLATES_URL for a service elsewhere."""

import os
import sys
import tempfile
from pathlib import Path

from fuzzing.campaign import TIMEOUTS, Campaign
from plates.benchmarks.cameras import free_port
from plates.benchmarks.service import service


def main() -> int:
    """Run a campaign; return 0 if nothing was wrong, else 1."""
    count = int(os.environ.get("FUZZ_REQUESTS") or 10_000)
    seed = int(os.environ.get("FUZZ_SEED") or 1)
    url = os.environ.get("PLATES_URL")
    port = None if url else free_port()
    folder = Path(tempfile.mkdtemp(prefix="plates-fuzz-"))
    print(f"{count} requests, seed {seed}; what fails is saved to {folder}", flush=True)
    with service(url, **TIMEOUTS, PLATES_TRITON_GRPC_PORT=str(port)) as serving:
        campaign = Campaign(serving, port, seed, count, folder)
        campaign.run()
    print(campaign.table())
    print(f"{len(campaign.sent)} requests, seed {seed}: {len(campaign.violations)} violations")
    return 1 if campaign.violations else 0


if __name__ == "__main__":
    sys.exit(main())
