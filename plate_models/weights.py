"""Released weights: safetensors files with the contract they were trained for.

The nets are built from that contract, not from ``spec.py``, so that weights for another alphabet,
other anchors or another width work as well as ours.
"""

import hashlib
import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize
from torch import Tensor, nn

from plate_models import release, spec
from plate_models.engines.cuda_graphs import CudaGraphs
from plate_models.engines.loaded import Nets
from plate_models.formats import ABROAD, grammar_of
from plate_models.nets.lprnet import LPRNet
from plate_models.nets.stn import STN
from plate_models.nets.yolov5 import YOLOv5, YOLOv5Graph
from plate_models.pipeline import PipelineConfig
from plate_models.recognition import appearance, calibration, grammar
from plate_models.recognition.countries import COUNTRIES, without_plates
from plate_models.release import (
    NAMES,
    WEIGHTS_DIR,
    WeightsError,
    check_manifest,
    replace_file,
    sha256_of,
)
from plate_models.spec import DEFAULTS, Specs, spec_from_json

# Fields that rectifier and recognizer must agree on: the latter learns from the former's output.
_SHARED = ("rectified_hw", "row_spans", "mean", "std")
# Fields that the tensors depend on; the rest of a spec may change without new tensors.
_CONTRACTS = {
    "detector": (
        *("classes", "anchors_wh", "strides", "width_multiple", "depth_multiple", "activation"),
    ),
    "rectifier": ("crop_hw", "crop_margin_hw", "two_line_margin_hw", *_SHARED),
    "recognizer": ("alphabet", "countries", "steps", "depths", *_SHARED),
}
# Batch norm's counter of batches, which nothing uses.
_COUNTER = "num_batches_tracked"
# Older weights lack these; the defaults fit such weights.
_ADDED_LATER = {"two_line_margin_hw", "row_spans", "countries", "depths", "activation"}

State = dict[str, Tensor]


@dataclass(frozen=True)
class WeightsFile:
    """One file's content, JSON values and tensors by name; not checked, except for readability."""

    name: str
    path: Path
    contract: dict[str, Any]
    state: State


def contract_of(name: str, specs: Specs = DEFAULTS) -> dict[str, Any]:
    """The fields that one net's weights depend on, ready for JSON; saved with the weights."""
    values = spec.spec_to_json(specs.rectifier) | spec.spec_to_json(getattr(specs, name))
    return {field: values[field] for field in _CONTRACTS[name]}


def save(
    module: nn.Module, name: str, training: dict[str, Any], folder: Path, specs: Specs = DEFAULTS
) -> Path:
    """Write a net, built for the specs, as contiguous float32 into ``<name>.safetensors``.

    `training` is a JSON-ready summary: data, samples seen, metrics; the date is added. Returns the
    file's path.
    """
    tensors = {
        key: value.detach().cpu().float().contiguous() if value.is_floating_point() else value
        for key, value in module.state_dict().items()
        if not key.endswith(_COUNTER)
    }
    dated = {"date": datetime.now(UTC).date().isoformat(), **training}
    metadata = {"contract": contract_of(name, specs), "training": dated}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.safetensors"
    data = serialize(tensors, {key: json.dumps(value) for key, value in metadata.items()})
    replace_file(path, data).chmod(0o644)  # for the user of a container, whatever the umask
    return path


