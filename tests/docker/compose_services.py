"""The services of compose as processes of this machine, with the compose file's own words.

Container paths become folders of the test, names of services 127.0.0.1, ports free ones;
everything else is what the Dockerfile and `docker compose config` say.
"""

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compose_files import read_copy
from dockerfiles import HOME, Stage, read_stages

from plates.serving.processes import die_with_parent

PORTS = ("8000", "8001", "8002", "8080")
_EVERY_S = 0.5
_PATIENCE_S = 90


@dataclass
class Machine:
    """What stands for an engine: folders for volumes and tmpfs, and a free port for each.

    Attributes:
        folder: Everything that the services may write to.
        combination: Of `compose_files.COMBINATIONS`.
        ports: A container's port to this machine's.
    """

    folder: Path
    combination: str = "cpu"
    ports: Mapping[str, str] = field(default_factory=lambda: dict(_free_ports()))

    def service(self, name: str) -> dict[str, Any]:
        """What docker compose made of a service."""
        service: dict[str, Any] = read_copy()[self.combination]["services"][name]
        return service

    def image(self, name: str) -> Stage:
        """The last stage of a service's image."""
        file = Path(self.service(name)["build"]["dockerfile"]).name
        return read_stages(file.removesuffix(".Dockerfile"))[-1]

    def here(self, name: str, word: str) -> str:
        """A word of a service's as it reads on this machine."""
        word = re.sub(r"\b(?:triton|0\.0\.0\.0)\b(?=$|:)", "127.0.0.1", word)
        word = re.sub(r"\b80\d\d\b", lambda found: self.ports.get(found[0], found[0]), word)
        for path, folder in self._folders(name).items():
            if word == path or word.startswith(f"{path}/"):
                return f"{folder}{word.removeprefix(path)}"
        return word

    def _folders(self, name: str) -> dict[str, Path]:
        """Each path that a service may write to, or that another one writes to."""
        mounts = [m for m in self.service(name)["volumes"] if m["type"] == "volume"]
        folders = {mount["target"]: self.folder / mount["source"] for mount in mounts}
        for line in self.service(name)["tmpfs"]:
            path = line.split(":")[0]
            folders[path] = self.folder / f"{name}{path.replace('/', '-')}"
        return folders

    def environment(self, name: str, programs: Path) -> dict[str, str]:
        """All that a service's processes find in their environment.

        Args:
            name: Of the service.
            programs: The folder that stands for the image's own `bin`.
        """
        image, service = self.image(name), self.service(name)
        told = image.environment | (service["environment"] or {})
        told = {key: self.here(name, value) for key, value in told.items()}
        assert image.environment["PATH"] == f"{HOME}/.venv/bin:$PATH"
        system = {"HOME": "/nonexistent", "TMPDIR": self.here(name, "/tmp")}  # noqa: S108 - the container's
        return told | system | {"PATH": f"{programs}:{os.environ['PATH']}"}

    def make_folders(self, name: str) -> None:
        """Make its volumes and its tmpfs."""
        for folder in self._folders(name).values():
            folder.mkdir(exist_ok=True)

    def is_healthy(self, name: str, programs: Path) -> bool:
        """Carry out its health check once."""
        check = self.service(name)["healthcheck"]
        kind, *words = check["test"]
        assert kind == "CMD"
        done = subprocess.run(
            [programs / words[0], *(self.here(name, word) for word in words[1:])],
            env=self.environment(name, programs),
            cwd="/",
            capture_output=True,
            timeout=seconds(check["timeout"]) + 10,
        )
        return done.returncode == 0

    def start(self, name: str, programs: Path, log: Path) -> "subprocess.Popen[bytes]":
        """Start a service as its image and the compose file say."""
        self.make_folders(name)
        service = self.service(name)
        words = service["entrypoint"] or self.image(name).entry_point
        words = [*words, *(service["command"] or [])]
        with log.open("wb") as file:
            return subprocess.Popen(
                [programs / words[0], *words[1:]],
                env=self.environment(name, programs),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: die_with_parent(signal.SIGTERM),
            )

    def wait_until_healthy(
        self, name: str, programs: Path, process: "subprocess.Popen[bytes]", log: Path
    ) -> None:
        """Ask as often as it takes, within the time that the compose file gives it."""
        check = self.service(name)["healthcheck"]
        deadline = time.monotonic() + min(seconds(check["start_period"]), _PATIENCE_S)
        while not self.is_healthy(name, programs):
            assert process.poll() is None, f"{name} has ended:\n{log.read_text()}"
            assert time.monotonic() < deadline, f"{name} is not healthy:\n{log.read_text()}"
            time.sleep(_EVERY_S)

    def stop(self, name: str, process: "subprocess.Popen[bytes]") -> int:
        """Stop a service as an engine does; fails where it would be killed."""
        process.send_signal(signal.SIGTERM)
        return process.wait(seconds(self.service(name)["stop_grace_period"]))


@dataclass
class Running:
    """Services that run.

    Attributes:
        pids: Of the process that each service's entry point is.
        statuses: Each one's exit status, once it was stopped.
    """

    pids: dict[str, int] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)


@contextmanager
def running(machine: Machine, programs: Mapping[str, Path]) -> Iterator[Running]:
    """Start Triton, then the gateway, each when what it depends on is healthy; stop both.

    Args:
        machine: Where.
        programs: For each service the `bin` of its environment.
    """
    services = Running()
    with ExitStack() as stack:
        for name in ("triton", "gateway"):
            log = machine.folder / f"{name}.log"
            process = machine.start(name, programs[name], log)
            stack.callback(process.kill)
            services.pids[name] = process.pid
            stack.callback(_stop, machine, services, name, process)
            machine.wait_until_healthy(name, programs[name], process, log)
        yield services


def _stop(
    machine: Machine, services: Running, name: str, process: "subprocess.Popen[bytes]"
) -> None:
    services.statuses[name] = machine.stop(name, process)


def seconds(text: str) -> float:
    """Read a duration such as 1m30s."""
    found = re.fullmatch(r"(?:(\d+)m)?(?:(\d+)s)?", text)
    assert found, text
    return 60 * int(found[1] or 0) + int(found[2] or 0)


def _free_ports() -> Iterator[tuple[str, str]]:
    with ExitStack() as held:
        for port in PORTS:
            probe = held.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            yield port, str(probe.getsockname()[1])
