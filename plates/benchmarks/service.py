"""The service that is measured: one started here, or one that runs already."""

import argparse
import contextlib
import http.client
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from plates.benchmarks.http1 import Target
from plates.cli import CommandError
from plates.serving.running import running_service, tail

START_S = 90.0
_PATIENCE_S = 15.0
_PAUSE_S = 0.1
_AS_IT_IS: Mapping[str, str] = {}


@dataclass(frozen=True)
class Service:
    """A service that is ready.

    Attributes:
        url: http://host:port.
        pid: Its first process; None where it runs elsewhere.
        log: What it has logged; None where it runs elsewhere.
        triton: host:port of its Triton's gRPC; None where that is not known.
        ready_s: Seconds from its start until it was ready; None where it ran already.
    """

    url: str
    pid: int | None = None
    log: Path | None = None
    triton: str | None = None
    ready_s: float | None = None

    @property
    def target(self) -> Target:
        """Where requests go."""
        return Target.of(self.url)


def add_service(parser: argparse.ArgumentParser) -> None:
    """Declare --url and --pid."""
    parser.add_argument(
        "--url",
        metavar="http://HOST:PORT",
        help="a service that runs already (default: one is started on loopback, and stopped)",
    )
    parser.add_argument(
        "--pid", type=int, help="its first process, where it runs here, to be measured as well"
    )


@contextlib.contextmanager
def service(
    url: str | None, pid: int | None = None, settings: Mapping[str, str] = _AS_IT_IS
) -> Iterator[Service]:
    """Hand out the service at a URL, or start one on a free loopback port and stop it.

    Args:
        url: http://host:port of one that runs; None starts one.
        pid: Its first process, if it is to be measured.
        settings: Environment variables of the one that is started, with their prefix.

    Raises:
        CommandError: It doesn't get ready, or didn't stop cleanly.
    """
    if url is None:
        with _started(settings) as own:
            yield own
        return
    found = Service(url.rstrip("/"), pid)
    try:
        _wait_until_ready(found, time.monotonic() + _PATIENCE_S)
    except ValueError as error:
        raise CommandError(str(error)) from error
    yield found


@contextlib.contextmanager
def _started(settings: Mapping[str, str]) -> Iterator[Service]:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="plates-bench-") as folder:
        log = Path(folder) / "serve.log"
        with running_service(settings, log) as running:
            triton = running.triton[0] if running.triton else None
            own = Service(running.url, running.process.pid, log, triton)
            _wait_until_ready(own, began + START_S, running.process)
            yield replace(own, ready_s=time.monotonic() - began)
        status = running.process.returncode
        if status != 0:
            raise CommandError(f"the service ended with status {status}:\n{tail(log)}")


def _wait_until_ready(
    found: Service, deadline: float, process: "subprocess.Popen[str] | None" = None
) -> None:
    reason = ""
    while True:
        connection = http.client.HTTPConnection(
            found.target.host, found.target.port, timeout=_PATIENCE_S
        )
        try:
            connection.request("GET", "/readyz")
            response = connection.getresponse()
            if response.status == http.HTTPStatus.OK:
                return
            reason = f"/readyz says {response.status} {response.read(300).decode(errors='replace')}"
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
        finally:
            connection.close()
        if time.monotonic() > deadline or (process is not None and process.poll() is not None):
            told = f"\n{tail(found.log)}" if found.log else ""
            raise CommandError(f"the service at {found.url} is not ready: {reason}{told}")
        time.sleep(_PAUSE_S)
