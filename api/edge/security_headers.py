"""Headers that keep browsers from doing more with an answer than was meant."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Swagger UI and ReDoc start from scripts within the page and write styles into it.
_DOCUMENTATION = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; worker-src blob:; frame-ancestors 'none'"
)
_BY_PATH = {"/docs": _DOCUMENTATION, "/redoc": _DOCUMENTATION}
_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
# JSON and text need nothing; pages that need more bring their own.
_NOTHING = "default-src 'none'; frame-ancestors 'none'"


class SecurityHeaders:
    """Adds headers to each answer that does not bring its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI event loop's scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _ALWAYS.items():
                    headers.setdefault(name, value)
                policy = _BY_PATH.get(scope["path"], _NOTHING)
                headers.setdefault("Content-Security-Policy", policy)
                if scope["method"] == "POST":
                    # Plates belong in no cache on the way.
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, send_with_headers)
