"""One file of weights: its contract, its tensors, and whether they agree."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from plate_models.formats import grammar_of
from plate_models.recognition.grammar import FormatError
from plate_models.spec import DetectorSpec, RecognizerSpec, RectifierSpec
from plate_models.spec_json import DEFAULTS, SpecError, Specs, spec_from_json, spec_to_json

# The recognizer is taught with what the rectifier makes: both files say it, and must agree.
_SHARED = ("rectified_hw", "row_spans", "mean", "std")
# What the tensors are worthless without; the rest of a spec is free to change with them.
_CONTRACTS = {
    "detector": ("classes", "anchors_wh", "strides", "width_multiple", "depth_multiple"),
    "rectifier": ("crop_hw", "crop_margin_hw", "two_line_margin_hw", *_SHARED),
    "recognizer": ("alphabet", "country", "steps", *_SHARED),
}
# Weights released before these were asked for lack them; the defaults fit such weights.
ADDED_LATER = {"two_line_margin_hw", "row_spans", "country"}

State = dict[str, Tensor]


class WeightsError(Exception):
    """Weights are missing, damaged, or contradict their own contract or each other."""


@dataclass(frozen=True)
class WeightsFile:
    """One file's content, checked only for being readable.

    Attributes:
        name: "detector", "rectifier" or "recognizer".
        path: Where it lies.
        contract: JSON values by field.
        state: Tensors by name.
    """

    name: str
    path: Path
    contract: dict[str, Any]
    state: State


def contract_of(name: str, specs: Specs = DEFAULTS) -> dict[str, Any]:
    """What the weights of one net depend on.

    Args:
        name: "detector", "rectifier" or "recognizer".
        specs: What the nets are made for.

    Returns:
        JSON-ready values; saved with the weights and read when they are loaded.
    """
    values = spec_to_json(specs.rectifier) | spec_to_json(getattr(specs, name))
    return {field: values[field] for field in _CONTRACTS[name]}


def read_file(path: Path) -> WeightsFile:
    """Read a weights file.

    Raises:
        WeightsError: It is missing, damaged, no safetensors file or has no contract.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path}: can't be read: {error}") from error
    except SafetensorError as error:
        raise WeightsError(f"{path}: not a safetensors file: {error}") from error
    return WeightsFile(path.stem, path, _contract_in(metadata, path), state)


def _contract_in(metadata: dict[str, str], path: Path) -> dict[str, Any]:
    if "contract" not in metadata:
        raise WeightsError(
            f"{path}: expected the metadata 'contract', found {sorted(metadata)}: "
            "weights from elsewhere get one from `plates import`"
        )
    try:
        contract = json.loads(metadata["contract"])
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{path}: its metadata is damaged: {error}") from error
    if not isinstance(contract, dict):
        raise WeightsError(f"{path}: contract: expected an object, found {contract!r:.60}")
    missing = sorted({*_CONTRACTS.get(path.stem, ())} - ADDED_LATER - set(contract))
    if missing:
        raise WeightsError(f"{path}: its contract lacks {missing}")
    return contract


def specs_of(files: dict[str, WeightsFile]) -> Specs:
    """What three files were made for, checked against each other.

    Args:
        files: By the names of the nets.

    Raises:
        WeightsError: A contract can't be served, or recognizer and rectifier disagree.
    """
    recognizer = files["recognizer"]
    own = {k: v for k, v in recognizer.contract.items() if k not in _SHARED}
    shared = {k: v for k, v in recognizer.contract.items() if k in _SHARED}
    places = {name: f"{file.path}: contract" for name, file in files.items()}
    try:
        specs = Specs(
            spec_from_json(DetectorSpec, files["detector"].contract, places["detector"]),
            spec_from_json(RectifierSpec, files["rectifier"].contract, places["rectifier"]),
            spec_from_json(RecognizerSpec, own, places["recognizer"]),
        )
        wanted = spec_from_json(RectifierSpec, shared, places["recognizer"])
    except SpecError as error:
        raise WeightsError(str(error)) from error
    check_country(specs.recognizer, places["recognizer"])
    for field in _SHARED:
        expected, found = getattr(specs.rectifier, field), getattr(wanted, field)
        if expected != found:
            raise WeightsError(
                f"{recognizer.path}: {field}: expected {expected}, as in "
                f"{files['rectifier'].path.name}, found {found}"
            )
    return specs


def check_country(spec: RecognizerSpec, where: str) -> None:
    """Raise WeightsError unless the formats of a recognizer's country are at hand.

    Args:
        spec: Names the country.
        where: Begins the message.
    """
    try:
        grammar_of(spec.country)
    except FormatError as error:
        raise WeightsError(f"{where}.country: {error}") from error


def is_counter(key: str) -> bool:
    """Batch norm counts its batches, for nobody."""
    return key.endswith("num_batches_tracked")


def check_tensors(net: nn.Module, file: WeightsFile, made_for: str) -> None:
    """Compare every tensor with what a net can take.

    Args:
        net: Built for what the file was made for.
        file: The tensors.
        made_for: In words, for the message.

    Raises:
        WeightsError: A tensor is missing, unknown, misshaped, no float or not finite.
    """
    expected = {k: tuple(v.shape) for k, v in net.state_dict().items() if not is_counter(k)}
    found = {k: tuple(v.shape) for k, v in file.state.items() if not is_counter(k)}
    for key in [*expected, *(key for key in found if key not in expected)]:
        if expected.get(key) != found.get(key):
            raise WeightsError(
                f"{file.path}: {key}: expected {expected.get(key, 'no such tensor')} "
                f"for {made_for}, found {found.get(key, 'no such tensor')}"
            )
        values = file.state[key]
        if not values.is_floating_point():
            raise WeightsError(f"{file.path}: {key}: expected floats, found {values.dtype}")
        if not values.isfinite().all():
            raise WeightsError(f"{file.path}: {key}: expected finite values, found NaN or Inf")
        if key.endswith("running_var") and (values < 0).any():
            raise WeightsError(f"{file.path}: {key}: expected variances, found {values.min():g}")


def check_anchors(file: WeightsFile, spec: DetectorSpec) -> None:
    """Raise WeightsError unless tensor and contract name the same anchors."""
    strides = torch.tensor(spec.strides).view(-1, 1, 1)
    found = file.state["model.24.anchors"].float() * strides
    if not torch.allclose(found, torch.tensor(spec.anchors_wh), rtol=1e-3):
        raise WeightsError(
            f"{file.path}: model.24.anchors: expected {spec.anchors_wh} as in the contract, "
            f"found {found.tolist()}"
        )
