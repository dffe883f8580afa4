#!/usr/bin/env python3
r"""Build TensorRT engines from the exported ONNX files, inside Triton's own container.

  docker run --rm --gpus all -v "$PWD:/plates" -w /plates IMAGE \
      python3 docker/tensorrt/build_engines.py [--fp16] [--no-check] [yolo] [lprnet]

IMAGE is the NVIDIA tritonserver image that serves them later: an engine fits the TensorRT and
the kind of GPU that it was built with, and no others. Writes model.plan beside model.onnx;
`tritonserver --model-config-name=tensorrt` serves it. The rectifier stays on TorchScript.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from plate_models.spec import DETECTOR, MODEL_VERSION, RECOGNIZER, RECTIFIER, TENSORS  # noqa: E402
from plates.gpu import find_gpu_problem  # noqa: E402

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray

Shape = tuple[int, ...]

MODELS = ("yolo", "lprnet")
REPOSITORY = ROOT / "model_repository"
# Where NVIDIA's images have it, off the PATH.
_TRTEXEC = Path("/usr/src/tensorrt/bin/trtexec")
# A box that counts in the comparison has this score at least.
_SURE = 0.25
_PHOTO = ROOT / "plate_models" / "golden.jpg"
# Largest difference allowed: of logits as a share of their range, see `_box_difference` for boxes.
_ALLOWED = {"float32": 0.01, "float16": 0.05}


class Refusal(Exception):
    """Something is missing; the message says what to do."""


def main(argv: Sequence[str]) -> int:
    """Build what was asked for; 1 if something is missing or an engine disagrees."""
    options = _parse(argv)
    try:
        trtexec = _check(options.models, options.repository)
        for model in options.models:
            _build(trtexec, model, options.repository, options.fp16, options.check)
    except Refusal as error:
        sys.stderr.write(f"build_engines: {error}\n")
        return 1
    return 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="build_engines", description=__doc__.split("\n\n")[0])
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL")
    parser.add_argument("--fp16", action="store_true", help="half precision where it is faster")
    parser.add_argument("--no-check", dest="check", action="store_false", help="don't compare")
    parser.add_argument("--repository", type=Path, default=REPOSITORY, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def _check(models: Sequence[str], repository: Path) -> str:
    """Find trtexec, or say what is missing."""
    for model in models:
        if model == "stn":
            raise Refusal(
                "stn has no engine: TensorRT's ONNX parser lacks the operator AffineGrid. "
                "Leave it out, the profile tensorrt serves it as TorchScript."
            )
        if model not in MODELS:
            raise Refusal(f"unknown model {model!r}; expected {' or '.join(MODELS)}.")
        onnx = artifact(repository, model, "onnx")
        if not onnx.exists():
            raise Refusal(f"{onnx} is missing: run `make export` outside of the container first.")
    trtexec = shutil.which("trtexec") or (str(_TRTEXEC) if os.access(_TRTEXEC, os.X_OK) else None)
    if trtexec is None:
        raise Refusal(
            "TensorRT is not here (no trtexec): run this inside NVIDIA's "
            "tritonserver image that will serve the engines."
        )
    problem = find_gpu_problem("libcuda.so.1")
    if problem:
        raise Refusal(f"no GPU, {problem}: engines are built on a GPU, docker run --gpus all.")
    return trtexec


def artifact(repository: Path, model: str, kind: str) -> Path:
    """Where a model's file lies: kind is "onnx" or "plan"."""
    return repository / model / MODEL_VERSION / f"model.{kind}"


def shapes_of(model: str) -> tuple[Shape, Shape, Shape]:
    """Smallest, usual and largest input of a model: one optimisation profile."""
    if model == "yolo":
        heights, widths = zip(*DETECTOR.canvases_hw, strict=True)
        landscape = DETECTOR.canvases_hw[0]
        most = DETECTOR.max_batch_size
        smallest, largest = (min(heights), min(widths)), (max(heights), max(widths))
        return (1, 3, *smallest), (min(4, most), 3, *landscape), (most, 3, *largest)
    size, most = RECTIFIER.rectified_hw, RECOGNIZER.max_batch_size
    return (1, 3, *size), (min(24, most), 3, *size), (most, 3, *size)


def build_command(trtexec: str, model: str, onnx: Path, plan: Path, fp16: bool) -> list[str]:
    """Write the command line that builds an engine."""
    smallest, usual, largest = (
        f"{TENSORS.graph_input}:{'x'.join(map(str, shape))}" for shape in shapes_of(model)
    )
    return [
        trtexec,
        f"--onnx={onnx}",
        f"--saveEngine={plan}",
        f"--minShapes={smallest}",
        f"--optShapes={usual}",
        f"--maxShapes={largest}",
        "--skipInference",
        *(["--fp16"] if fp16 else []),
    ]


