"""Logs: one JSON object per line, or text for a terminal. Never what was sent.

What was sent is plates, photos, tokens, addresses and form values. Messages of exceptions
quote such values, so tracebacks are written without them.
"""

import json
import logging
import sys
import traceback
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal

# The request that is being served; every line has it.
current_request_id: ContextVar[str] = ContextVar("current_request_id", default="")
# What a log call may give besides its message, as `extra`.
FIELDS = ("method", "route", "status", "ms", "bytes_in", "plates", "refusal")
Format = Literal["json", "text"]


def configure(format_name: Format | None) -> None:
    """Send the logs of the whole process, uvicorn's own included, to stderr.

    Args:
        format_name: None takes text on a terminal and JSON elsewhere.
    """
    handler = logging.StreamHandler()
    as_text = format_name == "text" or (format_name is None and sys.stderr.isatty())
    handler.setFormatter(TextFormatter() if as_text else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("plates").setLevel(logging.INFO)


class _Formatter(logging.Formatter):
    def formatException(self, ei: Any) -> str:  # noqa: N802  logging's name
        """Write where an exception and its causes came from, and their types, but no messages."""
        trace = traceback.TracebackException(*ei)
        return "".join(_without_messages(trace)).rstrip()


class JsonFormatter(_Formatter):
    """One object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """As `logging.Formatter.format`."""
        document: dict[str, object] = {
            "time": _moment(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            **_fields(record),
        }
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str)


class TextFormatter(_Formatter):
    """One line per record, for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """As `logging.Formatter.format`."""
        fields = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        message = _message(record).replace("\n", " | ")
        moment = _moment(record).astimezone().strftime("%H:%M:%S")
        line = f"{moment} {record.levelname} {record.name}: {message} {fields}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _moment(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _message(record: logging.LogRecord) -> str:
    message = record.getMessage().strip()
    # The further lines of asyncio show objects, exceptions and their messages among them.
    return message.partition("\n")[0] if record.name == "asyncio" else message


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """The request's id and the further fields of a record, those that it has."""
    request_id = current_request_id.get()
    named = {"request_id": request_id} if request_id else {}
    values = {name: getattr(record, name, None) for name in FIELDS}
    return named | {name: value for name, value in values.items() if value is not None}


def _without_messages(trace: traceback.TracebackException) -> list[str]:
    lines: list[str] = []
    before = trace.__cause__ or (None if trace.__suppress_context__ else trace.__context__)
    if before is not None:
        lines += _without_messages(before)
    lines += ["Traceback (most recent call last):\n", *trace.stack.format()]
    name = trace.exc_type.__name__ if trace.exc_type else "Exception"
    lines.append(f"{name} (its message is left out: it may quote what was sent)\n")
    return lines
