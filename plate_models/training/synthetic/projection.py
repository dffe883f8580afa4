"""How a flat plate looks from somewhere, and how finely it has to be drawn for that."""

import numpy as np
import numpy.typing as npt

from plate_models.training.synthetic.kinds import kind_named
from plate_models.training.synthetic.plates import PlateImage, Quad

FloatArray = npt.NDArray[np.float64]
# No plate is drawn larger than this: what fills a photo is smooth anyway.
_MAX_PIXELS = 60_000


def resolution_for(width_px: float, kind: str, levels: tuple[float, ...]) -> float:
    """The lowest resolution out of ``levels``, in pixels per millimetre, that is enough."""
    width, height = kind_named(kind).smallest_mm
    allowed = [level for level in levels if level**2 * width * height <= _MAX_PIXELS]
    return next((level for level in allowed if level * width >= width_px), allowed[-1])


def project(plate: PlateImage, angles_rad: FloatArray, distance: float) -> FloatArray:
    """Look at a plate with a pinhole camera.

    Returns (3, 3) homography from pixels of the plate's picture to image units, in which the plate
    is about 1 wide.
    """
    roll, yaw, pitch = angles_rad
    cos, sin = np.cos, np.sin
    about_z = np.array([[cos(roll), -sin(roll), 0], [sin(roll), cos(roll), 0], [0, 0, 1]])
    about_y = np.array([[cos(yaw), 0, sin(yaw)], [0, 1, 0], [-sin(yaw), 0, cos(yaw)]])
    about_x = np.array([[1, 0, 0], [0, cos(pitch), -sin(pitch)], [0, sin(pitch), cos(pitch)]])
    turn = about_z @ about_x @ about_y
    width = np.ptp(plate.quad[:, 0])
    centre = plate.quad.mean(axis=0)
    to_units = np.array([[1, 0, -centre[0]], [0, 1, -centre[1]], [0, 0, width]]) / width
    # Plate points have z = 0, so the turn's third column drops out.
    camera = np.column_stack([turn[:, 0], turn[:, 1], [0, 0, distance]])
    camera[:2] *= distance
    homography: FloatArray = camera @ to_units
    return homography


def apply_homography(homography: FloatArray, points: FloatArray | Quad) -> FloatArray:
    """Map (N, 2) points; returns (N, 2) float64."""
    homogeneous = np.column_stack([points.astype(np.float64), np.ones(len(points))])
    mapped = homogeneous @ homography.T
    result: FloatArray = mapped[:, :2] / mapped[:, 2:]
    return result
