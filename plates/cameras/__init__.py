"""Cameras: a stream goes in, one event for each passing vehicle comes out."""

from pathlib import Path

# Variables by which `plates serve` hands to its processes the folder of the cameras' states and of
# the sockets for pushed frames, and Triton's key to its shared memory.
FOLDER_VARIABLE, KEY_VARIABLE = "PLATES_CAMERAS_FOLDER", "PLATES_TRITON_KEY"
# And the folder from which relative paths in `cameras.toml` count: they read a copy of it.
BESIDE_VARIABLE = "PLATES_CAMERAS_BESIDE"


def state_file(folder: Path, camera: str) -> Path:
    """Where a camera's process writes its state, the JSON of a `SourceState`."""
    return folder / f"{camera}.state"
