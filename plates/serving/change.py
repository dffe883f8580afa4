"""Changes the release that a living Triton serves, without a moment in which it serves none.

The new nets are loaded beside the old ones, then what calls them, under a name for trials, which
must read the golden photo. Only then is it loaded under the real name: Triton hands it the photos
that come from then on, lets the old one finish what it has begun, and the old nets go last.

Triton can't do the trial by itself: it takes a model for ready whose warm-up failed, and lets no
model ask another one before it is ready.
"""

import logging
import threading
import time
from typing import Literal

from plates.serving.client import PHOTO_MODEL, TritonHttp
from plates.serving.errors import EmbeddedTritonError, ReleaseError, RequestError
from plates.serving.releases import GOLDEN_PHOTO, Release
from plates.serving.view import TRIAL, View

# "broken": Triton has to be started anew, because nobody knows what it has loaded.
Outcome = Literal["changed", "refused", "broken"]

# Engines for a GPU may take long to load, and a CPU that reads photos has little time for it.
LOAD_S = 180.0
READ_S = 30.0
# Longer than any photo may take.
FINISH_S = 60.0
_LOOK_S = 0.1

log = logging.getLogger("plates.supervisor")


class Change:
    """A change from one release to another, in a thread of its own.

    Attributes:
        old, new: The releases.
        outcome: None as long as it goes on.
        reason: Why the new one is not served; "" where it is.
    """

    def __init__(self, triton: TritonHttp, view: View, old: Release, new: Release) -> None:
        """Begin.

        Args:
            triton: Serves the view.
            view: Shows the old release.
            old: What is served.
            new: What shall be.
        """
        self.old, self.new = old, new
        self.outcome: Outcome | None = None
        self.reason = ""
        self._triton, self._view = triton, view
        self._cancelled = threading.Event()
        threading.Thread(target=self._run, name="change", daemon=True).start()

    def cancel(self) -> None:
        """Go back as soon as possible, unless the new release is served already."""
        self._cancelled.set()

    def _run(self) -> None:
        try:
            self.outcome = self._change()
        except Exception as error:  # whoever waits for the outcome must get one
            log.exception("The change of the release failed unexpectedly.")
            self.reason, self.outcome = repr(error), "broken"

    def _change(self) -> Outcome:
        try:
            self._load_nets()
            self._try_out()
            self._switch()
        except (EmbeddedTritonError, OSError) as error:
            self.reason = " ".join(str(error).split())
            return self._go_back(error)
        try:
            self._end_old()
        except (EmbeddedTritonError, OSError) as error:
            self.reason = str(error)
            return "broken"
        return "changed"

    def _load_nets(self) -> None:
        for model in self.new.nets:
            self._go_on()
            self._view.add(self.new, model)
            self._triton.load(model, LOAD_S)

    def _try_out(self) -> None:
        """Have the golden photo read by what will be served, as it will be served."""
        self._go_on()
        self._view.add(self.new, PHOTO_MODEL, TRIAL)
        self._triton.load(TRIAL, LOAD_S)
        self._go_on()
        read_golden_photo(self._triton, self.new, TRIAL)
        self._end_trial()

    def _end_trial(self) -> None:
        try:
            self._triton.unload(TRIAL, LOAD_S)
        except RequestError as error:
            if error.status is None:
                raise
        else:
            self._await_end(TRIAL, self.new)
        # Not before: Triton tells nothing of models that are not in its repository.
        self._view.drop_trial()

    def _switch(self) -> None:
        self._go_on()
        self._view.set_aside(PHOTO_MODEL, self.old)
        self._view.add(self.new, PHOTO_MODEL)
        self._triton.load(PHOTO_MODEL, LOAD_S)

    def _end_old(self) -> None:
        """Let go of the old nets once nobody asks them any more."""
        self._view.forget(PHOTO_MODEL, self.old)
        self._await_end(PHOTO_MODEL, self.old)
        for model in self.old.nets:
            self._view.drop(model, self.old)
            self._triton.load(model, LOAD_S)
        for model in self.old.nets:
            self._await_end(model, self.old)

    def _go_back(self, error: Exception) -> Outcome:
        if isinstance(error, RequestError) and error.status is None:
            return "broken"  # what Triton did not answer, it may still do
        try:
            self._view.drop(PHOTO_MODEL, self.new)
            self._view.bring_back(PHOTO_MODEL, self.old)
            self._end_trial()
            for model in self.new.nets:
                self._view.drop(model, self.new)
                self._triton.load(model, LOAD_S)
            for model in self.new.nets:
                self._await_end(model, self.new)
        except (EmbeddedTritonError, OSError) as worse:
            self.reason += f"; and it can't be undone: {worse}"
            return "broken"
        return "refused"

    def _await_end(self, model: str, release: Release) -> None:
        """Wait until a version has answered all that it was asked, but not for ever."""
        deadline = time.monotonic() + FINISH_S
        while self._triton.is_held(model, release.version) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)

    def _go_on(self) -> None:
        if self._cancelled.is_set():
            raise ReleaseError("a process died while it was loaded")


def read_golden_photo(triton: TritonHttp, release: Release, model: str = PHOTO_MODEL) -> None:
    """Have a release's golden photo read, and compare.

    Args:
        triton: Has the release loaded.
        release: What must be read.
        model: Under which name it is loaded.

    Raises:
        ReleaseError: It reads something else, or nothing.
        RequestError: No answer.
    """
    photo = release.repository / PHOTO_MODEL / str(release.version) / GOLDEN_PHOTO
    if not release.plates:
        return
    try:
        release.check(triton.plates(photo.read_bytes(), READ_S, model))
    except OSError as error:
        raise ReleaseError(f"{photo} can't be read: {error.strerror or error}") from error
    except RequestError as error:
        if error.status is None:
            raise
        raise ReleaseError(f"its golden photo can't be read: {error}") from error
