"""Receives photos over HTTP, and enforces the limits during the upload."""

import asyncio
import heapq
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from api import errors
from api.request import RequestContext
from api.settings import Settings
from api.uploads import base64_photos
from api.uploads.base64_photos import MAX_FIELDS, Fields
from api.uploads.multipart import MAX_FIELD_BYTES, MAX_NAME, FormReader, Part
from plate_models.images import too_many_bytes_message

Take = Callable[[int], None]

FORM = "multipart/form-data"
URLENCODED = "application/x-www-form-urlencoded"
JSON = "application/json"

# Size of a form beside its photos: boundaries, part headers, a few short fields.
_FORM_OVERHEAD_BYTES = 64 * 1024
# Content-Encodings to refuse. Others, such as "utf-8", are clients' mistakes with a plain body.
_COMPRESSED = ("gzip", "deflate", "compress", "br", "zstd")
# Base64 text has 4/3 of the photo's size; line ends and escapes add to it.
_TEXT_PER_BYTE = 1.5
# The number of further parts that a form may have beside its photos.
_OTHER_PARTS = 15
# Measured peak of memory per byte of a photo at Triton, beside the photo itself: its tensor, the
# protobuf message, the serialized message, gRPC's buffer.
COPIES_AT_TRITON = 4
# Memory per byte of base64 text while it is decoded: the text itself and its copies.
COPIES_OF_TEXT = 4
# The same for JSON with wide characters: one makes its whole string take 4 bytes a character.
COPIES_OF_WIDE_TEXT = 14  # 13 with Python 3.11


@dataclass(frozen=True)
class UploadForm:
    """The request body that a route accepts."""

    fields: tuple[str, ...]  # accepted names of a photo's field; messages name the first
    max_photos: int = 1
    any_field: bool = False  # whether a file in any field counts as the photo
    text: bool = False  # whether forms of both types, and JSON, may hold a photo as base64 text
    refused: Mapping[str, str] = field(default_factory=dict)  # error messages by field name

    @property
    def types(self) -> tuple[str, ...]:
        """The Content-Types that the route accepts."""
        others = (URLENCODED, JSON) if self.text else ()
        return (FORM, *others) if self.max_photos > 1 else (FORM, *others, "image/*")


@dataclass(frozen=True)
class Upload:
    """One or more photos, and the names and values of the form's other fields."""

    photos: tuple[Part, ...]
    fields: tuple[tuple[str, str], ...] = ()

    @property
    def photo(self) -> bytes:
        """The content of the only photo."""
        return self.photos[0].content


