"""Whether an archive was read exactly once, and as the pipeline alone reads it; and how fast."""

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from plates.benchmarks.bulk_photos import is_readable, path_of

if TYPE_CHECKING:
    from plate_models.pipeline import Plate
    from plates.bulk.chunks import Job
    from plates.bulk.loop import Share


@dataclass(frozen=True)
class Counts:
    """What is in the output, held against what was in the source.

    Attributes:
        photos: In the source.
        read: Of them, in the result.
        failed: Of them, named as failed.
        lost: Neither read nor named.
        twice: With a row too many, named twice, or both read and named.
        unexpected: Failed though they are whole, or read though they are not.
        plates: Found.
    """

    photos: int
    read: int
    failed: int
    lost: int
    twice: int
    unexpected: int
    plates: int

    @property
    def exactly_once(self) -> bool:
        """Whether every photo is accounted for once, by the right account."""
        return not (self.lost or self.twice or self.unexpected)


def count(folder: Path, photos: int, out: Path) -> Counts:
    """Compare an output with the archive that was made.

    Args:
        folder: Of the archive.
        photos: How many it has.
        out: The output folder.
    """
    from plates.bulk import require

    (pandas,) = require("pandas")
    rows = pandas.read_parquet(out / "plates", columns=["photo", "plate"])
    with (out / "failed.csv").open(encoding="utf-8", newline="") as file:
        failed = Counter(row["photo"] for row in csv.DictReader(file))
    readable = {str(path_of(folder, n)): is_readable(n) for n in range(photos)}
    read = set(rows["photo"])
    doubled = int(rows.duplicated().sum()) + sum(n - 1 for n in failed.values())
    # A photo without plates has one row, and no other beside it.
    bare = set(rows.loc[rows["plate"].isna(), "photo"])
    doubled += len(bare & set(rows.loc[rows["plate"].notna(), "photo"]))
    wrong = sum(path in read for path, fine in readable.items() if not fine)
    wrong += sum(path in failed for path, fine in readable.items() if fine)
    wrong += len((read | set(failed)) - set(readable))
    return Counts(
        photos,
        len(read),
        len(failed),
        len(set(readable) - read - set(failed)),
        doubled + len(read & set(failed)),
        wrong,
        int(rows["plate"].notna().sum()),
    )


def differing(paths: Sequence[Path], out: Path, job: "Job") -> list[str]:
    """Read photos here, and name those of which the output says something else.

    Args:
        paths: A sample.
        out: The output folder.
        job: Names engine and weights.
    """
    from plates.bulk import require
    from plates.bulk.loop import read_here

    (pandas,) = require("pandas")
    names = [str(path) for path in paths]
    rows = pandas.read_parquet(out / "plates", filters=[("photo", "in", names)])
    rows = rows.sort_values(["photo", "plate"])
    kept = dict(list(rows.groupby("photo")))
    wrong = []
    for name, plates in zip(names, read_here(paths, job), strict=True):
        found = _signature(plates) if plates is not None else None
        columns = ["text", "score", "format", "x0", "y0", "x1", "y1", "detection_score"]
        stored = None
        if name in kept:
            seen = kept[name][kept[name]["plate"].notna()]
            stored = [tuple(row) for row in seen[columns].itertuples(index=False)]
        if found != stored:
            wrong.append(name)
    return wrong


def _signature(plates: "list[Plate]") -> list[tuple[object, ...]]:
    from numpy import float32

    return [
        (
            plate.reading.text,
            float32(plate.reading.score),
            plate.reading.format,
            *(float32(side) for side in plate.box),
            float32(plate.detection_score),
        )
        for plate in plates
    ]


def pace_of(shares: "Sequence[Share]") -> float:
    """Photos per second of processes that work side by side, while they work."""
    return sum(share.photos / (share.ended - share.began) for share in shares)


def shares_of(out: Path) -> "list[Share]":
    """What each process of a run did, by the accounts in its output."""
    from plates.bulk import ledger
    from plates.bulk.loop import Share
    from plates.bulk.output import Output

    output = Output(out)
    done: dict[str, Share] = {}
    for one in ledger.accounts(output, sorted(ledger.committed(output))):
        so_far = done.get(one.process, Share(0, one.began, one.ended))
        photos = so_far.photos + one.photos
        began, ended = min(so_far.began, one.began), max(so_far.ended, one.ended)
        done[one.process] = Share(photos, began, ended)
    return list(done.values())
