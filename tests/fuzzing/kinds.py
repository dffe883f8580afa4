"""Generators of hostile requests, one for each kind, and the shares of the kinds."""

import operator
from base64 import b64encode
from functools import cache
from itertools import pairwise
from urllib.parse import quote_from_bytes

import cv2
import numpy as np
from gateway_support import ALPR, BATCH, MULTIPART, READER, form, part
from photo_bombs import CHEAP, REFUSED
from photo_files import BAD, GOOD
from support import PHOTO, SAMPLES

from fuzzing.exchange import PHOTO_FIELDS, PLATES, SINGLE, Attempt

_SCENES = sorted(SAMPLES.glob("*.jpg"))
_FILES = tuple(GOOD.values())
_BOMBS = tuple(make for make, _ in REFUSED.values()) + tuple(CHEAP.values())
# Shorter files allow more requests.
_MAX_BOMB_BYTES = 300_000
_made = cache(operator.call)

FORM = MULTIPART.encode()


def head(method, target, *headers):
    """The head of a request with `Connection: close`."""
    fields = ((b"Host", b"localhost"), (b"Connection", b"close"), *headers)
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in fields)
    return method + b" " + target + b" HTTP/1.1\r\n" + lines + b"\r\n"


def post(path, kind, body, *headers, query=b""):
    described = ((b"Content-Type", kind), (b"Content-Length", b"%d" % len(body)))
    return head(b"POST", path.encode() + query, *described, *headers) + body


def raw_photo(path, photo, *headers, query=b""):
    return post(path, b"image/jpeg", photo, *headers, query=query)


def field(name, value):
    return part(value, f'form-data; name="{name}"')


def file_field(name, photo):
    return part(photo, f'form-data; name="{name}"; filename="a.jpg"')


