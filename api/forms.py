"""Multipart forms, kept in memory (RFC 7578).

The framework's own parser writes files above a megabyte to disk, and takes a form that
was cut off for one that is complete.
"""

from collections.abc import AsyncIterable
from dataclasses import dataclass, field

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from api.errors import InvalidForm

MAX_PARTS = 16


@dataclass
class Part:
    """One part of a form.

    Attributes:
        name: The field's name.
        is_file: Whether it came with a file name.
        content: Its bytes.
    """

    name: str = ""
    is_file: bool = False
    content: bytearray = field(default_factory=bytearray)

    @property
    def text(self) -> str:
        """The content as text; bytes that are not UTF-8 become U+FFFD."""
        return self.content.decode(errors="replace")


class _Collector:
    """Callbacks of the parser: it reports pieces of names, values and contents."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.complete = False
        self._header_name = b""
        self._header_value = b""

    def on_part_begin(self) -> None:
        if len(self.parts) == MAX_PARTS:
            raise InvalidForm(f"The form has more than {MAX_PARTS} parts.")
        self.parts.append(Part())

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def on_header_end(self) -> None:
        if self._header_name.lower() == b"content-disposition":
            _, options = parse_options_header(self._header_value)
            self.parts[-1].name = options.get(b"name", b"").decode(errors="replace")
            self.parts[-1].is_file = b"filename" in options
        self._header_name = self._header_value = b""

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self.parts[-1].content += memoryview(data)[start:end]

    def on_end(self) -> None:
        self.complete = True


async def read_form(content_type: str, chunks: AsyncIterable[bytes]) -> list[Part]:
    """Read a whole multipart form.

    Args:
        content_type: The header, with its boundary.
        chunks: The body; whoever passes it on sees to its length.

    Returns:
        The parts in their order.

    Raises:
        InvalidForm: Not a multipart body, one that is cut off, or one of too many parts.
    """
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if not boundary:
        raise InvalidForm("The Content-Type has no boundary. Leave it to your HTTP library.")
    collector = _Collector()
    try:
        parser = MultipartParser(
            boundary,
            {
                "on_part_begin": collector.on_part_begin,
                "on_part_data": collector.on_part_data,
                "on_header_field": collector.on_header_field,
                "on_header_value": collector.on_header_value,
                "on_header_end": collector.on_header_end,
                "on_end": collector.on_end,
            },
        )
        async for chunk in chunks:
            parser.write(chunk)
        parser.finalize()
    except FormParserError as error:
        raise InvalidForm(f"The body is not a valid multipart form: {error}.") from error
    if not collector.complete:
        raise InvalidForm("The form is cut off: its closing boundary is missing.")
    return collector.parts
