"""Several Tritons behind one name: who gets photos, when one comes, and when one goes."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from fake_triton import FakeTriton
from gateway_client import PHOTO, post_raw
from gateway_fixtures import running_gateway
from patience import wait_until
from pydantic import ValidationError

from api.settings import Settings

# A connection ends in good order after this, and the name is asked for anew.
AGE_MS = 300
_HEADER, _TYPE_A = 12, 1


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
        ("one:8001,two:8001", "lists hosts"),
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
