"""Inputs and outputs of the Triton model ``plate_recognition``, as arrays; without Triton.

The tensors' names, types and shapes are a published contract: tensors may be added, but those that
exist must not change.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from plate_models import images, spec
from plate_models.formats import UnknownCountry
from plate_models.pipeline import PipelineConfig, Plate
from plate_models.pixels import to_device
from plate_models.recognition import ctc
from plate_models.recognition.calibration import Calibration
from plate_models.release import MANIFEST
from plate_models.spec import LIMITS, MODEL_VERSION, RECOGNIZER, RECTIFIER, TENSORS, Limits, Specs

# The nets' Triton models and their outputs, in the order of the parameters of `read_plates`.
GRAPHS: Mapping[str, tuple[str, ...]] = {
    "yolo": (TENSORS.graph_output,),
    "stn": (TENSORS.graph_output, TENSORS.theta),
    "lprnet": (TENSORS.graph_output,),
}
COUNTRIES = "countries"  # a request's parameter

Array = NDArray[Any]


class InvalidInput(images.ImageError, slug="invalid-input"):
    """A request's tensors or parameters violate the contract."""


class GraphError(RuntimeError):
    """A net gave no answer.

    The error is transient if the deadline has passed, the net's queue is full, or its process is
    restarting.
    """

    def __init__(self, message: str, transient: bool = True) -> None:
        super().__init__(message)
        self.transient = transient


class RequestCancelled(RuntimeError):
    """The client has cancelled its request."""


@dataclass(frozen=True)
class Origin:
    """The source of an answer: weights ("sha256:…" of their manifest), device, model version.

    The alphabet names the classes of ``log_probs`` except the last, the blank. `decoding` has the
    recognizer's spec and calibration, with which a client that fuses frames chooses their text.
    """

    weights: str
    device: str
    version: str = MODEL_VERSION
    alphabet: str = RECOGNIZER.alphabet
    decoding: Mapping[str, Any] = field(default_factory=dict)


def read_origin(args: Mapping[str, str]) -> Origin:
    """Read the origin from the export's manifest; the arguments are Triton's of ``initialize``."""
    exported = _exported(version_folder(args))
    about = exported["weights"], device_of(args), args["model_version"]
    decoding = {"spec": exported["specs"]["recognizer"], "calibration": exported["calibration"]}
    return Origin(*about, exported["specs"]["recognizer"]["alphabet"], decoding)


def config_from(folder: Path) -> PipelineConfig:
    """Read the config from the export's manifest in the version folder of ``plate_recognition``.

    Raises WeightsError or FormatError if it can't be served.
    """
    exported = _exported(folder)
    specs = spec.spec_from_json(Specs, exported["specs"], "specs")
    return PipelineConfig.of(specs, Calibration.from_json(json.dumps(exported["calibration"])))


def config_for(config: PipelineConfig, parameters: str, wanted: Collection[str]) -> PipelineConfig:
    """Adapt the config to a request's parameters and the outputs that it wants.

    The parameters are JSON, as Triton gives them. ``countries`` has names for
    `PipelineConfig.with_countries`, such as "sk,cz"; raises InvalidInput if one can't be read.
    """
    # A client that fuses frames wants log_probs, and each plate as one crop shows it. A request
    # that names no outputs gets all of them, and is for a photo.
    if TENSORS.log_probs in wanted and not OUTPUTS.keys() <= set(wanted):
        config = replace(config, still=False)
    asked = json.loads(parameters or "{}").get(COUNTRIES)
    if asked is None:
        return config
    try:
        return config.with_countries([name.strip() for name in str(asked).lower().split(",")])
    except UnknownCountry as error:
        raise InvalidInput(f"{COUNTRIES}: {error}.") from error


def version_folder(args: Mapping[str, str]) -> Path:
    """The folder of a model's version, from Triton's arguments for ``initialize``."""
    return Path(args["model_repository"]) / args["model_version"]


def _exported(folder: Path) -> dict[str, Any]:
    file = folder / MANIFEST
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except ValueError as error:
        raise RuntimeError(f"{file} is damaged ({error}): run `make export`") from error


def device_of(args: Mapping[str, str]) -> str:
    """Choose the torch device of a model instance: "cuda:<id>" for a GPU instance, else "cpu".

    Raises RuntimeError if torch does not see the GPU.
    """
    if args["model_instance_kind"] != "GPU":
        return "cpu"
    import torch  # not imported to serve on the CPU

    index = int(args["model_instance_device_id"])
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if index >= count:
        raise RuntimeError(
            f"the configuration says KIND_GPU and torch {torch.__version__} sees {count} GPUs, "
            f"not number {index}: install a torch with CUDA, or serve the profile cpu"
        )
    return f"cuda:{index}"


def problem_of(error: Exception) -> tuple[str, str]:
    """Describe an error for the client: a message and the name of Triton's error code.

    The message for a refused photo begins with the error's slug, which the gateway reads; the one
    for an unexpected error has only the error's type.
    """
    if isinstance(error, images.ImageError):
        return f"{error.slug}: {error}", "INVALID_ARG"
    if isinstance(error, RequestCancelled):
        return str(error), "CANCELLED"
    if isinstance(error, GraphError):
        # Triton itself reports full queues and time-outs in queues as UNAVAILABLE.
        return str(error), "UNAVAILABLE" if error.transient else "INTERNAL"
    return f"unexpected {type(error).__name__}, see the server's log", "INTERNAL"


