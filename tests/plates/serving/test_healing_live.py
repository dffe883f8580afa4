"""The supervisor heals a real Triton: what died, what ended, what hangs; and knows when it can't.

The model is one that loads at once. What clients see of faults in the real ones is in
test_faults_live.py; more of the supervisor, over a server without models, in test_healing.py.
"""

import contextlib
import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import wait_until

from plates.serving import EmbeddedTriton, healing, prober, processes, supervisor
from plates.serving.errors import GaveUp
from plates.serving.healing import TritonHealer

pytestmark = [pytest.mark.live, pytest.mark.control]

CONFIG = """
backend: "python"
input [ { name: "image" data_type: TYPE_UINT8 dims: [ -1 ] } ]
output [
  { name: "texts" data_type: TYPE_STRING dims: [ -1, 1 ] },
  { name: "coordinates" data_type: TYPE_FP32 dims: [ -1, 4 ] }
]
instance_group [ { kind: KIND_CPU } ]
"""
MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        texts = pb_utils.Tensor("texts", np.array([["A"]], object))
        boxes = pb_utils.Tensor("coordinates", np.zeros((1, 4), np.float32))
        return [pb_utils.InferenceResponse([texts, boxes]) for r in requests]
"""
BROKEN = "raise ImportError('no such luck')"
HANGING = MODEL.replace("        texts", "        import time; time.sleep(600)\n        texts", 1)


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    folder = tmp_path / "models" / "plate_recognition"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(CONFIG)
    # The real one has this beside it, and is refused without it.
    (folder / "1" / "exported.json").write_text("{}")
    file = folder / "1" / "model.py"
    file.write_text(MODEL)
    return file


@contextlib.contextmanager
def healer_of(model_file: Path) -> Iterator[tuple[TritonHealer, EmbeddedTriton]]:
    triton = EmbeddedTriton(model_file.parents[2])
    healer = TritonHealer(triton, b"photo")
    try:
        healer.start()
        ticked_until(healer, lambda: healer.status.state == "ready")
        yield healer, triton
        prefix = triton.shm_prefix
    finally:
        healer.stop()
    assert not processes.leftovers(prefix) and not processes.mentioning(prefix)


def ticked_until(healer: TritonHealer, condition: Callable[[], bool]) -> None:
    def look() -> bool:
        healer.tick()
        return condition()

    wait_until(look, seconds=60)


def test_a_dead_stub_is_replaced_again_and_again(model_file: Path) -> None:
    with healer_of(model_file) as (healer, triton):
        for count in (1, 2):
            prefix, before = triton.shm_prefix, triton.pids
            os.kill(before.stubs[0], signal.SIGKILL)
            ticked_until(healer, lambda: healer.status.state == "healing")
            ticked_until(healer, lambda: healer.status.state == "ready")
            assert healer.status.restarts == {"triton": 0, "plate_recognition": count}
            assert not any(map(processes.is_alive, (before.guardian, before.server)))
            assert not processes.leftovers(prefix)
            triton.http.plates(b"photo", 10)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_ended_server_is_started_on_the_same_ports(
    model_file: Path, number: signal.Signals
) -> None:
    with healer_of(model_file) as (healer, triton):
        addresses = (triton.grpc_url, triton.http_url, triton.metrics_url)
        before, key, prefix = triton.pids, triton.http.key, triton.shm_prefix
        os.kill(before.server, number)
        ticked_until(healer, lambda: healer.status.state == "healing")
        ticked_until(healer, lambda: healer.status.state == "ready")
        assert healer.status.restarts["triton"] == 1
        assert (triton.grpc_url, triton.http_url, triton.metrics_url) == addresses
        assert triton.http.key != key
        assert not any(map(processes.is_alive, (before.guardian, before.server, *before.stubs)))
        assert not processes.leftovers(prefix)
        triton.http.plates(b"photo", 10)


def test_a_server_that_reads_no_photo_is_restarted(
    model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(healing, "STANDSTILL_S", 3.0)
    monkeypatch.setattr(prober, "_READ_TIMEOUT_S", 1.0)
    with healer_of(model_file) as (healer, triton):
        model_file.write_text(HANGING)
        os.kill(triton.pids.server, signal.SIGKILL)
        ticked_until(healer, lambda: healer.status.restarts["triton"] == 2)
        model_file.write_text(MODEL)
        ticked_until(healer, lambda: healer.status.state == "ready")


def test_a_model_that_can_not_be_loaded_again_ends_in_giving_up(
    model_file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(supervisor, "MAX_IN_A_ROW", 2)
    with healer_of(model_file) as (healer, triton):
        model_file.write_text(BROKEN)
        os.kill(triton.pids.stubs[0], signal.SIGKILL)
        with pytest.raises(GaveUp, match=r"Triton can't be healed(.|\n)*no such luck"):
            ticked_until(healer, lambda: False)
        assert healer.status.restarts == {"triton": 1, "plate_recognition": 1}
        assert "a process of plate_recognition has died" in caplog.text
