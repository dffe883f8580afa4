"""Start, watch and stop one Triton on this machine."""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from plates.serving import fitness, launch, preflight, processes
from plates.serving.client import TritonHttp
from plates.serving.errors import PreflightError, StartError
from plates.serving.installation import Installation, find_installation

# The guardian gives the server GRACE_SECONDS, then kills, which takes it up to
# guardian.ADOPTED_SECONDS; we give the guardian STOP_SECONDS for all that, then kill its
# orphans, which are not ours to wait for. With the gateway's own stop before it the
# service stays under ten seconds at worst.
GRACE_SECONDS = 5.0
STOP_SECONDS = 7.0
ORPHAN_SECONDS = 0.4
KILL_SECONDS = 5.0
LOG_TAIL_LINES = 30
# What decoders think of strangers' photos ends up in the log as well.
MAX_LOG_BYTES = 8 * 2**20
_LOG = "triton.log"
_PORTS_TAKEN = "already in use"
_EVERYWHERE = "0.0.0.0"  # noqa: S104 - compared with, not listened on


@dataclass(frozen=True)
class Pids:
    """The server's family.

    Attributes:
        guardian: The parent of the server; ends and cleans up with it.
        server: tritonserver itself.
        stubs: One live process per model instance that runs Python.
        dead_stubs: Stubs that ended while the server lives: their model answers nothing
            any more, though the server says that it is ready.
    """

    guardian: int
    server: int
    stubs: tuple[int, ...]
    dead_stubs: tuple[int, ...]


