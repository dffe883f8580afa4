"""The columns of the result, and the rows of one photo: one per plate, one where there is none.

===================  ==================  =================================================
column               type                meaning
===================  ==================  =================================================
photo                string              path or URL, as the source has it
plate                int32               0, 1, … in a photo; null: the photo has no plate
text                 string              Latin look-alikes; "" where it is not readable
text_native          string              as the plate has it: "В840СК197"
score                float32             calibrated probability that the text is right
readable             bool
format               string              such as "ru.car"; "unknown"
region_code          string              null where the format has none
region_name          string
lines                int8                of text, 1 or 2
x0, y0, x1, y1       float32             box in pixels of the upright photo
quad                 list of float32     x, y of the corners TL, TR, BR, BL of the plate
detection_score      float32
candidates           list of {text,      best first
                     score}
width, height        int32               of the upright photo, in pixels
time                 timestamp[us]       when it was taken; see `time_source`
time_source          string              "exif": the camera's clock; "file": the file's
                                         time in UTC; null: unknown
model_version        string
weights              string              "sha256:…" of the weights' manifest
===================  ==================  =================================================
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from plate_models import formats
from plates.bulk import require

if TYPE_CHECKING:
    from plate_models.pipeline import Plate

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Shot:
    """What is known of a photo beside its plates.

    Attributes:
        photo: Its path or URL.
        width, height: Of the upright photo, in pixels.
        taken: Its time by EXIF: the camera's clock, without a zone.
        modified: When its file was, in UTC; stands in for `taken`.
    """

    photo: str
    width: int
    height: int
    taken: datetime | None
    modified: datetime | None


def schema() -> Any:
    """The pyarrow schema of every file: types never depend on what was found."""
    (arrow,) = require("pyarrow")
    pixels, score = arrow.float32(), arrow.float32()
    candidate = arrow.struct([("text", arrow.string()), ("score", score)])
    return arrow.schema(
        [
            arrow.field("photo", arrow.string(), nullable=False),
            ("plate", arrow.int32()),
            ("text", arrow.string()),
            ("text_native", arrow.string()),
            ("score", score),
            ("readable", arrow.bool_()),
            ("format", arrow.string()),
            ("region_code", arrow.string()),
            ("region_name", arrow.string()),
            ("lines", arrow.int8()),
            *((side, pixels) for side in ("x0", "y0", "x1", "y1")),
            # Of variable length: Arrow reads no nulls in fixed-size lists from Parquet.
            ("quad", arrow.list_(pixels)),
            ("detection_score", score),
            ("candidates", arrow.list_(candidate)),
            ("width", arrow.int32()),
            ("height", arrow.int32()),
            ("time", arrow.timestamp("us")),
            ("time_source", arrow.string()),
            ("model_version", arrow.string()),
            ("weights", arrow.string()),
        ]
    )


def rows_of(
    shot: Shot, plates: "Sequence[Plate]", model_version: str, weights: str
) -> list[dict[str, Any]]:
    """Write a photo as rows of the `schema`.

    Args:
        shot: The photo.
        plates: What was read in it.
        model_version: Of the nets.
        weights: Their hash.

    Returns:
        A row for each plate, or one without a plate.
    """
    common = {
        "photo": shot.photo,
        "width": shot.width,
        "height": shot.height,
        "time": shot.taken or shot.modified,
        "time_source": "exif" if shot.taken else "file" if shot.modified else None,
        "model_version": model_version,
        "weights": weights,
    }
    return [common | _plate(index, plate) for index, plate in enumerate(plates)] or [common]


def _plate(index: int, plate: "Plate") -> dict[str, Any]:
    reading = plate.reading
    region = formats.region_of(reading.text, reading.format)
    return {
        "plate": index,
        "text": reading.text,
        "text_native": formats.to_native(reading.text, reading.format),
        "score": reading.score,
        "readable": reading.readable,
        "format": reading.format,
        "region_code": region.code if region else None,
        "region_name": region.name if region else None,
        "lines": plate.lines,
        **dict(zip(("x0", "y0", "x1", "y1"), plate.box, strict=True)),
        "quad": [value for point in plate.quad for value in point],
        "detection_score": plate.detection_score,
        "candidates": [{"text": text, "score": p} for text, p in reading.candidates if text],
    }
