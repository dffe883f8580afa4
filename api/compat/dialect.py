"""What the other services' APIs have in common: fields of requests, boxes in pixels."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from api.answers import Plate, PlatesAnswer
from api.parameters import F, LenientFilter, merged

LenientQuery = Annotated[LenientFilter, Query()]
Score = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


def fields_of(kind: type[F], fields: Mapping[str, Any]) -> F:
    """Validate the fields that `kind` has; empty values count as missing."""
    given = {name: value for name, value in fields.items() if value and name in kind.model_fields}
    return merged(kind(), (), list(given.items()))


def whole_pixels(plate: Plate, answer: PlatesAnswer) -> list[int]:
    """A plate's box x0 y0 x1 y1, rounded to whole pixels and clipped to the photo."""
    ends = (answer.image.width, answer.image.height) * 2
    return [min(max(round(at), 0), end) for at, end in zip(plate.box, ends, strict=True)]
