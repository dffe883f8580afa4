"""The contract that training, export, the Triton models and the gateway share.

A constant belongs here if other *weights* may need another value. Weights carry a copy of the
constants, exported models another, as JSON. Specs are validated when they are created: the error
names the field whose value the pipeline can't serve. The gateway imports this file: no torch.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any, Literal, TypeVar

import pydantic
from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.dataclasses import dataclass

from plate_models.release import WeightsError

MODEL_VERSION = "1"
COLUMNS = 24  # width of the recognizer's last features: 94 pixels, halved twice

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
_Count = Annotated[int, Field(ge=1)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Multiple = Annotated[float, Field(gt=0, le=1.5)]
_Size = Annotated[float, Field(gt=0)]
_Margin = Annotated[float, Field(ge=0, le=4)]
_Depth = Annotated[int, Field(ge=1, le=64)]
_Side = Annotated[int, Field(ge=16, le=1024)]
_Country = Annotated[str, Field(pattern="^[a-z][a-z_]*$")]
_CanvasSide = Annotated[int, Field(gt=0, le=4096, multiple_of=32)]
# The detector's head grows with the number of anchors: more would make a net of gigabytes.
_Level = Annotated[tuple[tuple[_Size, _Size], ...], Field(min_length=1, max_length=16)]


@dataclass(frozen=True, config=_STRICT)
class DetectorSpec:
    """YOLOv5: a letterboxed photo in, candidate boxes out."""

    # Sizes (H, W) of canvases, multiples of 32. A photo is letterboxed to the one that shrinks it
    # least. They are few, so that requests can share a batch.
    canvases_hw: Annotated[tuple[tuple[_CanvasSide, _CanvasSide], ...], Field(min_length=1)] = (
        (448, 768),
        (576, 576),
        (768, 448),
    )
    pad_value: Annotated[int, Field(ge=0, le=255)] = 114  # grey level of the padding
    max_candidates: _Count = 300  # rows of the output; unused rows have score 0
    classes: Annotated[tuple[str, ...], Field(min_length=1, max_length=2)] = (
        "one_line",
        "two_lines",
    )  # by class index in the output
    # Sizes (w, h) of anchors per stride, in canvas pixels.
    anchors_wh: Annotated[tuple[_Level, ...], Field(min_length=3, max_length=3)] = (
        ((16.0, 6.0), (28.0, 9.0), (34.0, 17.0)),
        ((50.0, 14.0), (62.0, 28.0), (90.0, 24.0)),
        ((112.0, 48.0), (160.0, 42.0), (240.0, 80.0)),
    )
    strides: tuple[Literal[8], Literal[16], Literal[32]] = (8, 16, 32)
    score_threshold: _Share = 0.1  # candidates below it are dropped
    iou_threshold: _Share = 0.45  # two boxes that overlap more are one plate
    # If the detector finds one line of text in a box of at least this aspect ratio, that is taken
    # for sure; in a shorter box, one and two lines are read.
    long_aspect: Annotated[float, Field(ge=0)] = 2.0
    max_batch_size: _Count = 16  # of the exported graph
    width_multiple: _Multiple = 0.25  # YOLOv5's scaling factors: nano
    depth_multiple: _Multiple = 0.33
    # After each convolution. Weights files without this field have SiLU, as published YOLOv5.
    activation: Literal["silu", "hardswish"] = "silu"

    @model_validator(mode="after")
    def _check(self) -> "DetectorSpec":
        per_cell = {len(level) for level in self.anchors_wh}
        areas = [height * width for height, width in self.canvases_hw]
        cells = sum(min(areas) // stride**2 for stride in self.strides)
        if len(set(self.classes)) < len(self.classes):
            raise ValueError(f"classes: expected different names, found {self.classes}")
        if len(per_cell) > 1:
            raise ValueError("anchors_wh: expected equal numbers of anchors on all levels")
        if self.max_candidates > cells * max(per_cell):
            raise ValueError(
                f"max_candidates: expected at most {cells * max(per_cell)}, as many as the "
                f"smallest canvas has anchors, found {self.max_candidates}"
            )
        return self


@dataclass(frozen=True, config=_STRICT)
class RectifierSpec:
    """STN: a crop around a box in, a plate that fills the frame out."""

    crop_hw: tuple[_Side, _Side] = (64, 160)  # (H, W), for boxes of any shape
    # The box of a one-line plate is widened by these shares of its height and width, one half on
    # each side, so that a tilted plate stays inside; a two-line plate is higher and needs less.
    crop_margin_hw: tuple[_Margin, _Margin] = (0.5, 0.3)
    two_line_margin_hw: tuple[_Margin, _Margin] = (0.3, 0.3)
    rectified_hw: tuple[_Side, _Side] = (24, 94)  # (H, W) of a one-line plate, or of one row
    # The rows of a two-line plate, as shares of its height (from, to). They overlap, because no
    # rectifier is exact.
    row_spans: Annotated[tuple[tuple[_Share, _Share], ...], Field(min_length=2, max_length=2)] = (
        (0.0, 0.54),
        (0.46, 1.0),
    )
    shown_hw: tuple[_Side, _Side] = (48, 188)  # (H, W) of the plate for display
    # A plate that reaches this far from its crop's middle (1 is the edge) was cut off by its box:
    # it is cropped once more, around its quad.
    look_again_from: _Size = 0.9
    mean: float = 127.5  # normalisation of pixels: (x - mean) / std
    std: _Size = 128.0
    max_batch_size: _Count = 32  # of the exported graph

    @field_validator("row_spans")
    @classmethod
    def _check_spans(cls, spans: tuple[tuple[float, float], ...]) -> Any:
        if not all(start < end for start, end in spans):
            raise ValueError("expected from < to")
        return spans

    def margin_hw(self, lines: int) -> tuple[float, float]:
        """Shares of height and width by which the box of a plate is widened."""
        return self.crop_margin_hw if lines == 1 else self.two_line_margin_hw


@dataclass(frozen=True, config=_STRICT)
class RecognizerSpec:
    """LPRNet: rectified plates in, per-step character logits out."""

    # In the order of the classes; the CTC blank is class ``len(alphabet)``.
    alphabet: Annotated[str, Field(min_length=1, max_length=1000)] = (
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    )
    # Countries whose plates are read: names of files in ``countries/``, the home country first.
    # Older weights have ``country`` instead; the oldest have neither and read Russia's plates.
    countries: Annotated[tuple[_Country, ...], Field(min_length=1)] = (
        *("ru", "by", "kz", "sk", "cz", "pl", "de", "br"),
        *("ua", "uz", "kg", "ro", "gb", "fr", "it", "es", "in"),
    )
    # Length T of the output: one or more steps for each of the net's `COLUMNS`.
    steps: Annotated[int, Field(ge=1, le=1024)] = 24
    depths: tuple[_Depth, _Depth] = (2, 3)  # blocks of both stages; missing in the first weights
    max_text_length: _Count = 10  # columns for character scores; a longer text adds columns
    candidates: Annotated[int, Field(ge=2)] = 5  # largest number of texts in an answer
    max_batch_size: _Count = 32  # of the exported graph

    @field_validator("alphabet")
    @classmethod
    def _check_alphabet(cls, alphabet: str) -> str:
        repeated = sorted({char for char in alphabet if alphabet.count(char) > 1})
        if repeated:
            raise ValueError(f"expected every character once, not {''.join(repeated)!r} again")
        if not alphabet.isprintable() or any(char.isspace() for char in alphabet):
            raise ValueError("expected visible characters only")
        return alphabet

    @property
    def steps_per_column(self) -> int:
        """Number of output steps per column of the last features."""
        return max(1, self.steps // COLUMNS)

    @property
    def classes(self) -> int:
        """Size of the logits' class axis: every character and the blank."""
        return len(self.alphabet) + 1


