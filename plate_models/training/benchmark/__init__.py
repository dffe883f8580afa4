"""The rendered benchmark: photos of plates from a renderer that training never sees.

With training it shares only what defines a plate: glyphs, kinds with their layouts and
ranges of colours, texts. Backgrounds, vehicles, light, wear, lens, sensor and camera are
its own. It is meant as a fair test of legible plates as a camera over a gate or behind a
windscreen sees them; what a person can read decided its ranges, not what our nets can:

- Photos of 960x540 or 1280x720 pixels with one plate, every eighth with two.
- The smallest characters (those of the region) are 9 to 36 pixels high along the plate's
  more foreshortened side, logarithmically: plates of type 1 are about 80 to 350 pixels wide,
  those with two lines 50 to 250.
- Yaw up to 38 degrees either way, roll up to 5; a gate's camera looks down by 2 to 26
  degrees, a dashcam by -4 to 7. Nothing is more than 48 degrees from the plate's normal.
- Defocus and motion blur spread a point over at most 0.17 and 0.18 of those characters'
  height. Sensors hold 700 to 25,000 electrons; JPEG quality is 48 to 95.
- Exposure puts the plate's white at 0.22 to 0.9 of what saturates. Shadows keep the
  ambient light; dirt hides no character.
"""

from plate_models.training.benchmark.photos import (
    PER_KIND,
    SEED,
    BenchmarkPhoto,
    BenchmarkPlate,
    photo_named,
    render_photo,
    render_photos,
)

__all__ = [
    "PER_KIND",
    "SEED",
    "BenchmarkPhoto",
    "BenchmarkPlate",
    "photo_named",
    "render_photo",
    "render_photos",
]
