"""Starts, watches and stops one Triton on this machine."""

import contextlib
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from api.settings import Settings
from plates.serving.client import KEY_HEADER, TritonHttp
from plates.serving.errors import PreflightError, StartError
from plates.serving.installation import Installation, find_installation, find_problems

LOOPBACK = "127.0.0.1"
# The time in which all models must load and warm up.
READY_S = 180.0
# Triton's own limit for its exit; with a client's idle keep-alive connection it takes this long.
EXIT_TIMEOUT_S = 3
# Then the rest is killed. With the gateway's stop before, the service ends within ten seconds.
STOP_S = 5.0
KILL_S = 2.0
# gRPC clients resolve a name that several Tritons share again only when a connection ends. Triton
# ends connections regularly, so that clients find new Tritons.
CONNECTION_AGE_S = 20
# Only the supervisor may load models, register memory for Triton to write to, or set log files.
_RESTRICTED_APIS = "model-repository,shared-memory,trace,logging"
_LOG = "triton.log"
_LOG_TAIL_LINES = 30
# Decoders write messages about clients' photos to the log, too.
MAX_LOG_BYTES = 8 * 2**20
_POLL_S, _KILL_POLL_S = 0.1, 0.02
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - Triton's choice
# Below the ports of outgoing connections, which could take a port while Triton is restarted.
_PORTS = range(20_000, 32_768)
_EVERYWHERE = "0.0.0.0"  # noqa: S104 - compared with, not listened on


