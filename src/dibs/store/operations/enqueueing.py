"""Enqueue: durable when it returns, one task per idempotency key, params checked against their type's schema."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

from dibs.codec import decode
from dibs.errors import DibsError, KeyConflict
from dibs.model.checks import from_micros
from dibs.model.task import STATES, NewTask, Task
from dibs.model.workflow import check_type
from dibs.store.operation import Operation, Row, Statement, Steps, alone
from dibs.store.operations.checking import Checks, Given
from dibs.store.operations.newrow import KeyOfQueue, NewRow
from dibs.store.operations.rows import read_task, seconds
from dibs.store.witness import Witnessed

NewRows = Mapping[int, NewRow]
"""Rows by their place among those that came together."""

Stored = tuple[NewRow, int, str, int]
"""The row, and the id, state and time of creation that the store gave it."""

QUEUE = 4
"""The place of the queue in a row of `find_keys`: before it stand key_content, key, id and type."""

Answers = dict[int, "Stored | Task | DibsError"]
Refuse = Callable[[int, DibsError], None]


class Enqueueing(Witnessed, ABC):
    """Putting tasks in."""

    many_writers: bool

    @abstractmethod
    def insert_tasks(self, rows: NewRows) -> Steps[dict[int, Stored]]:
        """Insert the rows whose key is free in their queue, with their history, and say which; a taken key is left out.
        No key of a queue is in the rows twice."""

    def enqueue(self, tasks: Sequence[NewTask]) -> Operation[list[Task]]:
        """Store the tasks in this order, all or none; a key that is taken in its queue gives the task that has it."""
        # All that needs no database is done here: by the caller, not by whoever commits for all.
        given = [_given(task) for task in tasks]
        if len(given) == 1:
            return self._enqueue_one(given[0])
        atomic = any(task.key is not None for task in tasks)  # a conflict found after the insert must undo it
        return Operation(
            "enqueue",
            lambda: self._enqueue_all(given),
            wakes=True,
            atomic=atomic,
            read=_read_all,
            checks=Checks(given),
        )

    def _enqueue_one(self, given: Given) -> Operation[list[Task]]:
        # A key that somebody has inserted but not committed is waited for. Where there can be such, others who are done
        # together with it would wait as well, and one of them may be the one to commit.
        waits = self.many_writers and given.sent.key is not None
        return Operation(
            "enqueue",
            partial(alone, self._enqueue_each, given),
            wakes=True,
            read=_read_one,
            item=given,
            each=None if waits else self._enqueue_each,
            checks=Checks([given]),
        )

    def _enqueue(self, tasks: Sequence[NewTask], checks: Checks) -> Steps[list[Task]]:
        """Enqueue as a part of another operation, which has these checks."""
        for task in tasks:
            check_type(task)
        answers = yield from self._enqueue_all([checks.find(task) for task in tasks])
        return _read_all(answers)

    def _enqueue_all(self, given: Sequence[Given]) -> Steps[list[Stored | Task]]:
        """All of them or none."""
        if not given:
            return []
        _check_keys_of(given)
        return (yield from self._settle(given, {}, _raise))

    def _enqueue_each(self, given: Sequence[Given]) -> Steps[list[Stored | Task | DibsError]]:
        """Each for itself."""
        answers: Answers = {}
        return (yield from self._settle(given, answers, answers.__setitem__))

    def _settle(self, given: Sequence[Given], answers: Answers, refuse: Refuse) -> Steps[list[Any]]:
        """The answers in the order of what was given."""
        waiting = yield from self._fit(given, answers, refuse)
        while waiting:
            inserted = yield from self.insert_tasks(_first_of_each_key(waiting))
            answers.update(inserted)
            self.witness.added([row.queue for row, *_ in inserted.values()])
            # A key is taken: somebody enqueued it before. If its task has been pruned since, the key is free again.
            waiting = {place: row for place, row in waiting.items() if place not in inserted}
            if waiting:
                waiting = yield from self._join_existing(waiting, answers, refuse)
        return [answers[place] for place in range(len(given))]

    def _fit(self, given: Sequence[Given], answers: Answers, refuse: Refuse) -> Steps[NewRows]:
        """The rows to insert; their params were validated before (see checking.py). A task whose params do not fit its
        type's schema is refused, unless its key says that it was stored when they did: repeating an enqueue is safe
        whatever has been registered since."""
        invalid = {place: each.row for place, each in enumerate(given) if each.error is not None}
        if keyed := {place: row for place, row in invalid.items() if row.key is not None}:
            yield from self._join_existing(keyed, answers, refuse)
        for place in invalid:
            if place not in answers and (error := given[place].error) is not None:
                refuse(place, error)
        return {place: each.row for place, each in enumerate(given) if each.error is None}

    def _join_existing(self, rows: NewRows, answers: Answers, refuse: Refuse) -> Steps[NewRows]:
        """Answer those whose key has a task; the others come back."""
        by_name = yield from find_keys(rows.values())
        for place, row in rows.items():
            if (existing := by_name.get(row.name)) is None:
                continue
            if existing[0] == row.key_content:
                answers[place] = read_task(existing, 2, deduplicated=True)
            else:
                refuse(place, KeyConflict(existing[1], existing[2]))
        return {place: row for place, row in rows.items() if row.name not in by_name}


def find_keys(rows: Iterable[NewRow]) -> Steps[dict[KeyOfQueue, Row]]:
    """The rows of `find_keys` for those of these rows whose key is taken in their queue."""
    asked = [{"key": row.key, "queue": row.queue} for row in rows if row.key is not None]
    found = (yield Statement("find_keys", rows=asked)) if asked else []
    return {(row[QUEUE], row[1]): row for row in found}


def _raise(place: int, error: DibsError) -> NoReturn:
    raise error


def _given(task: NewTask) -> Given:
    check_type(task)
    return Given(task)


def _check_keys_of(given: Iterable[Given]) -> None:
    """In a batch that is stored as a whole, a key of a queue must have one content only."""
    contents: dict[KeyOfQueue, str | None] = {}
    for row in (each.sent for each in given):
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
    row, task_id, state, created_at = answer
    run_at = row.run_at if row.run_at is not None else created_at + (row.delay or 0)
    return Task(
        task_id, row.type, row.queue, STATES[state], decode(row.params), row.priority, 0, row.max_attempts, 0,
        from_micros(created_at), from_micros(run_at), row.type_version, seconds(row.timeout), None, None, None, None,
        row.key, False, None, None, None, None, False, 0, None, row.trace
    )  # fmt: skip
