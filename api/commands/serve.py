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
import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from api.commands import CommandError
from api.commands.signals import Stopped, say, stop_signals_raise

if TYPE_CHECKING:
    from api.embedded import EmbeddedTriton
    from api.embedded.supervisor import Part
    from api.settings import Settings

LISTENING = "Serving on "
TRITON = "Triton: "
# -P: the folder we are called from may hold a package "api" of somebody else's.
_WORKER = (sys.executable, "-P", "-m", "api.worker")


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
    from api.embedded import EmbeddedTritonError
    from api.observing import logs

    del arguments
    settings = _settings()
    logs.configure(settings.log_format)
    try:
        with (
            stop_signals_raise(),
            contextlib.suppress(Stopped),
            _listen(settings.host, settings.port) as listener,
            _status_file(settings) as status_file,
        ):
            _supervise(settings, listener, status_file)
    except EmbeddedTritonError as error:
        raise CommandError(str(error)) from error
    say("Stopped.")
    return 0


def _settings() -> "Settings":
    from pydantic import ValidationError

    from api.settings import Settings

    try:
        return Settings()
    except ValidationError as error:
        # One setting's default can depend on another: only the wrong one is named.
        wrong = (e for e in error.errors() if e["type"] != "default_factory_not_called")
        lines = [f"PLATES_{e['loc'][-1]}".upper() + f": {e['msg']}" for e in wrong]
        raise CommandError("; ".join(lines)) from error


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


@contextlib.contextmanager
def _status_file(settings: "Settings") -> Iterator[Path]:
    if settings.status_file is not None:
        yield settings.status_file
        return
    with tempfile.TemporaryDirectory(prefix="plates-status-") as folder:
        yield Path(folder) / "status.json"


def _supervise(settings: "Settings", listener: socket.socket, status_file: Path) -> None:
    """Start the service and watch over it until a signal comes.

    Raises:
        EmbeddedTritonError: It can't be started, or could not be healed.
    """
    from api.embedded.healing import TritonHealer
    from api.embedded.supervisor import Supervisor
    from api.embedded.worker import GatewayWorker

    triton = _triton(settings)

    def environment() -> dict[str, str]:
        told = {"PLATES_STATUS_FILE": str(status_file)}
        # Each further arena of glibc's malloc keeps what it once held.
        told["MALLOC_ARENA_MAX"] = os.environ.get("MALLOC_ARENA_MAX", "2")
        if triton is not None:
            told["PLATES_TRITON_URL"] = triton.grpc_url
            told["PLATES_TRITON_METRICS_URL"] = triton.metrics_url
        return told

    worker = GatewayWorker(_WORKER, environment, listener)
    parts: list[Part] = [TritonHealer(triton, _canary()), worker] if triton else [worker]
    supervisor = Supervisor(parts, status_file)
    try:
        supervisor.start()
        if triton is not None:
            say(f"{TRITON}gRPC {triton.grpc_url}, HTTP {triton.http_url}")
        _announce(listener)
        supervisor.run()
    finally:
        say("Stopping …")
        supervisor.stop()


def _triton(settings: "Settings") -> "EmbeddedTriton | None":
    """Describe the Triton to be started, unless one is named."""
    if settings.triton_url is not None:
        say(f"Triton elsewhere: {settings.triton_url}")
        return None
    from api.embedded import EmbeddedTriton

    say("Starting Triton …")
    return EmbeddedTriton(
        settings.model_repository,
        profile=settings.profile,
        http_port=settings.triton_http_port,
        grpc_port=settings.triton_grpc_port,
    )


def _canary() -> bytes:
    return (files("api") / "canary.jpg").read_bytes()


def _announce(listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    say(f"{LISTENING}http://{shown}:{port} (documentation: /docs)")
