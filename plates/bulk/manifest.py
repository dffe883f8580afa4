"""``manifest.json``: what a run was asked for, what it ran with, and what came of it."""

import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime

from plate_models.spec import MODEL_VERSION
from plates.bulk import OutputError
from plates.bulk.chunks import Outcome
from plates.bulk.output import Output, read_json, write_json

_KEPT_PROBLEMS = 100

# Listing failed · chunks under way · stopped by a signal · some chunks could not be written ·
# everything that could be read is there.
UNLISTED, RUNNING, STOPPED, INCOMPLETE, COMPLETE = (
    *("unlisted", "running", "stopped"),
    *("incomplete", "complete"),
)


@dataclass(frozen=True)
class Settings:
    """What all runs into one output folder must agree on.

    Attributes:
        source: As all processes find it.
        chunk: Photos in a chunk.
        limit: At most so many photos; None takes all.
        engine: What runs the nets.
        weights: Hash of the weights.
        model_version: Of the nets.
    """

    source: str
    chunk: int
    limit: int | None
    engine: str
    weights: str
    model_version: str = MODEL_VERSION


@dataclass
class Manifest:
    """What a run keeps account of.

    Attributes:
        settings: What was asked for.
        state: One of the words above.
        problem: Why nothing could be listed.
        photos, chunks: In the listing.
        done, failed, plates: Photos and plates of committed chunks.
        unlisted: Folders that could not be read.
        deaths: Of processes, by which chunks were begun anew.
        not_written: Chunks that could not be written; the next run takes them again.
        seconds: Time spent, all runs together.
        began: When the first run began.
    """

    settings: Settings
    state: str = RUNNING
    problem: str | None = None
    photos: int = 0
    chunks: int = 0
    done: int = 0
    failed: int = 0
    plates: int = 0
    unlisted: int = 0
    deaths: int = 0
    not_written: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0
    began: str = ""
    _since: float = field(default_factory=time.monotonic)

    def write(self, output: Output) -> None:
        """Write it; raises OSError."""
        spent = self.seconds + time.monotonic() - self._since
        write_json(
            output.manifest,
            {
                "state": self.state,
                "problem": self.problem,
                "settings": asdict(self.settings),
                "counts": {
                    "photos": self.photos,
                    "done": self.done,
                    "failed": self.failed,
                    "plates": self.plates,
                    "chunks": self.chunks,
                    "chunks_not_written": len(self.not_written),
                    "folders_not_listed": self.unlisted,
                    "process_deaths": self.deaths,
                },
                "not_written": [asdict(o) for o in self.not_written[:_KEPT_PROBLEMS]],
                "began": self.began,
                "written": datetime.now(UTC).isoformat(timespec="seconds"),
                "duration_s": round(spent, 1),
                "failed_photos": output.failed.name,
            },
        )


def begin(output: Output, settings: Settings) -> Manifest:
    """Take up the manifest of an output folder, or start one.

    Raises:
        OutputError: The folder belongs to a run with other settings.
    """
    found = read_json(output.manifest)
    began = datetime.now(UTC).isoformat(timespec="seconds")
    if found is None:
        if any(output.plates.iterdir()):
            raise OutputError(
                f"{output.folder}: expected an empty folder or one of an earlier run, found "
                f"plates/ without {output.manifest.name}. Give another --out."
            )
        return Manifest(settings, began=began)
    before, wanted = found.get("settings", {}), asdict(settings)
    for name, value in wanted.items():
        if before.get(name) != value:
            raise OutputError(
                f"{output.folder}: its run was begun with {name} {before.get(name)!r}, "
                f"now it is {value!r}. Give the same again, or another --out."
            )
    seconds = float(found.get("duration_s", 0.0))
    return Manifest(settings, seconds=seconds, began=found.get("began", began))
