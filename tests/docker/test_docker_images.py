"""The Dockerfiles and .dockerignore, without an engine.

`make docker-check` also runs each RUN of the build stages unchanged, which takes minutes and
gigabytes. Python is this machine's, torch the one in its index; those of the images may differ.
"""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from containers import IMAGES, Machine, copies, copy_sources, is_ignored, read_stages
from packaging.utils import canonicalize_name
from support import ROOT, processes_below, wait_until
from test_docker_versions import names_in

from api.status import read_status

UID = 10001
# Packages that libraries import only if they are installed.
OPTIONAL = {"click", "sniffio", "_distutils_hack", "brotli", "_brotli", "pygments", "rich"}
HEAVY = {"torch", "onnx", "onnxruntime", "openvino", "pytriton", "ray", "matplotlib"}


@pytest.mark.parametrize("image", IMAGES)
def test_images_are_pinned_and_unprivileged(image):
    build, final = read_stages(image)
    assert build.image == final.image
    user = ("USER", f"{UID}:{UID}")
    written = [place for place, (name, _) in enumerate(final.steps) if name in ("RUN", "COPY")]
    assert final.steps.index(user) > max(written)
    # Python's own modules must be compiled, or each health check compiles them. NVIDIA's are.
    assert image == "triton" or "compileall" in dict(final.steps)["RUN"]


@pytest.mark.parametrize("image", IMAGES)
def test_copied_files_exist_and_are_not_ignored(image):
    steps = read_stages(image)[0].steps
    runs = "\n".join(value for name, value in steps if name == "RUN")
    for sources, _ in copies(steps):
        for source in sources:
            assert (ROOT / source).exists() and not is_ignored(source), source
            # Files keep the clone's modes, which depend on the umask at cloning.
            if (ROOT / source).is_dir():
                assert re.search(rf"chmod -R a\+rX( \S+)* {source}\b", runs), source
    unneeded = [".git/config", ".venv/bin/python", ".env", "tests/test_readme.py", "tokens.txt"]
    unneeded.append("model_repository/yolo/1/model.pt")
    assert [path for path in unneeded if not is_ignored(path)] == []


@pytest.mark.parametrize("image", IMAGES)
def test_all_imported_modules_and_packages_are_in_the_image(image, tmp_path):
    build = read_stages(image)[0]
    copy_sources(build.steps, tmp_path)
    modules = ["plates.cli.triton", "plates.cli.health"]  # that the processes import first
    if image == "gateway":
        modules = ["plates.cli.serve", "plates.cli.health", "api.main", "plates.serving.gateway"]
    code = (
        "import importlib, json, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "from plates.cli import serve\n"
        "serve.TritonHealer(serve.EmbeddedTriton(serve.read_settings()))\n"
        "print(json.dumps({n: getattr(m, '__file__', '') for n, m in sys.modules.items()}))"
    )
    options = {"env": {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)}, "cwd": "/"}
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, **options)
    loaded = json.loads(done.stdout.splitlines()[-1])
    own = {n: f for n, f in loaded.items() if n.split(".")[0] in ("api", "plate_models", "plates")}
    assert len(own) > 10
    assert all(file.startswith(str(tmp_path)) for file in own.values() if file), own
    packages = {name.split(".")[0] for name in loaded}
    assert not packages & HEAVY
    homes = packages_distributions()
    requirements = ROOT / f"docker/requirements/{build.environment['ROLE']}.txt"
    installed = {*names_in(requirements.read_text()), "plates"}
    assert image == "triton" or not installed & {"onnx", "onnxruntime"}  # with torch, for exports
    for package in (packages & homes.keys()) - OPTIONAL:
        assert {canonicalize_name(home) for home in homes[package]} & installed, package


@pytest.mark.live
@pytest.mark.control
def test_the_built_images_read_a_sample(tmp_path_factory, tmp_path):
    if not os.environ.get("PLATES_DOCKER_CHECK"):
        pytest.skip("takes minutes; run `make docker-check`")
    folder = tmp_path_factory.mktemp("images")
    kept = ("HOME", "LANG", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment["PATH"] = f"{sys.base_prefix}/bin:{os.environ['PATH']}"
    for image in IMAGES:
        build, clone = read_stages(image)[0], folder / image  # stands for /plates
        for place, (instruction, value) in enumerate(build.steps):
            copy_sources(build.steps[:place], clone)
            if instruction == "RUN":
                options = {"cwd": clone, "env": environment | build.environment, "text": True}
                done = subprocess.run(["/bin/sh", "-c", value], capture_output=True, **options)
                assert done.returncode == 0, f"{value}\n{done.stdout}{done.stderr}"
    images = {"triton": "triton-cpu", "gateway": "gateway"}
    programs = {name: folder / image / ".venv" / "bin" for name, image in images.items()}
    machine = Machine(tmp_path, programs)
    with machine.running("triton"), machine.running("gateway"):
        assert machine.reads_a_sample()


@pytest.mark.live
@pytest.mark.control
def test_triton_and_gateway_read_a_sample_heal_and_stop(tmp_path):
    """The entry points run as processes, with the settings of `docker compose config`."""
    machine = Machine(tmp_path, dict.fromkeys(("triton", "gateway"), Path(sys.executable).parent))
    with machine.running("triton"), machine.running("gateway"):
        assert machine.reads_a_sample()
        # The gateway reads the status of Triton's supervisor in their shared volume.
        status = Path(machine.services["gateway"]["environment"]["PLATES_TRITON_STATUS_FILE"])
        processes_below(machine.pids["triton"], "/plate_recognition/")[0].kill()
        wait_until(lambda: (s := read_status(status)) and s.restarts["plate_recognition"] == 1)
        # The gateway may reconnect later than Triton is ready.
        wait_until(lambda: machine.is_healthy("triton") and machine.is_healthy("gateway"), 60)
        assert machine.reads_a_sample()
