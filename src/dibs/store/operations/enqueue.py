"""Enqueue tasks: durable at the return, one task for each idempotency key, params valid by the schema of their type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NoReturn

from dibs.errors import DibsError, InvalidValue, KeyConflict
from dibs.json_values import decode
from dibs.model.checks import from_micros
from dibs.model.task import RETURN, STATES, NewTask, State, Task, expires_too_early
from dibs.model.workflow import check_type
from dibs.store.contract import Observer
from dibs.store.operation import BeginTransaction, Coalesce, Mode, Operation, Statement, Statements, run_alone
from dibs.store.operations.conflicts import Answers, Refuse, Resolve
from dibs.store.operations.dialect import Dialect, NewRows, Stored
from dibs.store.operations.flow import FlowRules, RulesCache
from dibs.store.operations.rows import SCOPES, KeyOfQueue, NewRow, moment
from dibs.store.operations.validation import TaskToStore, TaskValidation


class Enqueue:
    """Store tasks."""

    def __init__(self, dialect: Dialect, observer: Observer, rules: RulesCache) -> None:
        self._dialect = dialect
        self._rules = rules
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
        """Insert the tasks. For a task whose key is in force, its rule for conflicts decides. Returns the answers in
        order."""
        resolve = Resolve(new, answers, refuse)
        waiting = yield from self._valid_rows(new, resolve)
        while waiting:
            inserted = yield from self._insert(waiting, refuse)
            answers.update(inserted)
            self._observer.added([row.queue for row, *_ in inserted.values()])
            # The other keys were in force. If such a key has ended since, it is free again.
            waiting = {place: row for place, row in waiting.items() if place not in answers}
            if waiting:
                placed, _ = _place(waiting, self._rules.rules)  # a replaced task waits where its new content belongs
                waiting = yield from resolve.conflicts(placed)
        return [answers[place] for place in range(len(new))]

    def _insert(self, waiting: NewRows, refuse: Refuse) -> Statements[dict[int, Stored]]:
        """Insert the rows whose key is free, each in the backlog that the present limits demand. A task whose limits do
        not exist or do not fit is refused."""
        firsts, rules = _first_of_each_key(waiting), self._rules.rules
        while True:
            rows, errors = _place(firsts, rules)
            if errors:  # the limits may have changed since the rules were read
                rules = yield from self._rules.checked()
                rows, errors = _place(firsts, rules)
                for place, error in errors.items():
                    refuse(place, error)
            limited = any(row.backlog is not None for row in rows.values())
            if limited:
                yield BeginTransaction()
            inserted = (yield from self._dialect.insert_tasks(rows, rules.version)) if rows else {}
            if inserted is not None:
                break
            rules = yield from self._rules.read()  # the limits have changed: nothing was inserted
        if limited:
            yield from send_signals(inserted.values())
        return inserted

    def _valid_rows(self, new: Sequence[TaskToStore], resolve: Resolve) -> Statements[NewRows]:
        """The rows to insert; their params were validated before (see validation.py). A task with invalid params, or
        with an expiry before it is due, is refused, unless its key was stored before, when the task was valid:
        repeating an enqueue is safe whatever schema was registered since, and whatever the time is."""
        errors = {place: each.error for place, each in enumerate(new) if each.error is not None}
        errors |= yield from _expiry_errors(new)
        if not errors:
            return {place: each.row for place, each in enumerate(new)}
        if keyed := {place: new[place].row for place in errors if new[place].row.key is not None}:
            yield from resolve.repetitions(keyed)
        for place, error in errors.items():
            if place not in resolve.answers:
                resolve.refuse(place, error)
        return {place: each.row for place, each in enumerate(new) if place not in errors}


def _expiry_errors(new: Sequence[TaskToStore]) -> Statements[dict[int, InvalidValue]]:
    """The tasks whose expiry is not after their due time, where one of the two is a time and the other is a number of
    seconds. Only the database's clock can compare these; NewTask has checked the others."""
    mixed = [
        place
        for place, each in enumerate(new)
        if (row := each.sent).expires_in is not row.expires_at
        and (row.delay is not None if row.expires_in is None else row.run_at is not None)
    ]
    if not mixed:
        return {}
    [[now]] = yield Statement("clock")
    return {place: expires_too_early(new[place].task) for place in mixed if _expires_too_early(new[place].sent, now)}


def _expires_too_early(row: NewRow, now: int) -> bool:
    due = row.run_at if row.run_at is not None else now + (row.delay or 0)
    expiry = _expiry(row, now)
    return expiry is not None and expiry <= due


def _place(rows: NewRows, rules: FlowRules) -> tuple[NewRows, dict[int, DibsError]]:
    """The rows with their backlogs, and the errors of those whose limits do not exist or do not fit."""
    if not any(map(rules.concern, rows.values())):
        return rows, {}
    placed: dict[int, NewRow] = {}
    errors: dict[int, DibsError] = {}
    for place, row in rows.items():
        try:
            placed[place] = rules.place(row)
        except InvalidValue as error:
            errors[place] = error
    return placed, errors


def send_signals(stored: Iterable[Stored]) -> Statements[None]:
    """Note for the next claim that these new tasks wait: one signal for each backlog."""
    signals: dict[str, dict[str, Any]] = {}
    for row, task_id, state, _ in stored:
        if row.backlog is None or state != State.PENDING:
            continue
        signal = signals.setdefault(row.backlog, _signal(row, task_id))
        if (row.priority, -task_id) > (signal["priority"], -signal["head"]):
            signal |= {"priority": row.priority, "head": task_id}
    if signals:
        yield Statement("send_signals", rows=list(signals.values()))


def _signal(row: NewRow, task_id: int) -> dict[str, Any]:
    return {
        "backlog": row.backlog,
        "queue": row.queue,
        "type": row.type,
        "group_key": row.group_key or "",
        "limits": row.limits,
        "priority": row.priority,
        "head": task_id,
    }


def _raise(place: int, error: DibsError) -> NoReturn:
    raise error


def _to_store(task: NewTask) -> TaskToStore:
    check_type(task)
    return TaskToStore(task)


def _check_keys_of(new: Iterable[TaskToStore]) -> None:
    """In a batch that is stored as a whole, a key of a queue must have one content only, unless a task of the key has
    another rule for conflicts: then the tasks are stored one after the other."""
    keyed = [each for each in new if each.sent.key is not None]
    in_turn = {each.sent.name for each in keyed if each.task.on_conflict != RETURN}
    contents: dict[KeyOfQueue, str | None] = {}
    for row in (each.sent for each in keyed if each.sent.name not in in_turn):
        if contents.setdefault(row.name, row.key_content) != row.key_content:
            assert row.key is not None
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


def _expiry(row: NewRow, created: int) -> int | None:
    return row.expires_at if row.expires_in is None else created + row.expires_in


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
        [] if row.tags is None else decode(row.tags),
        None if row.expires_at is None and row.expires_in is None else moment(_expiry(row, created_micros)),
        None if row.key is None else SCOPES[row.key_scope],
        None if row.key_for is None else from_micros(created_micros + row.key_for), False,
        [] if row.limits is None else decode(row.limits), row.group_key
    )  # fmt: skip