def photo_of(file: Array | None, pixels: Any, limits: Limits = LIMITS, device: str = "cpu") -> Any:
    """Make the photo from one of the inputs: a file's bytes, or pixels as ``cv2.imread`` has them.

    The file is (N,) uint8; pixels are (H, W, 3) uint8 BGR, an array or a tensor. Returns
    (H, W, 3) uint8 RGB: an array, or a tensor on a device other than "cpu". Photos from files are
    turned upright; pixels are not turned.

    Raises:
        InvalidInput: Both inputs or neither are given, or one has the wrong rank, type or size.
        ImageError: The file can't be read.
    """
    if (file is None) == (pixels is None):
        given = "neither" if file is None else "both"
        raise InvalidInput(
            f"Exactly one of the inputs {TENSORS.image} and {TENSORS.pixels} is expected, "
            f"{given} came."
        )
    if file is not None:
        if file.ndim != 1 or file.dtype != np.uint8:
            raise InvalidInput(_expected(TENSORS.image, "UINT8 [-1]", file))
        photo = images.decode(file.tobytes(), limits)
    else:
        kind = str(pixels.dtype).removeprefix("torch.")
        if pixels.ndim != 3 or pixels.shape[2] != 3 or kind != "uint8":
            raise InvalidInput(_expected(TENSORS.pixels, "UINT8 [-1,-1,3]", pixels))
        height, width = pixels.shape[:2]
        if not 0 < height * width <= limits.max_pixels:
            raise InvalidInput(
                f"{TENSORS.pixels} has {width}x{height} pixels; from 1 to "
                f"{limits.max_pixels / 1e6:g} million are read."
            )
        if not isinstance(pixels, np.ndarray):
            return pixels.to(device).flip(2)
        photo = np.asarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB), np.uint8)
    return photo if device == "cpu" else to_device(photo, device)


def _expected(name: str, what: str, array: Any) -> str:
    return f"{name}: expected {what}, got {array.dtype} {list(array.shape)}."


def outputs_of(
    plates: list[Plate],
    photo: Any,
    origin: Origin,
    wanted: Collection[str],
    timing_ms: Mapping[str, float],
) -> dict[str, Array]:
    """Convert N plates to the requested output arrays, N rows each.

    Strings are object arrays. ``candidates`` are padded with "", scores with NaN, ``log_probs`` as
    by `ctc.stack`. ``model_info`` is one row of JSON; it has the milliseconds per stage, and the
    parameters to decode ``log_probs`` if these are wanted.
    """
    outputs = arrays_of(plates, wanted)
    if TENSORS.model_info in wanted:
        info = {
            **vars(origin),
            "image": {"width": photo.shape[1], "height": photo.shape[0]},
            "timing_ms": dict(timing_ms),
        }
        if TENSORS.log_probs not in wanted:
            del info["decoding"]
        outputs[TENSORS.model_info] = np.array([json.dumps(info)], np.object_)
    return outputs


def arrays_of(plates: Sequence[Plate], wanted: Collection[str]) -> dict[str, Array]:
    """Like `outputs_of`, without ``model_info``."""
    outputs = {
        name: _array(list(map(value_of, plates)), dtype, *shape)
        for name, (value_of, dtype, shape) in OUTPUTS.items()
        if name in wanted
    }
    if TENSORS.log_probs in wanted:
        outputs[TENSORS.log_probs] = ctc.stack([plate.log_probs for plate in plates])
    return outputs


def _array(rows: list[Any], dtype: Any, *shape: int) -> Array:
    """(N, *shape); rows are padded with "" or NaN, to the longest if that exceeds the shape."""
    if len(shape) == 1:
        width = max([shape[0], *map(len, rows)])
        fill = "" if dtype is np.object_ else np.nan
        shape, rows = (width,), [[*row, *[fill] * (width - len(row))] for row in rows]
    # If there are no rows, the reshape sets the other axes.
    return np.asarray(rows, dtype).reshape(len(rows), *shape)


# For each output: the value of one plate, the type, and the shape without the axis of plates.
OUTPUTS: Mapping[str, tuple[Callable[[Plate], Any], Any, tuple[int, ...]]] = {
    TENSORS.coordinates: (lambda plate: plate.box, np.float32, (4,)),
    TENSORS.texts: (lambda plate: [plate.reading.text], np.object_, (1,)),
    "detection_scores": (lambda plate: plate.detection_score, np.float32, ()),
    "text_scores": (lambda plate: plate.reading.score, np.float32, ()),
    "quads": (lambda plate: plate.quad, np.float32, (4, 2)),
    "character_scores": (
        lambda plate: [score for _, score in plate.reading.characters],
        np.float32,
        (RECOGNIZER.max_text_length,),
    ),
    "formats": (lambda plate: plate.reading.format, np.object_, ()),
    "candidates": (
        lambda plate: [text for text, _ in plate.reading.candidates][: RECOGNIZER.candidates],
        np.object_,
        (RECOGNIZER.candidates,),
    ),
    "candidate_scores": (
        lambda plate: [score for _, score in plate.reading.candidates][: RECOGNIZER.candidates],
        np.float32,
        (RECOGNIZER.candidates,),
    ),
    "lines": (lambda plate: plate.lines, np.int32, ()),
    "crops": (lambda plate: plate.crop, np.uint8, (*RECTIFIER.shown_hw, 3)),
}
