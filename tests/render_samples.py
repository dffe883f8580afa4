"""Renders tests/samples and plate_models/golden.jpg where missing: python tests/render_samples.py

The scenes that `make demo` reads by default and that the live tests post, and the small one
that /readyz sends. The renderer's code decides what comes out: older files show what it
drew when they were made, so only those that are not there are rendered.
"""

import csv
from pathlib import Path

import cv2
import numpy as np

from plate_models.training.synthetic.kinds import CAR
from plate_models.training.synthetic.scenes import Scene, render_scene

SAMPLES = Path(__file__).parent / "samples"
CANARY = Path(__file__).parent.parent / "plate_models" / "golden.jpg"
LANDSCAPE, PORTRAIT = (1280, 720), (960, 1280)
COLUMNS = ("photo", "text", "x0", "y0", "x1", "y1", "lines")
# Name: seed, size, kind of the plates.
SCENES = {
    "green_car": (101, LANDSCAPE, CAR),
    "two_at_night": (102, LANDSCAPE, CAR),
    "black_car_in_winter": (105, LANDSCAPE, CAR),
    "blue_car": (107, LANDSCAPE, CAR),
    "white_car_in_snow": (108, LANDSCAPE, CAR),
    "two_by_day": (110, LANDSCAPE, CAR),
    "portrait": (125, PORTRAIT, CAR),
    "taxi_plate": (202, LANDSCAPE, "ru.taxi"),
    "square_plates": (206, LANDSCAPE, "ru.car.square"),
}


def main() -> None:
    SAMPLES.mkdir(exist_ok=True)
    table = SAMPLES / "plates.csv"
    rows = list(csv.DictReader(table.open(encoding="utf-8"))) if table.exists() else []
    for name, (seed, size_wh, kind) in SCENES.items():
        path = SAMPLES / f"{name}.jpg"
        if not path.exists():
            rows = [row for row in rows if row["photo"] != path.name]
            rows += rows_of(path.name, render(path, seed, size_wh, kind))
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="1", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    if not CANARY.exists():
        render(CANARY, 105, (640, 360), CAR)


def rows_of(photo: str, scene: Scene) -> list[dict[str, str]]:
    return [
        dict(zip(COLUMNS, (photo, p.text, *(f"{v:.1f}" for v in p.box), str(p.lines)), strict=True))
        for p in scene.plates
    ]


def render(path: Path, seed: int, size_wh: tuple[int, int], kind: str) -> Scene:
    scene = render_scene(np.random.default_rng(seed), size_wh, kinds=(kind,))
    cv2.imwrite(str(path), scene.image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 88])
    return scene


if __name__ == "__main__":
    main()
