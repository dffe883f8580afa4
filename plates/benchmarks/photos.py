"""The photo that every figure of speed is about, and the rendered scenes of tests/samples."""

from pathlib import Path

from plates.cli import CommandError
from plates.cli.samples import SAMPLES, expected_texts

STANDARD_TEXTS = ("Y287KT754", "C946MX550")
# 1920x1080, 380 kB: a street by day with two cars, whose plates say ``STANDARD_TEXTS``.
STANDARD_PHOTO = Path(__file__).with_name("standard_photo.jpg")


def photo_or_standard(path: Path | None) -> bytes:
    """The file of --photo, or the standard photo."""
    try:
        return (path or STANDARD_PHOTO).read_bytes()
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from error


def samples() -> dict[Path, list[str]]:
    """The scenes of tests/samples, each with the texts that must be read in it."""
    found = expected_texts(sorted(SAMPLES.glob("*.jpg")))
    if not found:
        raise CommandError(f"{SAMPLES} holds no photos that its plates.csv names")
    return found
