"""A pinhole camera, and how vehicles and their plates stand before it.

Lengths in millimetres; the camera looks along +z, x points right and y down. Pixels are
counted from the corner of the first one, not from its centre.
"""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Floats = NDArray[np.float64]

YAW_DEG, ROLL_DEG = 38.0, 5.0
# A camera over a gate looks down on plates, one behind a windscreen hardly.
GATE_PITCH_DEG, DASHCAM_PITCH_DEG = (2.0, 26.0), (-4.0, 7.0)
_MOUNT_DEG = 4.0
# Between the line of sight and the plate's normal.
MOST_OBLIQUE_DEG = 48.0
_RIM_PX = 8.0
_TRIES = 40


@dataclass(frozen=True)
class Camera:
    """A pinhole: picture size (w, h) and focal length, in pixels."""

    size_wh: tuple[int, int]
    focal: float

    @property
    def matrix(self) -> Floats:
        """(3, 3), from directions to pixels."""
        width, height = self.size_wh
        return np.array([[self.focal, 0, width / 2], [0, self.focal, height / 2], [0, 0, 1]])

    def project(self, points: Floats) -> Floats:
        """(N, 3) points before the camera to (N, 2) pixels."""
        return pixels_of(self.matrix, points)


@dataclass(frozen=True)
class Plane:
    """A plane in space: an origin and the axes on it, (3,) each, the axes of unit length."""

    origin: Floats
    right: Floats
    down: Floats

    def homography(self, camera: Camera) -> Floats:
        """(3, 3), from millimetres on the plane to pixels."""
        return camera.matrix @ np.column_stack((self.right, self.down, self.origin))

    @property
    def normal(self) -> Floats:
        """Towards those who see the plane's front."""
        return np.cross(self.down, self.right)


@dataclass(frozen=True)
class Pose:
    """Where a vehicle stands."""

    centre: Floats  # (3,) of its plate
    turn: Floats  # (3, 3) the vehicle's axes as columns: right, down, away
    plate: Plane  # the plate's plane, its origin in the plate's middle

    def at(self, points: Floats) -> Floats:
        """(N, 3) points in the vehicle's axes, counted from its plate, to camera space."""
        placed: Floats = points @ self.turn.T + self.centre
        return placed

    @property
    def face(self) -> Plane:
        """The vehicle's front or rear face."""
        return Plane(self.centre, self.turn[:, 0], self.turn[:, 1])


def pixels_of(matrix: Floats, points: Floats) -> Floats:
    """Map (N, 3) homogeneous points by a (3, 3) matrix; returns (N, 2)."""
    mapped = points @ matrix.T
    result: Floats = mapped[:, :2] / mapped[:, 2:]
    return result


def transform(homography: Floats, points: Floats) -> Floats:
    """Map (N, 2) points of a plane by its homography; returns (N, 2)."""
    return pixels_of(homography, np.column_stack((points, np.ones(len(points)))))


def corners_of(size_mm: tuple[float, float]) -> Floats:
    """(4, 2) corners TL, TR, BR, BL of a plate about its middle, in millimetres."""
    return np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) / 2 * size_mm


def turn_about(axis: int, degrees: float) -> Floats:
    """(3, 3) rotation about the x, y or z axis."""
    cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    matrix = np.eye(3)
    i, j = (axis + 1) % 3, (axis + 2) % 3
    matrix[[i, j, i, j], [i, j, j, i]] = cos, cos, -sin, sin
    return matrix


def sample_pose(
    rng: Generator,
    camera: Camera,
    size_mm: tuple[float, float],
    px_per_mm: float,
    zone: tuple[float, float],
    tilt: Floats,
) -> Pose:
    """Place a vehicle so that its plate is seen whole, at a given size."""
    width, height = camera.size_wh
    for _ in range(_TRIES):
        turn = tilt @ turn_about(1, rng.uniform(-YAW_DEG, YAW_DEG))
        mount = turn @ turn_about(0, rng.normal(0, _MOUNT_DEG)) @ turn_about(2, rng.normal(0, 1))
        place = np.array([rng.uniform(*zone) * width, rng.uniform(0.3, 0.9) * height, 1])
        sight = np.linalg.solve(camera.matrix, place)
        pose = _at_scale(camera, sight, turn, mount, size_mm, px_per_mm)
        quad = transform(pose.plate.homography(camera), corners_of(size_mm))
        oblique = -pose.plate.normal @ sight / np.linalg.norm(sight)
        inside = quad.min() > _RIM_PX and bool((quad < np.array((width, height)) - _RIM_PX).all())
        if inside and oblique > np.cos(np.radians(MOST_OBLIQUE_DEG)):
            return pose
    ahead = np.linalg.solve(camera.matrix, np.array([np.mean(zone) * width, height / 2, 1]))
    return _at_scale(camera, ahead, np.eye(3), np.eye(3), size_mm, px_per_mm)


def _at_scale(
    camera: Camera,
    sight: Floats,
    turn: Floats,
    mount: Floats,
    size_mm: tuple[float, float],
    px_per_mm: float,
) -> Pose:
    """Move a vehicle along a line of sight until its plate has the size asked for."""
    depth = camera.focal / px_per_mm
    for _ in range(3):
        pose = Pose(sight * depth, turn, Plane(sight * depth, mount[:, 0], mount[:, 1]))
        quad = transform(pose.plate.homography(camera), corners_of(size_mm))
        sides = np.hypot(*(np.roll(quad, -1, axis=0) - quad).T)
        depth *= min((sides[0] + sides[2]) / size_mm[0], (sides[1] + sides[3]) / size_mm[1]) / (
            2 * px_per_mm
        )
    return pose
