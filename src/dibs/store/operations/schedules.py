"""Schedules: every tick is enqueued exactly once, however many processes tick the same schedule.

A process reads the due schedules without any lock. Then one transaction for each moves the schedule to its next tick,
fenced by the tick that was read, and enqueues the due tasks: of all processes that try, one changes the row. Each task
has a key made of the schedule's name and the tick, so that even a clock that jumps back does not enqueue a tick again.

With another overlap than "allow", the read also finds a task of the schedule that has not ended. The fence makes that
finding hold until the tick: see `tick_schedule` in the SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from dibs.errors import DibsError, InvalidValue, KeyConflict, ScheduleNotFound
from dibs.json_values import clean_text, decode, encode, encode_params
from dibs.model.checks import from_micros, to_micros
from dibs.model.retry import Backoff
from dibs.model.schedule import (
    CatchUp,
    DueSchedule,
    NewSchedule,
    Overlap,
    Schedule,
    ScheduleSource,
    check_schedule_name,
    due_ticks,
    run_key,
    task_of,
)
from dibs.model.task import FINAL, Task
from dibs.model.timing import Timing
from dibs.store.operation import Mode, Operation, Row, Statement, Statements
from dibs.store.operations.enqueue import Enqueue
from dibs.store.operations.rows import decode_tags, encode_tags, moment, seconds
from dibs.store.operations.validation import TaskValidation


class Schedules:
    """Schedules and their ticks."""

    def __init__(self, enqueue: Enqueue) -> None:
        self._store_tasks = enqueue.store_tasks

    def put_schedule(self, new: NewSchedule, source: ScheduleSource) -> Operation[Schedule]:
        """Store the schedule, or change the schedule of that name. The same schedule again changes nothing. A schedule
        from code changes a schedule that was set or removed by hand only if the declaration in the code has changed."""
        if source not in ("code", "command"):
            raise InvalidValue(f"A schedule comes from 'code' or 'command', not from {source!r}.")
        values = _values(new, source)
        return Operation("put_schedule", lambda: _put(values, new.timing), mode=Mode.TRANSACTION, wakes=True)

    def list_schedules(self) -> Operation[list[Schedule]]:
        """All schedules, by name."""
        return Operation("list_schedules", _list, mode=Mode.READ)

    def get_schedule(self, name: str) -> Operation[Schedule]:
        """The schedule, or ScheduleNotFound."""
        check_schedule_name(name)
        return Operation("get_schedule", lambda: _get(name), mode=Mode.READ)

    def remove_schedule(self, name: str) -> Operation[None]:
        """Delete the schedule. Its enqueued tasks stay. A schedule that code declares is not set again until its
        declaration changes."""
        check_schedule_name(name)
        return Operation("remove_schedule", lambda: _remove(name), mode=Mode.TRANSACTION)

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
        [task] = yield from self._store_tasks([task_of(schedule, key=run_key(name))], validation)
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
            ticks, times = _ticks_to_enqueue(due)
        except InvalidValue as error:
            # For example, this machine does not know the time zone. Another machine may: the tick stays due, and the
            # schedule shows the error.
            yield from _record_tick(due.schedule.name, refusal=error)
            return 0
        tick = {"tick": to_micros(_due_tick(due)), "overlap": str(due.schedule.overlap)}
        rows = yield Statement("tick_schedule", {**_fence(due.schedule), **tick, **times})
        if not rows:
            return 0
        return (yield from self._enqueue_ticks(_read(rows[0]), ticks, due.schedule.unfinished_task_id, validation))

    def _enqueue_ticks(
        self, schedule: Schedule, ticks: list[datetime], unfinished: int | None, validation: TaskValidation
    ) -> Statements[int]:
        """Enqueue the tasks of the ticks. With the overlap "skip", only while no task of the schedule is unfinished."""
        enqueued, refusal = 0, None
        last: tuple[datetime, int] | None = None
        skipped: list[datetime] = []
        for tick in ticks:
            if schedule.overlap is Overlap.SKIP and unfinished is not None:
                skipped.append(tick)
                continue
            try:
                [task] = yield from self._store_tasks([task_of(schedule, tick)], validation)
            except (InvalidValue, KeyConflict) as error:
                # A repetition would be refused again: the schedule continues and shows the error.
                refusal = error
            else:
                last, refusal = (tick, task.id), None
                unfinished = None if task.state in FINAL else task.id
                enqueued += not task.deduplicated
        if ticks:
            yield from _record_tick(schedule.name, last, skipped, refusal)
        return enqueued


def _ticks_to_enqueue(due: DueSchedule) -> tuple[list[datetime], dict[str, int | None]]:
    """The ticks whose tasks are enqueued now, in order, and the tick after them with its due time.

    A tick with the overlap "queue" is not late while it waits for the task before it."""
    timing = due.schedule.timing
    ticks, last = due_ticks(due.schedule, due.now, due.free_at)
    if due.schedule.overlap is Overlap.QUEUE and ticks:
        ticks, last = ticks[:1], ticks[0]
    return ticks, _times(timing, timing.next_after(last or due.now))


def _due_tick(due: DueSchedule) -> datetime:
    return due.schedule.next_at or due.now  # a due schedule has a next tick


def _times(timing: Timing, tick: datetime | None, prefix: str = "") -> dict[str, int | None]:
    """The tick and the time at which its task is enqueued, as parameters."""
    return {
        f"{prefix}next_at": None if tick is None else to_micros(tick),
        f"{prefix}due_at": None if tick is None else to_micros(timing.due_at(tick)),
    }


def _put(values: dict[str, Any], timing: Timing) -> Statements[Schedule]:
    while True:
        now, known = yield from _read_by_name(values["name"])
        if values["source"] == "code":
            if known is None:
                yield from _check_not_removed(values)
            elif (yield from _is_overridden(known, values)):
                return (yield from _get(values["name"]))
        times = _times(timing, timing.first_after(now)) | _times(timing, timing.next_after(now), "resumed_")
        rows = yield Statement("put_schedule", {**values, **times})
        if rows:
            return _read(rows[0])
        _, same = yield from _read_by_name(values["name"])
        if same is not None:  # otherwise another process has removed it meanwhile
            return same


def _check_not_removed(values: dict[str, Any]) -> Statements[None]:
    """Refuse to set a schedule that was removed by hand since the same declaration."""
    rows = yield Statement("removed_schedule", {"name": values["name"]})
    if rows and decode(rows[0][0]) == decode(values["declared"]):
        raise ScheduleNotFound(values["name"])


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
    for statement in ("remove_schedule", "remove_declared_schedule"):
        if (yield Statement(statement, {"name": name})):
            return
    raise ScheduleNotFound(name)


def _enable(name: str) -> Statements[Schedule]:
    while True:
        now, schedule = yield from _read_by_name(name)
        if schedule is None:
            raise ScheduleNotFound(name)
        if schedule.enabled:
            return schedule
        times = _times(schedule.timing, schedule.timing.next_after(now))
        rows = yield Statement("enable_schedule", {**_fence(schedule), **times})
        if rows:  # otherwise another process changed it between the read and the write: read it again
            return _read(rows[0])


def _disable(name: str) -> Statements[Schedule]:
    rows = yield Statement("disable_schedule", {"name": name})
    return _read(rows[0]) if rows else (yield from _get(name))


def _due() -> Statements[list[DueSchedule]]:
    rows = yield Statement("due_schedules")
    return [DueSchedule(_read(row[2:]), from_micros(row[0]), moment(row[1])) for row in rows]


def _get(name: str) -> Statements[Schedule]:
    _, schedule = yield from _read_by_name(name)
    if schedule is None:
        raise ScheduleNotFound(name)
    return schedule


def _read_by_name(name: str) -> Statements[tuple[datetime, Schedule | None]]:
    [row] = yield Statement("get_schedule", {"name": name})
    return from_micros(row[0]), None if row[1] is None else _read(row[1:])


def _record_tick(
    name: str,
    last: tuple[datetime, int] | None = None,
    skipped: Sequence[datetime] = (),
    refusal: DibsError | None = None,
) -> Statements[None]:
    params = {
        "name": name,
        "last_at": None if last is None else to_micros(last[0]),
        "last_task_id": None if last is None else last[1],
        "last_error": None if refusal is None else clean_text(refusal.message),
        "skipped": len(skipped),
        "last_skipped_at": to_micros(skipped[-1]) if skipped else None,
    }
    yield Statement("record_tick", params)


def _fence(schedule: Schedule) -> dict[str, Any]:
    return {"name": schedule.name, **_timing_columns(schedule.timing)}


def _timing_columns(timing: Timing) -> dict[str, Any]:
    return {
        "cron": timing.cron,
        "timezone": timing.timezone,
        "every": None if timing.every is None else round(timing.every * 1e6),
        "at": _micros(timing.at),
        "jitter": round(timing.jitter * 1e6),
        "start_at": _micros(timing.start_at),
        "end_at": _micros(timing.end_at),
    }


def _micros(value: datetime | None) -> int | None:
    return None if value is None else to_micros(value)


def _values(new: NewSchedule, source: ScheduleSource) -> dict[str, Any]:
    return {**_columns(new), "source": source, "declared": _declaration(new) if source == "code" else None}


def _declaration(new: NewSchedule) -> str:
    """The declared schedule as JSON, with the names of its attributes; `enabled` only if the code sets it."""
    declared = {name: getattr(new, name) for name in ("cron", "timezone", "type", "params", "queue", "priority")}
    declared |= {"catch_up": str(new.catch_up), "max_attempts": new.max_attempts, "timeout": new.timeout}
    declared |= {"backoff_base": new.backoff.base, "backoff_cap": new.backoff.cap, "tags": list(new.tags)}
    declared |= _declared_timing(new)
    if new.expires_in is not None:
        declared["expires_in"] = new.expires_in
    if new.limits:
        declared["limits"] = list(new.limits)
    if new.group is not None:
        declared["group"] = new.group
    if new.enabled is not None:
        declared["enabled"] = new.enabled
    return encode(declared, "declared")


def _declared_timing(new: NewSchedule) -> dict[str, Any]:
    """The values that only some schedules have."""
    times = {"at": new.at, "start_at": new.start_at, "end_at": new.end_at}
    given: dict[str, Any] = {name: value.astimezone(UTC).isoformat() for name, value in times.items() if value}
    if new.every is not None:
        given["every"] = float(new.every)
    if new.jitter:
        given["jitter"] = float(new.jitter)
    if new.overlap != Overlap.ALLOW:
        given["overlap"] = str(new.overlap)
    return given


def _columns(new: NewSchedule) -> dict[str, Any]:
    return {
        **_timing_columns(new.timing),
        "name": new.name,
        "overlap": str(new.overlap),
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
        "expires_in": None if new.expires_in is None else round(new.expires_in * 1e6),
        "limits": encode(list(dict.fromkeys(new.limits)), "limits") if new.limits else None,
        "group_key": new.group,
    }


def _read(row: Row) -> Schedule:
    (name, cron, timezone, catch_up, enabled, type_name, params, queue, priority, max_attempts, timeout, base, cap,
     source, next_at, created_at, updated_at, last_at, last_task_id, last_error, tags, declared,
     expires_in, limits, group, every, at, jitter, start_at, end_at, overlap, due_at, skipped, last_skipped_at,
     unfinished_task_id) = row  # fmt: skip
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
        next_at=moment(next_at),
        created_at=from_micros(created_at),
        updated_at=from_micros(updated_at),
        last_at=moment(last_at),
        last_task_id=last_task_id,
        last_error=last_error,
        tags=decode_tags(tags),
        declared=None if declared is None else decode(declared),
        expires_in=seconds(expires_in),
        limits=[] if limits is None else decode(limits),
        group=group,
        every=seconds(every),
        at=moment(at),
        jitter=jitter / 1e6,
        start_at=moment(start_at),
        end_at=moment(end_at),
        overlap=Overlap(overlap),
        due_at=moment(due_at),
        skipped=skipped,
        last_skipped_at=moment(last_skipped_at),
        unfinished_task_id=unfinished_task_id,
    )
