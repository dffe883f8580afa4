"""Released weights: safetensors files that carry the contract they were made for.

Whoever loads them builds the nets from that contract, not from ``spec.py``: weights for
another alphabet, other anchors or another width are as good as ours.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file
from torch import nn

from plate_models.nets.lprnet import LPRNet
from plate_models.nets.stn import STN
from plate_models.nets.yolov5 import YOLOv5, YOLOv5Graph
from plate_models.recognition import calibration
from plate_models.recognition.calibration import UNCALIBRATED, Calibration
from plate_models.spec_json import DEFAULTS, SpecError, Specs
from plate_models.weight_files import (
    ADDED_LATER,
    WeightsError,
    WeightsFile,
    check_anchors,
    check_tensors,
    contract_of,
    is_counter,
    read_file,
    specs_of,
)

__all__ = [
    "Modules",
    "WeightsError",
    "build",
    "build_from",
    "check_manifest",
    "contract_of",
    "load",
    "load_calibration",
    "load_modules",
    "read_file",
    "save",
    "write_manifest",
]

WEIGHTS_DIR = Path(__file__).resolve().parent.parent / "weights"
NAMES = ("detector", "rectifier", "recognizer")
MANIFEST = "SHA256SUMS"


@dataclass(frozen=True)
class Modules:
    """The three graphs as torch modules, in evaluation mode on one device.

    Attributes:
        specs: What they were made for; hand it to whatever calls them.
        calibration: Of the recognizer's scores; the identity if none was measured.
    """

    detect: nn.Module
    rectify: nn.Module
    recognize: nn.Module
    specs: Specs = DEFAULTS
    calibration: Calibration = UNCALIBRATED


def save(
    module: nn.Module,
    name: str,
    training: dict[str, Any],
    folder: Path,
    specs: Specs = DEFAULTS,
) -> Path:
    """Write one net's weights with its contract and its training summary.

    Args:
        module: The net; its state dict is stored as contiguous float32.
        name: "detector", "rectifier" or "recognizer".
        training: JSON-ready summary: data, samples seen, date, metrics.
        folder: Where ``<name>.safetensors`` goes.
        specs: What the net was built for.

    Returns:
        The file written.
    """
    tensors = {
        key: value.detach().cpu().float().contiguous() if value.is_floating_point() else value
        for key, value in module.state_dict().items()
        if not is_counter(key)
    }
    metadata = {"contract": contract_of(name, specs), "training": training}
    path = folder / f"{name}.safetensors"
    save_file(tensors, path, {key: json.dumps(value) for key, value in metadata.items()})
    path.chmod(0o644)  # Written as 0600: the user of a container could not read it.
    return path


def load(module: nn.Module, path: Path) -> nn.Module:
    """Fill a net that was built for ``spec.py`` and put it in evaluation mode.

    Args:
        module: The net.
        path: ``<name>.safetensors``, as written by :func:`save`.

    Returns:
        The same module.

    Raises:
        WeightsError: The file is missing or damaged, its contract differs from
            ``spec.py``, or its tensors don't fit the net.
    """
    file = read_file(path)
    expected = contract_of(path.stem)
    found = {field: expected[field] for field in ADDED_LATER & set(expected)} | file.contract
    wrong = [key for key in expected if found.get(key) != expected[key]]
    if wrong:
        details = "; ".join(f"{k}: expected {expected[k]}, found {found.get(k)}" for k in wrong)
        raise WeightsError(f"{path}: made for another spec.py: {details}")
    check_tensors(module, file, "spec.py")
    return _fill(module, file)


def started_from(folder: Path | None, name: str) -> str | None:
    """Name the weights that a training starts from, for its summary.

    Args:
        folder: Of these weights; None if it starts from random ones.
        name: "detector", "rectifier" or "recognizer".

    Returns:
        "sha256:…" of the file; None if there is none.
    """
    path = folder / f"{name}.safetensors" if folder else None
    return f"sha256:{sha256_of(path)}" if path and path.exists() else None


def build(name: str, specs: Specs) -> nn.Module:
    """Make an untrained net for the specs."""
    if name == "detector":
        return YOLOv5(specs.detector)
    return STN(specs.rectifier) if name == "rectifier" else LPRNet(specs.recognizer)


def build_from(file: WeightsFile, specs: Specs) -> nn.Module:
    """Make the net that a file's tensors belong to, and fill it.

    Args:
        file: Names the net.
        specs: What it was made for.

    Returns:
        The net in evaluation mode.

    Raises:
        WeightsError: A tensor is missing, unknown, misshaped or not finite, or the
            contract's sizes contradict each other.
    """
    name = file.name
    try:
        net = build(name, specs).eval()
        _check_sizes(net, specs)
    except (RuntimeError, IndexError, SpecError) as error:
        sizes = f"crop_hw {specs.rectifier.crop_hw}, rectified_hw {specs.rectifier.rectified_hw}"
        raise WeightsError(f"{file.path}: no {name} fits {sizes}: {error}") from error
    made_for = {
        "detector": f"width {specs.detector.width_multiple:g}, "
        f"depth {specs.detector.depth_multiple:g}, {len(specs.detector.classes)} classes",
        "rectifier": f"crops of {specs.rectifier.crop_hw}",
        "recognizer": f"an alphabet of {len(specs.recognizer.alphabet)} and a blank",
    }[name]
    check_tensors(net, file, made_for)
    if name == "detector":
        check_anchors(file, specs.detector)
    return _fill(net, file)


@torch.inference_mode()
def _check_sizes(net: nn.Module, specs: Specs) -> None:
    """Let the nets themselves say whether the contract's sizes fit together."""
    if isinstance(net, STN):
        net.locate(torch.zeros(1, 3, *specs.rectifier.crop_hw))
    elif isinstance(net, LPRNet):
        logits = net(torch.zeros(1, 3, *specs.rectifier.rectified_hw))
        found, expected = logits.shape[2], specs.recognizer.steps
        if found != expected:
            raise SpecError(f"steps: expected {found}, found {expected} in the contract")


