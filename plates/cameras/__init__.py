"""Cameras: a stream goes in, one event for each passing vehicle comes out."""

# Variables by which `plates serve` tells its processes where the sockets are through which frames
# are pushed, and Triton's key to its shared memory.
FOLDER_VARIABLE, KEY_VARIABLE = "PLATES_CAMERAS_FOLDER", "PLATES_TRITON_KEY"
