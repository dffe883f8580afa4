"""What belongs to a release beside its nets: what calls them, and a photo that they read."""

import os
import shutil
from pathlib import Path
from typing import Any

import torch

from plate_models import images
from plate_models.contract import GOLDEN_PHOTO
from plate_models.pipeline import PipelineConfig, read_plates
from plate_models.weights import Modules

# The model that calls the nets, and what it runs.
PHOTO_MODEL = "plate_recognition"
PIPELINE = "model.py"


def read_golden(photo: Path, modules: Modules) -> list[dict[str, Any]]:
    """Read a photo with the modules that are exported, on the CPU in float32.

    Args:
        photo: An image file.
        modules: The nets.

    Returns:
        Of each plate that is readable, ready for JSON: ``text``, and ``box`` as x0, y0, x1, y1
        in pixels of the upright photo.

    Raises:
        ImageError: The photo can't be read; see :func:`images.decode`.
    """
    config = PipelineConfig.of(modules.specs, modules.calibration)
    pixels = torch.from_numpy(images.decode(photo.read_bytes()))
    plates = read_plates(pixels, modules.detect, modules.rectify, modules.recognize, config)
    return [
        {"text": plate.reading.text, "box": [round(edge, 2) for edge in plate.box]}
        for plate in plates
        if plate.reading.readable
    ]


def write_pipeline(source: Path, photo: Path, release: Path) -> None:
    """Put what calls the nets, and the golden photo, where the manifest will be.

    Args:
        source: The model.py that releases get a copy of.
        photo: The golden photo.
        release: The version folder of ``plate_recognition``.
    """
    release.mkdir(parents=True, exist_ok=True)
    for file, path in ((source, release / PIPELINE), (photo, release / GOLDEN_PHOTO)):
        if not (path.exists() and path.samefile(file)):
            temporary = path.with_name(f".{os.getpid()}.{path.name}")
            shutil.copyfile(file, temporary)
            temporary.replace(path)
