"""The rendered benchmark: photos and clips of plates from a renderer that training never uses.

A photo depends on its kind, variant and number alone.

The benchmark shares with training only what defines a plate: glyphs of Russian plates, kinds with
their layouts and ranges of colours, and texts. Backgrounds, vehicles, light, wear, lens, sensor,
camera and the other countries' typefaces are its own. It is a fair test of legible plates as seen
by a camera over a gate or behind a windscreen; its ranges follow from what a person can read, not
from what the nets can read:

- Each photo shows one plate. Sizes, angles, blur, noise and compression are within the constants of
  `photos`, `camera` and `optics`: plates of type 1 are about 80 to 350 pixels wide, those with two
  lines 50 to 250. Shadows keep the ambient light; dirt hides no character.
- Variants: "night" is infrared, grey and lit by the camera; "codec" is a frame of an H.264 or H.265
  video with a constant rate factor of 26 to 34.
- Clips are videos (`passes`) of approaching vehicles, compressed much more strongly.
"""
