"""Reads multipart forms (RFC 7578) into memory.

Starlette's own reader writes files of more than a megabyte to disk, and accepts truncated forms.
This module uses the same parser, python-multipart, with callbacks of its own.
"""

import re
from collections.abc import AsyncIterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, MultipartState, parse_options_header

from api.errors import InvalidForm

MAX_NAME = 255
MAX_FIELD_BYTES = 16 * 1024
# The parameter `filename*`. RFC 7578 (4.2) forbids it, but some clients send it alone, and mean a
# file. If both are sent, the plain `filename` is used.
_EXTENDED_NAME = re.compile(r"""\bfilename\*\s*=\s*"?(utf-8|iso-8859-1)'[^']*'([^;"\s]*)""", re.I)


@dataclass
class Part:
    """One part of a form, or a photo that is no part of a form; its content is not checked.

    A part with a file name, even an empty one, is a file.
    """

    name: str = ""
    filename: str | None = None
    content: bytes = b""


class FormReader:
    """Reads one multipart form and appends its parts to `parts`.

    The methods `_on_…` are the parser's callbacks, which get names, values and contents in pieces.
    Of a part that is too long one byte more than allowed is kept, by which the caller knows it: the
    other parts may be valid.
    """

    def __init__(self, parts: list[Part], max_parts: int, max_part_bytes: int) -> None:
        self._parts = parts
        self._max_parts = max_parts
        self._max_part_bytes = max_part_bytes
        self._disposition = ""
        self._name = self._value = b""
        self._content = bytearray()

    async def read(self, content_type: str, chunks: AsyncIterable[bytes]) -> None:
        """Read the form; the caller limits its total length.

        Raises `InvalidForm` if the form is truncated or invalid.
        """
        _, options = parse_options_header(content_type)
        boundary = options.get(b"boundary")
        if not boundary:
            raise InvalidForm("The Content-Type has no boundary. Leave it to your HTTP library.")
        own = (name for name in dir(self) if name.startswith("_on_"))
        callbacks: Any = {name[1:]: getattr(self, name) for name in own}
        try:
            # It refuses parts with more than 8 headers, and headers of more than some 4 KiB.
            parser = MultipartParser(boundary, callbacks)
            async for chunk in chunks:
                parser.write(chunk)
            parser.finalize()
        except FormParserError as error:
            raise InvalidForm(f"The body is not a valid multipart form: {error}.") from error
        if parser.state != MultipartState.END:
            raise InvalidForm("The form is cut off: its closing boundary is missing.")

    def _on_part_begin(self) -> None:
        if len(self._parts) == self._max_parts:
            raise InvalidForm(f"The form has more than {self._max_parts} parts.")
        self._disposition = ""

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        if self._name.lower() == b"content-disposition" and not self._disposition:
            self._disposition = self._value.decode("latin-1").strip()
        self._name = self._value = b""

    def _on_headers_finished(self) -> None:
        self._parts.append(_part_of(self._disposition, len(self._parts) + 1))

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        room = self._max_part_bytes + 1 - len(self._content)
        self._content += memoryview(data)[start : min(end, start + room)]

    def _on_part_end(self) -> None:
        self._parts[-1].content, self._content = bytes(self._content), bytearray()


def _part_of(disposition: str, number: int) -> Part:
    """Parse a part's Content-Disposition; an error names the part by its number."""
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
    """The file name without folders and control characters; None if the part has no name."""
    extended = _EXTENDED_NAME.search(disposition)
    if b"filename" in options:
        given = options[b"filename"].decode(errors="replace")
    elif extended:
        given = unquote(extended[2], encoding=extended[1], errors="replace")
    else:
        return None
    name = re.split(r"[/\\]", given)[-1]
    return "".join(char for char in name if char.isprintable())[:MAX_NAME]
