"""Rate limits of keys, counted in the database so that they hold across processes, and limits on failed authentication.

A write to the database for every request would be expensive; on SQLite each write also wakes waiting claims, which then
send another request. So a process takes several permits at a time: half a percent of a high limit, or a tenth of a low
limit but not more than ten. That many permits can remain unused in another process. The number of permits that the
database grants never exceeds the limit.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from ipaddress import IPv6Network

from dibs.model.key import ApiKey, RateLimit
from dibs.store.contract import DatabaseStore
from dibs.wire.errors import RequestRefused

LIMIT_FRACTION = 200
"""A process takes 1/200 of a limit at a time."""

MIN_PERMITS = 10
"""Minimum number of permits to take at a time, unless that is more than a tenth of the limit. A waiting worker sends
three requests when it is woken: if each caused a write, its own requests would wake it until its limit is reached."""

MAX_FAILURES, FAILURE_WINDOW = 1000, 60.0
"""Maximum number of requests without a valid key from an address, and the seconds in which they count."""

GUESS_COST = 10
"""A request with a well-formed but wrong key counts as this many."""

MAX_ADDRESSES = 10_000


@dataclass(slots=True)
class _Permits:
    """The permits of one key that this process holds. They expire with their window."""

    limit: RateLimit
    left: int = 0
    until: float = 0.0
    spent: bool = False  # no permit is left in this window
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def take(self) -> bool:
        """Take a permit; return False if none is left. Raise RequestRefused if the window is known to be spent."""
        left = self.until - time.monotonic()
        if left <= 0:
            return False
        if self.spent:
            raise too_many(
                f"The limit of this key is {self.limit.requests:,} requests in {self.limit.period:g} s.", left
            )
        if self.left <= 0:
            return False
        self.left -= 1
        return True


class RateLimits:
    """The rate limits of all keys."""

    def __init__(self, store: DatabaseStore) -> None:
        self._store = store
        self._permits: dict[str, _Permits] = {}

    async def spend(self, key: ApiKey) -> None:
        """Count a request of the key; raise Refusal if its limit is reached."""
        if key.rate_limit is None:
            return
        permits = self._permits.get(key.id)
        if permits is None or permits.limit != key.rate_limit:
            permits = self._permits[key.id] = _Permits(key.rate_limit)
        if not permits.take():
            async with permits.lock:  # concurrent requests share one write
                while not permits.take():
                    await self._refill(permits, key.id)

    def forget_old(self) -> None:
        """Remove permits whose window has ended."""
        now = time.monotonic()
        self._permits = {key_id: permits for key_id, permits in self._permits.items() if permits.until > now}

    async def _refill(self, permits: _Permits, key_id: str) -> None:
        limit = permits.limit.requests
        wanted = max(1, limit // LIMIT_FRACTION, min(MIN_PERMITS, limit // 10))
        grant = await self._store.run_async(self._store.keys.take_permits(key_id, permits.limit, wanted))
        permits.left, permits.spent = grant.granted, grant.granted == 0
        permits.until = time.monotonic() + grant.retry_in


class FailedAuthLimits:
    """Limits failed authentication by address. An IPv6 customer has a whole /64, which counts as one address."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def failed(self, address: str, *, guessed: bool) -> None:
        """Count a failure."""
        now = time.monotonic()
        address, cost = _network_of(address), GUESS_COST if guessed else 1
        count, until = self._failures.pop(address, (0, 0.0))
        self._failures[address] = (count + cost, until) if now < until else (cost, now + FAILURE_WINDOW)
        if len(self._failures) > MAX_ADDRESSES:
            self._failures.popitem(last=False)

    def blocked(self, address: str) -> bool:
        """Return True for an address with too many failures."""
        if not self._failures:
            return False
        return self._failures.get(_network_of(address), (0, 0.0))[0] >= MAX_FAILURES and self._left(address) > 0

    def refusal(self, address: str) -> RequestRefused:
        """Return the error for a blocked address."""
        return too_many("Too many requests without a valid key came from this address.", self._left(address))

    def _left(self, address: str) -> float:
        return self._failures.get(_network_of(address), (0, 0.0))[1] - time.monotonic()


def too_many(message: str, retry_in: float) -> RequestRefused:
    """Return the error for a request above a rate limit."""
    hint = "Wait for the time in Retry-After, or create a key with another limit: `dibs keys create --rate-limit`."
    return RequestRefused("rate_limited", message, hint=hint, retry_after=retry_in)


def _network_of(address: str) -> str:
    if ":" not in address:
        return address
    try:
        return str(IPv6Network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address
