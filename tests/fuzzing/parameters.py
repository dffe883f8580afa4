"""Odd values of parameters, headers and fields, beside a sound photo."""

import random
from urllib.parse import quote_from_bytes

from photo_files import GOOD

from fuzzing.attempts import Attempt
from fuzzing.requests import (
    ALPR,
    PHOTO_FIELDS,
    PLATES,
    SNAPSHOT,
    Header,
    part,
    photo_form,
    raw_photo,
)

_PHOTO = GOOD["jpeg"]
_NUMBERS = (
    *(b"0", b"-0", b"-1", b"1e308", b"1e309", b"-1e400", b"nan", b"inf", b"-Infinity", b"0x10"),
    *(b"1_000", b"\xd9\xa1\xd9\xa2", b" 1 ", b"1,0", b"", b"true", b"9" * 400, b"1e-400", b"\0"),
)
_TEXTS = (
    *(b"", b"\0", b"\xff\xfe", b"' OR 1=1 --", b"../../etc/passwd", b"${jndi:ldap://127.0.0.1}"),
    *(
        b"<script>alert(1)</script>",
        b"\xf0\x9f\x9a\x97" * 50,
        b"%s%n%x",
        b"a" * 3000,
        b"\xe2\x80\xae",
    ),
)
_URLS = (b"http://127.0.0.1:9/", b"file:///etc/passwd", b"gopher://127.0.0.1", b"//127.0.0.1/")
_CONFIGS = (
    *(b"{}", b"[]", b"null", b"{", b'{"threshold_d": NaN}', b'{"threshold_d": 1e999}'),
    *(b'{"threshold_o": -1}', b'{"threshold_d": "0.5"}', b'{"mode": "redaction"}', b'"x"'),
    *(b'{"region": "strict"}', b'{"region": []}', b'{"mode": {"a": 1}}', b"[" * 12_000),
    *(b'{"a": ' * 3000 + b"1" + b"}" * 3000, b'{"threshold_d": ' + b"9" * 5000 + b"}", b"\xff"),
    b'{"threshold_d": 0.1, "threshold_d": 5}',
)
_TIMES = (
    *(b"2026-08-19T13:11:25Z", b"0001-01-01T00:00:00+14:00", b"9999-12-31T23:59:59-14:00"),
    *(b"2026-02-30", b"1e9", b"now", b"2026-W01-1", b"2026-01-01T00:00:00+99:99", b"\xd9\xa1"),
)
_FIELDS: dict[bytes, tuple[bytes, ...]] = {
    b"min_width": _NUMBERS,
    b"redact": (b"true", b"1", b"yes", b"maybe", b"", b"\0"),
    b"regions": (b"ru", b"", b"," * 4000, *_TEXTS),
    b"camera_id": _TEXTS,
    b"timestamp": (*_TIMES, *_TEXTS),
    b"mmc": (b"true", b"maybe", b"2"),
    b"config": _CONFIGS,
    b"min_confidence": _NUMBERS,
    b"upload_url": _URLS,
    b"unknown": _TEXTS,
    b"__proto__": _TEXTS,
}
_HEADERS: dict[bytes, tuple[bytes, ...]] = {
    b"X-Request-Timeout": (b"0.001", b"0.05", b"1e-300", b"30", b"1e300", *_NUMBERS),
    b"X-Request-Id": (b"a" * 64, b"a" * 65, b"../x", b"\xff", b"a\tb", b"a,b", b"", b"{0}", b"%n"),
    b"Authorization": (b"", b"Bearer", b"Bearer ", b"Token \xff", b"Basic Og==", b"a" * 9000),
    b"Accept": (b"text/html", b"*/*;q=nan", b"image/webp", b"\xff", b"," * 4000),
    b"Accept-Encoding": (b"gzip, br;q=9", b"identity;q=0"),
    b"Origin": (b"null", b"http://evil.example", b"\xff"),
}


def _roi(rng: random.Random) -> bytes:
    count = rng.choice((4, 4, 4, 4, 0, 1, 3, 5, 2000))
    sides = rng.choices((*_NUMBERS, b"0", b"10", b"5000", b"0.5"), k=count)
    return rng.choice((b",", b",", b";", b" ")).join(sides)


def odd_parameters(rng: random.Random) -> Attempt:
    """A sound photo with odd company: in the address, in the form, in the head."""
    path = rng.choice((PLATES, PLATES, SNAPSHOT, ALPR, "/v1/plates/batch"))
    names = rng.choices((b"roi", *_FIELDS), k=rng.choice((1, 1, 2, 4)))
    given = [(n, _roi(rng) if n == b"roi" else rng.choice(_FIELDS[n])) for n in names]
    chosen = rng.choices(tuple(_HEADERS), k=rng.choice((0, 0, 1, 2)))
    headers: tuple[Header, ...] = tuple((name, rng.choice(_HEADERS[name])) for name in chosen)
    if rng.random() < 0.5 and path in PHOTO_FIELDS:
        sent = photo_form(path, _PHOTO, *(part(n, v) for n, v in given), headers=headers)
    else:
        query = b"?" + b"&".join(n + b"=" + quote_from_bytes(v).encode() for n, v in given)
        sent = raw_photo(path, _PHOTO, *headers, query=query)
    hurried = b"X-Request-Timeout" in chosen
    return Attempt("odd parameters", path, (sent,), may_time_out=hurried)
