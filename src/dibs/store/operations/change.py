"""Change tasks that have not started: their priority, due time, queue, params, tags and group.

A change first locks the row, then computes the new values and the detail of the history entry from it, and writes them
if the state still allows it. Params are validated before that, outside of the transaction (see validation.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from dibs.encoded import comparable, describe, is_encoded
from dibs.errors import AlreadyStarted, DibsError, InvalidValue, KeyConflict, TaskNotFound, WrongState
from dibs.json_values import decode
from dibs.model.change import TaskChange, check_for_many
from dibs.model.checks import check_names, from_micros, to_micros
from dibs.model.task import WAITING, NewTask, State, Task, expires_before
from dibs.model.unique import key_to_move
from dibs.model.upkeep import Pause, PauseScope
from dibs.model.workflow import WORKFLOW_STEP
from dibs.store.operation import (
    Mode,
    Operation,
    ReleaseSavepoint,
    RollBackToSavepoint,
    Row,
    Rows,
    SetSavepoint,
    Statement,
    Statements,
)
from dibs.store.operations.conflicts import KeyHolders, find_holders, key_param, without_past_keys
from dibs.store.operations.flow import FlowRules, RulesCache
from dibs.store.operations.manage import check_many
from dibs.store.operations.rows import NewRow, encode_limits, encode_tags, read_task
from dibs.store.operations.upkeep import park
from dibs.store.operations.validation import TaskToStore, TaskValidation

NAMES_RECORDED = 20
"""The largest number of changed params that a history entry names."""

NAME_RECORDED = 100
"""The largest number of characters of such a name in a history entry."""


class ChangedRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """The new values of a row, all of them, and the detail of the history entry. Times in microseconds."""

    id: int
    from_state: str
    state: str
    priority: int
    queue: str
    params: str
    run_at: int
    type_version: int | None = None
    tags: str | None = None
    detail: str | None = None
    group_key: str | None = None
    backlog: str | None = None


class LockedTask(msgspec.Struct, frozen=True):
    """A task whose row is locked until the transaction ends. `params`, `tags`: as they are stored; `now`, `run_at`: in
    microseconds."""

    task: Task
    params: str
    tags: str | None
    run_at: int
    now: int


class Change:
    """Change tasks that have not started."""

    def __init__(self, rules: RulesCache) -> None:
        self._rules = rules

    def change(self, task_id: int, change: TaskChange, only: Sequence[str] | None = None) -> Operation[Task]:
        """Change a task that no worker has claimed. `only`: the queues of the caller; a task of another queue is
        TaskNotFound."""
        check_names(only, "only", "The queue")
        validation = TaskValidation([])
        return Operation(
            "change", lambda: self._change(task_id, change, only, validation), mode=Mode.TRANSACTION, wakes=True
        )

    def change_many(
        self, ids: Sequence[int], change: TaskChange, only: Sequence[str] | None = None, state: str | None = None
    ) -> Operation[int]:
        """Change the tasks among these that can be changed and are in the queues `only` and in this state, if given.
        Returns the number of tasks that differ from before."""
        given = check_many(ids, only)
        check_for_many(change)
        return Operation(
            "change_many", lambda: self._change_many(given, change, only, state), mode=Mode.TRANSACTION, wakes=True
        )

    def _change(
        self, task_id: int, change: TaskChange, only: Sequence[str] | None, validation: TaskValidation
    ) -> Statements[Task]:
        locked = yield from lock_to_change([task_id])
        if not locked or (only is not None and locked[0].task.queue not in only):
            raise TaskNotFound(task_id)
        [before] = locked
        _check_fixed(before.task, change)
        params = _new_params(before.task, change, validation)
        rules = yield from self._rules.checked()
        row = changed_row(before, change, rules, params)
        if (refusal := _refusal(before, row, rules)) is not None:
            _check_waits(before.task)
            raise refusal
        if row.detail is None:  # every value is as before
            _check_waits(before.task)
            return before.task
        changed = yield from write_changes([row], {task_id: key_to_move(before.task)})
        if task_id not in changed:
            _check_waits(before.task)
            yield from _raise_taken(before.task, row.queue)
        return read_task((yield Statement("get", {"ids": [task_id]}))[0])

    def _change_many(
        self, ids: list[int], change: TaskChange, only: Sequence[str] | None, state: str | None
    ) -> Statements[int]:
        locked = yield from lock_to_change(ids)
        chosen = [
            each
            for each in locked
            if (only is None or each.task.queue in only)
            and state in (None, each.task.state)
            and _why_fixed(each.task, change) is None
        ]
        rules = yield from self._rules.checked()
        rows = [
            row
            for each in chosen
            if (row := changed_row(each, change, rules)).detail is not None and _refusal(each, row, rules) is None
        ]
        changed = yield from write_changes(rows, {each.task.id: key_to_move(each.task) for each in chosen})
        return len(changed)


def lock_to_change(ids: Sequence[int]) -> Statements[list[LockedTask]]:
    """These tasks, as they are until the transaction ends; locked in the order of their ids."""
    rows = (yield Statement("lock_to_change", {"ids": list(ids)})) if ids else []
    return [_read_locked(row) for row in rows]


def _read_locked(row: Row) -> LockedTask:
    now, params, tags, run_at, *columns = row
    return LockedTask(read_task(tuple(columns)), params, tags, run_at, now)


def _new_params(task: Task, change: TaskChange, validation: TaskValidation) -> TaskToStore | None:
    """The new params as they are stored, validated; None if the params stay. Raises NotValidated the first time: the
    type of the task is known only after the task was read."""
    if change.params is None:
        return None
    if is_encoded(task.params) and not is_encoded(change.params):
        raise InvalidValue(
            f"The params of task {task.id} are {describe(task.params)}, and the new ones are not encoded: every reader "
            "of the store would see them.",
            hint="Give the encoded form, which the handler makes: params=handler.new(…).params.",
        )
    found = validation.find(NewTask(task.type, change.params))
    if found.error is not None:
        raise found.error
    return found


def changed_row(
    before: LockedTask, change: TaskChange, rules: FlowRules, params: TaskToStore | None = None
) -> ChangedRow:
    """The row after the change. `detail` is None if every value is as before."""
    task, run_at = before.task, _due(before, change)
    placed = _placed(before, change, rules, before.params if params is None else params.row.params)
    row = ChangedRow(
        id=task.id,
        from_state=task.state.value,
        state=_state_after(before, change, run_at),
        priority=task.priority if change.priority is None else change.priority,
        queue=placed.queue,
        params=placed.params,
        run_at=run_at,
        type_version=task.type_version if params is None else params.row.type_version,
        tags=before.tags if change.tags is None else encode_tags(change.tags),
        group_key=placed.group_key,
        backlog=placed.backlog,
    )
    detail = _detail(before, row)
    return msgspec.structs.replace(row, detail=msgspec.json.encode(detail).decode()) if detail else row


def _placed(before: LockedTask, change: TaskChange, rules: FlowRules, params: str) -> NewRow:
    """The queue, group and backlog after the change. A group that the params of the task name follows new params. The
    limits of a stored task are not refused: one that was removed since counts no more."""
    task, group = before.task, change.group
    if group is None and task.group != _named_group(before, rules):
        group = task.group
    row = _row_to_place(task, change.queue or task.queue, params, group or None)
    return rules.place_waiting(row) if params == before.params else rules.place(row, checked=True)


def _named_group(before: LockedTask, rules: FlowRules) -> str | None:
    """The group that the params name; None also if it cannot be read, because `group_by` was set after the enqueue."""
    try:
        return rules.group_of(before.task.type, before.params)
    except InvalidValue:
        return None


def _row_to_place(task: Task, queue: str, params: str, group: str | None) -> NewRow:
    """A row of which only what decides about its backlog is known."""
    return NewRow(task.type, queue, 0, params, 1, 0, 0, limits=encode_limits(task.limits), group_key=group)


def _refusal(before: LockedTask, row: ChangedRow, rules: FlowRules) -> InvalidValue | None:
    """Why the new values contradict the expiry or the limits of the task; None if they do not."""
    task = before.task
    if _expires_too_early(before, row):
        return expires_before(task, from_micros(row.run_at))
    if (row.queue, row.group_key) != (task.queue, task.group):
        try:
            rules.check_fit(_row_to_place(task, row.queue, row.params, row.group_key))
        except InvalidValue as error:
            return error
    return None


def _expires_too_early(before: LockedTask, row: ChangedRow) -> bool:
    expires_at = before.task.expires_at
    return expires_at is not None and row.run_at != before.run_at and to_micros(expires_at) <= row.run_at


def _due(before: LockedTask, change: TaskChange) -> int:
    if change.run_at is not None:
        return to_micros(change.run_at)
    return before.run_at if change.delay is None else before.now + round(change.delay * 1e6)


def _state_after(before: LockedTask, change: TaskChange, run_at: int) -> str:
    if not change.sets_due_time:
        return before.task.state.value
    return State.SCHEDULED.value if run_at > before.now else State.PENDING.value


def _detail(before: LockedTask, row: ChangedRow) -> dict[str, Any]:
    """What a change changes, for the history: old and new values, and of params only the names. A new queue comes first
    (see the fragment `is_move`)."""
    task = before.task
    pairs = {
        "queue": (task.queue, row.queue),
        "priority": (task.priority, row.priority),
        "run_at": (_text(before.run_at), _text(row.run_at)),
        "tags": (task.tags, [] if row.tags is None else decode(row.tags)),
        "group": (task.group, row.group_key),
    }
    detail: dict[str, Any] = {name: {"from": old, "to": new} for name, (old, new) in pairs.items() if old != new}
    if row.params != before.params and (names := _changed_names(task.params, decode(row.params))):
        shown = [name[:NAME_RECORDED] for name in names[:NAMES_RECORDED]]
        detail["params"] = {"changed": shown, "count": len(names)}
    return detail


def _changed_names(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    old, new = comparable(old), comparable(new)  # of encoded params only the fingerprint
    # As JSON, since to Python 1, 1.0 and True are equal.
    encode = msgspec.json.Encoder(order="sorted").encode
    return [
        name
        for name in sorted({*old, *new})
        if name not in old or name not in new or encode(old[name]) != encode(new[name])
    ]


def _text(micros: int) -> str:
    return from_micros(micros).isoformat(timespec="microseconds").replace("+00:00", "Z")


def write_changes(rows: Sequence[ChangedRow], keys: dict[int, str | None]) -> Statements[frozenset[int]]:
    """Write the rows that still wait and whose key is free in their new queue. Returns the ids of the changed tasks.
    `keys`: the idempotency key of each task, if the key is in force."""
    moved = [row for row in rows if _moves(row)]
    keyed = [row for row in moved if keys[row.id] is not None]
    others = [row for row in rows if row not in keyed] if keyed else list(rows)
    changed = yield from _write(others)
    changed |= yield from _write_keyed(keyed, keys)
    for queue in {row.queue for row in moved if row.id in changed}:
        yield from park(Pause(PauseScope.QUEUE, queue), len(moved))
    return changed


def _moves(row: ChangedRow) -> bool:
    return row.detail is not None and "queue" in decode(row.detail)


def _write(rows: Iterable[ChangedRow]) -> Statements[frozenset[int]]:
    given = [msgspec.structs.asdict(row) for row in rows]
    written: Rows = (yield Statement("change_tasks", rows=given, change=True)) if given else []
    return frozenset(row[0] for row in written)


def _write_keyed(rows: Sequence[ChangedRow], keys: dict[int, str | None]) -> Statements[frozenset[int]]:
    """Write tasks that take their keys into another queue. Where another transaction stores the same key there at the
    same moment, the index refuses the second one: then that task is left out, and the others are written."""
    rows, refusal = sorted(rows, key=lambda row: (keys[row.id], row.id)), None
    while free := (yield from _with_free_keys(rows, keys)):
        if refusal is not None and len(free) == len(rows):
            raise refusal  # not because of a key
        yield SetSavepoint()
        try:
            changed = yield from _write(free)
        except Exception as error:
            [(refusal,)] = yield RollBackToSavepoint(error)
            assert isinstance(refusal, DibsError)
            rows = free
        else:
            yield ReleaseSavepoint()
            yield from _move_kept_keys([row for row in free if row.id in changed])
            return changed
    return frozenset()


def _move_kept_keys(moved: Sequence[ChangedRow]) -> Statements[None]:
    """Move keys that are kept until a time with their tasks. Safe: the index of keys in force has accepted the tasks,
    so a row of such a key in the new queue is past its time."""
    for queue in {row.queue for row in moved}:
        given = {"ids": [row.id for row in moved if row.queue == queue], "queue": queue}
        yield Statement("drop_past_keys", given)
        yield Statement("move_kept_keys", given)


def _with_free_keys(rows: Sequence[ChangedRow], keys: dict[int, str | None]) -> Statements[list[ChangedRow]]:
    """The first row of each key that is free in the new queue of the row."""
    named = {(row.queue, keys[row.id]): row for row in reversed(rows)}
    taken = yield from _owners(named)
    return [row for row in rows if named[row.queue, keys[row.id]] is row and (row.queue, keys[row.id]) not in taken]


def _owners(names: Collection[tuple[str, str | None]]) -> Statements[dict[tuple[str, str | None], int]]:
    """The ids of the tasks that have these keys in these queues. A key that is past its time ends here."""
    holders = (yield from find_holders([key_param(key, queue) for queue, key in names])) if names else KeyHolders([])
    return {holder.name: holder.task_id for holder in (yield from without_past_keys(holders.having_keys()))}


def _raise_taken(task: Task, queue: str) -> Statements[None]:
    owners = yield from _owners([(queue, task.key)])
    assert task.key is not None
    owner = owners.get((queue, task.key))
    other = "another task" if owner is None else f"task {owner}"
    message = f"Task {task.id} cannot move to queue {queue!r}: its key {task.key!r} belongs to {other} there."
    hint = (
        "Each queue has its own keys. Wait until the other task is pruned, or enqueue the task there with another key."
    )
    raise KeyConflict(task.key, owner, message=message, hint=hint)


def _check_waits(task: Task) -> None:
    if task.state is State.CLAIMED:
        message = f"Task {task.id} cannot be changed: {task.worker_id} has claimed it."
        raise AlreadyStarted(message, task_id=task.id, state=task.state)
    if task.state not in WAITING:
        hint = "Only scheduled, pending and blocked tasks can be changed. Enqueue a new task instead."
        raise WrongState(
            f"Task {task.id} cannot be changed: it is {task.state}.", task_id=task.id, state=task.state, hint=hint
        )


def _check_fixed(task: Task, change: TaskChange) -> None:
    if (fixed := _why_fixed(task, change)) is not None:
        message, hint = fixed
        raise WrongState(f"Task {task.id} {message}", task_id=task.id, state=task.state, hint=hint)


def _why_fixed(task: Task, change: TaskChange) -> tuple[str, str] | None:
    """Why a step cannot have this change in any waiting state, and what to do; None if it can."""
    if task.workflow_id is None:
        return None
    if task.type == WORKFLOW_STEP:
        return "cannot be changed: it represents a workflow.", "Change the steps of that workflow."
    if change.queue not in (None, task.queue):
        hint = "A step keeps its queue: keys that are limited to queues see a workflow by the queues of its steps."
        return f"cannot move to another queue: it is a step of workflow {task.workflow_id}.", hint
    if task.state is State.BLOCKED and change.sets_due_time:
        hint = "Its delay begins when its parents are done. Change its due time then; priority, params and tags now."
        return "cannot have another due time: it is blocked.", hint
    return None
