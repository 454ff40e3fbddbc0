"""Rules of limits as a process knows them: which limits a task has, and in which backlog it waits.

The rules are read once and kept: each write that depends on them compares their version with that of the database, in
the same statement or under the same lock. So no write follows old rules, and a store without limits reads nothing."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from dibs.encoded import describe, is_encoded
from dibs.errors import InvalidValue, LimitUnknown
from dibs.json_values import decode
from dibs.model.limit import MAX_TASK_LIMITS, group_of
from dibs.store.operation import Statement, Statements
from dibs.store.operations.rows import NewRow

GROUP_MARK = "\t"
"""Divides the limit and the group in the name of a counter. Neither can contain it."""

UNLIMITED = 2**31 - 1
"""The room of a counter without a bound."""

CLOCK_SLACK = 5_000_000
"""Microseconds by which the database's clock may seem to go back without having been set back."""


class LimitRule(NamedTuple):
    """The values of one limit. `interval`: microseconds for each start of a rate, rounded up; 0 without a rate.
    `declared`: a program declares the limit in its code."""

    max: int | None
    interval: int
    burst: int
    per_group: bool
    removed: bool
    declared: bool = False

    @property
    def usable(self) -> bool:
        """True if a new task may name the limit. Code that declares a limit works also after the limit was removed by
        hand."""
        return not self.removed or self.declared

    @property
    def bounded(self) -> bool:
        """True if the limit restricts anything."""
        return not self.removed

    @property
    def tolerance(self) -> int:
        """Microseconds by which starts of a rate may come early, because of its burst."""
        return (self.burst - 1) * self.interval


class QueueRule(NamedTuple):
    """The limits that a queue carries, and whether its groups take turns."""

    limits: list[str]
    fair: bool


class TypeRule(NamedTuple):
    """The limits that a task type carries, and the parameter that names the group."""

    limits: list[str]
    group_by: str | None


class BacklogKey(NamedTuple):
    """What the tasks of a backlog have in common. `limits`: those that the tasks name themselves, as JSON."""

    queue: str
    type: str
    group: str
    limits: str | None

    @property
    def name(self) -> str:
        """A hash of 128 bits: the name must fit into an index, whatever the names of queue, type and group are."""
        text = "\n".join((self.queue, self.type, self.group, self.limits or ""))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class FlowRules:
    """All limits and settings of a store, as they were at one version."""

    def __init__(
        self,
        version: int,
        limits: dict[str, LimitRule],
        queues: dict[str, QueueRule],
        types: dict[str, TypeRule],
    ) -> None:
        self.version = version
        self.limits = limits
        self.has_rates = any(rule.interval for rule in limits.values())
        self._queues = queues
        self._types = types

    def is_fair(self, queue: str) -> bool:
        """True if the groups of the queue take turns."""
        return (rule := self._queues.get(queue)) is not None and rule.fair

    def concern(self, row: NewRow) -> bool:
        """True if the task names limits, or its queue or type has settings."""
        return row.limits is not None or row.queue in self._queues or row.type in self._types

    def place(self, row: NewRow, *, checked: bool = False) -> NewRow:
        """The row with its group and backlog; the row itself for a plain task. Raises InvalidValue if the limits of the
        task do not exist or do not fit; not if they were `checked` before, and have changed since."""
        if not self.concern(row):
            return row
        queue = self._queues.get(row.queue)
        own: list[str] = decode(row.limits) if row.limits else []
        if not checked:
            self._check_known(own)
        group = self.group_of(row.type, row.params) if row.group_key is None else row.group_key
        names = self.names(BacklogKey(row.queue, row.type, group or "", row.limits))
        if not checked:
            self._check_fit(names, group)
        if not names and not (queue is not None and queue.fair):
            return row if group == row.group_key else msgspec.structs.replace(row, group_key=group)
        key = BacklogKey(row.queue, row.type, group or "", row.limits)
        return msgspec.structs.replace(row, group_key=group, backlog=key.name)

    def place_waiting(self, row: NewRow) -> NewRow:
        """As `place`, for a task that is stored and cannot be refused any more: a group that cannot be read counts as
        none."""
        try:
            return self.place(row, checked=True)
        except InvalidValue:
            placed = self.place(msgspec.structs.replace(row, group_key=""), checked=True)
            return msgspec.structs.replace(placed, group_key=None)

    def check_fit(self, row: NewRow) -> None:
        """Raise InvalidValue if the limits of a task do not fit: too many, or one per group and the task has none."""
        key = BacklogKey(row.queue, row.type, row.group_key or "", row.limits)
        self._check_fit(self.names(key), row.group_key)

    def group_of(self, type_name: str, params: str) -> str | None:
        """The group that the params of a task of this type name."""
        type_rule = self._types.get(type_name)
        if type_rule is None or not type_rule.group_by:
            return None
        decoded = decode(params)
        if is_encoded(decoded):
            raise InvalidValue(
                f"The params are {describe(decoded)}: the parameter {type_rule.group_by!r}, which names the group of a "
                f"task of type {type_name!r}, cannot be read.",
                hint="Give the group of the task: group=…. A handler with group_by and a codec gives it by itself.",
            )
        return group_of(decoded.get(type_rule.group_by))

    def _check_known(self, own: Sequence[str]) -> None:
        for name in own:
            if name not in self.limits or not self.limits[name].usable:
                raise LimitUnknown(name)

    def _check_fit(self, names: Sequence[str], group: str | None) -> None:
        if len(names) > MAX_TASK_LIMITS:
            message = f"A task can have at most {MAX_TASK_LIMITS} limits, with those of its queue and type"
            raise InvalidValue(f"{message}; this one has {len(names)}: {', '.join(names)}.")
        if group is None:
            for name in names:
                if self.limits[name].per_group and self.limits[name].bounded:
                    raise InvalidValue(
                        f"The limit {name!r} holds for each group, and the task has no group.",
                        hint="Give group=, or set group_by for the task type.",
                    )

    def names(self, key: BacklogKey) -> list[str]:
        """The limits of the tasks of a backlog: their own, then those of their type and queue."""
        queue, type_rule = self._queues.get(key.queue), self._types.get(key.type)
        own = decode(key.limits) if key.limits else []
        carried = [*(type_rule.limits if type_rule else ()), *(queue.limits if queue else ())]
        return list(dict.fromkeys([*own, *carried]))

    def carriers(self, limit: str) -> tuple[list[str], list[str]]:
        """The queues and the types whose tasks have this limit."""
        queues = [name for name, queue in self._queues.items() if limit in queue.limits]
        return queues, [name for name, rule in self._types.items() if limit in rule.limits]

    def counters(self, key: BacklogKey) -> list[str]:
        """The counters of the tasks of a backlog, in the order of the limits."""
        return [counter_name(name, self.limits[name].per_group, key.group) for name in self.names(key)]


