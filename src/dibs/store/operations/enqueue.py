"""Enqueue tasks: durable at the return, one task for each idempotency key, params valid by the schema of their type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NoReturn

from dibs.codec import decode
from dibs.errors import DibsError, KeyConflict
from dibs.model.checks import from_micros
from dibs.model.task import STATES, NewTask, Task
from dibs.model.workflow import check_type
from dibs.store.contract import Observer
from dibs.store.operation import Coalesce, Mode, Operation, Row, Statement, Statements, run_alone
from dibs.store.operations.dialect import Dialect, NewRows, Stored
from dibs.store.operations.rows import KeyOfQueue, NewRow, read_task
from dibs.store.operations.validation import TaskToStore, TaskValidation

QUEUE = 4
"""The index of the queue in a row of `find_keys`, after key_content, key, id and type."""

Answers = dict[int, "Stored | Task | DibsError"]
Refuse = Callable[[int, DibsError], None]


class Enqueue:
    """Store tasks."""

    def __init__(self, dialect: Dialect, observer: Observer) -> None:
        self._dialect = dialect
        self._observer = observer
        self._coalesce = Coalesce(self._store_each, self._store_each)

    def enqueue(self, tasks: Sequence[NewTask]) -> Operation[list[Task]]:
        """Store the tasks in this order, all or none. For a key that is taken in its queue, the result is the task
        that has the key."""
        # Work that needs no database is done here, by the calling thread: the statements may run in the thread that
        # commits for several callers.
        new = [_to_store(task) for task in tasks]
        if len(new) == 1:
            return self._enqueue_one(new[0])
        has_key = any(task.key is not None for task in tasks)  # a conflict must undo the insert
        return Operation(
            "enqueue",
            lambda: self._store_all(new),
            wakes=True,
            mode=Mode.TRANSACTION if has_key else Mode.WRITE,
            decode=_read_all,
            validation=TaskValidation(new),
        )

    def _enqueue_one(self, new: TaskToStore) -> Operation[list[Task]]:
        # The insert of a key that another transaction has inserted waits for the end of that transaction. If several
        # transactions can be open at once, operations that were combined with this one would wait as well, and one of
        # them may be the one that has to end first.
        waits = self._dialect.many_writers and new.sent.key is not None
        return Operation(
            "enqueue",
            partial(run_alone, self._coalesce, new),
            wakes=True,
            decode=_read_one,
            request=new,
            coalesce=None if waits else self._coalesce,
            validation=TaskValidation([new]),
        )

    def store_tasks(self, tasks: Sequence[NewTask], validation: TaskValidation) -> Statements[list[Task]]:
        """The statements of `enqueue`, for an operation that has this validation."""
        for task in tasks:
            check_type(task)
        answers = yield from self._store_all([validation.find(task) for task in tasks])
        return _read_all(answers)

    def _store_all(self, new: Sequence[TaskToStore]) -> Statements[list[Stored | Task]]:
        """Store all of the tasks or none."""
        if not new:
            return []
        _check_keys_of(new)
        return (yield from self._insert_or_join(new, {}, _raise))

    def _store_each(self, new: Sequence[TaskToStore]) -> Statements[list[Stored | Task | DibsError]]:
        """Store each task, or answer it with its error."""
        answers: Answers = {}
        return (yield from self._insert_or_join(new, answers, answers.__setitem__))

    def _insert_or_join(self, new: Sequence[TaskToStore], answers: Answers, refuse: Refuse) -> Statements[list[Any]]:
        """Insert the tasks. The answer for a task whose key is taken is the existing task. Returns the answers in
        order."""
        waiting = yield from self._valid_rows(new, answers, refuse)
        while waiting:
            inserted = yield from self._dialect.insert_tasks(_first_of_each_key(waiting))
            answers.update(inserted)
            self._observer.added([row.queue for row, *_ in inserted.values()])
            # The other keys were taken before. If the task of such a key was pruned since, the key is free again.
            waiting = {place: row for place, row in waiting.items() if place not in inserted}
            if waiting:
                waiting = yield from self._join_existing(waiting, answers, refuse)
        return [answers[place] for place in range(len(new))]

    def _valid_rows(self, new: Sequence[TaskToStore], answers: Answers, refuse: Refuse) -> Statements[NewRows]:
        """The rows to insert; their params were validated before (see validation.py). A task with invalid params is
        refused, unless its key was stored before, when the params were valid: repeating an enqueue is safe whatever
        schema was registered since."""
        invalid = {place: each.row for place, each in enumerate(new) if each.error is not None}
        if keyed := {place: row for place, row in invalid.items() if row.key is not None}:
            yield from self._join_existing(keyed, answers, refuse)
        for place in invalid:
            if place not in answers and (error := new[place].error) is not None:
                refuse(place, error)
        return {place: each.row for place, each in enumerate(new) if each.error is None}

    def _join_existing(self, rows: NewRows, answers: Answers, refuse: Refuse) -> Statements[NewRows]:
        """Answer the rows whose key is taken with the existing task. Returns the other rows."""
        by_name = yield from find_keys(rows.values())
        for place, row in rows.items():
            if (existing := by_name.get(row.name)) is None:
                continue
            if existing[0] == row.key_content:
                answers[place] = read_task(existing, 2, deduplicated=True)
            else:
                refuse(place, KeyConflict(existing[1], existing[2]))
        return {place: row for place, row in rows.items() if row.name not in by_name}


def find_keys(rows: Iterable[NewRow]) -> Statements[dict[KeyOfQueue, Row]]:
    """The rows of `find_keys`, for the new rows whose key is taken in their queue."""
    keys = [{"key": row.key, "queue": row.queue} for row in rows if row.key is not None]
    found = (yield Statement("find_keys", rows=keys)) if keys else []
    return {(row[QUEUE], row[1]): row for row in found}


def _raise(place: int, error: DibsError) -> NoReturn:
    raise error


def _to_store(task: NewTask) -> TaskToStore:
    check_type(task)
    return TaskToStore(task)


def _check_keys_of(new: Iterable[TaskToStore]) -> None:
    """In a batch that is stored as a whole, a key of a queue must have one content only."""
    contents: dict[KeyOfQueue, str | None] = {}
    for row in (each.sent for each in new):
        if row.key is not None and contents.setdefault(row.name, row.key_content) != row.key_content:
            raise KeyConflict(row.key)


def _first_of_each_key(rows: NewRows) -> NewRows:
    firsts: dict[KeyOfQueue, int] = {}
    for place, row in rows.items():
        if row.key is not None:
            firsts.setdefault(row.name, place)
    if not firsts:
        return rows
    return {place: row for place, row in rows.items() if row.key is None or firsts[row.name] == place}


def _read_one(answer: Stored | Task) -> list[Task]:
    return [_read(answer)]


def _read_all(answers: Sequence[Stored | Task]) -> list[Task]:
    return [_read(answer) for answer in answers]


def _read(answer: Stored | Task) -> Task:
    if isinstance(answer, Task):
        return answer
    row, task_id, state, created_micros = answer
    created_at = run_at = from_micros(created_micros)
    if row.run_at is not None or row.delay is not None:
        run_at = from_micros(created_micros + (row.delay or 0) if row.run_at is None else row.run_at)
    return Task(
        task_id, row.type, row.queue, STATES[state], decode(row.params), row.priority, 0, row.max_attempts, 0,
        created_at, run_at, row.type_version, None if row.timeout is None else row.timeout / 1_000_000, None, None,
        None, None, row.key, False, None, None, None, None, False, 0, None, row.trace, None,
        [] if row.tags is None else decode(row.tags)
    )  # fmt: skip
