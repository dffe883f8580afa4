"""Simulates light, lens, sensor and compression on a rendered scene, (H, W, 3) RGB in [0, 255]."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.random import Generator
from scipy.special import ndtr

from plate_models.training import imaging
from plate_models.training.imaging import Field, Floats, Image, shift_by
from plate_models.training.synthetic.wear import blobs
from plate_models.training.tables import Range, log_uniform, pick, tables_of


@dataclass(frozen=True)
class PhotoStyle:
    """The distribution of photos' properties; lengths are in pixels of the scene."""

    dark_share: float = 0.3  # night and dusk
    dark_gain: Range = (0.2, 0.55)  # exposure, as a factor
    day_gain: Range = (0.5, 1.25)
    day_haze: Range = (0, 60)  # light added everywhere, in grey levels
    gamma: Range = (0.75, 1.35)  # exponent of the tone curve
    shadow_share: float = 0.2
    glare_share: float = 0.1
    headlight_share: float = 0  # lamps beside or above the plate
    defocus: float = 0.3  # mean of the blur's standard deviation
    motion_share: float = 0.18
    motion_px: Range = (1.5, 5)  # length of the motion blur
    motion_limit: float = 0.028  # longest motion blur, as a share of the photo's width
    interlace_share: float = 0  # of two fields, taken one after the other
    grey_share: float = 0  # without colour, or a single channel
    resample_share: float = 0.2  # digital zoom: enlarged after capture
    resample_factor: Range = (0.5, 0.9)
    noise: Range = (0.4, 7)  # standard deviation in grey levels, logarithmic
    denoise_share: float = 0.2  # by the camera
    sharpen_share: float = 0.5  # by the camera
    sharpen: Range = (0.3, 2)
    smear_share: float = 0  # denoised so strongly that details are lost
    video_share: float = 0  # frames of a video; the others are JPEGs
    video_quantizer: Range = (18, 40)
    jpeg_quality: Range = (18, 96)
    second_jpeg_share: float = 0.3


_TABLES = tables_of(__file__)


def camera(name: str) -> PhotoStyle:
    """One of the cameras in ``photo.toml``."""
    return PhotoStyle(**_TABLES["cameras"][name])


BAD_CAMERAS = camera("crops")
# Images of strong contrast, at least this wide, are compressed at any quality of the range.
_FULL_WIDTH = 180.0
_ZOOMS = (cv2.INTER_NEAREST, cv2.INTER_LINEAR, cv2.INTER_CUBIC)
_LUMA = np.array([0.299, 0.587, 0.114])
_CAST_SHARES = (0.2, 0.65)  # of photos with a strong colour cast, by day and by night
_H265_SHARE = 0.3  # of videos; the others are H.264
_PRESETS = ("ultrafast", "superfast", "veryfast")
# Smallest frame size; frames consist of whole macroblocks.
_LEAST_WH = (128, 96)
_MACROBLOCK = 16


def _colour_gain(rng: Generator, cast_share: float) -> Floats:
    gain = np.exp(rng.normal(0, 0.025, 3))
    if rng.random() < cast_share:
        gain = gain * np.array(pick(_TABLES["casts"], rng), np.float32) ** rng.uniform(0.3, 1.1)
    return np.asarray(gain)


def _expose(image: Image, rng: Generator, style: PhotoStyle) -> Field:
    """Apply exposure, haze, tone curve and colour cast, by day or by night."""
    dark = rng.random() < style.dark_share
    gain = log_uniform(style.dark_gain if dark else style.day_gain, rng)
    haze = rng.uniform(*((0, 30) if dark else style.day_haze)) * rng.random()
    # The haze has its own tint: shadows get other light than the plate, often blue at night.
    tint, haze_tint = (_colour_gain(rng, _CAST_SHARES[int(dark)]) for _ in range(2))
    levels = np.linspace(0, 1, 256)[:, None] ** rng.uniform(*style.gamma)
    # Highlights roll off: a bright plate loses contrast before it clips.
    lit = levels * 255 * gain * tint + haze * haze_tint
    curve = np.where(lit > 225, 225 + 30 * np.tanh((lit - 225) / 30), lit)
    table = curve.astype(np.float32).reshape(1, 256, 3)
    return np.asarray(cv2.LUT(image, table), np.float32)


