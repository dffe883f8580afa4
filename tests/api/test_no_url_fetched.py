"""The gateway never fetches a URL, whichever field, header or file of a request contains it."""

import socket

import pytest
from gateway_support import post_routes
from raw_http import answer_to, status_of
from support import PHOTO

FIELDS = ("upload_url", "url", "image", "images", "upload", "file", "config", "regions", "callback")
HEADERS = ("Referer", "Origin", "X-Forwarded-Host", "X-Original-URL", "Forwarded", "Via", "Link")
JPEG = {"Content-Type": "image/jpeg"}


@pytest.fixture
def host():
    """A host:port that nothing may connect to: the listener's backlog must stay empty."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_urls_in_fields_headers_and_files_are_not_fetched(client, host):
    address = f"http://{host}/a.jpg"
    drawing = f'<svg xmlns="http://www.w3.org/2000/svg"><image href="{address}"/></svg>'
    named = dict.fromkeys(FIELDS, address)
    requests = [
        *({"files": {field: (None, address)}} for field in FIELDS),
        *({"content": file, "headers": JPEG} for file in (drawing, address)),
        {"data": named},
        {"json": named},
        {"params": named, "files": {"image": PHOTO}},
        {"content": PHOTO, "headers": JPEG | dict.fromkeys(HEADERS, address)},
        {"files": {"upload": (address, PHOTO)}},
    ]
    routes = post_routes()
    assert {"/v1/plates", "/v1/plate-reader", "/v1/vision/alpr"} <= routes
    for route in routes:
        for request in requests:
            assert client.post(route, **request).status_code < 500


def test_proxy_requests_are_not_forwarded(client, host):
    # A server must accept an absolute URL as the target, and answers for itself (RFC 9112, 3.2.2).
    for line, status in ((f"GET http://{host}/", 200), (f"CONNECT {host}", 404)):
        request = f"{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        assert status_of(answer_to(client, request.encode())) == status
