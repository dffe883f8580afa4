"""Multipart forms, kept in memory (RFC 7578).

The framework's own reader writes files above a megabyte to disk, and takes a form that was cut
off for one that is complete. Here its parser (python-multipart) calls back a collector.
"""

import re
from collections.abc import AsyncIterable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from api.errors import InvalidForm

MAX_NAME = 255
MAX_FIELD_BYTES = 16 * 1024
# Of each part. Browsers send two headers; proxies and odd libraries some more.
_MAX_HEADERS = 8
_MAX_HEADER_BYTES = 4096
# The plain `filename` wins where both are sent. A client that sends this one alone, though RFC
# 7578 forbids it (4.2), still means a file.
_EXTENDED_NAME = re.compile(r"""\bfilename\*\s*=\s*"?(utf-8|iso-8859-1)'[^']*'([^;"\s]*)""", re.I)


@dataclass
class Part:
    """One part of a form, or a photo that came in another way; its content is not checked.

    It is a file if it has a file name, even an empty one. None of the content is kept of a part
    that is too long.
    """

    name: str = ""
    filename: str | None = None
    content: bytes = b""
    is_too_long: bool = False

    @property
    def is_file(self) -> bool:
        """Whether it came with a file name."""
        return self.filename is not None


class _Collector:
    """Callbacks of the parser: it reports pieces of names, values and contents."""

    def __init__(self, parts: list[Part], max_parts: int, limit_of: Callable[[Part], int]) -> None:
        self.complete = False
        self._parts = parts
        self._max_parts = max_parts
        self._limit_of = limit_of
        self._limit = 0
        self._disposition = ""
        self._name = self._value = b""
        self._content = bytearray()

    def on_part_begin(self) -> None:
        if len(self._parts) == self._max_parts:
            raise InvalidForm(f"The form has more than {self._max_parts} parts.")
        self._disposition = ""

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def on_header_end(self) -> None:
        if self._name.lower() == b"content-disposition" and not self._disposition:
            self._disposition = self._value.decode("latin-1").strip()
        self._name = self._value = b""

    def on_headers_finished(self) -> None:
        part = _part_of(self._disposition, len(self._parts) + 1)
        self._limit = self._limit_of(part)
        self._parts.append(part)

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        part = self._parts[-1]
        if part.is_too_long:
            return
        if len(self._content) + end - start > self._limit:
            # The other parts may be good: what becomes of this one is not decided here.
            part.is_too_long, self._content = True, bytearray()
        else:
            self._content += memoryview(data)[start:end]

    def on_part_end(self) -> None:
        self._parts[-1].content, self._content = bytes(self._content), bytearray()

    def on_end(self) -> None:
        self.complete = True


def _part_of(disposition: str, number: int) -> Part:
    """Understand the Content-Disposition of a part, or refuse it by its place in the form."""
    kind, options = parse_options_header(disposition)
    name = options.get(b"name", b"").decode(errors="replace")
    if kind != b"form-data" or not name:
        raise InvalidForm(
            f'Part {number} has no name; expected Content-Disposition: form-data; name="…".'
        )
    if len(name) > MAX_NAME:
        raise InvalidForm(f"The name of part {number} is longer than {MAX_NAME} characters.")
    return Part(name, _filename(options, disposition))


def _filename(options: dict[bytes, bytes], disposition: str) -> str | None:
    """The file's name without folders and control characters; None if there is none."""
    extended = _EXTENDED_NAME.search(disposition)
    if b"filename" in options:
        given = options[b"filename"].decode(errors="replace")
    elif extended:
        given = unquote(extended[2], encoding=extended[1], errors="replace")
    else:
        return None
    name = re.split(r"[/\\]", given)[-1]
    return "".join(char for char in name if char.isprintable())[:MAX_NAME]


async def read_form(
    content_type: str,
    chunks: AsyncIterable[bytes],
    parts: list[Part],
    *,
    max_parts: int,
    limit_of: Callable[[Part], int],
) -> None:
    """Read a whole multipart form and append its parts to `parts`; the caller limits its length.

    `limit_of` says how many bytes a part may have, once its name is known. A form that is cut
    off, or makes no sense, raises `InvalidForm`.
    """
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if not boundary:
        raise InvalidForm("The Content-Type has no boundary. Leave it to your HTTP library.")
    collector = _Collector(parts, max_parts, limit_of)
    callbacks: Any = {
        name: getattr(collector, name) for name in dir(collector) if name.startswith("on_")
    }
    try:
        parser = MultipartParser(
            boundary, callbacks, max_header_count=_MAX_HEADERS, max_header_size=_MAX_HEADER_BYTES
        )
        async for chunk in chunks:
            parser.write(chunk)
        parser.finalize()
    except FormParserError as error:
        raise InvalidForm(f"The body is not a valid multipart form: {error}.") from error
    if not collector.complete:
        raise InvalidForm("The form is cut off: its closing boundary is missing.")
