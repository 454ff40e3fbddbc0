"""Authentication with API keys. A key is found by its id and verified by its secret, in constant time.

Keys are cached for a second, because reading the database for every request would cost a round trip. A revoked key is
refused as soon as a wake-up of the store announces a change, and within a second in any case.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from dibs.model.key import UNKNOWN_KEY_DIGEST, ApiKey, Scope, matches, split
from dibs.server.sign_in import SignedIn
from dibs.store.contract import DatabaseStore
from dibs.wire.errors import RequestRefused

UNNAMED = "user"
"""The author of the actions of a user to whom the application gives no name."""

CACHE_SECONDS = 1.0
FORGET_AFTER = 600.0


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request: its key or its user, and its signature for the history.

    `user`: a user of the application in which the server is mounted. Without a key and a user the caller may do
    everything: the server has no keys.
    """

    key: ApiKey | None = None
    signature: str | None = None
    user: SignedIn | None = None

    @property
    def rights(self) -> ApiKey | SignedIn | None:
        """What grants the caller its scopes and queues; None for a caller that may do everything."""
        return self.user if self.key is None else self.key

    @property
    def by(self) -> str | None:
        """The name of the caller in the history."""
        name = self.key.id if self.key is not None else None
        if self.user is not None:  # never only the signature, which the user chooses
            name = self.user.name or UNNAMED
        return "/".join(part for part in (name, self.signature) if part is not None) or None

    @property
    def queues(self) -> tuple[str, ...] | None:
        """The queues that the caller may see; None for all."""
        queues = None if self.rights is None else self.rights.queues
        return None if queues is None else tuple(queues)

    def serves(self, queue: str) -> bool:
        """Return True if the caller may see tasks of this queue."""
        return self.queues is None or queue in self.queues

    def may(self, *scopes: Scope) -> bool:
        """Return True if the caller has one of the scopes."""
        return self.rights is None or any(self.rights.allows(scope) for scope in scopes)

    def check_scopes(self, scopes: frozenset[Scope]) -> None:
        """Raise RequestRefused if the caller has none of the scopes."""
        if (rights := self.rights) is None or self.may(*scopes):
            return
        wanted, had = " or ".join(sorted(scopes)), ", ".join(sorted(rights.scopes)) or "none"
        if self.key is None:
            message, hint = f"This needs the scope {wanted}; you have {had}.", "Ask for it, or sign in as another user."
        else:
            message, hint = f"This needs a key with the scope {wanted}; this key has {had}.", "Use another key."
        raise RequestRefused("forbidden", message, hint=hint)

    def check_queue(self, queue: str) -> None:
        """Raise RequestRefused if the caller may not use the queue."""
        if not self.serves(queue):
            raise RequestRefused(
                "queue_not_allowed",
                f"{'You' if self.key is None else 'This key'} may not use queue {queue!r}.",
                hint=f"{'Your' if self.key is None else 'Its'} queues are: {', '.join(self.queues or ())}.",
            )

    def narrow(self, queues: Sequence[str] | None) -> Sequence[str] | None:
        """Return the queues of a request, checked, or all queues of the caller."""
        if queues is None:
            return self.queues
        for queue in queues:
            self.check_queue(queue)
        return queues

    def check_whole_store(self) -> None:
        """Raise RequestRefused if the caller is limited to queues."""
        if self.queues is not None:
            limited = "you are" if self.key is None else "the key is"
            raise RequestRefused(
                "key_limited_to_queues",
                f"This action concerns the whole store, and {limited} limited to some queues.",
                hint="Use a key without a limit to queues.",
            )


@dataclass(slots=True)
class _CachedKey:
    key: ApiKey | None
    epoch: int
    read_at: float


_NO_KEY = _CachedKey(None, 0, 0.0)


class KeyCache:
    """The keys that this process has read, cached for a short time."""

    def __init__(self, store: DatabaseStore) -> None:
        self._store = store
        self._keys: dict[str, _CachedKey] = {}
        self._reads: dict[tuple[str, int], asyncio.Task[_CachedKey]] = {}
        self._epoch = 0
        self.used: set[str] = set()
        """The keys that were used since the last update of `last_used_at`."""

    def invalidate(self) -> None:
        """Read keys again: the store has changed."""
        self._epoch += 1

    def trusts(self, text: str | None) -> bool:
        """Return True for a key that was valid before, even if it is no longer, without reading the store."""
        parts = split(text)
        cached = self._keys.get(parts[0]) if parts else None
        return parts is not None and cached is not None and _proves(parts[1], cached)

    async def find(self, text: str | None) -> ApiKey | None:
        """Return the live key for a key text; None if it is not valid."""
        if (parts := split(text)) is None:
            return None
        key_id, secret = parts
        cached = self._cached(key_id) or _NO_KEY
        if not _proves(secret, cached):
            # Also for a known key, so that a wrong secret takes as long as an unknown id.
            cached = await self._read_shared(key_id)
            if not _proves(secret, cached):
                return None
        if cached.key is None or not _live(cached):
            return None
        self.used.add(key_id)
        return cached.key

    async def of_id(self, key_id: str) -> ApiKey | None:
        """Return the live key with this id, for a session whose key was verified before."""
        cached = self._cached(key_id) or await self._read_shared(key_id)
        if cached.key is None or not _live(cached):
            return None
        self.used.add(key_id)
        return cached.key

    def forget_old(self) -> None:
        """Remove keys from the cache that were not used for long."""
        oldest = time.monotonic() - FORGET_AFTER
        self._keys = {key_id: cached for key_id, cached in self._keys.items() if cached.read_at > oldest}

    def _cached(self, key_id: str) -> _CachedKey | None:
        cached = self._keys.get(key_id)
        fresh = cached is not None and cached.epoch == self._epoch and time.monotonic() - cached.read_at < CACHE_SECONDS
        return cached if fresh else None

    async def _read_shared(self, key_id: str) -> _CachedKey:
        read_key = (key_id, self._epoch)  # a read from before a change must not be used afterwards
        if (reading := self._reads.get(read_key)) is None:  # concurrent requests share one read
            reading = self._reads[read_key] = asyncio.create_task(self._read(*read_key))
        return await asyncio.shield(reading)

    async def _read(self, key_id: str, epoch: int) -> _CachedKey:
        read_at = time.monotonic()
        try:
            cached = _CachedKey(await self._store.run_async(self._store.keys.get_key(key_id)), epoch, read_at)
        finally:
            del self._reads[key_id, epoch]
        if cached.key is None:  # unknown ids are not cached: anyone can invent them
            self._keys.pop(key_id, None)
        else:
            self._keys[key_id] = cached
        return cached


def _proves(secret: str, cached: _CachedKey) -> bool:
    """Return True if the secret matches the key. For an unknown id, compare with a digest that no secret has."""
    return matches(secret, cached.key.digest if cached.key else UNKNOWN_KEY_DIGEST)


def _live(cached: _CachedKey) -> bool:
    """Return True if the key is neither revoked nor expired, by the monotonic clock since it was read."""
    key = cached.key
    assert key is not None
    left = key.seconds_left
    return key.live and (left is None or left > time.monotonic() - cached.read_at)
