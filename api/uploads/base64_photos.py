"""Photos as base64 text, in a field of a form or in a JSON object.

The texts are as long as photos, so all functions take time and memory linear in their length. Call
them off the event loop; `api.uploads.receiving` accounts for the copies they make. They raise
`InvalidForm` for invalid input.
"""

import binascii
import json
import re
from collections.abc import Iterable
from urllib.parse import unquote_plus

from api.errors import InvalidForm

Fields = list[tuple[str, bytes]]

# Maximum number of fields of a form or object, the photo included.
MAX_FIELDS = 64
# The prefix `data:image/jpeg;base64,` (RFC 2397) of the data URLs that browsers make.
_DATA_PREFIX = re.compile(rb"\s*data:[\w.+-]*/?[\w.+-]*(;[\w.+=-]*)*,", re.ASCII)
# From the URL-safe base64 alphabet (RFC 4648, 5) to the standard one.
_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
# Percent-encodings of the characters of base64 text and its prefix.
_PERCENT = [(f"%{ord(char):02X}", char) for char in "+/=\r\n ;:,"]


def photo_from_base64(text: bytes, field: str) -> bytes:
    """Decode a photo; tolerates a `data:` prefix, line ends and missing padding."""
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
    """Parse an application/x-www-form-urlencoded body into names and values, in order.

    In the photo fields a plus sign is a base64 character and not a space, even if unescaped.
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
    """Parse a JSON object into fields: a list repeats a field, null omits it.

    Values that are objects stay JSON text.
    """
    # Each of these characters makes a Python object of about 60 bytes; base64 has none of them.
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
        # JSON can contain lone surrogates, which an answer can't quote: replace them.
        shown = _as_text(name).decode()
        fields += [(shown, _as_text(item)) for item in values if item is not None]
    return fields


def _as_text(value: object) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode(errors="replace")


def _unescaped(value: bytes) -> bytes:
    # Not `unquote`, which makes an object for each escape of a long text.
    for escape, char in _PERCENT:
        value = value.replace(escape.encode(), char.encode())
        value = value.replace(escape.lower().encode(), char.encode())
    return value


def _unquoted(value: bytes) -> bytes:
    # The caller refuses values of more than 16 KiB; an escaped byte takes three characters.
    return unquote_plus(value[: 64 * 1024].decode(errors="replace")).encode(errors="replace")
