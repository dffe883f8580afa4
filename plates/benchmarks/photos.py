"""The photo that every figure of speed is about, and the rendered scenes of tests/samples."""

from functools import cache
from pathlib import Path

from plates.cli import CommandError
from plates.cli.samples import SAMPLES, expected_texts

STANDARD_WH = (1920, 1080)
STANDARD_TEXTS = ("Y287KT754", "C946MX550")
# This seed's scene has two plates, both readable, and nothing else that resembles one.
_STANDARD_SEED = 10
_JPEG_QUALITY = 91


@cache
def standard_photo() -> bytes:
    """Render a street by day with two cars: a JPEG of 350 to 450 kB; see ``STANDARD_TEXTS``."""
    import cv2
    import numpy as np

    from plate_models.synthetic.scenes import render_scene

    scene = render_scene(np.random.default_rng(_STANDARD_SEED), STANDARD_WH, plates=2)
    quality = [int(cv2.IMWRITE_JPEG_QUALITY), _JPEG_QUALITY]
    return cv2.imencode(".jpg", scene.image[..., ::-1], quality)[1].tobytes()


def photo_or_standard(path: Path | None) -> bytes:
    """The file of --photo, or the standard photo."""
    try:
        return path.read_bytes() if path else standard_photo()
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from error


def samples() -> dict[Path, list[str]]:
    """The scenes of tests/samples, each with the texts that must be read in it."""
    found = expected_texts(sorted(SAMPLES.glob("*.jpg")))
    if not found:
        raise CommandError(f"{SAMPLES} holds no photos that its plates.csv names")
    return found
