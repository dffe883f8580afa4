"""Helpers for tests of the gateway: raw connections, forms, and a gateway that is full."""

import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
from fake_triton import Holding
from fastapi.routing import iter_route_contexts
from support import PHOTO, assert_problem, post_raw, running_gateway

from api.main import create_app
from api.settings import Settings
from plate_models.release import DEFAULT_GOLDEN

# Only a hang takes this long.
HANG_S = 20
HOST = b"Host: gateway\r\n"
ALIVE = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"
UPLOAD = b"POST /v1/plates HTTP/1.1\r\nContent-Type: image/jpeg\r\n" + HOST
BATCH, READER, ALPR = "/v1/plates/batch", "/v1/plate-reader/", "/v1/vision/alpr"
MULTIPART = "multipart/form-data; boundary=b"


def post_routes(*routers):
    """The paths of all routes with methods other than GET, HEAD and OPTIONS."""
    contexts = list(iter_route_contexts(create_app(Settings(), routers).routes))
    without_body = {"GET", "HEAD", "OPTIONS"}
    return {str(context.path) for context in contexts if (context.methods or set()) - without_body}


def part(content=PHOTO, disposition="", *headers):
    """A part of a form of the type MULTIPART; the photo field unless a disposition is given."""
    disposition = disposition or 'form-data; name="image"; filename="a.jpg"'
    head = "\r\n".join(["--b", f"Content-Disposition: {disposition}", *headers, "", ""])
    return head.encode() + content + b"\r\n"


def form(*parts):
    return b"".join(parts) + b"--b--\r\n"


def send(client, body, path="/v1/plates", kind=MULTIPART):
    return client.post(path, content=body, headers={"content-type": kind})


@contextmanager
def full_gateway(fake, **options):
    """A gateway whose only place is taken by a photo, until the test releases that photo."""
    fake.reply = holding = Holding(but=DEFAULT_GOLDEN.read_bytes())
    with running_gateway(fake, concurrency=1, **options) as client, ThreadPoolExecutor(1) as pool:
        holder = pool.submit(post_raw, client, PHOTO)
        with holding:
            assert holding.arrived.acquire(timeout=HANG_S)
            yield client, holding
        assert holder.result().status_code == 200


def address_of(client):
    return client.base_url.host, client.base_url.port


def connect(client):
    return socket.create_connection(address_of(client), timeout=HANG_S)


def begin_upload(client, sent, *headers, length=None):
    """Send the head of an upload, with the length of PHOTO by default, and its first bytes."""
    connection = connect(client)
    head = UPLOAD + b"".join(header + b"\r\n" for header in headers)
    connection.sendall(head + b"Content-Length: %d\r\n\r\n" % (length or len(PHOTO)) + sent)
    return connection


def everything(connection):
    """All bytes that come before the gateway closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while chunk := connection.recv(65536):
            received += chunk
    return received


def answer_to(client, data):
    with connect(client) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(data)
        return everything(connection)


def status_of(answer):
    return int(answer.split(b" ", 2)[1])


def assert_refused(answer, status, slug=None):
    """Check that the last answer is a complete problem document with `Connection: close`."""
    head, _, body = answer[answer.rindex(b"HTTP/1.1 4") :].partition(b"\r\n\r\n")
    headers = [line.split(b": ", 1) for line in head.split(b"\r\n")[1:]]
    response = httpx.Response(status_of(head), headers=headers, content=body)
    assert_problem(response, status, slug)
    assert response.headers["connection"] == "close"
    assert int(response.headers["content-length"]) == len(body)


def assert_dialect_error(response, status, words=""):
    """Check a short error document in the dialect of Plate Recognizer or CodeProject.AI."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    assert len(response.content) < 1000
    answer, is_alpr = response.json(), "alpr" in response.url.path
    assert words in answer.pop("error" if is_alpr or status == 413 else "detail")
    assert answer == ({"success": False, "code": status} if is_alpr else {})
