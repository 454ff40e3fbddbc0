"""The statements of SQLite for claims of tasks with limits: many small ones, under the lock of the file."""

from __future__ import annotations

from typing import Any

from dibs.json_values import decode, encode
from dibs.model.claim import ClaimRequest, Filters, Order
from dibs.store.operation import Rows, Statement, Statements, limited
from dibs.store.sql import Words

_ORDERS: dict[str, tuple[str, str]] = {
    Order.PRIORITY: ("dibs_tasks_backlog", "priority DESC, id"),
    Order.PRIORITY_LIFO: ("dibs_tasks_backlog", "priority DESC, id DESC"),
    Order.PRIORITY_ASC: ("dibs_tasks_backlog", "priority, id"),
    Order.FIFO: ("dibs_tasks_backlog_age", "id"),
    Order.LIFO: ("dibs_tasks_backlog_age", "id DESC"),
    Order.RANDOM: ("dibs_tasks_backlog", "random()"),
    Order.WEIGHTED: ("dibs_tasks_backlog", "dibs_exponential() / max(priority + 1, 1)"),
}
"""The index and the order of the tasks of a backlog."""


def params(filters: Filters) -> dict[str, Any]:
    """The parameters of the filters."""
    return {
        "queues": None if filters.queues is None else list(dict.fromkeys(filters.queues)),
        "types": None if filters.types is None else list(dict.fromkeys(filters.types)),
        "min_attempts_left": max(filters.max_attempts_remaining or 0, 1),
    }


def words(filters: Filters) -> Words:
    """The conditions of the filters on a backlog. A claim ahead takes no task with limits: a worker must not hold
    permits for tasks that it cannot start yet."""
    ahead = isinstance(filters, ClaimRequest) and filters.ahead
    return (
        ("in_queues", "" if filters.queues is None else "AND queue IN (SELECT value FROM json_each(:queues))"),
        ("in_types", "" if filters.types is None else "AND type IN (SELECT value FROM json_each(:types))"),
        ("unlimited", "AND counters = '[]'" if ahead else ""),
    )


def open_backlogs(request: ClaimRequest, reach: int) -> Statements[Rows]:
    """The first open backlogs of each queue and type."""
    rows: Rows = []
    queue, type_name = "", ""
    which = ("which", "closed_on IS NULL")
    while pair := (yield Statement("next_pair", {"queue": queue, "type": type_name}, words=(which,))):
        [(queue, type_name)] = pair
        given = {**params(request), "queue": queue, "type": type_name}
        rows += yield Statement("open_backlogs", given, words=(*words(request), *limited(reach)))
    return rows


def open_watchers(items: list[dict[str, Any]]) -> Statements[int]:
    """Open the first backlogs of each queue and type that wait for these counters."""
    opened = 0
    which = ("which", "closed_on = :closed_on AND closed_on > ''")
    for item in items:
        given = {"closed_on": item["name"], "room": item["room"], "queue": "", "type": ""}
        while pair := (yield Statement("next_pair", given, words=(which,))):
            given["queue"], given["type"] = pair[0]
            opened += len((yield Statement("open_watchers", given)))
    return opened


def watchers(request: ClaimRequest, items: list[dict[str, Any]]) -> Statements[Rows]:
    """The first backlogs of each queue and type that wait for these counters."""
    rows: Rows = []
    which = ("which", "closed_on = :closed_on AND closed_on > ''")
    for item in items:
        given = {**params(request), "closed_on": item["name"], "queue": "", "type": ""}
        while pair := (yield Statement("next_pair", given, words=(which,))):
            given["queue"], given["type"] = pair[0]
            rows += yield Statement("watchers", given, words=(*words(request), *limited(item["room"])))
    return rows


def read(names: list[str], count: int, filters: Filters) -> Statements[Rows]:
    """The first tasks of these backlogs."""
    index, order = _ORDERS[filters.order]
    given = {**params(filters), "names": names, "count": count}
    return (yield Statement("read_backlogs", given, words=(("index", index), ("order", order))))


def claim(request: ClaimRequest, items: list[dict[str, Any]]) -> Statements[Rows]:
    """Claim these tasks."""
    waits = {str(item["id"]): decode(item["waits"]) for item in items if item["waits"] is not None}
    given = {
        "items": items,
        "waits": encode(waits, "waits"),
        "lease": round(request.lease * 1e6),
        "ahead": request.ahead,
        "request": request.request,
    }
    return (yield Statement("claim_limited", given, change=True))
