"""The images' entry points as processes, with what `docker compose config` gives them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from containers import Machine, read_sample, running
from support import wait_until

from api.status import read_status
from plates import gpu
from plates.serving import processes

PROGRAMS = Path(sys.executable).parent


@pytest.mark.live
@pytest.mark.control
def test_both_halves_read_heal_and_stop(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with running(machine, {"triton": PROGRAMS, "gateway": PROGRAMS}) as services:
        assert read_sample(machine)
        # The gateway sees the status of Triton's supervisor in their common volume.
        status = Path(machine.environment("gateway", PROGRAMS)["PLATES_TRITON_STATUS_FILE"])
        below = psutil.Process(services.pids["triton"]).children(recursive=True)
        stubs = processes.mentioning("python_backend_stub")
        (model,) = [
            process.pid
            for process in stubs & processes.mentioning("/plate_recognition/") & {*below}
        ]
        os.kill(model, signal.SIGKILL)
        wait_until(lambda: (s := read_status(status)) and s.restarts["plate_recognition"] == 1)
        wait_until(lambda: machine.is_healthy("triton", PROGRAMS), 60)
        assert read_sample(machine)
    assert services.statuses == {"gateway": 0, "triton": 0}


@pytest.mark.parametrize(
    ("service", "variable", "value"),
    [
        ("gateway", "PLATES_PORT", "abc"),
        ("gateway", "PLATES_TRITON_URL", "http://triton:8000"),
        ("gateway", "PLATES_TOKENS_FILE", "/dev/null"),
        ("triton", "PLATES_THREADS", "-1"),
        ("triton", "PLATES_TRITON_HOST", "everywhere"),
        ("triton", "PLATES_TRITON_METRICS_PORT", "70000"),
        ("triton", "PLATES_PROFILE", "tpu"),
    ],
)
def test_a_value_that_makes_no_sense_ends_the_service(
    tmp_path: Path, service: str, variable: str, value: str
) -> None:
    machine = Machine(tmp_path)
    machine.make_folders(service)
    environment = machine.environment(service, PROGRAMS) | {variable: value}
    done = run(machine, service, environment)
    assert done.returncode == 1
    assert variable in done.stderr


def run(
    machine: Machine, service: str, environment: dict[str, str]
) -> "subprocess.CompletedProcess[str]":
    program, *words = machine.image(service).entry_point
    return subprocess.run(
        [PROGRAMS / program, *words],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.skipif(gpu.find_gpu_problem() is None, reason="there is a GPU here")
def test_the_gpu_variant_says_that_there_is_no_gpu(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "gpu")
    machine.make_folders("triton")
    done = run(machine, "triton", machine.environment("triton", PROGRAMS))
    assert done.returncode == 1
    assert "on a GPU, and NVIDIA's driver" in done.stderr
