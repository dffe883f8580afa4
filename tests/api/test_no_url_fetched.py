"""No address that a client names is ever fetched, whatever field, header or file names it."""

import socket
import threading
from collections.abc import Iterator

import httpx
import pytest
from photo_files import GOOD

# Each also answers with a slash at its end; our own routes don't.
ROUTES = ("/v1/plates", "/v1/plates/batch", "/v1/plate-reader", "/v1/vision/alpr", "/v1/image/alpr")
FIELDS = (
    *("upload_url", "url", "image_url", "image", "images", "upload", "file", "callback"),
    *("webhook_url", "config", "regions", "camera_id", "roi", "redact"),
)
HEADERS = ("Referer", "Origin", "X-Forwarded-Host", "X-Original-URL", "Forwarded", "Via", "Link")
JPEG = {"Content-Type": "image/jpeg"}


class Listener:
    """Counts the connections to a port of this machine, and answers none."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._count = 0
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._count += 1
            connection.close()

    def connections(self) -> int:
        """One of our own comes last: when it ends, all before it are counted."""
        with socket.create_connection(self._socket.getsockname(), timeout=20) as own:
            assert own.recv(1) == b""
        self._count -= 1
        return self._count

    def stop(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener()
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://{listener.address}", trust_env=False)
    assert listener.connections() == 1  # it counts
    yield listener
    # The two above, and nothing since.
    assert listener.connections() == 1
    listener.stop()


def addresses(listener: Listener) -> tuple[str, ...]:
    return (
        f"http://{listener.address}/photo.jpg",
        f"//{listener.address}/photo.jpg",
        f"ftp://{listener.address}/photo.jpg",
        "file:///etc/passwd",
    )


def post_everywhere(client: httpx.Client, **request: object) -> None:
    for route in ROUTES:
        response = client.post(route, **request)
        assert response.status_code < 500, response.text
        assert "root:" not in response.text


def test_every_route_that_takes_photos_is_tried(client: httpx.Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    posts = {path.rstrip("/") for path, operations in paths.items() if "post" in operations}
    assert posts <= set(ROUTES)


def test_fields_that_name_an_address(client: httpx.Client, listener: Listener) -> None:
    for address in addresses(listener):
        named = dict.fromkeys(FIELDS, address)
        for field in FIELDS:
            post_everywhere(client, files={field: (None, address)})
        post_everywhere(client, data=named)
        post_everywhere(client, json=named)
        post_everywhere(client, params=named, files={"image": ("a.jpg", GOOD["jpeg"])})


def test_files_and_headers_that_name_an_address(client: httpx.Client, listener: Listener) -> None:
    for address in addresses(listener):
        drawing = f'<svg xmlns="http://www.w3.org/2000/svg"><image href="{address}"/></svg>'
        xml = f'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "{address}">]><a>&b;</a>'
        playlist = f"#EXTM3U\n#EXTINF:1,\n{address}\n"
        for content in (drawing, xml, playlist, address):
            post_everywhere(client, content=content, headers=JPEG)
        headers = JPEG | dict.fromkeys(HEADERS, address)
        post_everywhere(client, content=GOOD["jpeg"], headers=headers)
        post_everywhere(client, files={"upload": (address, GOOD["jpeg"])})


def test_requests_as_to_a_proxy(client: httpx.Client, listener: Listener) -> None:
    host, port = client.base_url.host, client.base_url.port
    head = f"Host: {listener.address}\r\nConnection: close\r\n\r\n"
    for line in (f"GET http://{listener.address}/", f"CONNECT {listener.address}"):
        with socket.create_connection((host, port), timeout=20) as connection:
            connection.sendall(f"{line} HTTP/1.1\r\n{head}".encode())
            assert connection.recv(2000).startswith(b"HTTP/1.1 4")


def test_upload_url_is_refused_with_a_reason(client: httpx.Client, listener: Listener) -> None:
    for route in ("/v1/plate-reader", "/v1/plate-reader/"):
        response = client.post(route, data={"upload_url": f"http://{listener.address}/a.jpg"})
        assert response.status_code == 400
        assert "upload_url" in response.json()["detail"]