def _light_unevenly(image: Field, rng: Generator, style: PhotoStyle) -> Field:
    """Multiply by a smooth light field, and in some photos by a shadow with an edge."""
    height, width = image.shape[:2]
    field = 1 + float(rng.uniform(0, 0.2)) * blobs(rng, (height, width), (3, 4))
    if rng.random() < style.shadow_share:
        soft, depth = max(0.5, rng.uniform(0, 0.05) * width), rng.uniform(0.15, 0.8)
        lit = ndtr(_from_edge(rng, height, width) / soft)
        field = field * (depth + (1 - depth) * lit).astype(np.float32)
    field = np.clip(field, 0.15, 2).astype(np.float32)
    return np.asarray(cv2.multiply(image, cv2.merge((field, field, field))), np.float32)


def _from_edge(rng: Generator, height: int, width: int) -> Floats:
    """Signed distance from a shadow's edge in pixels, (height, width), negative in the shadow.

    The shadow is that of a car or a house, of a fence, or of leaves.
    """
    kind = rng.random()
    if kind < 0.25:
        size = rng.uniform(20, 120)
        cells = max(2, round(height / size)), max(2, round(width / size))
        leaves = blobs(rng, (height, width), cells) + rng.uniform(-0.3, 0.3)
        return np.asarray(leaves * size, np.float64)
    centre, angle = rng.uniform(-0.2, 1.2, 2) * (width, height), rng.uniform(0, 2 * np.pi)
    x = (np.arange(width) - centre[0]) * np.cos(angle)
    y = (np.arange(height) - centre[1]) * np.sin(angle)
    apart = x + y[:, None]
    if kind < 0.5:
        turn = 2 * np.pi / (rng.uniform(0.05, 0.5) * width)
        apart = (np.sin(turn * apart) + rng.uniform(-0.5, 0.5)) / turn
    return np.asarray(apart)


def _add_glare(image: Field, rng: Generator) -> Field:
    """Add a lamp's or a reflection's bloom over a part of the image."""
    height, width = image.shape[:2]
    x = (np.arange(width) / width - rng.uniform(0, 1)) / rng.uniform(0.05, 0.4)
    y = (np.arange(height) / height - rng.uniform(0, 1)) / rng.uniform(0.1, 0.6)
    bloom = np.outer(np.exp(-(y**2)), np.exp(-(x**2))) * rng.uniform(30, 150)
    colour = np.array([1, rng.uniform(0.8, 1), rng.uniform(0.6, 1.1)])
    return np.asarray(image + bloom[..., None] * colour, np.float32)


def _add_headlights(image: Field, rng: Generator) -> Field:
    """Add one or two lamps beside or above the plate, with halo and streak."""
    height, width = image.shape[:2]
    above, side = rng.random() < 0.3, rng.choice((-1, 1))
    for _ in range(int(rng.integers(1, 3))):
        x = rng.uniform(0, 1) if above else 0.5 + side * rng.uniform(0.42, 0.7)
        y = rng.uniform(-0.6, -0.1) if above else rng.uniform(-0.3, 1.2)
        apart_x, apart_y = np.arange(width) - x * width, np.arange(height)[:, None] - y * height
        radius = rng.uniform(0.02, 0.09) * width
        halo = (1 + (apart_x**2 + apart_y**2) / radius**2) ** -rng.uniform(1, 1.6)
        streak = np.exp(-((apart_y / (0.3 * radius)) ** 2)) * rng.uniform(0, 0.1)
        colour = rng.uniform(300, 1200) * np.array([1, rng.uniform(0.85, 1), rng.uniform(0.6, 1.1)])
        image = np.asarray(image + (halo + streak)[..., None] * colour, np.float32)
    return image


