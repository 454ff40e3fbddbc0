"""Administrative JSON: queues, workers, task types, statistics, keys, retention, upkeep, health."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import Meta, field

from dibs.codec import check_name
from dibs.model import registry as model_registry
from dibs.model import retention as model_retention
from dibs.model import statistics as model_statistics
from dibs.model import upkeep as model_upkeep
from dibs.model.checks import MAX_SECONDS
from dibs.model.key import STANDARD_LIMIT, ApiKey, MintedKey, NewKey, Scope, read_limit, write_limit
from dibs.model.registry import Heartbeat, QueueInfo, WorkerInfo, WorkerState
from dibs.model.retention import FINISHED, Records, RetentionTarget
from dibs.model.upkeep import BATCH, Pruned, PrunePosition, Verdict
from dibs.wire.fields import (
    BatchLimit,
    Count,
    JsonObject,
    Keep,
    Limit,
    Moment,
    Name,
    Names,
    Params,
    Query,
    RequestBody,
    Timestamp,
    WorkerId,
    checked_json,
    not_both,
    to_datetime,
    to_datetime_or_none,
    to_text,
    to_text_or_none,
    utc_or_none,
)
from dibs.wire.tasks import checked_params

# Queues


class Queue(msgspec.Struct, frozen=True):
    """A queue and how many tasks it holds in each state."""

    name: str
    paused: bool
    paused_at: Timestamp | None
    depth: dict[str, int]

    @classmethod
    def from_model(cls, queue: QueueInfo) -> Self:
        """The queue as JSON."""
        return cls(name=queue.name, paused=queue.paused, paused_at=to_text_or_none(queue.paused_at), depth=queue.depth)

    def to_model(self) -> QueueInfo:
        """The queue."""
        return QueueInfo(
            name=self.name, paused=self.paused, paused_at=to_datetime_or_none(self.paused_at), depth=self.depth
        )


class Queues(msgspec.Struct, frozen=True):
    """Every queue that holds a task or has been paused."""

    queues: list[Queue]

    @classmethod
    def from_model(cls, queues: Sequence[QueueInfo]) -> Self:
        """The queues as an answer."""
        return cls(queues=[Queue.from_model(queue) for queue in queues])

    def to_model(self) -> list[QueueInfo]:
        """The queues."""
        return [queue.to_model() for queue in self.queues]


class Gated(msgspec.Struct, frozen=True):
    """The queue, and whether it is paused now."""

    success: bool
    queue: str
    paused: bool

    @classmethod
    def from_model(cls, queue: str, paused: bool) -> Self:
        """The state of the queue as an answer."""
        return cls(success=True, queue=queue, paused=paused)

    def to_model(self) -> None:
        """Nothing: the request said what the queue is now."""


# Workers

Served = Annotated[list[Name], Meta(description="What the worker serves; left out, everything.")]


class HeartbeatBody(RequestBody, frozen=True):
    """A worker's sign of life."""

    worker_id: WorkerId
    incarnation: Annotated[Name, Meta(description="Tells two lives of a worker of the same name apart.")] | None = None
    queues: Served | None = None
    types: Served | None = field(name="task_types", default=None)
    metadata: Annotated[Params, Meta(description="Whatever helps to find the worker.")] = field(default_factory=dict)
    leaving: Annotated[bool, Meta(description="True: it says goodbye.")] = False

    @classmethod
    def from_model(cls, beat: Heartbeat) -> Self:
        """The heartbeat to send; values that dibs does not store are refused."""
        return cls(
            worker_id=beat.worker_id,
            incarnation=beat.incarnation or None,
            queues=None if beat.queues is None else checked_json(list(beat.queues), "queues"),
            types=None if beat.types is None else checked_json(list(beat.types), "types"),
            metadata=checked_json(beat.metadata, "metadata") if beat.metadata else {},
            leaving=beat.leaving,
        )

    def to_model(self, queues: Sequence[str] | None) -> Heartbeat:
        """The heartbeat, checked. `queues`: those of `queues` that the caller may see."""
        return Heartbeat(
            worker_id=self.worker_id,
            incarnation=self.incarnation or "",
            queues=queues,
            types=self.types,
            metadata=self.metadata,
            leaving=self.leaving,
        )


