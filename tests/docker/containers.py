"""Containers without an engine: parses Dockerfiles, and runs services as local processes.

Commands and environments are those of the Dockerfiles and of `docker compose config`, with
container paths replaced by folders of the test, names of services by 127.0.0.1, ports by free ones.
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
import tomllib
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

import httpx
from compose_files import read_copy
from dockerfile_parse import DockerfileParser
from pandas import Timedelta
from support import ROOT, SCENE, SCENE_TEXT

from plate_models.process import die_with_parent

IMAGES = ("triton", "triton-cpu", "gateway")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
# The folder of the clone in every image.
HOME = "/plates"
PORTS = ("8000", "8001", "8002", "8080")
_PATIENCE_S = 90


@dataclass
class Stage:
    """A build stage: FROM and its steps; `environment` has ENV, and ARG with a default."""

    image: str
    steps: list[tuple[str, str]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def entry_point(self):
        """Its words; raises ValueError for the shell form, which does not pass signals on."""
        (value,) = [value for name, value in self.steps if name == "ENTRYPOINT"]
        return json.loads(value)


def read_stages(image):
    """The stages of docker/<image>.Dockerfile."""
    file = (ROOT / f"docker/{image}.Dockerfile").read_bytes()
    parser, stages = DockerfileParser(fileobj=io.BytesIO(file)), []
    for line in parser.structure:
        instruction, value = line["instruction"], line["value"]
        if instruction == "FROM":
            stages.append(Stage(parser.parent_images[len(stages)]))
        elif instruction == "ARG":
            name, given, default = value.partition("=")
            if stages and given:
                stages[-1].environment[name] = default
        elif instruction == "ENV":
            stages[-1].environment |= dict(pair.split("=", 1) for pair in value.split())
        elif instruction != "COMMENT":
            stages[-1].steps.append((instruction, value))
    return stages


def copies(steps):
    """(sources in the clone, target) of each COPY that does not copy from another stage."""
    values = [value for name, value in steps if name == "COPY" and not value.startswith("--from")]
    return [(value.split()[:-1], value.split()[-1]) for value in values]


def is_ignored(path):
    """Whether .dockerignore excludes a path from the build context: its last match decides."""
    ignored = False
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.removeprefix("!")
        if fnmatch(path, pattern) or fnmatch(path, f"{pattern}/*"):
            ignored = pattern == line
    return ignored


def copy_sources(steps, staging):
    """Carry out the COPY instructions in a folder that stands for HOME."""
    for sources, target in copies(steps):
        for source in (ROOT / source for source in sources):
            # Of a folder its content is copied, not the folder.
            base = source.parent if source.is_file() and target.endswith("/") else source
            for file in (source, *source.rglob("*")):
                if file.is_file() and not is_ignored(str(file.relative_to(ROOT))):
                    place = staging / target / file.relative_to(base)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(file, place)


class Machine:
    """Replaces an engine: has folders for volumes and tmpfs, and a free port for each port.

    `programs` has for each service the folder that replaces its image's `bin`.
    """

    def __init__(self, folder, programs):
        self.folder, self.programs = folder, programs
        with ExitStack() as held:
            probes = [held.enter_context(socket.create_server(("", 0))) for _ in PORTS]
            free = [str(probe.getsockname()[1]) for probe in probes]
        self.ports = dict(zip(PORTS, free, strict=True))
        services = read_copy()["cpu"]["services"]
        self.services = {name: self._as_it_runs_here(name, services[name]) for name in services}
        self.pids = {}

    def _as_it_runs_here(self, name, service):
        """The service of the compose file and image, with this machine's paths and ports."""
        image = read_stages(Path(service["build"]["dockerfile"]).stem)[-1]
        assert image.environment["PATH"] == f"{HOME}/.venv/bin:$PATH"
        service["environment"] = image.environment | (service["environment"] or {})
        service["entrypoint"] = service["entrypoint"] or image.entry_point
        text = re.sub(r"\btriton(?=:80)|0\.0\.0\.0", "127.0.0.1", json.dumps(service))
        text = re.sub(r"\b80\d\d\b", lambda found: self.ports[found[0]], text)
        # tmpfs is replaced first: the folders that replace volumes may be in /tmp themselves.
        folders = {line.split(":")[0]: self.folder / f"{name}-tmp" for line in service["tmpfs"]}
        mounts = [mount for mount in service["volumes"] if mount["type"] == "volume"]
        folders |= {mount["target"]: self.folder / mount["source"] for mount in mounts}
        for path, here in folders.items():
            here.mkdir(exist_ok=True)
            text = re.sub(rf'(?<="){path}(?=["/])', str(here), text)
        found = json.loads(text)
        found["environment"] |= {
            "HOME": "/nonexistent",
            "TMPDIR": str(self.folder / f"{name}-tmp"),
            "PATH": f"{self.programs[name]}:{os.environ['PATH']}",
        }
        return found

    def is_healthy(self, name):
        """Run a service's health check once."""
        service = self.services[name]
        _, program, *words = service["healthcheck"]["test"]
        patience_s = seconds(service["healthcheck"]["timeout"]) + 10
        options = {"env": service["environment"], "timeout": patience_s}
        command = [self.programs[name] / program, *words]
        return subprocess.run(command, capture_output=True, **options).returncode == 0

    @contextmanager
    def running(self, name):
        """Run a service as its image and compose file say; stop it as an engine does."""
        service = self.services[name]
        program, *words = [*service["entrypoint"], *(service["command"] or [])]
        log = self.folder / f"{name}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [self.programs[name] / program, *words],
                env=service["environment"],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: die_with_parent(signal.SIGTERM),
            )
        try:
            patience_s = min(seconds(service["healthcheck"]["start_period"]), _PATIENCE_S)
            deadline = time.monotonic() + patience_s
            while not self.is_healthy(name):
                assert process.poll() is None, f"{name} has ended:\n{log.read_text()}"
                assert time.monotonic() < deadline, f"{name} is not healthy:\n{log.read_text()}"
                time.sleep(0.5)
            self.pids[name] = process.pid
            yield
            process.send_signal(signal.SIGTERM)
            assert process.wait(seconds(service["stop_grace_period"])) == 0, log.read_text()
        finally:
            process.kill()

    def reads_a_sample(self):
        """Whether the published gateway reads the only plate of a sample."""
        url, photo = f"http://127.0.0.1:{self.ports['8080']}/v1/plates", SCENE.read_bytes()
        answer = httpx.post(url, files={"image": photo}, timeout=30).raise_for_status().json()
        return [plate["text"] for plate in answer["plates"] if plate["text"]] == [SCENE_TEXT]


def seconds(text):
    """The seconds of a duration such as 1m30s."""
    return Timedelta(text).total_seconds()
