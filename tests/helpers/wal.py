"""The number of transactions since the WAL of a SQLite file was last emptied, and how much of the WAL is not yet moved
into the file: read from the WAL and its index without a connection, which would affect both.
"""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path

HEADER = 32
FRAME = 24


def empty_wal(connection: sqlite3.Connection) -> None:
    """Begin to count. A connection must stay open until the count is taken: the last to close removes the WAL."""
    busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert not busy


def commits_in_wal(path: Path) -> int:
    """The frames that end a transaction: they contain the size of the database after it."""
    wal = path.with_name(path.name + "-wal").read_bytes()
    if len(wal) < HEADER:
        return 0
    page_size, salt = struct.unpack(">I", wal[8:12])[0], wal[16:24]
    frames = (wal[start : start + FRAME] for start in range(HEADER, len(wal), FRAME + page_size))
    return sum(frame[8:16] == salt and frame[4:8] != b"\0\0\0\0" for frame in frames)


def written_and_moved(path: Path) -> tuple[int, int]:
    """Frames in the WAL since it was last begun anew, and how many of them are in the file already. Not for a process
    that has the file open: to close the index, as this does, lets go of its locks."""
    index = path.with_name(path.name + "-shm").read_bytes()
    [written] = struct.unpack_from("=I", index, 16)  # mxFrame of the index's header
    [moved] = struct.unpack_from("=I", index, 96)  # nBackfill, after two copies of the header
    return written, moved
