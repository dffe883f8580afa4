"""Files made to hurt: what they cost to refuse, and what the largest cost to read."""

import logging
import subprocess
import sys
import warnings

import pytest
from photo_bomb_parts import (
    jpeg_with,
    png_chunk,
    png_endless,
    png_of_zeros,
    png_with,
    segment,
    tiff_of_scans,
    webp_chunk,
    webp_of,
)
from photo_bombs import CHEAP, HEAVY, REFUSED
from photo_cost import Cost, costs
from photo_files import HEIGHT, WIDTH, encode, exif, pattern

from plate_models import images
from plate_models.images import decoders, png
from plate_models.images.jpeg import orientation_of
from plate_models.images.outline import Defect

# A hang, not a slow machine: refusals take milliseconds (`python tests/photo_cost.py`).
REFUSED_S, READ_S = 2, 30
# Of the picture as RGB. Decoders hold what they decode from beside it.
MEMORY_FACTOR = 4
# Of numpy, Pillow and OpenCV themselves, however small the picture is.
MEMORY_FLOOR_MB = 24


SIDE = 3000


@pytest.fixture(scope="module")
def measured() -> dict[str, Cost]:
    return {name: cost for name, (_, cost) in costs(SIDE).items()}


@pytest.mark.parametrize("name", REFUSED)
def test_bombs_are_refused_by_their_header(measured: dict[str, Cost], name: str) -> None:
    cost = measured[name]
    assert cost.result == REFUSED[name][1]
    assert cost.decode_s < REFUSED_S
    assert cost.peak_mb < MEMORY_FLOOR_MB


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refusals_name_their_reason(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    make, slug = REFUSED[name]
    with pytest.raises(images.ImageError, match=r"^[A-Z].{20,}\.$") as caught:
        images.check_header(make())
    assert caught.value.slug == slug
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", CHEAP)
def test_burdens_are_left_unopened(measured: dict[str, Cost], name: str) -> None:
    cost = measured[name]
    assert cost.result in ([HEIGHT, WIDTH], [8, 8])
    assert cost.decode_s < REFUSED_S
    assert cost.peak_mb < MEMORY_FLOOR_MB


@pytest.mark.parametrize("name", HEAVY)
def test_the_dearest_pictures_are_read_within_bounds(measured: dict[str, Cost], name: str) -> None:
    cost = measured[name]
    assert cost.result == [SIDE, SIDE]
    assert cost.header_s < REFUSED_S
    assert cost.decode_s < READ_S
    assert cost.peak_mb < MEMORY_FACTOR * 3 * SIDE**2 / 2**20 + MEMORY_FLOOR_MB


def test_rows_beyond_the_picture_are_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """libpng would unpack them all: a gigabyte for each megabyte of the file."""
    seen: list[object] = []
    monkeypatch.setattr(decoders, "with_opencv", lambda *file: seen.append(file))
    bomb = png_endless()
    with pytest.raises(images.BrokenImage):
        images.decode(bomb)
    assert not seen
    with pytest.raises(Defect, match="more image data"):
        png.check_amount(png.outline(bomb).core)


def test_repeated_chunks_are_not_warned_of_one_by_one(capfd: pytest.CaptureFixture[str]) -> None:
    photo = png_of_zeros(8, 8, 8, 6)
    repeated = photo[:33] + png_chunk(b"tRNS", b"\0\0") * 1000 + photo[33:]
    assert (images.decode(repeated) == images.decode(photo)).all()
    assert capfd.readouterr().err.count("\n") <= 1


@pytest.mark.parametrize("interlaced", [0, 1])
@pytest.mark.parametrize(
    ("depth", "colour"),
    [(1, 0), (16, 0), (8, 2), (16, 2), (2, 3), (8, 4), (16, 4), (8, 6), (16, 6)],
)
def test_the_rows_of_every_kind_of_png_are_enough(
    monkeypatch: pytest.MonkeyPatch, depth: int, colour: int, interlaced: int
) -> None:
    monkeypatch.setattr(png, "_SLACK", 14)  # One row in each pass that is begun.
    for width, height in ((5, 5), (8, 3), (33, 70), (5, 200)):
        photo = png_of_zeros(width, height, depth, colour, interlaced=interlaced)
        png.check_amount(png.outline(photo).core)


def test_burdens_do_not_change_the_picture() -> None:
    plain = images.decode(jpeg_with())
    assert (images.decode(CHEAP["jpeg with fill bytes"]()) == plain).all()
    assert (images.decode(jpeg_with(segment(0xFE, b"a comment"))) == plain).all()
    turned = images.decode(jpeg_with(segment(0xE1, exif(3)), segment(0xE1, exif(1))))
    assert (turned == plain[::-1, ::-1]).all()


@pytest.mark.parametrize("tags", [{}, {278: 16}, {322: 64, 323: 64}])
def test_tiffs_of_many_jpegs_are_read(tags: dict[int, int]) -> None:
    photo = encode(pattern(200, 150), "TIFF", compression="jpeg", tiffinfo=tags)
    assert images.decode(photo).shape == (150, 200, 3)
    assert images.check_header(tiff_of_scans(20)).width == 64


def test_colours_told_by_adobe_are_kept() -> None:
    """Without this segment, and without JFIF's, three components are taken for YCbCr."""
    jfif = jpeg_with()
    adobe = jfif[:2] + segment(0xEE, b"Adobe\0\x64\0\0\0\0\0") + jfif[20:]
    seen = images.decode(adobe)
    assert seen.shape == (HEIGHT, WIDTH, 3)
    assert (seen != images.decode(jfif)).any()


@pytest.mark.parametrize(
    "block",
    [b"", b"II*\0", b"II*\0\xff\xff\xff\xff", b"II*\0\x08\0\0\0\xff\xff", b"XX" * 40, exif(9)],
)
def test_damaged_exif_means_upright(block: bytes) -> None:
    assert orientation_of(block) == 1


def test_headers_of_the_wrong_length_are_refused() -> None:
    for size in range(12):
        chunk = webp_chunk(b"VP8X", bytes(size))
        with pytest.raises(images.BrokenImage):
            images.decode(webp_of(chunk))
    broken = b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", b"") + png_chunk(b"IEND", b"")
    with pytest.raises(images.BrokenImage, match="header"):
        images.check_header(broken)
    assert images.check_header(png_with()).width == WIDTH


def test_nothing_is_warned_of_or_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Python's own warnings reach stderr once per place; a server's log is not for them."""
    caplog.set_level(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for make, _ in REFUSED.values():
            with pytest.raises(images.ImageError):
                images.decode(make())
    assert not caplog.records


def test_warnings_that_quote_the_file_are_not_shown() -> None:
    """Nor remembered: each would be another one."""
    code = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from photo_bomb_parts import tiff_of, tiff_tags\n"
        "from plate_models import images\n"
        "data = tiff_of(tiff_tags() | {284: (3, 2, 1)}).ljust(900, b'x')\n"
        "print(images.check_header(data))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "TIFF" in done.stdout
    assert done.stderr == ""


def test_no_file_is_opened_and_no_process_started() -> None:
    """Whatever a photo names, decoders get bytes and nothing else."""
    code = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from photo_files import BAD, GOOD\n"
        "from photo_bombs import CHEAP, REFUSED\n"
        "from plate_models import images\n"
        "files = [*GOOD.values(), *(data for data, _ in BAD.values())]\n"
        "files += [make() for make in (*CHEAP.values(), *(make for make, _ in REFUSED.values()))]\n"
        "for data in files[:3]: images.decode(data)\n"
        "def hook(event, arguments):\n"
        "    if event in ('open', 'subprocess.Popen', 'os.system', 'socket.connect', 'os.exec'):\n"
        "        print(event, arguments)\n"
        "sys.addaudithook(hook)\n"
        "for data in files:\n"
        "    try: images.decode(data)\n"
        "    except images.ImageError: pass\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""
