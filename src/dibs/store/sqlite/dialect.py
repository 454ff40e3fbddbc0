"""The dialect of SQLite: how claims, inserts, finalization and the history differ from PostgreSQL. See Dialect.

Every operation that writes holds the write lock of the file, so many small statements cost less than one large
statement, and no other process can write between two of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from dibs.model.claim import ClaimRequest, Filters
from dibs.model.history import HistoryPosition
from dibs.model.statistics import DatabaseHealth, HistoryChanges
from dibs.model.task import State
from dibs.store.operation import Row, Rows, Statement, Statements, limited
from dibs.store.operations.advance import Advance
from dibs.store.operations.claim import Sweeper, TierMemory, claim_params, claim_with_sweeps
from dibs.store.operations.dialect import FinalizationStatements, Holders, NewRows, Stored
from dibs.store.operations.enqueue import find_keys
from dibs.store.operations.rows import NewRow
from dibs.store.operations.statistics import read_changes
from dibs.store.sqlite import claims
from dibs.store.sqlite.finalization import SqliteFinalization


class SqliteDialect:
    """The statements of SQLite. `path`: the file, of which the size is reported. See Dialect."""

    many_writers = False

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._memory = TierMemory()

    def insert_tasks(self, rows: NewRows) -> Statements[dict[int, Stored]]:
        """Insert plain values. Safe: ids and states are determined under the write lock."""
        free = yield from _without_taken_keys(rows)
        if not free:
            return {}
        [(now, last, numbered)] = yield Statement("last_id")
        stored = [_stored(row, task_id, now) for task_id, row in enumerate(free.values(), last + 1)]
        new = {"first": last + 1, "last": last + len(stored)}
        yield Statement("enqueue", values=[_values(each) for each in stored])
        if numbered:
            yield Statement("number_new", new)
        yield Statement("enqueue_history", new)
        return dict(zip(free, stored, strict=True))

    def insert_step_tasks(self, rows: list[dict[str, Any]]) -> Statements[None]:
        """Insert the tasks of steps, with their history."""
        yield Statement("enqueue_steps", rows=rows)
        yield Statement("enqueue_history", {"first": rows[0]["id"], "last": rows[-1]["id"]})

    def lock_roots(self, ids: list[int]) -> Statements[None]:
        """No lock is needed: this transaction is the only one that writes."""
        yield from ()

    def clear_holders(self, recovered: Rows) -> Statements[None]:
        """RETURNING sees only the new row, so the holder must stay in the row until the history is written."""
        yield Statement("leave_tasks", {"ids": [row[0] for row in recovered if row[3] == State.PENDING]})

    def finalization(self, advance: Advance) -> FinalizationStatements:
        """SQLite has no functions in the database."""
        return SqliteFinalization(advance)

    def history_position(self) -> Statements[HistoryPosition]:
        """One transaction writes at a time, so the history has no gaps; every read is a snapshot anyway."""
        [(last,)] = yield Statement("last_entry")
        return HistoryPosition(last)

    def history_changes(self, positions: Sequence[HistoryPosition], limit: int) -> Statements[list[HistoryChanges]]:
        """The changes since each position."""
        made = []
        for position in positions:
            rows = yield Statement("moves", {"after": position.last}, words=limited(limit))
            made.append(read_changes(position, rows, limit))
        return made

    def database_health(self) -> Statements[DatabaseHealth]:
        """The sizes of the files. SQL does not know the size of the write-ahead log, which is a file of its own."""
        yield from ()
        if self._path is None:
            return DatabaseHealth(0)
        return DatabaseHealth(_size(self._path), wal_size=_size(self._path.with_name(f"{self._path.name}-wal")))

    def claim(
        self, request: ClaimRequest, sweeper: Sweeper, *, atomic: bool, holders: Holders | None
    ) -> Statements[Rows]:
        """Pick the ids, then claim them. Safe: the write lock is held, so the picked tasks are still pending."""
        return claim_with_sweeps(partial(self._claim, request, holders), sweeper)

    def _claim(self, request: ClaimRequest, holders: Holders | None) -> Statements[Rows]:
        ids = yield from claims.pick(request, self._memory)
        if not ids:
            return []
        by_id: dict[int, Row] = {}
        for holder, some in _by_holder(ids, holders):
            rows = yield Statement("claim", {**claim_params(request), **holder, "ids": some}, change=True)
            by_id.update((row[0], row) for row in rows)
        return [by_id[task_id] for task_id in ids]

    def pick(self, filters: Filters) -> Statements[list[int]]:
        """The ids that a claim would take now."""
        return claims.pick(filters, self._memory, advance=False)

    def number_some(self, order: str) -> Statements[bool]:
        """Begin the random order, and number the next claimable tasks."""
        return claims.number_some(order)


def _by_holder(ids: list[int], holders: Holders | None) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """The ids for each worker; all for the worker of the request where no holders are given."""
    if holders is None:
        yield {}, ids
        return
    for (worker_id, incarnation), some in groupby(zip(holders, ids, strict=False), key=lambda each: each[0]):
        yield {"worker_id": worker_id, "incarnation": incarnation}, [task_id for _, task_id in some]


def _without_taken_keys(rows: NewRows) -> Statements[NewRows]:
    taken = yield from find_keys(rows.values())
    return {place: row for place, row in rows.items() if row.name not in taken} if taken else rows


def _stored(row: NewRow, task_id: int, now: int) -> Stored:
    return row, task_id, "scheduled" if _due(row, now) > now else "pending", now


def _values(stored: Stored) -> tuple[Any, ...]:
    """The columns of `enqueue`."""
    row, task_id, state, now = stored
    return (
        task_id, row.type, row.type_version, row.queue, state, row.priority, row.params, row.max_attempts, row.timeout,
        row.backoff_base, row.backoff_cap, now, _due(row, now), now, row.key, row.key_content, row.trace, row.tags
    )  # fmt: skip


def _due(row: NewRow, now: int) -> int:
    return row.run_at if row.run_at is not None else now + (row.delay or 0)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
