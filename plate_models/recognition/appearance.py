"""Likelihoods of a plate's ground colour, which distinguish formats that share texts.

Three numbers decide, which exposure, blur and the light's colour hardly change. The polarity says
whether characters are darker or lighter than the ground: strokes are the minority of the pixels, on
one side of the median. With dark characters, a ground that lacks blue is yellow: the shortage is
measured in the ground's own colour and in its difference from the ink. With light characters, the
ground is blue or red if it is bluer or redder than the ink, which is white and shows the light.

The constants are from logistic regressions on the renderer's plates (250 of each format), made
flatter by hand, because cameras vary more than the renderer. Of 181 real plates of ``ru_photos``,
all white and none used in the fit, 178 are classified as white; one, lit by a brake light, is
yellow with a likelihood of more than 0.8.
"""

from collections.abc import Iterable
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from plate_models.recognition.grammar import GROUNDS, Evidence

Array = NDArray[np.float32]

# Shares of height and width on each side that frames, edges and neighbours take up.
_MARGIN_HW = (0.1, 0.03)
_LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)
# Log-odds of dark characters per unit of polarity.
_POLARITY_SLOPE = 27.0
# Range of noise in grey levels: less contrast or light than this is no evidence.
_NOISE = 10.0
# Log-odds of yellow: slopes by the blue shortage of the ground minus ink and of the ground; offset.
_YELLOW = (1.5, 6.5, -4.4)
# Log-odds of blue or red against black, per unit of chroma beyond the threshold.
_CHROMA_SLOPE = 16.0
_LEAST_CHROMA = 0.17
# A blue band along the top: the rows that it always covers, as shares of the height, and its
# log-odds per unit of chroma beyond the threshold.
_BAND = (0.04, 0.15)
_BAND_SLOPE = 40.0
_LEAST_BAND = 0.11
# No photo is clear enough to rule out a colour: this share is divided equally among all of them.
_DOUBT = 0.05
# Largest difference between the channels of a grey pixel after JPEG or a video codec, grey levels.
_GREY_SPREAD = 4


def is_colourless(pixels: Any) -> bool:
    """Whether nine of ten pixels are grey, of an array or a tensor (H, W, 3) uint8."""
    red, green, blue = (pixels[::8, ::8, channel] for channel in range(3))
    pairs = (red, green), (green, blue), (blue, red)
    # Adding 4 maps differences from -4 to 4 to the bytes 0 to 8; all others wrap to more.
    first, second, third = (one - other + _GREY_SPREAD <= 2 * _GREY_SPREAD for one, other in pairs)
    return bool((first & second & third).sum() > 0.9 * red.shape[0] * red.shape[1])


def evidence_of(
    plates: ArrayLike, quads: ArrayLike, lines: Iterable[int], colourless: bool
) -> list[Evidence]:
    """Measure the evidence beside the texts of N plates.

    The rectified plates are (N, H, W, 3) uint8 RGB; the (N, 4, 2) quads are parallelograms, TL, TR,
    BR, BL in photo pixels. A colourless photo may be a white page around a small photo in colour:
    only plates that are grey themselves count as colourless.
    """
    grey = [colourless and is_colourless(plate) for plate in np.asarray(plates)]
    if not grey:
        return []
    grounds, bands = ground_likelihoods(plates, grey), top_bands(plates, grey)
    return list(map(Evidence, lines, grounds, aspects_of(quads), bands))


def aspects_of(quads: ArrayLike) -> list[float]:
    """Aspect ratios (width / height) of N plates by their quads; see `evidence_of`."""
    corners = np.asarray(quads, np.float64)
    across, down = (np.linalg.norm(corners[:, end] - corners[:, 0], axis=1) for end in (1, 3))
    return list((np.maximum(across, 1) / np.maximum(down, 1)).tolist())


def top_bands(plates: ArrayLike, colourless: ArrayLike) -> list[float]:
    """Probability of a blue band along the top of rectified plates, (N, H, W, 3) uint8 RGB.

    It is 1/2 for colourless plates, (N,) bool, and always between 1/20 and 19/20.
    """
    pixels = np.asarray(plates)
    height, width = pixels.shape[1:3]
    left = round(_MARGIN_HW[1] * width)
    inner = pixels[:, :, left : width - left]
    first, last = (round(share * height) for share in _BAND)
    top = inner[:, first:last].mean(axis=(1, 2))
    ground = np.quantile(inner[:, 2 * last :: 4, ::4], 0.8, axis=(1, 2))
    share = top / np.maximum(ground, _NOISE)
    odds = _BAND_SLOPE * (share[:, 2] - share[:, 0] - _LEAST_BAND)
    likely = np.clip(_sigmoid(odds), _DOUBT, 1 - _DOUBT)
    return list(np.where(colourless, 0.5, likely).tolist())