# Markers in files, forms and heads, and integers at the limits of their ranges.
_WORDS = (
    *(b"\xff\xd8", b"\xff\xda", b"\xff\xc2", b"\xff\xdd", b"IDAT", b"PLTE", b"eXIf", b"acTL"),
    *(b"VP8X", b"VP8L", b"ALPH", b"ANMF", b"!\xff\x0b", b"\x3b", b"BM", b"II*\0", b"meta", b"grid"),
    *(b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\x01", b"\0"),
    *(b"\r\n", b"\r\n\r\n", b"--", b'"', b";", b":", b" ", b"=", b"&", b"%", b'{"a":', b"["),
)


def edited(rng, data):
    """A copy with pieces removed, changed, repeated, or replaced by others."""
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        # Often near the start: headers are short, and most of a file is pixels.
        start = rng.randrange(min(len(data), rng.choice((250, len(data)))) + 1)
        end = start + rng.choice((0, 1, 1, 2, 4, 400, len(data)))
        piece, other = data[start:end], rng.choice(_FILES)
        replacements = (
            b"",
            rng.randbytes(min(len(piece), 4)),
            rng.choice(_WORDS),
            rng.choice(_WORDS) * rng.choice((2, 1000, 30_000)),
            piece[:400] * rng.choice((2, 50, 500)),
            other[rng.randrange(len(other)) :],
        )
        data = data[:start] + rng.choice(replacements) + data[end:]
    return data


def hostile_file(rng):
    """A damaged file, mostly made from a good one; sometimes a bad file or a bomb."""
    choice = rng.random()
    if choice < 0.04:
        return rng.choice(tuple(BAD.values()))[0]
    if choice < 0.08:
        return _made(rng.choice(_BOMBS))[:_MAX_BOMB_BYTES]
    return edited(rng, rng.choice(_FILES))


def damaged_file(rng):
    """A hostile file, raw or in a form, on any route for photos."""
    photo = hostile_file(rng)
    if rng.random() < 0.1:
        # One bad file must not fail the rest: the answer is 200, or 429 from a busy service.
        files = [photo, *(hostile_file(rng) for _ in range(rng.randrange(4)))]
        body = form(*(file_field(PHOTO_FIELDS[BATCH], each) for each in files))
        return Attempt(BATCH, (post(BATCH, FORM, body),), statuses=frozenset({200, 429}))
    path = rng.choice(tuple(SINGLE))
    body = form(file_field(SINGLE[path], photo))
    return Attempt(path, (rng.choice((raw_photo(path, photo), post(path, FORM, body))),))


_TYPES = (
    *(b"multipart/form-data", b"multipart/form-data; boundary=", b"multipart/mixed; boundary=b"),
    *(FORM.replace(b"=", b'="'), FORM + b"b" * 3000, FORM + b"; boundary=c", FORM + b"\xff\0"),
    *(b"application/json", b"application/x-www-form-urlencoded", b"text/plain", b"image/", b""),
)


def malformed_form(rng):
    """A damaged body with a photo, or a wrong content type, on any route for photos."""
    path = rng.choice(tuple(PHOTO_FIELDS))
    name, text = PHOTO_FIELDS[path], b64encode(PHOTO)
    one = form(file_field(name, PHOTO))
    nested = part(one, f'form-data; name="{name}"; filename="b.jpg"', f"Content-Type: {MULTIPART}")
    kind, body = rng.choice(
        (
            (FORM, one),
            (FORM, form(file_field(name, PHOTO), field("roi", b"0,0,9,9"), nested)),
            (FORM, form(field(name, text))),
            (b"application/json", b'{"%b": ["%b"]}' % (name.encode(), text)),
            (b"application/x-www-form-urlencoded", b"%b=%b" % (name.encode(), text)),
        )
    )
    if rng.random() < 0.2:
        kind = rng.choice(_TYPES)
    else:
        body = edited(rng, body)
    return Attempt(path, (post(path, kind, body),))


def _picture(rng):
    """An odd picture, (H, W, 3) uint8 BGR."""
    scene = cv2.imread(str(rng.choice(_SCENES)))
    match rng.randrange(4):
        case 0:  # noise, also of one pixel or one row
            sides = rng.choice(((1, 1), (1, 60_000), (31, 5000), (3, 500), (8, 640), (1100, 1100)))
            noise = np.random.default_rng(rng.randrange(2**32))
            return noise.integers(0, 256, (*sides[:: rng.choice((1, -1))], 3), np.uint8)
        case 1:  # a chessboard of single pixels or of the nets' strides: the sharpest edges
            y, x = np.mgrid[: rng.randrange(1, 900), : rng.randrange(1, 1300)]
            step = rng.choice((1, 2, 4, 8, 16, 32))
            return np.dstack([((x // step + y // step) % 2 * 255).astype(np.uint8)] * 3)
        case 2:  # a tiled sample, so small that its plates are just detectable
            small = cv2.resize(scene, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
            return np.tile(small, (rng.choice((2, 4)), rng.choice((2, 5)), 1))
        case _:  # an enlarged piece: a plate may exceed the canvas; rotated, inverted
            y, x = (rng.randrange(side - 90) for side in scene.shape[:2])
            near = scene[y:, x:][: rng.choice((8, 90, 900)), : rng.choice((8, 90, 900))]
            near = cv2.resize(near, (rng.randrange(1, 3000), rng.randrange(1, 2000)))
            turned = np.ascontiguousarray(np.rot90(near, rng.randrange(4)))
            return turned ^ np.uint8(rng.choice((0, 255, rng.randrange(256))))


def odd_picture(rng):
    """An odd picture in a good file: it must be read, and the answer be valid."""
    photo = cv2.imencode(rng.choice((".png", ".jpg", ".bmp")), _picture(rng))[1].tobytes()
    path = rng.choice((PLATES, *SINGLE))
    return Attempt(path, (raw_photo(path, photo),), statuses=frozenset({200, 201, 429}))


_METHODS = (b"POST", b"GET", b"PUT", b"TRACE", b"CONNECT", b"PRI", b"get", b"\x16\x03\x01\x02\0")
_TARGETS = (
    *(b"*", b"", b"/..%2f..%2fetc/passwd", b"/%00", b"/%ff%fe", b"/\xff", b"//v1/plates"),
    *(b"http://127.0.0.1:1/v1/plates", b"/docs", b"/metrics", b"/info/", b"/" + b"a" * 20_000),
)
_ODD_HEADERS = (
    *((b"Content-Length", v) for v in (b"-1", b"1e3", b"0x10", b"9" * 30, b"5, 6", b"", b"+5")),
    *((b"Transfer-Encoding", v) for v in (b"chunked", b"gzip, chunked", b"identity", b"xchunked")),
    *((b"Expect", v) for v in (b"100-continue", b"200-ok", b"x" * 500)),
    *((b"Host", v) for v in (b"", b"\0", b"a" * 2000, b"[::1", b"evil\r\nX: y")),
    *((b"Upgrade", b"h2c"), (b"Range", b"bytes=0-" + b"0," * 500), (b"Cookie", b"\xff" * 5000)),
    *((b"X\0", b"y"), (b"", b"y"), (b"X y", b"z")),
)


def broken_connection(rng):
    """A connection that breaks HTTP or is interrupted, slow or pipelined."""
    path = rng.choice(tuple(PHOTO_FIELDS))
    target, sound = path.encode(), raw_photo(path, PHOTO)
    options = {"may_stay_silent": True, "may_time_out": True}
    match rng.randrange(6):
        case 0 | 1:
            target = rng.choice((target, *_TARGETS))
            path = target.decode("latin-1")
            odd = rng.choices(_ODD_HEADERS, k=rng.randrange(3))
            pieces = [head(rng.choice(_METHODS), target, *odd)]
        case 2:
            chunk = b"%x\r\n%b\r\n" % (len(PHOTO), PHOTO)
            kind, chunked = (b"Content-Type", b"image/jpeg"), (b"Transfer-Encoding", b"chunked")
            in_chunks = head(b"POST", target, kind, chunked) + chunk + b"0\r\n\r\n"
            pieces = [edited(rng, rng.choice((sound, in_chunks)))]
        case 3:  # also after the last byte: the nets run when the client disconnects
            sent = raw_photo(path, rng.choice(_SCENES).read_bytes())
            pieces = [sent[: rng.choice((len(sent), rng.randrange(1, len(sent))))]]
            options["hangs_up"] = True
        case 4:
            sent = raw_photo(path, PHOTO, (b"X-Request-Timeout", b"0.3"))
            cuts = [0, *sorted(rng.randrange(len(sent)) for _ in range(5)), len(sent)]
            pieces = [sent[a:b] for a, b in pairwise(cuts)]
            options["pause_s"] = 0.12
        case _:  # several requests at once; only the first answer is judged
            pieces = [sound.replace(b"Connection: close\r\n", b"") * rng.choice((2, 5))]
    return Attempt(path, tuple(pieces), **options)


_VALUES = (
    *(b"", b"0", b"-1", b"0.3", b"30", b"1e300", b"1e-400", b"nan", b"-Infinity"),
    *(b"0x10", b"1_000", b"gzip;q=9"),
    *(b"\xd9\xa1\xd9\xa2", b"9" * 400, b"\0", b"true", b"maybe", b"ru", b"sk,cz", b"," * 4000),
    *(b"0,0,640,480", b"9,9,1,1", b"nan,0,nan,9", b"1e308,-1e308,1,1", b"\xff\xfe", b"a" * 9000),
    *(b"../../etc/passwd", b"<script>alert(1)</script>", b"\xf0\x9f\x9a\x97" * 50, b"%s%n%x{0}"),
    *(b"2026-08-19T13:11:25Z", b"0001-01-01T00:00:00+14:00", b"2026-02-30", b"file:///etc/passwd"),
    *(b"{}", b"[]", b'{"threshold_d": NaN}', b'{"threshold_d": 1e999}', b'{"threshold_d": "0.5"}'),
    *(b'{"region": "strict"}', b"[" * 12_000, b'{"a": ' * 3000, b'{"threshold_d": ' + b"9" * 5000),
    *(b"Bearer ", b"Bearer a", b"Token \xff", b"Basic Og==", b"text/html", b"*/*;q=nan"),
)
_FIELDS = (
    *("roi", "min_width", "countries", "redact", "regions", "camera_id", "timestamp", "mmc"),
    *("config", "min_confidence", "upload_url", "unknown", "__proto__"),
)
_HEADERS = b"X-Request-Timeout X-Request-Id Authorization Accept Accept-Encoding Origin".split()


def odd_parameters(rng):
    """A good photo with odd parameters in the address or form, and odd headers."""
    path = rng.choice((PLATES, READER, ALPR, BATCH))
    given = [(rng.choice(_FIELDS), rng.choice(_VALUES)) for _ in range(rng.choice((1, 1, 2, 4)))]
    chosen = rng.choices(_HEADERS, k=rng.choice((0, 0, 1, 2)))
    headers = [(name, rng.choice(_VALUES)) for name in chosen]
    if rng.random() < 0.7:
        fields = (field(name, value) for name, value in given)
        sent = post(path, FORM, form(file_field(PHOTO_FIELDS[path], PHOTO), *fields), *headers)
    else:
        query = b"?" + "&".join(f"{n}={quote_from_bytes(v)}" for n, v in given).encode()
        sent = raw_photo(path, PHOTO, *headers, query=query)
    return Attempt(path, (sent,), may_time_out=b"X-Request-Timeout" in chosen)


# Kind to (generator, share in thousandths). A request that reaches the nets costs a hundred times
# as much as a refused one.
KINDS = {
    "damaged files": (damaged_file, 370),
    "malformed forms": (malformed_form, 170),
    "broken connections": (broken_connection, 140),
    "odd parameters": (odd_parameters, 250),
    "odd pictures": (odd_picture, 70),
}
