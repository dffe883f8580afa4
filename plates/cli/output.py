"""What `plates read` writes to stdout: a table, JSON lines or CSV."""

import csv
import json
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from plates.cli.inputs import Picture

if TYPE_CHECKING:
    from api.schemas import Plate

Writer = Callable[[Picture, "list[Plate]"], None]

CSV_COLUMNS = (
    "file",
    "frame",
    "time_s",
    "text",
    "format",
    "score",
    "readable",
    "detection_score",
    "x0",
    "y0",
    "x1",
    "y1",
)
_NAME_WIDTH = 40


def json_writer(model: Mapping[str, str]) -> Writer:
    """One JSON object per picture, one per line; each says what model read it."""

    def write(picture: Picture, plates: "list[Plate]") -> None:
        height, width = picture.image.shape[:2]
        line: dict[str, Any] = {"file": str(picture.file)}
        if picture.frame is not None:
            line |= {"frame": picture.frame, "time_s": picture.time_s}
        line["image"] = {"width": width, "height": height}
        line["plates"] = [plate.model_dump() for plate in plates]
        line["model"] = dict(model)
        print(json.dumps(line, ensure_ascii=False))

    return write


def csv_writer() -> Writer:
    """A header now, then one row per plate."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)

    def write(picture: Picture, plates: "list[Plate]") -> None:
        for plate in plates:
            place = (str(picture.file), picture.frame, picture.time_s)
            readable = str(plate.readable).lower()
            reading = (plate.text, plate.format, plate.score, readable, plate.detection_score)
            writer.writerow((*place, *reading, *plate.box))

    return write


def table_writer() -> Writer:
    """A heading now, then one line per plate; photos without plates show a dash."""
    print(f"{'photo':<{_NAME_WIDTH}} {'text':<12} {'format':<14} {'score':>6}")

    def write(picture: Picture, plates: "list[Plate]") -> None:
        name = str(picture.file)
        if picture.time_s is not None:
            name += f" {picture.time_s:.2f}s"
        name = shortened(name, _NAME_WIDTH)
        for plate in plates:
            reading = f"{plate.text or '?':<12} {plate.format:<14} {plate.score:>6.3f}"
            print(f"{name:<{_NAME_WIDTH}} {reading}")
        if not plates and picture.frame is None:
            print(f"{name:<{_NAME_WIDTH}} -")

    return write


def shortened(name: str, width: int) -> str:
    """Fit a path into a column: its end tells more than its start."""
    return name if len(name) <= width else "…" + name[1 - width :]
