"""The page at /."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

router = APIRouter()


@router.get("/", include_in_schema=False)
async def index() -> HTMLResponse:
    """Say where everything is."""
    return HTMLResponse(_INDEX)


_INDEX = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Licence plates</title>
<h1>Licence plates</h1>
<p>POST a photo to <code>/v1/plates</code>:
<pre>curl -F image=@photo.jpg http://localhost:8080/v1/plates</pre>
<ul><li><a href="docs">Documentation</a> <li><a href="openapi.json">OpenAPI</a>
<li><a href="readyz">Ready?</a> <li><a href="metrics">Metrics</a></ul>
</html>
"""
