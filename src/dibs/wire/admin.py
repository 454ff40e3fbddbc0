"""Administrative JSON: queues, workers, task types, statistics, upkeep, health."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import Meta, field

from dibs.json_values import check_name
from dibs.model import registry as model_registry
from dibs.model import statistics as model_statistics
from dibs.model import upkeep as model_upkeep
from dibs.model.declaration import DECLARED_AT_ONCE, RefusedDeclaration
from dibs.model.limit import SettingSource
from dibs.model.registry import DeclaredSchema, Heartbeat, QueueInfo, WorkerInfo, WorkerState
from dibs.model.upkeep import BATCH, Pruned, PrunePosition, Verdict
from dibs.wire.fields import (
    BatchLimit,
    JsonObject,
    Name,
    Params,
    Query,
    RequestBody,
    Timestamp,
    WorkerId,
    checked_json,
    to_datetime,
    to_datetime_or_none,
    to_text,
    to_text_or_none,
)
from dibs.wire.limits import RefusedDeclaration as WireRefusal
from dibs.wire.tasks import checked_params

# Queues


class Queue(msgspec.Struct, frozen=True):
    """A queue, and the number of its tasks in each state."""

    name: str
    paused: bool
    paused_at: Timestamp | None
    depth: dict[str, int]
    parked: int = 0

    @classmethod
    def from_model(cls, queue: QueueInfo) -> Self:
        """The queue as JSON."""
        return cls(
            name=queue.name,
            paused=queue.paused,
            paused_at=to_text_or_none(queue.paused_at),
            depth=queue.depth,
            parked=queue.parked,
        )

    def to_model(self) -> QueueInfo:
        """The queue."""
        return QueueInfo(
            name=self.name,
            paused=self.paused,
            paused_at=to_datetime_or_none(self.paused_at),
            depth=self.depth,
            parked=self.parked,
        )


class Queues(msgspec.Struct, frozen=True):
    """Every queue that has tasks or was paused."""

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
        """None: the request determines the state of the queue."""


class GatedType(msgspec.Struct, frozen=True):
    """The task type, and whether it is paused now."""

    success: bool
    type: str = field(name="task_type")
    paused: bool

    @classmethod
    def from_model(cls, name: str, paused: bool) -> Self:
        """The state of the type as an answer."""
        return cls(success=True, type=name, paused=paused)

    def to_model(self) -> None:
        """None: the request determines the state of the type."""


class PausedType(msgspec.Struct, frozen=True):
    """A paused task type, registered or not."""

    name: str
    paused_at: Timestamp

    @classmethod
    def from_model(cls, paused: model_registry.PausedType) -> Self:
        """The type as JSON."""
        return cls(name=paused.name, paused_at=to_text(paused.paused_at))

    def to_model(self) -> model_registry.PausedType:
        """The type."""
        return model_registry.PausedType(name=self.name, paused_at=to_datetime(self.paused_at))


class PausedTypes(msgspec.Struct, frozen=True):
    """The paused task types by name."""

    types: list[PausedType] = field(name="task_types")

    @classmethod
    def from_model(cls, paused: Sequence[model_registry.PausedType]) -> Self:
        """The types as an answer."""
        return cls(types=[PausedType.from_model(each) for each in paused])

    def to_model(self) -> list[model_registry.PausedType]:
        """The types."""
        return [each.to_model() for each in self.types]


# Workers

Served = Annotated[list[Name], Meta(description="What the worker serves; by default everything.")]


class HeartbeatBody(RequestBody, frozen=True):
    """A heartbeat of a worker."""

    worker_id: WorkerId
    incarnation: Annotated[Name, Meta(description="Tells two processes with the same worker id apart.")] | None = None
    queues: Served | None = None
    types: Served | None = field(name="task_types", default=None)
    metadata: Annotated[Params, Meta(description="Any data about the worker, for people.")] = field(
        default_factory=dict
    )
    leaving: Annotated[bool, Meta(description="True: the worker stops.")] = False

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
        """The heartbeat, checked. `queues`: the requested queues that the caller has access to."""
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
    """Every registered worker."""

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
    defaults: Annotated[Params, Meta(description="Default values of params.")] = field(default_factory=dict)

    @classmethod
    def from_model(cls, name: str, schema: dict[str, Any] | bool | None, defaults: dict[str, Any]) -> Self:
        """The type to send; values that dibs does not store are refused."""
        return cls(
            name=check_name(name, "The task type"),
            schema=None if schema is None else checked_json(schema, "schema"),
            defaults=checked_params(defaults),
        )


class TypeQuery(Query, frozen=True):
    """The version to read."""

    version: Annotated[int, Meta(ge=1, le=2**31 - 1, description="By default the newest.")] | None = None


class TaskType(msgspec.Struct, frozen=True):
    """One version of a registered task type."""

    name: str
    version: int
    schema: JsonObject | bool | None
    defaults: JsonObject
    created_at: Timestamp
    paused_at: Timestamp | None = None
    source: SettingSource = "command"

    @classmethod
    def from_model(cls, kind: model_registry.TaskType) -> Self:
        """The type as JSON."""
        return cls(
            name=kind.name,
            version=kind.version,
            schema=kind.schema,
            defaults=kind.defaults,
            created_at=to_text(kind.created_at),
            paused_at=to_text_or_none(kind.paused_at),
            source=kind.source,
        )

    def to_model(self) -> model_registry.TaskType:
        """The type."""
        return model_registry.TaskType(
            name=self.name,
            version=self.version,
            schema=self.schema,
            defaults=self.defaults,
            created_at=to_datetime(self.created_at),
            paused_at=to_datetime_or_none(self.paused_at),
            source=self.source,
        )


class RegisteredType(msgspec.Struct, frozen=True):
    """The registered version of the task type."""

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


class DeclaredSchemaBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON Schema that a program declares for a task type. null: the program declares none."""

    type: Name = field(name="task_type")
    schema: dict[str, Any] | None