DETECTOR = DetectorSpec(activation="hardswish")
RECTIFIER = RectifierSpec()
RECOGNIZER = RecognizerSpec(depths=(3, 7), steps=48)


@dataclass(frozen=True, config=_STRICT)
class Specs:
    """The specs of three nets that work together; the defaults are this file's."""

    detector: DetectorSpec = DETECTOR
    rectifier: RectifierSpec = RECTIFIER
    recognizer: RecognizerSpec = RECOGNIZER


DEFAULTS = Specs()

S = TypeVar("S", DetectorSpec, RectifierSpec, RecognizerSpec, Specs)


def spec_to_json(spec: DetectorSpec | RectifierSpec | RecognizerSpec | Specs) -> dict[str, Any]:
    """Convert a spec to JSON-ready values: tuples become lists."""
    return dict(json.loads(json.dumps(asdict(spec))))


def spec_from_json(kind: type[S], values: object, where: str) -> S:
    """Read what `spec_to_json` wrote; absent fields get their defaults.

    Raises WeightsError; its message begins with `where` and names the field, what was expected and
    what was found.
    """
    if kind is RecognizerSpec and isinstance(values, dict) and "countries" not in values:
        values = dict(values)
        values["countries"] = [values.pop("country", "ru")]
    with named(where):
        return pydantic.TypeAdapter(kind).validate_json(json.dumps(values))


@contextmanager
def named(where: str, kind: type[Exception] = WeightsError) -> Iterator[None]:
    """Convert pydantic's ValidationError in the block to an error of this kind about `where`."""
    try:
        yield
    except ValidationError as error:
        raise kind(first_problem(error, where)) from error


def first_problem(error: ValidationError, where: str = "") -> str:
    """Describe the first of pydantic's errors, with its place below `where`, in one line."""
    first = error.errors(include_url=False)[0]
    place = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in first["loc"])
    if first["type"] == "value_error":  # raised by our own validators
        return f"{where}{place}: {first['ctx']['error']}"
    reason = first["msg"].replace("Input should be", "expected").replace("Input", "the value")
    return f"{where}{place}: {reason}, found {first['input']!r:.60}"


@dataclass(frozen=True)
class Limits:
    """The largest photo that is accepted, checked before it is decoded."""

    max_bytes: int = 20 * 1024 * 1024
    max_pixels: int = 64_000_000


LIMITS = Limits()


@dataclass(frozen=True)
class TensorNames:
    """Tensor names of the graphs and of ``plate_recognition``."""

    graph_input: str = "input__0"
    graph_output: str = "output__0"
    theta: str = "output__1"
    pixels: str = "input__0"
    image: str = "image"
    coordinates: str = "coordinates"
    texts: str = "texts"
    log_probs: str = "log_probs"
    model_info: str = "model_info"


TENSORS = TensorNames()