def _fill(module: nn.Module, file: WeightsFile) -> nn.Module:
    module.load_state_dict(file.state, strict=False)  # Its counters alone may be missing.
    return module.eval()


def load_modules(
    folder: Path = WEIGHTS_DIR, device: str = "cpu", calibrated: bool = True
) -> Modules:
    """Load the three nets as graphs that ``pipeline.read_plates`` can call.

    Args:
        folder: Holds detector, rectifier and recognizer as safetensors, and a manifest.
        device: A torch device, such as "cpu" or "cuda:0".
        calibrated: Load the calibration, too; not where a new one is to be fitted, because
            the one at hand may be another recognizer's.

    Returns:
        The nets, frozen, on the device, and what they were made for.

    Raises:
        WeightsError: A file is missing or damaged, contradicts its own contract, another
            file's or the manifest, or was made for something that can't be served.
    """
    check_manifest(folder)
    files = {name: read_file(folder / f"{name}.safetensors") for name in NAMES}
    specs = specs_of(files)
    nets = [build_from(files[name], specs) for name in NAMES]
    detector = cast(YOLOv5, nets[0]).fuse()
    # Convolutions take a third less time so.
    detector.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    graphs = (YOLOv5Graph(detector, specs.detector), *nets[1:])
    detect, rectify, recognize = (
        graph.to(torch.device(device)).eval().requires_grad_(False) for graph in graphs
    )
    measured = load_calibration(folder) if calibrated else UNCALIBRATED
    return Modules(detect, rectify, recognize, specs, measured)


def load_calibration(folder: Path = WEIGHTS_DIR) -> Calibration:
    """Load the calibration beside the weights.

    Returns:
        It, or the identity where there is none: weights that were just trained.

    Raises:
        WeightsError: It is malformed, or was measured with another recognizer.
    """
    path = folder / calibration.NAME
    if not path.exists():
        return UNCALIBRATED
    try:
        found = calibration.load(path)
        found.check_recognizer(sha256_of(folder / "recognizer.safetensors"))
    except calibration.CalibrationError as error:
        raise WeightsError(str(error)) from error
    return found


def write_manifest(folder: Path = WEIGHTS_DIR) -> Path:
    """List the SHA-256 of weights and calibration, in the form ``sha256sum -c`` reads."""
    lines = [f"{sha256_of(path)}  {path.name}\n" for path in _files(folder)]
    path = folder / MANIFEST
    path.write_text("".join(lines), encoding="ascii")
    return path


def _files(folder: Path) -> list[Path]:
    """The three weight files, and the calibration if there is one."""
    measured = folder / calibration.NAME
    files = [folder / f"{name}.safetensors" for name in NAMES]
    return [*files, measured] if measured.exists() else files


def check_manifest(folder: Path = WEIGHTS_DIR) -> str:
    """Compare weights and calibration with the manifest beside them.

    Returns:
        "sha256:…" of the manifest itself: it names these files and no others.

    Raises:
        WeightsError: A file is missing or its hash is not the manifest's.
    """
    manifest = folder / MANIFEST
    if not manifest.is_file():
        raise WeightsError(f"{manifest} is missing: write it with `plates weights`")
    text = manifest.read_text(encoding="utf-8", errors="replace")
    rows = [line.split() for line in text.splitlines() if line.strip()]
    damaged = [" ".join(row) for row in rows if len(row) != 2]
    if damaged:
        raise WeightsError(f"{manifest}: not a line of sha256sum: {damaged[0]!r}")
    expected = {name: digest for digest, name in rows}
    for path in _files(folder):
        if not path.is_file():
            raise WeightsError(f"{path} is missing: train it with `plates train`")
        if expected.get(path.name) != sha256_of(path):
            raise WeightsError(f"{path}: its SHA-256 is not the one in {manifest.name}")
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
