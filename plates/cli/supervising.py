"""What `plates serve` and `plates triton` share: settings, a supervisor, and a clean end."""

import contextlib
import tempfile
from collections.abc import Callable, Sequence
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
    """Read the settings from the environment, and have the logs written as they say.

    Options of the command line come first; None stands for those that were not given.

    Raises:
        CommandError: A setting makes no sense; it is named.
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
    make_parts: "Callable[[Path], Sequence[Part]]",
    announce: Callable[[], None],
) -> int:
    """Start parts, given the status file, announce them, and keep them running until a signal.

    Raises:
        CommandError: A part can't be started, or could not be healed.
    """
    from plates.serving import EmbeddedTritonError
    from plates.serving.supervisor import Supervisor

    with tempfile.TemporaryDirectory(prefix="plates-status-") as folder:
        status_file = settings.status_file or Path(folder) / "status.json"
        supervisor = Supervisor(make_parts(status_file), status_file)
        try:
            with stop_signals_raise(), contextlib.suppress(Stopped):
                try:
                    supervisor.start()
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


def announce_triton(triton: "EmbeddedTriton") -> None:
    """Say where it listens."""
    say(f"{TRITON}gRPC {triton.grpc_url}, HTTP {triton.http_url}")
