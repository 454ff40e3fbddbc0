"""Administrative calls over HTTP: workers, schedules, retention, keys, and upkeep, which a server also does itself."""

from __future__ import annotations

from typing import Any

import msgspec

from dibs.codec import encode, encode_params
from dibs.errors import InvalidValue, KeyNotFound
from dibs.model.checks import check_integer, check_seconds
from dibs.model.key import ApiKey, MintedKey, NewKey, is_key_id, write_limit
from dibs.model.registry import Heartbeat, WorkerInfo
from dibs.model.retention import RetentionChange, RetentionRule, RetentionTarget
from dibs.model.schedule import DueSchedule, NewSchedule, Schedule, ScheduleSource, check_schedule_name
from dibs.model.task import Task
from dibs.model.upkeep import BATCH, Pruned, PrunePosition
from dibs.store.operation import Operation
from dibs.store.remote import wire
from dibs.store.remote.call import Call, Steps, asking, get, looking, place, post, without_nones
from dibs.store.remote.tasks import in_utc
from dibs.store.remote.wire import WireBackoff


class RemoteHouse:
    """Administrative calls: workers, schedules, upkeep, retention, keys."""

    def heartbeat(self, beat: Heartbeat) -> Operation[None]:
        """Register the worker, or note that it still lives (or is leaving)."""
        given = {
            "worker_id": beat.worker_id,
            "incarnation": beat.incarnation or None,
            "queues": None if beat.queues is None else msgspec.Raw(encode(list(beat.queues), "queues")),
            "task_types": None if beat.types is None else msgspec.Raw(encode(list(beat.types), "types")),
            "metadata": msgspec.Raw(encode(beat.metadata, "metadata")) if beat.metadata else None,
            "leaving": beat.leaving or None,
        }
        return asking("heartbeat", post("/api/workers/heartbeat", given), wire.read_done)

    def workers(self) -> Operation[list[WorkerInfo]]:
        """Every worker that has been heard of, with the ids of the tasks it holds."""
        return looking("workers", get("/api/workers"), wire.read_workers)

    # Schedules

    def put_schedule(self, new: NewSchedule, source: ScheduleSource) -> Operation[Schedule]:
        """Store the schedule, or change the one of that name to it."""
        if source not in ("code", "command"):
            raise InvalidValue(f"A schedule comes from 'code' or 'command', not from {source!r}.")
        call = post("/api/schedules", _schedule_body(new, source))
        return asking("put_schedule", call, wire.read_schedule, wakes=True)

    def list_schedules(self) -> Operation[list[Schedule]]:
        """All schedules, by name."""
        return looking("list_schedules", get("/api/schedules"), wire.read_schedules)

    def get_schedule(self, name: str) -> Operation[Schedule]:
        """The schedule, or ScheduleNotFound."""
        return looking("get_schedule", get(_schedule(name)), wire.read_schedule)

    def remove_schedule(self, name: str) -> Operation[None]:
        """Forget the schedule. Not safe twice: the second time it is no longer there."""
        return asking("remove_schedule", Call("DELETE", _schedule(name), safe=False), wire.read_done)

    def enable_schedule(self, name: str) -> Operation[Schedule]:
        """Let a disabled schedule tick again, from now on."""
        return asking("enable_schedule", post(_schedule(name, "enable")), wire.read_schedule, wakes=True)

    def disable_schedule(self, name: str) -> Operation[Schedule]:
        """Let the schedule not tick until it is enabled."""
        return asking("disable_schedule", post(_schedule(name, "disable")), wire.read_schedule)

    def run_schedule(self, name: str) -> Operation[Task]:
        """Enqueue the schedule's task now. Not safe twice: it would be enqueued twice."""
        return asking("run_schedule", post(_schedule(name, "run"), safe=False), wire.read_task, wakes=True)

    def due_schedules(self) -> Operation[list[DueSchedule]]:
        """The schedules whose next tick has come; only a look."""
        return looking("due_schedules", get("/api/upkeep/due-schedules"), wire.read_due)

    def tick_schedule(self, due: DueSchedule) -> Operation[int]:
        """Move the schedule on and enqueue what is due, unless somebody else did."""
        given = {
            "next_at": in_utc(due.schedule.next_at),
            "now": in_utc(due.now),
            "cron": due.schedule.cron,
            "timezone": due.schedule.timezone,
        }
        call = post(_schedule(due.schedule.name, "tick"), given, or_none="schedule_not_found")
        return asking("tick_schedule", call, lambda said: 0 if said is None else wire.read_count(said), wakes=True)

    # Upkeep

    def promote(self, limit: int = BATCH) -> Operation[int]:
        """Make due tasks pending."""
        return asking("promote", post("/api/upkeep/promote", {"limit": limit}), wire.read_count, wakes=True)

    def recover(self, limit: int = BATCH) -> Operation[int]:
        """Take tasks back whose lease ran out."""
        return asking("recover", post("/api/upkeep/recover", {"limit": limit}), wire.read_count, wakes=True)

    def next_due(self) -> Operation[float | None]:
        """Seconds until the clock alone makes something claimable."""
        return looking("next_due", get("/api/tasks/next-due"), wire.read_seconds)

    def prune(self, limit: int = BATCH, after: PrunePosition | None = None) -> Operation[Pruned]:
        """Delete finished tasks past their retention: one batch of a pass."""
        body = {"limit": limit, "after": None if after is None else after.write()}
        return asking("prune", post("/api/upkeep/prune", body), wire.read_pruned)

    def prune_history(self, limit: int = BATCH) -> Operation[int]:
        """Delete history past its retention."""
        return asking("prune_history", post("/api/upkeep/prune-history", {"limit": limit}), wire.read_count)

    def prune_workers(self) -> Operation[int]:
        """Delete workers whose last heartbeat is past their retention."""
        return asking("prune_workers", post("/api/upkeep/prune-workers"), wire.read_count)

    # Retention

    def set_retention(self, target: RetentionTarget, keep: float | None) -> Operation[RetentionRule]:
        """Store the rule."""
        if keep is not None:
            check_seconds(keep, "keep")
        # Null means for ever, so it is sent, unlike the other fields.
        body = msgspec.json.encode({**without_nones(_target(target)), "keep_seconds": keep})
        return asking("set_retention", Call("POST", "/api/retention", body), wire.read_rule)

    def remove_retention(self, target: RetentionTarget) -> Operation[None]:
        """Remove the rule. Not safe twice: the second time it is no longer there."""
        call = post("/api/retention/remove", _target(target), safe=False)
        return asking("remove_retention", call, wire.read_done)

    def retention_rules(self) -> Operation[list[RetentionRule]]:
        """Every rule."""
        return looking("retention_rules", get("/api/retention"), wire.read_rules)

    def retention_changes(self, limit: int = 1000) -> Operation[list[RetentionChange]]:
        """The newest changes of the rules."""
        check_integer(limit, "limit", 1, 1000)
        return looking("retention_changes", get("/api/retention/changes", {"limit": limit}), wire.read_rule_changes)

    # Keys

    def mint_key(self, new: NewKey) -> Operation[MintedKey]:
        """Make a key; only this answer holds its secret. Not safe twice: nobody would know the first one."""
        given = {
            "name": new.name,
            "scopes": list(new.scopes),
            "queues": None if new.queues is None else list(new.queues),
            "rate_limit": write_limit(new.rate_limit),
            "expires_at": in_utc(new.expires_at),
            "expires_in_seconds": new.expires_in,
        }
        return asking("mint_key", post("/api/keys", given, safe=False), wire.read_minted)

    def list_keys(self) -> Operation[list[ApiKey]]:
        """All keys, oldest first, also those that are no longer live."""
        return looking("list_keys", get("/api/keys"), wire.read_keys)

    def revoke_key(self, key_id: str) -> Operation[ApiKey]:
        """Let nobody use the key from now on; the same again changes nothing."""
        if not is_key_id(key_id):  # not shown: it may be a whole key, pasted by mistake
            raise KeyNotFound("There is no such key: an id has 12 lower-case letters and digits.")
        return Operation("revoke_key", lambda: _revoke(key_id))


def _revoke(key_id: str) -> Steps[ApiKey]:
    yield Call("DELETE", place("keys", key_id))
    keys = wire.read_keys((yield get("/api/keys")))
    return next(key for key in keys if key.id == key_id)


def _schedule(name: str, *verb: str) -> str:
    return place("schedules", check_schedule_name(name), *verb)


def _schedule_body(new: NewSchedule, source: ScheduleSource) -> dict[str, Any]:
    return {
        "name": new.name,
        "cron": new.cron,
        "task_type": new.type,
        "params": msgspec.Raw(encode_params(new.params)),
        "timezone": new.timezone,
        "catch_up": str(new.catch_up),
        "enabled": new.enabled,
        "queue": new.queue,
        "priority": new.priority,
        "max_attempts": new.max_attempts,
        "timeout_seconds": new.timeout,
        "backoff": WireBackoff.of(new.backoff),
        "source": source,
    }


def _target(target: RetentionTarget) -> dict[str, Any]:
    return {
        "records": str(target.records),
        "queue": target.queue,
        "task_type": target.type,
        "workflow": target.workflow,
    }
