"""Changes the model version that a running Triton serves; photos are read all the time.

The new nets are loaded beside the old ones, then the model that calls them, under a trial name,
which must read the golden photo. Only then is it loaded under the real name: Triton sends it the
photos that come from then on and lets the old one finish; the old nets are unloaded last.

Triton can't do the trial by itself: it takes a model for ready whose warm-up failed, and lets no
model call another one before it is ready.
"""

import time

from plates.serving.client import PHOTO_MODEL, TritonHttp
from plates.serving.errors import RequestError, VersionError
from plates.serving.versions import ModelVersion, View

GOLDEN_PHOTO = "golden.jpg"
TRIAL = f"{PHOTO_MODEL}_trial"
# Engines for a GPU may take long to load, and a CPU that reads photos has little time for it.
LOAD_S = 180.0
READ_S = 30.0
# Longer than any photo may take.
FINISH_S = 60.0
_POLL_S = 0.1


def change_version(triton: TritonHttp, view: View, old: ModelVersion, new: ModelVersion) -> None:
    """Replace the version that a Triton serves, as the view shows it, by another one.

    Raises:
        VersionError: The new one can't be served; the old one is served as before.
        RequestError: What is loaded now is unknown: Triton must be restarted.
    """
    try:
        for model in new.nets:
            view.add(new, model)
            triton.load(model, LOAD_S)
        view.add(new, PHOTO_MODEL, TRIAL)
        triton.load(TRIAL, LOAD_S)
        read_golden_photo(triton, new, TRIAL)
        view.add(new, PHOTO_MODEL)  # it is loaded below
    except (VersionError, RequestError, OSError) as error:
        if isinstance(error, RequestError) and error.status is None:
            raise  # what Triton did not answer, it may still do
        view.drop(PHOTO_MODEL, new)
        _unload_trial(triton, view, new)
        _unload_nets(triton, view, new)
        raise VersionError(" ".join(str(error).split())) from error
    _unload_trial(triton, view, new)
    view.drop(PHOTO_MODEL, old)
    triton.load(PHOTO_MODEL, LOAD_S)
    _await_end(triton, PHOTO_MODEL, old)
    _unload_nets(triton, view, old)


def read_golden_photo(triton: TritonHttp, version: ModelVersion, model: str = PHOTO_MODEL) -> None:
    """Have a version's golden photo read by a model; raises `VersionError` if it misreads."""
    if not version.plates:
        return
    photo = version.repository / PHOTO_MODEL / str(version.number) / GOLDEN_PHOTO
    try:
        version.check(triton.plates(photo.read_bytes(), READ_S, model))
    except OSError as error:
        raise VersionError(f"{photo} can't be read: {error.strerror or error}") from error
    except RequestError as error:
        if error.status is None:
            raise
        raise VersionError(f"its golden photo can't be read: {error}") from error


def _unload_trial(triton: TritonHttp, view: View, version: ModelVersion) -> None:
    try:
        triton.unload(TRIAL, LOAD_S)
    except RequestError as error:
        if error.status is None:
            raise
    else:  # it was loaded
        _await_end(triton, TRIAL, version)
    # Not before: Triton says nothing about models that are not in its repository.
    view.drop(TRIAL)


def _unload_nets(triton: TritonHttp, view: View, version: ModelVersion) -> None:
    for model in version.nets:
        view.drop(model, version)
        triton.load(model, LOAD_S)
    for model in version.nets:
        _await_end(triton, model, version)


def _await_end(triton: TritonHttp, model: str, version: ModelVersion) -> None:
    """Wait until a version has answered its last request, but not for ever."""
    deadline = time.monotonic() + FINISH_S
    while triton.holds(model, version.number) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