class DeclaredSchemasBody(RequestBody, frozen=True):
    """The JSON Schemas that a program declares."""

    schemas: Annotated[list[DeclaredSchemaBody], Meta(max_length=DECLARED_AT_ONCE, description="One for each type.")]

    @classmethod
    def from_model(cls, schemas: Sequence[DeclaredSchema]) -> Self:
        """The schemas to send."""
        return cls(schemas=[DeclaredSchemaBody(each.type, each.schema) for each in schemas])

    def to_model(self) -> list[DeclaredSchema]:
        """The schemas."""
        return [DeclaredSchema(each.type, each.schema) for each in self.schemas]


class StoredSchemas(msgspec.Struct, frozen=True):
    """The result of storing schemas."""

    success: bool
    refused: list[WireRefusal]

    @classmethod
    def from_model(cls, refused: Sequence[RefusedDeclaration]) -> Self:
        """The result as an answer."""
        return cls(success=True, refused=[WireRefusal.from_model(each) for each in refused])

    def to_model(self) -> list[RefusedDeclaration]:
        """The refused schemas."""
        return [each.to_model() for each in self.refused]


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
    """Percentiles in seconds; null while no task has completed."""

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
    """Statistics of the store. Percentiles are those of the last 1,000 completed tasks."""

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
    """Statistics of the store."""

    stats: Stats

    @classmethod
    def from_model(cls, stats: model_statistics.Stats) -> Self:
        """The statistics as an answer."""
        return cls(stats=Stats.from_model(stats))

    def to_model(self) -> model_statistics.Stats:
        """The statistics."""
        return self.stats.to_model()


# Upkeep and health


class LimitBody(RequestBody, frozen=True):
    """The size of a batch."""

    limit: BatchLimit = BATCH


class PruneBody(LimitBody, frozen=True):
    """The size of a batch of pruning, and its position."""

    after: Annotated[str, Meta(max_length=1000, description="`next` of the answer before.")] | None = None

    @classmethod
    def from_model(cls, limit: int, after: PrunePosition | None) -> Self:
        """The position to send."""
        return cls(limit=limit, after=None if after is None else after.write())

    def to_model(self) -> PrunePosition | None:
        """The position, checked; None for the oldest records."""
        return None if self.after is None else PrunePosition.read(self.after)


class PrunedAnswer(msgspec.Struct, frozen=True):
    """The result of one batch of pruning."""

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
    """The result of one check of the doctor."""

    name: str
    verdict: Verdict
    message: str
    hint: str

    @classmethod
    def from_model(cls, check: model_upkeep.Check) -> Self:
        """The check as JSON."""
        return cls(name=check.name, verdict=check.verdict, message=check.message, hint=check.hint)

    def to_model(self) -> model_upkeep.Check:
        """The check."""
        return model_upkeep.Check(name=self.name, verdict=self.verdict, message=self.message, hint=self.hint)


class Checks(msgspec.Struct, frozen=True):
    """The results of all checks of the doctor."""

    checks: list[Check]

    @classmethod
    def from_model(cls, checks: Sequence[model_upkeep.Check]) -> Self:
        """The checks as an answer."""
        return cls(checks=[Check.from_model(check) for check in checks])

    def to_model(self) -> list[model_upkeep.Check]:
        """The checks."""
        return [check.to_model() for check in self.checks]


class Alive(msgspec.Struct, frozen=True):
    """The server process is running."""

    status: Literal["alive"] = "alive"


class Ready(msgspec.Struct, frozen=True):
    """The server process is running, and its database answers."""

    status: Literal["ready"] = "ready"

    def to_model(self) -> None:
        """None: the answer has no value."""
