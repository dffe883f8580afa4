"""Which release is served: the newest that can be.

What was refused is remembered until its files change. What was served goes on being served
until something newer has proved itself, or until it is taken out of the repository.
"""

import logging
import time
from collections import Counter
from pathlib import Path

from plates.serving.errors import StartError
from plates.serving.releases import Release, Repository
from plates.serving.view import View

LOOK_PAUSE_S = 2.0
# A crash while a release was loaded may be somebody else's fault, once.
MAX_INTERRUPTIONS = 2
_LONGEST_REASON = 500

log = logging.getLogger("plates.supervisor")


class Releases:
    """Chooses among a repository's releases, and remembers what became of them.

    Attributes:
        serving: What is served, or started; None where the repository holds no releases.
        view: What Triton is shown of it.
    """

    def __init__(self, repository: Repository) -> None:
        """Nothing is looked at yet."""
        self.serving: Release | None = None
        self.view: View | None = None
        self._repository = repository
        self._refused: dict[str, tuple[Release, str]] = {}
        self._proven: set[str] = set()
        self._interrupted: Counter[str] = Counter()
        self._seen: Release | None = None
        self._looked_at = float("-inf")

    @property
    def refused(self) -> dict[str, str]:
        """Version to the reason why it is not served."""
        return {str(release.version): reason for release, reason in self._refused.values()}

    def lay_out(self, folder: Path) -> Path:
        """Lay out for a Triton that starts what it shall serve.

        Args:
            folder: The server's own.

        Returns:
            The model repository to serve: a view of ours, or the original where it holds no
            releases.

        Raises:
            StartError: No release is left.
            ReleaseError: What was chosen is damaged.
        """
        self.view, self.serving = None, self._first_choice()
        if self.serving is None:
            return self._repository.folder
        log.info("Starting release %d.", self.serving.version)
        self.view = View(self._repository, folder / "models", self.serving)
        return self.view.folder

    def _first_choice(self) -> Release | None:
        """What was served before, where it still is there; else the newest."""
        found = self._repository.releases()
        left = self._acceptable(found)
        if found and not left:
            reasons = "".join(f"\n- {version}: {why}" for version, why in self.refused.items())
            raise StartError(f"No release in {self._repository.folder} can be served:{reasons}")
        before = self.serving.fingerprint if self.serving else ""
        proven = (r for r in left if r.fingerprint == before and before in self._proven)
        return next(proven, left[0] if left else None)

    def _acceptable(self, found: list[Release]) -> list[Release]:
        """Those that were not refused as they are now; forget refusals of what has changed."""
        there = {release.fingerprint for release in found}
        self._refused = {mark: why for mark, why in self._refused.items() if mark in there}
        return [release for release in found if release.fingerprint not in self._refused]

    def needs_check(self) -> Release | None:
        """What is started and has not read its golden photo yet."""
        release = self.serving
        return release if release and release.fingerprint not in self._proven else None

    def prove(self, release: Release) -> None:
        """Take note that a release is served."""
        self.serving = release
        self._proven.add(release.fingerprint)
        del self._interrupted[release.fingerprint]
        log.info("Release %d is served.", release.version)

    def refuse(self, release: Release, reason: str) -> None:
        """Take note that a release can't be served as it is."""
        reason = _gist(reason)
        self._refused[release.fingerprint] = (release, reason)
        stays = self.serving
        rest = f"{stays.version} stays" if stays and stays != release else "trying an older one"
        log.error("Release %d is refused, %s: %s", release.version, rest, reason)

    def give_up_start(self, reason: str) -> bool:
        """Take note that what was started does not start.

        Args:
            reason: Why.

        Returns:
            Whether there is another one to try. One that was served before is not given up
            the first time, and the only one never.
        """
        release = self.serving
        if release is None or len(self._repository.releases()) < 2:
            return False
        if release.fingerprint in self._proven:
            self._proven.discard(release.fingerprint)
        else:
            self.refuse(release, reason)
        return True

    def interrupt(self, release: Release, reason: str) -> None:
        """Take note that something died while a release was loaded."""
        self._interrupted[release.fingerprint] += 1
        if self._interrupted[release.fingerprint] >= MAX_INTERRUPTIONS:
            self.refuse(release, reason)
        else:
            log.warning("Release %d will be tried again: %s", release.version, reason)

    def due(self) -> Release | None:
        """Look, every now and then, for what shall be served instead.

        Returns:
            The newest release that is complete and not refused, once its files have been the
            same for two looks; None if that is served.
        """
        if self.serving is None or time.monotonic() - self._looked_at < LOOK_PAUSE_S:
            return None
        self._looked_at = time.monotonic()
        left = self._acceptable(self._repository.releases())
        before, self._seen = self._seen, left[0] if left else None
        newest = self._seen
        if newest is None or newest.version == self.serving.version or newest != before:
            return None
        log.info("Changing from release %d to %d.", self.serving.version, newest.version)
        return newest


def _gist(reason: str) -> str:
    """What tells most of a reason that ends with a log: where it says what failed."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    telling = [line for line in lines if "failed to load '" in line and " version " in line]
    return " ".join([lines[0], *telling][: 2 if telling else None])[:_LONGEST_REASON]
