"""Administrative calls over HTTP: workers, schedules, retention, keys, and upkeep, which a server also does itself."""

from __future__ import annotations

from dibs.errors import InvalidValue, KeyNotFound
from dibs.model.checks import check_integer, check_seconds
from dibs.model.key import ApiKey, MintedKey, NewKey, is_key_id
from dibs.model.registry import Heartbeat, WorkerInfo
from dibs.model.retention import RetentionChange, RetentionRule, RetentionTarget
from dibs.model.schedule import DueSchedule, NewSchedule, Schedule, ScheduleSource, check_schedule_name
from dibs.model.task import Task
from dibs.model.upkeep import BATCH, Pruned, PrunePosition
from dibs.store.operation import Operation
from dibs.store.remote.call import Call, Steps, asking, get, looking, place, post
from dibs.store.remote.decode import reader, reader_or
from dibs.wire import schedules
from dibs.wire.admin import HeartbeatBody, LimitBody, PruneBody, PrunedAnswer, Workers
from dibs.wire.claims import DueIn
from dibs.wire.fields import Counted, Done
from dibs.wire.keys import Keys, Minted, NewKeyBody
from dibs.wire.retention import ChangedRule, ChangesQuery, RetentionChanges, RetentionRules, RuleBody, TargetBody
from dibs.wire.tasks import ChangedTask

_read_done = reader(Done)
_read_count = reader(Counted)
_read_workers = reader(Workers)
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


