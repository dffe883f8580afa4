"""The contract that training, export, the Triton models and the gateway share.

A constant belongs here if it is wrong as soon as the *weights* change. Weights carry a copy,
exported models another, as JSON. Values are checked whenever a spec is made: one that the
pipeline can't serve is refused by the name of its field. The gateway imports this file: no torch.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any, Literal, TypeVar

import pydantic
from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.dataclasses import dataclass

MODEL_VERSION = "1"
COLUMNS = 24  # of the recognizer's last features: 94 pixels, halved twice

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
# The head grows with its anchors: more would make a net of gigabytes.
_Level = Annotated[tuple[tuple[_Size, _Size], ...], Field(min_length=1, max_length=16)]


class SpecError(ValueError):
    """A spec is malformed, or nothing here could serve it."""


@dataclass(frozen=True, config=_STRICT)
class DetectorSpec:
    """YOLOv5: a letterboxed photo in, candidate boxes out."""

    # (H, W) sizes a photo is letterboxed to; the one that shrinks it least is taken. Few, so that
    # requests can share a batch. Multiples of 32.
    canvases_hw: Annotated[tuple[tuple[_CanvasSide, _CanvasSide], ...], Field(min_length=1)] = (
        (448, 768),
        (576, 576),
        (768, 448),
    )
    pad_value: Annotated[int, Field(ge=0, le=255)] = 114  # grey level of the letterbox's bars
    max_candidates: _Count = 300  # rows of the output; unused rows have score 0
    # In the output's order.
    classes: Annotated[tuple[str, ...], Field(min_length=1, max_length=2)] = (
        "one_line",
        "two_lines",
    )
    # Per stride, sizes (w, h) in canvas pixels.
    anchors_wh: Annotated[tuple[_Level, ...], Field(min_length=3, max_length=3)] = (
        ((16.0, 6.0), (28.0, 9.0), (34.0, 17.0)),
        ((50.0, 14.0), (62.0, 28.0), (90.0, 24.0)),
        ((112.0, 48.0), (160.0, 42.0), (240.0, 80.0)),
    )
    strides: tuple[Literal[8], Literal[16], Literal[32]] = (8, 16, 32)
    score_threshold: _Share = 0.1  # candidates below it are dropped
    iou_threshold: _Share = 0.45  # two boxes that overlap more are one plate
    # A box this many times as wide as high holds one line of text for sure if the detector says
    # so; a shorter one is read both ways.
    long_aspect: Annotated[float, Field(ge=0)] = 2.0
    max_batch_size: _Count = 16  # of the exported graph
    width_multiple: _Multiple = 0.25  # YOLOv5's scaling factors: nano
    depth_multiple: _Multiple = 0.33
    # After each convolution. Files that don't say have SiLU, as published YOLOv5.
    activation: Literal["silu", "hardswish"] = "silu"

    @model_validator(mode="after")
    def _check(self) -> "DetectorSpec":
        per_cell = {len(level) for level in self.anchors_wh}
        areas = [height * width for height, width in self.canvases_hw]
        cells = sum(min(areas) // stride**2 for stride in self.strides)
        if len(set(self.classes)) < len(self.classes):
            raise ValueError(f"classes: expected different names, found {self.classes}")
        if len(per_cell) > 1:
            raise ValueError("anchors_wh: expected as many anchors on every level")
        if self.max_candidates > cells * max(per_cell):
            raise ValueError(
                f"max_candidates: expected at most {cells * max(per_cell)}, as many as the "
                f"smallest canvas has anchors, found {self.max_candidates}"
            )
        return self


@dataclass(frozen=True, config=_STRICT)
class RectifierSpec:
    """STN: a crop around a box in, the plate filling the whole frame out."""

    crop_hw: tuple[_Side, _Side] = (64, 160)  # (H, W), for boxes of any shape
    # The box of a one-line plate is widened by these shares of its height and width, one half on
    # each side, so that a tilted plate stays inside; one of two lines is higher, and needs less.
    crop_margin_hw: tuple[_Margin, _Margin] = (0.5, 0.3)
    two_line_margin_hw: tuple[_Margin, _Margin] = (0.3, 0.3)
    rectified_hw: tuple[_Side, _Side] = (24, 94)  # (H, W) of a one-line plate, or of one row
    # Per row of a two-line plate, the shares of its height (from, to) that are read; they overlap,
    # because no rectifier is exact.
    row_spans: Annotated[tuple[tuple[_Share, _Share], ...], Field(min_length=2, max_length=2)] = (
        (0.0, 0.54),
        (0.46, 1.0),
    )
    shown_hw: tuple[_Side, _Side] = (48, 188)  # (H, W) of the plate as people see it
    # A plate that reaches this far from its crop's middle (1 is the edge) was cut by its box: it is
    # cropped anew around its quad, once.
    look_again_from: _Size = 0.9
    mean: float = 127.5  # pixels enter as (x - mean) / std
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
    # Whose plates are read: names of files in ``countries/``, the first of them at home. Metadata
    # of older weights say ``country``; the oldest say none: Russia's.
    countries: Annotated[tuple[_Country, ...], Field(min_length=1)] = (
        *("ru", "by", "kz", "sk", "cz", "pl", "de", "br"),
        *("ua", "uz", "kg", "ro", "gb", "fr", "it", "es", "in"),
    )
    # Length T of the output: one or more for each of the net's `COLUMNS`.
    steps: Annotated[int, Field(ge=1, le=1024)] = 24
    depths: tuple[_Depth, _Depth] = (2, 3)  # blocks of two stages; the first weights don't say
    max_text_length: _Count = 10  # room for character scores; a longer text makes more
    candidates: Annotated[int, Field(ge=2)] = 5  # texts in an answer, at most
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
        """Steps that the net gives for each column of its last features."""
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
    """What three nets that work together were made for; by default this file's."""

    detector: DetectorSpec = DETECTOR
    rectifier: RectifierSpec = RECTIFIER
    recognizer: RecognizerSpec = RECOGNIZER


