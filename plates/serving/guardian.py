"""The process between us and tritonserver: it cleans up, however we end.

A gateway that is killed can't stop its server, and a stub whose server crashed lives
on, deaf to SIGTERM. So a small process of its own is the server's parent and the
adopter of its orphans. It ends the whole family when it is told to (SIGTERM), when the
server has ended, and when its own parent is gone.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from types import FrameType

from plates.serving import processes

POLL_SECONDS = 0.1
ADOPTED_SECONDS = 1.0


def main(argv: list[str]) -> int:
    """Run a server until it ends, or until it shall end.

    Args:
        argv: Options, then ``--`` and the server's command.

    Returns:
        The server's exit status.
    """
    options = _parse(argv)
    processes.become_subreaper()
    told_to_stop = False

    def stop(_signal: int, _frame: FrameType | None) -> None:
        nonlocal told_to_stop
        told_to_stop = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = subprocess.Popen(  # noqa: S603 - our own command
        options.command,
        stdin=subprocess.DEVNULL,
        # Safe here: this process has one thread. If even the guardian is killed.
        preexec_fn=lambda: processes.die_with_parent(signal.SIGTERM),
    )
    while server.poll() is None and not told_to_stop and os.getppid() == options.parent:
        time.sleep(POLL_SECONDS)
    _end(server, options.grace)
    processes.sweep(options.shm_prefix)
    if os.getppid() != options.parent:
        shutil.rmtree(options.folder, ignore_errors=True)
    return server.returncode if server.returncode is not None else 1


def _end(server: subprocess.Popen[bytes], grace: float) -> None:
    """Ask the server to end, then end it and every stub that it leaves."""
    if server.poll() is None:
        server.terminate()
        try:
            server.wait(grace)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
    processes.kill_adopted(timeout=ADOPTED_SECONDS)


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m plates.serving.guardian")
    parser.add_argument("--parent", type=int, required=True, help="whose end ends the server")
    parser.add_argument("--folder", required=True, help="removed where the parent can't do it")
    parser.add_argument("--shm-prefix", required=True, help="of the server's shared memory")
    parser.add_argument("--grace", type=float, required=True, help="seconds before SIGKILL")
    parser.add_argument("command", nargs="+")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
