"""No address that a client names is ever fetched, whatever field, header or file names it."""

import socket

import pytest
from gateway_support import answer_to, post_routes, status_of
from support import PHOTO

FIELDS = ("upload_url", "url", "image", "images", "upload", "file", "config", "regions", "callback")
HEADERS = ("Referer", "Origin", "X-Forwarded-Host", "X-Original-URL", "Forwarded", "Via", "Link")
JPEG = {"Content-Type": "image/jpeg"}


@pytest.fixture
def host():
    """Of a port that nothing may connect to: a connection would wait in its backlog."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_addresses_in_fields_headers_and_files(client, host):
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


def test_requests_as_to_a_proxy(client, host):
    # A target with a host is answered as this server's own (RFC 9112, 3.2.2).
    for line, status in ((f"GET http://{host}/", 200), (f"CONNECT {host}", 404)):
        request = f"{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        assert status_of(answer_to(client, request.encode())) == status
