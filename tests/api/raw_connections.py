"""Connections on which tests send what no HTTP client would."""

import contextlib
import json
import socket

import httpx

# For hangs only: nothing below takes long by itself.
HANG_S = 20
HOST = b"Host: gateway\r\n"
ALIVE = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"


def address_of(client: httpx.Client) -> tuple[str, int]:
    return client.base_url.host, client.base_url.port


def connect(client: httpx.Client) -> socket.socket:
    return socket.create_connection(address_of(client), timeout=HANG_S)


def everything(connection: socket.socket) -> bytes:
    """All bytes until the gateway closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while chunk := connection.recv(65536):
            received += chunk
    return received


def one_answer(connection: socket.socket) -> bytes:
    """One whole answer, and the connection stays open."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def answer_to(client: httpx.Client, data: bytes) -> bytes:
    with connect(client) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(data)
        return everything(connection)


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def assert_refused(answer: bytes, status: int) -> dict[str, object]:
    """One whole problem document that says that the connection is closed."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert status_of(answer) == status, answer
    headers = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:])
    assert headers[b"connection"] == b"close"
    assert headers[b"content-type"] == b"application/problem+json"
    assert int(headers[b"content-length"]) == len(body)
    document = json.loads(body)
    assert document["status"] == status
    assert document["instance"] == "/requests/" + headers[b"x-request-id"].decode()
    return document
