"""Export weights for Triton: ``weights/`` to a release, ``model_repository/*/<version>/*``.

Each net becomes TorchScript (GPU profile) and ONNX (CPU profile) from one module. Nothing is
written unless both agree with the module on views of the golden photo, alone and in batches. A
release's manifest is deleted first and written last. It has the nets' readings of the golden
photo, which a server of the release must reproduce.
"""

import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plate_models import images, release, spec, weights
from plate_models.contract import GRAPHS
from plate_models.detection import letterbox
from plate_models.engines.loaded import Nets
from plate_models.rectification import crop_boxes
from plate_models.spec import DEFAULTS, Specs, spec_to_json

OPSET = 20  # the first with AffineGrid
# x0, y0, x1, y1 of the plate on our golden photo.
_GOLDEN_PLATE = (196.9, 224.0, 290.3, 245.2)
# Values in the hand-written config.pbtxt: weights that need other values can't be exported.
_CONFIGURED = {
    "detector": ("max_candidates", "max_batch_size"),
    "rectifier": ("crop_hw", "rectified_hw", "shown_hw", "max_batch_size"),
    "recognizer": ("candidates", "max_batch_size"),
}

Net = Callable[[Tensor], Any]
Outputs = tuple[Tensor, ...]


class ExportError(Exception):
    """An artifact disagrees with its module, or Triton can't serve the weights."""


