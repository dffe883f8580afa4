"""Cameras: a stream goes in, one event for each passing vehicle comes out."""

# Variables by which `plates serve` hands to its processes the folder of the sockets for pushed
# frames, and Triton's key to its shared memory.
FOLDER_VARIABLE, KEY_VARIABLE = "PLATES_CAMERAS_FOLDER", "PLATES_TRITON_KEY"
