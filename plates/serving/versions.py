"""Model versions: finds them, copies them for Triton, and chooses which version is served.

A model version is a version folder in each of the models that read a photo. The export writes its
manifest last: without a manifest there is no version. A version that lacks a file is refused when
it is tried.
"""

import json
import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from plate_models.release import GOLDEN_PHOTO, MANIFEST, PHOTO_MODEL, PIPELINE, sha256_of
from plates.serving.client import Plate, TritonHttp
from plates.serving.errors import RequestError, StartError, VersionError

TRIAL = f"{PHOTO_MODEL}_trial"
# In pixels. Engines with less precision than float32 move a box by a fraction of a pixel.
BOX_TOLERANCE = 4.0
SEARCH_EVERY_S = 2.0
_READ_S = 30.0
# Longer than any photo may take.
_FINISH_S = 60.0
_POLL_S = 0.1
_LONGEST_REASON = 500
# Without a policy Triton serves only the newest version.
_ALL_VERSIONS = "\nversion_policy { all { } }\n"

log = logging.getLogger("plates.supervisor")


@dataclass(frozen=True)
class ModelVersion:
    """One version of all models that read a photo; its number is the name of its folders."""

    number: int
    repository: Path
    # SHA-256 of each file by its path in the repository, from the manifest.
    hashes: Mapping[str, str]
    # Text and box of each plate that must be read in the golden photo.
    plates: Sequence[Plate]
    # Changes when any file in one of the version's folders changes.
    fingerprint: str
    # Why the version can't be tried: its manifest is damaged or locked.
    problem: str = ""

    @property
    def nets(self) -> list[str]:
        """The models that `PHOTO_MODEL` calls."""
        return sorted({name.partition("/")[0] for name in self.hashes} - {PHOTO_MODEL})


def find_versions(repository: Path) -> list[ModelVersion]:
    """List the model versions that have a manifest, newest first."""
    folders = (repository / PHOTO_MODEL).glob(f"[1-9]*/{MANIFEST}")
    numbers = [int(path.parent.name) for path in folders if path.parent.name.isdecimal()]
    found = (_find_version(repository, number) for number in sorted(numbers, reverse=True))
    return [version for version in found if version is not None]


def _find_version(repository: Path, number: int) -> ModelVersion | None:
    manifest = repository / PHOTO_MODEL / str(number) / MANIFEST
    stats, problem = {}, ""
    hashes: dict[str, str] = {}
    plates: list[Plate] = []
    try:
        found = sorted(repository.glob(f"*/{number}/[!.]*"))
        stats = {path: path.stat() for path in found if path.is_file()}
        document = json.loads(manifest.read_bytes())
        plates = [(plate["text"], plate["box"]) for plate in document.get("golden", [])]
        hashes = dict(document["artifacts"])
    except FileNotFoundError:  # the version is being removed
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        problem = f"{manifest} can't be used ({reason}): correct it, or export the version again"
    marks = (f"{path} {stat.st_size} {stat.st_mtime_ns}" for path, stat in stats.items())
    fingerprint = "\n".join(marks)
    return ModelVersion(number, repository, hashes, plates, fingerprint, problem)


def read_golden_photo(triton: TritonHttp, version: ModelVersion, model: str = PHOTO_MODEL) -> None:
    """Have a model read a version's golden photo, and compare its plates with those at export.

    Additional plates are no error: at export a plate may just have missed the threshold. Raises
    VersionError if a plate is missing, has another text or another place; RequestError; OSError.
    """
    if not version.plates:
        return
    photo = version.repository / PHOTO_MODEL / str(version.number) / GOLDEN_PHOTO
    found = triton.plates(photo.read_bytes(), _READ_S, model)
    if not all(any(_is_same(plate, other) for other in found) for plate in version.plates):
        expected, read = _describe(version.plates), _describe(found)
        raise VersionError(f"on its golden photo it must read {expected}, it read {read}")


def _is_same(plate: Plate, other: Plate) -> bool:
    pairs = zip(plate[1], other[1], strict=True)
    return plate[0] == other[0] and all(abs(a - b) <= BOX_TOLERANCE for a, b in pairs)


