"""dibs: a durable task queue in which every task is claimed by exactly one worker."""

from __future__ import annotations

from dibs.claim import (
    Cancelled,
    Claim,
    ClaimRef,
    Completed,
    Failed,
    Finished,
    Order,
    Outcome,
    Released,
    Renewed,
)
from dibs.client import Dibs
from dibs.client_async import AsyncDibs
from dibs.errors import (
    AlreadyClaimed,
    ClaimLost,
    DibsError,
    InvalidValue,
    KeyConflict,
    NotClaimable,
    NotYourClaim,
    OutcomeUnknown,
    SchemaMissing,
    SchemaTooNew,
    SchemaViolation,
    StoreBusy,
    StoreError,
    StoreUnavailable,
    TaskNotFound,
    TaskTypeNotFound,
    WaitTimeout,
    WrongState,
)
from dibs.retry import Backoff
from dibs.store.doctor import Check, Verdict
from dibs.store.operations.looking import Explanation, HistoryEntry, QueueInfo, Reason, Stats
from dibs.store.operations.registering import TaskType, WorkerInfo, WorkerState
from dibs.store.operations.tending import Retention, Upkept
from dibs.task import Event, Failure, NewTask, State, Task
from dibs.version import __version__

__all__ = [
    "AlreadyClaimed",
    "AsyncDibs",
    "Backoff",
    "Cancelled",
    "Check",
    "Claim",
    "ClaimLost",
    "ClaimRef",
    "Completed",
    "Dibs",
    "DibsError",
    "Event",
    "Explanation",
    "Failed",
    "Failure",
    "Finished",
    "HistoryEntry",
    "InvalidValue",
    "KeyConflict",
    "NewTask",
    "NotClaimable",
    "NotYourClaim",
    "Order",
    "Outcome",
    "OutcomeUnknown",
    "QueueInfo",
    "Reason",
    "Released",
    "Renewed",
    "Retention",
    "SchemaMissing",
    "SchemaTooNew",
    "SchemaViolation",
    "State",
    "Stats",
    "StoreBusy",
    "StoreError",
    "StoreUnavailable",
    "Task",
    "TaskNotFound",
    "TaskType",
    "TaskTypeNotFound",
    "Upkept",
    "Verdict",
    "WaitTimeout",
    "WorkerInfo",
    "WorkerState",
    "WrongState",
    "__version__",
]
