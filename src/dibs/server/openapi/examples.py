"""Sample answers for the OpenAPI document, created from the wire structs, so that they contain every field."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UnsetType

from dibs.errors import (
    AlreadyClaimed,
    ClaimLost,
    DibsError,
    EventsPruned,
    FinalizationLost,
    InvalidGraph,
    InvalidValue,
    KeyConflict,
    KeyNotFound,
    LimitNotFound,
    LimitReached,
    LimitUnknown,
    NotYourClaim,
    OutcomeConflict,
    RetentionNotFound,
    ScheduleNotFound,
    StoreBusy,
    TaskNotFound,
    TaskTypeNotFound,
    WorkflowNotFound,
    WrongState,
    WrongWorkflowState,
)
from dibs.model.task import State, Task
from dibs.server.rate_limits import too_many
from dibs.wire import tasks as wire
from dibs.wire.errors import Refusal, RequestRefused
from dibs.wire.fields import to_text

NOW = datetime(2025, 11, 12, 10, 30, 0, 123456, tzinfo=UTC)
SAMPLE_TIME = to_text(NOW)
WORKER = "worker-youtube-01"

PENDING = Task(
    123, "youtube_video_scrape", "default", State.PENDING, {"video_id": "abc123"}, 5, 0, 3, 0, NOW, NOW
)  # fmt: skip
CLAIMED = msgspec.structs.replace(
    PENDING, state=State.CLAIMED, token=1, worker_id=WORKER, claimed_at=NOW, lease_until=NOW + timedelta(minutes=1)
)

REFUSALS: Mapping[str, DibsError] = {
    "bad_request": RequestRefused("bad_request", "Object missing required field `worker_id`."),
    "invalid_value": InvalidValue("params.views is an integer beyond 64 bits.", hint="Send it as a string."),
    "invalid_graph": InvalidGraph("These steps wait for each other: a → b → a.", hint="Remove a dependency."),
    "unauthorized": RequestRefused(
        "unauthorized", "This API key is not valid.", hint="It is wrong, expired or revoked."
    ),
    "forbidden": RequestRefused("forbidden", "This needs a key with the scope work; this key has read."),
    "not_your_claim": NotYourClaim("Task 123 is held by worker-youtube-02.", task_id=123, token=1),
    "not_found": RequestRefused("not_found", "This path does not exist.", hint="/api/docs lists all paths."),
    "task_not_found": TaskNotFound(123),
    "task_type_not_found": TaskTypeNotFound("There is no task type 'report'."),
    "limit_unknown": LimitUnknown("stripe"),
    "limit_reached": LimitReached(
        "Task 123 cannot be claimed now: the limit 'stripe' is reached.", task_id=123, name="stripe"
    ),
    "limit_not_found": LimitNotFound("stripe"),
    "events_pruned": EventsPruned(17, 4711),
    "schedule_not_found": ScheduleNotFound("nightly-report"),
    "retention_not_found": RetentionNotFound("No retention rule is set for completed of type 'report'."),
    "key_not_found": KeyNotFound("There is no key 'mfqxk4tcmezd'."),
    "workflow_not_found": WorkflowNotFound(123),
    "method_not_allowed": RequestRefused("method_not_allowed", "This path does not support PATCH, only GET, POST."),
    "too_slow": RequestRefused("too_slow", "The request was not complete within 30 s."),
    "headers_too_large": RequestRefused("headers_too_large", "The headers are larger than this server takes."),
    "key_conflict": KeyConflict("video-abc123", 123),
    "claim_lost": ClaimLost("Token 1 of task 123 is stale.", task_id=123, token=1),
    "outcome_conflict": OutcomeConflict("Task 123 was completed with another result.", task_id=123, token=1),
    "already_claimed": AlreadyClaimed("Task 123 is held by worker-x.", task_id=123, worker_id="worker-x"),
    "wrong_state": WrongState("Task 123 is completed and cannot be cancelled.", task_id=123, state="completed"),
    "workflow_state": WrongWorkflowState("Workflow 123 is completed.", workflow_id=123, state="completed"),
    "finalization_lost": FinalizationLost("Token 1 of workflow 123 is stale.", workflow_id=123, token=1),
    "too_large": RequestRefused("too_large", "The body is larger than 1,048,576 bytes."),
    "unsupported_media_type": RequestRefused(
        "unsupported_media_type", "The body must be JSON with the content type application/json."
    ),
    "unknown_host": RequestRefused("unknown_host", "The Host header is not a name of this server."),
    "rate_limited": too_many("The limit of this key is 100 requests in 60 s.", 12.0),
    "store_busy": StoreBusy("The database is locked."),
}  # fmt: skip

FIELDS: Mapping[str, Any] = {
    "id": 123,
    "task_id": 123,
    "name": "default",
    "queue": "default",
    "task_type": "youtube_video_scrape",
    "worker_id": WORKER,
    "incarnation": "a1b2c3d4e5f60718",
    "params": {"video_id": "abc123"},
    "message": "Task claimed successfully",
    "cron": "0 6 * * *",
    "timezone": "Europe/Berlin",
    "rate_limit": "100/minute",
    "queues": None,
    "task_types": ["youtube_video_scrape"],
    "by": None,
    "token": 1,
    "priority": 0,
    "attempts": 0,
    "max_attempts": 3,
    "timeout_seconds": None,
    "base_seconds": 1.0,
    "cap_seconds": 300.0,
    "seconds": 1.5,
    "paused": False,
    "paused_at": None,
    "stopped_at": None,
    "revoked_at": None,
    "finished_at": None,
    "last_error": None,
    "depth": {"pending": 4, "claimed": 2},
    "holds": [123],
    "metadata": {"host": "box-7"},
    "detail": None,
    "schema": {"type": "object", "required": ["video_id"]},
    "defaults": {"quality": "hd"},
    "hint": "",
    "process": "7f3a90c2d1e4b586",
    "workflow_id": 123,
    "workflows": [123],
    "processor_id": "billing-7c1f",
    "already_claimed_by": None,
    "after": [122],
    "max": 5,
    "rate": "100/minute",
    "burst": 10,
    "used": 2,
    "waiting": 14,
    "exhausted_since": SAMPLE_TIME,
    "limit": "mail-api",
    "limits": ["mail-api"],
    "removed_limits": [],
    "group": "acme",
    "group_by": "tenant",
    "weight": 3.0,
    "fair": True,
    "source": "command",
    "declared": None,
    "overridden": False,
    "next_cursor": None,
    "free_at": None,
    "next_runs": [SAMPLE_TIME],
    "every_seconds": None,
    "at": None,
    "jitter_seconds": 0.0,
    "start_at": None,
    "end_at": None,
    "overlap": "allow",
    "skipped": 0,
    "last_skipped_at": None,
    "unfinished_task_id": None,
    "per": None,
    "checkpoints": {"downloaded": {"path": "videos/abc123"}},
}
"""Sample values by the name of the field."""

STRUCTS: Mapping[str, Mapping[str, Any]] = {
    "NoneAvailable": {"success": False, "message": "No pending tasks available"},
    "Finished": {"status": "completed", "attempts": 1, "will_retry": False, "run_at": None, "repeated": False},
    "Renewed": {"cancel_requested": False},
    "Noted": {"cancel_requested": False},
    "Created": {"deduplicated": False, "replaced": False},
    "CreatedBatch": {"deduplicated": [False], "replaced": [False]},
    "KeyFields": {
        "id": "mfqxk4tcmezd",
        "name": "scraper fleet",
        "scopes": ["work"],
        "queues": ["scrape"],
        "rate_limit": "none",
        "created_by": None,
        "expires_at": None,
        "last_used_at": None,
    },
    "Minted": {"key": "dibs_mfqxk4tcmezd_Yq3...", "last_used_at": None},
    "Revoked": {"id": "mfqxk4tcmezd", "revoked_at": SAMPLE_TIME},
    "Limit": {"name": "mail-api"},
    "Schedule": {
        "name": "nightly-report",
        "cron": "0 3 * * *",
        "task_type": "report",
        "params": {},
        "description": "at 03:00 every day, Europe/Berlin",
    },
    "HistoryEntry": {"id": 1, "event": "claimed", "from_state": "pending", "to_state": "claimed", "by": None},
    "Worker": {"id": WORKER, "state": "active"},
    "TaskType": {"name": "youtube_video_scrape"},
    "Reason": {"code": "not_due", "message": "It is not due until 2025-11-12T11:30:00.123456Z."},
    "Explanation": {"status": "scheduled"},
    "StartedWorkflow": {"deduplicated": False},
    "Workflow": {
        "name": "order",
        "steps": 4,
        "active": 2,
        "ended": 1,
        "failures": 0,
        "completion_percentage": 25.0,
        "deadline": None,
        "idempotency_key": "order-7",
        "stopping": None,
        "error": None,
        "queues": ["default"],
        "step_of": None,
        "root_id": 123,
        "finalizer_id": None,
        "finalize_when": "success",
        "finalization": {"token": 0, "processor_id": None, "lease_until": None},
    },
    "Step": {
        "name": "render-2",
        "task_type": "render",
        "status": "blocked",
        "passed": None,
        "worker_id": None,
        "claimed_at": None,
        "error": None,
        "workflow_id": None,
    },
    "StepResult": {"name": "fetch", "task_type": "fetch", "status": "completed", "result": [1, 2], "error": None},
    "ExecutionContext": {
        "total_steps": 4,
        "by_state": {"completed": 4},
        "passed": 4,
        "failures": 0,
        "completion_percentage": 100.0,
        "execution_status": "all_complete",
        "recommended_action": "complete_workflow",
    },
    "FinalizationClaim": {"state": "all_complete", "message": "Successfully claimed for finalization"},
    "UnknownWorkflow": {
        "success": False,
        "claimed": False,
        "reason": "not_found",
        "state": "not_found",
        "message": "Workflow not found",
        "token": None,
        "lease_until": None,
    },
    "NotClaimed": {
        "success": False,
        "claimed": False,
        "reason": "already_claimed",
        "already_claimed_by": "billing-e02a",
        "message": "Workflow already claimed for finalization",
        "token": None,
        "lease_until": None,
    },
    "FinalizationAttempt": {"id": 1, "state": "all_complete", "message": "Successfully claimed for finalization"},
    "Finalized": {"status": "completed", "execution_status": "all_complete", "action": "complete_workflow"},
}
"""Sample values by the name of the struct; they take precedence over FIELDS."""


def answer(kind: Any, *, claimed: bool = False) -> Any:
    """Return a sample answer as JSON values."""
    return msgspec.to_builtins(_sample(kind, CLAIMED if claimed else PENDING))


def refusals(codes: list[str]) -> dict[str, Any]:
    """Return a sample refusal for each code that has one."""
    return {code: msgspec.to_builtins(Refusal.from_model(REFUSALS[code])) for code in codes if code in REFUSALS}


def _sample(kind: Any, task: Task, field: str = "") -> Any:
    if kind is wire.Task:
        return wire.Task.from_model(task)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(kind, task)
    if get_origin(kind) in (Union, UnionType):
        return _one_of(kind, task, field)
    if field in FIELDS and _fits(FIELDS[field], kind):
        return FIELDS[field]
    return _plain(kind, task, field)


def _struct(kind: type[msgspec.Struct], task: Task) -> dict[str, Any]:
    """Return sample values for all fields of a struct, except fields that may be unset."""
    hints, fields = get_type_hints(kind), msgspec.structs.fields(kind)
    names = {each.encode_name: hints[each.name] for each in fields}
    sample = {name: _sample(hint, task, name) for name, hint in names.items() if UnsetType not in get_args(hint)}
    for each in reversed(kind.__mro__):
        sample |= STRUCTS.get(each.__name__, {})
    return sample


def _one_of(kind: Any, task: Task, field: str) -> Any:
    """Return a sample of the first alternative, or None if FIELDS has None."""
    if type(None) in get_args(kind) and field in FIELDS and FIELDS[field] is None:
        return None
    first = next(each for each in get_args(kind) if each not in (Any, type(None), UnsetType))
    return _sample(first, task, field)


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _plain(kind: Any, task: Task, field: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (list, tuple):
        return [_sample(inner[0], task, field)]
    if origin is dict:
        return {"default": _sample(inner[1], task, field)} if inner[1] is not Any else {}
    if origin is Literal:
        return inner[0]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind)).value
    if kind is str:
        return SAMPLE_TIME if field.endswith(("_at", "until")) or field in ("at", "now") else (field or "text")
    return {bool: True, int: 1, float: 1.5}.get(kind)
