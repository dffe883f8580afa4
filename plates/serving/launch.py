"""How tritonserver is called: its ports, its options and its environment."""

import contextlib
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from plates.serving import preflight
from plates.serving.installation import Installation, Stock

# Shorter than our own patience: an idle keep-alive client holds the exit for all of it.
EXIT_TIMEOUT_SECONDS = 3
# Clients from elsewhere may know several Tritons by one name. They ask for its addresses again when
# a connection ends; that must happen now and then, or they never hear of a new one.
CONNECTION_AGE_SECONDS = 20
# What only the supervisor needs, and nobody else on this machine shall have: loading
# models, naming memory that Triton then reads and writes, files for traces and logs.
RESTRICTED_APIS = "model-repository,shared-memory,trace,logging"
# How many threads the graphs compute with; see `plate_models.cores`.
THREADS = "PLATES_THREADS"
# Its value is known to the supervisor, and to whoever may read command lines of this machine:
# Triton takes it nowhere else.
KEY_HEADER = "plates-key"


@dataclass(frozen=True)
class Ports:
    """On which ports the server listens."""

    http: int
    grpc: int
    metrics: int


def choose_ports(wanted: Ports, host: str = preflight.LOOPBACK) -> Ports:
    """Take free ports for those that are 0.

    Args:
        wanted: Fixed ports, or 0.
        host: The address that they are free on.
    """
    # All are held until all are known, so that no two are the same.
    with contextlib.ExitStack() as held:
        chosen = []
        for port in (wanted.http, wanted.grpc, wanted.metrics):
            if port == 0:
                probe = held.enter_context(socket.socket())
                probe.bind((host, 0))
                port = probe.getsockname()[1]
            chosen.append(port)
    return Ports(*chosen)


def command(
    server: Path,
    *,
    repository: Path,
    backends: Path,
    host: str,
    ports: Ports,
    profile: str,
    shm_prefix: str,
    key: str,
) -> list[str]:
    """Write the server's command line.

    Args:
        server: The tritonserver binary.
        repository: Triton's model repository.
        backends: From ``lay_out_backends`` of :mod:`plates.serving.installation`.
        host: The address to listen on.
        ports: The ports to listen on.
        profile: "gpu" takes the models' ``config.pbtxt``, another name ``configs/<name>.pbtxt``.
        shm_prefix: Begins the name of every shared-memory segment of this server.
        key: Opens the restricted APIs, as the value of the header `KEY_HEADER`.
    """
    arguments = [
        str(server),
        f"--model-repository={repository}",
        # Explicit: a model whose process died can be unloaded and loaded again.
        "--model-control-mode=explicit",
        "--load-model=*",
        # Otherwise it says that it is not ready while another release is loaded beside.
        "--strict-readiness=false",
        f"--backend-directory={backends}",
        # Otherwise torch is imported twice per model: 8 s instead of 3.
        "--disable-auto-complete-config",
        *_addresses(host, ports),
        *_restrictions(key),
        f"--backend-config=python,shm-region-prefix-name={shm_prefix}",
        f"--exit-timeout-secs={EXIT_TIMEOUT_SECONDS}",
    ]
    if profile != "gpu":
        arguments += [f"--model-config-name={profile}", "--allow-gpu-metrics=false"]
    return arguments


def _restrictions(key: str) -> list[str]:
    locked = f"{RESTRICTED_APIS}:{KEY_HEADER}={key}"
    return [f"--http-restricted-api={locked}", f"--grpc-restricted-protocol={locked}"]


def _addresses(host: str, ports: Ports) -> list[str]:
    named = {"http": ports.http, "grpc": ports.grpc, "metrics": ports.metrics}
    arguments = [
        argument
        for name, port in named.items()
        for argument in (f"--{name}-address={host}", f"--{name}-port={port}")
    ]
    if host != preflight.LOOPBACK:
        arguments += [f"--grpc-max-connection-age={CONNECTION_AGE_SECONDS * 1000}"]
    return arguments


def environment(profile: str, installation: Installation | None) -> dict[str, str]:
    """Build the environment in which the stubs find this Python and its packages.

    Args:
        profile: See :func:`command`.
        installation: What is started. An image's stub finds its libpython by itself, and the
            image's own order of libraries decides which CUDA driver is taken.
    """
    # The settings hold tokens, and what reads strangers' photos has no need of them.
    dropped = ("PYTHONHOME", "PYTHONPATH", "PLATES_")
    variables = {
        name: value
        for name, value in os.environ.items()
        if name == THREADS or not name.startswith(dropped)
    }
    # The virtual environment is found through PATH, libpython through LD_LIBRARY_PATH.
    first = {"PATH": str(Path(sys.executable).parent)}
    if not isinstance(installation, Stock):
        first["LD_LIBRARY_PATH"] = str(preflight.find_libpython() or "")
    for name, value in first.items():
        variables[name] = os.pathsep.join(filter(None, (value, variables.get(name))))
    # Threads that spin while they wait starve whoever computes on the same cores.
    variables["GOMP_SPINCOUNT"] = "0"
    # Each further arena of glibc's malloc keeps what it once held: together some 150 MB.
    variables.setdefault("MALLOC_ARENA_MAX", "1")
    if profile != "gpu":
        variables["CUDA_VISIBLE_DEVICES"] = ""
    return variables
