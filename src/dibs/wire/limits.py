"""Limits as JSON: limits and their groups, settings of queues and task types, groups of a queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from dibs.model import declaration
from dibs.model import limit as model
from dibs.model.declaration import DECLARED_AT_ONCE, DeclaredKind
from dibs.model.limit import (
    MAX_PERMITS,
    MAX_TASK_LIMITS,
    MAX_WEIGHT,
    SETTLED_AT_ONCE,
    LimitChange,
    NewLimit,
    NewQueueSettings,
    NewTypeSettings,
    SettingSource,
)
from dibs.wire.errors import Refusal
from dibs.wire.fields import (
    ONE_LINE_OR_EMPTY,
    RATE,
    JsonObject,
    Name,
    Query,
    RequestBody,
    Timestamp,
    at_least_one,
    to_datetime,
    to_datetime_or_none,
    to_text,
    to_text_or_none,
)

Max = Annotated[
    int, Meta(ge=1, le=MAX_PERMITS, description="How many claims may be live at once, over all workers.", examples=[5])
]
Rate = Annotated[
    str,
    Meta(
        pattern=RATE,
        description="How many claims may start in a second, minute, hour or day; retries count.",
        examples=["100/minute"],
    ),
]
Burst = Annotated[int, Meta(ge=1, le=MAX_PERMITS, description="How many claims of the rate may start at once.")]
Per = Annotated[
    Literal["group"] | None,
    Meta(description="With `group`, each group of tasks has a limit of its own; null: one for all."),
]
LimitNames = Annotated[list[Name], Meta(max_length=MAX_TASK_LIMITS, extra_json_schema={"uniqueItems": True})]
"""Names of limits, each once."""
Weight = Annotated[
    float, Meta(ge=1 / MAX_WEIGHT, le=MAX_WEIGHT, description="The share of the claims where the queue is fair.")
]
GroupPage = Annotated[int, Meta(ge=1, le=1000, description="Groups on a page.")]
Source = Annotated[
    SettingSource,
    Meta(description="The origin of the values: a command, or the code of a program."),
]
Settle = Annotated[
    bool, Meta(description="Bring the tasks that wait in line with the change, for about a second; see `next_cursor`.")
]
Unsettled = Annotated[
    int, Meta(description="Send it as `after` to /api/upkeep/settle; null if all tasks that wait obey the settings.")
]
Declared = Annotated[JsonObject, Meta(description="What the code of a program declares; null if no code declares it.")]
RemovedLimits = Annotated[
    list[str],
    Meta(description="Those of the limits that were removed: the tasks run without them until they are set again."),
]
Overridden = Annotated[bool, Meta(description="The values were set by hand since their declaration in code.")]


class NewLimitBody(RequestBody, frozen=True):
    """A limit to store. What is left out has its default: nothing of a limit that exists is kept."""

    rules = (
        at_least_one("max", "rate"),
        {"anyOf": [*at_least_one("rate")["anyOf"], {"properties": {"burst": {"const": 1}}}]},
    )

    max: Max | None = None
    rate: Rate | None = None
    burst: Burst = 1
    per: Per = None
    source: Source = "command"

    @classmethod
    def from_model(cls, new: NewLimit, source: SettingSource) -> Self:
        """The limit to send."""
        return cls(max=new.max, rate=new.rate, burst=new.burst, per=_per(new.per), source=source)

    def to_model(self, name: str) -> NewLimit:
        """The limit, checked."""
        return NewLimit(name=name, max=self.max, rate=self.rate, burst=self.burst, per=self.per)


class LimitChangeBody(RequestBody, frozen=True):
    """New values for a limit. What is left out stays as it is; a limit that does not exist has its default. Null
    removes the maximum, the rate, or the division by groups."""

    max: Max | UnsetType | None = UNSET
    rate: Rate | UnsetType | None = UNSET
    burst: Burst | UnsetType = UNSET
    per: Per | UnsetType = UNSET

    @classmethod
    def from_model(cls, change: LimitChange) -> Self:
        """The values to send."""
        per = change.per if change.per is UNSET else _per(change.per)
        return cls(max=change.max, rate=change.rate, burst=change.burst, per=per)

    def to_model(self, name: str) -> LimitChange:
        """The new values, checked."""
        return LimitChange(name=name, max=self.max, rate=self.rate, burst=self.burst, per=self.per)


class Limit(msgspec.Struct, frozen=True):
    """A limit with its use. `used`: the live claims that count towards it, of all groups together. `waiting`: the
    pending tasks to which it applies. `exhausted_since`: since when claims have found the limit used up while tasks
    wait for it."""

    name: str
    max: int | None
    rate: str | None
    burst: int
    per: Per
    used: int
    waiting: int
    source: SettingSource
    created_at: Timestamp
    updated_at: Timestamp
    exhausted_since: Timestamp | None = None
    declared: Declared | None = None
    overridden: Overridden = False

    @classmethod
    def from_model(cls, limit: model.Limit) -> Self:
        """The limit as JSON."""
        return cls(
            name=limit.name,
            max=limit.max,
            rate=limit.rate,
            burst=limit.burst,
            per=_per(limit.per),
            used=limit.used,
            waiting=limit.waiting,
            source=limit.source,
            created_at=to_text(limit.created_at),
            updated_at=to_text(limit.updated_at),
            exhausted_since=to_text_or_none(limit.exhausted_since),
            declared=limit.declared,
            overridden=limit.overridden,
        )

    def to_model(self) -> model.Limit:
        """The limit."""
        return model.Limit(
            name=self.name,
            max=self.max,
            rate=self.rate,
            burst=self.burst,
            per=self.per,
            source=self.source,
            created_at=to_datetime(self.created_at),
            updated_at=to_datetime(self.updated_at),
            used=self.used,
            waiting=self.waiting,
            exhausted_since=to_datetime_or_none(self.exhausted_since),
            declared=self.declared,
        )


def _per(per: str | None) -> Literal["group"] | None:
    return None if per is None else "group"


class Limits(msgspec.Struct, frozen=True):
    """All limits."""

    limits: list[Limit]

    @classmethod
    def from_model(cls, limits: Sequence[model.Limit]) -> Self:
        """The limits as an answer."""
        return cls(limits=[Limit.from_model(limit) for limit in limits])

    def to_model(self) -> list[model.Limit]:
        """The limits."""
        return [limit.to_model() for limit in self.limits]


class OneLimit(msgspec.Struct, frozen=True):
    """A limit."""

    limit: Limit

    @classmethod
    def from_model(cls, limit: model.Limit) -> Self:
        """The limit as an answer."""
        return cls(limit=Limit.from_model(limit))

    def to_model(self) -> model.Limit:
        """The limit."""
        return self.limit.to_model()


class ChangedLimit(msgspec.Struct, frozen=True):
    """The limit as it is now."""

    success: bool
    limit: Limit

    @classmethod
    def from_model(cls, limit: model.Limit) -> Self:
        """The limit as an answer."""
        return cls(success=True, limit=Limit.from_model(limit))

    def to_model(self) -> model.Limit:
        """The limit."""
        return self.limit.to_model()


# Groups of a limit

GroupText = Annotated[str, Meta(description="The group; null for the tasks without a group.", examples=["acme"])]
NextCursor = Annotated[str, Meta(description="The cursor of the next page; null on the last page.")]


class GroupsQuery(Query, frozen=True):
    """A page of groups. `cursor`: the `next_cursor` of the previous page."""

    limit: GroupPage = 100
    cursor: Annotated[str, Meta(max_length=255, description="The `next_cursor` of the previous page.")] | None = None


class LimitGroup(msgspec.Struct, frozen=True):
    """The use of a limit by one group. `free_at`: when the rate allows the next start, where tasks wait for it."""

    group: GroupText | None
    used: int
    waiting: int
    free_at: Timestamp | None = None

    @classmethod
    def from_model(cls, group: model.LimitGroup) -> Self:
        """The group as JSON."""
        return cls(
            group=group.group, used=group.used, waiting=group.waiting, free_at=to_text_or_none(group.free_at)
        )  # fmt: skip


class LimitGroups(msgspec.Struct, frozen=True):
    """A page of the groups of a limit that hold claims or have tasks waiting."""

    limit: str
    groups: list[LimitGroup]
    next_cursor: NextCursor | None

    @classmethod
    def from_model(cls, limit: str, groups: Sequence[model.LimitGroup], size: int) -> Self:
        """The groups as an answer. `size`: the number of groups of a full page."""
        return cls(
            limit=limit,
            groups=[LimitGroup.from_model(group) for group in groups],
            next_cursor=next_cursor(groups, size),
        )

    def to_model(self) -> list[model.LimitGroup]:
        """The groups."""
        return [
            model.LimitGroup(
                limit=self.limit,
                group=each.group,
                used=each.used,
                waiting=each.waiting,
                free_at=to_datetime_or_none(each.free_at),
            )
            for each in self.groups
        ]


def next_cursor(groups: Sequence[model.LimitGroup | model.GroupInfo], size: int) -> str | None:
    """The cursor after a page of groups: the last group, an empty text for the tasks without a group."""
    return (groups[-1].group or "") if len(groups) == size else None


# Settings of queues and task types


class QueueSettingsBody(RequestBody, frozen=True):
    """Settings of a queue. What is left out stays as it is."""

    fair: Annotated[bool, Meta(description="The groups of the queue take turns.")] | None = None
    limits: Annotated[LimitNames, Meta(description="Limits that apply to every task of the queue.")] | None = None
    source: Source = "command"
    settle: Settle = True

    @classmethod
    def from_model(cls, new: NewQueueSettings, source: SettingSource) -> Self:
        """The settings to send, to a server that leaves the tasks that wait to `settle`."""
        return cls(fair=new.fair, limits=_names(new.limits), source=source, settle=False)

    def to_model(self, queue: str) -> NewQueueSettings:
        """The settings, checked."""
        return NewQueueSettings(queue=queue, fair=self.fair, limits=self.limits)


def _names(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else list(names)


class QueueSettings(msgspec.Struct, frozen=True):
    """The settings of a queue. `source`: null for a queue that has no settings."""

    queue: str
    fair: bool
    limits: list[str]
    source: SettingSource | None = None
    updated_at: Timestamp | None = None
    declared: Declared | None = None
    overridden: Overridden = False
    removed_limits: RemovedLimits = []

    @classmethod
    def from_model(cls, settings: model.QueueSettings) -> Self:
        """The settings as JSON."""
        return cls(queue=settings.queue, fair=settings.fair, limits=settings.limits, **_about(settings))

    def to_model(self) -> model.QueueSettings:
        """The settings."""
        return model.QueueSettings(
            queue=self.queue,
            fair=self.fair,
            limits=self.limits,
            source=self.source,
            updated_at=to_datetime_or_none(self.updated_at),
            declared=self.declared,
            removed_limits=self.removed_limits,
        )


def _about(settings: model.QueueSettings | model.TypeSettings) -> dict[str, Any]:
    """The origin of settings."""
    return {
        "source": settings.source,
        "updated_at": to_text_or_none(settings.updated_at),
        "declared": settings.declared,
        "overridden": settings.overridden,
        "removed_limits": settings.removed_limits,
    }


class OneQueueSettings(msgspec.Struct, frozen=True):
    """The settings of a queue."""

    settings: QueueSettings

    @classmethod
    def from_model(cls, settings: model.QueueSettings) -> Self:
        """The settings as an answer."""
        return cls(settings=QueueSettings.from_model(settings))

    def to_model(self) -> model.QueueSettings:
        """The settings."""
        return self.settings.to_model()


class ChangedQueueSettings(OneQueueSettings, frozen=True, kw_only=True):
    """The settings of the queue as they are now."""

    success: bool = True
    next_cursor: Unsettled | None = None

    @classmethod
    def of(cls, settings: model.QueueSettings, after: int | None) -> Self:
        """The settings as an answer. `after`: the task after which tasks may not obey them yet."""
        return cls(settings=QueueSettings.from_model(settings), next_cursor=after)


class TypeSettingsBody(RequestBody, frozen=True):
    """Limits of a task type. What is left out stays as it is."""

    limits: Annotated[LimitNames, Meta(description="Limits that apply to every task of the type.")] | None = None
    group_by: (
        Annotated[
            str,
            Meta(
                max_length=255,
                pattern=ONE_LINE_OR_EMPTY,
                description="The parameter that names the group of a task; an empty text for none.",
                examples=["tenant"],
            ),
        ]
        | None
    ) = None
    source: Source = "command"
    settle: Settle = True

    @classmethod
    def from_model(cls, new: NewTypeSettings, source: SettingSource) -> Self:
        """The settings to send, to a server that leaves the tasks that wait to `settle`."""
        return cls(limits=_names(new.limits), group_by=new.group_by, source=source, settle=False)

    def to_model(self, type: str) -> NewTypeSettings:
        """The settings, checked."""
        return NewTypeSettings(type=type, limits=self.limits, group_by=self.group_by)


class TypeSettings(msgspec.Struct, frozen=True):
    """The limits of a task type. `group_by`: the parameter that names the group of a task that names none. `source`:
    null for a type that has no settings."""

    type: str = field(name="task_type")
    limits: list[str]
    group_by: str | None
    source: SettingSource | None = None
    updated_at: Timestamp | None = None
    declared: Declared | None = None
    overridden: Overridden = False
    removed_limits: RemovedLimits = []

    @classmethod
    def from_model(cls, settings: model.TypeSettings) -> Self:
        """The settings as JSON."""
        return cls(type=settings.type, limits=settings.limits, group_by=settings.group_by, **_about(settings))

    def to_model(self) -> model.TypeSettings:
        """The settings."""
        return model.TypeSettings(
            type=self.type,
            limits=self.limits,
            group_by=self.group_by,
            source=self.source,
            updated_at=to_datetime_or_none(self.updated_at),
            declared=self.declared,
            removed_limits=self.removed_limits,
        )


class OneTypeSettings(msgspec.Struct, frozen=True):
    """The limits of a task type."""

    settings: TypeSettings

    @classmethod
    def from_model(cls, settings: model.TypeSettings) -> Self:
        """The settings as an answer."""
        return cls(settings=TypeSettings.from_model(settings))

    def to_model(self) -> model.TypeSettings:
        """The settings."""
        return self.settings.to_model()


class ChangedTypeSettings(OneTypeSettings, frozen=True, kw_only=True):
    """The limits of the task type as they are now."""

    success: bool = True
    next_cursor: Unsettled | None = None

    @classmethod
    def of(cls, settings: model.TypeSettings, after: int | None) -> Self:
        """The settings as an answer. `after`: the task after which tasks may not obey them yet."""
        return cls(settings=TypeSettings.from_model(settings), next_cursor=after)


class AllSettings(msgspec.Struct, frozen=True):
    """The settings of all queues and task types that have any, by name."""

    queues: list[QueueSettings]
    types: list[TypeSettings] = field(name="task_types")

    @classmethod
    def from_model(cls, queues: Sequence[model.QueueSettings], types: Sequence[model.TypeSettings]) -> Self:
        """The settings as an answer."""
        return cls(
            queues=[QueueSettings.from_model(each) for each in queues],
            types=[TypeSettings.from_model(each) for each in types],
        )

    def to_model(self) -> tuple[list[model.QueueSettings], list[model.TypeSettings]]:
        """The settings of the queues, and of the task types."""
        return [each.to_model() for each in self.queues], [each.to_model() for each in self.types]


# Declarations in code


class DeclaredLimit(NewLimitBody, frozen=True, kw_only=True):
    """A limit that a program declares. `source` is ignored: it is `code`."""

    name: Name

    @classmethod
    def of(cls, new: NewLimit) -> Self:
        """The limit to send."""
        return cls(name=new.name, max=new.max, rate=new.rate, burst=new.burst, per=_per(new.per))


class DeclaredQueue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a queue that a program declares."""

    queue: Name
    fair: bool = False
    limits: LimitNames = []


