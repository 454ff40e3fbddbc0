"""Limits and fair share: limits and their groups, settings of queues and task types, weights of groups.

A key that is limited to queues sees and uses the limits that its queues or any task type carry: its tasks may count
towards them anyway. For such a key, other limits do not exist. It changes whether its queues are fair and the weights
of their groups; limits concern tasks of all queues, so changing them needs a key without a limit to queues.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from dibs.errors import LimitNotFound, LimitUnknown
from dibs.json_values import check_name
from dibs.model.key import Scope
from dibs.model.task import NewTask
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.wire import limits as wire
from dibs.wire.fields import Done

TAG = "limits"
SETTLE_SECONDS = 1.0
"""Seconds after which a change of settings answers, though tasks are left that do not obey it yet."""

MISSING = {404: "There is no limit with this name."}
UNKNOWN = {404: "There is no limit with one of these names."}


# Limits


@endpoint("GET", "/api/limits", Scope.READ, tag=TAG, answers={200: (wire.Limits, "The limits by name.")})
async def list_limits(call: Call) -> Answer:
    """List the limits with their live claims and waiting tasks."""
    limits = await call.run(call.service.store.limits.list_limits())
    usable = await usable_limits(call)
    return Answer(wire.Limits.from_model([limit for limit in limits if usable is None or limit.name in usable]))


@endpoint(
    "GET", "/api/limits/{name:name}", Scope.READ, tag=TAG, answers={200: (wire.OneLimit, "The limit.")}, refuses=MISSING
)
async def get_limit(call: Call) -> Answer:
    """Read a limit with its live claims and waiting tasks."""
    name = check_name(call.path["name"], "The limit's name")
    if (usable := await usable_limits(call)) is not None and name not in usable:
        raise LimitNotFound(name)
    return Answer(wire.OneLimit.from_model(await call.run(call.service.store.limits.get_limit(name))))


@endpoint(
    "PUT",
    "/api/limits/{name:name}",
    Scope.ADMIN,
    tag=TAG,
    body=wire.NewLimitBody,
    answers={200: (wire.ChangedLimit, "The limit is stored.")},
    refuses={404: "With the source `code`: the limit was removed by hand since the same declaration."},
    examples={
        "at most five at once": {"max": 5},
        "a quota, for each group": {"rate": "100/minute", "burst": 10, "per": "group"},
    },
)
async def put_limit(call: Call) -> Answer:
    """Create a limit, or replace the limit with this name. The next claims obey it; running tasks are not stopped.

    What is left out has its default. `PATCH` keeps what is left out.

    `max` limits the live claims, `rate` the claims that start: in any period at most `burst` plus the rate times the
    length of the period. With `source` set to `code`, a limit that was set by hand since that declaration is kept.
    """
    call.caller.check_whole_store()
    new = call.body.to_model(call.path["name"])
    limit = await call.run(call.service.store.limits.put_limit(new, call.body.source))
    return Answer(wire.ChangedLimit.from_model(limit))


@endpoint(
    "PATCH",
    "/api/limits/{name:name}",
    Scope.ADMIN,
    tag=TAG,
    body=wire.LimitChangeBody,
    answers={200: (wire.ChangedLimit, "The limit is stored.")},
    examples={"another maximum, the same rate": {"max": 3}, "no rate any more": {"rate": None}},
)
async def change_limit(call: Call) -> Answer:
    """Change a limit, or create it. What is left out stays as it is; null removes the maximum, the rate, or `per`.

    The next claims obey the limit; running tasks are not stopped.
    """
    call.caller.check_whole_store()
    change = call.body.to_model(call.path["name"])
    return Answer(wire.ChangedLimit.from_model(await call.run(call.service.store.limits.change_limit(change))))


@endpoint(
    "DELETE",
    "/api/limits/{name:name}",
    Scope.ADMIN,
    tag=TAG,
    answers={200: (Done, "The limit was removed.")},
    refuses=MISSING,
)
async def remove_limit(call: Call) -> Answer:
    """Remove a limit. The tasks that have it run without it."""
    call.caller.check_whole_store()
    await call.run(call.service.store.limits.remove_limit(call.path["name"]))
    return Answer(Done.from_model())


@endpoint(
    "GET",
    "/api/limits/{name:name}/groups",
    Scope.READ,
    tag=TAG,
    query=wire.GroupsQuery,
    answers={200: (wire.LimitGroups, "The groups in order.")},
    refuses=MISSING,
)
async def list_limit_groups(call: Call) -> Answer:
    """List the groups of a limit that hold claims or have tasks waiting.

    A limit that is not per group has one entry without a group. Needs a key that is not limited to queues: groups are
    names in all queues.
    """
    call.caller.check_whole_store()
    query: wire.GroupsQuery = call.query
    name = call.path["name"]
    groups = await call.run(call.service.store.limits.limit_groups(name, query.limit, query.cursor))
    return Answer(wire.LimitGroups.from_model(name, groups, query.limit))


async def usable_limits(call: Call) -> frozenset[str] | None:
    """Return the limits that the caller's tasks may have, because its queues or any task type carry them; None for
    all."""
    if call.caller.queues is None:
        return None
    queues = await call.run(call.service.store.limits.queue_settings())
    types = await call.run(call.service.store.limits.type_settings())
    carried = [*(each.limits for each in queues if call.caller.serves(each.queue)), *(each.limits for each in types)]
    return frozenset(name for names in carried for name in names)


async def check_new_tasks(call: Call, tasks: Iterable[NewTask]) -> None:
    """Refuse tasks in a queue, or with a limit, that the key of the caller does not allow. To such a key, the limit
    does not exist."""
    if call.caller.queues is None:
        return
    names: set[str] = set()
    for task in tasks:
        call.caller.check_queue(task.queue)
        names.update(task.limits)
    usable = await usable_limits(call) if names else None
    if usable is not None and (foreign := sorted(names - usable)):
        raise LimitUnknown(foreign[0])


# Settings of queues and task types


@endpoint(
    "GET", "/api/settings", Scope.READ, tag=TAG, answers={200: (wire.AllSettings, "The settings by name.")}
)  # fmt: skip
async def list_settings(call: Call) -> Answer:
    """List the settings of all queues and task types that have any: limits and fair share."""
    queues = await call.run(call.service.store.limits.queue_settings())
    types = await call.run(call.service.store.limits.type_settings())
    return Answer(wire.AllSettings.from_model([each for each in queues if call.caller.serves(each.queue)], types))


@endpoint(
    "GET",
    "/api/queues/{name:name}/settings",
    Scope.READ,
    tag="queues",
    answers={200: (wire.OneQueueSettings, "The settings; the defaults for a queue that has none.")},
)
async def get_queue(call: Call) -> Answer:
    """Read the settings of a queue: whether its groups take turns, and the limits of its tasks."""
    found = await call.run(call.service.store.limits.get_queue(_queue(call)))
    return Answer(wire.OneQueueSettings.from_model(found))


@endpoint(
    "PATCH",
    "/api/queues/{name:name}/settings",
    Scope.ADMIN,
    tag="queues",
    body=wire.QueueSettingsBody,
    answers={200: (wire.ChangedQueueSettings, "The settings are stored.")},
    refuses=UNKNOWN,
    examples={"groups take turns": {"fair": True}, "a limit for all tasks": {"limits": ["mail-api"]}},
)
async def put_queue(call: Call) -> Answer:
    """Change settings of a queue. A setting that is left out stays as it is.

    `limits` replaces the list. The tasks that wait obey the settings when `next_cursor` is null. With `source` set to
    `code`, what is left out has its default, and settings that were made by hand since that declaration are kept.
    """
    new = call.body.to_model(_queue(call))
    if new.limits is not None or call.body.source == "code":
        call.caller.check_whole_store()
    stored = await call.run(call.service.store.limits.put_queue(new, call.body.source))
    return Answer(wire.ChangedQueueSettings.of(stored, await _settle(call)))


@endpoint(
    "GET",
    "/api/task-types/{name:name}/settings",
    Scope.READ,
    tag="task types",
    answers={200: (wire.OneTypeSettings, "The settings; none for a type that has none.")},
)
async def get_type(call: Call) -> Answer:
    """Read the limits of a task type, and the parameter that names the group of its tasks."""
    name = check_name(call.path["name"], "The task type")
    found = await call.run(call.service.store.limits.get_type_settings(name))
    return Answer(wire.OneTypeSettings.from_model(found))


@endpoint(
    "PATCH",
    "/api/task-types/{name:name}/settings",
    Scope.ADMIN,
    tag="task types",
    body=wire.TypeSettingsBody,
    answers={200: (wire.ChangedTypeSettings, "The settings are stored.")},
    refuses=UNKNOWN,
    examples={"a limit for each tenant": {"limits": ["tenant"], "group_by": "tenant"}},
)
async def put_type(call: Call) -> Answer:
    """Change the limits of a task type, and the parameter that names the group of its tasks.

    A setting that is left out stays as it is; see the settings of queues.
    """
    call.caller.check_whole_store()
    new = call.body.to_model(call.path["name"])
    stored = await call.run(call.service.store.limits.put_type(new, call.body.source))
    return Answer(wire.ChangedTypeSettings.of(stored, await _settle(call)))


async def _settle(call: Call) -> int | None:
    """Bring the tasks that wait in line with the settings, for as long as one request may take. Return the task after
    which some may be left; None if none is."""
    after: int | None = 0
    change = 0
    end = time.monotonic() + SETTLE_SECONDS
    while call.body.settle and after is not None and time.monotonic() < end:
        settled = await call.run(call.service.store.limits.settle(after, change=change))
        after, change = settled.after, settled.change
    return after if call.body.settle else None


@endpoint(
    "POST",
    "/api/upkeep/settle",
    Scope.ADMIN,
    tag="upkeep",
    body=wire.SettleBody,
    body_optional=True,
    answers={200: (wire.Settled, "The number of tasks that were brought in line.")},
)
async def settle(call: Call) -> Answer:
    """Bring tasks that were enqueued before a change of settings in line with them: one batch of all tasks.

    Repeat it with `next_cursor` as `after`, and with the same `change`, until `next_cursor` is null.
    """
    call.caller.check_whole_store()
    body: wire.SettleBody = call.body
    settling = call.service.store.limits.settle(body.after, body.limit, body.change)
    return Answer(wire.Settled.from_model(await call.run(settling)))


# Declarations in code


@endpoint(
    "POST",
    "/api/declarations",
    Scope.ADMIN,
    tag=TAG,
    body=wire.DeclarationsBody,
    answers={200: (wire.StoredDeclarations, "The declarations are stored, except those that are refused.")},
    examples={
        "a limit for each tenant": {
            "limits": [{"name": "tenant", "max": 2, "per": "group"}],
            "task_types": [{"task_type": "charge", "limits": ["tenant"], "group_by": "tenant"}],
        }
    },
)
async def declare(call: Call) -> Answer:
    """Store what a program declares in its code about limits, queues and task types, as workers do when they start.

    Values that were set by hand, and limits that were removed by hand, stay as they are until their declaration
    changes.
    """
    call.caller.check_whole_store()
    stored = await call.run(call.service.store.limits.declare(call.body.to_model()))
    return Answer(wire.StoredDeclarations.from_model(stored))


# Groups of a queue


@endpoint(
    "GET",
    "/api/queues/{name:name}/groups",
    Scope.READ,
    tag="queues",
    query=wire.GroupsQuery,
    answers={200: (wire.Groups, "The groups in order.")},
)
async def list_groups(call: Call) -> Answer:
    """List the groups of a queue that have a weight, or tasks that wait for a limit or for their turn."""
    query: wire.GroupsQuery = call.query
    groups = await call.run(call.service.store.limits.groups(_queue(call), query.limit, query.cursor))
    return Answer(wire.Groups.from_model(groups, query.limit))


@endpoint(
    "PUT",
    "/api/queues/{name:name}/groups",
    Scope.ADMIN,
    tag="queues",
    body=wire.WeightBody,
    answers={200: (wire.ChangedGroup, "The weight is stored.")},
    examples={"twice the share": {"weight": 2}},
)
async def put_tasks_without_group(call: Call) -> Answer:
    """Set the weight of the tasks without a group, which are one group."""
    return await _put_weight(call, None)


@endpoint(
    "PUT",
    "/api/queues/{name:name}/groups/{group:name}",
    Scope.ADMIN,
    tag="queues",
    body=wire.WeightBody,
    answers={200: (wire.ChangedGroup, "The weight is stored.")},
    examples={"three times the share": {"weight": 3}},
)
async def put_group(call: Call) -> Answer:
    """Set the weight of a group: its share of the claims where the queue is fair."""
    return await _put_weight(call, call.path["group"])


async def _put_weight(call: Call, group: str | None) -> Answer:
    stored = await call.run(call.service.store.limits.put_group(_queue(call), group, call.body.weight))
    return Answer(wire.ChangedGroup.from_model(stored))


def _queue(call: Call) -> str:
    """Return the queue in the path. Refuse a queue that the caller may not use."""
    name = check_name(call.path["name"], "The queue")
    call.caller.check_queue(name)
    return name


ENDPOINTS = [
    list_limits,
    get_limit,
    put_limit,
    change_limit,
    remove_limit,
    list_limit_groups,
    list_settings,
    get_queue,
    put_queue,
    get_type,
    put_type,
    settle,
    declare,
    list_groups,
    put_tasks_without_group,
    put_group,
]
