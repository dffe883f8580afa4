"""What plates are fixed with: screws, and holders that advertise a dealer."""

import cv2
import numpy as np
import numpy.typing as npt

from plate_models.training.synthetic.glyphs import Mask

Image = npt.NDArray[np.uint8]

_SCREW_COLOURS = (
    (25, 25, 25), (60, 60, 62), (110, 110, 112), (165, 165, 165), (225, 225, 225),
    (95, 62, 40), (120, 85, 50), (190, 165, 95), (140, 25, 30),
)  # fmt: skip

_AD_TEXTS = (
    "www.autos.example", "OFFICIAL DEALER", "AUTO SALON", "tel. (000) 123-45-67", "RUSSIA",
    "MOTOR CENTER", "(000) 333-44-55", "SANKT-PETERBURG", "MOSKVA", "TRADE-IN & SERVICE",
    "GARAGES", "SEVER", "www.motorcar.example", "0 000 555-00-11", "PREMIUM CARS",
)  # fmt: skip
_AD_FONTS = (cv2.FONT_HERSHEY_SIMPLEX, cv2.FONT_HERSHEY_DUPLEX, cv2.FONT_HERSHEY_TRIPLEX)
# Black plastic mostly; grey, chrome and white ones less often.
_HOLDER_TONES = (12.0, 20.0, 30.0, 42.0, 60.0, 150.0, 215.0)
_FULL_WIDTH_MM = 520.0


def draw_screws(
    rgb: Image,
    rng: np.random.Generator,
    px_per_mm: float,
    places_mm: tuple[tuple[float, float], ...],
    shares: tuple[float, float],
    radius_mm: tuple[float, float],
) -> None:
    """Screw a plate to the car, in place.

    Args:
        rgb: (H, W, 3) uint8, the flat plate.
        rng: Source of all chance.
        px_per_mm: The picture's resolution.
        places_mm: The standard places.
        shares: Chances of a screw at each standard place, and of a stray one.
        radius_mm: Range of the radius of the heads.
    """
    chosen = [place for place in places_mm if rng.random() < shares[0]]
    height, width = rgb.shape[0] / px_per_mm, rgb.shape[1] / px_per_mm
    while rng.random() < shares[1]:
        rows = 9, height / 2, height - 9
        chosen.append((float(rng.uniform(12, width - 12)), float(rng.choice(rows))))
    radius = float(rng.uniform(*radius_mm))
    colour = np.array(_SCREW_COLOURS[rng.integers(len(_SCREW_COLOURS))], np.float64)
    shift = 4
    sub = px_per_mm * (1 << shift)
    for x, y in chosen:
        offset = rng.normal(0, 2.2, 2)
        centre = round((x + offset[0]) * sub), round((y + offset[1]) * sub)
        size = max(radius * rng.uniform(0.85, 1.15), 0.8 / px_per_mm)
        for part, factor in ((1.25, 0.55), (1.0, 1.0), (0.45, rng.uniform(0.6, 1.0))):
            tone = [float(c) for c in colour * factor]
            cv2.circle(rgb, centre, round(size * part * sub), tone, -1, cv2.LINE_AA, shift)


def _write_advertisement(
    rgb: Image, rng: np.random.Generator, rows: tuple[int, int], tone: float
) -> None:
    """Write one to three phrases between two rows of the holder."""
    height = (rows[1] - rows[0]) * rng.uniform(0.35, 0.7)
    colour = [float(c) for c in np.clip(tone + rng.normal(0, 15, 3), 0, 255)]
    font = _AD_FONTS[rng.integers(len(_AD_FONTS))]
    x = rgb.shape[1] * rng.uniform(0.03, 0.5)
    for _ in range(int(rng.integers(1, 4))):
        text = _AD_TEXTS[rng.integers(len(_AD_TEXTS))]
        place = round(x), round((sum(rows) + height) / 2)
        thick = 1 if height < 18 else 2
        cv2.putText(rgb, text, place, font, height / 22, colour, thick, cv2.LINE_AA)
        x += len(text) * height * 0.85 + rgb.shape[1] * rng.uniform(0.02, 0.2)
        if x > 0.85 * rgb.shape[1]:
            break


def _sample_bars_mm(rng: np.random.Generator) -> tuple[float, float, float]:
    """Widths of a holder's side, upper and lower bars, in millimetres."""
    side, upper = rng.uniform(2, 11, 2)
    if rng.random() < 0.08:
        upper = rng.uniform(14, 24)
    lower = rng.uniform(12, 26) if rng.random() < 0.7 else rng.uniform(3, 9)
    return float(side), float(upper), float(lower)


def mount(
    plate: Image, outline: Mask, rng: np.random.Generator, px_per_mm: float
) -> tuple[Image, tuple[int, int]]:
    """Put a plate in a holder.

    Args:
        plate: (H, W, 3) uint8.
        outline: (H, W) uint8; 0 outside the plate's round corners.
        rng: Source of all chance.
        px_per_mm: The plate's resolution.

    Returns:
        The holder's (H', W', 3) uint8 picture and the plate's place (x, y) in it.
    """
    height, width = plate.shape[:2]
    # Small plates have slimmer holders.
    slim = (width / px_per_mm / _FULL_WIDTH_MM) ** 0.5
    side, upper, lower = (round(mm * slim * px_per_mm) for mm in _sample_bars_mm(rng))
    tone = _HOLDER_TONES[rng.integers(len(_HOLDER_TONES))]
    rgb = np.empty((height + upper + lower, width + 2 * side, 3), np.uint8)
    corner = rgb.shape[1], rgb.shape[0]
    colour = [float(c) for c in np.clip(tone + rng.normal(0, 4, 3), 0, 255)]
    cv2.rectangle(rgb, (0, 0), corner, colour, -1)
    # The upper edge catches light from the sky.
    edge = [min(255.0, c + rng.uniform(0, 40)) for c in colour]
    cv2.rectangle(rgb, (0, 0), (corner[0], upper // 3), edge, -1)
    letters = 225.0 if tone < 100 else 35.0
    letters += (tone - letters) * rng.uniform(0, 0.6)
    for rows in ((0, upper), (height + upper, height + upper + lower)):
        if rows[1] - rows[0] > 10 * px_per_mm and rng.random() < 0.8:
            _write_advertisement(rgb, rng, rows, letters)
    # Many holders clasp the plate and hide its rim.
    lip = round(max(0.0, rng.uniform(-3, 4.5)) * px_per_mm)
    shown = slice(lip, height - lip), slice(lip, width - lip)
    window = rgb[upper : upper + height, side : side + width][shown]
    cv2.copyTo(plate[shown], outline[shown], dst=window)
    return rgb, (side, upper)
