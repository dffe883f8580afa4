"""The page at /: the files of the folder `page`, with headers that keep it to this origin."""

import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from api.readiness import canary_photo

router = APIRouter()

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "jpg": "image/jpeg",
}
# Everything comes from here and goes here; blob: shows the photo that was chosen. Scripts
# can't turn strings into markup (trusted types), so no text of an answer ever becomes any.
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class PageFile(NamedTuple):
    """A file of the page; the etag changes with its content."""

    content: bytes
    media_type: str
    etag: str


# Not StaticFiles: in memory no path of a request meets the file system, the ETag is the same in
# every replica, and the types don't depend on the host's table.
@cache
def page_files() -> dict[str, PageFile]:
    """The page's files by name; the sample photo is the one that /readyz tries."""
    contents = {path.name: path.read_bytes() for path in (files("api") / "page").iterdir()}
    contents["sample.jpg"] = canary_photo()
    files_by_name = {}
    for name, content in contents.items():
        etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        files_by_name[name] = PageFile(content, _TYPES[name.rpartition(".")[2]], etag)
    return files_by_name


@router.get("/", include_in_schema=False)
async def index(request: Request) -> Response:
    """The page itself."""
    return await part("index.html", request)


@router.get("/page/{name}", include_in_schema=False)
async def part(name: str, request: Request) -> Response:
    """One of the files that the page consists of."""
    file = page_files().get(name)
    if file is None:
        raise HTTPException(404)
    headers = _HEADERS | {"ETag": file.etag}
    known = request.headers.get("if-none-match", "")
    if known == "*" or file.etag in [tag.strip().removeprefix("W/") for tag in known.split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)
