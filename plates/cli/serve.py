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
import socket
from typing import TYPE_CHECKING

from plates.cli import CommandError, say
from plates.cli.supervising import describe_triton, read_settings, supervise

if TYPE_CHECKING:
    from api.settings import Settings

log = logging.getLogger("plates.serve")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", metavar="ADDRESS", help="instead of PLATES_HOST")
    parser.add_argument("--port", type=int, metavar="N", help="instead of PLATES_PORT")


def run(arguments: argparse.Namespace) -> int:
    settings = read_settings(host=arguments.host, port=arguments.port)
    with _listen(settings.host, settings.port) as listener:
        _warn_if_open(settings, listener)
        if settings.triton_url is None:
            return supervise(settings, describe_triton(settings), listener)
        say(f"Triton elsewhere: {settings.triton_url}")
        return supervise(settings, None, listener)


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
