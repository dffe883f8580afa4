"""Plates put into a larger picture: where they hang, and how they are drawn there."""

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from plate_models.training.synthetic.plates import PlateImage, render_plate
from plate_models.training.synthetic.projection import apply_homography, project, resolution_for

Floats = NDArray[np.float64]

# Resolutions plates are drawn at: few, because glyphs are cached per resolution.
_LEVELS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4)
_HALF_PIXEL = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])


def see_plate(
    text: str,
    kind: str,
    box: NDArray[np.float32],
    width: float,
    spread_deg: tuple[float, float, float],
    rng: Generator,
) -> tuple[PlateImage, Floats]:
    """Render a plate and hang it in the middle of a box.

    Args:
        text: Of the plate.
        kind: Of the plate, a key of ``KINDS``.
        box: (4,) float x0, y0, x1, y1 in scene pixels.
        width: Of the plate's hull in scene pixels.
        spread_deg: Standard deviations of roll, yaw and pitch.
        rng: Source of all chance.

    Returns:
        The plate, and the (3, 3) homography from pixels of its picture to scene pixels.
    """
    plate = render_plate(text, rng, resolution_for(1.2 * width, kind, _LEVELS), kind=kind)
    angles = np.clip(rng.normal(0, 1, 3) * spread_deg, -40, 40)
    view = project(plate, np.radians(angles), rng.uniform(4, 12))
    corners = apply_homography(view, plate.quad)
    low, high = corners.min(axis=0), corners.max(axis=0)
    scale = width / (high[0] - low[0])
    middle = np.array([(box[0] + box[2]) / 2, (box[1] + box[3]) / 2])
    slack = max(float(box[3] - box[1]) - (high[1] - low[1]) * scale, 0.0)
    middle[1] += rng.uniform(-0.4, 0.4) * slack
    x, y = middle - (low + high) / 2 * scale
    return plate, np.array([[scale, 0, x], [0, scale, y], [0, 0, 1]]) @ view


def overlay_plate(
    scene: NDArray[np.float32], plate: PlateImage, view: Floats, light: Floats, rng: Generator
) -> None:
    """Draw a plate over a scene, in place.

    Args:
        scene: (H, W, 3) float32 RGB in [0, 255].
        plate: What is drawn.
        view: (3, 3) homography from pixels of the plate's picture to scene pixels.
        light: (3,) gain per channel.
        rng: Source of blur and of a gradient of light.
    """
    # OpenCV counts from pixel centres, homographies here from pixel corners.
    warp = np.linalg.inv(_HALF_PIXEL) @ view @ _HALF_PIXEL
    rgba = np.dstack([plate.rgb, plate.alpha]).astype(np.float32)
    h, w = scene.shape[:2]
    seen = cv2.warpPerspective(rgba, warp, (w, h), flags=cv2.INTER_LINEAR)
    seen = cv2.GaussianBlur(seen, (0, 0), float(rng.uniform(0.35, 1.1)))
    # A gradient of light across the plate, as a car's curved body and sky give.
    tilt = 1 + rng.normal(0, 0.08) * np.linspace(-1, 1, h)[:, None, None]
    alpha = seen[..., 3:] / 255
    scene += alpha * (seen[..., :3] * light.astype(np.float32) * tilt.astype(np.float32) - scene)