def _describe(plates: Sequence[Plate]) -> str:
    each = (f"{text or 'an unreadable plate'} at {[*map(round, box)]}" for text, box in plates)
    return ", ".join(each) or "nothing"


class View:
    """The model repository that Triton sees: only the versions that it must serve.

    It has copies, so that Triton serves what was checked even if the originals change. A file that
    does not match its manifest raises `VersionError`.
    """

    def __init__(self, folder: Path, version: ModelVersion) -> None:
        """Make the folder, with one version, and with the models that belong to no version."""
        self.folder = folder
        self.version = version
        folder.mkdir()
        for config in version.repository.glob("*/config.pbtxt"):
            model = config.parent.name
            if model in (*version.nets, PHOTO_MODEL):
                self.add(version, model)
            else:
                (folder / model).symlink_to(config.parent)

    def add(self, version: ModelVersion, model: str, name: str = "") -> None:
        """Add a version of a model, under another name if one is given."""
        if version.problem:
            raise VersionError(version.problem)
        folder = self.folder / (name or model)
        source, target = version.repository / model, folder / str(version.number)
        if not folder.exists():
            # Without parents: a view that was deleted with its server must not be made again.
            folder.mkdir()
            (folder / "configs").mkdir()
            for path in (source / "config.pbtxt", *(source / "configs").glob("*.pbtxt")):
                text = path.read_text(encoding="utf-8")
                policy = "" if "version_policy" in text else _ALL_VERSIONS
                (folder / path.relative_to(source)).write_text(text + policy, encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        # Triton 2.51 does not refuse a model without its code: it tries to load it for minutes.
        needed = (*version.hashes, f"{PHOTO_MODEL}/{target.name}/{PIPELINE}")
        named = (key for key in needed if key.startswith(f"{model}/{target.name}/"))
        if missing := [key for key in named if not (version.repository / key).is_file()]:
            raise VersionError(f"version {version.number} lacks {', '.join(missing)}")
        for path in (source / target.name).glob("[!.]*"):
            if path.is_file():
                _copy(path, target, version.hashes.get(f"{model}/{target.name}/{path.name}", ""))

    def drop(self, model: str, version: ModelVersion | None = None) -> None:
        """Remove a version of a model, or the whole model."""
        folder = self.folder / model
        shutil.rmtree(folder / str(version.number) if version else folder, ignore_errors=True)


def _copy(source: Path, folder: Path, digest: str) -> None:
    try:
        found = sha256_of(Path(shutil.copy2(source, folder)))
    except OSError as error:
        raise VersionError(f"{source} can't be copied: {error}") from error
    if digest and found != digest:
        raise VersionError(
            f"{source} is not what was exported: expected SHA-256 {digest}, found {found}"
        )


def change_version(triton: TritonHttp, view: View, new: ModelVersion) -> None:
    """Replace the version that a Triton and its view serve, while Triton goes on reading photos.

    The new nets are loaded beside the old ones, then the model that calls them, under a trial name;
    it must read the golden photo. Only then is that model loaded under its real name: Triton sends
    it all further photos and lets the old model finish; the old nets are unloaded last. Triton
    can't do the trial itself: it reports a model as ready whose warm-up failed, and a model can't
    call others before it is ready.

    Raises:
        VersionError: The new version can't be served; the old one is served as before.
        RequestError: It is unknown which models are loaded: Triton must be restarted.
    """
    old = view.version
    try:
        for model in new.nets:
            view.add(new, model)
            triton.load(model)
        view.add(new, PHOTO_MODEL, TRIAL)
        triton.load(TRIAL)
        read_golden_photo(triton, new, TRIAL)
        view.add(new, PHOTO_MODEL)  # it is loaded below
    except (VersionError, RequestError, OSError) as error:
        if isinstance(error, RequestError) and error.status is None:
            raise  # Triton may still do what it did not answer
        view.drop(PHOTO_MODEL, new)
        _unload_trial(triton, view, new)
        _unload_nets(triton, view, new)
        raise VersionError(" ".join(str(error).split())) from error
    _unload_trial(triton, view, new)
    view.drop(PHOTO_MODEL, old)
    view.version = new
    triton.load(PHOTO_MODEL)
    _await_end(triton, PHOTO_MODEL, old)
    _unload_nets(triton, view, old)


def _unload_trial(triton: TritonHttp, view: View, version: ModelVersion) -> None:
    triton.unload(TRIAL)  # also accepted if it was not loaded
    _await_end(triton, TRIAL, version)
    # Only now: Triton reports nothing about models that are not in its repository.
    view.drop(TRIAL)


def _unload_nets(triton: TritonHttp, view: View, version: ModelVersion) -> None:
    for model in version.nets:
        view.drop(model, version)
        triton.load(model)
    for model in version.nets:
        _await_end(triton, model, version)


def _await_end(triton: TritonHttp, model: str, version: ModelVersion) -> None:
    """Wait until a version has answered its last request, at most `_FINISH_S`."""
    deadline = time.monotonic() + _FINISH_S
    while triton.holds(model, version.number) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


class Versions:
    """Chooses the version to serve: the newest one that can be served.

    A refused version is not tried again until its files change. The served version stays until a
    newer one has passed its trial, or until it is removed from the repository.
    """

    def __init__(self, repository: Path) -> None:
        # None if the repository holds no versions.
        self.serving: ModelVersion | None = None
        # Whether `serving` has been served, which means that it reads its golden photo.
        self.is_proven = False
        self.view: View | None = None
        self._repository = repository
        # By fingerprint. Replaced, never modified: another thread reads it.
        self._refused: dict[str, tuple[ModelVersion, str]] = {}
        self._seen: ModelVersion | None = None
        self._searched_at = float("-inf")

    @property
    def refused(self) -> dict[str, str]:
        """Number of each refused version to the reason, in short."""
        return {str(version.number): _shorten(why) for version, why in self._refused.values()}

    def choose(self) -> ModelVersion | None:
        """Choose the version to start: the one that was served if it still exists, else the newest.

        Raises StartError if all versions were refused; the next call tries all of them again.
        """
        left = self._acceptable()
        if not left and self._refused:
            each = [f"\n- {version.number}: {why}" for version, why in self._refused.values()]
            self._refused = {}
            raise StartError(
                f"No model version in {self._repository} can be served. After an update of the "
                f"service take config.pbtxt and configs/ of each model from its own "
                f"model_repository/, then run `plates export`:{''.join(each)}"
            )
        if not self.is_proven or self.serving not in left:
            self.serving, self.is_proven = next(iter(left), None), False
        return self.serving

    def lay_out(self, folder: Path) -> Path:
        """Make a view of the chosen version in a server's folder; returns the folder to serve."""
        self.view = None
        if self.serving is None:
            return self._repository
        log.info("Starting model version %d.", self.serving.number)
        self.view = View(folder / "models", self.serving)
        return self.view.folder

    def _acceptable(self) -> list[ModelVersion]:
        """List the versions that are not refused in their present state, newest first."""
        found = find_versions(self._repository)
        there = {version.fingerprint for version in found}
        self._refused = {mark: why for mark, why in self._refused.items() if mark in there}
        return [version for version in found if version.fingerprint not in self._refused]

    def prove(self, version: ModelVersion) -> None:
        """Record that a version is served."""
        self.serving, self.is_proven = version, True
        log.info("Model version %d is served.", version.number)

    def refuse(self, version: ModelVersion, reason: str) -> None:
        """Record that a version can't be served in its present state."""
        self._refused = self._refused | {version.fingerprint: (version, reason)}
        log.error("Model version %d is refused: %s", version.number, _shorten(reason))

    def due(self) -> ModelVersion | None:
        """Every few seconds, search for the version to change to; None if there is none.

        That is the newest version that is not refused, once two searches found the same files.
        """
        if self.serving is None or time.monotonic() - self._searched_at < SEARCH_EVERY_S:
            return None
        self._searched_at = time.monotonic()
        before, self._seen = self._seen, next(iter(self._acceptable()), None)
        newest = self._seen
        if newest is None or newest.number == self.serving.number or newest != before:
            return None
        log.info("Changing from model version %d to %d.", self.serving.number, newest.number)
        return newest


def _shorten(reason: str) -> str:
    """Keep the first line of a reason with a log, and the first line of a failure to load."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    failures = [line for line in lines if "failed to load '" in line and " version " in line]
    return " ".join([lines[0], *failures[:1]])[:_LONGEST_REASON]
