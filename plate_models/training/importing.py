"""Converts foreign weights to safetensors with a contract, without running code of checkpoints.

A YOLOv5 net's configuration follows from its tensors; a recognizer's alphabet must be given.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from plate_models import weights
from plate_models.release import WeightsError, sha256_of
from plate_models.spec import COLUMNS, DETECTOR, RECOGNIZER, DetectorSpec, Specs, named
from plate_models.training.checkpoints import State, read_state
from plate_models.weights import WeightsFile, check_countries, contract_of

_STEM, _ANCHORS, _HEAD = "0.conv.weight", "model.24.anchors", "model.24.m.0.weight"
_WIDEST, _DEEPEST = "model.9.cv2.conv.weight", "model.6.m."
# Tensors to ignore; older versions of YOLOv5 store values that are derived from the anchors.
_DERIVED = ("num_batches_tracked", ".anchor_grid")


def import_yolov5(path: Path, folder: Path) -> Path:
    """Convert a YOLOv5 checkpoint to ``detector.safetensors`` in a folder, created if missing.

    The checkpoint is a ``.pt`` file of YOLOv5 v6 or newer, n to x, with three output levels and one
    or two classes (one-line plates, two-line plates), not fused; or its state dict (``.pt`` or
    safetensors). Returns the file written.

    Raises WeightsError if the file is damaged, hostile or has another layout, or its anchors are
    invalid; the message names the first tensor that differs.
    """
    state = _named_as_ours(read_state(path), path)
    (written,) = _write({"detector": (path, state)}, Specs(detector=spec_of(state, path)), folder)
    return written


def import_recognizer(
    lprnet: Path, stn: Path, alphabet: str, folder: Path, countries: Sequence[str] = ("ru",)
) -> list[Path]:
    """Convert state dicts of our LPRNet and STN, ``.pt`` or safetensors, to weights in a folder.

    The STN is the one that rectified the plates of the LPRNet's training. The alphabet has its
    characters in class order, without the blank; the countries are names of files in
    ``countries/``, home first. Sizes, margins and normalisation are those of ``spec.py``, as they
    don't follow from tensors. Returns the recognizer's file and the rectifier's.

    Raises WeightsError, and writes nothing, if a file is damaged or hostile, the alphabet is
    invalid, a country's formats are missing, or a tensor's name or shape is not that of the net.
    The message names the cause.
    """
    state = read_state(lprnet)
    stages = {key.rpartition(".block")[0] for key in state if ".block" in key}
    first, second = (
        max(1, sum(stage.startswith(name) for stage in stages)) for name in ("first.", "second.")
    )
    with named("recognizer"):
        made = replace(RECOGNIZER, alphabet=alphabet, countries=tuple(countries))
        # The head has one row per class and step of a column.
        per_column, rest = divmod(state.get("head.bias", torch.empty(0)).numel(), made.classes)
        steps = COLUMNS if rest else COLUMNS * max(1, per_column)
        specs = Specs(recognizer=replace(made, depths=(first, second), steps=steps))
    check_countries(specs.recognizer, "recognizer")
    states = {"recognizer": (lprnet, state), "rectifier": (stn, read_state(stn))}
    return _write(states, specs, folder)


def _write(states: dict[str, tuple[Path, State]], specs: Specs, folder: Path) -> list[Path]:
    """Build all nets from their files' tensors before writing any of them; returns the files."""
    nets = {
        name: weights.build_from(WeightsFile(name, path, contract_of(name, specs), state), specs)
        for name, (path, state) in states.items()
    }
    written = []
    for name, (path, _) in states.items():
        # The origin of imported weights, in place of a training's summary.
        origin = {"imported_from": path.name, "sha256": sha256_of(path)}
        written.append(weights.save(nets[name], name, origin, folder, specs))
    return written


def _named_as_ours(state: State, path: Path) -> State:
    """Replace the prefix of every tensor's name by "model."; drop derived tensors."""
    prefixes = [key.removesuffix(_STEM) for key in state if f".{key}".endswith(f".{_STEM}")]
    if not prefixes:
        raise WeightsError(
            f"{path}: expected a stem model.{_STEM}, as in YOLOv5 v6, "
            f"found {next(iter(state), 'nothing')} first"
        )
    prefix = min(prefixes, key=len)
    return {
        f"model.{key.removeprefix(prefix)}" if key.startswith(prefix) else key: value
        for key, value in state.items()
        if not key.endswith(_DERIVED)
    }


def spec_of(state: State, path: Path) -> DetectorSpec:
    """Derive width, depth, anchors and classes from a YOLOv5 state dict."""
    widest, head = (_shaped(state, key, path, (None,) * 4) for key in (_WIDEST, _HEAD))
    # Three levels, with strides 8, 16 and 32.
    anchors = _shaped(state, _ANCHORS, path, (3, None, 2))
    count, rest = divmod(head.shape[0], max(anchors.shape[1], 1))
    if rest or count not in (6, 7):
        raise WeightsError(
            f"{path}: {_HEAD}: expected {6 * anchors.shape[1]} or {7 * anchors.shape[1]} rows, "
            f"for one class or two, found {head.shape[0]}"
        )
    blocks = {key.removeprefix(_DEEPEST).split(".")[0] for key in state if key.startswith(_DEEPEST)}
    sizes = anchors * torch.tensor(DETECTOR.strides).view(-1, 1, 1)
    with named(f"{path}: detector"):
        return DetectorSpec(
            classes=DETECTOR.classes[: count - 5],
            anchors_wh=tuple(tuple((w, h) for w, h in level) for level in sizes.tolist()),
            # At width and depth 1, these layers have 1024 channels and 9 blocks.
            width_multiple=widest.shape[0] / 1024,
            depth_multiple=len(blocks) / 9,
        )


def _shaped(state: State, key: str, path: Path, shape: tuple[int | None, ...]) -> torch.Tensor:
    """Get a tensor and check its shape; None stands for any size."""
    found = tuple(state[key].shape) if key in state else "no such tensor"
    axes = zip(found, shape, strict=False)
    if len(found) != len(shape) or any(wanted not in (None, size) for size, wanted in axes):
        wanted = f"({', '.join('any' if size is None else str(size) for size in shape)})"
        raise WeightsError(f"{path}: {key}: expected {wanted} as in YOLOv5 v6, found {found}")
    return state[key]
