"""Malformed HTTP; senders that stop, stutter or hang up; odd parameters, headers and fields."""

import random
from itertools import pairwise
from typing import Any
from urllib.parse import quote_from_bytes

from fuzzing.bodies import PHOTO, SAMPLES
from fuzzing.exchange import (
    ALPR,
    BATCH,
    FORM,
    PHOTO_FIELDS,
    PLATES,
    READER,
    SINGLE,
    Attempt,
    Header,
    form,
    head,
    part,
    post,
    raw_photo,
)

_METHODS = (b"GET", b"PUT", b"DELETE", b"TRACE", b"CONNECT", b"PRI", b"get", b"P\0ST", b"A" * 3000)
_TARGETS = (
    *(b"*", b"", b"/" * 300, b"/..%2f..%2fetc/passwd", b"/%00", b"/%ff%fe", b"/\xff"),
    *(b"/v1/plates/", b"//v1/plates", b"http://127.0.0.1:1/v1/plates", b"/?" + b"a=b&" * 1500),
    *(b"/docs", b"/metrics", b"/readyz", b"/openapi.json", b"/info/", b"/" + b"a" * 20_000),
    b"/static/../../pyproject.toml",
)
_ODD_HEADERS: tuple[Header, ...] = (
    *((b"Content-Length", v) for v in (b"-1", b"1e3", b"0x10", b"9" * 30, b"5, 6", b"", b"+5")),
    *((b"Transfer-Encoding", v) for v in (b"chunked", b"gzip, chunked", b"identity", b"xchunked")),
    *((b"Expect", v) for v in (b"100-continue", b"200-ok", b"x" * 500)),
    *((b"Upgrade", v) for v in (b"h2c", b"websocket")),
    *((b"Host", v) for v in (b"", b"\0", b"a" * 2000, b"[::1", b"evil\r\nX: y")),
    *((b"Range", v) for v in (b"bytes=0-" + b"0," * 500, b"bytes=-1")),
    *((b"Cookie", v) for v in (b"a=b; " * 900, b"\xff\xff")),
    *((b"X-Forwarded-For", v) for v in (b"127.0.0.1", b"x" * 4000)),
    *((b"X" * 300, b"y"), (b"X\0", b"y"), (b"", b"y"), (b"X y", b"z")),
)
_CHUNK_SIZES = (
    *(b"%x" % len(PHOTO), b"-1", b"0x10", b"f" * 20, b"a;" + b"a" * 9000, b"zz", b"", b"0"),
)
_JUNK = (b"", b"\x16\x03\x01\x02\0\x01\0", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\r\n" * 40)


def broken_connection(rng: random.Random) -> Attempt:
    """A connection that no client would make."""
    path = rng.choice((*SINGLE, *PHOTO_FIELDS))
    target, sound = path.encode(), raw_photo(path, PHOTO)
    options: dict[str, Any] = {"may_stay_silent": True, "may_time_out": True}
    chunked = ((b"Content-Type", b"image/jpeg"), (b"Transfer-Encoding", b"chunked"))
    match rng.randrange(12):
        case 0 | 1 | 2:
            method = rng.choice((b"POST", *_METHODS))
            target = rng.choice((target, *_TARGETS))
            path = target.decode("latin-1")
            pieces = [head(method, target, *rng.choices(_ODD_HEADERS, k=rng.randrange(3)))]
        case 3:
            damaged, end = bytearray(sound), sound.index(b"\r\n\r\n")
            for _ in range(rng.choice((1, 2, 5))):
                damaged[rng.randrange(end)] = rng.randrange(256)
            pieces = [bytes(damaged)]
        case 4:
            value = b"y" * rng.choice((1, 100))
            fields = [(b"X-%d" % number, value) for number in range(rng.choice((99, 101, 5000)))]
            pieces = [post(path, b"image/jpeg", PHOTO, *fields)]
        case (
            5
        ):  # more is promised than comes, and then the sender is gone; or less, and junk follows
            more = (len(PHOTO) + 1000, 10**9, 10**20)
            promised = rng.choice((0, 1, len(PHOTO) - 1, *more))
            length = (b"Content-Length", b"%d" % promised)
            pieces = [head(b"POST", target, (b"Content-Type", b"image/jpeg"), length) + PHOTO]
            options["hangs_up"] = promised in more and rng.random() < 0.8
        case 6:
            sizes = rng.choices(_CHUNK_SIZES, k=rng.randrange(1, 4))
            chunks = b"".join(size + b"\r\n" + PHOTO + b"\r\n" for size in sizes)
            pieces = [head(b"POST", target, *chunked) + chunks + b"0\r\n\r\n"]
        case 7:
            chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in PHOTO)
            pieces = [head(b"POST", target, *chunked), chunks + b"0\r\n\r\n"]
        case 8:  # up to the last byte: the nets are at work when nobody waits any more
            sent = raw_photo(path, rng.choice(SAMPLES).read_bytes())
            pieces = [sent[: rng.choice((len(sent), rng.randrange(1, len(sent))))]]
            options["hangs_up"] = True
        case 9:
            sent = raw_photo(path, PHOTO, (b"X-Request-Timeout", b"0.3"))
            cuts = [0, *sorted(rng.randrange(len(sent)) for _ in range(5)), len(sent)]
            pieces = [sent[a:b] for a, b in pairwise(cuts)]
            options["pause_s"] = 0.12
        case 10:  # several at once; the first one's answer is looked at
            pieces = [sound.replace(b"Connection: close\r\n", b"") * rng.choice((2, 5))]
        case _:
            pieces = [rng.choice(_JUNK) + rng.randbytes(rng.choice((1, 10, 1000, 30_000)))]
            options["hangs_up"] = rng.random() < 0.9
    return Attempt(path, tuple(pieces), **options)