class Worker(msgspec.Struct, frozen=True):
    """A worker and the ids of the tasks it holds."""

    id: str
    incarnation: str
    state: WorkerState
    queues: list[str] | None
    types: list[str] | None = field(name="task_types")
    metadata: JsonObject
    started_at: Timestamp
    heartbeat_at: Timestamp
    stopped_at: Timestamp | None
    holds: list[int]

    @classmethod
    def from_model(cls, worker: WorkerInfo) -> Self:
        """The worker as JSON."""
        return cls(
            id=worker.id,
            incarnation=worker.incarnation,
            state=worker.state,
            queues=worker.queues,
            types=worker.types,
            metadata=worker.metadata,
            started_at=to_text(worker.started_at),
            heartbeat_at=to_text(worker.heartbeat_at),
            stopped_at=to_text_or_none(worker.stopped_at),
            holds=worker.holds,
        )

    def to_model(self) -> WorkerInfo:
        """The worker."""
        return WorkerInfo(
            id=self.id,
            incarnation=self.incarnation,
            state=self.state,
            queues=self.queues,
            types=self.types,
            metadata=self.metadata,
            started_at=to_datetime(self.started_at),
            heartbeat_at=to_datetime(self.heartbeat_at),
            stopped_at=to_datetime_or_none(self.stopped_at),
            holds=self.holds,
        )


class Workers(msgspec.Struct, frozen=True):
    """Every worker that was heard of."""

    workers: list[Worker]

    @classmethod
    def from_model(cls, workers: Sequence[WorkerInfo]) -> Self:
        """The workers as an answer."""
        return cls(workers=[Worker.from_model(worker) for worker in workers])

    def to_model(self) -> list[WorkerInfo]:
        """The workers."""
        return [worker.to_model() for worker in self.workers]


# Task types


class NewTypeBody(RequestBody, frozen=True):
    """A task type to register."""

    name: Name
    schema: Annotated[dict[str, Any] | bool | None, Meta(description="A JSON Schema for the params.")] = None
    defaults: Annotated[Params, Meta(description="Params that a task has where it does not give them.")] = field(
        default_factory=dict
    )

    @classmethod
    def from_model(cls, name: str, schema: dict[str, Any] | bool | None, defaults: dict[str, Any]) -> Self:
        """The type to send; values that dibs does not store are refused."""
        return cls(
            name=check_name(name, "The task type"),
            schema=None if schema is None else checked_json(schema, "schema"),
            defaults=checked_params(defaults),
        )


class TypeQuery(Query, frozen=True):
    """Which version."""

    version: Annotated[int, Meta(ge=1, le=2**31 - 1, description="The newest if left out.")] | None = None


class TaskType(msgspec.Struct, frozen=True):
    """One version of a registered task type."""

    name: str
    version: int
    schema: JsonObject | bool | None
    defaults: JsonObject
    created_at: Timestamp

    @classmethod
    def from_model(cls, kind: model_registry.TaskType) -> Self:
        """The type as JSON."""
        return cls(
            name=kind.name,
            version=kind.version,
            schema=kind.schema,
            defaults=kind.defaults,
            created_at=to_text(kind.created_at),
        )

    def to_model(self) -> model_registry.TaskType:
        """The type."""
        return model_registry.TaskType(
            name=self.name,
            version=self.version,
            schema=self.schema,
            defaults=self.defaults,
            created_at=to_datetime(self.created_at),
        )


class RegisteredType(msgspec.Struct, frozen=True):
    """The version that now holds."""

    success: bool
    type: TaskType = field(name="task_type")

    @classmethod
    def from_model(cls, kind: model_registry.TaskType) -> Self:
        """The type as an answer."""
        return cls(success=True, type=TaskType.from_model(kind))

    def to_model(self) -> model_registry.TaskType:
        """The type."""
        return self.type.to_model()


