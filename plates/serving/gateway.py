"""The gateway's process, which answers HTTP. The supervisor starts it with a listening socket."""

import argparse
import resource
import socket
import sys

import uvicorn

from api.edge.protocol import GatewayConfig
from api.main import create_app
from plates.serving.child import begin, send_heartbeat


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
    config = GatewayConfig(create_app(settings, routers), settings)
    server = uvicorn.Server(config)

    async def notify() -> None:
        if not send_heartbeat(options.alive):
            server.should_exit = True

    # Called every second: this interval always has passed, even if the clock was set back.
    config.callback_notify, config.timeout_notify = notify, -sys.maxsize
    server.run(sockets=[socket.socket(fileno=options.listen)])


if __name__ == "__main__":
    main()
