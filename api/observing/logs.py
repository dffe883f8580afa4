"""Logs: one JSON object per line, or text for a terminal, without anything that clients sent.

Logs must not contain plates, photos, tokens, addresses and form values. Exceptions' messages may
quote them, so tracebacks are logged without these messages.
"""

import json
import logging
import sys
import traceback
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

# The id of the current request, which each line contains.
current_request_id: ContextVar[str] = ContextVar("current_request_id", default="")
# The fields that log calls may pass as `extra`.
FIELDS = ("request_id", "method", "route", "status", "ms", "bytes_in", "plates", "refusal")
Format = Literal["json", "text"]


def configure(format_name: Format | None) -> None:
    """Log the whole process to stderr; None means text on a terminal, JSON elsewhere."""
    handler = logging.StreamHandler()
    as_text = format_name == "text" or (format_name is None and sys.stderr.isatty())
    handler.setFormatter(_Formatter(as_text))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("plates").setLevel(logging.INFO)
    # It warns of each malformed form, which is a client's fault, and quotes a byte of it.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)


class _Formatter(logging.Formatter):
    def __init__(self, as_text: bool) -> None:
        super().__init__()
        self._as_text = as_text

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage().strip()
        if record.name == "asyncio":
            # asyncio's further lines show objects, such as exceptions with their messages.
            message = message.partition("\n")[0]
        values = {name: getattr(record, name, None) for name in FIELDS}
        values["request_id"] = values["request_id"] or current_request_id.get() or None
        fields = {name: value for name, value in values.items() if value is not None}
        trace = traceback.TracebackException(*record.exc_info) if record.exc_info else None
        lines = "".join(_without_messages(trace)).rstrip() if trace else ""
        moment = datetime.fromtimestamp(record.created, UTC)
        if self._as_text:
            text = message.replace("\n", " | ")
            shown = " ".join(f"{name}={value}" for name, value in fields.items())
            head = f"{moment.astimezone():%H:%M:%S} {record.levelname} {record.name}: "
            return f"{head}{text} {shown}".rstrip() + (f"\n{lines}" if lines else "")
        document = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message,
            **fields,
            **({"traceback": lines} if lines else {}),
        }
        return json.dumps(document, default=str)


def _without_messages(trace: traceback.TracebackException) -> list[str]:
    """The traceback lines of an exception and its causes, with types but without messages."""
    before = trace.__cause__ or (None if trace.__suppress_context__ else trace.__context__)
    lines = _without_messages(before) if before else []
    lines += ["Traceback (most recent call last):\n", *trace.stack.format()]
    name = trace.exc_type.__name__ if trace.exc_type else "Exception"
    lines.append(f"{name} (its message is left out: it may quote what was sent)\n")
    return lines