class OneType(msgspec.Struct, frozen=True):
    """One version of a task type."""

    type: TaskType = field(name="task_type")

    @classmethod
    def from_model(cls, kind: model_registry.TaskType) -> Self:
        """The type as an answer."""
        return cls(type=TaskType.from_model(kind))

    def to_model(self) -> model_registry.TaskType:
        """The type."""
        return self.type.to_model()


class TaskTypes(msgspec.Struct, frozen=True):
    """All versions of all task types."""

    types: list[TaskType] = field(name="task_types")

    @classmethod
    def from_model(cls, kinds: Sequence[model_registry.TaskType]) -> Self:
        """The types as an answer."""
        return cls(types=[TaskType.from_model(kind) for kind in kinds])

    def to_model(self) -> list[model_registry.TaskType]:
        """The types."""
        return [kind.to_model() for kind in self.types]


# Statistics


class Percentiles(msgspec.Struct, frozen=True):
    """Seconds; null while nothing has completed."""

    p50: float | None
    p95: float | None
    p99: float | None

    @classmethod
    def from_model(cls, values: model_statistics.Percentiles) -> Self:
        """The percentiles as JSON."""
        return cls(p50=values.p50, p95=values.p95, p99=values.p99)

    def to_model(self) -> model_statistics.Percentiles:
        """The percentiles."""
        return model_statistics.Percentiles(p50=self.p50, p95=self.p95, p99=self.p99)


class Stats(msgspec.Struct, frozen=True):
    """The whole store in numbers; percentiles are over the last 1,000 completed tasks."""

    depth: dict[str, int]
    by_queue: dict[str, dict[str, int]]
    by_type: dict[str, dict[str, int]]
    oldest_pending_age: float | None = field(name="oldest_pending_age_seconds")
    finished_last_minute: dict[str, int]
    finished_last_hour: dict[str, int]
    wait: Percentiles = field(name="wait_seconds")
    run: Percentiles = field(name="run_seconds")
    dead_letter: Annotated[int, Meta(description="Failed tasks that are neither ignored nor discarded.")]

    @classmethod
    def from_model(cls, stats: model_statistics.Stats) -> Self:
        """The statistics as JSON."""
        return cls(
            depth=stats.depth,
            by_queue=stats.by_queue,
            by_type=stats.by_type,
            oldest_pending_age=stats.oldest_pending_age,
            finished_last_minute=stats.finished_last_minute,
            finished_last_hour=stats.finished_last_hour,
            wait=Percentiles.from_model(stats.wait),
            run=Percentiles.from_model(stats.run),
            dead_letter=stats.dead_letter,
        )

    def to_model(self) -> model_statistics.Stats:
        """The statistics."""
        return model_statistics.Stats(
            depth=self.depth,
            by_queue=self.by_queue,
            by_type=self.by_type,
            oldest_pending_age=self.oldest_pending_age,
            finished_last_minute=self.finished_last_minute,
            finished_last_hour=self.finished_last_hour,
            wait=self.wait.to_model(),
            run=self.run.to_model(),
            dead_letter=self.dead_letter,
        )


class OneStats(msgspec.Struct, frozen=True):
    """The store in numbers."""

    stats: Stats

    @classmethod
    def from_model(cls, stats: model_statistics.Stats) -> Self:
        """The statistics as an answer."""
        return cls(stats=Stats.from_model(stats))

    def to_model(self) -> model_statistics.Stats:
        """The statistics."""
        return self.stats.to_model()


# Keys


