"""Photos as they come in over HTTP, with limits that hold while they are still coming."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.requests import Request

from api.errors import (
    InvalidParameter,
    MissingImage,
    Overloaded,
    PhotoTooLarge,
    Problem,
    UnsupportedMediaType,
    UploadTimeout,
)
from api.forms import Part, read_form
from api.settings import Settings
from plate_models.images import too_many_bytes_message
from plate_models.spec import Limits

FIELD = "image"
Take = Callable[[int], None]

# What a form may add to the photo: boundaries, part headers, a few short fields.
_FORM_OVERHEAD_BYTES = 64 * 1024
# How long the rest of a refused upload is waited for.
_DISCARD_S = 5.0


@dataclass(frozen=True)
class Upload:
    """A photo and the form fields that came with it.

    Attributes:
        photo: The file's bytes.
        fields: Form fields other than the photo; empty for a raw body.
    """

    photo: bytes
    fields: dict[str, str]


class UploadMemory:
    """The bytes that all uploads together hold in memory."""

    def __init__(self, settings: Settings) -> None:
        self._limit = settings.max_in_flight * (settings.max_bytes + _FORM_OVERHEAD_BYTES)
        self._used = 0

    @contextmanager
    def share(self) -> Iterator[Take]:
        """Account for the bytes of one upload, until the context ends.

        Yields:
            To be called with the number of bytes that came; raises `Overloaded` where
            they are too many.
        """
        taken = 0

        def take(count: int) -> None:
            nonlocal taken
            if self._used + count > self._limit:
                raise Overloaded("Too many photos are coming in at once. Try again shortly.")
            self._used += count
            taken += count

        try:
            yield take
        finally:
            self._used -= taken


async def read_upload(request: Request, settings: Settings, take: Take) -> Upload:
    """Read the photo from the body: a multipart form, or the file itself.

    Never holds more than the limit in memory, whatever Content-Length says, and writes
    nothing to disk.

    Args:
        request: The request, its body not read yet.
        settings: How many bytes the photo may have, and how long it may take.
        take: Accounts for its memory; see `UploadMemory`.

    Returns:
        The photo, not checked further.

    Raises:
        RequestProblem: Neither form; a form that is broken or holds no photo.
        PhotoTooLarge: More bytes than the limit.
        UploadTimeout: The body did not end in time.
        Overloaded: All uploads together hold too much memory.
        ClientDisconnect: The sender is gone.
    """
    limits, timeout_s = settings.limits, settings.upload_timeout_s
    try:
        async with asyncio.timeout(timeout_s):
            return await _read(request, limits, take)
    except TimeoutError as error:
        raise UploadTimeout(f"The photo did not come within {timeout_s:g} seconds.") from error
    except Problem:
        await _discard_rest(request, limits.max_bytes)
        raise


async def _read(request: Request, limits: Limits, take: Take) -> Upload:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return await _read_form(request, limits, take)
    if kind.startswith("image/"):
        body = bytearray()
        async for chunk in _bounded(request, limits.max_bytes, limits, take):
            body += chunk
        return Upload(bytes(body), {})
    raise UnsupportedMediaType(
        f"The Content-Type is {kind or 'missing'}. Send the photo as the field '{FIELD}' of a "
        "multipart/form-data body, or as the body itself with the type image/jpeg, image/png …"
    )


async def _read_form(request: Request, limits: Limits, take: Take) -> Upload:
    body = _bounded(request, limits.max_bytes + _FORM_OVERHEAD_BYTES, limits, take)
    parts = await read_form(request.headers["content-type"], body)
    fields = {part.name: part.text for part in parts if not part.is_file}
    photo = _only_photo([part for part in parts if part.is_file], fields)
    return Upload(bytes(photo.content), fields)


def _only_photo(files: list[Part], fields: dict[str, str]) -> Part:
    """Find the one file in the field `image`; everything else is a mistake worth naming."""
    photos = [part for part in files if part.name == FIELD]
    if not photos and FIELD in fields:
        raise MissingImage(
            f"The field '{FIELD}' came as text. Send it as a file: curl -F {FIELD}=@photo.jpg"
        )
    others = sorted({part.name for part in files} - {FIELD})
    if not photos:
        came = ", ".join(f"'{name}'" for name in sorted({*others, *fields}))
        raise MissingImage(
            f"The form has no file in the field '{FIELD}'; its fields are: {came or 'none'}."
        )
    if len(files) > 1:
        also = f", also in the fields {', '.join(others)}" if others else ""
        raise InvalidParameter(f"One photo per request: the form has {len(files)} files{also}.")
    return photos[0]


async def _bounded(
    request: Request, max_bytes: int, limits: Limits, take: Take
) -> AsyncGenerator[bytes]:
    """Pass the body on until it is longer than allowed."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > max_bytes:
        raise PhotoTooLarge(too_many_bytes_message(limits))
    received = 0
    async for chunk in request.stream():
        received += len(chunk)
        if received > max_bytes:
            raise PhotoTooLarge(too_many_bytes_message(limits))
        take(len(chunk))
        yield chunk


async def _discard_rest(request: Request, max_bytes: int) -> None:
    """Let a refused sender finish, within bounds.

    To close a connection on which bytes are still coming resets it, and the sender never
    sees the answer. Whoever waits for "100 Continue" has not sent anything yet.
    """
    if "expect" in request.headers:
        return
    try:
        async with asyncio.timeout(_DISCARD_S):
            discarded = 0
            async for chunk in request.stream():
                discarded += len(chunk)
                if discarded > max_bytes:
                    return
    except (TimeoutError, RuntimeError):  # RuntimeError: it was read to its end before.
        return
