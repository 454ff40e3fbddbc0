"""Schedules: every tick is enqueued exactly once, however many processes tick the same schedule.

A process reads the due schedules without any lock. Then one transaction for each moves the schedule to its next tick,
fenced by the tick that was read, and enqueues the due tasks: of all processes that try, one changes the row. Each task
has a key made of the schedule's name and the tick, so that even a clock that jumps back does not enqueue a tick again.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from dibs.codec import clean_text, decode, encode, encode_params
from dibs.errors import DibsError, InvalidValue, KeyConflict, ScheduleNotFound
from dibs.model.checks import from_micros, to_micros
from dibs.model.cron import next_after, ticks_between
from dibs.model.retry import Backoff
from dibs.model.schedule import (
    CatchUp,
    DueSchedule,
    NewSchedule,
    Schedule,
    ScheduleSource,
    check_schedule_name,
    task_of,
)
from dibs.model.task import Task
from dibs.store.operation import Mode, Operation, Row, Statement, Statements
from dibs.store.operations.enqueue import Enqueue
from dibs.store.operations.rows import decode_tags, encode_tags, moment, seconds
from dibs.store.operations.validation import TaskValidation

CATCH_UP_LIMIT = 1000
ON_TIME = timedelta(seconds=60)
"""A tick that is later counts as missed."""


class Schedules:
    """Schedules and their ticks."""

    def __init__(self, enqueue: Enqueue) -> None:
        self._store_tasks = enqueue.store_tasks

    def put_schedule(self, new: NewSchedule, source: ScheduleSource) -> Operation[Schedule]:
        """Store the schedule, or change the schedule of that name. The same schedule again changes nothing. A schedule
        from code changes a schedule that was set by hand only if the declaration in the code has changed."""
        if source not in ("code", "command"):
            raise InvalidValue(f"A schedule comes from 'code' or 'command', not from {source!r}.")
        values = _values(new, source)
        return Operation("put_schedule", lambda: _put(values), mode=Mode.TRANSACTION, wakes=True)

    def list_schedules(self) -> Operation[list[Schedule]]:
        """All schedules, by name."""
        return Operation("list_schedules", _list, mode=Mode.READ)

    def get_schedule(self, name: str) -> Operation[Schedule]:
        """The schedule, or ScheduleNotFound."""
        check_schedule_name(name)
        return Operation("get_schedule", lambda: _get(name), mode=Mode.READ)

    def remove_schedule(self, name: str) -> Operation[None]:
        """Delete the schedule. Its enqueued tasks stay."""
        check_schedule_name(name)
        return Operation("remove_schedule", lambda: _remove(name))

    def enable_schedule(self, name: str) -> Operation[Schedule]:
        """Enable a disabled schedule from now on: missed ticks are not caught up."""
        check_schedule_name(name)
        return Operation("enable_schedule", lambda: _enable(name), mode=Mode.TRANSACTION, wakes=True)

    def disable_schedule(self, name: str) -> Operation[Schedule]:
        """Stop the ticks of the schedule until it is enabled."""
        check_schedule_name(name)
        return Operation("disable_schedule", lambda: _disable(name), mode=Mode.TRANSACTION)

    def run_schedule(self, name: str) -> Operation[Task]:
        """Enqueue the schedule's task now, beside its ticks; also when it is disabled."""
        check_schedule_name(name)
        validation = TaskValidation([])  # the task is known only after the first read: it is validated, and read again
        return Operation(
            "run_schedule",
            lambda: self._run_schedule(name, validation),
            mode=Mode.TRANSACTION,
            wakes=True,
            validation=validation,
        )

    def _run_schedule(self, name: str, validation: TaskValidation) -> Statements[Task]:
        schedule = yield from _get(name)
        [task] = yield from self._store_tasks([task_of(schedule)], validation)
        return task

    def due_schedules(self) -> Operation[list[DueSchedule]]:
        """The schedules whose next tick is due. Advisory."""
        return Operation("due_schedules", _due, mode=Mode.READ)

    def tick_schedule(self, due: DueSchedule) -> Operation[int]:
        """Move the schedule to its next tick and enqueue the due tasks, unless another process did. Returns the number
        of tasks."""
        validation = TaskValidation.of([task_of(due.schedule)])
        return Operation(
            "tick_schedule",
            lambda: self._tick(due, validation),
            mode=Mode.TRANSACTION,
            wakes=True,
            validation=validation,
        )

    def _tick(self, due: DueSchedule, validation: TaskValidation) -> Statements[int]:
        try:
            ticks, next_at = _ticks_to_enqueue(due), _next_after(due.schedule, due.now)
        except InvalidValue as error:
            # For example, this machine does not know the time zone. Another machine may: the tick stays due, and the
            # schedule shows the error.
            yield from _record_tick(due.schedule.name, None, None, error)
            return 0
        rows = yield Statement("tick_schedule", {**_fence(due.schedule), "next_at": next_at})
        if not rows:
            return 0
        return (yield from self._enqueue_ticks(_read(rows[0]), ticks, validation))

    def _enqueue_ticks(self, schedule: Schedule, ticks: list[datetime], validation: TaskValidation) -> Statements[int]:
        enqueued, refusal = 0, None
        last_at: int | None = None
        last_task_id: int | None = None
        for tick in ticks:
            try:
                [task] = yield from self._store_tasks([task_of(schedule, tick)], validation)
            except (InvalidValue, KeyConflict) as error:
                # A repetition would be refused again: the schedule continues and shows the error.
                refusal = error
            else:
                last_at, last_task_id, refusal = to_micros(tick), task.id, None
                enqueued += not task.deduplicated
        if ticks:
            yield from _record_tick(schedule.name, last_at, last_task_id, refusal)
        return enqueued


