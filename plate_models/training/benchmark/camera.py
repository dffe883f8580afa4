"""A pinhole camera, and the poses of vehicles and plates in front of it.

Lengths are in millimetres; the camera faces +z, x points right and y down.
"""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy.spatial.transform import Rotation

from plate_models.training.imaging import Floats, apply_homography, box_corners
from plate_models.training.tables import Range

Sizes = tuple[tuple[int, int], tuple[int, int]]

_YAW_DEG, _ROLL_DEG = 38.0, 5.0
# A camera over a gate points down at plates, a camera behind a windscreen hardly does.
_GATE_PITCH_DEG, _DASHCAM_PITCH_DEG = (2.0, 26.0), (-4.0, 7.0)
_MOUNT_DEG = 4.0
_MOST_OBLIQUE_DEG = 48.0
_RIM_PX = 8.0
_TRIES = 40


@dataclass(frozen=True)
class Camera:
    """A pinhole camera: image size (w, h) and focal length, in pixels."""

    size_wh: tuple[int, int]
    focal: float

    @property
    def matrix(self) -> Floats:
        """The (3, 3) intrinsic matrix, from directions to pixels."""
        width, height = self.size_wh
        return np.array([[self.focal, 0, width / 2], [0, self.focal, height / 2], [0, 0, 1]])


@dataclass(frozen=True)
class Frame:
    """The pose of a vehicle or a plate in camera space."""

    origin: Floats  # (3,)
    turn: Floats  # (3, 3) rotation, whose columns point right, down and away from the viewer

    def homography(self, camera: Camera) -> Floats:
        """(3, 3), from millimetres in the frame's plane (right, down) to pixels."""
        return camera.matrix @ np.column_stack((self.turn[:, :2], self.origin))

    def quad(self, camera: Camera, size_mm: tuple[float, float]) -> Floats:
        """(4, 2) corners TL, TR, BR, BL in pixels of a plate centred on the origin."""
        corners = box_corners(*size_mm) - np.array(size_mm) / 2
        return apply_homography(self.homography(camera), corners)

    def is_whole(self, camera: Camera, size_mm: tuple[float, float], rim_px: float = 0) -> bool:
        """Whether a plate on the origin is in the image, at least ``rim_px`` from the edges."""
        quad = self.quad(camera, size_mm)
        return bool((quad > rim_px).all() and (quad < np.array(camera.size_wh) - rim_px).all())

    def scale(self, camera: Camera, size_mm: tuple[float, float]) -> float:
        """Pixels per millimetre along the more foreshortened side of a plate on the origin."""
        quad = self.quad(camera, size_mm)
        sides = np.hypot(*(np.roll(quad, -1, axis=0) - quad).T)
        return float(((sides[:2] + sides[2:]) / size_mm).min() / 2)

    @property
    def normal(self) -> Floats:
        """(3,) unit vector that the front faces."""
        return -self.turn[:, 2]

    @property
    def oblique(self) -> bool:
        """Whether the angle between line of sight and normal makes plates illegible."""
        cosine = -self.normal @ self.origin / np.linalg.norm(self.origin)
        return bool(cosine < np.cos(np.radians(_MOST_OBLIQUE_DEG)))


def turn_about(axes: str, *degrees: float) -> Floats:
    """(3, 3) intrinsic rotation: about each axis in turn, as the rotations before it left it."""
    return np.asarray(Rotation.from_euler(axes.upper(), degrees, degrees=True).as_matrix())


def sample_camera(
    rng: Generator, sizes_wh: Sizes, small_share: float, focal: Range, gate_share: float = 1
) -> tuple[Camera, Floats]:
    """Draw a camera over a gate or behind a windscreen.

    The image has the first of the sizes, with the probability ``small_share``, or the second; the
    focal length is from a range in image widths. Returns the camera, and its roll and pitch (3, 3).
    """
    size_wh = sizes_wh[int(rng.random() >= small_share)]
    camera = Camera(size_wh, float(rng.uniform(*focal)) * size_wh[0])
    over_gate = gate_share == 1 or rng.random() < gate_share
    pitch_deg = _GATE_PITCH_DEG if over_gate else _DASHCAM_PITCH_DEG
    return camera, turn_about("zx", rng.uniform(-_ROLL_DEG, _ROLL_DEG), rng.uniform(*pitch_deg))


def sample_frames(
    rng: Generator, camera: Camera, size_mm: tuple[float, float], px_per_mm: float, tilt: Floats
) -> tuple[Frame, Frame]:
    """Place a vehicle so that its whole plate is in the image, at a given size.

    Returns the frames of the vehicle and of the plate, both with the plate's middle as origin.
    """
    width, height = camera.size_wh
    for _ in range(_TRIES):
        turn = tilt @ turn_about("y", rng.uniform(-_YAW_DEG, _YAW_DEG))
        mount = turn @ turn_about("xz", rng.normal(0, _MOUNT_DEG), rng.normal(0, 1))
        place = np.array([rng.uniform(0.12, 0.88) * width, rng.uniform(0.3, 0.9) * height, 1])
        sight = np.linalg.solve(camera.matrix, place)
        plate = _at_scale(camera, sight, mount, size_mm, px_per_mm)
        if plate.is_whole(camera, size_mm, _RIM_PX) and not plate.oblique:
            return Frame(plate.origin, turn), plate
    ahead = np.linalg.solve(camera.matrix, np.array([width / 2, height / 2, 1]))
    return (_at_scale(camera, ahead, np.eye(3), size_mm, px_per_mm),) * 2


def _at_scale(
    camera: Camera, sight: Floats, turn: Floats, size_mm: tuple[float, float], px_per_mm: float
) -> Frame:
    """Move a plate along a line of sight until it has the given size."""
    depth = camera.focal / px_per_mm
    for _ in range(3):
        plate = Frame(sight * depth, turn)
        depth *= plate.scale(camera, size_mm) / px_per_mm
    return plate