def ground_likelihoods(plates: ArrayLike, colourless: ArrayLike = False) -> list[tuple[float, ...]]:
    """Estimate the ground colour of rectified plates, (N, H, W, 3) uint8 RGB that they fill.

    For colourless plates, bool or (N,) bool, as in infrared light, only the polarity counts.

    Returns:
        Per plate the likelihoods of ``grammar.GROUNDS``, in that order. They sum to 1, none is
        below 0.01, and they approach each other as contrast decreases.
    """
    pixels = np.asarray(plates)
    dark_ink, yellow, chroma = _measure(pixels)
    # Softmax over blue, black and red; black is the class without colour.
    coloured = _CHROMA_SLOPE * np.stack(
        [chroma - _LEAST_CHROMA, np.zeros_like(chroma), -chroma - _LEAST_CHROMA]
    )
    coloured = np.exp(coloured - coloured.max(axis=0))
    coloured /= coloured.sum(axis=0)
    # Without colours, both grounds with dark ink are equally likely; so are the three with light.
    yellow, coloured = np.where(colourless, 1 / 2, yellow), np.where(colourless, 1 / 3, coloured)
    dark_ink = np.where(colourless, 2 * dark_ink / (3 - dark_ink), dark_ink)
    blue, black, red = (1 - dark_ink) * coloured
    table = np.stack([dark_ink * (1 - yellow), dark_ink * yellow, blue, black, red], axis=1)
    table = (1 - _DOUBT) * table + _DOUBT / len(GROUNDS)
    return list(map(tuple, table.tolist()))


def _measure(plates: NDArray[np.uint8]) -> tuple[Array, Array, Array]:
    """(N,) each: probability of dark ink, of yellow given dark ink, chroma given light ink."""
    height, width = plates.shape[1:3]
    top, left = round(_MARGIN_HW[0] * height), round(_MARGIN_HW[1] * width)
    # Every other pixel is enough for colours.
    inner = plates[:, top : height - top : 2, left : width - left : 2].astype(np.float32)
    luminance = inner @ _LUMINANCE
    side = max(3, height // 3)
    # Relative to the neighbourhood, so that a shadow across the plate does not count as ink.
    relief = np.stack([plane - cv2.blur(plane, (side, side)) for plane in luminance])
    relief = relief.reshape(len(plates), -1)
    colours = inner.reshape(len(plates), -1, 3)
    low, middle, high = np.quantile(relief, (0.05, 0.5, 0.95), axis=1).astype(np.float32)
    polarity = (2 * middle - low - high) / (high - low + _NOISE)
    below = relief[:, None] <= np.stack([0.7 * low + 0.3 * middle, middle], axis=1)[..., None]
    above = relief[:, None] >= np.stack([0.7 * high + 0.3 * middle, middle], axis=1)[..., None]
    dark, dark_ground, light, light_ground = _means(colours, np.hstack([below, above]))
    yellow = (
        _YELLOW[0] * _blue_shortage(light_ground - dark)
        + _YELLOW[1] * _blue_shortage(light_ground)
        + _YELLOW[2]
    )
    share = dark_ground / np.maximum(light, _NOISE)
    return _sigmoid(_POLARITY_SLOPE * polarity), _sigmoid(yellow), share[:, 2] - share[:, 0]


def _means(colours: Array, masks: NDArray[np.bool_]) -> Array:
    """(M, N, 3): the mean colours of each plate's pixels under each of its (N, M, P) masks."""
    weights = masks.astype(np.float32)
    sums = weights @ colours
    return np.asarray(sums / np.maximum(weights.sum(axis=2), 1)[..., None]).transpose(1, 0, 2)


def _blue_shortage(colours: Array) -> Array:
    """(N,): log of the ratio of the mean of red and green to blue; at most 3."""
    red_green = np.maximum((colours[:, 0] + colours[:, 1]) / 2, 1)
    return np.asarray(np.log(red_green / np.maximum(colours[:, 2], 1))).clip(max=3)


def _sigmoid(odds: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.clip(odds, -30, 30))))
