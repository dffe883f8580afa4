"""The page at /: the files of the folder `page`, with headers that keep it to this origin."""

from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Response
from starlette.exceptions import HTTPException

from plate_models.release import DEFAULT_GOLDEN

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


# Not StaticFiles: in memory no path of a request meets the file system, and the types don't depend
# on the host's table.
@cache
def _page_files() -> dict[str, bytes]:
    """The page's files by name; the sample photo is the one that /readyz tries."""
    contents = {path.name: path.read_bytes() for path in (files("api") / "page").iterdir()}
    return contents | {"sample.jpg": DEFAULT_GOLDEN.read_bytes()}


@router.get("/", include_in_schema=False)
async def index() -> Response:
    """The page itself."""
    return await part("index.html")


@router.get("/page/{name}", include_in_schema=False)
async def part(name: str) -> Response:
    """One of the files that the page consists of."""
    content = _page_files().get(name)
    if content is None:
        raise HTTPException(404)
    return Response(content, media_type=_TYPES[name.rpartition(".")[2]], headers=_HEADERS)