def _blur(image: Field, rng: Generator, style: PhotoStyle) -> Field:
    """Apply defocus and motion blur, as far as a plate that fills the image stays readable."""
    width = image.shape[1]
    size = min(max((width / 220) ** 0.8, 0.5), 2.0)
    sigma = min(rng.gamma(1.2, style.defocus / 1.2) * size, 0.0105 * width)
    if sigma > 0.25:
        image = np.asarray(cv2.GaussianBlur(image, (0, 0), sigma), np.float32)
    if rng.random() < style.motion_share:
        limit = float(np.sqrt(max((style.motion_limit * width) ** 2 - (4 * sigma) ** 2, 0)))
        # One pixel longer: the released weights were trained with lines of whole pixels.
        length = min(rng.uniform(*style.motion_px) * size, limit) + 1
        # Cars and cameras move along the road more than up and down.
        angle = rng.normal(0, 0.3) if rng.random() < 0.6 else rng.uniform(0, np.pi)
        kernel = imaging.motion_kernel(length * np.cos(angle), length * np.sin(angle))
        image = np.asarray(cv2.filter2D(image, -1, kernel), np.float32)
    return image


def _interlace(image: Field, rng: Generator) -> Field:
    """Capture every second row a moment later."""
    height, width = image.shape[:2]
    motion = rng.uniform(-0.012, 0.012) * width
    rows = np.zeros_like(image)
    for field in range(2):
        view = shift_by((field - 0.5) * motion, 0)[:2]
        moved = cv2.warpAffine(image, view, (width, height), borderMode=cv2.BORDER_REPLICATE)
        rows[field::2] = moved[field::2]
    return rows


def _lose_colour(image: Field, rng: Generator) -> Field:
    """Keep only luma, one channel, or another mix of channels, as an infrared sensor has."""
    kind = rng.random()
    weights = _LUMA
    if kind > 0.75:
        weights = 0.4 * _LUMA + 0.6 * rng.dirichlet((0.6, 0.6, 0.6))
    elif kind > 0.4:
        # Not blue alone: it doesn't show black ink on yellow.
        weights = np.array([(1, 0, 0), (0, 1, 0), 0.5 * _LUMA + (0, 0, 0.5)])[rng.integers(3)]
    return np.asarray(cv2.transform(image, np.tile(weights, (3, 1))), np.float32)


def _resample(image: Field, rng: Generator, style: PhotoStyle) -> Field:
    """Lose resolution: downscale, then upscale again."""
    height, width = image.shape[:2]
    factor = max(rng.uniform(*style.resample_factor), min(1.0, 110 / width))
    small_wh = max(24, round(width * factor)), max(10, round(height * factor))
    small = cv2.resize(image, small_wh, interpolation=cv2.INTER_AREA)
    kind = _ZOOMS[rng.choice(len(_ZOOMS), p=(0.1, 0.45, 0.45))]
    return np.asarray(cv2.resize(small, (width, height), interpolation=kind), np.float32)


