"""Access control: tokens, and a rate limit for each token or client address.

Both are off unless set. They don't apply to GET, HEAD and OPTIONS, which show only what is public;
GET routes that show plates call `Access.require`.
"""

import hashlib
import hmac
import ipaddress
import time
from collections import OrderedDict

from fastapi import Request

from api.errors import MissingToken, RateLimited, WrongToken
from api.settings import Settings

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# Clients of the Plate Recognizer API send the scheme `Token`.
_SCHEMES = frozenset({"bearer", "token"})
_MAX_CLIENTS = 10_000
# Wrong tokens per second and at once from each address, if no rate limit is set.
_WRONG_TOKENS = 1.0, 30


class RateLimit:
    """A token bucket for each of the most recent clients; new clients start with a full bucket."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = burst
        # The level of each client's bucket, and the time of that level.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Take one token from a client's bucket; returns 0, or the seconds until it has one."""
        level = self.owe(client, 0)
        if level < 1:
            return (1 - level) / self._per_second
        self.owe(client, 1)
        return 0.0

    def owe(self, client: str, count: int) -> float:
        """Take `count` tokens, even below 0: the client waits longer. Returns the new level."""
        now = time.monotonic()
        level, at = self._buckets.pop(client, (self._burst, now))
        level = min(self._burst, level + (now - at) * self._per_second) - count
        self._buckets[client] = level, now
        if len(self._buckets) > _MAX_CLIENTS:
            self._buckets.popitem(last=False)
        return level


class Access:
    """Admits requests. Keeps digests of the tokens instead of the tokens."""

    def __init__(self, settings: Settings) -> None:
        self._digests = [_digest(token.get_secret_value()) for token in settings.accepted_tokens()]
        rate = (settings.rate_limit, settings.rate_burst) if settings.rate_limit else None
        self._rate = RateLimit(*rate) if rate else None
        self._wrong_tokens = RateLimit(*(rate or _WRONG_TOKENS))

    # async, though it awaits nothing: FastAPI runs plain functions in a thread.
    async def admit(self, request: Request) -> None:
        """Admit a request by its head, or raise a `Problem`; a dependency of all routes."""
        if request.method not in _SAFE_METHODS:
            client = await self.require(request)
            request.state.rated_as = client
            if self._rate and (wait_s := self._rate.take(client)):
                raise RateLimited(retry_after_s=wait_s)

    async def require(self, request: Request) -> str:
        """Require a valid token, if tokens are set; returns the client's key for the rate limit."""
        if not self._digests:
            return _by_address(request)
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() not in _SCHEMES or not token:
            raise MissingToken("Send one of the service's tokens: 'Authorization: Bearer …'.")
        offered = _digest(token)
        # Compare all digests completely, so that the time reveals neither which one matches nor
        # how much of it.
        fits = [hmac.compare_digest(offered, digest) for digest in self._digests]
        if not any(fits):
            if wait_s := self._wrong_tokens.take(_by_address(request)):
                raise RateLimited("wrong tokens", retry_after_s=wait_s)
            raise WrongToken("The token in 'Authorization' is none of this service's.")
        return offered.hex()

    def charge(self, request: Request, photos: int) -> None:
        """Charge the further photos of a batch, which was admitted as if it had one."""
        if self._rate and photos > 1:
            self._rate.owe(request.state.rated_as, photos - 1)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _by_address(request: Request) -> str:
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if mapped := getattr(address, "ipv4_mapped", None):  # of a dual-stack socket
        return str(mapped)
    # A client usually controls a /64 network of 2**64 IPv6 addresses.
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else host
