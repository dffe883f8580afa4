"""The process that answers HTTP. Started by the supervisor, with a socket that listens."""

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Sequence

import uvicorn

from api.edge.protocol import server_config
from api.main import create_app
from api.observing import logs
from api.settings import Settings
from plates.serving.processes import die_with_parent

_SIGN_SECONDS = 1.0
_START_SECONDS = 0.05


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal comes or the supervisor is gone.

    Args:
        argv: Arguments without the program's name; None takes the process's.

    Returns:
        The exit status.
    """
    options = _parse(argv)
    if sys.platform == "linux":
        # Killed at once: the next supervisor needs the port, and this one's Triton ends too.
        die_with_parent(signal.SIGKILL)
    if os.getppid() != options.parent:
        return 1
    # Python's own handler would answer with a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    settings = Settings()
    logs.configure(settings.log_format)
    server = uvicorn.Server(server_config(create_app(settings), settings))
    asyncio.run(_serve(server, socket.socket(fileno=options.listen), options.alive))
    return 0


async def _serve(server: uvicorn.Server, listener: socket.socket, alive: int) -> None:
    signs = asyncio.create_task(_give_signs(server, alive))
    await server.serve(sockets=[listener])
    signs.cancel()


async def _give_signs(server: uvicorn.Server, alive: int) -> None:
    """Tell the supervisor every second that requests are served."""
    os.set_blocking(alive, False)
    while not server.started:
        await asyncio.sleep(_START_SECONDS)
    # A supervisor that is stopped itself reads none: the pipe is full, no matter.
    with contextlib.suppress(BrokenPipeError):
        while True:
            with contextlib.suppress(BlockingIOError):
                os.write(alive, b".")
            await asyncio.sleep(_SIGN_SECONDS)
    server.should_exit = True  # it is gone


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m plates.serving.gateway_process")
    parser.add_argument("--listen", type=int, required=True, help="descriptor of the socket")
    parser.add_argument("--alive", type=int, required=True, help="where signs of life go")
    parser.add_argument("--parent", type=int, required=True, help="whose end ends this process")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
