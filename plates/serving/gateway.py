"""The gateway's process, which answers HTTP. The supervisor starts it with a listening socket."""

import argparse
import asyncio
import resource
import socket

import uvicorn

from api.edge.protocol import GatewayConfig
from api.main import create_app
from plates.serving.child import HEARTBEAT_S, begin, send_heartbeat

_POLL_S = 0.05


def main() -> None:
    """Serve until a stop signal comes, or the supervisor has ended."""
    parser = argparse.ArgumentParser(prog="python -m plates.serving.gateway")
    parser.add_argument("--listen", type=int, required=True, help="descriptor of the socket")
    options, settings = begin(parser)
    # A shell's usual limit of 1024 files is reached before surplus connections are refused.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    routers = []
    if settings.cameras:
        from plates.cameras import http

        routers = [http.router_for(settings.cameras)]
    server = uvicorn.Server(GatewayConfig(create_app(settings, routers), settings))
    asyncio.run(_serve(server, socket.socket(fileno=options.listen), options.alive))


async def _serve(server: uvicorn.Server, listener: socket.socket, alive: int) -> None:
    """Serve, and send a sign of life every second, until the supervisor has ended."""
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not serving.done():
        if server.started and not send_heartbeat(alive):
            server.should_exit = True
        await asyncio.wait([serving], timeout=HEARTBEAT_S if server.started else _POLL_S)
    await serving


if __name__ == "__main__":
    main()
