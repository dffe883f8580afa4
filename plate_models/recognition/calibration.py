"""From the raw score of a reading to the probability that its whole text is right.

Standard library only: to say what a score means takes neither torch nor numpy.
"""

import bisect
import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSION = 1
NAME = "calibration.json"
# Logit of the float64 next to 1; raw scores beyond it, 1 itself above all, count as this.
LOGIT_LIMIT = 36.7
_KEYS = ("version", "recognizer_sha256", "readable_from", "knots", "fit")

Knot = tuple[float, float]


class CalibrationError(Exception):
    """A calibration is malformed, or it was measured with another recognizer."""


@dataclass(frozen=True)
class Calibration:
    """A monotone map from raw scores to probabilities; by default it changes nothing.

    It is linear between knots, logit against logit: in scores themselves, everything a
    good recognizer says would lie within the last thousandth before 1. Left of the first
    knot and right of the last it is constant. What is out of its range or not monotone is
    a CalibrationError.

    Attributes:
        knots: (logit of the raw score, logit of the probability), the first growing
            from knot to knot, the second never falling; none for the identity.
        readable_from: Calibrated score from which a text of known format is readable.
        recognizer_sha256: Of the weights it was measured with; None if it belongs to none.
    """

    knots: tuple[Knot, ...] = ()
    readable_from: float = 0.0
    recognizer_sha256: str | None = None

    def __post_init__(self) -> None:
        if len(self.knots) == 1:
            raise CalibrationError("knots: expected none or at least 2, got 1")
        if not all(abs(value) <= LOGIT_LIMIT for knot in self.knots for value in knot):
            raise CalibrationError(
                f"knots: expected logits from {-LOGIT_LIMIT} to {LOGIT_LIMIT}, got {self.knots}"
            )
        for (x0, y0), (x1, y1) in zip(self.knots, self.knots[1:], strict=False):
            if x0 >= x1 or y0 > y1:
                raise CalibrationError(
                    f"knots: expected a monotone map, got ({x1}, {y1}) after ({x0}, {y0})"
                )
        if not 0 <= self.readable_from <= 1:
            raise CalibrationError(
                f"readable_from: expected a number in [0, 1], got {self.readable_from}"
            )

    def apply(self, raw: float) -> float:
        """Turn a raw score into a probability in [0, 1]; 0 for NaN."""
        if math.isnan(raw):
            return 0.0
        raw = min(max(raw, 0.0), 1.0)
        if not self.knots:
            return raw
        x = logit(raw)
        index = bisect.bisect_right(self.knots, x, key=lambda knot: knot[0])
        if index == 0 or index == len(self.knots):
            return sigmoid(self.knots[max(index - 1, 0)][1])
        (x0, y0), (x1, y1) = self.knots[index - 1 : index + 1]
        return sigmoid(y0 + (y1 - y0) * (x - x0) / (x1 - x0))

    def check_recognizer(self, sha256: str) -> None:
        """Raise CalibrationError for weights that this was not measured with."""
        if self.recognizer_sha256 not in (None, sha256):
            raise CalibrationError(
                f"{NAME} was measured with the recognizer {self.recognizer_sha256}, "
                f"the one at hand is {sha256}: run `plates calibrate --release`"
            )

    def to_json(self, fit: Mapping[str, Any] | None = None) -> str:
        """Write it as JSON; `fit` says to people how it was fitted, and is not read back."""
        mine = (VERSION, self.recognizer_sha256, self.readable_from, self.knots, fit or {})
        # A line for each key: knots one number to a line would be pages.
        pairs = zip(_KEYS, mine, strict=True)
        lines = (f' "{key}": {json.dumps(value, allow_nan=False)}' for key, value in pairs)
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def from_json(cls, text: str) -> "Calibration":
        """Read what `to_json` wrote; raise CalibrationError for anything else."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise CalibrationError(f"not JSON: {error}") from error
        if not isinstance(values, dict):
            raise CalibrationError(f"expected a JSON object, got {type(values).__name__}")
        if values.get("version") != VERSION:
            raise CalibrationError(f"version: expected {VERSION}, got {values.get('version')!r}")
        if set(values) != set(_KEYS):
            raise CalibrationError(f"expected the keys {sorted(_KEYS)}, got {sorted(values)}")
        sha256, knots = values["recognizer_sha256"], values["knots"]
        hexadecimal = isinstance(sha256, str) and re.fullmatch("[0-9a-f]{64}", sha256)
        if sha256 is not None and not hexadecimal:
            raise CalibrationError(f"recognizer_sha256: expected 64 hex digits, got {sha256!r}")
        if not isinstance(knots, list) or any(
            not isinstance(pair, list) or len(pair) != 2 for pair in knots
        ):
            raise CalibrationError(f"knots: expected a list of pairs of numbers, got {knots!r}")
        return cls(
            tuple((_number("knots", x), _number("knots", y)) for x, y in knots),
            _number("readable_from", values["readable_from"]),
            sha256,
        )


UNCALIBRATED = Calibration()


def load(path: Path) -> Calibration:
    """Read a calibration from a file; raise CalibrationError if it holds none."""
    try:
        return Calibration.from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CalibrationError(f"{path}: can't be read: {error}") from error
    except CalibrationError as error:
        raise CalibrationError(f"{path}: {error}") from error


def logit(probability: float) -> float:
    """Log-odds of a probability in [0, 1], cut at +-``LOGIT_LIMIT``."""
    if probability <= 0:
        return -LOGIT_LIMIT
    if probability >= 1:
        return LOGIT_LIMIT
    odds = math.log(probability) - math.log1p(-probability)
    return min(max(odds, -LOGIT_LIMIT), LOGIT_LIMIT)


def sigmoid(log_odds: float) -> float:
    """Probability of log-odds: the inverse of `logit`."""
    # Each branch keeps the exponential below 1, where it can't overflow.
    if log_odds >= 0:
        return 1 / (1 + math.exp(-log_odds))
    odds = math.exp(log_odds)
    return odds / (1 + odds)


def _number(name: str, value: Any) -> float:
    # A bool is an int to Python and no number to us. json.loads lets NaN through, and
    # integers that no float can hold.
    if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:
        raise CalibrationError(f"{name}: expected a finite number, got {value!r}")
    return float(value)