class NewKeyBody(RequestBody, frozen=True):
    """A key to make."""

    rules = (not_both("expires_at", "expires_in_seconds"),)

    name: Annotated[Name, Meta(description="Whose it is, or what for.", examples=["scraper fleet"])]
    scopes: Annotated[list[Scope], Meta(min_length=1, description="What it may be used for; admin has them all.")]
    queues: Annotated[Names, Meta(description="The only queues it is for; all if left out.")] | None = None
    rate_limit: Limit = write_limit(STANDARD_LIMIT)
    expires_at: Moment | None = None
    expires_in: Annotated[float, Meta(ge=0.001, le=MAX_SECONDS, description="Instead of expires_at.")] | None = field(
        name="expires_in_seconds", default=None
    )

    @classmethod
    def from_model(cls, new: NewKey) -> Self:
        """The key to send."""
        return cls(
            name=new.name,
            scopes=[Scope(scope) for scope in new.scopes],
            queues=None if new.queues is None else list(new.queues),
            rate_limit=write_limit(new.rate_limit),
            expires_at=utc_or_none(new.expires_at),
            expires_in=new.expires_in,
        )

    def to_model(self) -> NewKey:
        """The key, checked."""
        return NewKey(
            name=self.name,
            scopes=self.scopes,
            queues=self.queues,
            rate_limit=read_limit(self.rate_limit),
            expires_in=self.expires_in,
            expires_at=self.expires_at,
        )


class KeyFields(msgspec.Struct, frozen=True):
    """What is shown of a key, without anything that would help to guess it."""

    id: str
    name: str
    scopes: list[Scope]
    queues: list[str] | None
    rate_limit: str
    created_at: Timestamp
    created_by: str | None
    expires_at: Timestamp | None
    revoked_at: Timestamp | None
    last_used_at: Timestamp | None

    def about(self) -> ApiKey:
        """The key. The seconds until it expires are not known here: the database's clock counts them."""
        return ApiKey(
            id=self.id,
            name=self.name,
            scopes=tuple(self.scopes),
            queues=None if self.queues is None else tuple(self.queues),
            rate_limit=read_limit(self.rate_limit),
            created_at=to_datetime(self.created_at),
            created_by=self.created_by,
            expires_at=to_datetime_or_none(self.expires_at),
            revoked_at=to_datetime_or_none(self.revoked_at),
            last_used_at=to_datetime_or_none(self.last_used_at),
        )


def _about(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "scopes": list(key.scopes),
        "queues": None if key.queues is None else list(key.queues),
        "rate_limit": write_limit(key.rate_limit),
        "created_at": to_text(key.created_at),
        "created_by": key.created_by,
        "expires_at": to_text_or_none(key.expires_at),
        "revoked_at": to_text_or_none(key.revoked_at),
        "last_used_at": to_text_or_none(key.last_used_at),
    }


class Key(KeyFields, frozen=True):
    """An API key, without anything that would help to guess it. `queues`: null for all; `rate_limit`: or "none"."""

    @classmethod
    def from_model(cls, key: ApiKey) -> Self:
        """The key as JSON."""
        return cls(**_about(key))

    def to_model(self) -> ApiKey:
        """The key."""
        return self.about()


class Minted(KeyFields, frozen=True):
    """A new key. `key` is its text: nobody can read it again."""

    success: bool
    key: str

    @classmethod
    def from_model(cls, minted: MintedKey) -> Self:
        """The key as an answer."""
        return cls(**_about(minted.about), success=True, key=minted.key)

    def to_model(self) -> MintedKey:
        """The key."""
        return MintedKey(key=self.key, about=self.about())

    def __repr__(self) -> str:
        return f"Minted({self.id!r}, {self.name!r})"


class Keys(msgspec.Struct, frozen=True):
    """All keys."""

    keys: list[Key]

    @classmethod
    def from_model(cls, keys: Sequence[ApiKey]) -> Self:
        """The keys as an answer."""
        return cls(keys=[Key.from_model(key) for key in keys])

    def to_model(self) -> list[ApiKey]:
        """The keys."""
        return [key.to_model() for key in self.keys]


class Revoked(msgspec.Struct, frozen=True):
    """The key, and since when nobody may use it."""

    success: bool
    id: str
    revoked_at: Timestamp | None

    @classmethod
    def from_model(cls, key: ApiKey) -> Self:
        """The revoked key as an answer."""
        return cls(success=True, id=key.id, revoked_at=to_text_or_none(key.revoked_at))


# Retention


def _has_no(name: str) -> dict[str, Any]:
    """The rule that history and workers have one retention for the whole store, without this field."""
    whole_store = [records.value for records in Records if records not in FINISHED]
    given = {"records": {"enum": whole_store}, name: {"not": {"type": "null"}}}
    return {"not": {"required": ["records", name], "properties": given}}


