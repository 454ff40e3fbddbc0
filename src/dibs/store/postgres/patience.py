"""How long a call goes on trying while PostgreSQL cannot be written: during a failover, say."""

from __future__ import annotations

import time

import psycopg

from dibs.store.postgres.connection import POOL_TIMEOUT, translate

SHORTEST, LONGEST = 0.05, 1.0
"""Seconds between two tries, doubling: sessions that were left in the pool are replaced at once, and a server that
stays read-only is not asked more often than once a second by each caller."""


class UntilWritable:
    """The tries of one call that PostgreSQL refuses as read-only. Such a call changed nothing, so repeating it is
    safe; a new session may lead to the new primary."""

    def __init__(self) -> None:
        self._until: float | None = None
        self._pause = SHORTEST / 2

    def pause_after(self, error: psycopg.errors.ReadOnlySqlTransaction) -> float:
        """Seconds to wait before the next try; StoreUnavailable where the patience is over."""
        now = time.monotonic()
        self._until = self._until or now + POOL_TIMEOUT
        if now >= self._until:
            raise translate(error, writing=False) from error
        self._pause = min(self._pause * 2, LONGEST)
        return self._pause
