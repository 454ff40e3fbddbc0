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
from dibs.store.operations.admission import Admission, priorities
from dibs.store.operations.advance import Advance
from dibs.store.operations.claim import Sweeper, TierMemory, claim_params, claim_with_sweeps
from dibs.store.operations.conflicts import key_params
from dibs.store.operations.dialect import FinalizationStatements, Holders, NewRows, Stored
from dibs.store.operations.rows import NewRow
from dibs.store.operations.statistics import read_changes
from dibs.store.operations.stream_indexes import StreamIndexes
from dibs.store.sqlite import backlogs, claims
from dibs.store.sqlite.finalization import SqliteFinalization


class SqliteDialect:
    """The statements of SQLite. `path`: the file, of which the size is reported. See Dialect."""

    many_writers = False

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._memory = TierMemory()
        self.indexes = StreamIndexes()

    def insert_tasks(self, rows: NewRows, flow_version: int) -> Statements[dict[int, Stored] | None]:
        """Insert plain values. Safe: ids, states and the version of the limits are determined under the write lock."""
        free = yield from _without_taken_keys(rows)
        if not free:
            return {}
        [(now, last, numbered, version)] = yield Statement("last_id")
        if version != flow_version:
            return None
        stored = [_stored(row, task_id, now) for task_id, row in enumerate(free.values(), last + 1)]
        new = {"first": last + 1, "last": last + len(stored)}
        for name, values in _inserts(stored):
            yield Statement(name, values=values)
        if numbered:
            yield Statement("number_new", new)
        yield Statement("enqueue_history", new)
        if kept := [_kept(each) for each in stored if each[0].key_for is not None]:
            yield Statement("keep_keys", values=kept)
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
        self, request: ClaimRequest, sweeper: Sweeper, *, atomic: bool, holders: Holders | None, admission: Admission
    ) -> Statements[Rows]:
        """Pick the ids, then claim them. Safe: the write lock is held, so the picked tasks are still pending."""
        return claim_with_sweeps(partial(self._claim, request, holders, admission), sweeper)

    def _claim(self, request: ClaimRequest, holders: Holders | None, admission: Admission) -> Statements[Rows]:
        if (yield from self.has_limited(request)):
            return (yield from admission.claim(request, holders))
        return (yield from self.claim_plain(request, holders))

    def has_limited(self, filters: Filters, *, peek: bool = False) -> Statements[bool]:
        """Ask the database."""
        return bool((yield Statement("has_limited", backlogs.params(filters), words=backlogs.words(filters))))

    def await_writers(self) -> Statements[bool]:
        """Return at once: this transaction holds the lock of the file, so there is no other that writes."""
        yield from ()
        return True

    def plain_candidates(self, filters: Filters) -> Statements[list[tuple[int, int]]]:
        """Pick without a change."""
        return (yield from priorities((yield from self.pick(filters))))

    def open_backlogs(self, request: ClaimRequest, reach: int) -> Statements[Rows]:
        """One statement for each queue and type."""
        return backlogs.open_backlogs(request, reach)

    def watchers(self, request: ClaimRequest, items: list[dict[str, Any]]) -> Statements[Rows]:
        """One statement for each counter, queue and type."""
        return backlogs.watchers(request, items)

    def read_backlogs(self, names: list[str], count: int, filters: Filters) -> Statements[Rows]:
        """One statement."""
        return backlogs.read(names, count, filters)

    def open_watchers(self, items: list[dict[str, Any]]) -> Statements[int]:
        """One statement for each counter, queue and type."""
        return backlogs.open_watchers(items)

    def claim_limited(
        self, request: ClaimRequest, items: list[dict[str, Any]], counted_at: int | None
    ) -> Statements[Rows]:
        """One statement. Safe: the write lock is held, so no task is locked by others. All statements of an operation
        have one time, so that `counted_at` is the time of the claims anyway."""
        return backlogs.claim(request, items)

    def claim_plain(self, request: ClaimRequest, holders: Holders | None) -> Statements[Rows]:
        """Pick the ids, then claim them."""
        ids = yield from claims.pick(request, self._memory, self.indexes)
        if not ids:
            return []
        by_id: dict[int, Row] = {}
        for holder, some in _by_holder(ids, holders):
            rows = yield Statement("claim", {**claim_params(request), **holder, "ids": some}, change=True)
            by_id.update((row[0], row) for row in rows)
        return [by_id[task_id] for task_id in ids]

    def pick(self, filters: Filters) -> Statements[list[int]]:
        """The ids that a claim would take now."""
        return claims.pick(filters, self._memory, self.indexes, advance=False)

    def number_some(self, order: str) -> Statements[bool]:
        """Begin the random order, and number the next claimable tasks."""
        return claims.number_some(order)

    def provide_index(self, name: str) -> Statements[None]:
        """Create the index, in this transaction."""
        self.indexes.provided(name)  # first: if the disk is full, the next claims do without the index
        yield from claims.create_stream_index(name)


