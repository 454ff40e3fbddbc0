"""Schedules: tasks that are enqueued by a cron expression, at an interval, or once.

For a key that is limited to queues, the schedules of other queues do not exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any, TypeVar

from dibs.errors import ScheduleNotFound
from dibs.model.checks import check_moment
from dibs.model.key import Scope
from dibs.model.schedule import DueSchedule, Schedule, next_runs, task_of
from dibs.server.api.limits import check_new_tasks
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.store.operation import Operation
from dibs.wire import schedules as wire
from dibs.wire.errors import RequestRefused
from dibs.wire.fields import Counted, Done, Empty
from dibs.wire.tasks import ChangedTask

T = TypeVar("T")

TAG = "schedules"
MISSING = {404: "There is no schedule with this name."}


@endpoint("GET", "/api/schedules", Scope.READ, tag=TAG, answers={200: (wire.Schedules, "The schedules by name.")})
async def list_schedules(call: Call) -> Answer:
    """List the schedules with their next tick and the result of their last tick."""
    schedules = await call.run(call.service.store.schedules.list_schedules())
    return Answer(wire.Schedules.from_model([schedule for schedule in schedules if call.caller.serves(schedule.queue)]))


@endpoint(
    "POST",
    "/api/schedules",
    Scope.ENQUEUE,
    tag=TAG,
    body=wire.ScheduleBody,
    answers={200: (wire.ChangedSchedule, "The schedule is stored.")},
    refuses={404: "With the source `code`: the schedule was removed by hand since the same declaration."},
    examples={
        "every night": {
            "name": "nightly-report",
            "cron": "0 3 * * *",
            "timezone": "Europe/Berlin",
            "task_type": "report",
            "params": {"kind": "nightly"},
        },
        "every 30 seconds, one at a time": {
            "name": "poll",
            "every_seconds": 30,
            "jitter_seconds": 5,
            "overlap": "skip",
            "task_type": "poll",
        },
    },
)
async def put(call: Call) -> Answer:
    """Create a schedule, or replace the schedule with this name. Repeating the request changes nothing.

    With the source `code`, a schedule that was set by hand since the same declaration is kept, and a removed one is
    not set again (404).

    Each tick is enqueued once, by any number of servers and workers.
    """
    new = call.body.to_model()
    call.caller.check_queue(new.queue)
    await check_new_tasks(call, [task_of(new)])
    storing = call.service.store.schedules.put_schedule(new, call.body.source)
    return _changed(await call.run(_checked(call, new.name, storing, _check_visible_or_new)))


@endpoint(
    "GET",
    "/api/schedules/{name:name}",
    Scope.READ,
    tag=TAG,
    answers={200: (wire.OneSchedule, "The schedule.")},
    refuses=MISSING,
)
async def get(call: Call) -> Answer:
    """Read a schedule, with its next five runs."""
    schedule = await call.run(call.service.store.schedules.get_schedule(call.path["name"]))
    _check_visible(call, schedule.name, schedule)
    # Not on the event loop: finding the next ticks of a rare date takes long.
    runs = await asyncio.to_thread(next_runs, schedule)
    return Answer(wire.OneSchedule.from_model(schedule, runs))


@endpoint(
    "DELETE",
    "/api/schedules/{name:name}",
    Scope.ENQUEUE,
    tag=TAG,
    answers={200: (Done, "The schedule was removed.")},
    refuses=MISSING,
)
async def remove(call: Call) -> Answer:
    """Remove a schedule. Tasks that it has enqueued stay."""
    await run_if_visible(call, call.path["name"], call.service.store.schedules.remove_schedule(call.path["name"]))
    return Answer(Done.from_model())


@endpoint(
    "POST",
    "/api/schedules/{name:name}/enable",
    Scope.ENQUEUE,
    tag=TAG,
    body=Empty,
    body_optional=True,
    answers={200: (wire.ChangedSchedule, "The schedule is enabled.")},
    refuses=MISSING,
)
async def enable(call: Call) -> Answer:
    """Enable a schedule. It ticks from now on; missed ticks are not caught up."""
    return _changed(
        await run_if_visible(call, call.path["name"], call.service.store.schedules.enable_schedule(call.path["name"]))
    )


@endpoint(
    "POST",
    "/api/schedules/{name:name}/disable",
    Scope.ENQUEUE,
    tag=TAG,
    body=Empty,
    body_optional=True,
    answers={200: (wire.ChangedSchedule, "The schedule is disabled.")},
    refuses=MISSING,
)
async def disable(call: Call) -> Answer:
    """Disable a schedule. It does not tick until it is enabled."""
    return _changed(
        await run_if_visible(call, call.path["name"], call.service.store.schedules.disable_schedule(call.path["name"]))
    )


@endpoint(
    "POST",
    "/api/schedules/{name:name}/run",
    Scope.ENQUEUE,
    tag=TAG,
    body=Empty,
    body_optional=True,
    answers={201: (ChangedTask, "The task is stored.")},
    refuses=MISSING,
)
async def run(call: Call) -> Answer:
    """Enqueue the task of a schedule now, in addition to its ticks. A disabled schedule can be run too."""
    task = await run_if_visible(call, call.path["name"], call.service.store.schedules.run_schedule(call.path["name"]))
    return Answer(ChangedTask.from_model(task), 201)


@endpoint(
    "GET",
    "/api/upkeep/due-schedules",
    Scope.ADMIN,
    tag="upkeep",
    answers={200: (wire.DueSchedules, "The due schedules.")},
)
async def due(call: Call) -> Answer:
    """List the schedules whose next tick is due. The server ticks them by itself."""
    call.caller.check_whole_store()
    found = await call.run(call.service.store.schedules.due_schedules())
    return Answer(wire.DueSchedules.from_model(found))


@endpoint(
    "POST",
    "/api/schedules/{name:name}/tick",
    Scope.ADMIN,
    tag="upkeep",
    body=wire.TickBody,
    answers={200: (Counted, "The number of tasks that were enqueued; 0 if another process ticked first.")},
    refuses=MISSING,
    examples={
        "values of due-schedules": {
            "next_at": "2025-11-12T03:00:00Z",
            "now": "2025-11-12T03:00:01Z",
            "cron": "0 3 * * *",
            "timezone": "Europe/Berlin",
        }
    },
)
async def tick(call: Call) -> Answer:
    """Enqueue the due tasks of a schedule, unless another process did. The server does so by itself."""
    call.caller.check_whole_store()
    body: wire.TickBody = call.body
    read = (body.cron, body.timezone, body.every, check_moment(body.next_at, "next_at"))
    schedule = await call.run(call.service.store.schedules.get_schedule(call.path["name"]))
    found = [each for each in await call.run(call.service.store.schedules.due_schedules()) if each.schedule == schedule]
    if not found or read != (schedule.cron, schedule.timezone, schedule.every, schedule.next_at):
        return Answer(Counted.from_model(0))
    # The time of the caller is limited, so that no tick comes before its time and none is repeated.
    now = max(schedule.due_at or found[0].now, min(check_moment(body.now, "now"), found[0].now))
    due = DueSchedule(schedule, now, found[0].free_at)
    return Answer(Counted.from_model(await call.run(call.service.store.schedules.tick_schedule(due))))


async def run_if_visible(call: Call, name: str, operation: Operation[T]) -> T:
    """Run an operation on the schedule with this name, if the caller may see the schedule."""
    return await call.run(_checked(call, name, operation, _check_visible))


def _checked(call: Call, name: str, operation: Operation[T], check: Any) -> Operation[T]:
    """Return the operation, preceded by a check of the schedule with this name in the same transaction."""
    if call.caller.queues is None:
        return operation
    read = call.service.store.schedules.get_schedule(name)

    def steps() -> Generator[Any, Any, T]:
        try:
            schedule = yield from read.begin()
        except ScheduleNotFound:
            schedule = None
        check(call, name, schedule)
        result: T = yield from operation.begin()
        return result

    return operation.around(steps)


def _check_visible(call: Call, name: str, schedule: Schedule | None) -> None:
    if schedule is None or not call.caller.serves(schedule.queue):
        raise ScheduleNotFound(name)


def _check_visible_or_new(call: Call, name: str, schedule: Schedule | None) -> None:
    """Refuse to replace a schedule of a queue that the caller may not use."""
    if schedule is not None and not call.caller.serves(schedule.queue):
        message = f"The schedule {name!r} exists in a queue that this key may not use."
        raise RequestRefused("queue_not_allowed", message, hint="Use another name.")


def _changed(schedule: Schedule) -> Answer:
    return Answer(wire.ChangedSchedule.from_model(schedule))


ENDPOINTS = [list_schedules, put, get, remove, enable, disable, run, due, tick]