DEFAULTS = Specs()

S = TypeVar("S", DetectorSpec, RectifierSpec, RecognizerSpec, Specs)


def spec_to_json(spec: DetectorSpec | RectifierSpec | RecognizerSpec | Specs) -> dict[str, Any]:
    """Write a spec as JSON-ready values: tuples become lists."""
    return dict(json.loads(json.dumps(asdict(spec))))


def spec_from_json(kind: type[S], values: object, where: str) -> S:
    """Read what `spec_to_json` wrote; what is absent is this file's.

    A SpecError begins with `where` and names the field, what was expected, what was found.
    """
    if isinstance(values, dict):
        if kind is RecognizerSpec and "countries" not in values:
            values = dict(values)
            values["countries"] = [values.pop("country", "ru")]
        elif kind is Specs and "recognizer" in values:
            found = spec_from_json(RecognizerSpec, values["recognizer"], f"{where}.recognizer")
            values = values | {"recognizer": spec_to_json(found)}
    with named(where):
        return pydantic.TypeAdapter(kind).validate_json(json.dumps(values))


@contextmanager
def named(where: str, kind: type[Exception] = SpecError) -> Iterator[None]:
    """Turn what pydantic finds wrong inside into an error of a kind about `where`."""
    try:
        yield
    except ValidationError as error:
        raise kind(first_problem(error, where)) from error


def first_problem(error: ValidationError, where: str = "") -> str:
    """Describe the first of pydantic's errors, with its place below `where`, in one line."""
    first = error.errors(include_url=False)[0]
    place = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in first["loc"])
    if first["type"] == "value_error":  # of a validator here
        return f"{where}{place}: {first['ctx']['error']}"
    reason = first["msg"].replace("Input should be", "expected").replace("Input", "the value")
    return f"{where}{place}: {reason}, found {first['input']!r:.60}"


@dataclass(frozen=True)
class Limits:
    """What a photo may be at most, checked before it is decoded."""

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


TENSORS = TensorNames()
