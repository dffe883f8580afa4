"""TensorRT engines: what is refused, how they would be built, and what serves them."""

import sys
from pathlib import Path

import pytest
from support import REPOSITORY, load_script

from plate_models.spec import DETECTOR, RECOGNIZER, RECTIFIER


@pytest.fixture
def build():
    return load_script("docker/tensorrt/build_engines.py")


def exported(folder: Path) -> Path:
    for model in ("yolo", "lprnet"):
        target = folder / model / "1"
        target.mkdir(parents=True)
        (target / "model.onnx").symlink_to(REPOSITORY / model / "1" / "model.onnx")
    return folder


@pytest.mark.parametrize(
    ("words", "has_tensorrt", "reason"),
    [
        ("yolov8", False, "unknown model 'yolov8'; expected yolo or lprnet"),
        ("stn", False, "AffineGrid"),
        ("--repository /nowhere yolo", False, "make export"),
        ("--repository {models}", False, "TensorRT is not here"),
        ("--repository {models}", True, "docker run --gpus all"),
    ],
)
def test_what_can_not_be_built_is_refused(
    build, tmp_path, monkeypatch, capsys, words, has_tensorrt, reason
):
    if has_tensorrt:
        fake_trtexec(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(build, "_TRTEXEC", tmp_path / "trtexec")
    monkeypatch.setattr(build, "find_gpu_problem", lambda _library: "there is none")
    assert build.main(words.format(models=exported(tmp_path / "models")).split()) == 1
    out, err = capsys.readouterr()
    assert not out and err.startswith("build_engines: ") and err.count("\n") == 1
    assert reason in err


FAKE = """#!{python}
import json, sys
options = dict(argument[2:].partition("=")[::2] for argument in sys.argv[1:])
if "saveEngine" in options:
    open(options["saveEngine"], "wb").write(b"engine")
if "exportOutput" in options:
    import numpy as np
    import onnxruntime
    shape = [int(n) for n in options["shapes"].partition(":")[2].split("x")]
    data = np.fromfile(options["loadInputs"].partition(":")[2], "float32").reshape(shape)
    session = onnxruntime.InferenceSession({onnx!r}, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {{"input__0": data}})
    values = (found + {error}).ravel().tolist()
    json.dump([{{"name": "output__0", "values": values}}], open(options["exportOutput"], "w"))
"""


def fake_trtexec(folder: Path, error: str = "0.0") -> None:
    """A trtexec whose lprnet engine computes what the ONNX file does, and something more."""
    onnx, program = REPOSITORY / "lprnet" / "1" / "model.onnx", folder / "trtexec"
    folder.mkdir()
    program.write_text(FAKE.format(python=sys.executable, onnx=str(onnx), error=error))
    program.chmod(0o755)


@pytest.mark.parametrize("error", [0.0, 1e4, float("nan")])
def test_an_engine_is_kept_only_if_it_agrees(build, tmp_path, monkeypatch, capsys, error):
    fake_trtexec(tmp_path / "bin", f'float("{error}")')
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(build, "find_gpu_problem", lambda _library: None)
    models = exported(tmp_path / "models")
    status = build.main(["--repository", str(models), "--fp16", "lprnet"])
    plan = models / "lprnet" / "1" / "model.plan"
    output = capsys.readouterr()
    assert (status, plan.exists()) == ((0, True) if error == 0 else (1, False)), output.err
    assert ("differs from the ONNX file" in output.err) == (error != 0)


def test_the_profile_covers_what_is_asked_for(build):
    for height, width in DETECTOR.canvases_hw:
        for batch in (1, DETECTOR.max_batch_size):
            least, _, most = build.shapes_of("yolo")
            wanted = (batch, 3, height, width)
            assert all(a <= b <= c for a, b, c in zip(least, wanted, most, strict=True))
    assert build.shapes_of("lprnet")[2] == (RECOGNIZER.max_batch_size, 3, *RECTIFIER.rectified_hw)
