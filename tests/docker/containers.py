"""Our containers without an engine: Dockerfiles read, and services run as processes here.

A service's processes get the Dockerfile's and `docker compose config`'s own words; container paths
become folders of the test, names of services 127.0.0.1, ports free ones.
"""

import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from compose_files import read_copy
from dockerfile_parse import DockerfileParser
from support import ROOT, SAMPLES, read_samples

from plates.serving.processes import die_with_parent

IMAGES = ("triton", "triton-cpu", "gateway")
# The folder of every image that the clone lies in.
HOME = "/plates"
PORTS = ("8000", "8001", "8002", "8080")
_EVERY_S = 0.5
_PATIENCE_S = 90


@dataclass
class Stage:
    """One FROM and what follows it; ENV, and ARG with a default, are in `environment`."""

    image: str
    name: str
    steps: list[tuple[str, str]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)

    def values(self, instruction: str) -> list[str]:
        """The values of all instructions of a kind."""
        return [value for name, value in self.steps if name == instruction]

    @property
    def copies(self) -> list[tuple[list[str], str]]:
        """Sources in the clone and their target; not those from other stages."""
        words = [value.split() for value in self.values("COPY") if not value.startswith("--from")]
        return [(parts[:-1], parts[-1]) for parts in words]

    @property
    def entry_point(self) -> list[str]:
        """Its words; `ValueError` for the shell form, under which signals don't arrive."""
        (value,) = self.values("ENTRYPOINT")
        words: list[str] = json.loads(value)
        return words


def read_stages(image: str) -> list[Stage]:
    """Read docker/<image>.Dockerfile."""
    return parse((ROOT / f"docker/{image}.Dockerfile").read_text(encoding="utf-8"))


def parse(text: str) -> list[Stage]:
    """Read a Dockerfile."""
    stages: list[Stage] = []
    defaults: dict[str, str] = {}
    for instruction, value in _instructions(text):
        if instruction == "FROM":
            parts = value.split()
            image = re.sub(r"\$\{(\w+)\}", lambda found: defaults[found[1]], parts[0])
            stages.append(Stage(image, parts[2] if len(parts) > 2 else ""))
        elif not stages:
            assert instruction == "ARG", instruction
            name, _, defaults[name] = value.partition("=")
        elif instruction == "ARG":
            name, given, default = value.partition("=")
            stages[-1].arguments.append(name)
            stages[-1].environment |= {name: default} if given else {}
        elif instruction == "ENV":
            stages[-1].environment |= dict(pair.split("=", 1) for pair in value.split())
        else:
            stages[-1].steps.append((instruction, value))
    return stages


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    for line in DockerfileParser(fileobj=io.BytesIO(text.encode())).structure:
        if line["instruction"] != "COMMENT":
            yield line["instruction"], line["value"]


def is_ignored(path: str, patterns: str | None = None) -> bool:
    """Whether .dockerignore (or `patterns`) keeps a path out of the build's context."""
    lines = (patterns or (ROOT / ".dockerignore").read_text(encoding="utf-8")).splitlines()
    parts = path.split("/")
    family = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    ignored = False
    for line in filter(None, (line.strip() for line in lines)):
        if line.startswith("#"):
            continue
        pattern = _expression(line.removeprefix("!"))
        if any(re.fullmatch(pattern, member) for member in family):
            ignored = not line.startswith("!")
    return ignored


def _expression(pattern: str) -> str:
    """A pattern of .dockerignore as a regular expression."""
    pieces = re.split(r"(\*\*/|\*\*|\*|\?|\[.*?\])", pattern.strip("/"))
    meaning = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(
        meaning.get(piece, piece if piece.startswith("[") else re.escape(piece)) for piece in pieces
    )


def copy_sources(stage: Stage, staging: Path, upto: int | None = None) -> None:
    """Do what the first `upto` instructions COPY, into a folder that stands for HOME."""
    for sources, target in Stage(stage.image, stage.name, stage.steps[:upto]).copies:
        for source in (ROOT / source for source in sources):
            if source.is_file():
                files = {source: Path(target, source.name if target.endswith("/") else "")}
            else:
                files = {file: Path(target, file.relative_to(source)) for file in source.rglob("*")}
            for file, place in files.items():
                if file.is_file() and not is_ignored(str(file.relative_to(ROOT))):
                    (staging / place).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(file, staging / place)


@dataclass
class Machine:
    """What stands for an engine: a folder for volumes and tmpfs, a free port for each port."""

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
        """What a service's processes get; `programs` stands for the image's own `bin`."""
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
    """Each service's process, and its exit status once it was stopped."""

    pids: dict[str, int] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)


@contextmanager
def running(machine: Machine, programs: Mapping[str, Path]) -> Iterator[Running]:
    """Start Triton, then the gateway, each when what it depends on is healthy; stop both."""
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


def read_sample(machine: Machine) -> bool:
    """Whether the gateway that the compose file publishes reads a sample as it should."""
    name, plates = next(iter(read_samples().items()))
    url = f"http://127.0.0.1:{machine.ports['8080']}/v1/plates"
    photo = {"image": (name, (SAMPLES / name).read_bytes())}
    answer = httpx.post(url, files=photo, timeout=30).raise_for_status().json()
    texts = sorted(plate["text"] for plate in answer["plates"] if plate["text"])
    return texts == sorted(plate.text for plate in plates)


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
