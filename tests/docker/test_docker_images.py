"""The Dockerfiles and .dockerignore, without an engine.

`make docker-check` also carries out each RUN of their build stages as it stands. That takes minutes
and gigabytes. The Python is this machine's and torch what its index gives, which need not be what
the images have.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from containers import (
    HOME,
    IMAGES,
    Machine,
    copy_sources,
    is_ignored,
    parse,
    read_sample,
    read_stages,
    running,
)
from packaging.utils import canonicalize_name
from support import ROOT
from test_requirements import names_in
from test_setup import FAKE

UID = 10001
# What the processes of each image import, besides what these import.
ENTRIES = {
    "triton": ("plates.cli.triton", "plates.cli.health", "plates.serving.guardian"),
    "gateway": (
        "plates.cli.serve",
        "plates.cli.health",
        "api.main",
        "plates.serving.gateway_process",
    ),
}
# Taken where they are there, and done without where not.
OPTIONAL = {"sniffio", "_distutils_hack", "brotli", "_brotli", "pygments", "rich"}
HEAVY = {"torch", "onnx", "onnxruntime", "openvino", "pytriton", "ray", "matplotlib"}


def requirements_of(image: str) -> dict[str, set[str]]:
    role = read_stages(image)[0].environment["ROLE"]
    return names_in((ROOT / f"docker/requirements/{role}.txt").read_text())


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="no hadolint here")
@pytest.mark.parametrize("image", IMAGES)
def test_hadolint_finds_nothing(image: str) -> None:
    command = ["hadolint", ROOT / f"docker/{image}.Dockerfile"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("image", IMAGES)
def test_images_are_pinned_unprivileged_and_hold_no_secret(image: str) -> None:
    stages = read_stages(image)
    # What is built is built on what it will run on.
    assert len({stage.image for stage in stages}) == 1
    assert re.match(r"\d+\.\d+", stages[0].image.rpartition(":")[2])
    for stage in stages:
        names = {*stage.environment, *stage.arguments}
        assert not [name for name in names if re.search("TOKEN|PASSWORD|SECRET|KEY", name)]
        assert "://" not in "".join(stage.environment.values())
    final = stages[-1]
    user = ("USER", f"{UID}:{UID}")
    written = [place for place, (name, _) in enumerate(final.steps) if name in ("RUN", "COPY")]
    assert final.steps.index(user) > max(written)
    assert final.entry_point == ["plates", "serve" if image == "gateway" else "triton"]
    assert not final.values("CMD")


def test_an_entry_point_in_shell_form_is_seen() -> None:
    with pytest.raises(ValueError):
        _ = parse("FROM a:1\nENTRYPOINT plates serve\n")[-1].entry_point


@pytest.mark.parametrize("image", IMAGES)
def test_sources_of_copy_exist_and_are_not_ignored(image: str) -> None:
    for stage in read_stages(image):
        for source in [source for sources, _ in stage.copies for source in sources]:
            assert (ROOT / source).exists() and not is_ignored(source), source


UNNEEDED = """
.git/config
.venv/bin/python
.env
.cache/crops/0.npz
runs/recognizer/checkpoint.pt
build/lib/plates/cli/main.py
tests/test_readme.py
tokens.txt
api/__pycache__/cli.cpython-311.pyc
model_repository/yolo/1/model.pt
model_repository/plate_recognition/1/exported.json
model_repository/.exported
weights/reliability.png
docker/compose.yaml
docker/tensorrt/build_engines.py
"""


def test_what_no_image_needs_stays_out() -> None:
    assert [path for path in UNNEEDED.split() if not is_ignored(path)] == []


def test_patterns_are_read_as_docker_reads_them() -> None:
    patterns = "*\n!a\n**/no\na/*.png\n!a/b/keep.png\n"
    ignored = {"b": True, "a/c": False, "a/d/no": True, "a/x.png": True, "a/b/x.png": False}
    assert {path: is_ignored(path, patterns) for path in ignored} == ignored


@pytest.mark.parametrize("image", IMAGES)
def test_each_environment_is_set_up_from_what_was_copied_before(image: str, tmp_path: Path) -> None:
    build = read_stages(image)[0]
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "python3").write_text(FAKE)
    (programs / "python3").chmod(0o755)
    system = {"PATH": f"{programs}:/usr/bin:/bin", "REAL": sys.executable, "no_proxy": "*"}
    system |= {"LOG": str(tmp_path / "log"), "NO_ENSUREPIP": "", "BROKEN": "nothing"}
    environment = system | {"TORCH_INDEX": ""} | build.environment
    clone = tmp_path / "plates"
    for place, (instruction, value) in enumerate(build.steps):
        copy_sources(build, clone, place)
        if instruction == "RUN" and value.startswith("docker/setup.sh"):
            command = ["/bin/sh", "-c", value.split(" && ")[0]]
            run = subprocess.run(
                command, cwd=clone, env=environment, capture_output=True, text=True
            )
            assert run.returncode == 0, run.stdout + run.stderr
    calls = (tmp_path / "log").read_text().splitlines()
    files = [found[1] for call in calls if (found := re.search(r"--requirement (\S+)", call))]
    torch = [] if image == "gateway" else ["docker/requirements/torch.txt"]
    assert files == [*torch, f"docker/requirements/{build.environment['ROLE']}.txt"]
    assert all((clone / name).is_file() for name in (*files, "pyproject.toml"))
    assert calls[-1].endswith("--no-deps --editable .")
    assert not any("index-url" in call for call in calls)


@pytest.mark.parametrize("image", IMAGES)
def test_everything_that_runs_is_in_the_image(image: str, tmp_path: Path) -> None:
    copy_sources(read_stages(image)[0], tmp_path)
    modules = ENTRIES["gateway" if image == "gateway" else "triton"]
    code = (
        "import importlib, json, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "from plates.cli.serve import describe_triton, heal, read_settings\n"
        "heal(describe_triton(read_settings()))\n"
        "print(json.dumps({n: getattr(m, '__file__', '') for n, m in sys.modules.items()}))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = json.loads(done.stdout.splitlines()[-1])
    ours = {n: f for n, f in loaded.items() if n.split(".")[0] in ("api", "plate_models", "plates")}
    assert len(ours) > 10
    assert all(file.startswith(str(tmp_path)) for file in ours.values() if file), ours
    packages = {name.split(".")[0] for name in loaded}
    assert not packages & HEAVY
    homes = packages_distributions()
    installed = {*requirements_of(image), "plates"}
    for package in (packages & homes.keys()) - OPTIONAL:
        assert {canonicalize_name(home) for home in homes[package]} & installed, package


@pytest.mark.parametrize("image", ["triton", "triton-cpu"])
def test_the_models_are_exported_where_they_are_served(image: str) -> None:
    build, final = read_stages(image)
    (export,) = [place for place, (_, value) in enumerate(build.steps) if "plates export" in value]
    copied = {source for sources, _ in build.copies for source in sources}
    assert {"weights", "model_repository", "plate_models", "plates", "api"} <= copied
    assert all(name != "COPY" for name, _ in build.steps[export:])
    assert f"--from=build {HOME} {HOME}" in final.values("COPY")
    assert final.environment["PLATES_PROFILE"] == ("gpu" if image == "triton" else "cpu")


def replay(image: str, clone: Path) -> Path:
    """Carry out a build stage in a folder that stands for /plates; returns its environment."""
    build = read_stages(image)[0]
    kept = ("HOME", "LANG", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {"PATH": f"{sys.base_prefix}/bin:{os.environ['PATH']}"} | build.environment
    for place, (instruction, value) in enumerate(build.steps):
        copy_sources(build, clone, place)
        if instruction == "RUN":
            command = ["/bin/sh", "-c", value]
            run = subprocess.run(
                command, cwd=clone, env=environment, capture_output=True, text=True
            )
            assert run.returncode == 0, f"{value}\n{run.stdout}{run.stderr}"
    return clone / ".venv"


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    if not os.environ.get("PLATES_DOCKER_CHECK"):
        pytest.skip("takes minutes: make docker-check")
    folder = tmp_path_factory.mktemp("images")
    yield {image: replay(image, folder / image / "plates") for image in IMAGES}


@pytest.mark.parametrize("image", IMAGES)
def test_what_is_installed_is_what_is_locked(environments: dict[str, Path], image: str) -> None:
    pip = [environments[image] / "bin/python", "-m", "pip"]
    listed = subprocess.run(
        [*pip, "list", "--format=json"], capture_output=True, text=True, check=True
    )
    found = {canonicalize_name(one["name"]): one["version"] for one in json.loads(listed.stdout)}
    for name, versions in requirements_of(image).items():
        assert name not in found or found[name] in versions, name
    assert ("torch" in found) == (image != "gateway")
    assert subprocess.run([*pip, "check"], capture_output=True).returncode == 0


def test_the_gpu_image_asks_for_the_triton_around_it(environments: dict[str, Path]) -> None:
    program = environments["triton"] / "bin/plates"
    done = subprocess.run([program, "triton"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "/opt/tritonserver" in done.stderr


@pytest.mark.live
@pytest.mark.control
def test_what_was_installed_serves(environments: dict[str, Path], tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    services = {"triton": "triton-cpu", "gateway": "gateway"}
    programs = {name: environments[image] / "bin" for name, image in services.items()}
    with running(machine, programs) as started:
        assert read_sample(machine)
    assert started.statuses == {"gateway": 0, "triton": 0}
