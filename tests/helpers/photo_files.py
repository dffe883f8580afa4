"""Photo files for tests: `GOOD` files decode to the pattern, `BAD` ones must be refused.

The corners of the pattern show orientation, channel order and size. `BAD` maps a name to the file
and the slug of its refusal.
"""

import io
import struct
import zlib

import cv2
import numpy as np
from heic_files import FILES as HEIC_FILES
from PIL import Image, ImageOps

WIDTH, HEIGHT = 64, 48
# In the header of a PNG: 8 bits, RGB, not interlaced.
RGB8 = bytes([8, 2, 0, 0, 0])
RED, GREEN, BLUE, YELLOW = (220, 30, 30), (30, 200, 40), (40, 50, 210), (230, 220, 40)


def pattern(width=WIDTH, height=HEIGHT):
    """(height, width, 3) uint8 RGB: quarters of red and green above blue and yellow."""
    pixels = np.empty((height, width, 3), np.uint8)
    top, left = height // 2, width // 2
    pixels[:top, :left], pixels[:top, left:] = RED, GREEN
    pixels[top:, :left], pixels[top:, left:] = BLUE, YELLOW
    return pixels


def encode(pixels, file_format, mode="RGB", **options):
    """Encode a picture with Pillow after converting it to `mode`."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(buffer, file_format, **options)
    return buffer.getvalue()


def exif(orientation, thumbnail=b""):
    """An EXIF block with an orientation, followed by the bytes of a JPEG thumbnail."""
    block = Image.Exif()
    block[0x0112] = orientation
    return block.tobytes() + thumbnail


def rgba(alpha):
    """The pattern as (H, W, 4) uint8 RGBA; its right half has the given alpha."""
    pixels = np.dstack([pattern(), np.full((HEIGHT, WIDTH), 255, np.uint8)])
    pixels[:, WIDTH // 2 :, 3] = alpha
    return pixels


def truncated_jpeg(**options):
    """A JPEG without its last quarter."""
    noise = np.random.default_rng(0).integers(0, 255, (200, 300, 3), dtype=np.uint8)
    whole = encode(noise, "JPEG", **options)
    return whole[: len(whole) * 3 // 4]


def png_chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of(width, height, *chunks, kind=RGB8):
    """A PNG of these chunks; `kind` are the header's bytes from bit depth to interlacing."""
    header = struct.pack(">II", width, height) + kind
    whole = (b"IHDR", header), *chunks, (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(*chunk) for chunk in whole)


def png_claiming(width, height):
    """A well-formed PNG of a hundred bytes whose header claims any size."""
    return png_of(width, height, (b"IDAT", zlib.compress(bytes(1000))))


def jpeg_claiming(width, height):
    """A small JPEG whose frame header claims any size up to 65,535."""
    data = bytearray(encode(pattern(), "JPEG"))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = struct.pack(">HH", height, width)
    return bytes(data)


def isobmff(brand):
    """The first box of a HEIC or AVIF photo, followed by nothing that can be decoded."""
    return struct.pack(">I", 24) + b"ftyp" + brand + bytes(4) + b"mif1" + brand + bytes(200)


def oriented(file_format, orientation):
    """A file of the pattern, rotated as a camera stores it, with the tag that rotates it back."""
    image = Image.fromarray(pattern())
    image.getexif()[0x0112] = {6: 8, 8: 6}.get(orientation, orientation)  # the inverse
    stored = np.asarray(ImageOps.exif_transpose(image))
    return encode(stored, file_format, **FAITHFUL[file_format], exif=exif(orientation))


# Options that keep the pattern's colours.
JPEG = {"quality": 95, "subsampling": 0}
FAITHFUL = {"JPEG": JPEG, "PNG": {}, "WEBP": {"lossless": True}, "TIFF": {}}
THUMBNAIL = exif(1, encode(pattern(32, 24), "JPEG"))
DEEP_BGR = (pattern().astype(np.uint16) * 257)[..., ::-1]

