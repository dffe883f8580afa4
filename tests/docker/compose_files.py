"""The output of `docker compose config`, and a copy of it for machines without the plugin.

Run as a program, it writes the copy: `make docker-resolve`.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPY = Path(__file__).resolve().parent / "compose_resolved.json"
SOURCES = (
    *("compose.yaml", "compose.cpu.yaml", "compose.cameras.yaml"),
    *("docker/compose.yaml", "docker/compose.cpu.yaml"),
)
# The options with which an operator selects each combination.
COMBINATIONS = {
    "gpu": (),
    "cpu": ("-f", "compose.cpu.yaml"),
    "gpu, monitoring": ("--profile", "monitoring"),
    "cpu, monitoring": ("-f", "compose.cpu.yaml", "--profile", "monitoring"),
    "gpu, cameras": ("-f", "compose.yaml", "-f", "compose.cameras.yaml"),
    "cpu, cameras": ("-f", "compose.cpu.yaml", "-f", "compose.cameras.yaml"),
}
PROJECT = "<project>"


def has_plugin():
    """Whether `docker compose` is installed; this needs no engine."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0


def resolve(combination, **environment):
    """Resolve a combination with the plugin, in its own folder and environment."""
    with tempfile.TemporaryDirectory() as folder:
        for name in SOURCES:
            path = Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, path)
        given = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        command = ["docker", "compose", *COMBINATIONS[combination], "config", "--format", "json"]
        options = {"cwd": folder, "env": given | environment, "timeout": 60}
        done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode:
        raise ValueError(f"docker compose refuses {combination}: {done.stderr}")
    return json.loads(done.stdout.replace(folder, PROJECT))


def digests():
    return {name: hashlib.sha256((ROOT / name).read_bytes()).hexdigest() for name in SOURCES}


def read_copy():
    """The copy: `sources`, and each combination."""
    return json.loads(COPY.read_text(encoding="utf-8"))


if __name__ == "__main__":
    combinations = {combination: resolve(combination) for combination in COMBINATIONS}
    text = json.dumps({"sources": digests(), **combinations}, indent=1, sort_keys=True)
    COPY.write_text(text + "\n", encoding="utf-8")
