"""What Triton is shown of a model repository: the releases that it shall serve, and no other.

A folder of the supervisor's own, with copies: what was checked is what is served and what is
loaded again after a crash, whatever happens in the repository, which may be read-only.
"""

import hashlib
import shutil
from pathlib import Path

from plates.serving.client import PHOTO_MODEL
from plates.serving.errors import ReleaseError
from plates.serving.releases import Release, Repository

# A release reads its golden photo under this name before it gets the real one.
TRIAL = f"{PHOTO_MODEL}_trial"
_CONFIG, _CONFIGS = "config.pbtxt", "configs"
# By default Triton serves the newest version alone.
_ALL_VERSIONS = "\nversion_policy { all { } }\n"


class View:
    """A model repository of which parts come and go."""

    def __init__(self, repository: Repository, folder: Path, release: Release) -> None:
        """Lay out one release, and the models that belong to none.

        Args:
            repository: Where everything comes from.
            folder: Made here.
            release: What Triton shall begin with.

        Raises:
            ReleaseError: A file of it is not what its manifest says.
        """
        self.folder = folder
        self._repository = repository
        self._aside = folder.with_name(f"{folder.name}-aside")
        self._aside.mkdir()
        folder.mkdir()
        for model in repository.models():
            if model in release.models:
                self.add(release, model)
            else:
                (folder / model).symlink_to(repository.folder / model)

    def add(self, release: Release, model: str, name: str = "") -> None:
        """Show a release's version of a model.

        Args:
            release: Whose.
            model: Which.
            name: Under which it shall be served, if not its own.

        Raises:
            ReleaseError: A file of it is not what its manifest says.
        """
        self._configure(model, self.folder / (name or model))
        version = self.folder / (name or model) / str(release.version)
        shutil.rmtree(version, ignore_errors=True)
        version.mkdir()
        for path, digest in release.files.items():
            if path.startswith(f"{model}/"):
                _copy(release.repository / path, version / Path(path).name, digest)

    def drop(self, model: str, release: Release) -> None:
        """Show a release's version of a model no more; again is harmless."""
        shutil.rmtree(self.folder / model / str(release.version), ignore_errors=True)

    def drop_trial(self) -> None:
        """Show nothing under the name for trials; again is harmless."""
        shutil.rmtree(self.folder / TRIAL, ignore_errors=True)

    def set_aside(self, model: str, release: Release) -> None:
        """Show a release's version of a model no more, until it is brought back."""
        (self.folder / model / str(release.version)).rename(self._kept(model, release))

    def bring_back(self, model: str, release: Release) -> None:
        """Undo `set_aside`; harmless where there is nothing to undo."""
        kept = self._kept(model, release)
        if kept.exists():
            kept.rename(self.folder / model / str(release.version))

    def forget(self, model: str, release: Release) -> None:
        """Give up what was set aside."""
        shutil.rmtree(self._kept(model, release), ignore_errors=True)

    def _kept(self, model: str, release: Release) -> Path:
        return self._aside / f"{model}-{release.version}"

    def _configure(self, model: str, folder: Path) -> None:
        if folder.exists():
            return
        original = self._repository.folder / model
        # Not with its parents: where the server is gone, so is the view, and stays so.
        folder.mkdir()
        (folder / _CONFIGS).mkdir()
        for path in (original / _CONFIG, *(original / _CONFIGS).glob("*.pbtxt")):
            text = path.read_text(encoding="utf-8")
            policy = "" if "version_policy" in text else _ALL_VERSIONS
            (folder / path.relative_to(original)).write_text(text + policy, encoding="utf-8")


def _copy(source: Path, target: Path, digest: str) -> None:
    try:
        shutil.copy2(source, target)
        found = hashlib.sha256(target.read_bytes()).hexdigest()
    except OSError as error:
        raise ReleaseError(f"{source} can't be copied: {error.strerror or error}") from error
    if digest and found != digest:
        raise ReleaseError(
            f"{source} is not what was exported: expected SHA-256 {digest}, found {found}"
        )