GOOD = {
    "jpeg": encode(pattern(), "JPEG", **JPEG),
    "progressive jpeg": encode(pattern(), "JPEG", **JPEG, progressive=True),
    "cmyk jpeg": encode(pattern(), "JPEG", "CMYK", **JPEG),
    "jpeg with trailing bytes": encode(pattern(), "JPEG", **JPEG) + b"tail",
    "jpeg with a thumbnail": encode(pattern(), "JPEG", **JPEG, exif=THUMBNAIL),
    "png": encode(pattern(), "PNG"),
    "palette png": encode(pattern(), "PNG", "P"),
    "16-bit png": cv2.imencode(".png", DEEP_BGR)[1].tobytes(),
    "webp": encode(pattern(), "WEBP", lossless=True),
    "bmp": encode(pattern(), "BMP"),
    "gif": encode(pattern(), "GIF"),
    "animated gif": encode(
        pattern(), "GIF", save_all=True, append_images=[Image.new("RGB", (WIDTH, HEIGHT))]
    ),
    "tiff": encode(pattern(), "TIFF"),
    "lzw tiff": encode(pattern(), "TIFF", compression="tiff_lzw"),
    "16-bit tiff": cv2.imencode(".tiff", DEEP_BGR)[1].tobytes(),
    "cmyk tiff": encode(pattern(), "TIFF", "CMYK"),
    "heic": HEIC_FILES["plain"],
    "10-bit heic": HEIC_FILES["deep"],
    "heic with a phone's mark behind it": HEIC_FILES["plain"] + b"0:1477    LIVE_18666740",
    "heic, the second of two": HEIC_FILES["second_of_two"],
    **{f"heic, orientation {turn}": HEIC_FILES[f"orientation_{turn}"] for turn in range(2, 9)},
}
GOOD |= {
    f"{file_format.lower()}, orientation {orientation}": oriented(file_format, orientation)
    for orientation in range(1, 9)
    for file_format in FAITHFUL
}
GOOD |= {
    f"opaque rgba {kind.lower()}": encode(rgba(255), kind, "RGBA", **FAITHFUL[kind])
    for kind in ("PNG", "WEBP", "TIFF")
}

BAD = {
    "empty": (b"", "empty-image"),
    "text": (b"not an image at all, just words", "unsupported-type"),
    "heic header only": (isobmff(b"heic"), "broken-image"),
    "truncated heic": (HEIC_FILES["plain"][:-20], "broken-image"),
    "heic sequence": (isobmff(b"hevc"), "unsupported-type"),
    "avif": (isobmff(b"avif"), "unsupported-type"),
    "mp4": (struct.pack(">I", 20) + b"ftypisom" + bytes(100), "unsupported-type"),
    "pdf": (b"%PDF-1.7\n%\xe2\xe3\n", "unsupported-type"),
    "svg": (b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>', "unsupported-type"),
    "truncated jpeg": (truncated_jpeg(), "broken-image"),
    "truncated jpeg with a whole thumbnail": (truncated_jpeg(exif=THUMBNAIL), "broken-image"),
    "jpeg header only": (b"\xff\xd8\xff\xe0", "broken-image"),
    "jpeg without a picture": (b"\xff\xd8\xff\xd9", "broken-image"),
    "truncated png": (GOOD["png"][:-20], "broken-image"),
    "png of another checksum": (GOOD["png"][:-16] + bytes(4) + GOOD["png"][-12:], "broken-image"),
    "png header only": (b"\x89PNG\r\n\x1a\n", "broken-image"),
    "png of no pixels": (png_claiming(0, 10), "broken-image"),
    "png of fewer rows than claimed": (png_claiming(600, 400), "broken-image"),
    "truncated webp": (encode(pattern(), "WEBP")[:-20], "broken-image"),
    "truncated bmp": (GOOD["bmp"][:-500], "broken-image"),
    "truncated gif": (GOOD["gif"][:-30], "broken-image"),
    "tiff header only": (b"II*\0", "broken-image"),
    "png bomb": (png_claiming(100_000, 100_000), "too-many-pixels"),
    "32-bit tiff": (encode(pattern(), "TIFF", "F"), "unsupported-type"),
}
# Bad files that only the decoder can tell from good ones: their headers are good.
SEEN_BY_DECODING = {
    "truncated jpeg",
    "truncated jpeg with a whole thumbnail",
    "truncated bmp",
    "truncated gif",
    "png of fewer rows than claimed",
}
