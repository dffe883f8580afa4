"""Serve /v1/plates over HTTP in the foreground, until Ctrl-C, SIGTERM or SIGHUP.

The command starts Triton on free local ports, unless PLATES_TRITON_URL names a running one, and the
gateway, which answers HTTP. It restarts them if they fail, and stops them at the end. Settings are
environment variables, such as PLATES_HOST, PLATES_PORT, PLATES_PROFILE (cpu or gpu) and
PLATES_TOKENS_FILE; `plates config table` lists them all.
"""

import argparse
import contextlib
import fcntl
import ipaddress
import logging
import os
import signal
import socket
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from api.observing import logs
from api.settings import Settings
from plates.cameras import BESIDE_VARIABLE, KEY_VARIABLE
from plates.cli import CommandError, Stopped, say, stop_signals_raise
from plates.cli.config import explain, warn_of_unknown_settings
from plates.serving.child import Child, python
from plates.serving.healing import TritonHealer
from plates.serving.supervisor import Part, Supervisor
from plates.serving.triton import EmbeddedTriton

# The beginning of the line in which `plates.serving.running` finds the address.
LISTENING = "Serving on "

log = logging.getLogger("plates.serve")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", metavar="ADDRESS", help="address to use (default: PLATES_HOST)")
    parser.add_argument("--port", type=int, metavar="N", help="port to use (default: PLATES_PORT)")
    text = "also follow the cameras of this file (default: PLATES_CAMERAS)"
    parser.add_argument("--cameras", type=Path, metavar="FILE.toml", help=text)


def run(arguments: argparse.Namespace) -> None:
    settings = read_settings(host=arguments.host, port=arguments.port, cameras=arguments.cameras)
    with _listen(settings.host, settings.port) as listener:
        local = ipaddress.ip_address(listener.getsockname()[0]).is_loopback
        if not local and not settings.tokens and settings.tokens_file is None:
            log.warning(
                "Everyone who can reach %s may send photos: no tokens are set. Set PLATES_TOKENS "
                "or PLATES_TOKENS_FILE, or listen on 127.0.0.1.",
                settings.host,
            )
        supervise(settings, listener)


def _listen(host: str, port: int) -> socket.socket:
    """Listen on the port before anything slow starts; raises CommandError if it can't be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, dualstack_ipv6=host == "::")
    except OSError as error:
        reason = error.strerror or str(error)
        hint = "Set --host or --port (PLATES_HOST, PLATES_PORT)."
        raise CommandError(f"can't listen on {host}:{port}: {reason}. {hint}") from error


def read_settings(**options: object) -> Settings:
    """Read the settings, overridden by options that are not None, and configure the logs."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    try:
        settings = Settings(**given)
    except ValidationError as error:
        raise CommandError("; ".join(explain(error))) from error
    logs.configure(settings.log_format)
    warn_of_unknown_settings()
    return settings


def supervise(settings: Settings, listener: socket.socket | None = None) -> None:
    """Run Triton, unless it runs elsewhere, and a gateway; restart them on failure, until a signal.

    The gateway serves on the listener; without a listener only Triton runs.
    """
    triton = None
    with tempfile.TemporaryDirectory(prefix="plates-") as name:
        folder = Path(name)
        # systemd-tmpfiles removes no old files from a locked folder.
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH)
        if listener and settings.triton_url:
            say(f"Triton elsewhere: {settings.triton_url}")
        else:
            say("Starting Triton …")
            triton = EmbeddedTriton(settings, folder)
        status_file = settings.status_file or folder / "status.json"
        parts: list[Part] = [TritonHealer(triton)] if triton else []
        if listener:
            environment = partial(_environment, settings, status_file, triton, folder)
            listen = listener.fileno()
            command = [*python("plates.serving.gateway"), "--listen", str(listen)]
            parts.append(Child("gateway", command, environment, [listen]))
            if settings.cameras:
                from plates.cameras import worker

                # Restarted processes must use the checked content, even if the file has changed.
                (folder / "cameras.toml").write_bytes(settings.cameras.read_bytes())
                parts += worker.parts(settings.cameras, environment)
        supervisor = Supervisor(parts, status_file)

        def announce() -> None:
            if triton:
                say(f"Triton: gRPC {triton.grpc_url}, HTTP {triton.http_url}")
            if listener:
                host, port = listener.getsockname()[:2]
                shown = f"[{host}]" if ":" in host else host
                scheme = "https" if settings.tls_certificate else "http"
                say(f"{LISTENING}{scheme}://{shown}:{port} (documentation: /docs)")

        with stop_signals_raise(), contextlib.suppress(Stopped):
            try:
                supervisor.run(announce)
            finally:
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    signal.signal(number, signal.SIG_IGN)  # Nothing may interrupt the stop.
                say("Stopping …")
                if listener:
                    # During a restart of the gateway clients wait in its backlog; now refuse them.
                    listener.close()
                supervisor.stop()
    say("Stopped.")


def _environment(
    settings: Settings, status: Path, triton: EmbeddedTriton | None, folder: Path
) -> dict[str, str]:
    """Variables added to this process's environment for the processes beside Triton."""
    added = {"PLATES_HOST": settings.host, "PLATES_PORT": str(settings.port)}
    added["PLATES_STATUS_FILE"] = str(status)
    # Each arena of glibc's malloc keeps freed memory.
    added["MALLOC_ARENA_MAX"] = os.environ.get("MALLOC_ARENA_MAX", "2")
    if triton is not None:
        added["PLATES_TRITON_URL"] = triton.grpc_url
        added["PLATES_TRITON_METRICS_URL"] = triton.metrics_url
    if settings.cameras:
        added["PLATES_CAMERAS"] = str(folder / "cameras.toml")
        added[BESIDE_VARIABLE] = str(settings.cameras.resolve().parent)
        added[KEY_VARIABLE] = triton.http.key if triton else ""
    return added