def _build(trtexec: str, model: str, repository: Path, fp16: bool, check: bool) -> None:
    """Build one engine under another name; it gets its own once it agrees."""
    onnx, plan = artifact(repository, model, "onnx"), artifact(repository, model, "plan")
    with tempfile.TemporaryDirectory(dir=plan.parent, prefix=".plan-") as folder:
        staged = Path(folder) / plan.name
        _run(build_command(trtexec, model, onnx, staged, fp16))
        if check:
            for shape in shapes_of(model):
                _compare(trtexec, model, onnx, staged, shape, fp16)
        staged.replace(plan)
    sys.stdout.write(f"{model}: {plan}{'' if check else ', not compared with the ONNX file'}\n")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise Refusal(f"trtexec failed with status {done.returncode}:\n{tail}")


def _compare(trtexec: str, model: str, onnx: Path, plan: Path, shape: Shape, fp16: bool) -> None:
    """Raise Refusal unless engine and ONNX file compute the same from the same input."""
    try:
        import cv2  # noqa: F401  for the example
        import numpy as np
        import onnxruntime
    except ImportError as error:
        raise Refusal(
            f"{error.name} is not here to compare with: pip install numpy onnxruntime "
            "opencv-python-headless, or --no-check."
        ) from error
    inputs = example(model, shape)
    given, answer = plan.with_name("input.bin"), plan.with_name("output.json")
    given.write_bytes(inputs.tobytes())
    name = TENSORS.graph_input
    _run(
        [
            trtexec,
            f"--loadEngine={plan}",
            f"--shapes={name}:{'x'.join(map(str, shape))}",
            f"--loadInputs={name}:{given}",
            f"--exportOutput={answer}",
            *("--iterations=1", "--warmUp=0", "--duration=0"),
        ]
    )
    (found,) = (
        np.array(entry["values"], np.float32)
        for entry in json.loads(answer.read_text(encoding="utf-8"))
        if entry["name"] == TENSORS.graph_output
    )
    session = onnxruntime.InferenceSession(onnx, providers=["CPUExecutionProvider"])
    (expected,) = session.run([TENSORS.graph_output], {name: inputs})
    check_agreement(model, expected, found.reshape(expected.shape), fp16)


def example(model: str, shape: Shape) -> "Array":
    """A reproducible input: plates for the detector, smooth blots for the recognizer."""
    import numpy as np

    batch, _, height, width = shape
    if model == "yolo":
        import cv2

        photo = cv2.imread(str(_PHOTO))
        canvas = cv2.resize(photo, (width, height))[..., ::-1]
        return np.ascontiguousarray(np.stack([canvas.transpose(2, 0, 1)] * batch))
    coarse = np.random.default_rng(1).random((*shape[:2], height // 8, width // 8 + 1))
    smooth = coarse.repeat(8, axis=2).repeat(8, axis=3)[:, :, :height, :width]
    return (smooth * 2 - 1).astype(np.float32)


def check_agreement(model: str, expected: "Array", found: "Array", fp16: bool) -> None:
    """Compare an engine's output with the reference's.

    Raises:
        Refusal: They differ by more than the precision explains, or there is a NaN.
    """
    import numpy as np

    if model == "yolo":
        difference = max(map(_box_difference, expected, found))
    else:
        difference = float(np.abs(expected - found).max()) / float(np.ptp(expected))
    precision = "float16" if fp16 else "float32"
    # Written so that NaN is a disagreement.
    if not difference <= _ALLOWED[precision]:
        raise Refusal(
            f"{model}: the engine differs from the ONNX file by {difference:.3g} of the range, "
            f"{_ALLOWED[precision]} is allowed for {precision}; nothing was replaced."
        )


def _box_difference(expected: "Array", found: "Array") -> float:
    """How far the surest boxes of one canvas, (300, 6) each, are from the nearest ones found.

    Equals may change places, so each is held against all: corners as a share of the largest box's
    smaller side, scores as they are.
    """
    import numpy as np

    sure = expected[expected[:, 4] >= _SURE]
    if not len(sure):
        raise Refusal("yolo: the reference finds nothing on the example; is the export sound?")
    sides = sure[:, 2:4] - sure[:, :2]
    scale = np.array([sides.min(axis=1).max()] * 4 + [1.0], expected.dtype)
    apart = np.abs(sure[:, None, :5] - found[None, :, :5]) / scale
    return float(apart.max(axis=2).min(axis=1).max())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