class RemoteHouse:
    """Administrative calls: workers, schedules, upkeep, retention, keys."""

    def heartbeat(self, beat: Heartbeat) -> Operation[None]:
        """Register the worker, or note that it still lives (or is leaving)."""
        return asking("heartbeat", post("/api/workers/heartbeat", HeartbeatBody.from_model(beat)), _read_done)

    def workers(self) -> Operation[list[WorkerInfo]]:
        """Every worker that has been heard of, with the ids of the tasks it holds."""
        return looking("workers", get("/api/workers"), _read_workers)

    # Schedules

    def put_schedule(self, new: NewSchedule, source: ScheduleSource) -> Operation[Schedule]:
        """Store the schedule, or change the one of that name to it."""
        if source not in ("code", "command"):
            raise InvalidValue(f"A schedule comes from 'code' or 'command', not from {source!r}.")
        call = post("/api/schedules", schedules.ScheduleBody.from_model(new, source))
        return asking("put_schedule", call, _read_changed, wakes=True)

    def list_schedules(self) -> Operation[list[Schedule]]:
        """All schedules, by name."""
        return looking("list_schedules", get("/api/schedules"), _read_schedules)

    def get_schedule(self, name: str) -> Operation[Schedule]:
        """The schedule, or ScheduleNotFound."""
        return looking("get_schedule", get(_schedule(name)), _read_schedule)

    def remove_schedule(self, name: str) -> Operation[None]:
        """Forget the schedule. Not safe twice: the second time it is no longer there."""
        return asking("remove_schedule", Call("DELETE", _schedule(name), safe=False), _read_done)

    def enable_schedule(self, name: str) -> Operation[Schedule]:
        """Let a disabled schedule tick again, from now on."""
        return asking("enable_schedule", post(_schedule(name, "enable")), _read_changed, wakes=True)

    def disable_schedule(self, name: str) -> Operation[Schedule]:
        """Let the schedule not tick until it is enabled."""
        return asking("disable_schedule", post(_schedule(name, "disable")), _read_changed)

    def run_schedule(self, name: str) -> Operation[Task]:
        """Enqueue the schedule's task now. Not safe twice: it would be enqueued twice."""
        return asking("run_schedule", post(_schedule(name, "run"), safe=False), _read_task, wakes=True)

    def due_schedules(self) -> Operation[list[DueSchedule]]:
        """The schedules whose next tick has come; only a look."""
        return looking("due_schedules", get("/api/upkeep/due-schedules"), _read_due)

    def tick_schedule(self, due: DueSchedule) -> Operation[int]:
        """Move the schedule on and enqueue what is due, unless somebody else did."""
        call = post(
            _schedule(due.schedule.name, "tick"), schedules.TickBody.from_model(due), or_none="schedule_not_found"
        )
        return asking("tick_schedule", call, _read_ticked, wakes=True)

    # Upkeep

    def promote(self, limit: int = BATCH) -> Operation[int]:
        """Make due tasks pending."""
        return asking("promote", post("/api/upkeep/promote", LimitBody(limit=limit)), _read_count, wakes=True)

    def recover(self, limit: int = BATCH) -> Operation[int]:
        """Take tasks back whose lease ran out."""
        return asking("recover", post("/api/upkeep/recover", LimitBody(limit=limit)), _read_count, wakes=True)

    def next_due(self) -> Operation[float | None]:
        """Seconds until the clock alone makes something claimable."""
        return looking("next_due", get("/api/tasks/next-due"), _read_seconds)

    def prune(self, limit: int = BATCH, after: PrunePosition | None = None) -> Operation[Pruned]:
        """Delete finished tasks past their retention: one batch of a pass."""
        return asking("prune", post("/api/upkeep/prune", PruneBody.from_model(limit, after)), _read_pruned)

    def prune_history(self, limit: int = BATCH) -> Operation[int]:
        """Delete history past its retention."""
        return asking("prune_history", post("/api/upkeep/prune-history", LimitBody(limit=limit)), _read_count)

    def prune_workers(self) -> Operation[int]:
        """Delete workers whose last heartbeat is past their retention."""
        return asking("prune_workers", post("/api/upkeep/prune-workers"), _read_count)

    # Retention

    def set_retention(self, target: RetentionTarget, keep: float | None) -> Operation[RetentionRule]:
        """Store the rule."""
        if keep is not None:
            check_seconds(keep, "keep")
        call = post("/api/retention", RuleBody.of(target, keep))
        return asking("set_retention", call, _read_rule)

    def remove_retention(self, target: RetentionTarget) -> Operation[None]:
        """Remove the rule. Not safe twice: the second time it is no longer there."""
        call = post("/api/retention/remove", TargetBody.from_model(target), safe=False)
        return asking("remove_retention", call, _read_done)

    def retention_rules(self) -> Operation[list[RetentionRule]]:
        """Every rule."""
        return looking("retention_rules", get("/api/retention"), _read_rules)

    def retention_changes(self, limit: int = 1000) -> Operation[list[RetentionChange]]:
        """The newest changes of the rules."""
        check_integer(limit, "limit", 1, 1000)
        return looking("retention_changes", get("/api/retention/changes", ChangesQuery(limit=limit)), _read_changes)

    # Keys

    def mint_key(self, new: NewKey) -> Operation[MintedKey]:
        """Make a key; only this answer holds its secret. Not safe twice: nobody would know the first one."""
        return asking("mint_key", post("/api/keys", NewKeyBody.from_model(new), safe=False), _read_minted)

    def list_keys(self) -> Operation[list[ApiKey]]:
        """All keys, oldest first, also those that are no longer live."""
        return looking("list_keys", get("/api/keys"), _read_keys)

    def revoke_key(self, key_id: str) -> Operation[ApiKey]:
        """Let nobody use the key from now on; the same again changes nothing."""
        if not is_key_id(key_id):  # not shown: it may be a whole key, pasted by mistake
            raise KeyNotFound("There is no such key: an id has 12 lower-case letters and digits.")
        return Operation("revoke_key", lambda: _revoke(key_id))


def _revoke(key_id: str) -> Steps[ApiKey]:
    yield Call("DELETE", place("keys", key_id))
    keys = _read_keys((yield get("/api/keys")))
    return next(key for key in keys if key.id == key_id)


def _schedule(name: str, *verb: str) -> str:
    return place("schedules", check_schedule_name(name), *verb)
