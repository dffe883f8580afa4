"""What goes in and out of ``plate_recognition``, as arrays: no Triton in here.

The tensors' names, types and shapes are a published contract: what is here may grow,
and nothing that is here may change.
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
from plate_models.formats import grammar_of
from plate_models.pipeline import PipelineConfig, Plate
from plate_models.pixels import to_device
from plate_models.recognition import ctc
from plate_models.recognition.calibration import Calibration
from plate_models.release import MANIFEST
from plate_models.spec import LIMITS, MODEL_VERSION, RECOGNIZER, RECTIFIER, TENSORS, Limits, Specs

# Each Triton model of a net with its outputs, in the order in which read_plates takes the nets.
GRAPHS: Mapping[str, tuple[str, ...]] = {
    "yolo": (TENSORS.graph_output,),
    "stn": (TENSORS.graph_output, TENSORS.theta),
    "lprnet": (TENSORS.graph_output,),
}
MODEL_INFO, LOG_PROBS = "model_info", "log_probs"
COUNTRIES = "countries"  # a request's parameter

Array = NDArray[Any]


class InvalidInput(images.ImageError, slug="invalid-input"):
    """The tensors of a request are not those of the contract."""


class GraphError(RuntimeError):
    """A net gave no answer.

    Transient: the time is over, its queue is full, or its process is started again.
    """

    def __init__(self, message: str, transient: bool = True) -> None:
        super().__init__(message)
        self.transient = transient


class CallerGone(RuntimeError):
    """The client has cancelled its request."""


@dataclass(frozen=True)
class Origin:
    """Where an answer comes from: the weights ("sha256:…" of their manifest), device, version.

    The alphabet names the classes of ``log_probs``, without the blank, which is the last. The
    recognizer's spec and calibration go with them: who joins frames chooses the text anew.
    """

    weights: str
    device: str
    version: str = MODEL_VERSION
    alphabet: str = RECOGNIZER.alphabet
    decoding: Mapping[str, Any] = field(default_factory=dict)


def read_origin(args: Mapping[str, str]) -> Origin:
    """Read what the export wrote for a model, from Triton's arguments for ``initialize``."""
    exported = _exported(version_folder(args))
    about = exported["weights"], device_of(args), args["model_version"]
    decoding = {"spec": exported["specs"]["recognizer"], "calibration": exported["calibration"]}
    return Origin(*about, exported["specs"]["recognizer"]["alphabet"], decoding)


def config_from(folder: Path) -> PipelineConfig:
    """Read what the export wrote in the version folder of ``plate_recognition``.

    What can't be served is a SpecError, a CalibrationError or a FormatError.
    """
    exported = _exported(folder)
    specs = spec.spec_from_json(Specs, exported["specs"], "specs")
    return PipelineConfig.of(specs, Calibration.from_json(json.dumps(exported["calibration"])))


def config_for(config: PipelineConfig, parameters: str, wanted: Collection[str]) -> PipelineConfig:
    """Read plates as a request asks for, by its parameters and the outputs that it wants.

    The parameter ``countries`` lists those of the weights' countries whose formats alone are known,
    the likeliest first: "sk,cz". With a "*" among them, others are passed over, and the weights'
    further countries follow. The parameters are JSON, as Triton gives them. InvalidInput: a country
    that these weights don't read.
    """
    # Who joins frames needs what one crop shows; who names no outputs gets all of them, of a photo.
    if LOG_PROBS in wanted and not OUTPUTS.keys() <= set(wanted):
        config = replace(config, still=False)
    asked = json.loads(parameters or "{}").get(COUNTRIES)
    if asked is None:
        return config
    own = config.specs.recognizer.countries
    names = [name.strip() for name in str(asked).lower().split(",")]
    if "*" in names:
        names = [*(name for name in names if name in own), *own]
    if wrong := [name for name in names if name not in own]:
        raise InvalidInput(
            f"{COUNTRIES}: expected some of {','.join(own)}, which these weights read, "
            f"got {','.join(wrong)!r:.80}."
        )
    return replace(config, grammar=grammar_of(*dict.fromkeys(names)))


