"""The process that answers HTTP. Started by the supervisor, with a socket that listens."""

import argparse
import asyncio
import socket
import sys

import uvicorn

from api.edge.protocol import GatewayConfig
from api.main import create_app
from api.observing import logs
from api.settings import Settings
from plates.serving.child import SIGN_S, give_sign, parse_options

_POLL_S = 0.05


def main() -> int:
    """Serve until a signal comes or the supervisor has ended; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m plates.serving.gateway")
    parser.add_argument("--listen", type=int, required=True, help="descriptor of the socket")
    options = parse_options(parser)
    if options is None:
        return 1
    settings = Settings()
    logs.configure(settings.log_format)
    routers = []
    if settings.cameras:
        from plates.cameras import http

        routers = [http.router_for(settings.cameras)]
    server = uvicorn.Server(GatewayConfig(create_app(settings, routers), settings))
    asyncio.run(_serve(server, socket.socket(fileno=options.listen), options.alive))
    return 0


async def _serve(server: uvicorn.Server, listener: socket.socket, alive: int) -> None:
    signs = asyncio.create_task(_give_signs(server, alive))
    await server.serve(sockets=[listener])
    signs.cancel()


async def _give_signs(server: uvicorn.Server, alive: int) -> None:
    """Give a sign of life every second, once requests are served."""
    while not server.started:
        await asyncio.sleep(_POLL_S)
    while give_sign(alive):
        await asyncio.sleep(SIGN_S)
    server.should_exit = True  # the supervisor has ended


if __name__ == "__main__":
    sys.exit(main())
