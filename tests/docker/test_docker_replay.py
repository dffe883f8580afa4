"""What the Dockerfiles install, installed here: each RUN of their build stages, as it stands.

Takes minutes and gigabytes, so only `make docker-check` does it. The Python is this machine's
and torch what its index gives, which need not be what the images have.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from compose_services import Machine, running
from dockerfiles import IMAGES, ROOT, copy_sources, read_stages
from support import read_samples
from test_docker_live import PHOTO, read_sample
from test_requirements import names_in

pytestmark = pytest.mark.skipif(
    not os.environ.get("PLATES_DOCKER_CHECK"), reason="takes minutes: make docker-check"
)


def replay(image: str, clone: Path) -> Path:
    """Carry out a build stage in a folder that stands for /plates.

    Returns:
        The environment that it makes.
    """
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
    folder = tmp_path_factory.mktemp("images")
    yield {image: replay(image, folder / image / "plates") for image in IMAGES}


def installed_in(environment: Path) -> dict[str, str]:
    code = (
        "import importlib.metadata as m\n"
        "for d in m.distributions(): print(d.metadata['Name'].lower().replace('_', '-'), d.version)"
    )
    done = subprocess.run(
        [environment / "bin/python", "-c", code], capture_output=True, text=True, check=True
    )
    return dict(line.split() for line in done.stdout.splitlines())


@pytest.mark.parametrize("image", IMAGES)
def test_what_is_installed_is_what_is_locked(environments: dict[str, Path], image: str) -> None:
    found = installed_in(environments[image])
    role = read_stages(image)[0].environment["ROLE"]
    locked = names_in((ROOT / f"docker/requirements/{role}.txt").read_text())
    for name, versions in locked.items():
        assert name not in found or found[name] in versions, name
    assert found["plates"] == names_in(f"plates=={found['plates']}\n")["plates"].pop()
    assert ("torch" in found) == (image != "gateway")
    check = [environments[image] / "bin/python", "-m", "pip", "check"]
    assert subprocess.run(check, capture_output=True).returncode == 0


@pytest.mark.parametrize("image", ["triton", "triton-cpu"])
def test_the_models_are_exported_and_agree(environments: dict[str, Path], image: str) -> None:
    repository = environments[image].parent / "model_repository"
    for model in ("yolo", "stn", "lprnet"):
        for artifact in ("model.pt", "model.onnx"):
            assert (repository / model / "1" / artifact).stat().st_size > 10_000
    assert (repository / "plate_recognition/1/exported.json").exists()


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
        expected = sorted(plate.text for plate in read_samples()[PHOTO])
        assert read_sample(machine) == expected
    assert started.statuses == {"gateway": 0, "triton": 0}
