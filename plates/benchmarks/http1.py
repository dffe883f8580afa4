"""HTTP/1.1 as a load generator needs it: little CPU, because it shares the service's cores.

A general client costs more per request than the gateway needs to refuse one, and would
measure itself. Requests are built once, answers are read as far as status, a few headers
and Content-Length.
"""

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

_HEAD_LIMIT = 64 * 1024
_HEAD_END = b"\r\n\r\n"


class NoAnswer(Exception):
    """No whole answer came; the message says what came instead."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go."""

    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> "Target":
        """Take the address from a URL.

        Args:
            url: http://host:port; a path is not looked at.

        Raises:
            ValueError: It is no such URL.
        """
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"{url!r} is not http://host:port; TLS is not spoken here")
        return cls(parts.hostname, parts.port or 80)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a service said.

    Attributes:
        status: Of HTTP.
        retry_after_s: Of the header Retry-After, where it gives seconds.
        body: As it came.
    """

    status: int
    retry_after_s: float | None
    body: bytes


def build_request(
    target: Target, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = {}
) -> bytes:
    """Write a whole request, to be sent as often as wanted.

    Args:
        target: For the header Host.
        method: Such as "POST".
        path: With the query, if any.
        body: May be empty.
        headers: Further ones; Content-Length is counted here unless it is among them.
    """
    lines = {"Host": f"{target.host}:{target.port}", **headers}
    if body or method == "POST":
        lines.setdefault("Content-Length", str(len(body)))
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


class Connection:
    """One connection that is kept open from answer to answer.

    Attributes:
        reusable: Whether another request may be sent.
        served: How many answers came.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.reusable = True
        self.served = 0

    @classmethod
    async def open(cls, target: Target) -> "Connection":
        """Connect.

        Raises:
            NoAnswer: Nobody listens there.
        """
        try:
            reader, writer = await asyncio.open_connection(
                target.host, target.port, limit=_HEAD_LIMIT
            )
        except OSError as error:
            raise NoAnswer(f"connect: {error.strerror or error}") from error
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(reader, writer)

    def send(self, data: bytes) -> None:
        """Send without waiting: whoever refuses a photo may answer before it is complete."""
        self._writer.write(data)

    async def answer(self) -> Answer:
        """Read one answer.

        Raises:
            NoAnswer: The connection ended or was reset, or this is not HTTP.
        """
        self.reusable = False
        try:
            head = await self._reader.readuntil(_HEAD_END)
            status, headers = _parse_head(head)
            length = headers.get(b"content-length")
            if length is not None:
                body = await self._reader.readexactly(int(length))
            else:
                body = await self._reader.read()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise NoAnswer(f"cut off: {type(error).__name__}") from error
        except ValueError as error:
            raise NoAnswer(f"not understood: {error}") from error
        self.reusable = length is not None and headers.get(b"connection", b"").lower() != b"close"
        self.served += 1
        retry_after = headers.get(b"retry-after", b"")
        return Answer(status, float(retry_after) if retry_after.isdigit() else None, body)

    def close(self) -> None:
        """Close at once; what was not sent yet is not sent."""
        self.reusable = False
        self._writer.transport.abort()


def _parse_head(head: bytes) -> tuple[int, dict[bytes, bytes]]:
    """Take the status and the headers, in lower case, from an answer's head.

    Raises:
        ValueError: It is not one that can be read here.
    """
    first, *lines = head[: -len(_HEAD_END)].split(b"\r\n")
    words = first.split(b" ", 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise ValueError(f"status line {first[:80]!r}")
    headers = {}
    for line in lines:
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip()
    if b"transfer-encoding" in headers:
        raise ValueError("chunked answers are not read here")
    return int(words[1]), headers
