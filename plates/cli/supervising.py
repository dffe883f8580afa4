"""What `plates serve` and `plates triton` share: settings, a supervisor, and a clean end."""

import contextlib
import tempfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plates.cli import CommandError
from plates.cli.signals import Stopped, say, stop_signals_raise

if TYPE_CHECKING:
    from api.settings import Settings
    from plates.serving import EmbeddedTriton
    from plates.serving.supervisor import Part

TRITON = "Triton: "


def read_settings(**options: object) -> "Settings":
    """Read the settings, and have the logs written as they say.

    Options of the command line, None if not given, come before the environment.
    """
    from pydantic import ValidationError

    from api.observing import logs
    from api.settings import Settings
    from plates.cli.environment import explain, warn_of_unknown_settings

    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    try:
        settings = Settings(**given)
    except ValidationError as error:
        raise CommandError("; ".join(explain(error))) from error
    logs.configure(settings.log_format)
    warn_of_unknown_settings()
    return settings


def supervise(
    settings: "Settings",
    triton: "EmbeddedTriton | None",
    make_gateway: "Callable[[Path], Part] | None" = None,
    announce: Callable[[], None] = lambda: None,
) -> int:
    """Start Triton, then a gateway, given the status file, and heal both until a signal.

    Raises:
        CommandError: One of them can't be started, or could not be healed.
    """
    from plates.serving import EmbeddedTritonError
    from plates.serving.supervisor import Supervisor

    with tempfile.TemporaryDirectory(prefix="plates-status-") as folder:
        status_file = settings.status_file or Path(folder) / "status.json"
        parts = [heal(triton)] if triton else []
        parts += [make_gateway(status_file)] if make_gateway else []
        supervisor = Supervisor(parts, status_file)
        try:
            with stop_signals_raise(), contextlib.suppress(Stopped):
                try:
                    supervisor.start()
                    if triton:
                        say(f"{TRITON}gRPC {triton.grpc_url}, HTTP {triton.http_url}")
                    announce()
                    supervisor.run()
                finally:
                    say("Stopping …")
                    supervisor.stop()
        except EmbeddedTritonError as error:
            raise CommandError(str(error)) from error
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