def _by_holder(ids: list[int], holders: Holders | None) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """The ids for each worker; all for the worker of the request where no holders are given."""
    if holders is None:
        yield {}, ids
        return
    for (worker_id, incarnation), some in groupby(zip(holders, ids, strict=False), key=lambda each: each[0]):
        yield {"worker_id": worker_id, "incarnation": incarnation}, [task_id for _, task_id in some]


def _without_taken_keys(rows: NewRows) -> Statements[NewRows]:
    keys = key_params(rows.values())
    taken = {(row[0], row[1]) for row in (yield Statement("taken_keys", rows=keys))} if keys else ()
    return {place: row for place, row in rows.items() if row.name not in taken} if taken else rows


def _stored(row: NewRow, task_id: int, now: int) -> Stored:
    return row, task_id, "scheduled" if _due(row, now) > now else "pending", now


def _values(stored: Stored, *further: Any) -> tuple[Any, ...]:
    """The columns of `enqueue_keyless`, and those that another statement has in addition."""
    row, task_id, state, now = stored
    return (
        task_id, row.type, row.type_version, row.queue, state, row.priority, row.params, row.max_attempts, row.timeout,
        row.backoff_base, row.backoff_cap, now, _due(row, now), now, row.trace, row.tags,
        row.expires_at if row.expires_in is None else now + row.expires_in, *further
    )  # fmt: skip


def _inserts(stored: list[Stored]) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    """The statements that insert these tasks, with their columns, no more than they need: one for plain tasks, and one
    for tasks with a group or limits where there are any."""
    plain = [each for each in stored if each[0].group_key is None and each[0].backlog is None]
    if plain:
        yield _plain_insert(plain)
    if len(plain) < len(stored):
        others = [each for each in stored if each[0].group_key is not None or each[0].backlog is not None]
        yield "enqueue_limited", [_values(each, *_key_values(each), *_limit_values(each)) for each in others]


def _plain_insert(stored: list[Stored]) -> tuple[str, list[tuple[Any, ...]]]:
    if all(row.key is None for row, *_ in stored):
        return "enqueue_keyless", [_values(each) for each in stored]
    if all(row.key_scope is None and row.request is None for row, *_ in stored):
        return "enqueue", [_values(each, each[0].key, each[0].key_content) for each in stored]
    return "enqueue_scoped", [_values(each, *_key_values(each)) for each in stored]


def _key_values(stored: Stored) -> tuple[Any, ...]:
    """The columns that `enqueue_scoped` has in addition."""
    row, _, _, now = stored
    until = None if row.key_for is None else now + row.key_for
    return row.key, row.key_content, row.key_scope, until, row.request


def _limit_values(stored: Stored) -> tuple[Any, ...]:
    """The columns that `enqueue_limited` has in addition. The signal that follows registers a task that waits."""
    row, _, state, _ = stored
    return row.limits, row.group_key, row.backlog, row.backlog is not None and state == "pending"


def _kept(stored: Stored) -> tuple[Any, ...]:
    """The columns of `keep_keys`."""
    row, task_id, _, now = stored
    until = now + (row.key_for or 0)
    return row.key, row.queue, until, task_id, row.type, row.key_content, row.priority, row.max_attempts, now


def _due(row: NewRow, now: int) -> int:
    return row.run_at if row.run_at is not None else now + (row.delay or 0)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
