"""The SQLite file: created for its owner only, and never beside a write-ahead log that an earlier file has left.

Connections open existing files only (see connection.py). SQLite would create a missing file on its own, with the mode
that the umask leaves, and would delete the write-ahead log that it finds beside an empty file, with every task in it.
"""

from __future__ import annotations

import contextlib
import logging
import os
from datetime import UTC, datetime
from pathlib import Path

from dibs.errors import StoreError, StoreUnavailable

logger = logging.getLogger("dibs.store")

OWNER_ONLY = 0o600
"""Tasks may hold anything that their owner has. SQLite gives the -wal and the -shm the mode of the file."""


def create(path: Path, *, keep_log: bool = False) -> None:
    """Create an empty file, unless there is one; the mode of an existing file is left alone.

    A write-ahead log without its file means that the file was moved away: StoreError, or with `keep_log` the log is
    renamed, because the caller asked for a new file.
    """
    if path.exists():
        return
    target = Path(os.path.realpath(path))  # SQLite follows a link, and has its log beside the file
    _check_log(target, keep_log)
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, OWNER_ONLY))
    except FileExistsError:  # another process has created it
        return
    except OSError as error:
        hint = "Check that its folder exists, and that this user may create files in it."
        raise StoreUnavailable(f"Cannot create {path}: {error.strerror}.", hint=hint) from None


def create_companion(path: Path, database: Path) -> int:
    """Open a file that lies beside the database, created with the mode and the owner of the database where it is
    missing: every user of the database must be able to use the companion. The descriptor."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        pass
    descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
    with contextlib.suppress(OSError):  # the database is missing, or another user created the companion just now
        model = database.stat()
        os.fchmod(descriptor, model.st_mode & 0o666)
        if os.geteuid() == 0:
            os.fchown(descriptor, model.st_uid, model.st_gid)
    return descriptor


def _check_log(target: Path, keep: bool) -> None:
    log = log_of(target)
    # In this order: a process that creates both files creates the log last, so a log whose file is still missing
    # afterwards belongs to no running process.
    if not _has_content(log) or target.exists():
        return
    if not keep:
        raise StoreError(
            f"There is no file {target}, but its write-ahead log {log.name} is still there and may hold tasks.",
            hint=f"Move the file back beside {log.name}; or begin anew with migrate() (`dibs migrate`), "
            f"which renames the log.",
        )
    keep_orphaned(log)


def keep_orphaned(log: Path) -> None:
    """Rename a log whose file is gone, so that it is never written into another file."""
    kept = log.with_name(f"{log.name}-orphaned-{datetime.now(UTC):%Y%m%dT%H%M%S%f}")
    log.rename(kept)
    logger.warning("%s was left by a file that was moved away or replaced; it is kept as %s", log, kept.name)


def log_of(path: Path) -> Path:
    """The write-ahead log of the file: SQLite follows a link, and has the log beside the file."""
    target = Path(os.path.realpath(path))
    return target.with_name(f"{target.name}-wal")


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False
