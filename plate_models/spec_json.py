"""Specs as JSON: in the metadata of weights, and beside the exported models.

Standard library only. All that is read is checked: a spec that the pipeline can't serve
is refused by the name of its field.
"""

import json
import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from plate_models.spec import (
    DETECTOR,
    RECOGNIZER,
    RECTIFIER,
    DetectorSpec,
    RecognizerSpec,
    RectifierSpec,
)

Spec = DetectorSpec | RectifierSpec | RecognizerSpec
S = TypeVar("S", DetectorSpec, RectifierSpec, RecognizerSpec)
# A field, what is expected of it, and whether it is so.
Rules = list[tuple[str, str, bool]]


class SpecError(ValueError):
    """A spec is malformed, or nothing here could serve it."""


@dataclass(frozen=True)
class Specs:
    """What three nets that work together were made for; by default ``spec.py``'s."""

    detector: DetectorSpec = DETECTOR
    rectifier: RectifierSpec = RECTIFIER
    recognizer: RecognizerSpec = RECOGNIZER


DEFAULTS = Specs()


def spec_to_json(spec: Spec) -> dict[str, Any]:
    """Write a spec as JSON-ready values: tuples become lists."""
    values: dict[str, Any] = json.loads(json.dumps(asdict(spec)))
    return values


def specs_to_json(specs: Specs) -> dict[str, dict[str, Any]]:
    """Write the three specs under their names; `specs_from_json` reads them."""
    return {field.name: spec_to_json(getattr(specs, field.name)) for field in fields(specs)}


def specs_from_json(value: object) -> Specs:
    """Read and check the three specs; what is absent is ``spec.py``'s.

    Raises:
        SpecError: One of them is malformed or can't be served.
    """
    kinds = get_type_hints(Specs)
    given = _object(value, kinds, "specs")
    return Specs(**{name: spec_from_json(kinds[name], v, name) for name, v in given.items()})


def spec_from_json(kind: type[S], value: object, where: str) -> S:
    """Read one spec; `where` is its name in messages, what is absent is ``spec.py``'s.

    Raises:
        SpecError: A field is unknown, has the wrong type or a value nothing can serve;
            the message names the field, what was expected and what was found.
    """
    hints = get_type_hints(kind)
    given = _object(value, hints, where)
    spec = kind(**{k: _decode(hints[k], v, f"{where}.{k}") for k, v in given.items()})
    check_spec(spec, where)
    return spec