class TargetBody(RequestBody, frozen=True, kw_only=True):
    """The rule that is meant. Without a queue, task type or workflow it is the default of the store."""

    rules = (
        not_both("queue", "task_type"),
        not_both("queue", "workflow"),
        not_both("task_type", "workflow"),
        *(_has_no(name) for name in ("queue", "task_type", "workflow")),
    )

    records: Annotated[
        Records, Meta(description="What is kept. History and workers have one rule for the whole store.")
    ]
    queue: Annotated[Name, Meta(description="Only records of this queue.")] | None = None
    type: (
        Annotated[Name, Meta(description="Only tasks of this type; takes precedence over a rule for a queue.")] | None
    ) = field(name="task_type", default=None)
    workflow: Annotated[Name, Meta(description="Only workflows of this name, with their steps.")] | None = None

    @classmethod
    def from_model(cls, target: RetentionTarget) -> Self:
        """The target to send."""
        return cls(**_target(target))

    def to_model(self) -> RetentionTarget:
        """What the rule applies to, checked."""
        return RetentionTarget(records=self.records, queue=self.queue, type=self.type, workflow=self.workflow)


def _target(target: RetentionTarget) -> dict[str, Any]:
    return {
        "records": Records(target.records),
        "queue": target.queue,
        "type": target.type,
        "workflow": target.workflow,
    }


class RuleBody(TargetBody, frozen=True, kw_only=True):
    """A retention rule to set. Without a queue, task type or workflow it is the default of the store."""

    keep: Keep | None = field(name="keep_seconds")

    @classmethod
    def of(cls, target: RetentionTarget, keep: float | None) -> Self:
        """The rule to send."""
        return cls(**_target(target), keep=keep)


class RetentionRule(msgspec.Struct, frozen=True):
    """How long some records are kept. `keep_seconds`: null for ever, 0 until the next upkeep. Without a queue, task
    type or workflow it is the default of the store; `changed_at` is null where that was never changed."""

    records: Records
    keep: float | None = field(name="keep_seconds")
    queue: str | None
    type: str | None = field(name="task_type")
    workflow: str | None
    changed_at: Timestamp | None
    changed_by: str | None

    @classmethod
    def from_model(cls, rule: model_retention.RetentionRule) -> Self:
        """The rule as JSON."""
        return cls(
            records=rule.records,
            keep=rule.keep,
            queue=rule.queue,
            type=rule.type,
            workflow=rule.workflow,
            changed_at=to_text_or_none(rule.changed_at),
            changed_by=rule.changed_by,
        )

    def to_model(self) -> model_retention.RetentionRule:
        """The rule."""
        return model_retention.RetentionRule(
            records=self.records,
            keep=self.keep,
            queue=self.queue,
            type=self.type,
            workflow=self.workflow,
            changed_at=to_datetime_or_none(self.changed_at),
            changed_by=self.changed_by,
        )


class RetentionRules(msgspec.Struct, frozen=True):
    """The default for each kind of records, then the rules for types, queues and workflows."""

    rules: list[RetentionRule]

    @classmethod
    def from_model(cls, rules: Sequence[model_retention.RetentionRule]) -> Self:
        """The rules as an answer."""
        return cls(rules=[RetentionRule.from_model(rule) for rule in rules])

    def to_model(self) -> list[model_retention.RetentionRule]:
        """The rules."""
        return [rule.to_model() for rule in self.rules]


class ChangedRule(msgspec.Struct, frozen=True):
    """The rule as it is stored now."""

    success: bool
    rule: RetentionRule

    @classmethod
    def from_model(cls, rule: model_retention.RetentionRule) -> Self:
        """The rule as an answer."""
        return cls(success=True, rule=RetentionRule.from_model(rule))

    def to_model(self) -> model_retention.RetentionRule:
        """The rule."""
        return self.rule.to_model()


