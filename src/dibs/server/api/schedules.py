"""wire.Schedules: tasks that are enqueued again and again, by a cron expression.

To a key that is limited to queues, the schedules of other queues do not exist.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from dibs.errors import ScheduleNotFound
from dibs.model.checks import check_moment
from dibs.model.key import Scope
from dibs.model.schedule import DueSchedule, Schedule
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.store.operation import Operation
from dibs.wire import schedules as wire
from dibs.wire.errors import RequestRefused
from dibs.wire.fields import Counted, Done, Empty
from dibs.wire.tasks import ChangedTask

T = TypeVar("T")

TAG = "schedules"
MISSING = {404: "There is no schedule of this name."}


@endpoint("GET", "/api/schedules", Scope.READ, tag=TAG, answers={200: (wire.Schedules, "By name.")})
async def list_schedules(call: Call) -> Answer:
    """All schedules, when each ticks next, and what became of its last tick."""
    plans = await call.run(call.service.store.schedules.list_schedules())
    return Answer(wire.Schedules.from_model([plan for plan in plans if call.caller.serves(plan.queue)]))


@endpoint(
    "POST",
    "/api/schedules",
    Scope.ENQUEUE,
    tag=TAG,
    body=wire.ScheduleBody,
    answers={200: (wire.ChangedSchedule, "Stored.")},
    examples={
        "every night": {
            "name": "nightly-report",
            "cron": "0 3 * * *",
            "timezone": "Europe/Berlin",
            "task_type": "report",
            "params": {"kind": "nightly"},
        }
    },
)
async def put(call: Call) -> Answer:
    """Store a schedule, or change the one of that name to it; the same again changes nothing.

    Each tick is enqueued once, however many servers and workers look after it.
    """
    new = call.body.to_model()
    call.caller.check_queue(new.queue)
    storing = call.service.store.schedules.put_schedule(new, call.body.source)
    return _changed(await call.run(_after_look(call, new.name, storing, _check_ours_or_new)))


@endpoint(
    "GET",
    "/api/schedules/{name:name}",
    Scope.READ,
    tag=TAG,
    answers={200: (wire.OneSchedule, "The schedule.")},
    refuses=MISSING,
)
async def get(call: Call) -> Answer:
    """One schedule."""
    plan = await call.run(call.service.store.schedules.get_schedule(call.path["name"]))
    _check_ours(call, plan.name, plan)
    return Answer(wire.OneSchedule.from_model(plan))


@endpoint(
    "DELETE",
    "/api/schedules/{name:name}",
    Scope.ENQUEUE,
    tag=TAG,
    answers={200: (Done, "Gone.")},
    refuses=MISSING,
)
async def remove(call: Call) -> Answer:
    """Forget a schedule. What it has enqueued stays."""
    await do(call, call.path["name"], call.service.store.schedules.remove_schedule(call.path["name"]))
    return Answer(Done.from_model())


@endpoint(
    "POST",
    "/api/schedules/{name:name}/enable",
    Scope.ENQUEUE,
    tag=TAG,
    body=Empty,
    body_optional=True,
    answers={200: (wire.ChangedSchedule, "It ticks.")},
    refuses=MISSING,
)
async def enable(call: Call) -> Answer:
    """Let a disabled schedule tick again, from now on: nothing is caught up."""
    return _changed(await do(call, call.path["name"], call.service.store.schedules.enable_schedule(call.path["name"])))


@endpoint(
    "POST",
    "/api/schedules/{name:name}/disable",
    Scope.ENQUEUE,
    tag=TAG,
    body=Empty,
    body_optional=True,
    answers={200: (wire.ChangedSchedule, "It does not tick.")},
    refuses=MISSING,
)
async def disable(call: Call) -> Answer:
    """Let a schedule not tick until it is enabled."""
    return _changed(await do(call, call.path["name"], call.service.store.schedules.disable_schedule(call.path["name"])))


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
    """Enqueue the schedule's task now, beside its ticks; also when it is disabled."""
    task = await do(call, call.path["name"], call.service.store.schedules.run_schedule(call.path["name"]))
    return Answer(ChangedTask.from_model(task), 201)


@endpoint(
    "GET", "/api/upkeep/due-schedules", Scope.ADMIN, tag="upkeep", answers={200: (wire.DueSchedules, "Only a look.")}
)
async def due(call: Call) -> Answer:
    """The schedules whose next tick has come. The server ticks them by itself."""
    call.caller.check_whole_store()
    found = await call.run(call.service.store.schedules.due_schedules())
    return Answer(wire.DueSchedules.from_model(found))


@endpoint(
    "POST",
    "/api/schedules/{name:name}/tick",
    Scope.ADMIN,
    tag="upkeep",
    body=wire.TickBody,
    answers={200: (Counted, "So many tasks were enqueued; 0 where somebody else did it first.")},
    refuses=MISSING,
    examples={
        "as due-schedules told": {
            "next_at": "2025-11-12T03:00:00Z",
            "now": "2025-11-12T03:00:01Z",
            "cron": "0 3 * * *",
            "timezone": "Europe/Berlin",
        }
    },
)
async def tick(call: Call) -> Answer:
    """Enqueue what is due of a schedule and move it on, unless somebody else did. The server does so by itself."""
    call.caller.check_whole_store()
    body: wire.TickBody = call.body
    read = (body.cron, body.timezone, check_moment(body.next_at, "next_at"))
    plan = await call.run(call.service.store.schedules.get_schedule(call.path["name"]))
    found = [each for each in await call.run(call.service.store.schedules.due_schedules()) if each.schedule == plan]
    if not found or read != (plan.cron, plan.timezone, plan.next_at):
        return Answer(Counted.from_model(0))
    # Whatever the caller takes for now: no tick comes before its time, and none is gone back to.
    now = max(plan.next_at, min(check_moment(body.now, "now"), found[0].now))
    return Answer(
        Counted.from_model(await call.run(call.service.store.schedules.tick_schedule(DueSchedule(plan, now))))
    )


async def do(call: Call, name: str, verb: Operation[T]) -> T:
    """What the verb does to the schedule of that name, if the caller may see it."""
    return await call.run(_after_look(call, name, verb, _check_ours))


def _after_look(call: Call, name: str, verb: Operation[T], check: Any) -> Operation[T]:
    """The verb, for a limited key in one transaction with a look at whose schedule it is."""
    if call.caller.queues is None:
        return verb
    look = call.service.store.schedules.get_schedule(name)

    def steps() -> Generator[Any, Any, T]:
        try:
            plan = yield from look.begin()
        except ScheduleNotFound:
            plan = None
        check(call, name, plan)
        done: T = yield from verb.begin()
        return done

    return verb.around(steps)


def _check_ours(call: Call, name: str, plan: Schedule | None) -> None:
    if plan is None or not call.caller.serves(plan.queue):
        raise ScheduleNotFound(name)


def _check_ours_or_new(call: Call, name: str, plan: Schedule | None) -> None:
    """A key must not turn a schedule of a foreign queue into one of its own."""
    if plan is not None and not call.caller.serves(plan.queue):
        message = f"A schedule {name!r} exists that this key is not for."
        raise RequestRefused("queue_not_allowed", message, hint="Use another name.")


def _changed(plan: Schedule) -> Answer:
    return Answer(wire.ChangedSchedule.from_model(plan))


ENDPOINTS = [list_schedules, put, get, remove, enable, disable, run, due, tick]
