"""The service under attack: its processes, their memory, its log."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from support import serving

from plates.benchmarks.service import footprints

# Short, because some kinds wait for it to pass.
_UPLOAD_TIMEOUT_S = 2


@dataclass(frozen=True)
class Process:
    """One process of the service."""

    pid: int
    name: str
    rss_mb: float


@dataclass(frozen=True)
class Service:
    """A running service.

    Attributes:
        host: Where it listens.
        port: Where it listens.
        pid: Of its first process; None if it is somebody else's.
        log: Its stderr; None if it is somebody else's.
        triton_http: host:port of the Triton behind it; None if that is not known.
        triton_grpc: The same for gRPC.
    """

    host: str
    port: int
    pid: int | None = None
    log: Path | None = None
    triton_http: str | None = None
    triton_grpc: str | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{self.host}:{self.port}"

    def processes(self) -> list[Process]:
        """All of its processes; none if it is somebody else's."""
        found = footprints(self.pid)
        return [Process(one.pid, one.part, one.rss_bytes / 2**20) for one in found]

    def tracebacks(self) -> list[str]:
        """Lines of its log that begin a traceback."""
        if self.log is None:
            return []
        lines = self.log.read_text(errors="replace").splitlines()
        return [line[:300] for line in lines if "Traceback (most recent" in line]

    def wait_until_ready(self, seconds: float) -> float:
        """Wait until photos are read.

        Returns:
            How many seconds it took.

        Raises:
            TimeoutError: It took longer.
        """
        start = time.monotonic()
        while time.monotonic() - start < seconds:
            try:
                if httpx.get(f"{self.url}/readyz", timeout=seconds).status_code == 200:
                    return time.monotonic() - start
            except httpx.TransportError:
                pass
            time.sleep(0.2)
        raise TimeoutError(f"not ready again within {seconds:g} s")


@contextmanager
def service_at(url: str) -> Iterator[Service]:
    """Somebody else's service."""
    parts = urlsplit(url)
    if parts.hostname is None or parts.port is None:
        raise ValueError(f"PLATES_URL: expected http://host:port, got {url!r}")
    yield Service(parts.hostname, parts.port)


@contextmanager
def service_of_our_own(folder: Path) -> Iterator[Service]:
    """Run `plates serve` with a Triton of its own, on free ports."""
    log = folder / "service.log"
    http_port, grpc_port = _free_port(), _free_port()
    settings = {
        "PLATES_UPLOAD_TIMEOUT_S": str(_UPLOAD_TIMEOUT_S),
        "PLATES_HEADER_TIMEOUT_S": str(_UPLOAD_TIMEOUT_S),
        "PLATES_TRITON_HTTP_PORT": str(http_port),
        "PLATES_TRITON_GRPC_PORT": str(grpc_port),
    }
    with serving(log, **settings) as served:
        parts = urlsplit(served.url)
        triton = f"127.0.0.1:{http_port}", f"127.0.0.1:{grpc_port}"
        service = Service(parts.hostname or "", parts.port or 0, served.pid, log, *triton)
        service.wait_until_ready(60)
        yield service


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