def _ticks_to_enqueue(due: DueSchedule) -> list[datetime]:
    schedule, first = due.schedule, due.schedule.next_at
    limit = CATCH_UP_LIMIT
    if schedule.catch_up is CatchUp.ONE and due.now - first >= ON_TIME:
        limit = 1  # several ticks within ON_TIME are not missed ticks: all of them are enqueued
    elif schedule.catch_up is CatchUp.NONE:
        first = max(first, due.now - ON_TIME)
    return ticks_between(schedule.cron, schedule.timezone, first, due.now, limit=limit)


def _put(values: dict[str, Any]) -> Statements[Schedule]:
    while True:
        now, known = yield from _read_by_name(values["name"])
        if values["source"] == "code" and known is not None and (yield from _is_overridden(known, values)):
            return (yield from _get(values["name"]))
        next_at = to_micros(next_after(values["cron"], values["timezone"], now))
        rows = yield Statement("put_schedule", {**values, "next_at": next_at})
        if rows:
            return _read(rows[0])
        _, same = yield from _read_by_name(values["name"])
        if same is not None:  # otherwise another process has removed it meanwhile
            return same


def _is_overridden(known: Schedule, values: dict[str, Any]) -> Statements[bool]:
    """True if the stored schedule was set by hand, and the declaration in code has not changed since then. A schedule
    that was set by hand before the code declared it counts as well; its declaration is stored."""
    if known.source == "code":
        return False
    if known.declared is None:
        yield Statement("note_declared", {"name": known.name, "declared": values["declared"]})
        return True
    return bool(known.declared == decode(values["declared"]))


def _list() -> Statements[list[Schedule]]:
    rows = yield Statement("list_schedules")
    return [_read(row) for row in rows]


def _remove(name: str) -> Statements[None]:
    rows = yield Statement("remove_schedule", {"name": name})
    if not rows:
        raise ScheduleNotFound(name)


def _enable(name: str) -> Statements[Schedule]:
    while True:
        now, schedule = yield from _read_by_name(name)
        if schedule is None:
            raise ScheduleNotFound(name)
        if schedule.enabled:
            return schedule
        rows = yield Statement("enable_schedule", {**_fence(schedule), "next_at": _next_after(schedule, now)})
        if rows:  # otherwise another process changed it between the read and the write: read it again
            return _read(rows[0])