class UploadMemory:
    """Limits the memory of all uploads together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0

    @contextmanager
    def share(self) -> Iterator[Take]:
        """Account for the memory of one upload, until the context ends.

        Yields a function that takes a number of bytes to add, or a negative number to release.
        It raises `Overloaded` if too little memory is free, `TooManyBytes` if it can never suffice.
        """
        taken = 0

        def take(count: int) -> None:
            nonlocal taken
            if taken + count > self._limit:  # waiting would not help
                raise errors.TooManyBytes(
                    "This upload needs more memory than the service has for all uploads "
                    "(PLATES_UPLOAD_MEMORY_BYTES). Send smaller or fewer photos."
                )
            if count > 0 and self.used + count > self._limit:
                raise errors.Overloaded(
                    "Too many photos are coming in at once. Try again shortly.", reason="memory"
                )
            self.used += count
            taken += count

        try:
            yield take
        finally:
            self.used -= taken


async def read_upload(context: RequestContext, form: UploadForm, settings: Settings) -> Upload:
    """Read the photos from the body: a form, or the file itself.

    Never holds more than the limit in memory, even if Content-Length is wrong, and writes nothing
    to disk. The photos' content is not checked, nor the length of each photo of a form, which may
    be cut off beyond the limit. Raises `Problem`, or `ClientDisconnect`.
    """
    timeout_s = min(settings.upload_timeout_s, context.deadline.remaining_s)
    reader = _BodyReader(context.request, form, settings, context.take)
    try:
        async with asyncio.timeout(timeout_s):
            upload = await reader.read()
    except TimeoutError as error:
        detail = f"The upload did not complete within {timeout_s:.3g} seconds."
        raise errors.UploadTimeout(detail) from error
    finally:
        reader.clear()
    sizes = [len(photo.content) for photo in upload.photos]
    at_once = 1 if form.max_photos == 1 else settings.batch_concurrency
    context.take(sum(sizes) + COPIES_AT_TRITON * sum(heapq.nlargest(at_once, sizes)))
    return upload


class _BodyReader:
    def __init__(self, request: Request, form: UploadForm, settings: Settings, take: Take) -> None:
        self._request = request
        self._form = form
        self._limits = settings.limits
        self._take = take
        self._taken = 0
        self._max_part_bytes = int(settings.max_bytes * (_TEXT_PER_BYTE if form.text else 1))
        together = settings.batch_max_bytes if form.max_photos > 1 else self._max_part_bytes
        self._max_bytes = together + _FORM_OVERHEAD_BYTES
        self._raw = bytearray()
        self._parts: list[Part] = []

    def clear(self) -> None:
        """Release all memory: the middleware still has to receive the rest of a refused body."""
        self._raw.clear()
        self._parts.clear()
        self._take(-self._taken)

    async def read(self) -> Upload:
        coding = self._request.headers.get("content-encoding", "").lower()
        if any(name in coding for name in _COMPRESSED):
            raise errors.UnsupportedMediaType(f"Send the body uncompressed, not as {coding[:100]}.")
        kind = self._request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == FORM:
            return await self._upload(*await self._read_parts())
        if kind in (URLENCODED, JSON) and self._form.text:
            return await self._upload([], await self._read_text(kind))
        if kind.startswith("image/") and self._form.max_photos == 1:
            return Upload((Part(content=await self._read_raw(self._limits.max_bytes)),))
        raise errors.UnsupportedMediaType(
            f"The Content-Type is {kind[:100] or 'missing'}. Send the photo as the field "
            f"'{self._form.fields[0]}' of a multipart/form-data body"
            + (", or as the body itself with the type image/jpeg …" * (self._form.max_photos == 1))
        )

    async def _read_text(self, kind: str) -> Fields:
        body = await self._read_raw(self._max_bytes, COPIES_OF_TEXT)
        if kind == URLENCODED:
            return await run_in_threadpool(
                base64_photos.fields_of_urlencoded, body, self._form.fields
            )
        if not body.isascii() or b"\\u" in body:
            self._take_more(len(body) * (COPIES_OF_WIDE_TEXT - COPIES_OF_TEXT))
        return await run_in_threadpool(base64_photos.fields_of_json, body)

    async def _read_parts(self) -> tuple[list[Part], Fields]:
        """Read a multipart form into its files and its other fields."""
        max_parts = max(MAX_FIELDS, self._form.max_photos + _OTHER_PARTS)
        reader = FormReader(self._parts, max_parts, self._max_part_bytes)
        await reader.read(self._request.headers["content-type"], self._chunks(self._max_bytes))
        texts = [(part.name, part.content) for part in self._parts if part.filename is None]
        return [part for part in self._parts if part.filename is not None], texts

    async def _upload(self, files: list[Part], texts: Fields) -> Upload:
        """Check the fields, and find the photos among them."""
        form = self._form
        for name, value in texts:
            if len(name) > MAX_NAME:
                raise errors.InvalidForm(f"A field's name is longer than {MAX_NAME} characters.")
            if len(value) > MAX_FIELD_BYTES and name not in form.fields:
                raise errors.InvalidForm(
                    f"The field '{name}' is longer than {MAX_FIELD_BYTES} bytes."
                )
            if value and name in form.refused:
                raise errors.InvalidParameter(form.refused[name])
        as_text = [pair for pair in texts if form.text and pair[0] in form.fields]
        if as_text and not files:
            texts = [pair for pair in texts if pair[0] not in form.fields]
            photos = [await self._photo_of(as_text)]
        else:
            photos = _photos_among(files, dict(texts), form)
        fields = ((name, value.decode(errors="replace")) for name, value in texts)
        return Upload(tuple(photos), tuple(fields))

    async def _photo_of(self, texts: Fields) -> Part:
        if len(texts) > 1:
            raise errors.InvalidParameter(f"One photo per request: the form has {len(texts)}.")
        ((name, text),) = texts
        # For a part of a multipart form only its size is accounted for so far.
        self._take_more(max(0, COPIES_OF_TEXT * len(text) - self._taken))
        return Part(content=await run_in_threadpool(base64_photos.photo_from_base64, text, name))

    async def _read_raw(self, max_bytes: int, copies: int = 1) -> bytes:
        async for chunk in self._chunks(max_bytes, copies):
            self._raw += chunk
        body = bytes(self._raw)
        self._raw.clear()
        return body

    async def _chunks(self, max_bytes: int, copies: int = 1) -> AsyncGenerator[bytes]:
        """Yield the body's chunks; raises `TooManyBytes` as soon as it is too long."""
        message = too_many_bytes_message(self._limits)
        if self._form.max_photos > 1:
            message = f"The photos have more than {max_bytes / 2**20:.3g} MB together. Send fewer."
        declared = self._request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > max_bytes:
            raise errors.TooManyBytes(message)
        received = 0
        async for chunk in self._request.stream():
            received += len(chunk)
            if received > max_bytes:
                raise errors.TooManyBytes(message)
            self._take_more(len(chunk) * copies)
            yield chunk

    def _take_more(self, count: int) -> None:
        self._take(count)
        self._taken += count


def _photos_among(files: list[Part], fields: Mapping[str, bytes], form: UploadForm) -> list[Part]:
    """Find the photos among a form's files; raises a `Problem` if there are other files."""
    photos = [part for part in files if form.any_field or part.name in form.fields]
    others = {part.name for part in files if part.name not in form.fields}
    as_text = [name for name in form.fields if name in fields]
    if as_text and not (photos and form.text):
        kind = errors.InvalidParameter if photos else errors.MissingImage
        raise kind(
            f"The field '{as_text[0]}' came as text: it has no file name. Send it as a file, not "
            f"in base64: curl -F {as_text[0]}=@photo.jpg"
        )
    if not photos:
        came, expected = _listed(others | fields.keys()) or "none", form.fields[0]
        detail = f"The form has no file in the field '{expected}'; its fields are: {came}."
        raise errors.MissingImage(detail)
    if len(photos) > form.max_photos:
        raise errors.InvalidParameter(
            f"The form has {len(photos)} photos; at most {form.max_photos} are read at once."
        )
    if len(photos) < len(files):
        raise errors.InvalidParameter(f"There are also files in the fields {_listed(others)}.")
    return photos


def _listed(names: set[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names)[:8])
