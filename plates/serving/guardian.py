"""The parent process of tritonserver: it ends the server's processes, however ours ends.

A supervisor that is killed can't stop its server, and the stubs of a server that crashed live
on and ignore SIGTERM. This process adopts such orphans. It ends all of them when it gets
SIGTERM, when the server has ended, and when its own parent has.
"""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from types import FrameType

from plates.serving import processes

POLL_S = 0.1
ORPHANS_S = 1.0


def main(argv: list[str]) -> int:
    """Run a server until it ends or must be stopped; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m plates.serving.guardian")
    parser.add_argument("--parent", type=int, required=True, help="the server ends with it")
    parser.add_argument("--folder", required=True, help="removed if the parent has ended")
    parser.add_argument("--shm-prefix", required=True, help="of the server's shared memory")
    parser.add_argument("--grace", type=float, required=True, help="seconds before SIGKILL")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(argv)
    processes.become_subreaper()
    stopping = False

    def stop(_signal: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = subprocess.Popen(  # noqa: S603 - our own command
        options.command,
        stdin=subprocess.DEVNULL,
        # For the case that the guardian is killed. Safe here: this process has one thread.
        preexec_fn=lambda: processes.die_with_parent(signal.SIGTERM),
    )
    while server.poll() is None and not stopping and os.getppid() == options.parent:
        time.sleep(POLL_S)
    server.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(options.grace)
    processes.kill_children(ORPHANS_S)
    processes.sweep(options.shm_prefix)
    if os.getppid() != options.parent:
        shutil.rmtree(options.folder, ignore_errors=True)
    return server.returncode if server.returncode is not None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