def read_file(path: Path) -> WeightsFile:
    """Read a weights file; raise WeightsError if it is missing, damaged or without a contract."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, SafetensorError) as error:
        raise WeightsError(f"{path}: can't be read as safetensors: {error}") from error
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
    missing = sorted({*_CONTRACTS.get(path.stem, ())} - _ADDED_LATER - set(contract))
    if missing:
        raise WeightsError(f"{path}: its contract lacks {missing}")
    return contract


def _specs_of(files: dict[str, WeightsFile]) -> Specs:
    """The specs of three files, by the names of their nets, checked against each other."""
    recognizer = files["recognizer"]
    own = dict(recognizer.contract)
    shared = {key: own.pop(key) for key in _SHARED if key in own}
    places = {name: f"{file.path}: contract" for name, file in files.items()}
    specs = Specs(
        spec_from_json(spec.DetectorSpec, files["detector"].contract, places["detector"]),
        spec_from_json(spec.RectifierSpec, files["rectifier"].contract, places["rectifier"]),
        spec_from_json(spec.RecognizerSpec, own, places["recognizer"]),
    )
    wanted = spec_from_json(spec.RectifierSpec, shared, places["recognizer"])
    check_countries(specs.recognizer, places["recognizer"])
    for field in _SHARED:
        expected, found = getattr(specs.rectifier, field), getattr(wanted, field)
        if expected != found:
            raise WeightsError(
                f"{recognizer.path}: {field}: expected {expected}, as in "
                f"{files['rectifier'].path.name}, found {found}"
            )
    return specs


def build_from(file: WeightsFile, specs: Specs) -> nn.Module:
    """Make the net of a file, load its tensors and put it in evaluation mode.

    Raises WeightsError if a tensor or the contract's sizes don't fit.
    """
    name = file.name
    try:
        kind = {"detector": YOLOv5, "rectifier": STN, "recognizer": LPRNet}[name]
        net: nn.Module = kind(getattr(specs, name)).eval()
        _check_sizes(net, specs)
    except (RuntimeError, IndexError, WeightsError) as error:
        sizes = f"crop_hw {specs.rectifier.crop_hw}, rectified_hw {specs.rectifier.rectified_hw}"
        raise WeightsError(f"{file.path}: no {name} fits {sizes}: {error}") from error
    made_for = {
        "detector": f"width {specs.detector.width_multiple:g}, "
        f"depth {specs.detector.depth_multiple:g}, {len(specs.detector.classes)} classes",
        "rectifier": f"crops of {specs.rectifier.crop_hw}",
        "recognizer": f"an alphabet of {len(specs.recognizer.alphabet)} and a blank",
    }[name]
    _fill(net, file, made_for)
    if name == "detector":
        strides = torch.tensor(specs.detector.strides).view(-1, 1, 1)
        found = file.state["model.24.anchors"].float() * strides
        if not torch.allclose(found, torch.tensor(specs.detector.anchors_wh), rtol=1e-3):
            raise WeightsError(
                f"{file.path}: model.24.anchors: expected {specs.detector.anchors_wh} as in the "
                f"contract, found {found.tolist()}"
            )
    return net


def _fill(net: nn.Module, file: WeightsFile, made_for: str) -> None:
    """Check and load every tensor; `made_for` describes the net in messages."""
    expected, found = (
        {key: tuple(value.shape) for key, value in state.items() if not key.endswith(_COUNTER)}
        for state in (net.state_dict(), file.state)
    )
    for key in expected | found:
        shapes = [of.get(key, "no such tensor") for of in (expected, found)]
        if shapes[0] != shapes[1]:
            raise WeightsError(
                f"{file.path}: {key}: expected {shapes[0]} for {made_for}, found {shapes[1]}"
            )
        values = file.state[key]
        if not values.is_floating_point():
            raise WeightsError(f"{file.path}: {key}: expected floats, found {values.dtype}")
        if not values.isfinite().all():
            raise WeightsError(f"{file.path}: {key}: expected finite values, found NaN or Inf")
        if key.endswith("running_var") and (values < 0).any():
            raise WeightsError(f"{file.path}: {key}: expected variances, found {values.min():g}")
    net.load_state_dict(file.state, strict=False)  # Only counters can be missing now.


def check_countries(recognizer: spec.RecognizerSpec, where: str) -> None:
    """Raise WeightsError, beginning with `where`, unless the countries' plates can be read."""
    try:
        _, *others = [grammar_of(name) for name in recognizer.countries]
    except grammar.FormatError as error:
        raise WeightsError(f"{where}.countries: {error}") from error
    # The home country isn't checked: a net with fewer letters reads those that it has.
    for country in others:
        if missing := "".join(sorted(set(country.letters) - set(recognizer.alphabet))):
            raise WeightsError(f"{where}.countries: {country.name}: the alphabet lacks {missing}")


@torch.inference_mode()
def _check_sizes(net: nn.Module, specs: Specs) -> None:
    """Run the net on zeros, to check that the contract's sizes fit together."""
    if isinstance(net, STN):
        net.locate(torch.zeros(1, 3, *specs.rectifier.crop_hw))
    elif isinstance(net, LPRNet):
        logits = net(torch.zeros(1, 3, *specs.rectifier.rectified_hw))
        found, expected = logits.shape[2], specs.recognizer.steps
        if found != expected:
            raise WeightsError(f"steps: expected {found}, found {expected} in the contract")


def load_modules(folder: Path = WEIGHTS_DIR, device: str = "cpu") -> Nets:
    """Load the three nets as frozen torch modules, on a GPU as `CudaGraphs`.

    The device is torch's, such as "cuda:0".

    Raises:
        WeightsError: A file is missing or damaged, contradicts its own contract, another
            file's or the manifest, or its contract can't be served.
    """
    check_manifest(folder)
    files = {name: read_file(folder / f"{name}.safetensors") for name in NAMES}
    specs = _specs_of(files)
    nets = [build_from(files[name], specs) for name in NAMES]
    detector = cast(YOLOv5, nets[0]).fuse()
    # In this memory format convolutions take a third less time.
    detector.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    graphs = (YOLOv5Graph(detector, specs.detector), *nets[1:])
    loaded = [graph.to(torch.device(device)).eval().requires_grad_(False) for graph in graphs]
    detect, rectify, recognize = loaded if device == "cpu" else map(CudaGraphs, loaded)
    measured = calibration.UNCALIBRATED
    if (path := folder / release.CALIBRATION).exists():
        try:
            measured = calibration.Calibration.from_json(path.read_text(encoding="utf-8"))
            measured.check(measured_with(folder, specs.recognizer.countries))
        except (OSError, UnicodeDecodeError, WeightsError) as error:
            raise WeightsError(f"{path}: {error}") from error
    config = PipelineConfig.of(specs, measured)
    return Nets(detect, rectify, recognize, config, "torch", device)


def measured_with(folder: Path, countries: Sequence[str]) -> dict[str, str]:
    """Hex SHA-256 of everything that scores depend on, by name: nets, formats, constants."""
    nets = {name: folder / f"{name}.safetensors" for name in ("recognizer", "rectifier")}
    files = [COUNTRIES / f"{name}.toml" for name in countries]
    # Hash values instead of files: comments and the order of lines don't change scores.
    tables = [without_plates(tomllib.loads(file.read_text("utf-8-sig"))) for file in files]
    values: dict[str, Any] = {"country": [*tables, ABROAD] if len(tables) > 1 else tables[0]}
    for name, module in (("grammar", grammar), ("colour", appearance)):
        values[name] = sorted((k, repr(v)) for k, v in vars(module).items() if k.isupper())
    return {name: sha256_of(path) for name, path in nets.items()} | {
        name: hashlib.sha256(repr(value).encode()).hexdigest() for name, value in values.items()
    }
