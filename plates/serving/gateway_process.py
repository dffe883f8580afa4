"""The process that answers HTTP. Started by the supervisor, with a socket that listens."""

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys

import uvicorn

from api.edge.protocol import GatewayConfig
from api.main import create_app
from api.observing import logs
from api.settings import Settings
from plates.serving.processes import die_with_parent

_SIGN_S = 1.0
_POLL_S = 0.05


def main() -> int:
    """Serve until a signal comes or the supervisor has ended; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m plates.serving.gateway_process")
    parser.add_argument("--listen", type=int, required=True, help="descriptor of the socket")
    parser.add_argument("--alive", type=int, required=True, help="where signs of life go")
    parser.add_argument("--parent", type=int, required=True, help="the process it ends with")
    options = parser.parse_args()
    if sys.platform == "linux":
        # Killed at once: the next supervisor needs the port, and this one's Triton ends too.
        die_with_parent(signal.SIGKILL)
    if os.getppid() != options.parent:
        return 1
    # Python's own handler would answer with a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    settings = Settings()
    logs.configure(settings.log_format)
    server = uvicorn.Server(GatewayConfig(create_app(settings), settings))
    asyncio.run(_serve(server, socket.socket(fileno=options.listen), options.alive))
    return 0


async def _serve(server: uvicorn.Server, listener: socket.socket, alive: int) -> None:
    signs = asyncio.create_task(_give_signs(server, alive))
    await server.serve(sockets=[listener])
    signs.cancel()


async def _give_signs(server: uvicorn.Server, alive: int) -> None:
    """Write a byte every second, once requests are served."""
    os.set_blocking(alive, False)
    while not server.started:
        await asyncio.sleep(_POLL_S)
    with contextlib.suppress(BrokenPipeError):
        while True:
            # The pipe is full if the supervisor itself is stopped.
            with contextlib.suppress(BlockingIOError):
                os.write(alive, b".")
            await asyncio.sleep(_SIGN_S)
    server.should_exit = True  # the supervisor has ended


if __name__ == "__main__":
    sys.exit(main())
