"""Limits: how many tasks may run at once, or start in a period, and how the groups of a queue share its workers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from dibs.errors import InvalidValue
from dibs.json_values import MAX_NAME, check_name
from dibs.model.checks import check_integer
from dibs.model.key import RateLimit, read_limit

MAX_PERMITS = 1_000_000_000
MAX_TASK_LIMITS = 8
MAX_WEIGHT = 1_000_000.0

GROUPS_AT_ONCE = 1000
"""The largest number of groups in one answer."""

SETTLED_AT_ONCE = 5000
"""Tasks that one `settle` walks through."""

WITHOUT_WAITING = 1
"""As `change` of the first batch of a `settle`: do not wait for transactions that have begun before."""

PER_GROUP = "group"
"""The value of `per` with which a limit holds for each group of tasks, instead of for all tasks together."""

SettingSource = Literal["code", "command"]
"""Where a limit or setting was declared: in the code of a program, or with a client or the command line."""


class NewLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit to store, checked on construction.

    `max`: how many claims may be live at once, over all workers. `rate`: how many claims may start in a period, such as
    "100/minute"; `burst`: how many of them may start at the same moment. `per`: "group" for a limit of its own for each
    group of tasks."""

    name: str
    max: int | None = None
    rate: str | None = None
    burst: int = 1
    per: str | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "The limit's name")
        if self.max is None and self.rate is None:
            raise InvalidValue(f"The limit {self.name!r} limits nothing.", hint="Give max, rate or both.")
        _check_values(self.max, self.rate, self.burst, self.per)
        if self.rate is None and self.burst != 1:
            raise InvalidValue("burst belongs to a rate.", hint="Give rate as well, or leave burst out.")

    @property
    def starts(self) -> RateLimit | None:
        """The rate as a number and a period."""
        return None if self.rate is None else read_limit(self.rate)


class LimitChange(msgspec.Struct, frozen=True, kw_only=True):
    """New values for a limit, or the values of a new limit, checked on construction. UNSET: the value of the limit
    stays; a new limit has the default. None: the limit has no maximum, no rate, or is one for all."""

    name: str
    max: int | UnsetType | None = UNSET
    rate: str | UnsetType | None = UNSET
    burst: int | UnsetType = UNSET
    per: str | UnsetType | None = UNSET

    def __post_init__(self) -> None:
        check_name(self.name, "The limit's name")
        _check_values(
            None if self.max is UNSET else self.max,
            None if self.rate is UNSET else self.rate,
            1 if self.burst is UNSET else self.burst,
            None if self.per is UNSET else self.per,
        )

    def applied_to(self, known: NewLimit | None) -> NewLimit:
        """The limit with the new values. `known`: its present values; None for a limit that does not exist. A burst
        that is not among the new values goes with the rate that it belonged to."""
        given = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not UNSET}
        if known is None:
            return NewLimit(**given)
        merged = {**msgspec.structs.asdict(known), **given}
        if merged["rate"] is None and "burst" not in given:
            merged["burst"] = 1
        return NewLimit(**merged)


def _check_values(maximum: int | None, rate: str | None, burst: int, per: str | None) -> None:
    if maximum is not None:
        check_integer(maximum, "max", 1, MAX_PERMITS)
    if rate is not None and read_limit(rate) is None:
        raise InvalidValue("rate must be a rate such as '100/minute', or be left out.")
    check_integer(burst, "burst", 1, MAX_PERMITS)
    if per not in (None, PER_GROUP):
        raise InvalidValue(f"per must be 'group' or None, not {per!r}.")


class Limit(msgspec.Struct, frozen=True):
    """A limit as read from the store. A limit that was set by hand stays until its declaration in code changes.

    `used`: live claims that count towards the limit, of all groups together. `waiting`: pending tasks to which it
    applies. `exhausted_since`: since when claims have found it used up while tasks wait for it; None if no claim has.
    `declared`: the values that the code declares, if any; see `overridden`."""

    name: str
    max: int | None
    rate: str | None
    burst: int
    per: str | None
    source: SettingSource
    created_at: datetime
    updated_at: datetime
    used: int = 0
    waiting: int = 0
    exhausted_since: datetime | None = None
    declared: dict[str, Any] | None = None

    @property
    def overridden(self) -> bool:
        """True if the limit is declared in code, and was set by hand since that declaration."""
        return self.declared is not None and self.source == "command"

    @property
    def rule(self) -> str:
        """What the limit allows, in words."""
        parts = [f"at most {self.max:,} at once"] if self.max is not None else []
        if self.rate is not None:
            parts.append(f"{self.rate} with bursts of {self.burst:,}" if self.burst > 1 else self.rate)
        return f"{', '.join(parts)}{' for each group' if self.per else ''}"

    @property
    def values(self) -> NewLimit:
        """The limit as it could be stored again."""
        return NewLimit(name=self.name, max=self.max, rate=self.rate, burst=self.burst, per=self.per)


class LimitGroup(msgspec.Struct, frozen=True):
    """The use of a limit by one group. `group`: None for a limit that holds for all tasks together, and for tasks
    without a group. `waiting`: pending tasks of the group to which the limit applies. `free_at`: when the rate allows
    the next start, where tasks wait for it."""

    limit: str
    group: str | None
    used: int
    waiting: int
    free_at: datetime | None = None


class NewQueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a queue to store, checked on construction. None leaves a setting as it is.

    `fair`: the groups of the queue take turns. `limits`: limits that apply to every task of the queue."""

    queue: str
    fair: bool | None = None
    limits: Sequence[str] | None = None

    def __post_init__(self) -> None:
        check_name(self.queue, "The queue")
        if self.fair is not None and type(self.fair) is not bool:
            raise InvalidValue(f"fair must be True, False or None, not {self.fair!r}.")
        if self.limits is not None:
            check_limit_names(self.limits)


class QueueSettings(msgspec.Struct, frozen=True):
    """The settings of a queue. Settings that were made by hand stay until their declaration in code changes. `source`:
    None for a queue that has no settings. `removed_limits`: those of the limits that were removed; the tasks run
    without them until they are set again."""

    queue: str
    fair: bool = False
    limits: list[str] = []
    source: SettingSource | None = None
    updated_at: datetime | None = None
    declared: dict[str, Any] | None = None
    removed_limits: list[str] = []

    @property
    def overridden(self) -> bool:
        """True if the settings are declared in code, and were changed by hand since that declaration."""
        return self.declared is not None and self.source == "command"


class NewTypeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a task type to store, checked on construction. None leaves a setting as it is.

    `limits`: limits that apply to every task of the type. `group_by`: the parameter whose value is the group of a task
    that names none; an empty text removes the setting."""

    type: str
    limits: Sequence[str] | None = None
    group_by: str | None = None

    def __post_init__(self) -> None:
        check_name(self.type, "The task type")
        if self.limits is not None:
            check_limit_names(self.limits)
        if self.group_by:
            check_name(self.group_by, "group_by")
        elif self.group_by is not None and type(self.group_by) is not str:
            raise InvalidValue(f"group_by must be the name of a parameter, not {self.group_by!r}.")


class TypeSettings(msgspec.Struct, frozen=True):
    """The limits of a task type; see QueueSettings."""

    type: str
    limits: list[str] = []
    group_by: str | None = None
    source: SettingSource | None = None
    updated_at: datetime | None = None
    declared: dict[str, Any] | None = None
    removed_limits: list[str] = []

    @property
    def overridden(self) -> bool:
        """True if the settings are declared in code, and were changed by hand since that declaration."""
        return self.declared is not None and self.source == "command"


class Settled(msgspec.Struct, frozen=True):
    """A batch of tasks that were brought in line with changed settings: how many were changed, and the id after which
    the next batch begins; None if no task is left, 0 while a transaction that may have enqueued tasks before the change
    is open. `change`: the number of the change of settings that all tasks obey when the last batch is done; it is
    passed on from batch to batch."""

    count: int
    after: int | None
    change: int = 0


class GroupInfo(msgspec.Struct, frozen=True):
    """A group of tasks in a queue. `group`: None for the tasks without a group. `weight`: its share of the claims,
    where the queue is fair. `waiting`: its pending tasks that wait for a limit or for their turn."""

    queue: str
    group: str | None
    weight: float = 1.0
    waiting: int = 0


def limits_with_origin(
    own: Sequence[str], type_settings: TypeSettings, queue_settings: QueueSettings
) -> list[tuple[str, str]]:
    """The limits of a task, each with what it has the limit from: "task", "type" or "queue". Limits of its type and
    queue that were removed do not apply."""
    removed = {*type_settings.removed_limits, *queue_settings.removed_limits}
    names = [("task", own), ("type", type_settings.limits), ("queue", queue_settings.limits)]
    found: dict[str, str] = {}
    for origin, limits in names:
        for name in limits:
            found.setdefault(name, origin)
    return [(name, origin) for name, origin in found.items() if name not in removed]


def check_limit_names(names: Any) -> None:
    """Check for a list of at most MAX_TASK_LIMITS names of limits; the list may be empty."""
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise InvalidValue(f"limits must be a list of names, not {names!r}.")
    if len(names) > MAX_TASK_LIMITS:
        raise InvalidValue(f"A task can have at most {MAX_TASK_LIMITS} limits; these are {len(names)}.")
    for name in names:
        check_name(name, "The name of a limit")
    if len(set(names)) < len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise InvalidValue(
            f"The limit {twice!r} is given twice.", hint="A task counts once towards a limit: name each limit once."
        )


def check_group(group: Any) -> str:
    """Check the group of a task, and return it."""
    return check_name(group, "The group")


def check_weight(weight: Any) -> float:
    """Check the weight of a group, and return it."""
    if type(weight) not in (int, float) or not math.isfinite(weight) or not 1 / MAX_WEIGHT <= weight <= MAX_WEIGHT:
        raise InvalidValue(f"weight must be a number from {1 / MAX_WEIGHT} to {MAX_WEIGHT:,.0f}, not {weight!r}.")
    return float(weight)


def group_of(value: Any) -> str | None:
    """The group that a parameter's value names; None if it names none."""
    if value is None or value == "":
        return None
    if type(value) is bool:
        value = str(value).lower()
    if type(value) in (int, float):
        value = str(value)
    if type(value) is not str or len(value) > MAX_NAME:
        raise InvalidValue(
            f"A group is a text of 1 to {MAX_NAME} characters or a number, not {str(value)[:40]!r}.",
            hint="group_by must name a parameter with a short value, such as the id of a customer.",
        )
    return check_group(value)
