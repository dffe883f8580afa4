"""What all foreign forms need of our own answer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter

from api.schemas import Plate, PlatesAnswer


@dataclass(frozen=True)
class Service:
    """Another service, as its clients see it.

    Attributes:
        router: Its routes.
        paths: Theirs, with and without a slash at the end.
        error: Makes its form of an error from our status and detail: the status to answer
            with, and the JSON.
    """

    router: APIRouter
    paths: frozenset[str]
    error: Callable[[int, str], tuple[int, dict[str, Any]]]


def readable_in(answer: PlatesAnswer) -> list[Plate]:
    """Plates with a text: other services know no plates without one.

    Args:
        answer: Our own.

    Returns:
        Its readable plates in their order.
    """
    return [plate for plate in answer.plates if plate.readable]


def whole_pixels(plate: Plate, answer: PlatesAnswer) -> tuple[int, int, int, int]:
    """A plate's box as other services give it.

    Args:
        plate: One of the plates.
        answer: The answer that it is in; tells the photo's size.

    Returns:
        x0, y0, x1, y1 in whole pixels, inside the photo.
    """
    x0, y0, x1, y1 = plate.box
    width, height = answer.image.width, answer.image.height
    left, right = (min(max(round(x), 0), width) for x in (x0, x1))
    top, bottom = (min(max(round(y), 0), height) for y in (y0, y1))
    return left, top, right, bottom
