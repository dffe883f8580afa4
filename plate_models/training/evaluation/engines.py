"""An engine against the float32 reference: does speed cost accuracy?"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from plate_models.engines.nets import Nets
from plate_models.images import decode
from plate_models.training.benchmark import BenchmarkPhoto
from plate_models.training.evaluation.agreement import PhotoAgreement
from plate_models.training.evaluation.agreement_crops import CropAgreement
from plate_models.training.evaluation.labelled import Progress, labelled_folder
from plate_models.training.labels import LabelledPhoto


@dataclass(frozen=True)
class EngineReport:
    """What differs from the reference.

    Attributes:
        engine: Which is compared, and where it runs.
        crops: Plates in given boxes, without the detector.
        photos: Photos end to end; None if there are none.
        rendered: The rendered benchmark end to end; None if it was not asked for.
    """

    engine: str
    crops: CropAgreement
    photos: PhotoAgreement | None = None
    rendered: PhotoAgreement | None = None

    @property
    def passed(self) -> bool:
        """Whether no more texts of crops differ than may."""
        return self.crops.passed

    def lines(self) -> list[str]:
        """The report for a terminal."""
        lines = [f"{self.engine}, against the reference: torch, float32", "", *self.crops.lines()]
        parts = (("Real photos", self.photos), ("Rendered benchmark", self.rendered))
        for name, part in parts:
            lines += ["", f"{name}: not compared"] if part is None else ["", name, *part.lines()]
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values."""
        return {
            "engine": self.engine,
            "passed": self.passed,
            "crops": self.crops.to_dict(),
            "photos": self.photos.to_dict() if self.photos else None,
            "rendered": self.rendered.to_dict() if self.rendered else None,
        }


def photos_of(data: Path) -> list[LabelledPhoto]:
    """List every photo of a data folder, those without plates as well.

    Args:
        data: As for `labelled.evaluate`.

    Raises:
        FileNotFoundError: There is no folder of photos.
    """
    files = sorted((labelled_folder(data) / "images").iterdir())
    files += sorted((data / "no_plates").glob("*.jpg"))
    return [LabelledPhoto(file) for file in files]


def compare_photos(
    photos: list[LabelledPhoto], reference: Nets, nets: Nets, progress: Progress = iter
) -> PhotoAgreement:
    """Read photos on both engines.

    Args:
        photos: Whose files are read; their labels are not looked at.
        reference: In float32.
        nets: What is held against it.
        progress: Wraps the list of photos, for a progress bar.
    """
    agreement = PhotoAgreement()
    for photo in progress(photos):
        image = torch.from_numpy(decode(photo.path.read_bytes()))
        agreement.add(photo.path.name, reference.read(image), nets.read(image))
    return agreement


def compare_rendered(
    photos: Iterable[BenchmarkPhoto], reference: Nets, nets: Nets
) -> PhotoAgreement:
    """Read photos of the rendered benchmark on both engines."""
    agreement = PhotoAgreement()
    for photo in photos:
        image = torch.from_numpy(decode(photo.file))
        agreement.add(photo.name, reference.read(image), nets.read(image))
    return agreement
