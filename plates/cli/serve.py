"""Serve /v1/plates over HTTP in the foreground, until Ctrl-C, SIGTERM or SIGHUP.

A Triton is started on free local ports, watched, healed and stopped again, unless
PLATES_TRITON_URL names one elsewhere; so is the process that answers HTTP. Settings are
environment variables:

  PLATES_HOST, PLATES_PORT                  where to listen (127.0.0.1, 8080; 0: a free port)
  PLATES_PROFILE                            cpu or gpu: where Triton runs the nets (cpu)
  PLATES_TRITON_URL                         host:port, grpc://host:port or grpcs://host:port
  PLATES_TRITON_TOKEN, PLATES_TRITON_CA_FILE  bearer token; certificates to trust with grpcs
  PLATES_TRITON_HTTP_PORT, PLATES_TRITON_GRPC_PORT  fixed ports of the Triton started here
  PLATES_TOKENS, PLATES_TOKENS_FILE         who may send photos; comma separated, or one a line
  PLATES_RATE_LIMIT, PLATES_RATE_BURST      photos per second and at once, of each sender
  PLATES_REQUEST_TIMEOUT_S                  seconds from a request's head to its answer (30)
  PLATES_CONCURRENCY, PLATES_MAX_WAITING    photos at Triton at once, and waiting (4, 32)
  PLATES_MAX_BYTES, PLATES_MAX_PIXELS       smaller limits for photos

The README lists all of them.
"""

import argparse
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from plates.cli import CommandError
from plates.cli.signals import say
from plates.cli.supervising import (
    announce_triton,
    describe_triton,
    heal,
    read_settings,
    status_file,
    supervised,
    until_stopped,
)

if TYPE_CHECKING:
    from api.settings import Settings
    from plates.serving import EmbeddedTriton
    from plates.serving.gateway import GatewayWorker
    from plates.serving.supervisor import Part

LISTENING = "Serving on "
# -P: the folder we are called from may hold a package "api" of somebody else's.
_WORKER = (sys.executable, "-P", "-m", "plates.serving.gateway_process")


def configure(parser: argparse.ArgumentParser) -> None:
    """There are no arguments: everything is set by the environment."""
    del parser


def run(arguments: argparse.Namespace) -> int:
    """Serve until stopped.

    Returns:
        0 after a clean stop.

    Raises:
        CommandError: The service can't start, or could not be healed.
    """
    del arguments
    settings = read_settings()
    with (
        until_stopped(),
        _listen(settings.host, settings.port) as listener,
        status_file(settings) as status,
    ):
        triton = _triton(settings)
        worker = _worker(listener, status, triton)
        parts: list[Part] = [heal(triton), worker] if triton else [worker]
        with supervised(parts, status):
            if triton is not None:
                announce_triton(triton)
            _announce(listener)
    return 0


def _listen(host: str, port: int) -> socket.socket:
    """Take the port before anything slow starts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CommandError(
            f"can't listen on {host}:{port}: {reason}. Set PLATES_HOST or PLATES_PORT."
        ) from error


def _worker(
    listener: socket.socket, status: Path, triton: "EmbeddedTriton | None"
) -> "GatewayWorker":
    from plates.serving.gateway import GatewayWorker

    def environment() -> dict[str, str]:
        told = {"PLATES_STATUS_FILE": str(status)}
        # Each further arena of glibc's malloc keeps what it once held.
        told["MALLOC_ARENA_MAX"] = os.environ.get("MALLOC_ARENA_MAX", "2")
        if triton is not None:
            told["PLATES_TRITON_URL"] = triton.grpc_url
            told["PLATES_TRITON_METRICS_URL"] = triton.metrics_url
        return told

    return GatewayWorker(_WORKER, environment, listener)


def _triton(settings: "Settings") -> "EmbeddedTriton | None":
    """Describe the Triton to be started, unless one is named."""
    if settings.triton_url is not None:
        say(f"Triton elsewhere: {settings.triton_url}")
        return None
    return describe_triton(settings)


def _announce(listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    say(f"{LISTENING}http://{shown}:{port} (documentation: /docs)")
