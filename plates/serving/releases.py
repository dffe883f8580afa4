"""The releases in a model repository: which are there, and what each must read.

A release is a version folder in each of the models that read a photo. The export writes its
manifest last, so a release with a manifest and all files that it names is complete.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from plates.serving.client import PHOTO_MODEL
from plates.serving.errors import ReleaseError
from plates.serving.preflight import ARTIFACTS, MANIFESTS, configurations

GOLDEN_PHOTO = "golden.jpg"
# In pixels. Engines that compute in less than float32 move a box by a fraction of one.
BOX_TOLERANCE = 4.0

Plates = Sequence[tuple[str, Sequence[float]]]


@dataclass(frozen=True)
class Release:
    """One version of all models that read a photo.

    Attributes:
        version: The version folders' name.
        repository: Where they are.
        files: What is served, by its path in the repository, to the SHA-256 that the manifest
            gives for it, "" where it gives none.
        plates: What must be read on the golden photo: text and box of each plate.
        fingerprint: Changes when any of the files does.
    """

    version: int
    repository: Path
    files: Mapping[str, str]
    plates: Plates
    fingerprint: str

    @property
    def models(self) -> list[str]:
        """Its models, those first that others ask."""
        models = {name.partition("/")[0] for name in self.files}
        return sorted(models, key=lambda model: (model == PHOTO_MODEL, model))

    @property
    def nets(self) -> list[str]:
        """Its models without the one that asks them."""
        return [model for model in self.models if model != PHOTO_MODEL]

    def check(self, found: Plates) -> None:
        """Compare what was read on the golden photo with what must be.

        Args:
            found: Text and box of each plate. More than must be there is no fault: the nets
                that were exported may have held a plate for unreadable by a hair.

        Raises:
            ReleaseError: A plate is missing, has another text or is elsewhere.
        """
        if not all(any(_same(plate, other) for other in found) for plate in self.plates):
            raise ReleaseError(
                f"on its golden photo it must read {_told(self.plates)}, it read {_told(found)}"
            )


def _same(plate: tuple[str, Sequence[float]], other: tuple[str, Sequence[float]]) -> bool:
    pairs = zip(plate[1], other[1], strict=True)
    return plate[0] == other[0] and all(abs(a - b) <= BOX_TOLERANCE for a, b in pairs)


def _told(plates: Plates) -> str:
    told = [f"{text or 'an unreadable plate'} at {[round(e) for e in box]}" for text, box in plates]
    return ", ".join(told) or "nothing"


class Repository:
    """A model repository, as one profile serves it."""

    def __init__(self, folder: Path, profile: str) -> None:
        """Nothing is looked at yet.

        Args:
            folder: Holds a folder for each model.
            profile: "cpu" or "gpu"; see `plates.serving.preflight.check_artifacts`.
        """
        self.folder, self.profile = folder, profile

    def models(self) -> dict[str, str]:
        """Each model's name with the configuration that the profile chooses, as text."""
        found = configurations(self.folder, self.profile)
        return {model.name: text for model, text in found.items()}

    def releases(self) -> list[Release]:
        """List the complete releases, newest first."""
        unused = {model: _unused(text) for model, text in self.models().items()}
        folders = (self.folder / PHOTO_MODEL).glob("[1-9]*/" + MANIFESTS[PHOTO_MODEL])
        versions = sorted(
            (int(path.parent.name) for path in folders if path.parent.name.isdecimal()),
            reverse=True,
        )
        found = (self._release(version, unused) for version in versions)
        return [release for release in found if release is not None]

    def _release(self, version: int, unused: Mapping[str, set[str]]) -> Release | None:
        manifest = self.folder / PHOTO_MODEL / str(version) / MANIFESTS[PHOTO_MODEL]
        try:
            content = manifest.read_bytes()
            document = json.loads(content)
            hashes: dict[str, str] = document["artifacts"]
            plates = [(plate["text"], plate["box"]) for plate in document.get("golden", [])]
            models = {name.partition("/")[0] for name in hashes} | {PHOTO_MODEL}
            needed = {name for name in hashes if Path(name).name not in unused[Path(name).parts[0]]}
            needed.add(f"{PHOTO_MODEL}/{version}/{ARTIFACTS['python']}")
            served = needed | {
                name
                for model in models
                for name in self._files(model, version)
                if Path(name).name not in unused[model]
            }
            marks = [content, *(self._mark(name) for name in sorted(served))]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # none, or not all of it is there yet
        fingerprint = hashlib.sha256(b"".join(marks)).hexdigest()
        files = {name: hashes.get(name, "") for name in served}
        return Release(version, self.folder, files, plates, fingerprint)

    def _files(self, model: str, version: int) -> Iterator[str]:
        for path in (self.folder / model / str(version)).iterdir():
            if path.is_file() and not path.name.startswith("."):
                yield f"{model}/{version}/{path.name}"

    def _mark(self, name: str) -> bytes:
        stat = (self.folder / name).stat()
        return f"{name} {stat.st_size} {stat.st_mtime_ns}\n".encode()


def _unused(config: str) -> set[str]:
    """Names of the artifacts that a model's configuration has no use for."""
    backend = re.search(r'^backend:\s*"(\w+)"', config, re.MULTILINE)
    needed = ARTIFACTS.get(backend[1]) if backend else None
    return set(ARTIFACTS.values()) - {needed} if needed else set()
