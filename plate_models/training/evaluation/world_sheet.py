"""The contact sheet of what is read on photos of other countries, for a person to judge."""

from collections.abc import Sequence

from PIL import Image

from plate_models.training.evaluation.sheet import FOUND_RGB, Cell, LoadPhoto, grid, heading, stack
from plate_models.training.evaluation.world import WorldReport


def world_sheet(report: WorldReport, load: LoadPhoto, about: Sequence[str]) -> Image.Image:
    """Draw every readable text of the photos of other countries with its place.

    Args:
        report: What was read.
        load: Gives the photos.
        about: Lines for the sheet's head, such as the weights and the date.

    Returns:
        The sheet, RGB.
    """
    title = f"Readable texts: {len(report.readable)} on {report.photos} photos"
    question = "Is it a Russian plate, and is that what stands on it? Everything else is wrong."
    cells = [
        Cell(a.photo, [(a.box, FOUND_RGB)], a.crop, a.text, f"score {a.score:.3f}, {a.format}")
        for a in report.readable
    ]
    return stack([heading(title, [*about, "", question]), *grid(cells, load)])
