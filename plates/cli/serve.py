"""Serve /v1/plates over HTTP in the foreground, until Ctrl-C, SIGTERM or SIGHUP.

A Triton is started on free local ports, watched, healed and stopped again, unless
PLATES_TRITON_URL names one elsewhere; so is the process that answers HTTP. Settings are
environment variables: `plates config table` lists them all. Most used are

  PLATES_HOST, PLATES_PORT    where to listen (127.0.0.1, 8080; 0: a free port)
  PLATES_PROFILE              cpu or gpu: where Triton runs the nets (cpu)
  PLATES_TRITON_URL           host:port, grpc://host:port or grpcs://host:port
  PLATES_TOKENS_FILE          who may send photos, one token a line
"""

import argparse
import ipaddress
import logging
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from plates.cli import CommandError
from plates.cli.signals import say
from plates.cli.supervising import describe_triton, read_settings, supervise

if TYPE_CHECKING:
    from api.settings import Settings
    from plates.serving import EmbeddedTriton

LISTENING = "Serving on "

log = logging.getLogger("plates.serve")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare what people type first; everything else is set by the environment."""
    parser.add_argument("--host", metavar="ADDRESS", help="instead of PLATES_HOST")
    parser.add_argument("--port", type=int, metavar="N", help="instead of PLATES_PORT")


def run(arguments: argparse.Namespace) -> int:
    """Serve until stopped; return 0 after a clean stop."""
    settings = read_settings(host=arguments.host, port=arguments.port)
    from plates.serving.gateway import GatewayWorker

    with _listen(settings.host, settings.port) as listener:
        _warn_if_open(settings, listener)
        triton = None
        if settings.triton_url is None:
            triton = describe_triton(settings)
        else:
            say(f"Triton elsewhere: {settings.triton_url}")

        def make_gateway(status_file: Path) -> GatewayWorker:
            return GatewayWorker(lambda: _environment(settings, status_file, triton), listener)

        def announce() -> None:
            host, port = listener.getsockname()[:2]
            scheme = "https" if settings.tls_certificate else "http"
            shown = f"[{host}]" if ":" in host else host
            say(f"{LISTENING}{scheme}://{shown}:{port} (documentation: /docs)")

        return supervise(settings, triton, make_gateway, announce)


def _environment(
    settings: "Settings", status_file: Path, triton: "EmbeddedTriton | None"
) -> dict[str, str]:
    """What the gateway's process gets besides this one's environment."""
    added = {"PLATES_HOST": settings.host, "PLATES_PORT": str(settings.port)}
    added["PLATES_STATUS_FILE"] = str(status_file)
    # Each further arena of glibc's malloc keeps what it once held.
    added["MALLOC_ARENA_MAX"] = os.environ.get("MALLOC_ARENA_MAX", "2")
    if triton is not None:
        added["PLATES_TRITON_URL"] = triton.grpc_url
        added["PLATES_TRITON_METRICS_URL"] = triton.metrics_url
    return added


def _listen(host: str, port: int) -> socket.socket:
    """Take the port before anything slow starts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CommandError(
            f"can't listen on {host}:{port}: {reason}. Set --host or --port (PLATES_HOST, "
            "PLATES_PORT)."
        ) from error


def _warn_if_open(settings: "Settings", listener: socket.socket) -> None:
    local = ipaddress.ip_address(listener.getsockname()[0]).is_loopback
    if not local and not settings.tokens and settings.tokens_file is None:
        log.warning(
            "Everyone who can reach %s may send photos: no tokens are set. Set PLATES_TOKENS or "
            "PLATES_TOKENS_FILE, or listen on 127.0.0.1.",
            settings.host,
        )
