"""dibs: a durable task queue in which every task is claimed by exactly one worker."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dibs.version import __version__

if TYPE_CHECKING:
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

_HOMES = (
    "errors",
    "task",
    "claim",
    "retry",
    "store.doctor",
    "store.operations.looking",
    "store.operations.registering",
    "store.operations.tending",
    "client",
    "client_async",
)
"""Where the public names live, looked through in this order."""

if not TYPE_CHECKING:  # a checker of types would believe that every name exists

    def __getattr__(name: str) -> Any:
        """A public name, imported when it is first used: the command line answers --help without the clients."""
        if name in __all__:
            for home in _HOMES:
                if (value := getattr(import_module(f"dibs.{home}"), name, None)) is not None:
                    globals()[name] = value
                    return value
        raise AttributeError(f"module 'dibs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