def _object(value: object, known: Iterable[str], where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SpecError(f"{where}: expected an object, found {_short(value)}")
    unknown = sorted(set(value) - set(known))
    if unknown:
        raise SpecError(f"{where}: unknown {unknown}, expected some of {sorted(known)}")
    return value


def _decode(hint: Any, value: object, where: str) -> Any:
    """Turn a JSON value into the type of a spec's field."""
    if get_origin(hint) is tuple:
        items = get_args(hint)
        if isinstance(value, list):
            if items[-1] is Ellipsis:
                items = (items[0],) * len(value)
            if len(items) == len(value):
                pairs = enumerate(zip(items, value, strict=True))
                return tuple(_decode(item, v, f"{where}[{i}]") for i, (item, v) in pairs)
    elif hint is float and type(value) in (int, float):
        if math.isfinite(number := float(value)):  # type: ignore[arg-type]
            return number
    elif type(value) is hint:  # bool is not an int here
        return value
    expected = str(hint) if get_args(hint) else str(hint.__name__)
    raise SpecError(f"{where}: expected {expected}, found {_short(value)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def check_spec(spec: Spec, where: str) -> None:
    """Raise SpecError, with the spec's name `where`, unless the pipeline can serve it."""
    if isinstance(spec, DetectorSpec):
        rules = _detector_rules(spec)
    elif isinstance(spec, RectifierSpec):
        rules = _rectifier_rules(spec)
    else:
        rules = _recognizer_rules(spec)
    rules.append(("max_batch_size", "at least 1", spec.max_batch_size >= 1))
    for field, expected, holds in rules:
        if not holds:
            raise SpecError(
                f"{where}.{field}: expected {expected}, found {_short(getattr(spec, field))}"
            )


def _detector_rules(spec: DetectorSpec) -> Rules:
    ours, coarsest = DETECTOR.strides, max(DETECTOR.strides)
    anchors, canvases = spec.anchors_wh, spec.canvases_hw
    per_cell = {len(level) for level in anchors}
    sides = [side for level in anchors for anchor in level for side in anchor]
    whole = all(side % coarsest == 0 and 0 < side <= 4096 for hw in canvases for side in hw)
    candidates = min((_cells(hw) * min(per_cell, default=0) for hw in canvases), default=0)
    return [
        ("strides", f"{ours}, those of the architecture", spec.strides == ours),
        ("classes", "one or two: one line, two lines", len(set(spec.classes)) in (1, 2)),
        ("classes", "different names", len(set(spec.classes)) == len(spec.classes)),
        ("anchors_wh", f"{len(ours)} levels of as many anchors", len(anchors) == len(ours)),
        ("anchors_wh", "as many anchors on every level", len(per_cell) == 1 and 0 not in per_cell),
        # The head grows with them: more would make a net of gigabytes.
        ("anchors_wh", "at most 16 anchors on a level", max(per_cell, default=0) <= 16),
        ("anchors_wh", "positive sizes", min(sides, default=0.0) > 0),
        ("canvases_hw", f"sides that are multiples of {coarsest}", bool(canvases) and whole),
        ("max_candidates", "from 1 to a canvas's anchors", 1 <= spec.max_candidates <= candidates),
        ("pad_value", "a grey level", 0 <= spec.pad_value <= 255),
        ("score_threshold", "a probability", 0 <= spec.score_threshold <= 1),
        ("iou_threshold", "a share", 0 <= spec.iou_threshold <= 1),
        ("long_aspect", "0 or more", spec.long_aspect >= 0),
        ("width_multiple", "more than 0, at most 1.5", 0 < spec.width_multiple <= 1.5),
        ("depth_multiple", "more than 0, at most 1.5", 0 < spec.depth_multiple <= 1.5),
    ]


def _cells(canvas_hw: tuple[int, int]) -> int:
    height, width = canvas_hw
    return sum((height // stride) * (width // stride) for stride in DETECTOR.strides)


def _rectifier_rules(spec: RectifierSpec) -> Rules:
    sizes = ("crop_hw", "rectified_hw", "shown_hw")
    margins = ("crop_margin_hw", "two_line_margin_hw")
    spans = spec.row_spans
    return [
        *((k, "from 16 to 1024", all(16 <= v <= 1024 for v in getattr(spec, k))) for k in sizes),
        *((k, "shares from 0 to 4", all(0 <= v <= 4 for v in getattr(spec, k))) for k in margins),
        ("row_spans", "two rows", len(spans) == 2),
        ("row_spans", "0 <= from < to <= 1", all(0 <= a < b <= 1 for a, b in spans)),
        ("look_again_from", "more than 0", spec.look_again_from > 0),
        ("std", "more than 0", spec.std > 0),
    ]


def _recognizer_rules(spec: RecognizerSpec) -> Rules:
    alphabet = spec.alphabet
    visible = alphabet.isprintable() and not any(char.isspace() for char in alphabet)
    repeated = sorted({char for char in alphabet if alphabet.count(char) > 1})
    return [
        ("alphabet", "from 1 to 1000 characters", 1 <= len(alphabet) <= 1000),
        ("alphabet", f"every character once, not {''.join(repeated)!r} again", not repeated),
        ("alphabet", "visible characters only", visible),
        ("country", "a name of small letters", bool(re.fullmatch("[a-z][a-z_]*", spec.country))),
        ("steps", "from 1 to 1024", 1 <= spec.steps <= 1024),
        ("min_character_score", "a probability", 0 <= spec.min_character_score <= 1),
        ("unknown_readable_from", "a probability", 0 <= spec.unknown_readable_from <= 1),
        ("max_text_length", "at least 1", spec.max_text_length >= 1),
        ("candidates", "at least 2: the best, and the raw best path", spec.candidates >= 2),
    ]
