"""The way to Triton: what a healthy one never does, TLS, compression, several Tritons."""

import contextlib
import json
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fake_triton
import grpc
import httpx
import numpy as np
import pytest
from fake_triton import FakeTriton, refusing
from pydantic import ValidationError
from support import (
    PHOTO,
    STATUS,
    assert_problem,
    post_raw,
    running_gateway,
    settings_for,
    wait_until,
)

from api.errors import PHOTO_PROBLEMS
from api.settings import Settings

AWAY = "recognizer-unavailable"
# A connection ends in good order after this, and its name is resolved again.
AGE_MS = 300
_HEADER, _TYPE_A = 12, 1


@pytest.mark.parametrize("slug", PHOTO_PROBLEMS)
def test_refusals_of_the_models_are_passed_on(
    client: httpx.Client, fake: FakeTriton, slug: str
) -> None:
    message = f"[request id: <id_unknown>] {slug}: The file is no good."
    fake.reply = refusing(grpc.StatusCode.INVALID_ARGUMENT, message)
    document = assert_problem(post_raw(client, PHOTO), STATUS[slug], slug)
    assert document["detail"] == "The file is no good."


@pytest.mark.parametrize(
    ("code", "message", "slug"),
    [
        (grpc.StatusCode.UNAVAILABLE, "Socket closed", AWAY),
        (grpc.StatusCode.UNAVAILABLE, "Stream removed (Socket closed)", AWAY),
        (grpc.StatusCode.UNAVAILABLE, "yolo: Stub process is not healthy", AWAY),
        (grpc.StatusCode.UNAVAILABLE, "Exceeds maximum queue size", "overloaded"),
        (grpc.StatusCode.UNAVAILABLE, "stn: Exceeds maximum queue size", "overloaded"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "", "overloaded"),
        (grpc.StatusCode.UNAVAILABLE, "Request timeout expired", "recognizer-timeout"),
        (grpc.StatusCode.UNAVAILABLE, "lprnet: Request timeout expired", "recognizer-timeout"),
        (grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'x' is not found", AWAY),
        (grpc.StatusCode.NOT_FOUND, "unknown model: 'x' has no available versions", AWAY),
        (grpc.StatusCode.INVALID_ARGUMENT, "Request for unknown model: 'x'", AWAY),
        (grpc.StatusCode.INTERNAL, "Stub process 'x' is not healthy.", AWAY),
        (grpc.StatusCode.INTERNAL, "Model 'lprnet' is not ready.", AWAY),
        (grpc.StatusCode.INTERNAL, "Received RST_STREAM with error code 2", AWAY),
        (grpc.StatusCode.UNKNOWN, "Stream removed", AWAY),
        (grpc.StatusCode.CANCELLED, "", AWAY),
        (grpc.StatusCode.INTERNAL, "Traceback: /srv/model.py", "recognizer-failed"),
        (grpc.StatusCode.INVALID_ARGUMENT, "unexpected output", "recognizer-mismatch"),
        (grpc.StatusCode.UNAUTHENTICATED, "no", "recognizer-mismatch"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "", "recognizer-timeout"),
    ],
)
def test_failures_of_triton(
    client: httpx.Client, fake: FakeTriton, code: grpc.StatusCode, message: str, slug: str
) -> None:
    fake.reply = refusing(code, message)
    response = post_raw(client, PHOTO)
    document = assert_problem(response, STATUS[slug], slug)
    assert "/srv" not in json.dumps(document)
    assert ("retry-after" in response.headers) == (response.status_code in (429, 503))


@pytest.mark.parametrize(
    "broken",
    [
        {"quads": None},
        {"quads": np.zeros((2, 8), np.float32)},
        {"formats": np.array(["ru.car"], object)},
        {"model_info": None},
        {"model_info": np.array(["{}"], object)},
        {"model_info": np.array(["no json"], object)},
        {"model_info": np.array(['{"version": "1", "weights": "", "device": ""}'], object)},
    ],
)
def test_answers_of_another_shape_are_noticed(
    client: httpx.Client, fake: FakeTriton, broken: dict
) -> None:
    arrays = {k: v for k, v in (fake_triton.outputs() | broken).items() if v is not None}
    fake.reply = lambda _: arrays
    assert_problem(post_raw(client, PHOTO), 502, "recognizer-mismatch")


@pytest.mark.parametrize("starts_with_triton", [True, False])
def test_triton_that_is_away(starts_with_triton: bool) -> None:
    fake = FakeTriton()
    if not starts_with_triton:
        fake.stop()
    with running_gateway(settings_for(fake, ready_max_age_s=0.001)) as client:
        if starts_with_triton:
            assert post_raw(client, PHOTO).status_code == 200
            fake.stop()
        response = post_raw(client, PHOTO)
        assert_problem(response, 503, "recognizer-unavailable")
        assert int(response.headers["retry-after"]) > 0
        assert client.get("/healthz").json() == {"status": "alive"}
        assert_problem(client.get("/readyz"), 503, None)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A private key and a certificate of its own for 127.0.0.1."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl here to make a certificate with")
    command = f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    return key, certificate


