"""Raw connections to the gateway: requests as bytes, and complete answers."""

import socket
from contextlib import suppress

import httpx
from support import PHOTO, assert_problem

# Only a hang takes this long.
HANG_S = 20
HOST = b"Host: gateway\r\n"
ALIVE = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"
UPLOAD = b"POST /v1/plates HTTP/1.1\r\nContent-Type: image/jpeg\r\n" + HOST


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
    with suppress(ConnectionResetError):
        while chunk := connection.recv(65536):
            received += chunk
    return received


def answer_to(client, data):
    with connect(client) as connection:
        with suppress(ConnectionError):
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
