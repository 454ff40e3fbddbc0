"""Enqueues whose idempotency key is in force: return the existing task, keep it, refuse, or replace its content.

Every decision is made on rows that were read, and the statement that writes checks again that the task has not started,
or that the time of its key has passed. A statement that finds something else changes nothing, and the enqueue begins
again with an insert. So of two clients that replace, both have an effect, one after the other; and a replacement that
comes after the claim meets a claimed task or a free key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from dibs.errors import DibsError, KeyConflict
from dibs.json_values import encode
from dibs.model.task import NewTask, State, Task
from dibs.model.unique import OnConflict
from dibs.store.operation import WIDTH, Row, Statement, Statements
from dibs.store.operations.dialect import NewRows, Stored
from dibs.store.operations.rows import KeyOfQueue, NewRow, read_task
from dibs.store.operations.validation import TaskToStore

Answers = dict[int, "Stored | Task | DibsError"]
Refuse = Callable[[int, DibsError], None]
"""Answer the task at this place with the error; in an operation that stores all or none: raise it."""

_TASK = 5
"""The first column of the task in a row of `find_keys`."""


class KeyHolder(NamedTuple):
    """The task that stands in the way of a new task with its key. `row`: its row of `find_keys`."""

    row: Row

    @property
    def task_id(self) -> int:
        """The id of the task, which may be pruned."""
        task_id: int = self.row[_TASK]
        return task_id

    @property
    def name(self) -> KeyOfQueue:
        """The queue and the key."""
        return self.row[_TASK + 2], self.row[2]

    @property
    def is_past_its_time(self) -> bool:
        """True if the key was in force until a time that has passed."""
        return bool(self.row[4])

    @property
    def has_not_started(self) -> bool:
        """True if the task waits for its first claim."""
        return self.row[0] == "task" and self.row[_TASK + 3] in _REPLACEABLE and self.row[_TASK + 8] == 0

    def was_made_by(self, row: NewRow) -> bool:
        """True if an earlier sending of the same request enqueued the task, or replaced its content last."""
        return row.request is not None and self.row[3] == row.request

    def has_content_of(self, row: NewRow) -> bool:
        """True if type and params are those of the new task."""
        return bool(self.row[1] == row.key_content)

    def has_type_of(self, row: NewRow) -> bool:
        """True if the type is that of the new task."""
        return bool(self.row[_TASK + 1] == row.type)

    def read(self, *, replaced: bool = False) -> Task:
        """The task."""
        return read_task(self.row, _TASK, deduplicated=True, replaced=replaced)


_REPLACEABLE = (State.PENDING.value, State.SCHEDULED.value)


class Resolve:
    """Resolves the conflicts of one enqueue. `new`: the new tasks by their place in the batch."""

    def __init__(self, new: Sequence[TaskToStore], answers: Answers, refuse: Refuse) -> None:
        self._new = new
        self.answers = answers
        self.refuse = refuse

    def repetitions(self, rows: NewRows) -> Statements[None]:
        """Answer the rows that repeat an earlier enqueue, and refuse those that are in conflict with one."""
        holders = yield from find_holders(key_params(rows.values()))
        for place, row in rows.items():
            holder = holders.get(row)
            if holder is None or holder.is_past_its_time:
                continue
            if self._rule(place) is not OnConflict.REPLACE or holder.was_made_by(row):
                self._join(place, row, holder)

    def conflicts(self, rows: NewRows) -> Statements[NewRows]:
        """Resolve the conflicts of the rows. Returns the rows that have to be inserted, or tried again."""
        holders = yield from find_holders(key_params(rows.values()))
        yield from without_past_keys(holders.having_keys())
        replacing: list[Replacement] = []
        for _, some in groupby(sorted(rows.items(), key=lambda each: each[1].name), key=lambda each: each[1].name):
            replacing += self._conflicts_of_key(list(some), holders)
        yield from self._replace(replacing)
        return {place: row for place, row in rows.items() if place not in self.answers}

    def _conflicts_of_key(self, rows: list[tuple[int, NewRow]], holders: KeyHolders) -> Iterator[Replacement]:
        """Answer the rows of one key in their order, up to those that replace the content: what follows them depends on
        the new content. Of several replacements in a row only the last one is written."""
        replacement: Replacement | None = None
        for place, row in rows:
            holder = holders.get(row)
            if holder is None or holder.is_past_its_time:
                break
            if self._replaces(place, row, holder):
                places = () if replacement is None else replacement.places
                replacement = Replacement((*places, place), row, self._new[place].task, holder)
            elif replacement is None:
                self._join(place, row, holder)
            else:
                break
        if replacement is not None:
            yield replacement

    def _replaces(self, place: int, row: NewRow, holder: KeyHolder) -> bool:
        is_repeated = holder.was_made_by(row)
        may_replace = self._rule(place) is OnConflict.REPLACE and holder.has_not_started and holder.has_type_of(row)
        return may_replace and not is_repeated

    def _join(self, place: int, row: NewRow, holder: KeyHolder) -> None:
        """Answer with the existing task, or refuse."""
        rule = self._rule(place)
        if holder.was_made_by(row):
            self.answers[place] = holder.read(replaced=rule is OnConflict.REPLACE)
        elif rule is OnConflict.KEEP or (rule is not OnConflict.RAISE and holder.has_content_of(row)):
            self.answers[place] = holder.read()
        else:
            self.refuse(place, _conflict(row, rule, holder))

    def _replace(self, replacements: list[Replacement]) -> Statements[None]:
        """Replace the content of these tasks, unless a worker has claimed them meanwhile."""
        if not replacements:
            return
        rows = yield Statement("replace", rows=[each.params() for each in replacements], change=True)
        changed = {row[0]: row for row in rows}
        for each in replacements:
            if (row := changed.get(each.holder.task_id)) is not None:
                for place in each.places:
                    self.answers[place] = read_task(row, WIDTH, deduplicated=True, replaced=True)

    def _rule(self, place: int) -> OnConflict:
        return OnConflict(self._new[place].task.on_conflict)


class Replacement(NamedTuple):
    """New content for a waiting task. `places`: the tasks of the batch that it answers."""

    places: tuple[int, ...]
    row: NewRow
    task: NewTask
    holder: KeyHolder

    def params(self) -> dict[str, Any]:
        """The parameters of `replace`."""
        row, old = self.row, self.holder.read()
        return {
            "id": old.id,
            "from_state": old.state.value,
            "detail": encode({"changed": list(self._changes(old))}),
            "type_version": row.type_version,
            "params": row.params,
            "priority": row.priority,
            "delay": row.delay,
            "run_at": row.run_at,
            "max_delay": None if self.task.max_delay is None else round(self.task.max_delay * 1e6),
            "key_content": row.key_content,
            "request": row.request,
            "trace": row.trace,
            "tags": row.tags,
            "expires_at": row.expires_at,
            "expires_in": row.expires_in,
            "limits": row.limits,
            "group_key": row.group_key,
            "backlog": row.backlog,
        }

    def _changes(self, old: Task) -> Iterator[str]:
        """The names of the fields that change, as found when the task was read."""
        if not self.holder.has_content_of(self.row):
            yield "params"
        if old.priority != self.row.priority:
            yield "priority"
        if self.row.delay is not None or self.row.run_at is not None or old.state is State.SCHEDULED:
            yield "run_at"
        if old.tags != list(dict.fromkeys(self.task.tags)):
            yield "tags"
        if sorted(old.limits) != sorted(set(self.task.limits)):
            yield "limits"
        if old.group != self.row.group_key:
            yield "group"


class KeyHolders:
    """The tasks that stand in the way of new tasks."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._by_key: dict[KeyOfQueue, KeyHolder] = {}
        self._by_request: dict[tuple[KeyOfQueue, str], KeyHolder] = {}
        for holder in map(KeyHolder, rows):
            match holder.row[0]:
                case "request":
                    self._by_request[holder.name, holder.row[3]] = holder
                case "task":
                    self._by_key[holder.name] = holder
                case _:
                    self._by_key.setdefault(holder.name, holder)  # the task itself, if it is not pruned

    def having_keys(self) -> list[KeyHolder]:
        """The tasks that have the keys."""
        return list(self._by_key.values())

    def get(self, row: NewRow) -> KeyHolder | None:
        """The task that the same request has made, else the task that has the key; None if the key is free."""
        if row.request is not None and (made := self._by_request.get((row.name, row.request))) is not None:
            return made
        return self._by_key.get(row.name)