class DeclaredType(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of a task type that a program declares. Without any, an earlier declaration is taken back."""

    type: Name = field(name="task_type")
    limits: LimitNames = []
    group_by: Name | None = None


class DeclarationsBody(RequestBody, frozen=True):
    """What a program declares about limits."""

    limits: Annotated[list[DeclaredLimit], Meta(max_length=DECLARED_AT_ONCE, description="Limits.")] = field(
        default_factory=list
    )
    queues: Annotated[list[DeclaredQueue], Meta(max_length=DECLARED_AT_ONCE, description="Settings of queues.")] = (
        field(default_factory=list)
    )
    types: Annotated[
        list[DeclaredType], Meta(max_length=DECLARED_AT_ONCE, description="Limits and groups of task types.")
    ] = field(name="task_types", default_factory=list)

    @classmethod
    def from_model(cls, declared: declaration.Declarations) -> Self:
        """The declarations to send."""
        return cls(
            limits=[DeclaredLimit.of(each) for each in declared.limits],
            queues=[DeclaredQueue(each.queue, bool(each.fair), list(each.limits or ())) for each in declared.queues],
            types=[DeclaredType(each.type, list(each.limits or ()), each.group_by or None) for each in declared.types],
        )

    def to_model(self) -> declaration.Declarations:
        """The declarations, checked."""
        return declaration.Declarations(
            limits=[each.to_model(each.name) for each in self.limits],
            queues=[NewQueueSettings(queue=each.queue, fair=each.fair, limits=each.limits) for each in self.queues],
            types=[NewTypeSettings(type=each.type, limits=each.limits, group_by=each.group_by) for each in self.types],
        )


class RefusedDeclaration(msgspec.Struct, frozen=True):
    """A declaration that was not stored, and why."""

    kind: Annotated[DeclaredKind, Meta(description="What the declaration is about.")]
    name: str
    refusal: Refusal

    @classmethod
    def from_model(cls, refused: declaration.RefusedDeclaration) -> Self:
        """The refusal as JSON."""
        return cls(refused.kind, refused.name, Refusal.from_model(refused.error))

    def to_model(self) -> declaration.RefusedDeclaration:
        """The refusal."""
        return declaration.RefusedDeclaration(self.kind, self.name, self.refusal.to_model())


class StoredDeclarations(msgspec.Struct, frozen=True):
    """The result of storing declarations. `removed`: the limits that are not set, because they were removed by hand
    since the same declaration. `unsettled`: tasks that wait may not obey the settings before `/api/upkeep/settle`."""

    success: bool
    refused: list[RefusedDeclaration]
    removed: list[str]
    unsettled: bool

    @classmethod
    def from_model(cls, stored: declaration.StoredDeclarations) -> Self:
        """The result as an answer."""
        refused = [RefusedDeclaration.from_model(each) for each in stored.refused]
        return cls(success=True, refused=refused, removed=stored.removed, unsettled=stored.unsettled)

    def to_model(self) -> declaration.StoredDeclarations:
        """The result."""
        return declaration.StoredDeclarations(
            refused=[each.to_model() for each in self.refused],
            removed=self.removed,
            unsettled=self.unsettled,
        )


# Tasks that wait when a setting changes


class SettleBody(RequestBody, frozen=True):
    """A batch of tasks to bring in line with the settings."""

    after: Annotated[int, Meta(ge=0, le=2**63 - 1, description="`next_cursor` of the answer before.")] = 0
    limit: Annotated[int, Meta(ge=1, le=SETTLED_AT_ONCE, description="The size of the batch.")] = SETTLED_AT_ONCE
    change: Annotated[int, Meta(ge=0, le=2**63 - 1, description="`change` of the answer before.")] = 0


class Settled(msgspec.Struct, frozen=True):
    """How many tasks were brought in line. `next_cursor`: where the next batch begins; null if no task is left.
    `change`: the change of settings that all tasks obey after the last batch."""

    success: bool
    count: int
    next_cursor: int | None
    change: int = 0

    @classmethod
    def from_model(cls, settled: model.Settled) -> Self:
        """The batch as an answer."""
        return cls(success=True, count=settled.count, next_cursor=settled.after, change=settled.change)

    def to_model(self) -> model.Settled:
        """The batch."""
        return model.Settled(count=self.count, after=self.next_cursor, change=self.change)


# Groups of a queue


class WeightBody(RequestBody, frozen=True):
    """The weight of a group."""

    weight: Weight


class Group(msgspec.Struct, frozen=True):
    """A group of tasks in a queue. `waiting`: its pending tasks that wait for a limit or for their turn."""

    queue: str
    group: GroupText | None
    weight: float
    waiting: int = 0

    @classmethod
    def from_model(cls, group: model.GroupInfo) -> Self:
        """The group as JSON."""
        return cls(queue=group.queue, group=group.group, weight=group.weight, waiting=group.waiting)

    def to_model(self) -> model.GroupInfo:
        """The group."""
        return model.GroupInfo(queue=self.queue, group=self.group, weight=self.weight, waiting=self.waiting)


class Groups(msgspec.Struct, frozen=True):
    """A page of the groups of a queue that have a weight, or tasks that wait for a limit or for their turn."""

    groups: list[Group]
    next_cursor: NextCursor | None

    @classmethod
    def from_model(cls, groups: Sequence[model.GroupInfo], size: int) -> Self:
        """The groups as an answer. `size`: the number of groups of a full page."""
        return cls(groups=[Group.from_model(group) for group in groups], next_cursor=next_cursor(groups, size))

    def to_model(self) -> list[model.GroupInfo]:
        """The groups."""
        return [group.to_model() for group in self.groups]


class ChangedGroup(msgspec.Struct, frozen=True):
    """The group as it is now."""

    success: bool
    group: Group

    @classmethod
    def from_model(cls, group: model.GroupInfo) -> Self:
        """The group as an answer."""
        return cls(success=True, group=Group.from_model(group))

    def to_model(self) -> model.GroupInfo:
        """The group."""
        return self.group.to_model()
