"""Who may send photos, and how many: tokens, and a rate for each of them.

Both are off unless set. They hold for every route that takes anything: GET and HEAD show
only what an operator shows anyhow, except what `require` guards.
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
# `Token` is what clients of the Plate Recognizer API send.
_SCHEMES = frozenset({"bearer", "token"})
_MAX_CLIENTS = 10_000
# Per second and at once of each address, where no rate is set.
_WRONG_TOKENS = 1.0, 30


class RateLimit:
    """A token bucket for each of the most recent clients; a new one begins with a full bucket."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = burst
        # What each client may still take, and when that was so.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Take one from a client's bucket; returns 0, or the seconds until there will be one."""
        level = self.owe(client, 0)
        if level < 1:
            return (1 - level) / self._per_second
        self.owe(client, 1)
        return 0.0

    def owe(self, client: str, count: int) -> float:
        """Take more than there may be: the client waits the longer. Returns what is left."""
        now = time.monotonic()
        level, at = self._buckets.pop(client, (self._burst, now))
        level = min(self._burst, level + (now - at) * self._per_second) - count
        self._buckets[client] = level, now
        if len(self._buckets) > _MAX_CLIENTS:
            self._buckets.popitem(last=False)
        return level


class Access:
    """Admits requests. Keeps digests of the tokens, never the tokens."""

    def __init__(self, settings: Settings) -> None:
        self._digests = [_digest(token.get_secret_value()) for token in settings.accepted_tokens()]
        rate = (settings.rate_limit, settings.rate_burst) if settings.rate_limit else None
        self._rate = RateLimit(*rate) if rate else None
        self._wrong_tokens = RateLimit(*(rate or _WRONG_TOKENS))

    # async, though nothing is awaited: FastAPI would send a plain function to a thread.
    async def admit(self, request: Request) -> None:
        """Admit a request by its head, or raise a `Problem`; the dependency of all routes."""
        if request.method not in _SAFE_METHODS:
            client = await self.require(request)
            request.state.rated_as = client
            if self._rate and (wait_s := self._rate.take(client)):
                raise RateLimited(retry_after_s=wait_s)

    async def require(self, request: Request) -> str:
        """Require a valid token, if tokens are set; returns whose rate counts."""
        return self._by_token(request) if self._digests else _by_address(request)

    def charge(self, request: Request, photos: int) -> None:
        """Count the photos of a request that was admitted as if it had one."""
        if self._rate and photos > 1:
            self._rate.owe(request.state.rated_as, photos - 1)

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
            if wait_s := self._wrong_tokens.take(_by_address(request)):
                raise RateLimited("wrong tokens", retry_after_s=wait_s)
            raise WrongToken("The token in 'Authorization' is none of this service's.")
        return offered.hex()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _by_address(request: Request) -> str:
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if mapped := getattr(address, "ipv4_mapped", None):  # on a socket for both families
        return str(mapped)
    # A client with one IPv6 address has 2**64 of them.
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else host
