"""From the raw score of a reading to the probability that its whole text is right.

Imports neither torch nor numpy.
"""

import bisect
import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import field
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.dataclasses import dataclass

from plate_models.release import CALIBRATION, WeightsError
from plate_models.spec import named

VERSION = 1
# Logit of the largest float64 below 1; raw scores beyond it, such as 1, are clipped to it.
LOGIT_LIMIT = 36.7

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
_Logit = Annotated[float, Field(ge=-LOGIT_LIMIT, le=LOGIT_LIMIT)]
_Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True, config=_STRICT)
class Calibration:
    """A monotone map from raw scores to probabilities; the identity by default.

    The map is linear in logits between knots: a good recognizer's raw scores nearly all lie within
    the last thousandth before 1. It is constant right of the last knot. Left of the last of the
    lowest knots, the probability falls in proportion to the raw score, to 0 at 0, because few texts
    were seen there. Raises ValueError if a value is out of range or the map is not monotone.
    """

    # (logit of the raw score, logit of the probability): the first strictly increasing, the second
    # never decreasing; none for the identity.
    knots: tuple[tuple[_Logit, _Logit], ...] = ()
    readable_from: Annotated[float, Field(ge=0, le=1)] = 0.6  # least score, home country's formats
    # SHA-256 of everything the scores depend on, from `weights.measured_with`; empty if none.
    measured_with: Mapping[str, _Sha256] = field(default_factory=dict)
    # Least score of any other text. The default is too high for clocks, signs and partly visible
    # plates.
    elsewhere_readable_from: Annotated[float, Field(ge=0, le=1)] = 0.9999

    @field_validator("knots")
    @classmethod
    def _check_order(cls, knots: tuple[tuple[float, float], ...]) -> Any:
        if len(knots) == 1:
            raise ValueError("expected none or at least 2, found 1")
        for (x0, y0), (x1, y1) in pairwise(knots):
            if x0 >= x1 or y0 > y1:
                raise ValueError(f"expected a monotone map, found ({x1}, {y1}) after ({x0}, {y0})")
        return knots

    def apply(self, raw: float) -> float:
        """Turn a raw score into a probability in [0, 1]; 0 for NaN."""
        if math.isnan(raw):
            return 0.0
        raw = min(max(raw, 0.0), 1.0)
        if not self.knots:
            return raw
        x = logit(raw)
        lowest = [knot for knot in self.knots if knot[1] == self.knots[0][1]]
        # If all knots have the same probability, any of them will do: take the first.
        x0, y0 = lowest[-1] if len(lowest) < len(self.knots) else lowest[0]
        if x <= x0:
            return sigmoid(y0) * raw / sigmoid(x0)
        index = bisect.bisect_right(self.knots, x, key=lambda knot: knot[0])
        if index == len(self.knots):
            return sigmoid(self.knots[-1][1])
        (x0, y0), (x1, y1) = self.knots[index - 1 : index + 1]
        return sigmoid(y0 + (y1 - y0) * (x - x0) / (x1 - x0))

    def check(self, in_use: Mapping[str, str]) -> None:
        """Raise WeightsError if measured with other nets; warn if with other formats."""
        for name, found in in_use.items():
            if (expected := self.measured_with.get(name, found)) == found:
                continue
            message = (
                f"{CALIBRATION} was measured with the {name} {expected}, "
                f"the one in use is {found}: run `plates calibrate --release --weights FOLDER`"
            )
            if name in ("recognizer", "rectifier"):
                raise WeightsError(message)
            warnings.warn(message, stacklevel=2)  # formats and colours change few scores, a little

    def to_json(self, fit: Mapping[str, Any] | None = None) -> str:
        """Write as JSON; `fit` documents the fit for people and is not read back."""
        values = {
            "version": VERSION,
            "recognizer_sha256": self.measured_with.get("recognizer"),
            "readable_from": self.readable_from,
            "elsewhere_readable_from": self.elsewhere_readable_from,
            "knots": self.knots,
            "fit": {**(fit or {}), "measured_with": dict(self.measured_with)},
        }
        # One line per key: with one number per line, the knots would fill pages.
        lines = (f' "{key}": {json.dumps(value, allow_nan=False)}' for key, value in values.items())
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def from_json(cls, text: str) -> "Calibration":
        """Read what `to_json` wrote; raise WeightsError for anything else."""
        with named("calibration"):
            file = _File.model_validate_json(text)
            pins = {"recognizer": file.recognizer_sha256} if file.recognizer_sha256 else {}
            pins |= file.fit.measured_with
            apart = {"version", "recognizer_sha256", "fit"}
            values = file.model_dump(exclude=apart, exclude_none=True)
            return cls(**values, measured_with=pins)


class _Fit(BaseModel):
    measured_with: dict[str, _Sha256] = {}  # absent in older files


class _File(BaseModel):
    model_config = _STRICT

    version: Literal[1]
    recognizer_sha256: _Sha256 | None
    readable_from: float
    elsewhere_readable_from: float | None = None  # absent in older files
    knots: tuple[tuple[float, float], ...]
    fit: _Fit


UNCALIBRATED = Calibration()


def logit(probability: float) -> float:
    """Log-odds of a probability in [0, 1], clipped to +-``LOGIT_LIMIT``."""
    if probability <= 0:
        return -LOGIT_LIMIT
    if probability >= 1:
        return LOGIT_LIMIT
    odds = math.log(probability) - math.log1p(-probability)
    return min(max(odds, -LOGIT_LIMIT), LOGIT_LIMIT)


def sigmoid(log_odds: float) -> float:
    """Probability of log-odds within +-``LOGIT_LIMIT``: the inverse of `logit`."""
    return 1 / (1 + math.exp(-log_odds))
