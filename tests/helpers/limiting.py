"""Limits and settings through the interface of a store, and what must always hold about them."""

from __future__ import annotations

from typing import Any, cast

from dibs import Task
from dibs.model.limit import (
    GroupInfo,
    Limit,
    LimitGroup,
    NewLimit,
    NewQueueSettings,
    NewTypeSettings,
    QueueSettings,
    TypeSettings,
)
from dibs.store.contract import LimitOperations
from tests.helpers.clients import run


def operations(app: Any) -> LimitOperations:
    """The operations about limits of the app's store."""
    return cast("LimitOperations", app._store.limits)


def put(app: Any, name: str, source: Any = "command", **values: Any) -> Limit:
    """Set a limit."""
    return cast("Limit", run(app, operations(app).put_limit(NewLimit(name=name, **values), source)))


def get(app: Any, name: str) -> Limit:
    """The limit with its use."""
    return cast("Limit", run(app, operations(app).get_limit(name)))


def remove(app: Any, name: str) -> None:
    """Remove the limit."""
    run(app, operations(app).remove_limit(name))


def use(app: Any, name: str) -> tuple[int, int]:
    """The live claims and the waiting tasks of a limit."""
    limit = get(app, name)
    return limit.used, limit.waiting


def groups_of(app: Any, name: str) -> list[LimitGroup]:
    """The groups of the limit."""
    return cast("list[LimitGroup]", run(app, operations(app).limit_groups(name)))


def put_queue(app: Any, queue: str, source: Any = "command", **values: Any) -> QueueSettings:
    """Change the settings of a queue."""
    return cast("QueueSettings", run(app, operations(app).put_queue(NewQueueSettings(queue=queue, **values), source)))


def put_type(app: Any, type: str, source: Any = "command", **values: Any) -> TypeSettings:
    """Change the limits of a task type."""
    return cast("TypeSettings", run(app, operations(app).put_type(NewTypeSettings(type=type, **values), source)))


def put_group(app: Any, queue: str, group: str | None, weight: float) -> GroupInfo:
    """Set the weight of a group."""
    return cast("GroupInfo", run(app, operations(app).put_group(queue, group, weight)))


def settle(app: Any) -> int:
    """Bring all waiting tasks in line with the settings. Returns their number."""
    settled = run(app, operations(app).settle())
    total: int = settled.count
    while settled.after is not None:
        settled = run(app, operations(app).settle(settled.after))
        total += settled.count
    return total


def enqueue(app: Any, count: int = 1, type: str = "charge", **options: Any) -> list[Task]:
    """Enqueue some tasks one by one."""
    return [app.enqueue(type, {"n": number}, **options) for number in range(count)]


def claim(app: Any, count: int = 10, worker: str = "w", **options: Any) -> list[Any]:
    """Claim up to `count` tasks."""
    return cast("list[Any]", app.claim_many(worker, count, **options))


def assert_exact(app: Any) -> None:
    """The use of every counter is the number of tasks that it counts, and doctor agrees."""
    verdicts = {check.name: check.verdict for check in app.doctor()}
    assert verdicts["limits"] == "ok", verdicts