class RetentionChange(msgspec.Struct, frozen=True):
    """A change of a retention rule: set to `keep_seconds` (null for ever), or removed."""

    id: int
    at: Timestamp
    by: str | None
    records: Records
    keep: float | None = field(name="keep_seconds")
    removed: bool
    queue: str | None
    type: str | None = field(name="task_type")
    workflow: str | None

    @classmethod
    def from_model(cls, change: model_retention.RetentionChange) -> Self:
        """The change as JSON."""
        return cls(
            id=change.id,
            at=to_text(change.at),
            by=change.by,
            records=change.records,
            keep=change.keep,
            removed=change.removed,
            queue=change.queue,
            type=change.type,
            workflow=change.workflow,
        )

    def to_model(self) -> model_retention.RetentionChange:
        """The change."""
        return model_retention.RetentionChange(
            id=self.id,
            at=to_datetime(self.at),
            by=self.by,
            records=self.records,
            keep=self.keep,
            removed=self.removed,
            queue=self.queue,
            type=self.type,
            workflow=self.workflow,
        )


class RetentionChanges(msgspec.Struct, frozen=True):
    """Changes of retention rules, newest first."""

    changes: list[RetentionChange]

    @classmethod
    def from_model(cls, changes: Sequence[model_retention.RetentionChange]) -> Self:
        """The changes as an answer."""
        return cls(changes=[RetentionChange.from_model(change) for change in changes])

    def to_model(self) -> list[model_retention.RetentionChange]:
        """The changes."""
        return [change.to_model() for change in self.changes]


class ChangesQuery(Query, frozen=True):
    """A page of changes."""

    limit: Count = 100


# Upkeep and health


class LimitBody(RequestBody, frozen=True):
    """How many at most."""

    limit: BatchLimit = BATCH


class PruneBody(LimitBody, frozen=True):
    """How many at most, and from where."""

    after: Annotated[str, Meta(max_length=1000, description="`next` of the answer before.")] | None = None

    @classmethod
    def from_model(cls, limit: int, after: PrunePosition | None) -> Self:
        """The position to send."""
        return cls(limit=limit, after=None if after is None else after.write())

    def to_model(self) -> PrunePosition | None:
        """The position, checked; None for the oldest records."""
        return None if self.after is None else PrunePosition.read(self.after)


class PrunedAnswer(msgspec.Struct, frozen=True):
    """One batch of pruning is done."""

    success: bool
    count: Annotated[int, Meta(description="Rows deleted.")]
    next: Annotated[str, Meta(description="Pass it as `after` for the next batch. Null: the pass is complete.")] | None

    @classmethod
    def from_model(cls, done: Pruned) -> Self:
        """The result as an answer."""
        return cls(success=True, count=done.count, next=None if done.next is None else done.next.write())

    def to_model(self) -> Pruned:
        """The result."""
        return Pruned(count=self.count, next=None if self.next is None else PrunePosition.read(self.next))


class Check(msgspec.Struct, frozen=True):
    """One finding of the doctor."""

    name: str
    verdict: Verdict
    message: str
    hint: str

    @classmethod
    def from_model(cls, check: model_upkeep.Check) -> Self:
        """The finding as JSON."""
        return cls(name=check.name, verdict=check.verdict, message=check.message, hint=check.hint)

    def to_model(self) -> model_upkeep.Check:
        """The finding."""
        return model_upkeep.Check(name=self.name, verdict=self.verdict, message=self.message, hint=self.hint)


class Checks(msgspec.Struct, frozen=True):
    """Everything that was looked at."""

    checks: list[Check]

    @classmethod
    def from_model(cls, checks: Sequence[model_upkeep.Check]) -> Self:
        """The findings as an answer."""
        return cls(checks=[Check.from_model(check) for check in checks])

    def to_model(self) -> list[model_upkeep.Check]:
        """The findings."""
        return [check.to_model() for check in self.checks]


class Alive(msgspec.Struct, frozen=True):
    """The process answers."""

    status: Literal["alive"] = "alive"


class Ready(msgspec.Struct, frozen=True):
    """The database answers as well."""

    status: Literal["ready"] = "ready"

    def to_model(self) -> None:
        """Nothing: that it answers is all."""
