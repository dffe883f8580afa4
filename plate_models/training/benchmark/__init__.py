"""The rendered benchmark: photos and clips of plates from a renderer that training never sees.

Each photo is made from its kind, variant and number alone.

With training it shares only what defines a plate: glyphs of Russian ones, kinds with their layouts
and ranges of colours, texts. Backgrounds, vehicles, light, wear, lens, sensor, camera and the other
countries' typefaces are its own. It is meant as a fair test of legible plates as a
camera over a gate or behind a windscreen sees them; what a person can read decided its ranges, not
what our nets can:

- Photos of 960x540 or 1280x720 pixels with one plate.
- The smallest characters are 9 to 36 pixels high along the plate's more foreshortened side,
  logarithmically: plates of type 1 are about 80 to 350 pixels wide, those with two lines 50 to 250.
- Yaw up to 38 degrees either way, roll up to 5; a gate's camera looks down by 2 to 26
  degrees, a dashcam by -4 to 7. Nothing is more than 48 degrees from the plate's normal.
- Defocus and motion blur spread a point over at most 0.17 and 0.18 of those characters'
  height. Sensors hold 700 to 25,000 electrons; JPEG quality is 48 to 95.
- Exposure puts the plate's white at 0.22 to 0.9 of what saturates. Shadows keep the
  ambient light; dirt hides no character.
- Variants: "night" is infrared, grey and lit by the camera; "codec" is a frame of a film, H.264 or
  H.265 at a constant rate factor of 26 to 34.
- Clips are films (`passes`) of vehicles that come near, compressed much harder.
"""
