"""The rendered benchmark: photos and clips of plates from a renderer that training never sees.

Each photo is made from its kind, variant and number alone.

With training it shares only what defines a plate: glyphs of Russian ones, kinds with their layouts
and ranges of colours, texts. Backgrounds, vehicles, light, wear, lens, sensor, camera and the other
countries' typefaces are its own. It is meant as a fair test of legible plates as a
camera over a gate or behind a windscreen sees them; what a person can read decided its ranges, not
what our nets can:

- Photos show one plate. Sizes, angles, blur, noise and compression are within the constants of
  `photos`, `camera` and `optics`: plates of type 1 are about 80 to 350 pixels wide, those with two
  lines 50 to 250. Shadows keep the ambient light; dirt hides no character.
- Variants: "night" is infrared, grey and lit by the camera; "codec" is a frame of a film, H.264 or
  H.265 at a constant rate factor of 26 to 34.
- Clips are films (`passes`) of vehicles that come near, compressed much harder.
"""
