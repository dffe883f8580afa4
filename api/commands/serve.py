"""Serve /v1/plates over HTTP in the foreground, until Ctrl-C, SIGTERM or SIGHUP.

A Triton is started on free local ports, and stopped again, unless PLATES_TRITON_URL names
one elsewhere. Settings are environment variables:

  PLATES_HOST, PLATES_PORT                  where to listen (127.0.0.1, 8080; 0: a free port)
  PLATES_TRITON_URL                         host:port, grpc://host:port or grpcs://host:port
  PLATES_TRITON_TOKEN, PLATES_TRITON_CA_FILE  bearer token; certificates to trust with grpcs
  PLATES_TRITON_HTTP_PORT, PLATES_TRITON_GRPC_PORT  fixed ports of the Triton started here
  PLATES_MAX_BYTES, PLATES_MAX_PIXELS       smaller limits for photos
  PLATES_CONCURRENCY, PLATES_MAX_WAITING    photos at Triton at once, and waiting (4, 32)
  PLATES_UPLOAD_TIMEOUT_S                   seconds that a photo may take to come in (30)
  PLATES_READY_TIMEOUT_S                    seconds that /readyz waits for its photo (3)
"""

import argparse
import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from api.commands import CommandError
from api.commands.signals import Stopped, say, stop_signals, stop_signals_raise

if TYPE_CHECKING:
    from api.embedded import EmbeddedTriton
    from api.settings import Settings

LISTENING = "Serving on "

# Photos under way get that long when the service stops; Triton's own stop comes after it,
# and both together must stay under ten seconds.
_DRAIN_S = 2
_WATCH_S = 0.5


def configure(parser: argparse.ArgumentParser) -> None:
    """There are no arguments: everything is set by the environment."""
    del parser


def run(arguments: argparse.Namespace) -> int:
    """Serve until stopped.

    Returns:
        0 after a clean stop, 1 if Triton ended by itself.

    Raises:
        CommandError: The service can't start.
    """
    del arguments
    settings = _settings()
    died = False
    with (
        stop_signals_raise(),
        contextlib.suppress(Stopped),
        _listen(settings.host, settings.port) as listener,
        _triton(settings) as (reachable, triton),
    ):
        died = asyncio.run(_serve(reachable, listener, triton))
        if triton is not None and died:
            print(f"Triton has ended by itself:\n{triton.log_tail()}", file=sys.stderr)
    say("Stopped.")
    return 1 if died else 0


def _settings() -> "Settings":
    from pydantic import ValidationError

    from api.settings import Settings

    try:
        return Settings()
    except ValidationError as error:
        lines = [f"PLATES_{e['loc'][-1]}".upper() + f": {e['msg']}" for e in error.errors()]
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
def _triton(settings: "Settings") -> "Iterator[tuple[Settings, EmbeddedTriton | None]]":
    """Start a Triton unless one is named; hand out the settings that lead to it."""
    if settings.triton_url is not None:
        print(f"Triton elsewhere: {settings.triton_url}", flush=True)
        yield settings, None
        return
    from api.embedded import EmbeddedTriton, EmbeddedTritonError

    print("Starting Triton …", flush=True)
    embedded = EmbeddedTriton(
        settings.model_repository,
        http_port=settings.triton_http_port,
        grpc_port=settings.triton_grpc_port,
    )
    try:
        embedded.start()
    except EmbeddedTritonError as error:
        raise CommandError(str(error)) from error
    try:
        print(f"Triton: gRPC {embedded.grpc_url}, HTTP {embedded.http_url}", flush=True)
        yield settings.model_copy(update={"triton_url": embedded.grpc_url}), embedded
    finally:
        say("Stopping …")
        embedded.stop()


async def _serve(
    settings: "Settings", listener: socket.socket, triton: "EmbeddedTriton | None"
) -> bool:
    """Run the gateway until a signal comes or Triton ends.

    Returns:
        Whether Triton ended by itself.
    """
    import uvicorn

    from api.main import create_app

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    config = uvicorn.Config(
        create_app(settings),
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=_DRAIN_S,
    )
    server = uvicorn.Server(config)
    if signal.SIGHUP in stop_signals():
        # The server itself sees to the other two only.
        signal.signal(signal.SIGHUP, server.handle_exit)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    died = announced = False
    while not serving.done():
        await asyncio.wait([serving], timeout=_WATCH_S if announced else 0.05)
        if server.started and not announced:
            _announce(listener)
            announced = True
        if triton is not None and triton.poll() is not None and not server.should_exit:
            died = server.should_exit = True
    await serving
    return died


def _announce(listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    print(f"{LISTENING}http://{shown}:{port} (documentation: /docs)", flush=True)
