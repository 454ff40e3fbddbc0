"""Limits: how often a key may ask, counted in the database so that it holds across processes; and how often an address
may be wrong.

Asking the database about every request would cost a write each; on SQLite each write also wakes those who wait for
tasks, who then ask again. So a process takes some permits at a time: half a percent of a high limit, a tenth of a low
one but not more than ten. As many can lie unused in the wrong process. What the database has granted never exceeds the
limit.
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

SHARE = 200
"""A process takes this fraction of a limit at a time."""

AT_LEAST = 10
"""Permits to take at a time, unless that were more than a tenth of the limit. A waiting worker makes three requests
when it is woken: if these made a write, its own requests would wake it again, until its limit is spent."""

PATIENCE, WITHIN = 1000, 60.0
"""Requests without a key that an address may make, in so many seconds."""

GUESS = 10
"""As many of them count for one with a key that is well formed, and wrong."""

ADDRESSES = 10_000


@dataclass(slots=True)
class _Purse:
    """The permits of one key that this process holds. They end with their window."""

    limit: RateLimit
    left: int = 0
    until: float = 0.0
    spent: bool = False  # nobody has any left in this window
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    def take(self) -> bool:
        """A permit, if there is one; refused at once where the window is known to be spent."""
        left = self.until - time.monotonic()
        if left <= 0:
            return False
        if self.spent:
            raise too_many(f"This key may ask {self.limit.requests:,} times in {self.limit.period:g} s.", left)
        if self.left <= 0:
            return False
        self.left -= 1
        return True


class Limits:
    """How often each key may ask."""

    def __init__(self, store: DatabaseStore) -> None:
        self._store = store
        self._purses: dict[str, _Purse] = {}

    async def spend(self, key: ApiKey) -> None:
        """One request of the key; refused where its limit is reached."""
        if key.rate_limit is None:
            return
        purse = self._purses.get(key.id)
        if purse is None or purse.limit != key.rate_limit:
            purse = self._purses[key.id] = _Purse(key.rate_limit)
        if not purse.take():
            async with purse.asking:  # of many requests that come at once, one asks for all
                while not purse.take():
                    await self._refill(purse, key.id)

    def forget_old(self) -> None:
        """Let go of purses whose window is over."""
        now = time.monotonic()
        self._purses = {key_id: purse for key_id, purse in self._purses.items() if purse.until > now}

    async def _refill(self, purse: _Purse, key_id: str) -> None:
        limit = purse.limit.requests
        wanted = max(1, limit // SHARE, min(AT_LEAST, limit // 10))
        permits = await self._store.run_async(self._store.keys.take_permits(key_id, purse.limit, wanted))
        purse.left, purse.spent = permits.granted, permits.granted == 0
        purse.until = time.monotonic() + permits.retry_in


class Strangers:
    """How often each address came without a good key. Of IPv6 a customer has a whole /64: it counts as one address."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def failed(self, address: str, *, guessed: bool) -> None:
        """It did so again."""
        now = time.monotonic()
        address, cost = _household(address), GUESS if guessed else 1
        count, until = self._failures.pop(address, (0, 0.0))
        self._failures[address] = (count + cost, until) if now < until else (cost, now + WITHIN)
        if len(self._failures) > ADDRESSES:
            self._failures.popitem(last=False)

    def blocked(self, address: str) -> bool:
        """True for an address that did so too often."""
        if not self._failures:
            return False
        return self._failures.get(_household(address), (0, 0.0))[0] >= PATIENCE and self._left(address) > 0

    def refusal(self, address: str) -> RequestRefused:
        """What such an address is told."""
        return too_many("Too many requests without a good key have come from this address.", self._left(address))

    def _left(self, address: str) -> float:
        return self._failures.get(_household(address), (0, 0.0))[1] - time.monotonic()


def too_many(message: str, retry_in: float) -> RequestRefused:
    """The refusal of a request that came too early."""
    hint = "Wait as long as Retry-After says; `dibs keys create --rate-limit` makes a key with another limit."
    return RequestRefused("rate_limited", message, hint=hint, retry_after=retry_in)


def _household(address: str) -> str:
    if ":" not in address:
        return address
    try:
        return str(IPv6Network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address
