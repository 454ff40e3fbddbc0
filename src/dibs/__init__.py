"""dibs: a durable task queue in which every task is claimed by exactly one worker."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dibs.version import __version__

if TYPE_CHECKING:
    from dibs.client import Dibs
    from dibs.client_async import AsyncDibs
    from dibs.errors import (
        AlreadyClaimed,
        ClaimLost,
        DibsError,
        FinalizationLost,
        InvalidGraph,
        InvalidValue,
        KeyConflict,
        KeyNotFound,
        NotAllowed,
        NotClaimable,
        NotYourClaim,
        OutcomeConflict,
        OutcomeUnknown,
        RateLimited,
        RetentionNotFound,
        ScheduleNotFound,
        SchemaMissing,
        SchemaTooNew,
        SchemaViolation,
        StoreBusy,
        StoreError,
        StoreRefused,
        StoreUnavailable,
        TaskNotFound,
        TaskTypeNotFound,
        ValidationTooSlow,
        WaitTimeout,
        WorkflowNotFound,
        WrongState,
        WrongWorkflowState,
    )
    from dibs.handlers.context import Context
    from dibs.handlers.endings import Cancel, Permanent, Retry, Snooze
    from dibs.handlers.handler import Handler, Lane
    from dibs.model.claim import (
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
    from dibs.model.explanation import Explanation, Reason
    from dibs.model.finalization import (
        ClaimReason,
        ExecutionContext,
        ExecutionStatus,
        FinalizationAttempt,
        FinalizationClaim,
        Finalized,
    )
    from dibs.model.history import HistoryEntry
    from dibs.model.key import ApiKey, MintedKey, RateLimit, Scope
    from dibs.model.registry import QueueInfo, TaskType, WorkerInfo, WorkerState
    from dibs.model.retention import Records, RetentionChange, RetentionRule
    from dibs.model.retry import Backoff
    from dibs.model.schedule import CatchUp, Schedule
    from dibs.model.statistics import Stats
    from dibs.model.task import Event, Failure, NewTask, SetAside, State, Task
    from dibs.model.upkeep import Check, Upkept, Verdict
    from dibs.model.workflow import NewStep, NewWorkflow, OnFailure, Step, StepResult, Workflow, WorkflowState
    from dibs.poller import PollerConfig, TaskPoller
    from dibs.worker.config import WorkerConfig
    from dibs.worker.worker import Health, Worker
    from dibs.workflow.finalization import FinalizationClaimer
    from dibs.workflow.task_data import Results

__all__ = [
    "AlreadyClaimed",
    "ApiKey",
    "AsyncDibs",
    "Backoff",
    "Cancel",
    "Cancelled",
    "CatchUp",
    "Check",
    "Claim",
    "ClaimLost",
    "ClaimReason",
    "ClaimRef",
    "Completed",
    "Context",
    "Dibs",
    "DibsError",
    "Event",
    "ExecutionContext",
    "ExecutionStatus",
    "Explanation",
    "Failed",
    "Failure",
    "FinalizationAttempt",
    "FinalizationClaim",
    "FinalizationClaimer",
    "FinalizationLost",
    "Finalized",
    "Finished",
    "Handler",
    "Health",
    "HistoryEntry",
    "InvalidGraph",
    "InvalidValue",
    "KeyConflict",
    "KeyNotFound",
    "Lane",
    "MintedKey",
    "NewStep",
    "NewTask",
    "NewWorkflow",
    "NotAllowed",
    "NotClaimable",
    "NotYourClaim",
    "OnFailure",
    "Order",
    "Outcome",
    "OutcomeConflict",
    "OutcomeUnknown",
    "Permanent",
    "PollerConfig",
    "QueueInfo",
    "RateLimit",
    "RateLimited",
    "Reason",
    "Records",
    "Released",
    "Renewed",
    "Results",
    "RetentionChange",
    "RetentionNotFound",
    "RetentionRule",
    "Retry",
    "Schedule",
    "ScheduleNotFound",
    "SchemaMissing",
    "SchemaTooNew",
    "SchemaViolation",
    "Scope",
    "SetAside",
    "Snooze",
    "State",
    "Stats",
    "Step",
    "StepResult",
    "StoreBusy",
    "StoreError",
    "StoreRefused",
    "StoreUnavailable",
    "Task",
    "TaskNotFound",
    "TaskPoller",
    "TaskType",
    "TaskTypeNotFound",
    "Upkept",
    "ValidationTooSlow",
    "Verdict",
    "WaitTimeout",
    "Worker",
    "WorkerConfig",
    "WorkerInfo",
    "WorkerState",
    "Workflow",
    "WorkflowNotFound",
    "WorkflowState",
    "WrongState",
    "WrongWorkflowState",
    "__version__",
]

_HOMES = (
    "client",
    "client_async",
    "errors",
    "handlers.context",
    "handlers.endings",
    "handlers.handler",
    "model.claim",
    "model.explanation",
    "model.finalization",
    "model.history",
    "model.key",
    "model.registry",
    "model.retention",
    "model.retry",
    "model.schedule",
    "model.statistics",
    "model.task",
    "model.upkeep",
    "model.workflow",
    "poller",
    "worker.config",
    "worker.worker",
    "workflow.finalization",
    "workflow.task_data",
)
"""The modules that define the public names, in the order of the search."""


if not TYPE_CHECKING:  # with __getattr__ a type checker would accept any name

    def __getattr__(name: str) -> Any:
        """Import a public name on first use, so that the command line does not import the clients for --help."""
        if name in __all__:
            for home in _HOMES:
                if hasattr(module := import_module(f"dibs.{home}"), name):
                    globals()[name] = getattr(module, name)
                    return globals()[name]
        raise AttributeError(f"module 'dibs' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return sorted({*globals(), *__all__})