def version_folder(args: Mapping[str, str]) -> Path:
    """The folder of a model's version, from Triton's arguments for ``initialize``."""
    return Path(args["model_repository"]) / args["model_version"]


def _exported(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / MANIFEST).read_text(encoding="utf-8")))


def device_of(args: Mapping[str, str]) -> str:
    """Choose the torch device of a model instance: "cuda:<id>" for a GPU instance, else "cpu".

    A GPU that torch does not see is a RuntimeError.
    """
    if args["model_instance_kind"] != "GPU":
        return "cpu"
    import torch  # what serves on the CPU alone does without

    index = int(args["model_instance_device_id"])
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if index >= count:
        raise RuntimeError(
            f"the configuration says KIND_GPU and torch {torch.__version__} sees {count} GPUs, "
            f"not number {index}: install a torch with CUDA, or serve the profile cpu"
        )
    return f"cuda:{index}"


def problem_of(error: Exception) -> tuple[str, str]:
    """Describe for the client what went wrong: a message and the name of Triton's error code.

    A refused photo's message begins with its slug, which the gateway reads; an unexpected error
    shows only its kind.
    """
    if isinstance(error, images.ImageError):
        return f"{error.slug}: {error}", "INVALID_ARG"
    if isinstance(error, CallerGone):
        return str(error), "CANCELLED"
    if isinstance(error, GraphError):
        # As Triton says itself of its queues.
        return str(error), "UNAVAILABLE" if error.transient else "INTERNAL"
    return f"unexpected {type(error).__name__}, see the server's log", "INTERNAL"


def photo_of(file: Array | None, pixels: Any, limits: Limits = LIMITS, device: str = "cpu") -> Any:
    """Make the photo from the input that was given: a file's bytes, or pixels as of ``cv2.imread``.

    The file is (N,) uint8, pixels are (H, W, 3) uint8 BGR, an array or a tensor. Returns
    (H, W, 3) uint8 RGB: an array, or a tensor on another device than the "cpu". It is upright for
    a file, as given for pixels.

    Raises:
        InvalidInput: Both or neither are given, or one has the wrong rank, type or size.
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
    timing_ms: Mapping[str, float] | None = None,
) -> dict[str, Array]:
    """Turn plates into those of the model's output arrays that were requested, N rows each.

    Strings are object arrays, ``candidates`` padded with "", all scores with NaN, ``log_probs``
    as `ctc.stack` has it.
    ``model_info`` has one row of JSON, with the milliseconds by stage where they are given, and
    with what decodes ``log_probs`` where these are wanted.
    """
    outputs = arrays_of(plates, wanted)
    if MODEL_INFO in wanted:
        info = {
            **vars(origin),
            "image": {"width": photo.shape[1], "height": photo.shape[0]},
            **({} if timing_ms is None else {"timing_ms": dict(timing_ms)}),
        }
        if LOG_PROBS not in wanted:
            del info["decoding"]
        outputs[MODEL_INFO] = np.array([json.dumps(info)], np.object_)
    return outputs


def arrays_of(plates: Sequence[Plate], wanted: Collection[str]) -> dict[str, Array]:
    """As `outputs_of`, but for ``model_info``."""
    outputs = {
        name: _array(list(map(value_of, plates)), dtype, *shape)
        for name, (value_of, dtype, shape) in OUTPUTS.items()
        if name in wanted
    }
    if LOG_PROBS in wanted:
        outputs[LOG_PROBS] = ctc.stack([plate.log_probs for plate in plates])
    return outputs


def _array(rows: list[Any], dtype: Any, *shape: int) -> Array:
    """(N, *shape): short rows are padded with "" or NaN, a longer one makes all longer."""
    if len(shape) == 1:
        width = max([shape[0], *map(len, rows)])
        fill = "" if dtype is np.object_ else np.nan
        shape, rows = (width,), [[*row, *[fill] * (width - len(row))] for row in rows]
    # The reshape gives an empty list its shape.
    return np.asarray(rows, dtype).reshape(len(rows), *shape)


# For each output the value of one plate, the type, and the shape without the axis of plates.
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
