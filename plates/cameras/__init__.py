"""Cameras: read streams and report one event per passing vehicle."""

from pathlib import Path

# Environment variables that `plates serve` sets for its processes: the folder of the cameras' state
# files and of the sockets for pushed frames; the key to Triton's shared memory.
FOLDER_VARIABLE, KEY_VARIABLE = "PLATES_CAMERAS_FOLDER", "PLATES_TRITON_KEY"
# The folder for relative paths in `cameras.toml`: the processes read a copy of the file elsewhere.
BESIDE_VARIABLE = "PLATES_CAMERAS_BESIDE"


def state_file(folder: Path, camera: str) -> Path:
    """The file to which a camera's process writes its state, the JSON of a `SourceState`."""
    return folder / f"{camera}.state"
