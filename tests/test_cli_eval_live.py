"""`plates eval --via triton`: the labelled photos end to end through a real Triton."""

import json
import shutil
from pathlib import Path

import pytest
from conftest import ELSEWHERE, TritonEndpoints
from evaluation_cases import labelled_set
from sample_photos import read_samples

from plate_models import weights
from plates.cli import main as cli

pytestmark = pytest.mark.live

needs_ours = pytest.mark.skipif(
    bool(ELSEWHERE), reason="compares with this clone's weights, and another server is given"
)


@needs_ours
def test_triton_agrees_with_this_process_on_every_sample(
    triton: TritonEndpoints, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = read_samples()
    data, kept = labelled_set(tmp_path / "set", *samples), tmp_path / "kept.json"
    words = ["eval", "--data", str(data), "--json", str(kept), "--via", "triton"]
    assert cli.main([*words, "--triton", triton.grpc_url]) == 0
    shown = capsys.readouterr().out
    total = len(samples)
    assert f"Triton agrees with in process: {total} of {total} photos" in shown
    report = json.loads(kept.read_text())["labelled"]
    assert report["via_triton"]["photos"] == total and not report["via_triton"]["differing"]
    # The tables are those of a report in process, from what Triton answered.
    rows = {count["name"]: count for count in report["counts"]}
    assert rows["end-to-end exact match"]["hits"] == sum(map(len, samples.values()))
    assert "end-to-end exact match" in shown
    assert all(answer["guess"] for plate in report["plates"] for answer in plate["answers"])


@needs_ours
def test_other_weights_than_those_served_are_not_compared(
    triton: TritonEndpoints, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, folder = labelled_set(tmp_path / "set", "green_car.jpg"), tmp_path / "others"
    shutil.copytree(weights.WEIGHTS_DIR, folder)
    (folder / "calibration.json").unlink()
    weights.write_manifest(folder)
    words = ["eval", "--data", str(data), "--via", "triton", "--weights", str(folder)]
    assert cli.main([*words, "--triton", triton.grpc_url]) == 1
    assert "Triton serves the weights sha256:" in capsys.readouterr().err
    assert cli.main(words) == 1
    assert "starts a Triton of the released weights" in capsys.readouterr().err