def _disable(name: str) -> Statements[Schedule]:
    rows = yield Statement("disable_schedule", {"name": name})
    return _read(rows[0]) if rows else (yield from _get(name))


def _due() -> Statements[list[DueSchedule]]:
    rows = yield Statement("due_schedules")
    return [DueSchedule(_read(row[1:]), from_micros(row[0])) for row in rows]


def _get(name: str) -> Statements[Schedule]:
    _, schedule = yield from _read_by_name(name)
    if schedule is None:
        raise ScheduleNotFound(name)
    return schedule


def _read_by_name(name: str) -> Statements[tuple[datetime, Schedule | None]]:
    [row] = yield Statement("get_schedule", {"name": name})
    return from_micros(row[0]), None if row[1] is None else _read(row[1:])


def _record_tick(name: str, last_at: int | None, last_task_id: int | None, error: DibsError | None) -> Statements[None]:
    last_error = None if error is None else clean_text(error.message)
    params = {"name": name, "last_at": last_at, "last_task_id": last_task_id, "last_error": last_error}
    yield Statement("record_tick", params)


def _next_after(schedule: Schedule, now: datetime) -> int:
    return to_micros(next_after(schedule.cron, schedule.timezone, now))


def _fence(schedule: Schedule) -> dict[str, Any]:
    return {
        "name": schedule.name,
        "due_at": to_micros(schedule.next_at),
        "cron": schedule.cron,
        "timezone": schedule.timezone,
    }


def _values(new: NewSchedule, source: ScheduleSource) -> dict[str, Any]:
    return {**_columns(new), "source": source, "declared": _declaration(new) if source == "code" else None}


def _declaration(new: NewSchedule) -> str:
    """The declared schedule as JSON, with the names of its attributes; `enabled` only if the code sets it."""
    declared = {name: getattr(new, name) for name in ("cron", "timezone", "type", "params", "queue", "priority")}
    declared |= {"catch_up": str(new.catch_up), "max_attempts": new.max_attempts, "timeout": new.timeout}
    declared |= {"backoff_base": new.backoff.base, "backoff_cap": new.backoff.cap, "tags": list(new.tags)}
    if new.enabled is not None:
        declared["enabled"] = new.enabled
    return encode(declared, "declared")


def _columns(new: NewSchedule) -> dict[str, Any]:
    return {
        "name": new.name,
        "cron": new.cron,
        "timezone": new.timezone,
        "catch_up": str(new.catch_up),
        "enabled": new.enabled,
        "type": new.type,
        "params": encode_params(new.params),
        "queue": new.queue,
        "priority": new.priority,
        "max_attempts": new.max_attempts,
        "timeout": None if new.timeout is None else round(new.timeout * 1e6),
        "backoff_base": round(new.backoff.base * 1e6),
        "backoff_cap": round(new.backoff.cap * 1e6),
        "tags": encode_tags(new.tags),
    }


def _read(row: Row) -> Schedule:
    (name, cron, timezone, catch_up, enabled, type_name, params, queue, priority, max_attempts, timeout, base, cap,
     source, next_at, created_at, updated_at, last_at, last_task_id, last_error, tags, declared) = row  # fmt: skip
    return Schedule(
        name=name,
        cron=cron,
        timezone=timezone,
        catch_up=CatchUp(catch_up),
        enabled=bool(enabled),
        type=type_name,
        params=decode(params),
        queue=queue,
        priority=priority,
        max_attempts=max_attempts,
        timeout=seconds(timeout),
        backoff=Backoff(base / 1e6, cap / 1e6),
        source=source,
        next_at=from_micros(next_at),
        created_at=from_micros(created_at),
        updated_at=from_micros(updated_at),
        last_at=moment(last_at),
        last_task_id=last_task_id,
        last_error=last_error,
        tags=decode_tags(tags),
        declared=None if declared is None else decode(declared),
    )
