"""HTTP that is none, and senders that stop, stutter or hang up."""

import random
from collections.abc import Callable

from photo_files import GOOD

from fuzzing.attempts import Attempt
from fuzzing.requests import PHOTO_FIELDS, SINGLE, Header, head, post, raw_photo, sample

_PHOTO = GOOD["jpeg"]
_METHODS = (b"GET", b"PUT", b"DELETE", b"TRACE", b"CONNECT", b"PRI", b"get", b"P\0ST", b"A" * 3000)
_TARGETS = (
    *(
        b"*",
        b"/" * 300,
        b"/..%2f..%2fetc/passwd",
        b"/%00",
        b"/%ff%fe",
        b"//v1/plates",
        b"/v1/plates/",
    ),
    *(b"http://127.0.0.1:1/v1/plates", b"/?" + b"a=b&" * 1500, b"/" + b"a" * 20_000, b"/\xff", b""),
    *(
        b"/docs",
        b"/metrics",
        b"/readyz",
        b"/openapi.json",
        b"/static/../../pyproject.toml",
        b"/info/",
    ),
)
_HEADERS: tuple[Header, ...] = (
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
_SILENT = {"may_stay_silent": True, "may_time_out": True}

Made = Callable[[random.Random, str], Attempt]


def _attempt(path: str, *pieces: bytes, **options: object) -> Attempt:
    return Attempt("broken connections", path, pieces, **(_SILENT | options))


def _odd_head(rng: random.Random, path: str) -> Attempt:
    method = rng.choice((b"POST", *_METHODS))
    target = rng.choice((path.encode(), *_TARGETS))
    headers = rng.choices(_HEADERS, k=rng.randrange(3))
    return _attempt(target.decode("latin-1"), head(method, target, *headers), hangs_up=False)


def _flipped_head(rng: random.Random, path: str) -> Attempt:
    sent = bytearray(raw_photo(path, _PHOTO))
    end = sent.index(b"\r\n\r\n")
    for _ in range(rng.choice((1, 2, 5))):
        sent[rng.randrange(end)] = rng.randrange(256)
    return _attempt(path, bytes(sent))


def _many_headers(rng: random.Random, path: str) -> Attempt:
    count = rng.choice((99, 101, 5000))
    fields = [(b"X-%d" % number, b"y" * rng.choice((1, 100))) for number in range(count)]
    return _attempt(path, post(path, b"image/jpeg", _PHOTO, *fields))


def _wrong_length(rng: random.Random, path: str) -> Attempt:
    """More is promised than comes, and then the sender is gone; or less, and junk follows."""
    promised = rng.choice((0, 1, len(_PHOTO) - 1, len(_PHOTO) + 1000, 10**9, 10**20))
    told = ((b"Content-Type", b"image/jpeg"), (b"Content-Length", b"%d" % promised))
    sent = head(b"POST", path.encode(), *told) + _PHOTO
    return _attempt(path, sent, hangs_up=promised > len(_PHOTO) and rng.random() < 0.8)


def _chunked(rng: random.Random, path: str) -> Attempt:
    told = ((b"Content-Type", b"image/jpeg"), (b"Transfer-Encoding", b"chunked"))
    sizes = (b"%x" % len(_PHOTO), b"-1", b"0x10", b"f" * 20, b"10;" + b"a" * 9000, b"zz", b"", b"0")
    chunks = b"".join(
        rng.choice(sizes) + b"\r\n" + _PHOTO + b"\r\n" for _ in range(rng.randrange(1, 4))
    )
    sent = head(b"POST", path.encode(), *told) + chunks + b"0\r\n\r\n"
    return _attempt(path, sent)


def _tiny_chunks(rng: random.Random, path: str) -> Attempt:
    told = ((b"Content-Type", b"image/jpeg"), (b"Transfer-Encoding", b"chunked"))
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in _PHOTO)
    return _attempt(path, head(b"POST", path.encode(), *told), chunks + b"0\r\n\r\n")


def _early_hang_up(rng: random.Random, path: str) -> Attempt:
    sent = raw_photo(path, sample(rng))
    # To the last byte: the nets are at work when nobody waits any more.
    length = rng.choice((len(sent), rng.randrange(1, len(sent))))
    return _attempt(path, sent[:length], hangs_up=True)


def _slow_body(rng: random.Random, path: str) -> Attempt:
    sent = raw_photo(path, _PHOTO, (b"X-Request-Timeout", b"0.3"))
    cuts = sorted(rng.randrange(len(sent)) for _ in range(5))
    pieces = [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    return _attempt(path, *pieces, pause_s=0.12)


def _pipelined(rng: random.Random, path: str) -> Attempt:
    """Several requests at once on one connection; the first answer is looked at."""
    sent = raw_photo(path, _PHOTO).replace(b"Connection: close\r\n", b"")
    return _attempt(path, sent * rng.choice((2, 5)))


def _junk(rng: random.Random, path: str) -> Attempt:
    length = rng.choice((1, 10, 1000, 30_000))
    starts = (b"", b"\x16\x03\x01\x02\0\x01\0", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\r\n" * 40)
    return _attempt(path, rng.choice(starts) + rng.randbytes(length), hangs_up=rng.random() < 0.9)


_CONNECTIONS: tuple[Made, ...] = (
    *(_odd_head, _odd_head, _odd_head, _flipped_head, _many_headers, _wrong_length),
    *(_chunked, _tiny_chunks, _early_hang_up, _slow_body, _pipelined, _junk),
)


def broken_connection(rng: random.Random) -> Attempt:
    """A connection that no client would make."""
    return rng.choice(_CONNECTIONS)(rng, rng.choice((*SINGLE, *PHOTO_FIELDS)))
