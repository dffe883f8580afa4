"""The photos that every measurement of speed uses, rendered here and so the same for all.

`standard_photo` is what a camera at a gate sends. `photo_with` varies how many plates there
are and how many pixels, and nothing else: what it costs more is theirs.
"""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

STANDARD_WH = (1920, 1080)
STANDARD_TEXTS = ("Y287KT754", "C946MX550")
# This seed's scene has two plates, both readable, and nothing else that looks like one.
_STANDARD_SEED = 10
# Cars across and down in the car park.
_GRID = 8
_GRID_SEED = 1
# From this seed on every car has a plate that the detector sees and the recognizer reads.
_CAR_SEED = 300
_MOST_MEGAPIXELS = 12
# Of a car, in half widths.
_CAR_HEIGHT = 1.25
# Plates are larger than true, or they would be too small to read in 1 megapixel.
_PLATE_SHARE = 0.5
_JPEG_QUALITY = 91


@cache
def standard_photo() -> bytes:
    """Render the standard photo: a street by day, two cars with readable plates.

    Returns:
        A JPEG file of 1920x1080 pixels and 350 to 450 kB. It says ``STANDARD_TEXTS``.
    """
    import numpy as np

    from plate_models.training.synthetic.scenes import render_scene

    scene = render_scene(np.random.default_rng(_STANDARD_SEED), STANDARD_WH, plates=2)
    return _jpeg(scene.image)


@cache
def photo_with(plates: int, megapixels: float) -> bytes:
    """Render a car park by day, seen from behind the cars, each with its plate.

    It has 64 places, all of one size; so many of them are taken. A larger photo shows the
    same cars in more pixels.

    Args:
        plates: How many, 1 to 64.
        megapixels: Of the photo, 16:9, 1 to 12.

    Returns:
        A JPEG file.

    Raises:
        ValueError: Fewer or more were asked for.
    """
    if not (1 <= plates <= _GRID**2 and 1 <= megapixels <= _MOST_MEGAPIXELS):
        raise ValueError(
            f"expected 1 to {_GRID**2} plates and 1 to {_MOST_MEGAPIXELS} megapixels, "
            f"got {plates} and {megapixels:g}"
        )
    import cv2
    import numpy as np

    unit = (megapixels * 1e6 / (16 * 9)) ** 0.5
    width, height = round(16 * unit), round(9 * unit)
    rng = np.random.default_rng(_GRID_SEED)
    asphalt = 118
    canvas = np.full((height, width, 3), asphalt, np.float32)
    # Taken in a random order, the same for all: few cars stand all over the place, too.
    for slot in sorted(rng.permutation(_GRID**2)[:plates].tolist()):
        row, column = divmod(slot, _GRID)
        rows, columns = (
            slice(index * side // _GRID, (index + 1) * side // _GRID)
            for index, side in ((row, height), (column, width))
        )
        _park(canvas[rows, columns], _CAR_SEED + slot)
    canvas = np.asarray(cv2.GaussianBlur(canvas, (0, 0), 0.6), np.float32)
    canvas += rng.normal(0, 3.5, canvas.shape).astype(np.float32)
    return _jpeg(np.clip(canvas, 0, 255).astype(np.uint8))


def _park(place: "Floats", seed: int) -> None:
    """Draw a car with its plate in a place of the grid, in place."""
    import numpy as np

    from plate_models.training.synthetic.kinds import CAR
    from plate_models.training.synthetic.placing import overlay_plate, see_plate
    from plate_models.training.synthetic.texts import sample_text
    from plate_models.training.synthetic.vehicles import PAINTS, Vehicle, draw_vehicle

    rng = np.random.default_rng(seed)
    height, width = place.shape[:2]
    paint = PAINTS[rng.integers(len(PAINTS))]
    car = Vehicle(
        width / 2, 0.97 * height, 0.86 * width, _CAR_HEIGHT, rear=True, paint=paint, lit=False
    )
    drawn = place.copy()  # OpenCV draws on contiguous pictures
    draw_vehicle(drawn, car, rng)
    (x, y), half = car.plate_centre, _PLATE_SHARE * car.width / 2
    box = np.array([x - half, y - half / 4, x + half, y + half / 4], np.float32)
    plate, view = see_plate(sample_text(rng, CAR), CAR, box, 2 * half, (0.5, 3, 2), rng)
    overlay_plate(drawn, plate, view, np.full(3, 0.95), rng)
    place[:] = drawn


def _jpeg(image: "NDArray[np.uint8]") -> bytes:
    import cv2

    _, file = cv2.imencode(".jpg", image[..., ::-1], [int(cv2.IMWRITE_JPEG_QUALITY), _JPEG_QUALITY])
    return bytes(file)
