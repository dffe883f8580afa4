"""The Dockerfiles and .dockerignore, without an engine."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from dockerfiles import HOME, IMAGES, ROOT, copy_sources, is_ignored, parse, read_stages
from packaging.utils import canonicalize_name
from test_requirements import names_in
from test_setup import FAKE

FILES = [f"docker/{image}.Dockerfile" for image in IMAGES]
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
HEAVY = ("torch", "onnx", "onnxruntime", "openvino", "pytriton", "ray", "matplotlib")


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="no hadolint here")
@pytest.mark.parametrize("file", FILES)
def test_hadolint_finds_nothing(file: str) -> None:
    done = subprocess.run(["hadolint", ROOT / file], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("image", IMAGES)
def test_bases_are_pinned(image: str) -> None:
    for stage in read_stages(image):
        _, _, tag = stage.image.rpartition(":")
        assert re.match(r"\d+\.\d+", tag), stage.image
    # What is built is built on what it will run on.
    assert len({stage.image for stage in read_stages(image)}) == 1


@pytest.mark.parametrize("image", IMAGES)
def test_the_process_is_nobody_and_gets_its_signals(image: str) -> None:
    final = read_stages(image)[-1]
    assert final.values("USER") == [f"{UID}:{UID}"]
    assert final.steps.index(("USER", f"{UID}:{UID}")) > max(
        place for place, (name, _) in enumerate(final.steps) if name in ("RUN", "COPY")
    )
    assert final.entry_point == ["plates", "serve" if image == "gateway" else "triton"]
    assert not final.values("CMD")


def test_an_entry_point_in_shell_form_is_seen() -> None:
    with pytest.raises(ValueError):
        _ = parse("FROM a:1\nENTRYPOINT plates serve\n")[-1].entry_point


@pytest.mark.parametrize("image", IMAGES)
def test_no_secret_is_built_in(image: str) -> None:
    for stage in read_stages(image):
        names = {*stage.environment, *stage.arguments}
        assert not [name for name in names if re.search("TOKEN|PASSWORD|SECRET|KEY", name)]
        assert "://" not in "".join(stage.environment.values())


@pytest.mark.parametrize("image", IMAGES)
def test_what_is_copied_is_there_and_not_ignored(image: str) -> None:
    for stage in read_stages(image):
        for sources, _ in stage.copies:
            for source in sources:
                assert (ROOT / source).exists(), source
                assert not is_ignored(source), source


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".venv/bin/python",
        ".env",
        ".cache/crops/0.npz",
        "runs/recognizer/checkpoint.pt",
        "build/lib/plates/cli/main.py",
        "tests/test_cli.py",
        "tokens.txt",
        "api/__pycache__/cli.cpython-311.pyc",
        "plate_models/nets/__pycache__/stn.cpython-311.pyc",
        "model_repository/yolo/1/model.pt",
        "model_repository/yolo/1/model.onnx",
        "model_repository/plate_recognition/1/exported.json",
        "model_repository/.exported",
        "weights/reliability.png",
        "docker/compose.yaml",
        "docker/tensorrt/build_engines.py",
    ],
)
def test_what_no_image_needs_stays_out(path: str) -> None:
    assert is_ignored(path)


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
    told = {"PATH": f"{programs}:/usr/bin:/bin", "REAL": sys.executable, "no_proxy": "*"}
    told |= {"LOG": str(tmp_path / "log"), "NO_ENSUREPIP": "", "BROKEN": "nothing"}
    clone = tmp_path / "plates"
    for place, (instruction, value) in enumerate(build.steps):
        copy_sources(build, clone, place)
        if instruction == "RUN" and value.startswith("docker/setup.sh"):
            command = ["/bin/sh", "-c", value.split(" && ")[0]]
            environment = told | {"TORCH_INDEX": ""} | build.environment
            run = subprocess.run(
                command, cwd=clone, env=environment, capture_output=True, text=True
            )
            assert run.returncode == 0, run.stdout + run.stderr
    calls = (tmp_path / "log").read_text().splitlines()
    role = build.environment["ROLE"]
    files = [re.search(r"--requirement (\S+)", call) for call in calls]
    named = [found[1] for found in files if found]
    torch = [] if image == "gateway" else ["docker/requirements/torch.txt"]
    assert named == [*torch, f"docker/requirements/{role}.txt"]
    assert all((clone / name).is_file() for name in named)
    assert calls[-1].endswith("--no-deps --editable .") and (clone / "pyproject.toml").is_file()
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
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(
        command, env=environment, cwd="/", capture_output=True, text=True, check=True
    )
    loaded = json.loads(done.stdout.splitlines()[-1])
    ours = {n: f for n, f in loaded.items() if n.split(".")[0] in ("api", "plate_models", "plates")}
    assert len(ours) > 10
    assert all(file.startswith(str(tmp_path)) for file in ours.values() if file), ours
    packages = {name.split(".")[0] for name in loaded}
    assert not packages & set(HEAVY)
    role = read_stages(image)[0].environment["ROLE"]
    installed = names_in((ROOT / f"docker/requirements/{role}.txt").read_text())
    homes = packages_distributions()
    foreign = {
        package: homes[package]
        for package in (packages & homes.keys()) - OPTIONAL
        if not {canonicalize_name(home) for home in homes[package]} & {*installed, "plates"}
    }
    assert not foreign


@pytest.mark.parametrize("image", ["triton", "triton-cpu"])
def test_the_models_are_exported_where_they_are_served(image: str) -> None:
    build, final = read_stages(image)
    steps = build.steps
    (export,) = [place for place, (_, value) in enumerate(steps) if "plates export" in value]
    before = {source for sources, _ in build.copies for source in sources}
    assert {"weights", "model_repository", "plate_models", "plates", "api"} <= before
    assert all(name != "COPY" for name, _ in steps[export:])
    assert f"--from=build {HOME} {HOME}" in final.values("COPY")
    assert final.environment["PLATES_PROFILE"] == ("gpu" if image == "triton" else "cpu")
