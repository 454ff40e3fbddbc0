"""Why a pending task waits for a limit, or for its turn in a fair queue."""

from __future__ import annotations

import math
from typing import Any

from dibs.json_values import decode, encode
from dibs.model.checks import from_micros
from dibs.model.explanation import Reason
from dibs.model.task import Task
from dibs.store.operation import Statement, Statements
from dibs.store.operations.flow import BacklogKey, FlowRules, LimitCounter, RulesCache, group_of_counter, limit_of


def flow_reasons(task: Task, cache: RulesCache) -> Statements[list[Reason]]:
    """The limits for which the task waits, or that have room which the tasks before it take; if there is none, its turn
    in a fair queue. Computed from the counters and the waiting tasks as they are now, whether a claim has looked at the
    task or not."""
    if not (yield Statement("has_backlog", {"id": task.id})):
        return []
    rules = yield from cache.checked()
    reasons = yield from _reasons_limited(task, rules)
    if not reasons and rules.is_fair(task.queue):
        reasons = yield from _reasons_turn(task)
    return reasons


def _reasons_limited(task: Task, rules: FlowRules) -> Statements[list[Reason]]:
    """The limits whose room is less than the tasks that come before the task."""
    [[now]] = yield Statement("clock")
    limits = encode(list(task.limits), "limits") if task.limits else None
    counters = rules.counters(BacklogKey(task.queue, task.type, task.group or "", limits))
    reasons = []
    for counter in (yield from _read(counters, rules, now)):
        if counter.rule.bounded:
            before = yield from _count_before(task, counter, rules)
            if counter.room(now) <= before:
                reasons.append(_reason_limited(counter, before, now))
    return reasons


def _read(names: list[str], rules: FlowRules, now: int) -> Statements[list[LimitCounter]]:
    """The counters, without the tasks whose claims have ended."""
    known = {row[0]: row[1:3] for row in (yield Statement("read_counters", {"names": names}))}
    counters = []
    for name in names:
        used, allowed_at = known.get(name, (0, 0))
        counters.append(LimitCounter(name, rules.limits[limit_of(name)], used, allowed_at, now))
    for permits, count in (yield Statement("returning_permits")):
        ended = decode(permits)
        for counter in counters:
            counter.used -= count * (counter.name in ended)
    return counters


def _count_before(task: Task, counter: LimitCounter, rules: FlowRules) -> Statements[int]:
    name = limit_of(counter.name)
    queues, types = rules.carriers(name)
    given: dict[str, Any] = {"id": task.id, "priority": task.priority, "name": name, "queues": queues, "types": types}
    group = group_of_counter(counter.name) if counter.rule.per_group else None
    [(count,)] = yield Statement("tasks_before", {**given, "group": group})
    return int(count)


def _reason_limited(counter: LimitCounter, before: int, now: int) -> Reason:
    """The reason `limit_reached` for a limit without room. A limit with room keeps nobody waiting: the task comes after
    other tasks (`turn`)."""
    limit, group = limit_of(counter.name), group_of_counter(counter.name)
    name = f"the limit {limit!r}{f' for the group {group!r}' if group else ''}"
    in_use = "" if counter.rule.max is None else f" ({max(counter.used, 0)} of {counter.rule.max} in use)"
    rate = f" Its rate allows {_starts_text(counter, before, now)}." if counter.rule.interval else ""
    if counter.room(now) <= 0:
        return Reason("limit_reached", f"It waits for {name}{in_use}; {_tasks(before)} before it.{rate}")
    return Reason("turn", f"It comes after {_tasks(before)} with {name}, which has room now{in_use}.{rate}")


def _starts_text(counter: LimitCounter, before: int, now: int) -> str:
    opens_at = counter.opens_at(now)
    text = "a start now" if opens_at is None else f"the next start at {_second(opens_at)}"
    if before:
        own = max(counter.allowed_at, now) - counter.rule.tolerance + before * counter.rule.interval
        text += f", and that of this task at {_second(own)} at the earliest"
    return text


def _reasons_turn(task: Task) -> Statements[list[Reason]]:
    """How many tasks the claims of a fair queue take before the task: by priority, then by turns of the groups."""
    own = task.group or ""
    given = {"id": task.id, "priority": task.priority, "queue": task.queue, "group": own}
    groups = {row[0]: row[1:] for row in (yield Statement("groups_before", given))}
    weight, turn, higher, in_group = groups.pop(own, (1.0, 0.0, 0, 0))
    start = turn + (int(higher) + int(in_group)) / weight
    others = sum(_taken_by(start, *row) for row in groups.values())
    if not others + in_group + higher:
        return []
    name = "without a group" if task.group is None else f"of its group {task.group!r}"
    mine = f"{_tasks(int(in_group) + int(higher))} {name}"
    theirs = f"{'about ' if others else ''}{_tasks(others)} of other groups"
    message = f"It waits for its turn in the fair queue {task.queue!r}, after {mine} and {theirs}."
    return [Reason("turn", message)]


def _taken_by(start: float, weight: float, turn: float, higher: int, equal: int) -> int:
    """How many tasks of another group are taken until this start: all with a higher priority, and those with the same
    priority that start earlier."""
    first = turn + int(higher) / weight
    return int(higher) + min(int(equal), max(0, math.ceil((start - first) * weight - 1e-9)))


def _tasks(count: int) -> str:
    return "no other task" if count == 0 else "1 task" if count == 1 else f"{count:,} tasks"


def _second(micros: int) -> str:
    return f"{from_micros(-(-micros // 1_000_000) * 1_000_000):%Y-%m-%d %H:%M:%S} UTC"
