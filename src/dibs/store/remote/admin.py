"""Administration over HTTP: task types, workers, queues, schedules, upkeep, retention, keys, statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dibs.errors import InvalidValue, KeyNotFound
from dibs.json_values import check_name
from dibs.model.checks import check_integer, check_seconds
from dibs.model.declaration import RefusedDeclaration
from dibs.model.key import ApiKey, MintedKey, NewKey, is_key_id
from dibs.model.registry import DeclaredSchema, Heartbeat, PausedType, QueueInfo, TaskType, WorkerInfo
from dibs.model.retention import RetentionChange, RetentionRule, RetentionTarget
from dibs.model.schedule import DueSchedule, NewSchedule, Schedule, ScheduleSource, check_schedule_name
from dibs.model.statistics import Stats
from dibs.model.task import Task
from dibs.model.upkeep import BATCH, Pruned, PrunePosition
from dibs.store.operation import Operation
from dibs.store.remote.decode import reader, reader_or
from dibs.store.remote.request import HttpCall, HttpCalls, api_path, get, post, read_operation, write_operation
from dibs.wire import schedules
from dibs.wire.admin import (
    DeclaredSchemasBody,
    Gated,
    GatedType,
    HeartbeatBody,
    LimitBody,
    NewTypeBody,
    OneStats,
    OneType,
    PausedTypes,
    PruneBody,
    PrunedAnswer,
    Queues,
    RegisteredType,
    StoredSchemas,
    TaskTypes,
    TypeQuery,
    Workers,
)
from dibs.wire.claims import DueIn
from dibs.wire.fields import Counted, Done
from dibs.wire.keys import Keys, Minted, NewKeyBody
from dibs.wire.retention import ChangedRule, ChangesQuery, RetentionChanges, RetentionRules, RuleBody, TargetBody
from dibs.wire.tasks import ChangedTask

_read_done = reader(Done)
_read_count = reader(Counted)
_read_registered = reader(RegisteredType)
_read_type = reader(OneType)
_read_types = reader(TaskTypes)
_read_stored_schemas = reader(StoredSchemas)
_read_workers = reader(Workers)
_read_queue_changed = reader(Gated)
_read_type_changed = reader(GatedType)
_read_paused_types = reader(PausedTypes)
_read_queues = reader(Queues)
_read_stats = reader(OneStats)
_read_schedule = reader(schedules.OneSchedule)
_read_changed = reader(schedules.ChangedSchedule)
_read_schedules = reader(schedules.Schedules)
_read_due = reader(schedules.DueSchedules)
_read_ticked = reader_or(Counted, 0)
_read_task = reader(ChangedTask)
_read_seconds = reader(DueIn)
_read_pruned = reader(PrunedAnswer)
_read_rule = reader(ChangedRule)
_read_rules = reader(RetentionRules)
_read_changes = reader(RetentionChanges)
_read_minted = reader(Minted)
_read_keys = reader(Keys)


class RemoteRegistry:
    """Task types, workers and queues. See RegistryOperations."""

    def register_type(
        self, name: str, schema: dict[str, Any] | bool | None, defaults: dict[str, Any]
    ) -> Operation[TaskType]:
        """Register a new version of a task type, unless its newest is the same."""
        call = post("/api/task-types", NewTypeBody.from_model(name, schema, defaults))
        return write_operation("register_type", call, _read_registered)

    def declare_schemas(self, schemas: Sequence[DeclaredSchema]) -> Operation[Sequence[RefusedDeclaration]]:
        """Store the schemas that a program declares for its task types."""
        call = post("/api/declarations/schemas", DeclaredSchemasBody.from_model(schemas))
        return write_operation("declare_schemas", call, _read_stored_schemas)

    def get_type(self, name: str, version: int | None) -> Operation[TaskType]:
        """The newest version of a task type, or the given one."""
        check_name(name, "The task type")
        if version is not None:
            check_integer(version, "version", 1, 2**31 - 1)
        return read_operation("get_type", get(api_path("task-types", name), TypeQuery(version=version)), _read_type)

    def list_types(self) -> Operation[list[TaskType]]:
        """All versions of all task types, newest version first."""
        return read_operation("list_types", get("/api/task-types"), _read_types)

    def heartbeat(self, beat: Heartbeat) -> Operation[None]:
        """Register the worker, or record that it is alive (or leaves)."""
        return write_operation("heartbeat", post("/api/workers/heartbeat", HeartbeatBody.from_model(beat)), _read_done)

    def workers(self) -> Operation[list[WorkerInfo]]:
        """Every known worker, with the ids of the tasks that it holds."""
        return read_operation("workers", get("/api/workers"), _read_workers)

    def queues(self) -> Operation[list[QueueInfo]]:
        """Every queue that holds a task or is paused."""
        return read_operation("queues", get("/api/queues"), _read_queues)

    def pause(self, queue: str) -> Operation[None]:
        """Stop claims from the queue until it is resumed."""
        check_name(queue, "The queue")
        return write_operation("pause", post(api_path("queues", queue, "pause")), _read_queue_changed, wakes=True)

    def resume(self, queue: str) -> Operation[None]:
        """Allow claims from the queue again."""
        check_name(queue, "The queue")
        return write_operation("resume", post(api_path("queues", queue, "resume")), _read_queue_changed, wakes=True)

    def pause_type(self, name: str) -> Operation[None]:
        """Stop claims of tasks of this type until it is resumed."""
        check_name(name, "The task type")
        return write_operation("pause", post(api_path("task-types", name, "pause")), _read_type_changed, wakes=True)

    def resume_type(self, name: str) -> Operation[None]:
        """Allow claims of tasks of this type again."""
        check_name(name, "The task type")
        return write_operation("resume", post(api_path("task-types", name, "resume")), _read_type_changed, wakes=True)

    def paused_types(self) -> Operation[list[PausedType]]:
        """The paused task types by name, registered or not."""
        return read_operation("paused_types", get("/api/paused-task-types"), _read_paused_types)


class RemoteSchedules:
    """Schedules and their ticks. See ScheduleOperations."""

    def put_schedule(self, new: NewSchedule, source: ScheduleSource) -> Operation[Schedule]:
        """Store the schedule, or change the schedule of the same name."""
        if source not in ("code", "command"):
            raise InvalidValue(f"The source of a schedule is 'code' or 'command', not {source!r}.")
        call = post("/api/schedules", schedules.ScheduleBody.from_model(new, source))
        return write_operation("put_schedule", call, _read_changed, wakes=True)

    def list_schedules(self) -> Operation[list[Schedule]]:
        """All schedules, by name."""
        return read_operation("list_schedules", get("/api/schedules"), _read_schedules)

    def get_schedule(self, name: str) -> Operation[Schedule]:
        """The schedule, or ScheduleNotFound."""
        return read_operation("get_schedule", get(_schedule_path(name)), _read_schedule)

    def remove_schedule(self, name: str) -> Operation[None]:
        """Remove the schedule. Must not be repeated: a second request finds no such schedule."""
        return write_operation("remove_schedule", HttpCall("DELETE", _schedule_path(name), safe=False), _read_done)

    def enable_schedule(self, name: str) -> Operation[Schedule]:
        """Enable a disabled schedule, from now on."""
        return write_operation("enable_schedule", post(_schedule_path(name, "enable")), _read_changed, wakes=True)

    def disable_schedule(self, name: str) -> Operation[Schedule]:
        """Disable the schedule until it is enabled."""
        return write_operation("disable_schedule", post(_schedule_path(name, "disable")), _read_changed)

    def run_schedule(self, name: str) -> Operation[Task]:
        """Enqueue the task of the schedule now. Must not be repeated: it would be enqueued twice."""
        return write_operation("run_schedule", post(_schedule_path(name, "run"), safe=False), _read_task, wakes=True)

    def due_schedules(self) -> Operation[list[DueSchedule]]:
        """The schedules whose next tick is due. Advisory."""
        return read_operation("due_schedules", get("/api/upkeep/due-schedules"), _read_due)

    def tick_schedule(self, due: DueSchedule) -> Operation[int]:
        """Advance the schedule and enqueue the due tasks, unless another process did."""
        call = post(
            _schedule_path(due.schedule.name, "tick"), schedules.TickBody.from_model(due), or_none="schedule_not_found"
        )
        return write_operation("tick_schedule", call, _read_ticked, wakes=True)


class RemoteUpkeep:
    """Upkeep, which a server also does by itself. See UpkeepOperations."""

    def promote(self, limit: int = BATCH) -> Operation[int]:
        """Make due tasks pending."""
        return write_operation("promote", post("/api/upkeep/promote", LimitBody(limit=limit)), _read_count, wakes=True)

    def recover(self, limit: int = BATCH) -> Operation[int]:
        """Recover tasks whose lease expired."""
        return write_operation("recover", post("/api/upkeep/recover", LimitBody(limit=limit)), _read_count, wakes=True)

    def next_due(self) -> Operation[float | None]:
        """Seconds until a task becomes claimable by time alone."""
        return read_operation("next_due", get("/api/tasks/next-due"), _read_seconds)

    def expire_tasks(self, limit: int = BATCH) -> Operation[int]:
        """Cancel tasks that were not started by their expiry."""
        call = post("/api/upkeep/expire-tasks", LimitBody(limit=limit))
        return write_operation("expire_tasks", call, _read_count, wakes=True)

    def expire_workflows(self, limit: int = BATCH) -> Operation[int]:
        """Stop workflows past their deadline."""
        call = post("/api/upkeep/expire-workflows", LimitBody(limit=limit))
        return write_operation("expire_workflows", call, _read_count, wakes=True)

    def mend_workflows(self, limit: int = BATCH) -> Operation[int]:
        """Advance workflows that missed the end of a step."""
        call = post("/api/upkeep/mend-workflows", LimitBody(limit=limit))
        return write_operation("mend_workflows", call, _read_count, wakes=True)

    def prune(self, limit: int = BATCH, after: PrunePosition | None = None) -> Operation[Pruned]:
        """Delete finished tasks past their retention: one batch of a pass."""
        return write_operation("prune", post("/api/upkeep/prune", PruneBody.from_model(limit, after)), _read_pruned)

    def prune_history(self, limit: int = BATCH) -> Operation[int]:
        """Delete history past its retention."""
        return write_operation("prune_history", post("/api/upkeep/prune-history", LimitBody(limit=limit)), _read_count)

    def prune_workers(self) -> Operation[int]:
        """Delete workers whose last heartbeat is past their retention."""
        return write_operation("prune_workers", post("/api/upkeep/prune-workers"), _read_count)


class RemoteRetention:
    """Retention rules. See RetentionOperations."""

    def set_retention(self, target: RetentionTarget, keep: float | None) -> Operation[RetentionRule]:
        """Store the rule."""
        if keep is not None:
            check_seconds(keep, "keep")
        call = post("/api/retention", RuleBody.of(target, keep))
        return write_operation("set_retention", call, _read_rule)

    def remove_retention(self, target: RetentionTarget) -> Operation[None]:
        """Remove the rule. Must not be repeated: a second request finds no such rule."""
        call = post("/api/retention/remove", TargetBody.from_model(target), safe=False)
        return write_operation("remove_retention", call, _read_done)

    def retention_rules(self) -> Operation[list[RetentionRule]]:
        """Every rule."""
        return read_operation("retention_rules", get("/api/retention"), _read_rules)

    def retention_changes(self, limit: int = 1000) -> Operation[list[RetentionChange]]:
        """The newest changes of the rules."""
        check_integer(limit, "limit", 1, 1000)
        return read_operation(
            "retention_changes", get("/api/retention/changes", ChangesQuery(limit=limit)), _read_changes
        )


class RemoteKeys:
    """API keys. See KeyOperations."""

    def mint_key(self, new: NewKey) -> Operation[MintedKey]:
        """Create a key; only this answer has its secret. Must not be repeated: the first secret would be lost."""
        return write_operation("mint_key", post("/api/keys", NewKeyBody.from_model(new), safe=False), _read_minted)

    def list_keys(self) -> Operation[list[ApiKey]]:
        """All keys, oldest first, including revoked and expired keys."""
        return read_operation("list_keys", get("/api/keys"), _read_keys)

    def revoke_key(self, key_id: str) -> Operation[ApiKey]:
        """Revoke the key; the same again changes nothing."""
        if not is_key_id(key_id):  # not shown: it may be a whole key, with its secret
            raise KeyNotFound("There is no such key: an id has 12 lower-case letters and digits.")
        return Operation("revoke_key", lambda: _revoke(key_id))


class RemoteStatistics:
    """Figures about the whole store. See StatisticsOperations."""

    def stats(self) -> Operation[Stats]:
        """Depth, age, throughput and latency."""
        return read_operation("stats", get("/api/stats"), _read_stats)


def _revoke(key_id: str) -> HttpCalls[ApiKey]:
    yield HttpCall("DELETE", api_path("keys", key_id))
    keys = _read_keys((yield get("/api/keys")))
    return next(key for key in keys if key.id == key_id)


def _schedule_path(name: str, *verb: str) -> str:
    return api_path("schedules", check_schedule_name(name), *verb)
