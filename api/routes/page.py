"""The page at /: the files of the folder `page`, with headers that confine it to its origin."""

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
# The page loads from and connects to this origin only; blob: shows the chosen photo. Trusted types
# keep scripts from turning strings into markup, so no text of an answer can become markup.
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


# Not StaticFiles: with the files in memory, no path of a request reaches the file system, and
# their types don't depend on the host's MIME table.
@cache
def _page_files() -> dict[str, bytes]:
    """The page's files by name; the sample is the test photo of /readyz."""
    contents = {path.name: path.read_bytes() for path in (files("api") / "page").iterdir()}
    return contents | {"sample.jpg": DEFAULT_GOLDEN.read_bytes()}


@router.get("/", include_in_schema=False)
async def index() -> Response:
    """Serve the page."""
    return await part("index.html")


@router.get("/page/{name}", include_in_schema=False)
async def part(name: str) -> Response:
    """Serve one file of the page."""
    content = _page_files().get(name)
    if content is None:
        raise HTTPException(404)
    return Response(content, media_type=_TYPES[name.rpartition(".")[2]], headers=_HEADERS)
