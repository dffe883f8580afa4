"""A picture in the making, and how flat things come into it."""

from dataclasses import dataclass, field

import cv2
import numpy as np

from plate_models.training.benchmark.camera import Camera, Floats, transform
from plate_models.training.benchmark.light import Light
from plate_models.training.benchmark.textures import Field, Image, Picture

_TO_LINEAR = ((np.arange(256) / 255) ** 2.2).astype(np.float32)


@dataclass
class Stage:
    """A picture in the making.

    Attributes:
        albedo: (H, W, 3) uint8 RGB.
        lit: (H, W) float32, the share of directed light.
        glow: (H, W) float32, light of lamps in the picture.
    """

    albedo: Image
    lit: Field
    glow: Field = field(init=False)

    def __post_init__(self) -> None:
        self.glow = np.zeros_like(self.lit)

    def shine(self, light: Light) -> Field:
        """(H, W, 3) float32 linear light."""
        colours = cv2.split(np.asarray(cv2.LUT(self.albedo, _TO_LINEAR), np.float32))
        lamps = bool(self.glow.any())
        halo = _halo(self.glow) if lamps else self.glow
        channels = []
        for colour, direct, ambient in zip(colours, light.direct, light.ambient, strict=True):
            seen = colour * (self.lit * np.float32(direct) + np.float32(ambient))
            channels.append(seen + colour * self.glow + 0.03 * halo if lamps else seen)
        return np.asarray(cv2.merge(channels), np.float32)

    def fill(self, camera: Camera, points: Floats, colour: tuple[float, ...], share: float) -> None:
        """Fill a polygon in space, (N, 3) in camera space, if all of it lies before the camera."""
        if points[:, 2].min() < 200:
            return
        path = np.rint(camera.project(points)).astype(np.int32)
        cv2.fillPoly(self.albedo, [path], colour, cv2.LINE_AA)
        cv2.fillPoly(self.lit, [path], (share,))


def window(shape: tuple[int, ...], view: Floats, size_wh: tuple[int, ...]) -> tuple[slice, slice]:
    """Rows and columns of the picture that something of a shape (h, w, ...) appears in."""
    height, width = shape[:2]
    hull = transform(view, np.array([(0, 0), (width, 0), (width, height), (0, height)]))
    limit = np.array(size_wh) - 1
    x0, y0 = np.clip(np.floor(hull.min(axis=0)), 0, limit).astype(int).tolist()
    x1, y1 = np.clip(np.ceil(hull.max(axis=0)), 0, limit).astype(int).tolist()
    return slice(y0, y1 + 1), slice(x0, x1 + 1)


def warp(
    image: Picture,
    view: Floats,
    size_wh: tuple[int, int],
    border: int = cv2.BORDER_REPLICATE,
) -> Picture:
    """`cv2.warpPerspective`, whose places are pixels' middles, for places from corners."""
    half = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
    matrix = np.linalg.inv(half) @ view @ half
    flags = cv2.INTER_LINEAR
    warped = cv2.warpPerspective(image, matrix, size_wh, flags=flags, borderMode=border)
    return np.asarray(warped, image.dtype)


def _halo(glow: Field) -> Field:
    small = cv2.resize(glow, None, fx=0.25, fy=0.25, interpolation=cv2.INTER_AREA)
    soft = cv2.GaussianBlur(small, (0, 0), 6)
    return np.asarray(cv2.resize(soft, glow.shape[::-1]), np.float32)