_NUMBERS = (
    *(b"0", b"-0", b"-1", b"1e308", b"1e309", b"-1e400", b"nan", b"inf", b"-Infinity", b"0x10"),
    *(b"1_000", b"\xd9\xa1\xd9\xa2", b" 1 ", b"1,0", b"", b"true", b"9" * 400, b"1e-400", b"\0"),
)
_TEXTS = (
    *(b"", b"\0", b"\xff\xfe", b"' OR 1=1 --", b"../../etc/passwd", b"${jndi:ldap://127.0.0.1}"),
    *(b"<script>alert(1)</script>", b"\xf0\x9f\x9a\x97" * 50, b"%s%n%x", b"a" * 3000),
    b"\xe2\x80\xae",
)
_CONFIGS = (
    *(b"{}", b"[]", b"null", b"{", b'{"threshold_d": NaN}', b'{"threshold_d": 1e999}'),
    *(b'{"threshold_o": -1}', b'{"threshold_d": "0.5"}', b'{"mode": "redaction"}', b'"x"'),
    *(b'{"region": "strict"}', b'{"region": []}', b'{"mode": {"a": 1}}', b"[" * 12_000, b"\xff"),
    *(b'{"a": ' * 3000 + b"1" + b"}" * 3000, b'{"threshold_d": ' + b"9" * 5000 + b"}"),
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
    b"upload_url": (b"http://127.0.0.1:9/", b"file:///etc/passwd", b"gopher://127.0.0.1", b"//a/"),
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
    path = rng.choice((PLATES, PLATES, READER, ALPR, BATCH))
    names = rng.choices((b"roi", *_FIELDS), k=rng.choice((1, 1, 2, 4)))
    given = [(n, _roi(rng) if n == b"roi" else rng.choice(_FIELDS[n])) for n in names]
    chosen = rng.choices(tuple(_HEADERS), k=rng.choice((0, 0, 1, 2)))
    headers = [(name, rng.choice(_HEADERS[name])) for name in chosen]
    if rng.random() < 0.5:
        fields = (part(name, value) for name, value in given)
        body = form(part(PHOTO_FIELDS[path], PHOTO, b"photo.jpg"), *fields)
        sent = post(path, FORM, body, *headers)
    else:
        query = b"?" + b"&".join(n + b"=" + quote_from_bytes(v).encode() for n, v in given)
        sent = raw_photo(path, PHOTO, *headers, query=query)
    return Attempt(path, (sent,), may_time_out=b"X-Request-Timeout" in chosen)
