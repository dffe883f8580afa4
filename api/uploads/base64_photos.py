"""Photos that come as base64 text: in a form's field, or in a JSON object.

Texts are as long as photos, so everything here takes time and memory linear in them. Call it
off the event loop; `api.uploads.receiving` counts its copies. What makes no sense raises
`InvalidForm`.
"""

import binascii
import json
import re
from collections.abc import Iterable
from urllib.parse import unquote_plus

from api.errors import InvalidForm

Fields = list[tuple[str, bytes]]

# Of a form or an object; a photo's text counts as one.
MAX_FIELDS = 64
# `data:image/jpeg;base64,` (RFC 2397), as browsers put it before what they encode.
_DATA_PREFIX = re.compile(rb"\s*data:[\w.+-]*/?[\w.+-]*(;[\w.+=-]*)*,", re.ASCII)
# Also the alphabet for addresses (RFC 4648, 5).
_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
# What base64 text and its prefix look like when percent-encoded.
_PERCENT = [(f"%{ord(char):02X}", char) for char in "+/=\r\n ;:,"]


def photo_from_base64(text: bytes, field: str) -> bytes:
    """Decode a photo; a `data:` prefix, line ends and missing padding are tolerated."""
    prefix = _DATA_PREFIX.match(text[:200])
    body = text[prefix.end() if prefix else 0 :].translate(_TO_STANDARD, b" \t\r\n").rstrip(b"=")
    try:
        return binascii.a2b_base64(body + b"=" * (-len(body) % 4), strict_mode=True)
    except binascii.Error as error:
        raise InvalidForm(
            f"The field '{field}' came as text that is not base64. Send the file itself, "
            "or its bytes in base64."
        ) from error


def fields_of_urlencoded(body: bytes, photo_fields: Iterable[str]) -> Fields:
    """Read an application/x-www-form-urlencoded body: names and values in their order.

    In the photo fields, whose values are base64, a plus sign is no space, whether or not the
    client escaped it.
    """
    if body.count(b"&") >= MAX_FIELDS:
        raise InvalidForm(f"The form has more than {MAX_FIELDS} fields.")
    fields: Fields = []
    for pair in body.split(b"&"):
        key, _, value = pair.partition(b"=")
        name = unquote_plus(key[:1000].decode(errors="replace"))
        fields.append((name, _unescaped(value) if name in photo_fields else _unquoted(value)))
    return fields


def fields_of_json(body: bytes) -> Fields:
    """Read a JSON object as if it were a form: lists repeat a field, null leaves it out.

    Objects inside it stay JSON.
    """
    # Each of these makes an object of some 60 bytes; base64 has none of them.
    if sum(body.count(mark) for mark in (b",", b"[", b"{")) > 10 * MAX_FIELDS:
        raise InvalidForm("The JSON has too many parts. Send one photo and its few parameters.")
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidForm("The body is not valid JSON.") from error
    if not isinstance(given, dict):
        raise InvalidForm('The body is not a JSON object; expected {"upload": "…"}.')
    fields: Fields = []
    for name, value in given.items():
        values = value if isinstance(value, list) else [value]
        # JSON can escape halves of characters, which no answer could quote.
        shown = _as_text(name).decode()
        fields += [(shown, _as_text(item)) for item in values if item is not None]
    return fields


def _as_text(value: object) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode(errors="replace")


def _unescaped(value: bytes) -> bytes:
    # Not `unquote`: of a long text full of escapes it makes an object for each.
    for escape, char in _PERCENT:
        value = value.replace(escape.encode(), char.encode())
        value = value.replace(escape.lower().encode(), char.encode())
    return value


def _unquoted(value: bytes) -> bytes:
    # The caller refuses longer ones; escaped bytes come in threes.
    return unquote_plus(value[: 64 * 1024].decode(errors="replace")).encode(errors="replace")
