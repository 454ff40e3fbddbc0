"""The vital signs of a database: what only its engine can tell, and what grows before anything else goes wrong."""

from __future__ import annotations

import msgspec


class Vitals(msgspec.Struct, frozen=True):
    """`size`: bytes that dibs takes. `wal_size`: bytes of SQLite's write-ahead log, which grows while a reader holds
    an old state. `oldest_transaction`: seconds for which the oldest transaction has been open on PostgreSQL, which
    keeps it from cleaning up; None where the engine has no such thing."""

    size: int
    wal_size: int | None = None
    oldest_transaction: float | None = None
