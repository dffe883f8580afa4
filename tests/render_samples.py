"""Renders tests/samples and api/canary.jpg: python tests/render_samples.py

The scenes that `make demo` reads by default and that the live tests post, and the small one
that /readyz sends. Run it again only on purpose: the renderer's code decides what comes
out, and the texts change with it.
"""

import csv
from pathlib import Path

import cv2
import numpy as np

from plate_models.synthetic.scenes import Scene, render_scene

SAMPLES = Path(__file__).parent / "samples"
CANARY = Path(__file__).parent.parent / "api" / "canary.jpg"
LANDSCAPE, PORTRAIT = (1280, 720), (960, 1280)
# Name: seed and size.
SCENES = {
    "green_car": (101, LANDSCAPE),
    "two_at_night": (102, LANDSCAPE),
    "black_car_in_winter": (105, LANDSCAPE),
    "blue_car": (107, LANDSCAPE),
    "white_car_in_snow": (108, LANDSCAPE),
    "two_by_day": (110, LANDSCAPE),
    "portrait": (125, PORTRAIT),
}


def main() -> None:
    SAMPLES.mkdir(exist_ok=True)
    with (SAMPLES / "plates.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("photo", "text", "x0", "y0", "x1", "y1"))
        for name, (seed, size_wh) in SCENES.items():
            path = SAMPLES / f"{name}.jpg"
            for plate in render(path, seed, size_wh).plates:
                writer.writerow((f"{name}.jpg", plate.text, *(f"{side:.1f}" for side in plate.box)))
    render(CANARY, 105, (640, 360))


def render(path: Path, seed: int, size_wh: tuple[int, int]) -> Scene:
    scene = render_scene(np.random.default_rng(seed), size_wh)
    cv2.imwrite(str(path), scene.image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 88])
    return scene


if __name__ == "__main__":
    main()
