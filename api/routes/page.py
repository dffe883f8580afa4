"""The page at /: a few files of this package, and headers that keep it to this origin."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from api.readiness import canary_photo

router = APIRouter()

_HTML, _SCRIPT = "text/html; charset=utf-8", "text/javascript; charset=utf-8"
_INDEX = "index.html"
# What may be asked for, and nothing else: no path of the request ever meets the file system.
TYPES: Mapping[str, str] = {
    _INDEX: _HTML,
    "page.css": "text/css; charset=utf-8",
    "plates.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "sample.jpg": "image/jpeg",
} | dict.fromkeys(
    (
        "asking.js",
        "cards.js",
        "choosing.js",
        "copying.js",
        "drawing.js",
        "elements.js",
        "english.js",
        "page.js",
        "problems.js",
        "rectify.js",
        "region.js",
        "results.js",
        "russian.js",
        "shots.js",
        "stage.js",
        "texts.js",
    ),
    _SCRIPT,
)
# Everything comes from here and goes here; blob: shows the photo that was chosen. Scripts
# can't turn strings into markup (trusted types), so no text of an answer ever becomes any.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class PageFile:
    """A file of the page.

    Attributes:
        content: Its bytes.
        media_type: Its Content-Type.
        etag: Changes with the content.
    """

    content: bytes
    media_type: str
    etag: str


@router.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
async def index(request: Request) -> Response:
    """The page itself."""
    return _answer(request, page_file(_INDEX))


@router.api_route("/page/{name}", methods=["GET", "HEAD"], include_in_schema=False)
async def part(name: str, request: Request) -> Response:
    """One of the files that the page consists of."""
    if name not in TYPES:
        raise HTTPException(404)
    return _answer(request, page_file(name))


@cache
def page_file(name: str) -> PageFile:
    """Read a file of the page; once.

    Args:
        name: One of `TYPES`.

    Returns:
        The file. The sample is the small scene that /readyz sends, too.
    """
    is_sample = name == "sample.jpg"
    content = canary_photo() if is_sample else (files("api") / "page" / name).read_bytes()
    return PageFile(content, TYPES[name], f'"{hashlib.sha256(content).hexdigest()[:32]}"')


def _answer(request: Request, file: PageFile) -> Response:
    headers = _HEADERS | {"ETag": file.etag}
    known = [tag.strip().removeprefix("W/") for tag in _if_none_match(request).split(",")]
    if file.etag in known or known == ["*"]:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)


def _if_none_match(request: Request) -> str:
    return str(request.headers.get("if-none-match", ""))