class EmbeddedTriton:
    """A tritonserver of this process's own, by default on loopback, on free ports.

    Use it as a context manager, or call :meth:`start` and :meth:`stop`. The server ends
    when this process ends, however that happens. Several can run side by side.
    """

    def __init__(
        self,
        repository: Path,
        *,
        profile: str = "cpu",
        host: str = preflight.LOOPBACK,
        http_port: int = 0,
        grpc_port: int = 0,
        metrics_port: int = 0,
        ready_timeout: float = 180.0,
    ) -> None:
        """Describe a server; nothing is started yet.

        Args:
            repository: Triton's model repository, with exported artifacts.
            profile: "cpu" or "gpu": which of the models' configurations to take.
            host: The address to listen on; 0.0.0.0 takes all of this machine's.
            http_port: A fixed port for HTTP; 0 takes a free one.
            grpc_port: The same for gRPC.
            metrics_port: The same for Triton's metrics.
            ready_timeout: Seconds for all models to load and warm up, also for
                whoever uses :meth:`launch`.
        """
        self.repository = repository.resolve()
        self.profile, self.host = profile, host
        self._wanted = self._ports = launch.Ports(http_port, grpc_port, metrics_port)
        self.ready_timeout = ready_timeout
        # Lays out what is served in the server's own folder, where it is not all there is.
        self.lay_out: Callable[[Path], Path] = lambda _: self.repository
        self._key = ""
        self._guardian: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self.shm_prefix = ""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def _reached_at(self) -> str:
        """The address that this process asks it at."""
        return preflight.LOOPBACK if self.host == _EVERYWHERE else self.host

    @property
    def http_url(self) -> str:
        """The HTTP endpoint, as tritonclient wants it: host:port."""
        return f"{self._reached_at}:{self._ports.http}"

    @property
    def grpc_url(self) -> str:
        """The gRPC endpoint, as tritonclient wants it: host:port."""
        return f"{self._reached_at}:{self._ports.grpc}"

    @property
    def metrics_url(self) -> str:
        """Where Triton's own metrics are, under the path /metrics: host:port."""
        return f"{self._reached_at}:{self._ports.metrics}"

    @property
    def http(self) -> TritonHttp:
        """The HTTP endpoint, with the key of the server that runs now."""
        return TritonHttp(self.http_url, self._key)

    @property
    def pids(self) -> Pids:
        """The processes that run now.

        Raises:
            StartError: The server is not running.
        """
        if self._guardian is None or self._guardian.poll() is not None:
            raise StartError("the server is not running")
        guardian = self._guardian.pid
        server = next((process.pid for process in processes.children(guardian)), None)
        if server is None:
            raise StartError("the server is not running")
        stubs = processes.children(server)
        return Pids(
            guardian,
            server,
            tuple(stub.pid for stub in stubs if not stub.dead),
            tuple(stub.pid for stub in stubs if stub.dead),
        )

    def poll(self) -> int | None:
        """Return None while the server runs, else its exit status (1 if never started)."""
        return self._guardian.poll() if self._guardian else 1

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """Return the last lines of the server's log, without its wide tables."""
        if self._folder is None:
            return ""
        text = (self._folder / _LOG).read_text(encoding="utf-8", errors="replace")
        told = [line for line in text.splitlines() if line and not line.startswith(("+", "|"))]
        return "\n".join(told[-lines:])

    def bound_log(self) -> None:
        """Begin the server's log anew where it has become too long for the disk's sake."""
        if self._folder is None:
            return
        log = self._folder / _LOG
        # The server appends: what it writes next stands at the new beginning.
        with contextlib.suppress(FileNotFoundError):
            if log.stat().st_size > MAX_LOG_BYTES:
                os.truncate(log, 0)

    def start(self) -> Self:
        """Start the server and wait until every model is loaded and warm.

        Returns:
            This server.

        Raises:
            PreflightError: This machine lacks something; nothing was started.
            StartError: The server ended, or was not ready in time.
        """
        # A free port can be taken by somebody else before the server listens on it.
        for last_try in (False, False, True):
            try:
                self.launch()
                self._wait_until_ready()
            except StartError:
                lost_port = 0 in vars(self._wanted).values() and _PORTS_TAKEN in self.log_tail()
                self.stop()
                if last_try or not lost_port:
                    raise
            except BaseException:
                self.stop()
                raise
            else:
                break
        # Clients know them from now on: it is started there, should it be started again.
        self._wanted = self._ports
        return self

    def launch(self) -> None:
        """Start the server without waiting for it; after :meth:`start` on the same ports.

        Raises:
            PreflightError: This machine lacks something; nothing was started.
        """
        self._launch(self._preflight())

    def stop(self) -> None:
        """End the server and everything that belongs to it, within 8 s; again is harmless."""
        if self._guardian is not None:
            with contextlib.suppress(ProcessLookupError):
                self._guardian.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._guardian.wait(STOP_SECONDS)
        # It may hang, or have been killed before it could clean up.
        self.kill(ORPHAN_SECONDS)

    def kill(self, patience: float = KILL_SECONDS) -> None:
        """End what is left of the server and remove its traces; again is harmless.

        Args:
            patience: Seconds for the kernel to end its processes.
        """
        guardian, self._guardian = self._guardian, None
        if guardian is not None:
            # The prefix stands in the arguments of the whole family.
            family = processes.kill_mentioning(self.shm_prefix, patience)
            guardian.wait()
            processes.reap(family)
            processes.sweep(self.shm_prefix)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _preflight(self) -> Installation:
        installation = find_installation()
        ports = {
            "PLATES_TRITON_HTTP_PORT": self._wanted.http,
            "PLATES_TRITON_GRPC_PORT": self._wanted.grpc,
            "PLATES_TRITON_METRICS_PORT": self._wanted.metrics,
        }
        wanted = fitness.Wanted(self.repository, self.profile, self.host, ports)
        environment = launch.environment(self.profile, installation)
        problems = fitness.problems_with(installation, wanted, environment)
        if problems or installation is None:
            raise PreflightError(problems)
        return installation

    def _launch(self, installation: Installation) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="plates-triton-"))
        backends = installation.lay_out_backends(self._folder / "backends")
        self._ports = launch.choose_ports(self._wanted, self.host)
        self.shm_prefix = f"plates_{os.getpid()}_{secrets.token_hex(4)}_"
        self._key = secrets.token_hex(16)
        guardian = [sys.executable, "-I", "-m", "plates.serving.guardian"]
        guardian += ["--parent", str(os.getpid()), "--folder", str(self._folder)]
        guardian += ["--shm-prefix", self.shm_prefix, "--grace", str(GRACE_SECONDS), "--"]
        server = launch.command(
            installation.server,
            repository=self.lay_out(self._folder),
            backends=backends,
            host=self.host,
            ports=self._ports,
            profile=self.profile,
            shm_prefix=self.shm_prefix,
            key=self._key,
        )
        with (self._folder / _LOG).open("ab") as log:  # appended to: see `bound_log`
            self._guardian = subprocess.Popen(  # noqa: S603 - our own command
                [*guardian, *server],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # The stubs import from where they are started, before anything else:
                # that must be a folder in which nobody has left a queue.py.
                cwd=self._folder,
                env=launch.environment(self.profile, installation),
                # Ctrl-C in a terminal is for us alone: we stop the server in order.
                start_new_session=True,
            )

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + self.ready_timeout
        while not self.http.is_ready():
            status = self.poll()
            if status is not None:
                raise StartError(f"Triton ended with status {status}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                waited = f"{self.ready_timeout:g} s"
                raise StartError(f"Triton was not ready after {waited}:\n{self.log_tail()}")
            time.sleep(0.1)