def test_triton_over_tls(certificate: tuple[Path, Path]) -> None:
    key, trusted = certificate
    fake = FakeTriton((key.read_bytes(), trusted.read_bytes()))
    try:
        url = f"grpcs://127.0.0.1:{fake.port}"
        token = {"triton_token": "secret"}
        with running_gateway(Settings(triton_url=url, triton_ca_file=trusted, **token)) as client:
            assert post_raw(client, PHOTO).status_code == 200
        assert fake.metadata["authorization"] == "Bearer secret"
        with running_gateway(Settings(triton_url=url)) as client:  # not a certificate it trusts
            assert_problem(post_raw(client, PHOTO), 503, "recognizer-unavailable")
    finally:
        fake.stop()


def test_only_what_is_needed_is_sent_and_asked_for(client: httpx.Client, fake: FakeTriton) -> None:
    post_raw(client, PHOTO)
    assert "authorization" not in fake.metadata
    assert "crops" not in fake.requested  # large, and no answer over HTTP has them


class Relay:
    """Passes one connection on to a port of this machine.

    Attributes:
        sent: Bytes that the client sent.
    """

    def __init__(self, port: int) -> None:
        self.sent = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._server = socket.create_connection(("127.0.0.1", port))
        self._thread = threading.Thread(target=self._up)
        self._thread.start()

    def _up(self) -> None:
        client, _ = self._listener.accept()
        down = threading.Thread(target=self._down, args=(client,))
        down.start()
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                self.sent += len(data)
                self._server.sendall(data)
            self._server.shutdown(socket.SHUT_RDWR)
        down.join()
        client.close()

    def _down(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the client has closed
            while data := self._server.recv(65536):
                client.sendall(data)

    def close(self) -> None:
        """Wait for the client's end."""
        self._thread.join(20)
        self._server.close()
        self._listener.close()


@pytest.mark.parametrize(
    ("algorithm", "compressed"), [("gzip", True), ("deflate", True), ("none", False)]
)
def test_photos_are_compressed_on_the_wire_where_that_is_wanted(
    fake: FakeTriton, algorithm: str, compressed: bool
) -> None:
    relay, photo = Relay(fake.port), PHOTO + bytes(90_000)
    settings = Settings(triton_url=f"127.0.0.1:{relay.port}", triton_compression=algorithm)
    with running_gateway(settings) as client:
        assert post_raw(client, photo).status_code == 200
    relay.close()
    assert fake.photos == [photo]
    assert (relay.sent < 30_000) == compressed


class NameServer:
    """Answers every question for an IPv4 address with those that it has at the moment.

    Attributes:
        addresses: What it says; a test changes it as a cluster does when pods come and go.
    """

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._answer)
        self._thread.start()

    def close(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"", ("127.0.0.1", self.port))
        self._thread.join(10)
        self._socket.close()

    def _answer(self) -> None:
        while True:
            query, sender = self._socket.recvfrom(4096)
            if not query:
                return
            end = query.index(b"\0", _HEADER) + 5  # the name's end, its type, its class
            asked = struct.unpack(">H", query[end - 4 : end - 2])[0]
            known = self.addresses if asked == _TYPE_A else ()
            head = query[:2] + struct.pack(">HHHHH", 0x8180, 1, len(known), 0, 0)
            # Each record: a pointer to the question's name, type, class, seconds, length.
            record = b"\xc0\x0c" + struct.pack(">HHIH", _TYPE_A, 1, 0, 4)
            answers = b"".join(record + socket.inet_aton(address) for address in known)
            self._socket.sendto(head + query[_HEADER:end] + answers, sender)