class EmbeddedTriton:
    """A tritonserver process, by default on free ports of loopback.

    Call `start` and `stop`. The server ends with the thread that starts it.
    """

    def __init__(self, settings: Settings, parent: Path | None = None) -> None:
        """Configure a server by the settings; `start` makes its own folder in the parent."""
        self._parent, self.repository = parent, settings.model_repository.resolve()
        self.profile, self.host = settings.profile, str(settings.triton_host)
        self.shm_prefix = ""
        # By endpoint; `start` replaces each 0 by a free port.
        self._ports: dict[str, int] = {
            name: getattr(settings, f"triton_{name}_port") for name in ("http", "grpc", "metrics")
        }
        # host:port of each endpoint for clients; set by `start`.
        self.http_url = self.grpc_url = self.metrics_url = ""
        self._key = secrets.token_hex(16)
        self._server: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        # A thread may stop it while another thread starts it.
        self._lock = threading.Lock()
        self._stopped = False

    @property
    def http(self) -> TritonHttp:
        """A client of the HTTP endpoint, with the key to its restricted APIs."""
        return TritonHttp(self.http_url, self._key)

    @property
    def stubs(self) -> list[psutil.Process]:
        """The processes that run the models' Python, one for each instance; includes zombies."""
        server = self._server
        if server and server.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):  # it ended just now
                return psutil.Process(server.pid).children()
        return []

    def poll(self) -> int | None:
        """Return None while the server runs, else its exit status (1 if it was not started)."""
        server = self._server
        return server.poll() if server else 1

    def log_tail(self) -> str:
        """Return the last lines of the server's log, without its wide tables."""
        log = self._folder and self._folder / _LOG
        text = log.read_text(encoding="utf-8", errors="replace") if log and log.exists() else ""
        kept = [line for line in text.splitlines() if line and not line.startswith(("+", "|"))]
        return "\n".join(kept[-_LOG_TAIL_LINES:])

    def tidy(self) -> None:
        """Make shared memory, which holds photos, private; empty a log that is too long."""
        for segment in shared_memory(self.shm_prefix):
            with contextlib.suppress(OSError):  # It has gone, or is another user's.
                segment.chmod(0o600)
        log = self._folder and self._folder / _LOG
        if log and log.exists() and log.stat().st_size > MAX_LOG_BYTES:
            # The server opened it to append: it continues at the new beginning.
            os.truncate(log, 0)

    def start(self, lay_out: Callable[[Path], Path] | None = None) -> None:
        """Start the server and wait until every model is loaded and warm.

        A second start uses the same ports, as clients know them. `lay_out` takes the server's own
        folder and returns the model repository to serve; without it the original one is served.

        Raises:
            PreflightError: This machine lacks something, or another process took a port.
            StartError: The server ended, or was not ready in time.
        """
        installation = find_installation()
        problems = find_problems(installation, self.repository, self.profile)
        problems += self._choose_ports()
        if problems or installation is None:
            raise PreflightError(problems)
        try:
            self._launch(installation, lay_out)
            self._wait_until_ready()
        except BaseException as error:
            self.kill()
            if isinstance(error, OSError):  # a full disk, or too many processes
                raise PreflightError([f"Triton can't be started: {error}."]) from error
            raise

    def stop(self) -> None:
        """Stop the server for good, within 7 s, with all its processes and files."""
        with self._lock:
            self._stopped = True
            server = self._server
        if server is not None:
            server.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(STOP_S)
        self.kill()

    def kill(self) -> None:
        """Kill the server's processes and remove its files; it can be started again."""
        with self._lock:
            server, self._server = self._server, None
            folder, self._folder = self._folder, None
        try:
            if server is not None:
                # The stubs are in the server's group. They survive its crash, and ignore SIGTERM.
                _kill_group(server.pid, KILL_S)
                server.poll()
                for segment in shared_memory(self.shm_prefix):
                    with contextlib.suppress(OSError):  # It has gone, or is another user's.
                        segment.unlink()
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
        except BaseException:  # a stop signal: `stop` must do all of this again
            self._server, self._folder = server, folder
            raise

    def _choose_ports(self) -> Iterator[str]:
        """Replace each port 0 by a free one; yield a problem for each port that can't be used."""
        # Hold all sockets until all ports are chosen, so that no two are the same.
        with contextlib.ExitStack() as held:
            for name, port in self._ports.items():
                probe = held.enter_context(socket.socket())
                if port and list(self._ports.values()).count(port) == 1:  # else bind must fail
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                reason = ""
                for choice in [port] if port else random.sample(_PORTS, 100):
                    try:
                        probe.bind((self.host, choice))
                        self._ports[name] = choice
                        break
                    except (OSError, OverflowError) as error:
                        reason = getattr(error, "strerror", None) or str(error)
                else:
                    remedy = f"set PLATES_TRITON_{name.upper()}_PORT to a free one"
                    at = f"Port {port} of {self.host}"
                    yield f"{at} can't be used ({reason}): {remedy}, or change PLATES_TRITON_HOST."
        host = LOOPBACK if self.host == _EVERYWHERE else self.host
        urls = (f"{host}:{port}" for port in self._ports.values())
        self.http_url, self.grpc_url, self.metrics_url = urls

    def _launch(self, installation: Installation, lay_out: Callable[[Path], Path] | None) -> None:
        self._folder = folder = Path(tempfile.mkdtemp(prefix="triton-", dir=self._parent))
        backends = installation.lay_out_backends(folder / "backends")
        repository = lay_out(folder) if lay_out else self.repository
        self.shm_prefix = f"plates_{os.getpid()}_{secrets.token_hex(4)}_"
        # If this process is killed, the kernel sends SIGTERM to the server.
        command = ["setpriv", "--pdeathsig", "TERM", str(installation.server)]
        command += self._options(repository, backends)
        with self._lock:
            if self._stopped:
                raise StartError("Triton was stopped while it started")
            with (folder / _LOG).open("ab") as log:
                self._server = subprocess.Popen(  # noqa: S603 - our own command
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    # The stubs import from their current folder first: no user's queue.py may be
                    # there.
                    cwd=folder,
                    env=installation.environment(self.profile),
                    # Ctrl-C in a terminal is for this process, which stops the server in order.
                    start_new_session=True,
                )

    def _options(self, repository: Path, backends: Path) -> list[str]:
        locked = f"{_RESTRICTED_APIS}:{KEY_HEADER}={self._key}"
        options = [
            f"--model-repository={repository}",
            # explicit: models can be loaded and unloaded at run time.
            "--model-control-mode=explicit",
            "--load-model=*",
            # Otherwise Triton is not ready while another model version is loaded.
            "--strict-readiness=false",
            f"--backend-directory={backends}",
            # Otherwise each model's process is started twice.
            "--disable-auto-complete-config",
            f"--http-restricted-api={locked}",
            f"--grpc-restricted-protocol={locked}",
            f"--backend-config=python,shm-region-prefix-name={self.shm_prefix}",
            f"--exit-timeout-secs={EXIT_TIMEOUT_S}",
        ]
        for name, port in self._ports.items():
            options += [f"--{name}-address={self.host}", f"--{name}-port={port}"]
        if self.host != LOOPBACK:
            options += [f"--grpc-max-connection-age={CONNECTION_AGE_S * 1000}"]
        if self.profile != "gpu":
            options += [f"--model-config-name={self.profile}", "--allow-gpu-metrics=false"]
        return options

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_S
        while not self.http.is_ready():
            if (status := self.poll()) is not None:
                raise StartError(f"Triton ended with status {status}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise StartError(f"Triton was not ready after {READY_S:g} s:\n{self.log_tail()}")
            time.sleep(_POLL_S)


def _kill_group(leader: int, timeout: float) -> None:
    """SIGKILL the processes of a group until none is left or the time is up.

    They are reaped, too: in a container orphans become children of its first process.
    """
    deadline = time.monotonic() + timeout
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(leader, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-leader, os.WNOHANG)
            time.sleep(_KILL_POLL_S)


def shared_memory(prefix: str) -> list[Path]:
    """List the shared-memory segments whose name begins with a server's prefix."""
    return sorted(SHARED_MEMORY.glob(f"{prefix}*")) if prefix else []
