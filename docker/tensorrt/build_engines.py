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
from collections.abc import Mapping, Sequence
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
# Where NVIDIA's images have it, off the PATH.
_TRTEXEC = Path("/usr/src/tensorrt/bin/trtexec")
# A box that counts in the comparison has this score at least.
_SURE = 0.25
# Largest difference allowed: of logits as a share of their range, see `_box_difference` for boxes.
_ALLOWED = {"float32": 0.01, "float16": 0.05}


class Refusal(Exception):
    """Something is missing; the message says what to do."""


def main(argv: Sequence[str]) -> int:
    """Build what was asked for; 1 if something is missing or an engine disagrees."""
    parser = argparse.ArgumentParser(prog="build_engines", description=__doc__.split("\n\n")[0])
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    parser.add_argument("--fp16", action="store_true", help="half precision where it is faster")
    parser.add_argument("--no-check", dest="check", action="store_false", help="don't compare")
    repository = ROOT / "model_repository"
    parser.add_argument("--repository", type=Path, default=repository, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    folders = {model: options.repository / model / MODEL_VERSION for model in options.models}
    try:
        trtexec = _find_trtexec(folders)
        for model, folder in folders.items():
            _build(trtexec, model, folder, options.fp16, options.check)
    except Refusal as error:
        sys.stderr.write(f"build_engines: {error}\n")
        return 1
    return 0


def _find_trtexec(folders: Mapping[str, Path]) -> str:
    """Find trtexec, or say what is missing."""
    for model, folder in folders.items():
        if model == "stn":
            raise Refusal(
                "stn has no engine: TensorRT's ONNX parser lacks the operator AffineGrid. "
                "Leave it out, the profile tensorrt serves it as TorchScript."
            )
        if model not in MODELS:
            raise Refusal(f"unknown model {model!r}; expected {' or '.join(MODELS)}.")
        onnx = folder / "model.onnx"
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


def shapes_of(model: str) -> tuple[Shape, Shape, Shape]:
    """Smallest, usual and largest input of a model: one optimisation profile."""
    if model == "yolo":
        heights, widths = zip(*DETECTOR.canvases_hw, strict=True)
        usual, most = DETECTOR.canvases_hw[0], DETECTOR.max_batch_size
        smallest, largest = (min(heights), min(widths)), (max(heights), max(widths))
        return (1, 3, *smallest), (min(4, most), 3, *usual), (most, 3, *largest)
    size, most = RECTIFIER.rectified_hw, RECOGNIZER.max_batch_size
    return (1, 3, *size), (min(24, most), 3, *size), (most, 3, *size)


def build_command(trtexec: str, model: str, onnx: Path, plan: Path, fp16: bool) -> list[str]:
    """Write the command line that builds an engine."""
    shapes = zip(("min", "opt", "max"), shapes_of(model), strict=True)
    return [
        trtexec,
        f"--onnx={onnx}",
        f"--saveEngine={plan}",
        *(f"--{name}Shapes={_shape_option(shape)}" for name, shape in shapes),
        "--skipInference",
        *(["--fp16"] if fp16 else []),
    ]


def _shape_option(shape: Shape) -> str:
    return f"{TENSORS.graph_input}:{'x'.join(map(str, shape))}"


def _build(trtexec: str, model: str, folder: Path, fp16: bool, check: bool) -> None:
    """Build one engine under another name; it gets its own once it agrees."""
    onnx, plan = folder / "model.onnx", folder / "model.plan"
    with tempfile.TemporaryDirectory(dir=folder, prefix=".plan-") as temporary:
        staged = Path(temporary) / plan.name
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
    options = (f"--loadEngine={plan}", f"--shapes={_shape_option(shape)}")
    files = (f"--loadInputs={TENSORS.graph_input}:{given}", f"--exportOutput={answer}")
    _run([trtexec, *options, *files, "--iterations=1", "--warmUp=0", "--duration=0"])
    outputs = {entry["name"]: entry["values"] for entry in json.loads(answer.read_bytes())}
    found = np.array(outputs[TENSORS.graph_output], np.float32)
    session = onnxruntime.InferenceSession(onnx, providers=["CPUExecutionProvider"])
    (expected,) = session.run([TENSORS.graph_output], {TENSORS.graph_input: inputs})
    check_agreement(model, expected, found.reshape(expected.shape), fp16)


def example(model: str, shape: Shape) -> "Array":
    """A reproducible input: a photo with a plate, squeezed to the input's size."""
    import cv2
    import numpy as np

    batch, _, height, width = shape
    photo = cv2.imread(str(ROOT / "plate_models" / "golden.jpg"))
    pixels = cv2.resize(photo, (width, height))[..., ::-1].transpose(2, 0, 1)
    one = pixels if model == "yolo" else (pixels / 127.5 - 1).astype(np.float32)
    return np.stack([one] * batch)


def check_agreement(model: str, expected: "Array", found: "Array", fp16: bool) -> None:
    """Raise Refusal if outputs differ by more than the precision explains, or there is a NaN."""
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
