"""Cameras: read streams and report one event per passing vehicle."""

from pathlib import Path

# Environment variables that `plates serve` sets for its processes: the key to Triton's shared
# memory, and the folder for relative paths in `cameras.toml`. The processes read a copy of that
# file; the copy's folder also has the cameras' state files and the sockets for pushed frames.
KEY_VARIABLE, BESIDE_VARIABLE = "PLATES_TRITON_KEY", "PLATES_CAMERAS_BESIDE"


def state_file(folder: Path, camera: str) -> Path:
    """The file to which a camera's process writes its state, the JSON of a `SourceState`."""
    return folder / f"{camera}.state"