NO_RULES = FlowRules(0, {}, {}, {})
"""The rules of a store that never had a limit."""


class RulesCache:
    """The newest rules that a process has read."""

    def __init__(self) -> None:
        self.rules = NO_RULES

    def at(self, version: int) -> Statements[FlowRules]:
        """The rules of this version, which the caller has read in the same transaction, under the lock of dibs_flow."""
        if version != self.rules.version:
            yield from self.read()
        return self.rules

    def checked(self) -> Statements[FlowRules]:
        """The rules of the present version."""
        return (yield from self.at((yield from read_version())))

    def read(self) -> Statements[FlowRules]:
        """Read the rules. The version is read first: if a change comes in between, the next comparison finds out."""
        version = yield from read_version()
        limits = {row[0]: _limit_rule(row) for row in (yield Statement("every_limit"))}
        queues: dict[str, QueueRule] = {}
        types: dict[str, TypeRule] = {}
        for scope, name, names, fair, group_by in (yield Statement("every_setting")):
            if scope == "queue":
                queues[name] = QueueRule(decode(names), bool(fair))
            else:
                types[name] = TypeRule(decode(names), group_by)
        self.rules = FlowRules(version, limits, queues, types)
        return self.rules


def read_version() -> Statements[int]:
    """The version of limits and settings."""
    rows = yield Statement("flow_version")
    return int(rows[0][0]) if rows else 0


def counter_name(limit: str, per_group: bool, group: str | None) -> str:
    """The name of the counter of a limit, or of a group of a limit."""
    return f"{limit}{GROUP_MARK}{group or ''}" if per_group else limit


def limit_of(counter: str) -> str:
    """The limit of a counter."""
    return counter.partition(GROUP_MARK)[0]


def group_of_counter(counter: str) -> str:
    """The group of a counter; empty if there is none."""
    return counter.partition(GROUP_MARK)[2]


def _limit_rule(row: tuple[object, ...]) -> LimitRule:
    _, maximum, starts, period, burst, per, removed, declared = row
    interval = 0 if starts is None else math.ceil(period / starts)  # type: ignore[operator]
    return LimitRule(maximum, interval, burst, per is not None, bool(removed), bool(declared))  # type: ignore[arg-type]


class LimitCounter:
    """A counter during a claim: how many tasks it may still admit. `watched`: backlogs may wait for it."""

    __slots__ = ("allowed_at", "name", "rule", "taken", "used", "watched")

    def __init__(self, name: str, rule: LimitRule, used: int, allowed_at: int, now: int) -> None:
        self.name = name
        self.rule = rule
        self.used = used
        self.taken = 0
        self.watched = False
        if rule.interval and allowed_at > now + rule.burst * rule.interval + CLOCK_SLACK:
            allowed_at = now + rule.burst * rule.interval  # the clock was set back: the rate has used up its burst
        self.allowed_at = allowed_at

    def room(self, now: int) -> int:
        """How many tasks may start now."""
        if not self.rule.bounded:
            return UNLIMITED
        room = UNLIMITED if self.rule.max is None else self.rule.max - self.used - self.taken
        return max(min(room, self._starts(now)), 0)

    def _starts(self, now: int) -> int:
        if not self.rule.interval:
            return UNLIMITED
        early = max(self.allowed_at, now) - now
        return 0 if early > self.rule.tolerance else (self.rule.tolerance - early) // self.rule.interval + 1

    def take(self, now: int) -> None:
        """Count a task that starts now."""
        self.taken += 1
        if self.rule.interval and self.rule.bounded:
            self.allowed_at = max(self.allowed_at, now) + self.rule.interval

    def opens_at(self, now: int) -> int | None:
        """When the rate allows the next start; None if it allows one now."""
        if not self.rule.bounded or self._starts(now) > 0:
            return None
        return self.allowed_at - self.rule.tolerance
