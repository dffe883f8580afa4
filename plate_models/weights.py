"""Released weights: safetensors files whose metadata must fit ``spec.py``."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from plate_models import spec
from plate_models.nets.lprnet import LPRNet
from plate_models.nets.stn import STN
from plate_models.nets.yolov5 import YOLOv5, YOLOv5Graph

WEIGHTS_DIR = Path(__file__).resolve().parent.parent / "weights"
NAMES = ("detector", "rectifier", "recognizer")


class WeightsError(Exception):
    """Weights are missing, damaged, or were made for another ``spec.py``."""


@dataclass(frozen=True)
class Modules:
    """The three graphs as torch modules, in evaluation mode on one device."""

    detect: nn.Module
    rectify: nn.Module
    recognize: nn.Module


def contract_of(name: str) -> dict[str, Any]:
    """What ``spec.py`` says that the weights of one net depend on.

    Args:
        name: "detector", "rectifier" or "recognizer".

    Returns:
        JSON-ready values; saved with the weights and compared when they are loaded.
    """
    detector, rectifier = asdict(spec.DETECTOR), asdict(spec.RECTIFIER)
    geometry = {k: rectifier[k] for k in ("crop_hw", "rectified_hw", "mean", "std")}
    fields: dict[str, dict[str, Any]] = {
        "detector": {
            k: detector[k]
            for k in ("classes", "anchors_wh", "strides", "width_multiple", "depth_multiple")
        },
        "rectifier": {**geometry, "crop_margin_hw": rectifier["crop_margin_hw"]},
        "recognizer": {
            "alphabet": spec.RECOGNIZER.alphabet,
            "steps": spec.RECOGNIZER.steps,
            **{k: geometry[k] for k in ("rectified_hw", "mean", "std")},
        },
    }
    contract: dict[str, Any] = json.loads(json.dumps(fields[name]))
    return contract


def save(module: nn.Module, name: str, training: dict[str, Any], folder: Path) -> Path:
    """Write one net's weights with its contract and its training summary.

    Args:
        module: The net; its state dict is stored as contiguous float32.
        name: "detector", "rectifier" or "recognizer".
        training: JSON-ready summary: data, samples seen, date, metrics.
        folder: Where ``<name>.safetensors`` goes.

    Returns:
        The file written.
    """
    tensors = {
        key: value.detach().cpu().float().contiguous() if value.is_floating_point() else value
        for key, value in module.state_dict().items()
        if not key.endswith("num_batches_tracked")
    }
    metadata = {"contract": contract_of(name), "training": training}
    path = folder / f"{name}.safetensors"
    save_file(tensors, path, {key: json.dumps(value) for key, value in metadata.items()})
    path.chmod(0o644)  # Written as 0600: the user of a container could not read it.
    return path


def load(module: nn.Module, path: Path) -> nn.Module:
    """Fill a net from a weights file and put it in evaluation mode.

    Args:
        module: The net, built for ``spec.py``.
        path: ``<name>.safetensors``, as written by :func:`save`.

    Returns:
        The same module.

    Raises:
        WeightsError: The file is missing or damaged, its contract differs from
            ``spec.py``, or its tensors don't fit the net.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path}: can't be read: {error}") from error
    except Exception as error:
        raise WeightsError(f"{path}: not a safetensors file: {error}") from error
    expected, found = contract_of(path.stem), _contract_in(metadata, path)
    wrong = [key for key in expected if found.get(key) != expected[key]]
    if wrong:
        details = "; ".join(f"{k}: expected {expected[k]}, found {found.get(k)}" for k in wrong)
        raise WeightsError(f"{path}: made for another spec.py: {details}")
    try:
        missing, unknown = module.load_state_dict(state, strict=False)
    except RuntimeError as error:
        raise WeightsError(f"{path}: {error}") from error
    missing = [key for key in missing if not key.endswith("num_batches_tracked")]
    if missing or unknown:
        raise WeightsError(f"{path}: tensors missing: {missing}, unknown: {unknown}")
    return module.eval()


def _contract_in(metadata: dict[str, str], path: Path) -> dict[str, Any]:
    try:
        contract = json.loads(metadata.get("contract", "{}"))
    except ValueError as error:
        raise WeightsError(f"{path}: its metadata is damaged: {error}") from error
    return contract if isinstance(contract, dict) else {}


def load_modules(folder: Path = WEIGHTS_DIR, device: str = "cpu") -> Modules:
    """Load the three nets as graphs that ``pipeline.read_plates`` can call.

    Args:
        folder: Holds detector, rectifier and recognizer as safetensors.
        device: A torch device, such as "cpu" or "cuda:0".

    Returns:
        The nets, frozen, on the device.

    Raises:
        WeightsError: See :func:`load`, or the files differ from the folder's manifest.
    """
    check_manifest(folder)
    detector = YOLOv5(spec.DETECTOR)
    load(detector, folder / "detector.safetensors")
    graphs = (
        YOLOv5Graph(detector, spec.DETECTOR),
        load(STN(spec.RECTIFIER), folder / "rectifier.safetensors"),
        load(LPRNet(spec.RECOGNIZER), folder / "recognizer.safetensors"),
    )
    return Modules(
        *(graph.to(torch.device(device)).eval().requires_grad_(False) for graph in graphs)
    )


def write_manifest(folder: Path = WEIGHTS_DIR) -> Path:
    """List the SHA-256 of the three weight files, in the form ``sha256sum -c`` reads."""
    lines = [f"{_sha256(folder / f'{name}.safetensors')}  {name}.safetensors\n" for name in NAMES]
    path = folder / "SHA256SUMS"
    path.write_text("".join(lines), encoding="ascii")
    return path


def check_manifest(folder: Path = WEIGHTS_DIR) -> str:
    """Compare the weight files with the manifest beside them.

    Returns:
        "sha256:…" of the manifest itself: it names these three files and no others.

    Raises:
        WeightsError: A file is missing or its hash is not the manifest's.
    """
    manifest = folder / "SHA256SUMS"
    if not manifest.is_file():
        raise WeightsError(f"{manifest} is missing: write it with `plates weights`")
    text = manifest.read_text(encoding="utf-8", errors="replace")
    rows = [line.split() for line in text.splitlines() if line.strip()]
    damaged = [" ".join(row) for row in rows if len(row) != 2]
    if damaged:
        raise WeightsError(f"{manifest}: not a line of sha256sum: {damaged[0]!r}")
    expected = {name: digest for digest, name in rows}
    for name in NAMES:
        path = folder / f"{name}.safetensors"
        if not path.is_file():
            raise WeightsError(f"{path} is missing: train it with `plates train`")
        if expected.get(path.name) != _sha256(path):
            raise WeightsError(f"{path}: its SHA-256 is not the one in {manifest.name}")
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
