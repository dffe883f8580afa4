"""What surrounds a plate: paint, bumpers, grilles, lettering."""

import cv2
import numpy as np
import numpy.typing as npt

from plate_models.training.imaging import Field, Image
from plate_models.training.synthetic.wear import noise

# Black, graphite, grey, silver, white, beige, red, wine, blue, navy, green, yellow.
_PAINTS = np.array(
    [
        (18, 18, 20), (45, 47, 50), (95, 97, 100), (165, 168, 170), (228, 228, 226),
        (190, 175, 145), (170, 25, 25), (90, 15, 25), (30, 70, 150), (15, 25, 60),
        (25, 80, 50), (215, 165, 30),
    ],
    np.float64,
)  # fmt: skip
_PAINT_ODDS = np.array([22, 12, 12, 13, 16, 4, 6, 4, 5, 5, 3, 2], np.float64)
_PAINT_CUMULATIVE = np.cumsum(_PAINT_ODDS / _PAINT_ODDS.sum())
_WORDS = ("DUSTER", "VOLGA", "MAXUS", "AUTO", "SPORT", "4x4", "TURBO", "GRANTA", "CLUB")


def _paint(rng: np.random.Generator) -> npt.NDArray[np.float64]:
    index = int(np.searchsorted(_PAINT_CUMULATIVE, rng.random()))
    colour = _PAINTS[min(index, len(_PAINTS) - 1)]
    painted = colour * rng.uniform(0.7, 1.2) + rng.normal(0, 8, 3)
    return np.asarray(np.clip(painted, 2, 250))


def _tuple(colour: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    red, green, blue = (float(c) for c in np.clip(colour, 0, 255))
    return red, green, blue


def _bands(image: Image, rng: np.random.Generator, slope: float) -> None:
    """Edges of bumpers and lids, about parallel to the plate."""
    height, width = image.shape[:2]
    for _ in range(int(rng.integers(0, 6))):
        y = rng.uniform(-0.1, 1.1) * height
        tilt = slope + rng.normal(0, 0.04)
        ends = (0, round(y - tilt * width / 2)), (width, round(y + tilt * width / 2))
        colour = _paint(rng) if rng.random() < 0.4 else np.full(3, rng.beta(0.5, 0.7) * 250)
        thick = max(1, round(rng.beta(1, 3) * 0.4 * height))
        cv2.line(image, *ends, _tuple(colour), thick, cv2.LINE_AA)


def _grille(image: Image, rng: np.random.Generator, slope: float) -> None:
    height, width = image.shape[:2]
    step = rng.uniform(0.05, 0.16) * height
    colour = np.full(3, rng.uniform(10, 170)) + rng.normal(0, 6, 3)
    for y in np.arange(rng.uniform(-0.2, 0.8) * height, 1.2 * height, max(3.0, step)):
        ends = (0, round(y - slope * width / 2)), (width, round(y + slope * width / 2))
        cv2.line(image, *ends, _tuple(colour), max(1, round(step * 0.4)), cv2.LINE_AA)


def _recess(image: Image, quad: Field, rng: np.random.Generator) -> None:
    """The niche or the bumper's face that carries the plate."""
    centre = quad.mean(axis=0)
    grown = centre + (quad - centre) * np.array([rng.uniform(1.05, 1.7), rng.uniform(1.1, 2.4)])
    grown += rng.normal(0, 0.06, 2) * np.ptp(quad, axis=0)
    colour = _paint(rng) if rng.random() < 0.35 else np.full(3, rng.uniform(5, 50))
    cv2.fillConvexPoly(image, np.rint(grown).astype(np.int32), _tuple(colour), cv2.LINE_AA)


def _lettering(image: Image, rng: np.random.Generator) -> None:
    height, width = image.shape[:2]
    word = _WORDS[rng.integers(len(_WORDS))]
    size = rng.uniform(0.08, 0.22) * height / 22
    y = (rng.uniform(0.0, 0.2) if rng.random() < 0.5 else rng.uniform(0.9, 1.1)) * height
    place = round(rng.uniform(-0.1, 0.8) * width), round(y)
    tone = _tuple(np.full(3, rng.uniform(60, 250)))
    cv2.putText(image, word, place, cv2.FONT_HERSHEY_DUPLEX, size, tone, 1, cv2.LINE_AA)


def _drop_shadow(image: Image, quad: Field, rng: np.random.Generator) -> None:
    shift = rng.normal(0, 0.04, 2) * float(np.ptp(quad[:, 1]))
    corners = np.rint(quad + np.array([shift[0], abs(shift[1])])).astype(np.int32)
    cv2.fillConvexPoly(image, corners, _tuple(np.full(3, rng.uniform(0, 40))), cv2.LINE_AA)


def paint_background(size_hw: tuple[int, int], quad: Field, rng: np.random.Generator) -> Image:
    """Paint a car's part for a plate to hang on.

    Returns (H, W, 3) uint8 RGB.
    """
    colour = _paint(rng)
    shade = 1 + rng.uniform(0.02, 0.3) * noise(rng, 4, 4) + rng.uniform(0, 0.2) * noise(rng, 4, 1)
    coarse = np.clip(shade[..., None] * colour, 0, 255).astype(np.uint8)
    size_wh = size_hw[1], size_hw[0]
    image = np.asarray(cv2.resize(coarse, size_wh, interpolation=cv2.INTER_CUBIC), np.uint8)
    if rng.random() < 0.2:
        grain = np.abs(noise(rng, *size_hw)) * float(rng.uniform(1, 8))
        image = np.asarray(cv2.add(image, cv2.merge((grain, grain, grain)), dtype=cv2.CV_8U))
    along = quad[1] - quad[0]
    slope = float(along[1] / max(1e-3, abs(along[0])))
    if rng.random() < 0.12:
        _grille(image, rng, slope)
    _bands(image, rng, slope)
    if rng.random() < 0.5:
        _recess(image, quad, rng)
    if rng.random() < 0.12:
        _lettering(image, rng)
    if rng.random() < 0.5:
        _drop_shadow(image, quad, rng)
    return image
