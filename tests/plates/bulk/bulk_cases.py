"""An archive for tests, read without nets: the brightness of a photo is its number of plates.

Run as a program, it reads one chunk of an output folder and kills itself at a given place.
"""

import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import cv2
import numpy as np

from plate_models.pipeline import Plate
from plate_models.recognition.decoding import Reading
from plates.bulk import Request
from plates.bulk.listing import take_listing
from plates.bulk.output import Output
from plates.bulk.reading import ChunkReader
from plates.bulk.source import find_photos

WEIGHTS = "sha256:0"


def jpeg(shade):
    """A JPEG of one shade of grey."""
    return cv2.imencode(".jpg", np.full((24, 32, 3), shade, np.uint8))[1].tobytes()


def archive(folder, photos):
    """Fill a folder with photos; each has as many plates as its number modulo three."""
    from support import write_files  # the program does without it

    shades = {f"day{n % 2}/{n:03d}.jpg": jpeg(10 * (n % 3) + 5) for n in range(photos)}
    return write_files(folder, shades)


def read_photo(image):
    """Read a photo in place of the nets."""
    candidates = (("B840CK197", 0.9), ("B840CK797", 0.05), ("", 0.0))
    reading = Reading("B840CK197", 0.9, "ru.car", (), candidates)
    quad = ((1.0, 2.0), (3.0, 2.0), (3.0, 4.0), (1.0, 4.0))
    plate = Plate((1.0, 2.0, 3.0, 4.0), quad, 0.8, 1, reading, image, image)
    return [plate] * round(int(image[0, 0, 0]) / 10 - 0.5)


def take_listing_of(source, out):
    """Write the listing of a source into an output folder, in chunks of four."""
    output = Output(out)
    with output.locked():
        return take_listing(output.listing, find_photos(str(source)), 4, None)


def reader(source, out, read=read_photo):
    with patch("plates.bulk.reading.load_alone", lambda *_: SimpleNamespace(read=read)):
        return ChunkReader(Request(str(source), out), WEIGHTS)


def main(source, out, chunk, place):
    seen, rename = [], Path.replace

    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    def read_or_die(image):
        seen.append(image)
        return die() if len(seen) == 3 and place == "third photo" else read_photo(image)

    if place == "before the rename":
        Path.replace = die
    elif place == "after the rename":
        Path.replace = lambda path, target: (rename(path, target), die())
    sys.exit(reader(source, Path(out), read_or_die).read(int(chunk)))


if __name__ == "__main__":
    main(*sys.argv[1:])
