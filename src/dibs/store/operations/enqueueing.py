"""Enqueue: durable when it returns, one task per idempotency key, params checked against their type's schema."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

from dibs.codec import decode, encode_params, fingerprint
from dibs.errors import KeyConflict
from dibs.step import check_type
from dibs.store.operation import Operation, Row, Statement, Steps
from dibs.store.operations.rows import STATES, read_task, seconds
from dibs.store.operations.typecache import TypeCache
from dibs.store.witness import Witnessed
from dibs.task import NewTask, Task, from_micros, to_micros

Rows = list[dict[str, Any]]
Inserted = dict[int, Row]
"""place in the batch -> (id, state, created_at) of the task that was inserted there"""


class Enqueueing(Witnessed, ABC):
    """Putting tasks in."""

    @property
    @abstractmethod
    def types(self) -> TypeCache:
        """The registered task types."""

    @abstractmethod
    def insert_tasks(self, rows: Rows) -> Steps[Inserted]:
        """Insert the rows whose key is free, with their history, and say which; a taken key is left out."""

    def enqueue(self, tasks: Sequence[NewTask]) -> Operation[list[Task]]:
        """Store the tasks in this order, all or none; a key that is taken gives the task that has it."""
        for task in tasks:
            check_type(task)
        return Operation("enqueue", lambda: self._enqueue(tasks), wakes=True, atomic=_several_keys(tasks))

    def _enqueue(self, tasks: Sequence[NewTask]) -> Steps[list[Task]]:
        if not tasks:
            return []
        yield from self.types.refresh()
        rows = [self._row(place, task) for place, task in enumerate(tasks)]
        stored: dict[int, Task] = {}
        waiting = yield from self._settle_invalid(_first_of_each_key(rows), stored)
        while waiting:
            inserted = yield from self.insert_tasks(waiting)
            stored.update((place, _new_task(rows[place], row)) for place, row in inserted.items())
            # A key is taken: somebody enqueued it before. If its task has been pruned since, the key is free again.
            waiting = yield from self._join_existing([row for row in waiting if row["place"] not in inserted], stored)
        self.witness.added(task.queue for task in stored.values() if not task.deduplicated)
        return _in_order(rows, stored)

    def _settle_invalid(self, rows: Rows, stored: dict[int, Task]) -> Steps[Rows]:
        """A task whose params do not fit its type's schema is refused, unless its key says that it was stored when
        they did: repeating an enqueue is safe whatever has been registered since."""
        invalid = [row for row in rows if row["invalid"] is not None]
        if not invalid:
            return rows
        yield from self._join_existing([row for row in invalid if row["key"] is not None], stored)
        for row in invalid:
            if row["place"] not in stored:
                raise row["invalid"]
        return [row for row in rows if row["invalid"] is None]

    def _row(self, place: int, task: NewTask) -> dict[str, Any]:
        params, version, invalid = self.types.apply(task.type, task.params)
        keyed = task.key is not None
        return {
            "place": place,
            "invalid": invalid,
            "type": task.type,
            "type_version": version,
            "queue": task.queue,
            "priority": task.priority,
            "params": encode_params(params),
            "max_attempts": task.max_attempts,
            "timeout": None if task.timeout is None else round(task.timeout * 1e6),
            "backoff_base": round(task.backoff.base * 1e6),
            "backoff_cap": round(task.backoff.cap * 1e6),
            "delay": None if task.delay is None else round(task.delay * 1e6),
            "run_at": None if task.run_at is None else to_micros(task.run_at),
            "key": task.key,
            "key_content": fingerprint(task.type, task.params) if keyed else None,
            "trace": task.trace,
        }

    def _join_existing(self, rows: Rows, stored: dict[int, Task]) -> Steps[Rows]:
        if not rows:
            return []
        found = yield Statement("find_keys", {"keys": [row["key"] for row in rows]})
        by_key = {row[1]: row for row in found}
        for row in rows:
            if existing := by_key.get(row["key"]):
                _check_content(row, existing)
                stored[row["place"]] = read_task(existing, 2, deduplicated=True)
        return [row for row in rows if row["key"] not in by_key]


def _several_keys(tasks: Sequence[NewTask]) -> bool:
    # Without keys one statement inserts everything. With several, a conflict found after the insert must undo it.
    return len(tasks) > 1 and any(task.key is not None for task in tasks)


def _first_of_each_key(rows: Rows) -> Rows:
    firsts: dict[str, dict[str, Any]] = {}
    chosen = []
    for row in rows:
        key = row["key"]
        if key is None or (first := firsts.setdefault(key, row)) is row:
            chosen.append(row)
        elif row["key_content"] != first["key_content"]:
            raise KeyConflict(key)
    return chosen


def _check_content(row: dict[str, Any], existing: Row) -> None:
    content, key, task_id = existing[:3]
    if content != row["key_content"]:
        raise KeyConflict(key, task_id)


def _new_task(row: dict[str, Any], inserted: Row) -> Task:
    task_id, state, created_at = inserted
    run_at = row["run_at"] if row["run_at"] is not None else created_at + (row["delay"] or 0)
    return Task(
        id=task_id,
        type=row["type"],
        queue=row["queue"],
        state=STATES[state],
        params=decode(row["params"]),
        priority=row["priority"],
        attempts=0,
        max_attempts=row["max_attempts"],
        token=0,
        created_at=from_micros(created_at),
        run_at=from_micros(run_at),
        type_version=row["type_version"],
        timeout=seconds(row["timeout"]),
        key=row["key"],
        trace=row["trace"],
    )


def _in_order(rows: Rows, stored: dict[int, Task]) -> list[Task]:
    if len(stored) == len(rows):
        return [stored[row["place"]] for row in rows]
    by_key = {task.key: task for task in stored.values()}
    again = {key: msgspec.structs.replace(task, deduplicated=True) for key, task in by_key.items()}
    return [stored.get(row["place"]) or again[row["key"]] for row in rows]