def key_params(rows: Iterable[NewRow]) -> list[dict[str, Any]]:
    """The keys of the rows, as parameters of `find_keys`."""
    return [key_param(row.key, row.queue, row.request) for row in rows if row.key is not None]


def key_param(key: str | None, queue: str, request: str | None = None) -> dict[str, Any]:
    """The key of a queue, as a parameter of `find_keys`."""
    return {"key": key, "queue": queue, "request": request}


def find_holders(keys: list[dict[str, Any]]) -> Statements[KeyHolders]:
    """The tasks that stand in the way of new tasks with these keys."""
    rows = yield Statement("find_keys", rows=keys)
    if len(rows) < len(keys) or any(each["request"] is not None for each in keys):
        rows = [*rows, *(yield Statement("find_ended_keys", rows=keys))]
    return KeyHolders(rows)


def without_past_keys(holders: Sequence[KeyHolder]) -> Statements[list[KeyHolder]]:
    """End the keys that are past their time. Returns the other tasks."""
    if past := sorted({holder.task_id for holder in holders if holder.is_past_its_time}):
        yield Statement("end_keys", {"ids": past})
    return [holder for holder in holders if not holder.is_past_its_time]


def _conflict(row: NewRow, rule: OnConflict, holder: KeyHolder) -> KeyConflict:
    assert row.key is not None
    message, hint = None, None
    if rule is OnConflict.RAISE:
        message = f"The key {row.key!r} already belongs to task {holder.task_id}, and on_conflict is 'raise'."
        hint = "Nothing was stored. With on_conflict 'return' or 'keep', the existing task is returned instead."
    elif rule is OnConflict.REPLACE:
        why = "has started" if holder.has_type_of(row) else "has another type"
        message = f"The key {row.key!r} already belongs to task {holder.task_id}, which {why}, so it is not replaced."
    return KeyConflict(row.key, holder.task_id, message=message, hint=hint)
