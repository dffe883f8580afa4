"""Who may send photos, and how many: tokens, and a rate for each of them.

Both are off unless set. They hold for every route that takes anything: GET and HEAD show
only what an operator shows anyhow.
"""

import hashlib
import hmac
import ipaddress
import time
from collections import OrderedDict
from dataclasses import dataclass

from fastapi import Request

from api.errors import MissingToken, RateLimited, WrongToken
from api.settings import Settings

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# `Token` is what clients of the Plate Recognizer API send.
_SCHEMES = frozenset({"bearer", "token"})
_MAX_SENDERS = 10_000


@dataclass
class _Bucket:
    """How many photos a sender may still send, and when that was so."""

    level: float
    at: float


class RateLimit:
    """A token bucket for each sender; those who came last are remembered.

    Args:
        per_second: Photos that come into each bucket.
        burst: Photos that it holds.
        max_senders: Buckets kept; whoever is forgotten begins with a full one.
    """

    def __init__(self, per_second: float, burst: int, max_senders: int = _MAX_SENDERS) -> None:
        self._per_second = per_second
        self._burst = burst
        self._max_senders = max_senders
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, sender: str) -> float:
        """Take one photo out of a sender's bucket, if there is one.

        Args:
            sender: Any name that is the sender's own.

        Returns:
            0.0 if there was one, otherwise the seconds until there will be.
        """
        bucket = self._bucket(sender)
        if bucket.level < 1:
            return (1 - bucket.level) / self._per_second
        bucket.level -= 1
        return 0.0

    def owe(self, sender: str, photos: int) -> None:
        """Take more photos than there may be: the sender waits the longer for the next.

        Args:
            sender: As in :meth:`take`.
            photos: How many.
        """
        self._bucket(sender).level -= photos

    def _bucket(self, sender: str) -> _Bucket:
        now = time.monotonic()
        bucket = self._buckets.pop(sender, None) or _Bucket(self._burst, now)
        bucket.level = min(self._burst, bucket.level + (now - bucket.at) * self._per_second)
        bucket.at = now
        self._buckets[sender] = bucket
        if len(self._buckets) > self._max_senders:
            self._buckets.popitem(last=False)
        return bucket


class Access:
    """Lets requests in, or not. Keeps digests of the tokens, never the tokens."""

    def __init__(self, settings: Settings) -> None:
        """Read the tokens.

        Raises:
            ValueError: Their file can't be read any more.
        """
        tokens = settings.accepted_tokens()
        self._digests = [_digest(token.get_secret_value()) for token in tokens]
        rate = settings.rate_limit
        self._rate = RateLimit(rate, settings.rate_burst) if rate else None

    def admit(self, request: Request) -> None:
        """Let a request in.

        Args:
            request: Only its head is looked at.

        Raises:
            MissingToken: A token is needed, and there is none.
            WrongToken: There is one, but another.
            RateLimited: Too many photos came from there.
        """
        if request.method in _SAFE_METHODS:
            return
        sender = self._by_token(request) if self._digests else _by_address(request)
        request.state.sender = sender
        wait_s = self._rate.take(sender) if self._rate else 0.0
        if wait_s:
            raise RateLimited(retry_after_s=wait_s)

    def charge(self, request: Request, photos: int) -> None:
        """Count the photos of a request that brought several.

        Args:
            request: One that was let in, which counted for one photo.
            photos: How many came with it.
        """
        if self._rate and photos > 1:
            self._rate.owe(request.state.sender, photos - 1)

    def _by_token(self, request: Request) -> str:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() not in _SCHEMES or not token:
            raise MissingToken("Send one of the service's tokens: 'Authorization: Bearer …'.")
        offered = _digest(token)
        # Every one is compared, to the end: neither which one fits nor how much of it shows
        # in the time that this takes.
        fits = [hmac.compare_digest(offered, digest) for digest in self._digests]
        if not any(fits):
            raise WrongToken("The token in 'Authorization' is none of this service's.")
        return offered.hex()


async def admit(request: Request) -> None:
    """The dependency of all routes; see :meth:`Access.admit`."""
    access: Access = request.app.state.access
    access.admit(request)


def charge(request: Request, photos: int) -> None:
    """See :meth:`Access.charge`."""
    access: Access = request.app.state.access
    access.charge(request, photos)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _by_address(request: Request) -> str:
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    # Whoever has one IPv6 address has 2**64 of them.
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else host
