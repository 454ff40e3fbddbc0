"""dibs: a durable task queue in which every task is claimed by exactly one worker.

PYTEST_DONT_REWRITE: pytest then does not warn that dibs was imported before its plugin (see dibs.pytest_plugin).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dibs.version import __version__

if TYPE_CHECKING:
    from dibs.client import Dibs
    from dibs.client_async import AsyncDibs
    from dibs.errors import (
        AlreadyClaimed,
        AlreadyStarted,
        ClaimLost,
        CodecFailed,
        CodecMissing,
        DibsError,
        EventsPruned,
        FinalizationLost,
        InvalidGraph,
        InvalidValue,
        KeyConflict,
        KeyNotFound,
        LifespanFailed,
        LimitNotFound,
        LimitReached,
        LimitUnknown,
        NotAllowed,
        NotClaimable,
        NotYourClaim,
        OutcomeConflict,
        OutcomeUnknown,
        RateLimited,
        ResultMismatch,
        ResultMissing,
        RetentionNotFound,
        ScheduleNotFound,
        SchemaMissing,
        SchemaTooNew,
        SchemaViolation,
        StoreBusy,
        StoreError,
        StoreRefused,
        StoreUnavailable,
        TaskExpired,
        TaskNotFound,
        TaskTypeNotFound,
        ValidationTooSlow,
        WaitTimeout,
        WorkflowNotFound,
        WrongState,
        WrongWorkflowState,
    )
    from dibs.handlers.batch import AsyncBatchHandler, BatchHandler, BatchItem
    from dibs.handlers.codecs import Codec
    from dibs.handlers.context import Context
    from dibs.handlers.endings import Cancel, Permanent, Retry, Snooze
    from dibs.handlers.handler import AsyncHandler, Handler, Lane
    from dibs.handlers.log_capture import LogCapture
    from dibs.handlers.outcome_hooks import EndedAttempt, HookKind
    from dibs.many.async_tasks import AsyncTasks
    from dibs.many.handles import NotAllEnqueued
    from dibs.many.tasks import Tasks
    from dibs.model.async_task import AsyncTask
    from dibs.model.async_workflow import AsyncWorkflow
    from dibs.model.change import TaskChange
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
    from dibs.model.execution import Execution, StepEnd, WorkflowFailed
    from dibs.model.explanation import Explanation, Reason
    from dibs.model.finalization import (
        ClaimReason,
        ExecutionContext,
        ExecutionStatus,
        FinalizationAttempt,
        FinalizationClaim,
        Finalized,
    )
    from dibs.model.history import HistoryEntry, StoreEvent
    from dibs.model.key import ApiKey, MintedKey, RateLimit, Scope
    from dibs.model.limit import GroupInfo, Limit, LimitGroup, QueueSettings, TypeSettings
    from dibs.model.logs import LogLevel, LogLine
    from dibs.model.registry import PausedType, QueueInfo, TaskType, WorkerInfo, WorkerState
    from dibs.model.retention import Records, RetentionChange, RetentionRule
    from dibs.model.retry import Backoff, LinearBackoff
    from dibs.model.schedule import CatchUp, Overlap, Schedule
    from dibs.model.statistics import Stats
    from dibs.model.task import Event, Failure, NewTask, SetAside, State, Task
    from dibs.model.unique import KeyScope, OnConflict
    from dibs.model.upkeep import Check, Upkept, Verdict
    from dibs.model.workflow import (
        FinalizeWhen,
        NewStep,
        NewWorkflow,
        OnFailure,
        Step,
        StepResult,
        Workflow,
        WorkflowState,
    )
    from dibs.poller import PollerConfig, TaskPoller
    from dibs.worker.config import WorkerConfig
    from dibs.worker.worker import Health, Worker
    from dibs.workflow.finalization import FinalizationClaimer
    from dibs.workflow.task_data import Results

__all__ = [
    "AlreadyClaimed",
    "AlreadyStarted",
    "ApiKey",
    "AsyncBatchHandler",
    "AsyncDibs",
    "AsyncHandler",
    "AsyncTask",
    "AsyncTasks",
    "AsyncWorkflow",
    "Backoff",
    "BatchHandler",
    "BatchItem",
    "Cancel",
    "Cancelled",
    "CatchUp",
    "Check",
    "Claim",
    "ClaimLost",
    "ClaimReason",
    "ClaimRef",
    "Codec",
    "CodecFailed",
    "CodecMissing",
    "Completed",
    "Context",
    "Dibs",
    "DibsError",
    "EndedAttempt",
    "Event",
    "EventsPruned",
    "Execution",
    "ExecutionContext",
    "ExecutionStatus",
    "Explanation",
    "Failed",
    "Failure",
    "FinalizationAttempt",
    "FinalizationClaim",
    "FinalizationClaimer",
    "FinalizationLost",
    "FinalizeWhen",
    "Finalized",
    "Finished",
    "GroupInfo",
    "Handler",
    "Health",
    "HistoryEntry",
    "HookKind",
    "InvalidGraph",
    "InvalidValue",
    "KeyConflict",
    "KeyNotFound",
    "KeyScope",
    "Lane",
    "LifespanFailed",
    "Limit",
    "LimitGroup",
    "LimitNotFound",
    "LimitReached",
    "LimitUnknown",
    "LinearBackoff",
    "LogCapture",
    "LogLevel",
    "LogLine",
    "MintedKey",
    "NewStep",
    "NewTask",
    "NewWorkflow",
    "NotAllEnqueued",
    "NotAllowed",
    "NotClaimable",
    "NotYourClaim",
    "OnConflict",
    "OnFailure",
    "Order",
    "Outcome",
    "OutcomeConflict",
    "OutcomeUnknown",
    "Overlap",
    "PausedType",
    "Permanent",
    "PollerConfig",
    "QueueInfo",
    "QueueSettings",
    "RateLimit",
    "RateLimited",
    "Reason",
    "Records",
    "Released",
    "Renewed",
    "ResultMismatch",
    "ResultMissing",
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
    "StepEnd",
    "StepResult",
    "StoreBusy",
    "StoreError",
    "StoreEvent",
    "StoreRefused",
    "StoreUnavailable",
    "Task",
    "TaskChange",
    "TaskExpired",
    "TaskNotFound",
    "TaskPoller",
    "TaskType",
    "TaskTypeNotFound",
    "Tasks",
    "TypeSettings",
    "Upkept",
    "ValidationTooSlow",
    "Verdict",
    "WaitTimeout",
    "Worker",
    "WorkerConfig",
    "WorkerInfo",
    "WorkerState",
    "Workflow",
    "WorkflowFailed",
    "WorkflowNotFound",
    "WorkflowState",
    "WrongState",
    "WrongWorkflowState",
    "__version__",
]

_NAMES = {
    "client": "Dibs",
    "client_async": "AsyncDibs",
    "handlers.batch": "AsyncBatchHandler BatchHandler BatchItem",
    "handlers.codecs": "Codec",
    "handlers.context": "Context",
    "handlers.endings": "Cancel Permanent Retry Snooze",
    "handlers.handler": "AsyncHandler Handler Lane",
    "handlers.log_capture": "LogCapture",
    "handlers.outcome_hooks": "EndedAttempt HookKind",
    "many.async_tasks": "AsyncTasks",
    "many.handles": "NotAllEnqueued",
    "many.tasks": "Tasks",
    "model.async_task": "AsyncTask",
    "model.async_workflow": "AsyncWorkflow",
    "model.change": "TaskChange",
    "model.claim": "Cancelled Claim ClaimRef Completed Failed Finished Order Outcome Released Renewed",
    "model.execution": "Execution StepEnd WorkflowFailed",
    "model.explanation": "Explanation Reason",
    "model.finalization": "ClaimReason ExecutionContext ExecutionStatus FinalizationAttempt FinalizationClaim"
    " Finalized",
    "model.history": "HistoryEntry StoreEvent",
    "model.key": "ApiKey MintedKey RateLimit Scope",
    "model.limit": "GroupInfo Limit LimitGroup QueueSettings TypeSettings",
    "model.logs": "LogLevel LogLine",
    "model.registry": "PausedType QueueInfo TaskType WorkerInfo WorkerState",
    "model.retention": "Records RetentionChange RetentionRule",
    "model.retry": "Backoff LinearBackoff",
    "model.schedule": "CatchUp Overlap Schedule",
    "model.statistics": "Stats",
    "model.task": "Event Failure NewTask SetAside State Task",
    "model.unique": "KeyScope OnConflict",
    "model.upkeep": "Check Upkept Verdict",
    "model.workflow": "FinalizeWhen NewStep NewWorkflow OnFailure Step StepResult Workflow WorkflowState",
    "poller": "PollerConfig TaskPoller",
    "worker.config": "WorkerConfig",
    "worker.worker": "Health Worker",
    "workflow.finalization": "FinalizationClaimer",
    "workflow.task_data": "Results",
}
"""The public names by the module that defines them; all other public names are errors, of dibs.errors."""

_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}


if not TYPE_CHECKING:  # with __getattr__ a type checker would accept any name

    def __getattr__(name: str) -> Any:
        """Import a public name on first use: a program imports the modules of the names that it uses, and the command
        line no client for --help."""
        if name in __all__:
            globals()[name] = getattr(import_module(f"dibs.{_HOMES.get(name, 'errors')}"), name)
            return globals()[name]
        raise AttributeError(f"module 'dibs' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return sorted({*globals(), *__all__})