def export(
    weights_folder: Path = release.WEIGHTS_DIR,
    repository: Path = release.REPOSITORY,
    version: str = spec.MODEL_VERSION,
    golden: Path | None = None,
) -> list[Path]:
    """Export every net as one release; returns the artifacts written.

    The version is the folder's name in each of the four models; missing configurations are added.
    `golden` is a photo with plates that these weights read: servers compare their readings of it
    with the export's. The default is our own photo, which other weights need not be able to read.

    Raises:
        WeightsError: The weights are missing, damaged or don't fit the nets.
        ExportError: The version is invalid; an artifact disagrees with its module; the weights
            need sizes that the repository's configurations lack, or read nothing on a photo
            that they should be able to read. Nothing was replaced.
    """
    # Triton accepts no other versions; it ignores "02".
    if not (re.fullmatch("[1-9][0-9]*", version) and int(version) < 2**31):
        raise ExportError(
            f"version: expected a whole number from 1 without zeros before it, got {version!r}"
        )
    photo = golden or release.DEFAULT_GOLDEN
    if not photo.is_file():
        raise ExportError(f"{photo}: expected a photo, there is no such file")
    sources = release.sources_of(weights_folder, photo)
    home = repository / release.PHOTO_MODEL / version
    nets = weights.load_modules(weights_folder)
    specs = nets.config.specs
    _check_configured(specs)
    try:
        plates = read_golden(photo, nets)
    except images.ImageError as error:
        raise ExportError(f"{photo}: expected a photo: {error}") from error
    if not plates and (golden or weights_folder.resolve() == release.WEIGHTS_DIR):
        raise ExportError(f"{photo}: expected a plate that the weights read, they read none")
    home.mkdir(parents=True, exist_ok=True)
    # In the same folder, so that files can be moved to their places.
    with TemporaryDirectory(prefix=".", dir=home) as folder:
        staged = Path(folder)
        for config in release.REPOSITORY.rglob("*.pbtxt"):
            place = repository / config.relative_to(release.REPOSITORY)
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(config, staged / config.name).replace(place)
        hashes = _export_graphs(nets, staged, version)
        manifest = {
            **sources,
            "specs": spec_to_json(specs),
            "calibration": json.loads(nets.config.calibration.to_json()),
            "golden": plates,
            "artifacts": hashes,
        }
        ours = release.REPOSITORY / release.PHOTO_MODEL / spec.MODEL_VERSION
        shutil.copyfile(ours / release.PIPELINE, staged / release.PIPELINE)
        shutil.copyfile(photo, staged / release.GOLDEN_PHOTO)
        (staged / release.MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
        # A release without its manifest is not served: this one is incomplete until the end.
        (home / release.MANIFEST).unlink(missing_ok=True)
        for name in hashes:
            (repository / name).parent.mkdir(parents=True, exist_ok=True)
            (staged / name).replace(repository / name)
        for name in (release.PIPELINE, release.GOLDEN_PHOTO, release.MANIFEST):
            (staged / name).replace(home / name)
    return [repository / name for name in hashes]


def read_golden(photo: Path, nets: Nets) -> list[dict[str, Any]]:
    """Read a photo; raises ImageError if the file is not a photo.

    Returns text and box (x0, y0, x1, y1 in pixels) of each readable plate, ready for JSON.
    """
    return [
        {"text": plate.reading.text, "box": [round(edge, 2) for edge in plate.box]}
        for plate in nets.read(images.decode(photo.read_bytes()))
        if plate.reading.readable
    ]


def _export_graphs(nets: Nets, folder: Path, version: str) -> dict[str, str]:
    """Export torch modules into a folder in both forms and check them; returns hashes by path."""
    inputs, hashes = inputs_for(nets.config.specs, nets.rectify), {}
    for name, net in zip(GRAPHS, (nets.detect, nets.rectify, nets.recognize), strict=True):
        script, onnx = (folder / name / version / f"model.{kind}" for kind in ("pt", "onnx"))
        script.parent.mkdir(parents=True)
        # Several rows: a batch axis of one could be traced as a constant.
        example = inputs[name][0]
        # Triton serves the files of the old exporters, though torch calls these deprecated.
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            # affine_grid checks its size in Python, and the graph has a constant size.
            warnings.filterwarnings("ignore", "Converting a tensor to a Python boolean")
            torch.jit.save(torch.jit.trace(net, example, check_trace=False), script)
            loaded: Net = torch.jit.load(script, map_location="cpu").eval()
            _write_onnx(name, net, example, onnx)
        artifacts = {"TorchScript": loaded, "ONNX": load_onnx(name, onnx)}
        check_agreement(name, net, artifacts, inputs[name])
        for path in (script, onnx):
            hashes[str(path.relative_to(folder))] = release.sha256_of(path)
    return hashes


def _check_configured(specs: Specs) -> None:
    for name, fields in _CONFIGURED.items():
        for field in fields:
            found, expected = (getattr(getattr(s, name), field) for s in (specs, DEFAULTS))
            if found != expected:
                raise ExportError(
                    f"{name}: {field}: expected {expected}, as every config.pbtxt has it, "
                    f"found {found} in the weights"
                )


def compare_values(expected: Outputs, found: Outputs) -> float:
    """Compare element by element; returns the largest difference as a share of the tolerance.

    The tolerance is 0.001, or 5 millionths of the largest value if that is more.
    """
    differences = [
        (one - other).abs().max() / one.abs().max().clamp(min=200).mul(5e-6)
        for one, other in zip(expected, found, strict=True)
    ]
    return float(torch.stack(differences).max())  # torch's max, unlike Python's, returns NaN


def compare_candidates(expected: Outputs, found: Outputs) -> float:
    """Like `compare_values`, for candidates (N, 300, 6) in any order: equal scores may swap."""
    # Tolerances: pixels of x0, y0, x1, y1; score; class.
    allowed = torch.tensor([0.05, 0.05, 0.05, 0.05, 1e-3, 0.5])
    differences = [(expected[0][..., 4] - found[0][..., 4]).abs().max() / allowed[4]]
    for rows, others in zip(expected[0], found[0], strict=True):
        # Leave out the lowest scores: which of two equal ones is the last candidate is chance.
        kept = rows[rows[:, 4] > rows[-1, 4] + allowed[4]]
        distances = ((kept[:, None] - others[None]).abs() / allowed).amax(dim=2)
        differences += list(distances.amin(dim=1))
    return float(torch.stack(differences).max())


def _write_onnx(name: str, net: Any, example: Tensor, path: Path) -> None:
    given, outputs, batch = spec.TENSORS.graph_input, GRAPHS[name], {0: "batch"}
    sides = {2: "height", 3: "width"} if name == "yolo" else {}
    torch.onnx.export(
        net,
        (example,),
        path,
        dynamo=False,
        opset_version=OPSET,
        input_names=[given],
        output_names=list(outputs),
        dynamic_axes={given: batch | sides, **dict.fromkeys(outputs, batch)},
    )


def load_onnx(name: str, path: Path) -> Net:
    """Load an exported graph on the CPU, with another engine than the one that serves it."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # else it reports this machine to its maker
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    wanted, given = list(GRAPHS[name]), spec.TENSORS.graph_input
    return lambda inputs: tuple(map(torch.from_numpy, session.run(wanted, {given: inputs.numpy()})))


def inputs_for(specs: Specs, rectify: Net) -> dict[str, list[Tensor]]:
    """Make the inputs on which graphs are checked: views of the golden photo and its plate.

    Random pixels would be a weak test: nets hardly respond to them, and an engine's faults show
    only where nets respond. The rectifier's module makes the recognizer's inputs; canvases have
    every size. The first batch is also the example with which a graph is traced.
    """
    photo = images.decode(release.DEFAULT_GOLDEN.read_bytes())
    scenes = (photo, photo[:, ::-1], photo // 2)  # mirrored, and darker
    canvases = [
        torch.from_numpy(np.stack([letterbox(scene, canvas_hw)[0] for scene in scenes]))
        for canvas_hw in specs.detector.canvases_hw
    ]
    where = np.array([_GOLDEN_PLATE]), np.array([1])  # its box, and lines of text
    views = [crop_boxes(scene, *where, specs.rectifier) for scene in scenes]
    rectifier = specs.rectifier
    crops = torch.from_numpy((np.concatenate(views) - rectifier.mean) / rectifier.std)
    with torch.inference_mode():
        plates = rectify(crops)[0]
    return {
        "yolo": [*canvases, canvases[0][:1]],
        "stn": [crops, crops[:1]],
        "lprnet": [plates, plates[:1]],
    }


def check_agreement(
    name: str, net: Net, artifacts: Mapping[str, Net], batches: Sequence[Tensor]
) -> None:
    """Raise ExportError if an artifact disagrees with its module on one of the batches."""
    compare = compare_candidates if name == "yolo" else compare_values
    for inputs in batches:
        expected = _outputs(net, inputs)
        for kind, artifact in artifacts.items():
            difference = compare(expected, _outputs(artifact, inputs))
            # Not `difference >= 1`: NaN must be a disagreement.
            if not difference < 1:
                raise ExportError(
                    f"{name}: {kind} disagrees with its module on "
                    f"{tuple(inputs.shape)}: {difference:.3g} times the difference allowed"
                )


def _outputs(net: Net, inputs: Tensor) -> Outputs:
    with torch.inference_mode():
        outputs = net(inputs)
    return outputs if isinstance(outputs, tuple) else (outputs,)