@contextmanager
def two_tritons(age_ms: int = 0) -> Iterator[tuple[FakeTriton, FakeTriton]]:
    """On one port of 127.0.0.1 and of 127.0.0.2, as two pods have one port."""
    one = FakeTriton(age_ms=age_ms)
    two = FakeTriton(address=f"127.0.0.2:{one.port}", age_ms=age_ms)
    try:
        yield one, two
    finally:
        one.stop()
        two.stop()


def test_photos_go_to_each_in_turn_and_on_when_one_ends() -> None:
    with two_tritons() as (one, two):
        url = f"ipv4:127.0.0.1:{one.port},127.0.0.2:{two.port}"
        with running_gateway(Settings(triton_url=url, concurrency=4)) as client:
            wait_until(lambda: post_raw(client, PHOTO).is_success and one.photos and two.photos)
            before = len(one.photos), len(two.photos)
            assert all(post_raw(client, PHOTO).is_success for _ in range(20))
            assert (len(one.photos) - before[0], len(two.photos) - before[1]) == (10, 10)
            one.stop()
            # One that was sent into the end may fail; then there is only the other.
            post_raw(client, PHOTO)
            seen = len(two.photos)
            assert all(post_raw(client, PHOTO).is_success for _ in range(20))
            assert len(two.photos) == seen + 20
            assert client.get("/readyz").is_success


def test_whoever_is_named_later_gets_photos_and_whoever_leaves_loses_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a headless service does: names ready pods only, and takes a name away first."""
    names = NameServer("127.0.0.1")
    with two_tritons(AGE_MS) as (one, two):
        # gRPC asks the system's name server, which knows nothing of ours, unless it is named.
        target = f"dns://127.0.0.1:{names.port}/triton.test:{one.port}"
        monkeypatch.setattr(Settings, "triton_address", target)
        answered: list[bool] = []

        def send(*wanted: FakeTriton) -> bool:
            """Whether exactly these get photos now, each of which is to be answered."""
            seen = len(one.photos), len(two.photos)
            answered.extend(post_raw(client, PHOTO).is_success for _ in range(6))
            got = [one] * (len(one.photos) > seen[0]) + [two] * (len(two.photos) > seen[1])
            return got == list(wanted)

        try:
            with running_gateway(Settings(triton_url="triton.test:8001")) as client:
                assert send(one)
                names.addresses = ("127.0.0.1", "127.0.0.2")
                wait_until(lambda: send(one, two))
                names.addresses = ("127.0.0.2",)
                wait_until(lambda: send(two))
                one.stop()
                assert send(two)
        finally:
            names.close()
    assert all(answered)


@pytest.mark.parametrize(
    "url",
    [
        "triton:8001",
        "grpc://triton.plates.svc:8001",
        "[::1]:8001",
        "ipv4:10.0.0.1:8001,10.0.0.2:8001",
        "ipv6:[::1]:8001,[::2]:8001",
    ],
)
def test_addresses_that_name_one_or_several(url: str) -> None:
    assert Settings(triton_url=url).triton_address == url.removeprefix("grpc://")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        *((url, "8001") for url in ("http://t:8000", "t", "grpc://t", "https://t:443")),
        ("one:8001,two:8001", "list them: ipv4:"),
        ("triton:80010", "no address"),
        ("triton:0", "no address"),
        ("tri ton:8001", "no address"),
        ("ipv4:10.0.0.1:8001,", "no port"),
        ("ipv4:10.0.0.1,10.0.0.2:8001", "no address"),
    ],
)
def test_addresses_that_name_none(url: str, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        Settings(triton_url=url)
