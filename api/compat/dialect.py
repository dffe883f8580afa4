"""What the dialects of other services share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter

from api.answers import Plate, PlatesAnswer


@dataclass(frozen=True)
class Dialect:
    """Another service, as its clients see it.

    Attributes:
        router: Its routes.
        paths: Theirs, with and without a slash at the end.
        error: From our status and detail, the status and the JSON of its errors.
    """

    router: APIRouter
    paths: frozenset[str]
    error: Callable[[int, str], tuple[int, dict[str, Any]]]


def whole_pixels(plate: Plate, answer: PlatesAnswer) -> tuple[int, int, int, int]:
    """A plate's box, x0 y0 x1 y1 in whole pixels inside the photo of the answer."""
    x0, y0, x1, y1 = plate.box
    width, height = answer.image.width, answer.image.height
    left, right = (min(max(round(x), 0), width) for x in (x0, x1))
    top, bottom = (min(max(round(y), 0), height) for y in (y0, y1))
    return left, top, right, bottom
