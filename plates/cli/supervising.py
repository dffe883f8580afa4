"""What `plates serve` and `plates triton` share: settings, a supervisor, and a clean end."""

import contextlib
import os
import socket
import tempfile
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plates.cli import CommandError, Stopped, say, stop_signals_raise

if TYPE_CHECKING:
    from api.settings import Settings
    from plates.serving import EmbeddedTriton
    from plates.serving.supervisor import Part

# How the lines begin by which `plates.serving.running` finds the addresses.
TRITON, LISTENING = "Triton: ", "Serving on "


def read_settings(**options: object) -> "Settings":
    """Read the settings, and have the logs written as they say.

    Options of the command line, None if not given, come before the environment.
    """
    from pydantic import ValidationError

    from api.observing import logs
    from api.settings import Settings
    from plates.cli.config import explain, warn_of_unknown_settings

    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    try:
        settings = Settings(**given)
    except ValidationError as error:
        raise CommandError("; ".join(explain(error))) from error
    logs.configure(settings.log_format)
    warn_of_unknown_settings()
    return settings


def supervise(
    settings: "Settings", triton: "EmbeddedTriton | None", listener: socket.socket | None = None
) -> int:
    """Start Triton, then a gateway that serves on the listener, and heal both until a signal.

    Raises:
        EmbeddedTritonError: One of them can't be started, or could not be healed.
    """
    from plates.serving.supervisor import Supervisor

    with tempfile.TemporaryDirectory(prefix="plates-status-") as folder:
        status_file = settings.status_file or Path(folder) / "status.json"
        parts = [heal(triton)] if triton else []
        if listener:
            from plates.serving.gateway import GatewayWorker

            environment = partial(_environment, settings, status_file, triton)
            parts.append(GatewayWorker(environment, listener))
        supervisor = Supervisor(parts, status_file)
        with stop_signals_raise(), contextlib.suppress(Stopped):
            try:
                supervisor.start()
                if triton:
                    say(f"{TRITON}gRPC {triton.grpc_url}, HTTP {triton.http_url}")
                if listener:
                    say(f"{LISTENING}{_url(settings, listener)} (documentation: /docs)")
                supervisor.run()
            finally:
                say("Stopping …")
                supervisor.stop()
    say("Stopped.")
    return 0


def describe_triton(settings: "Settings") -> "EmbeddedTriton":
    """The Triton that the settings ask for; nothing is started yet."""
    from plates.serving import EmbeddedTriton

    say("Starting Triton …")
    return EmbeddedTriton(
        settings.model_repository,
        profile=settings.profile,
        host=str(settings.triton_host),
        http_port=settings.triton_http_port,
        grpc_port=settings.triton_grpc_port,
        metrics_port=settings.triton_metrics_port,
    )


def heal(triton: "EmbeddedTriton") -> "Part":
    """The supervisor's part that keeps it running."""
    from plates.serving.healing import TritonHealer

    return TritonHealer(triton, (files("plate_models") / "golden.jpg").read_bytes())


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


def _url(settings: "Settings", listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    scheme = "https" if settings.tls_certificate else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
