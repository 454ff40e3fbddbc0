"""Who calls: the key in the header, found by its id, proved by its secret, in the same time whether it is right or not.

What a key may do is kept for a moment, because asking the database before every request would cost a round trip each.
A key that is revoked is refused as soon as the store's wake-ups tell of a change, and within a second in any case.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from dibs.model.key import NOBODY, ApiKey, Scope, matches, split
from dibs.store.contract import DatabaseStore
from dibs.wire.errors import RequestRefused

KEPT_FOR = 1.0
FORGOTTEN_AFTER = 600.0


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, for what it may see and for the history."""

    key: ApiKey | None = None
    signature: str | None = None

    @property
    def by(self) -> str | None:
        """The name in the history."""
        if self.key is None:
            return self.signature
        return self.key.id if self.signature is None else f"{self.key.id}/{self.signature}"

    @property
    def queues(self) -> tuple[str, ...] | None:
        """The only queues this caller may see; None for all."""
        return None if self.key is None else self.key.queues

    def serves(self, queue: str) -> bool:
        """True if the caller may see tasks of this queue."""
        return self.key is None or self.key.serves(queue)

    def check_queue(self, queue: str) -> None:
        """Refuse a queue that the caller must not name."""
        if not self.serves(queue):
            raise RequestRefused(
                "queue_not_allowed",
                f"This key is not for the queue {queue!r}.",
                hint=f"Its queues are: {', '.join(self.queues or ())}.",
            )

    def narrow(self, queues: Sequence[str] | None) -> Sequence[str] | None:
        """The queues that a request names, or all that the caller has."""
        if queues is None:
            return self.queues
        for queue in queues:
            self.check_queue(queue)
        return queues

    def check_whole_store(self) -> None:
        """Refuse a key that is limited to queues what concerns all of them."""
        if self.queues is not None:
            raise RequestRefused(
                "key_limited_to_queues",
                "This concerns the whole store, and the key is limited to some queues.",
                hint="Use a key without a limit to queues.",
            )


@dataclass(slots=True)
class _Known:
    key: ApiKey | None
    epoch: int
    read_at: float


_UNKNOWN = _Known(None, 0, 0.0)


class KeyRing:
    """The keys as this process knows them."""

    def __init__(self, store: DatabaseStore) -> None:
        self._store = store
        self._known: dict[str, _Known] = {}
        self._asking: dict[tuple[str, int], asyncio.Task[_Known]] = {}
        self._epoch = 0
        self.used: set[str] = set()
        """The keys that were used since somebody last took note of it."""

    def look_again(self) -> None:
        """Something changed, maybe a key."""
        self._epoch += 1

    def trusts(self, text: str | None) -> bool:
        """True for a key that was good a while ago, even if it is no longer, without asking the store."""
        parts = split(text)
        known = self._known.get(parts[0]) if parts else None
        return parts is not None and known is not None and _proves(parts[1], known)

    async def find(self, text: str | None) -> ApiKey | None:
        """The live key that the text is; None for anything else."""
        if (parts := split(text)) is None:
            return None
        key_id, secret = parts
        known = self._kept(key_id) or _UNKNOWN
        if not _proves(secret, known):
            # Also for a key that is known: a wrong secret takes as long as an id that nobody has.
            known = await self._look_up(key_id)
            if not _proves(secret, known):
                return None
        if known.key is None or not _live(known):
            return None
        self.used.add(key_id)
        return known.key

    async def of_id(self, key_id: str) -> ApiKey | None:
        """The live key with this id, for who has proved before that it is theirs."""
        known = self._kept(key_id) or await self._look_up(key_id)
        if known.key is None or not _live(known):
            return None
        self.used.add(key_id)
        return known.key

    def forget_old(self) -> None:
        """Let go of keys that nobody has used for long."""
        long_ago = time.monotonic() - FORGOTTEN_AFTER
        self._known = {key_id: known for key_id, known in self._known.items() if known.read_at > long_ago}

    def _kept(self, key_id: str) -> _Known | None:
        known = self._known.get(key_id)
        fresh = known is not None and known.epoch == self._epoch and time.monotonic() - known.read_at < KEPT_FOR
        return known if fresh else None

    async def _look_up(self, key_id: str) -> _Known:
        question = (key_id, self._epoch)  # what was asked before a key was revoked must not answer afterwards
        if (asking := self._asking.get(question)) is None:  # of many requests that come at once, one asks for all
            asking = self._asking[question] = asyncio.create_task(self._ask(*question))
        return await asyncio.shield(asking)

    async def _ask(self, key_id: str, epoch: int) -> _Known:
        read_at = time.monotonic()
        try:
            known = _Known(await self._store.run_async(self._store.keys.get_key(key_id)), epoch, read_at)
        finally:
            del self._asking[key_id, epoch]
        if known.key is None:  # anybody can make up ids: they are not kept
            self._known.pop(key_id, None)
        else:
            self._known[key_id] = known
        return known


def _proves(secret: str, known: _Known) -> bool:
    """True if the secret is the key's; an unknown id is compared as well, with what no secret has."""
    return matches(secret, known.key.digest if known.key else NOBODY)


def _live(known: _Known) -> bool:
    """Neither revoked nor expired, counted on by this machine's monotonic clock since it was read."""
    key = known.key
    assert key is not None
    left = key.seconds_left
    return key.live and (left is None or left > time.monotonic() - known.read_at)


def missing(scopes: frozenset[Scope], key: ApiKey) -> RequestRefused | None:
    """Why the key may not do what needs one of the scopes; None if it may."""
    if any(key.allows(scope) for scope in scopes):
        return None
    wanted = " or ".join(sorted(scopes))
    had = ", ".join(sorted(key.scopes))
    return RequestRefused(
        "forbidden", f"This needs a key with the scope {wanted}; this one has {had}.", hint="Use another key."
    )