def _add_noise(image: Field, rng: Generator, style: PhotoStyle) -> Field:
    """Add sensor noise: fine in luma, coarser in chroma."""
    height, width = image.shape[:2]
    sigma = log_uniform(style.noise, rng)
    # Shot noise decreases with brightness, but more slowly than the brightness.
    sigma *= min(1.0, 0.25 + float(image.mean()) / 130)
    luma = rng.standard_normal((height, width), np.float32) * np.float32(sigma)
    if rng.random() < 0.3:
        luma += sigma * blobs(rng, (height, width), (1 + height // 3, 1 + width // 3))
    image = np.asarray(cv2.add(image, cv2.merge((luma, luma, luma))), np.float32)
    if rng.random() < 0.5:
        chroma = blobs(rng, (height, width), (1 + height // 4, 1 + width // 4), channels=3)
        strength = rng.uniform(0.3, 0.9) * sigma + rng.uniform(0, 2)
        image = np.asarray(cv2.scaleAdd(chroma, strength, image), np.float32)
    return image


def _process(image: Field, rng: Generator, style: PhotoStyle) -> Image:
    """Sharpen and denoise as cameras do, and clip to uint8."""
    amount, soft = 0.0, image
    if rng.random() < style.sharpen_share:
        soft = np.asarray(cv2.GaussianBlur(image, (0, 0), rng.uniform(0.7, 1.8)), np.float32)
        amount = rng.uniform(*style.sharpen)
    sharp = cv2.addWeighted(image, 1 + amount, soft, -amount, 0, dtype=cv2.CV_8U)
    pixels = np.asarray(sharp, np.uint8)
    if rng.random() < style.denoise_share:
        pixels = np.asarray(cv2.medianBlur(pixels, 3), np.uint8)
    if rng.random() < style.smear_share:
        pixels = np.asarray(cv2.bilateralFilter(pixels, 5, rng.uniform(20, 60), 3), np.uint8)
    return pixels


def _contrast(image: Image) -> float:
    """Standard deviation of detail of a character's size, in grey levels."""
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    side = round(0.08 * image.shape[1]) | 1
    return float(cv2.subtract(grey, cv2.blur(grey, (side, side)), dtype=cv2.CV_16S).std())


def _store(image: Image, rng: Generator, style: PhotoStyle) -> Image:
    """Compress as a video frame or a JPEG, as coarsely as size and contrast allow."""
    if rng.random() < style.video_share:
        low, high = style.video_quantizer
        high = low + (high - low) * min(1, (image.shape[1] / 260) ** 0.5, _contrast(image) / 30)
        return film(image, rng, round(rng.uniform(low, high)))
    low, high = style.jpeg_quality
    # At the lowest qualities, JPEG's 8-pixel blocks erase a tiny or a blurred plate.
    low = min(high, low * max(1.0, _FULL_WIDTH / image.shape[1], 25 / (_contrast(image) + 1)))
    image = imaging.compress(image, int(rng.uniform(low, high)))
    if rng.random() < style.second_jpeg_share:
        image = imaging.compress(image, int(rng.uniform(max(low, 60), high)))
    return image


def _frames(image: Image, rng: Generator) -> list[Image]:
    """Frames of a scene that moves and changes size; the last has it in the top left corner."""
    height, width = image.shape[:2]
    blocks = -(-np.maximum((width, height), _LEAST_WH) // _MACROBLOCK)
    frame_wh = (blocks * _MACROBLOCK).tolist()
    x, y = rng.normal(0, (0.012, 0.004)) * width
    growth, (centre_x, centre_y) = rng.normal(0, 0.006), rng.uniform(0, 1, 2) * (width, height)
    frames = []
    for ago in reversed(range(int(rng.integers(4, 8)))):
        scale = np.exp(-growth * ago)
        view = shift_by(centre_x - x * ago, centre_y - y * ago) @ np.diag((scale, scale, 1.0))
        view = (view @ shift_by(-centre_x, -centre_y))[:2]
        frame = cv2.warpAffine(image, view, frame_wh, borderMode=cv2.BORDER_REFLECT_101)
        frames.append(np.asarray(frame, np.uint8))
    return frames


def film(image: Image, rng: Generator, quantizer: int) -> Image:
    """Compress (H, W, 3) uint8 RGB as the last frame of a video, H.264 or H.265, of a moving scene.

    The codec predicts it from the frames before it. The quantizer is the codec's QP, 0 to 51; a
    higher one is coarser.
    """
    h265, preset = rng.random() < _H265_SHARE, pick(_PRESETS, rng)
    # Slower presets of H.265 take ten times as long as H.264.
    codec, preset = ("libx265", "ultrafast") if h265 else ("libx264", preset)
    frames = _frames(image, rng)
    options = {"preset": preset, "tune": "zerolatency", "qp": str(quantizer)}
    last = imaging.through_codec(frames, codec, **options)[-1]
    return np.ascontiguousarray(last[: image.shape[0], : image.shape[1]])


def photograph(scene: Image, rng: Generator, style: PhotoStyle) -> Image:
    """Photograph an evenly lit scene, (H, W, 3) uint8 RGB; the photo has the same size."""
    image = _light_unevenly(_expose(scene, rng, style), rng, style)
    if rng.random() < style.glare_share:
        image = _add_glare(image, rng)
    if rng.random() < style.headlight_share:
        image = _add_headlights(image, rng)
    image = _blur(image, rng, style)
    if rng.random() < style.interlace_share:
        image = _interlace(image, rng)
    image = _add_noise(image, rng, style)
    if rng.random() < style.grey_share:
        image = _lose_colour(image, rng)
    if rng.random() < style.resample_share:
        image = _resample(image, rng, style)
    return _store(_process(image, rng, style), rng, style)
