"""Every struct of dibs.wire: encoding and decoding returns the same object, with no field lost or swapped."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

import dibs
import dibs.wire
from dibs import errors
from dibs.model import claim as model_claim
from dibs.model import finalization as model_finalization
from dibs.model.claim import Cancelled, ClaimRef, ClaimRequest, ClaimStatus, Completed, Failed, Filters, Renewed
from dibs.model.declaration import Declarations, StoredDeclarations
from dibs.model.execution import Execution, StepEnd
from dibs.model.finalization import ClaimReason, ExecutionContext, ExecutionStatus, FinalizationAction
from dibs.model.history import StoreEvent
from dibs.model.key import NewKey
from dibs.model.limit import LimitChange, NewLimit, NewQueueSettings, NewTypeSettings, Settled
from dibs.model.logs import LogFilter, LogLevel, LogLine, LogPage
from dibs.model.registry import DeclaredSchema, Heartbeat
from dibs.model.retention import Records, RetentionTarget
from dibs.model.schedule import DueSchedule, NewSchedule
from dibs.model.search import BulkResult, DeadFilter, TaskFilter, TaskMatch, TaskPage, TasksById
from dibs.model.statistics import Percentiles
from dibs.model.task import SetAside, State
from dibs.model.upkeep import Check, Pruned, PrunePosition
from dibs.model.workflow import NewStep, NewWorkflow, StepKind, StepResult, WorkflowFilter, WorkflowState
from dibs.wire import (
    admin,
    claims,
    fields,
    finalization,
    history,
    keys,
    limits,
    logs,
    retention,
    schedules,
    tasks,
    workflows,
)
from dibs.wire import errors as wire_errors

NOW = datetime(2025, 11, 12, 10, 30, tzinfo=UTC)  # no microseconds: they are written all the same
LATER = NOW + timedelta(days=1, microseconds=5)
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
FAILURE = dibs.Failure("ValueError", "no", "trace", True)
PENDING = dibs.Task(7, "resize", "default", dibs.State.PENDING, {"a": 1}, 5, 0, 3, 1, NOW, LATER)
FULL = dibs.Task(
    id=8,
    type="resize",
    queue="mail",
    state=dibs.State.FAILED,
    params={"a": [1]},
    priority=-5,
    attempts=2,
    max_attempts=4,
    token=3,
    created_at=NOW,
    run_at=NOW + timedelta(seconds=1),
    type_version=9,
    timeout=30.5,
    claimed_at=NOW + timedelta(seconds=2),
    lease_until=NOW + timedelta(seconds=3),
    finished_at=NOW + timedelta(seconds=4),
    worker_id="w-1",
    key="k-1",
    cancel_requested=True,
    progress=50,
    progress_message="half",
    raw_result={"r": 1},
    error=FAILURE,
    dropped=10,
    workflow_id=99,
    trace=TRACE,
    set_aside=SetAside.DISCARDED,
    key_scope=dibs.KeyScope.UNTIL_TIME,
    key_until=NOW + timedelta(seconds=5),
)
CLAIM = dibs.Claim(FULL, FULL.token, "w-1", NOW + timedelta(seconds=3))
WHY = dibs.Explanation(7, dibs.State.SCHEDULED, [dibs.Reason("not_due", "It is not due.")])
ENTRY = dibs.HistoryEntry(1, 7, dibs.Event.CLAIMED, dibs.State.PENDING, dibs.State.CLAIMED, "w", 2, "me", NOW, {"x": 1})
BACKOFF = dibs.Backoff(2.0, 60.0)
NEW = dibs.NewTask("resize", {"a": 1}, "mail", 3, 7, None, LATER, 30.5, "k", BACKOFF, TRACE)
TASK_CHANGE = dibs.TaskChange(priority=-3, run_at=LATER, queue="mail", params={"a": 1}, tags=["x"], group="acme")
CHANGE_FOR_MANY = dibs.TaskChange(delay=5.5, tags=[], group="")
UNIQUE = dibs.NewTask(
    "t", key="k", key_scope="until_started", on_conflict="replace", delay=5.0, max_delay=60.0, request="r-1"
)
TIMED = dibs.NewTask("t", key="k", key_for=3600.0, on_conflict="keep")
STEPS = [
    NewStep(name="a", task=dibs.NewTask("fetch", {"x": 1}, "mail", delay=3), after=[]),
    NewStep(
        name="b",
        workflow=NewWorkflow(name="sub", steps=[NewStep(name="c", task=dibs.NewTask("t"), after=[])], deadline=LATER),
        after=["a"],
        on_failure="ignore",
    ),
]
GRAPH = NewWorkflow(
    name="order", steps=STEPS, finalizer=dibs.NewTask("end", {"a": 1}), on_failure="continue", deadline=30.0
)
WORKFLOW = dibs.Workflow(
    id=1,
    name="order",
    state=dibs.WorkflowState.RUNNING,
    steps=14,
    active=2,
    ended=3,
    failures=4,
    created_at=NOW,
    queues=["a", "b"],
    root_id=5,
    key="k",
    deadline=LATER,
    finished_at=NOW + timedelta(seconds=1),
    on_failure=dibs.OnFailure.IGNORE,
    stopping="failed",
    error=FAILURE,
    step_of=6,
    finalizer_id=7,
    finalization_token=8,
    finalization_by="p",
    finalization_until=NOW + timedelta(seconds=2),
)
STEP = dibs.Step(
    task_id=3,
    name="a",
    kind=StepKind.TASK,
    type="resize",
    queue="mail",
    state=dibs.State.FAILED,
    attempts=1,
    max_attempts=2,
    after=[4],
    waits=5,
    on_failure=dibs.OnFailure.CONTINUE,
    passed=False,
    worker_id="w",
    claimed_at=NOW,
    finished_at=LATER,
    error=FAILURE,
    workflow_id=8,
)
STEP_END = StepEnd(7, "a", State.FAILED, ignored=True, started=False, error=FAILURE)
EXECUTION = Execution(3, "order", WorkflowState.FAILED, "deadline", FAILURE, [STEP_END])
RESULT = StepResult(1, "a", "resize", dibs.State.COMPLETED, [1], FAILURE)
SCHEDULE = dibs.Schedule(
    name="nightly",
    cron="0 3 * * *",
    timezone="Europe/Berlin",
    catch_up=dibs.CatchUp.ALL,
    enabled=False,
    type="resize",
    params={"a": 1},
    queue="mail",
    priority=1,
    max_attempts=4,
    timeout=3.5,
    backoff=BACKOFF,
    source="code",
    next_at=NOW,
    created_at=NOW + timedelta(seconds=1),
    updated_at=NOW + timedelta(seconds=2),
    last_at=NOW + timedelta(seconds=3),
    last_task_id=12,
    last_error="no",
    limits=["stripe"],
    group="acme",
)
NEW_SCHEDULE = NewSchedule(
    name="nightly",
    cron="@daily",
    type="resize",
    params={"a": 1},
    timezone="Europe/Berlin",
    catch_up="all",
    enabled=False,
    queue="mail",
    priority=1,
    max_attempts=4,
    timeout=3.5,
    backoff=BACKOFF,
    limits=["stripe"],
    group="acme",
)
QUEUE = dibs.QueueInfo("mail", True, NOW, {"pending": 1})
PAUSED_TYPE = dibs.PausedType("resize", NOW)
WORKER = dibs.WorkerInfo("w", "i", dibs.WorkerState.ACTIVE, ["q"], ["t"], {"h": 1}, NOW, LATER, None, [7])
KIND = dibs.TaskType("resize", 2, {"type": "object"}, {"a": 1}, NOW, LATER, "code")
STATS = dibs.Stats(
    {"p": 1}, {"q": {"p": 1}}, {"t": {"p": 1}}, 3.5, {"c": 1}, {"c": 2}, Percentiles(1, 2, 3), Percentiles(), 4
)
KEY = dibs.ApiKey(
    "abcdefghijkl", "ci", (dibs.Scope.READ,), ("mail",), dibs.RateLimit(7, 3600.0), NOW, "me", LATER, NOW, LATER
)
LIMIT = dibs.Limit(
    name="stripe",
    max=2,
    rate="100/minute",
    burst=10,
    per="group",
    source="command",
    created_at=NOW,
    updated_at=LATER,
    used=3,
    waiting=4,
    declared={"max": 5},
)
LIMIT_GROUPS = [dibs.LimitGroup("stripe", None, 1, 2, LATER), dibs.LimitGroup("stripe", "acme", 3, 4)]
QUEUE_SETTINGS = dibs.QueueSettings("mail", True, ["stripe"], "command", NOW, {"fair": False})
TYPE_SETTINGS = dibs.TypeSettings("charge", ["stripe"], "tenant", "code", NOW, {"limits": ["stripe"]})
GROUPS = [dibs.GroupInfo("mail", None, 2.0, 1), dibs.GroupInfo("mail", "acme", 3.0, 4)]
RULE = dibs.RetentionRule(Records.FAILED, 3.5, "mail", None, None, NOW, "me")
CHANGE = dibs.RetentionChange(1, NOW, "me", Records.FAILED, None, True, None, None, "order")
TARGET = RetentionTarget(records="failed", workflow="order")
CHECK = Check("schema", dibs.Verdict.WARN, "old", "migrate")
CONTEXT = ExecutionContext(
    1, dibs.WorkflowState.RUNNING, 3, {"pending": 1}, 4, 5, 33.3, ExecutionStatus.PROCESSING,
    FinalizationAction.RECHECK_LATER,
)  # fmt: skip
GRANTED = model_finalization.FinalizationClaim(1, "p", True, ClaimReason.CLAIMED, "s", "m", "o", 3, NOW)
ATTEMPT = model_finalization.FinalizationAttempt(1, 2, "p", True, ClaimReason.CLAIMED, "s", "m", "o", 3, NOW)
FINALIZED = model_finalization.Finalized(
    1, dibs.WorkflowState.FAILED, ExecutionStatus.PROCESSING, FinalizationAction.FAIL_WORKFLOW
)
FINISHED = model_claim.Finished(7, dibs.State.SCHEDULED, 1, LATER, True)
MATCH = {
    "state": "failed",
    "type": "t",
    "queue": "q",
    "key": "k",
    "worker": "w",
    "text": "x",
    "since": NOW,
    "until": LATER,
    "group": "g",
    "with_limit": "l",
}
REF = ClaimRef(7, 2, "w-1")
CLAIM_REQUEST = ClaimRequest(
    worker_id="w-1",
    queues=["q"],
    types=["t"],
    max_attempts_remaining=1,
    order="fifo",
    count=5,
    incarnation="i",
    lease=30.0,
    ahead=True,
    wait=3.0,
    request="r",
)
FAILED = Failed(dibs.Failure("E", "m", "t"), 3.5, True)
EXPIRING_KEY = NewKey(name="ci", scopes=["read"], expires_in=3.5)

NEW_LIMIT = NewLimit(name="stripe", max=2, rate="100/minute", burst=10, per="group")
LIMIT_CHANGE = LimitChange(name="stripe", max=None, rate="1/second", burst=3)
NEW_QUEUE_SETTINGS = NewQueueSettings(queue="mail", fair=False, limits=[])
NEW_TYPE_SETTINGS = NewTypeSettings(type="charge", limits=["stripe"], group_by="")
DECLARATIONS = Declarations(
    limits=[NEW_LIMIT],
    queues=[NEW_QUEUE_SETTINGS],
    types=[NewTypeSettings(type="charge", limits=["stripe"], group_by="tenant")],
)
DECLARED_SCHEMAS = [DeclaredSchema("resize", {"type": "object"}), DeclaredSchema("other", None)]
STORED_DECLARATIONS = StoredDeclarations(refused=[], removed=["stripe"], unsettled=True)

ANSWERS: list[tuple[Any, Any]] = [
    (tasks.Failure, FAILURE),
    (tasks.Task, PENDING),
    (tasks.Task, FULL),
    (tasks.Page, TaskPage([FULL, PENDING], 7, 2)),
    (tasks.OneTask, FULL),
    (tasks.ManyTasks, [FULL, PENDING]),
    (tasks.FoundTasks, TasksById([FULL, PENDING], [9])),
    (tasks.TaskStates, {7: State.PENDING, 8: State.FAILED}),
    (tasks.ChangedTask, FULL),
    (tasks.Created, msgspec.structs.replace(FULL, deduplicated=True)),
    (tasks.Created, msgspec.structs.replace(FULL, deduplicated=True, replaced=True)),
    (tasks.CreatedBatch, [FULL, msgspec.structs.replace(PENDING, deduplicated=True, replaced=True)]),
    (tasks.Backoff, BACKOFF),
    (tasks.MovedTasks, BulkResult(3, 9)),
    (tasks.Redriven, 3),
    (tasks.Discarded, 4),
    (tasks.Reason, WHY.reasons[0]),
    (tasks.Explanation, WHY),
    (tasks.OneExplanation, WHY),
    (claims.Claimed, [CLAIM]),
    (claims.Finished, FINISHED),
    (claims.Renewed, Renewed(7, NOW, True)),
    (history.HistoryEntry, ENTRY),
    (history.TaskEvent, StoreEvent(ENTRY, "mail", "resize")),
    (history.OneHistory, [ENTRY]),
    (history.WholeHistory, [ENTRY, ENTRY]),
    (workflows.Workflow, WORKFLOW),
    (workflows.OneWorkflow, WORKFLOW),
    (workflows.ChangedWorkflow, WORKFLOW),
    (workflows.StartedWorkflow, msgspec.structs.replace(WORKFLOW, deduplicated=True)),
    (workflows.Step, STEP),
    (workflows.Steps, [STEP]),
    (workflows.StepResult, RESULT),
    (workflows.Results, [RESULT]),
    (workflows.StepEnd, STEP_END),
    (workflows.Execution, EXECUTION),
    (workflows.OneExecution, EXECUTION),
    (finalization.FinalizationClaim, GRANTED),
    (finalization.UnknownWorkflow, GRANTED),
    (finalization.NotClaimed, GRANTED),
    (finalization.FinalizationReleased, True),
    (finalization.Finalized, FINALIZED),
    (finalization.ExecutionContext, CONTEXT),
    (finalization.OneContext, CONTEXT),
    (finalization.FinalizationAttempt, ATTEMPT),
    (finalization.FinalizationAttempts, [ATTEMPT]),
    (schedules.Schedule, SCHEDULE),
    (schedules.OneSchedule, SCHEDULE),
    (schedules.ChangedSchedule, SCHEDULE),
    (schedules.Schedules, [SCHEDULE]),
    (schedules.Due, DueSchedule(SCHEDULE, LATER)),
    (schedules.DueSchedules, [DueSchedule(SCHEDULE, LATER)]),
    (admin.Queue, QUEUE),
    (admin.Queues, [QUEUE]),
    (admin.PausedType, PAUSED_TYPE),
    (admin.PausedTypes, [PAUSED_TYPE]),
    (admin.Worker, WORKER),
    (admin.Workers, [WORKER]),
    (admin.TaskType, KIND),
    (admin.RegisteredType, KIND),
    (admin.OneType, KIND),
    (admin.TaskTypes, [KIND]),
    (admin.StoredSchemas, []),
    (admin.Percentiles, Percentiles(0.1, 0.2, 0.3)),
    (admin.Stats, STATS),
    (admin.OneStats, STATS),
    (admin.Check, CHECK),
    (admin.Checks, [CHECK]),
    (admin.PrunedAnswer, Pruned(3, PrunePosition(5, {"completed": 6}, ("a",)))),
    (keys.Key, KEY),
    (keys.Keys, [KEY]),
    (keys.Minted, dibs.MintedKey("dibs_abcdefghijkl_secret", KEY)),
    (retention.RetentionRule, RULE),
    (retention.RetentionRules, [RULE]),
    (retention.ChangedRule, RULE),
    (retention.RetentionChange, CHANGE),
    (retention.RetentionChanges, [CHANGE]),
    (limits.Limit, LIMIT),
    (limits.OneLimit, LIMIT),
    (limits.ChangedLimit, LIMIT),
    (limits.Limits, [LIMIT, msgspec.structs.replace(LIMIT, per=None, declared=None)]),
    (limits.QueueSettings, QUEUE_SETTINGS),
    (limits.OneQueueSettings, QUEUE_SETTINGS),
    (limits.ChangedQueueSettings, QUEUE_SETTINGS),
    (limits.TypeSettings, TYPE_SETTINGS),
    (limits.OneTypeSettings, TYPE_SETTINGS),
    (limits.ChangedTypeSettings, TYPE_SETTINGS),
    (limits.Settled, Settled(3, 7, 2)),
    (limits.StoredDeclarations, STORED_DECLARATIONS),
    (limits.Group, GROUPS[1]),
    (limits.ChangedGroup, GROUPS[0]),
    (fields.Counted, 3),
]
"""Structs that are made of one thing of the model and give the same thing back."""

REQUESTS: list[tuple[Any, tuple[Any, ...], tuple[Any, ...], Any]] = [
    (tasks.NewTaskBody, (NEW,), (), NEW),
    (tasks.NewTaskBody, (dibs.NewTask("resize"),), (), dibs.NewTask("resize")),
    (tasks.ChangeBody, (TASK_CHANGE,), (), TASK_CHANGE),
    (tasks.ChangeForManyBody, (CHANGE_FOR_MANY,), (), CHANGE_FOR_MANY),
    (tasks.NewTaskBody, (UNIQUE,), (), UNIQUE),
    (tasks.NewTaskBody, (TIMED,), (), TIMED),
    (tasks.BatchBody, ([NEW, UNIQUE],), (), [NEW, UNIQUE]),
    (tasks.BackoffBody, (BACKOFF,), (), BACKOFF),
    (tasks.MatchBody, (TaskMatch(**MATCH), 9), (None,), TaskMatch(**MATCH)),
    (tasks.ListQuery, (TaskFilter(**MATCH, limit=7, cursor=9),), (["q"],), TaskMatch(**MATCH, queues=["q"])),
    (
        tasks.DeadQuery,
        (TaskFilter(dead=True, queue="q", type="t", error="e", limit=7, cursor=9),),
        (None,),
        TaskFilter(dead=True, queue="q", type="t", error="e", limit=7, cursor=9),
    ),
    (tasks.RedriveBody, (DeadFilter(type="t", error="e"), 5), ("q",), DeadFilter(queue="q", type="t", error="e")),
    (tasks.DiscardBody, (DeadFilter(type="t", error="e"), 5), ("q",), DeadFilter(queue="q", type="t", error="e")),
    (
        claims.PeekBody,
        (Filters(queues=["q"], types=["t"], max_attempts_remaining=1, order="lifo", count=4),),
        (["q"],),
        Filters(queues=["q"], types=["t"], max_attempts_remaining=1, order="lifo", count=4),
    ),
    (claims.ClaimOptions, (CLAIM_REQUEST,), ("w-1", ["q"]), msgspec.structs.replace(CLAIM_REQUEST, wait=0)),
    (claims.ClaimBody, (CLAIM_REQUEST,), ("w-1", ["q"]), msgspec.structs.replace(CLAIM_REQUEST, wait=0)),
    (
        claims.ClaimByIdBody,
        (ClaimRequest(worker_id="w-1", lease=5.0, request="r"),),
        (),
        ClaimRequest(worker_id="w-1", lease=5.0, request="r"),
    ),
    (claims.CompletedOutcome, (REF, Completed({"a": 1}, STEPS)), (), Completed({"a": 1}, STEPS)),
    (claims.FailedOutcome, (REF, FAILED), (), FAILED),
    (claims.ReleasedOutcome, (REF, model_claim.Released(4.0)), (), model_claim.Released(4.0)),
    (claims.CancelledOutcome, (REF, Cancelled()), (), Cancelled()),
    (claims.ProgressSaved, (7, True), (), True),
    (claims.Started, (7,), (), None),
    (workflows.FinalizerBody, (dibs.NewTask("end", {"a": 1}),), (), dibs.NewTask("end", {"a": 1})),
    (workflows.StepBody, (STEPS[0],), ("a", 0), STEPS[0]),
    (workflows.StepBody, (STEPS[1],), ("b", 0), STEPS[1]),
    (workflows.SubWorkflowBody, (GRAPH,), (), GRAPH),
    (
        workflows.WorkflowBody,
        (msgspec.structs.replace(GRAPH, key="k"),),
        (),
        msgspec.structs.replace(GRAPH, key="k"),
    ),
    (workflows.MoreStepsBody, (STEPS,), (), STEPS),
    (
        workflows.WorkflowsQuery,
        (WorkflowFilter(state="failed", name="n", limit=3, cursor=4),),
        (["q"],),
        WorkflowFilter(state="failed", name="n", limit=3, cursor=4, only=["q"]),
    ),
    (schedules.ScheduleBody, (NEW_SCHEDULE, "code"), (), NEW_SCHEDULE),
    (
        admin.HeartbeatBody,
        (Heartbeat(worker_id="w", incarnation="i", queues=["q"], types=["t"], metadata={"a": 1}, leaving=True),),
        (["q"],),
        Heartbeat(worker_id="w", incarnation="i", queues=["q"], types=["t"], metadata={"a": 1}, leaving=True),
    ),
    (admin.PruneBody, (3, PrunePosition(5, {"completed": 6})), (), PrunePosition(5, {"completed": 6})),
    (admin.Gated, ("mail", True), (), None),
    (admin.GatedType, ("resize", True), (), None),
    (
        keys.NewKeyBody,
        (NewKey(name="ci", scopes=["read"], queues=["q"], rate_limit=None, expires_at=LATER),),
        (),
        NewKey(name="ci", scopes=["read"], queues=["q"], rate_limit=None, expires_at=LATER),
    ),
    (keys.NewKeyBody, (EXPIRING_KEY,), (), EXPIRING_KEY),
    (retention.TargetBody, (TARGET,), (), TARGET),
    (limits.NewLimitBody, (NEW_LIMIT, "code"), ("stripe",), NEW_LIMIT),
    (limits.LimitChangeBody, (LIMIT_CHANGE,), ("stripe",), LIMIT_CHANGE),
    (limits.QueueSettingsBody, (NEW_QUEUE_SETTINGS, "code"), ("mail",), NEW_QUEUE_SETTINGS),
    (limits.TypeSettingsBody, (NEW_TYPE_SETTINGS, "code"), ("charge",), NEW_TYPE_SETTINGS),
    (limits.DeclarationsBody, (DECLARATIONS,), (), DECLARATIONS),
    (admin.DeclaredSchemasBody, (DECLARED_SCHEMAS,), (), DECLARED_SCHEMAS),
    (limits.LimitGroups, ("stripe", LIMIT_GROUPS, 2), (), LIMIT_GROUPS),
    (limits.Groups, (GROUPS, 2), (), GROUPS),
    (limits.AllSettings, ([QUEUE_SETTINGS], [TYPE_SETTINGS]), (), ([QUEUE_SETTINGS], [TYPE_SETTINGS])),
    (fields.Done, (), (), None),
]
"""Structs that take more than one thing, or more than JSON: from what they are made, what `to_model` takes, and what it
gives."""

LOG_LINE = LogLine(7, 3, 2, 5, LATER, LogLevel.ERROR, "videos", "one\ntwo")
LOG_FILTER = LogFilter(after="3-5", attempt=2, level="error", limit=7)

ANSWERS += [(logs.LogLine, LOG_LINE), (logs.LogLines, LogPage([LOG_LINE], True))]
REQUESTS += [
    (logs.NewLogLine, (LOG_LINE,), (), LOG_LINE),
    (logs.LogQuery, (LOG_FILTER, 3.5), (), LOG_FILTER),
]

PLAIN: list[Any] = [
    logs.LogLinesBody(lines=[logs.NewLogLine.from_model(LOG_LINE)]),
    fields.Empty(),
    tasks.ReadManyBody(ids=[7, 8]),
    tasks.StatesBody(ids=[7, 8]),
    tasks.DiscardBody.of_ids([1, 2], DeadFilter(queue="q")),
    claims.OneClaim.from_model(REF),
    claims.TaskProgress.from_model(REF, 50, "half"),
    claims.Filters(types=["t"], max_attempts_remaining=1, queues=["q"]),
    claims.NoneAvailable.from_request(claims.ClaimOptions(types=["t"])),
    claims.CompleteBody(worker_id="w", token=1, result={"a": 1}),
    claims.FailBody(worker_id="w", token=1, message="m", type="E", traceback="t", retryable=False, retry_in=3.0),
    tasks.ChangeMatchingBody.of_change(CHANGE_FOR_MANY, TaskMatch(**MATCH), 9),
    claims.ReleaseBody(worker_id="w", token=1, delay=3.0),
    claims.FinishBody(worker_id="w", outcomes=[claims.CancelledOutcome.from_model(REF, Cancelled())]),
    claims.ExchangeBody(worker_id="w", outcomes=[], claim=claims.ClaimOptions(count=2)),
    claims.RenewBody(worker_id="w", token=1, lease=3.0),
    claims.RenewManyBody(worker_id="w", claims=[claims.OneClaim.from_model(REF)], lease=3.0),
    claims.ProgressBody(worker_id="w", token=1, progress=50, message="half"),
    claims.ClaimsBody(worker_id="w", claims=[claims.OneClaim.from_model(REF)]),
    claims.ProgressManyBody(worker_id="w", notes=[claims.TaskProgress.from_model(REF, 50, None)]),
    claims.ClaimStatuses([ClaimStatus.HELD, ClaimStatus.LOST]),
    claims.DueIn(3.5),
    claims.CheckpointBody(worker_id="w", token=1, name="n", value={"a": 1}),
    claims.Checkpoints({"n": {"a": 1}}),
    claims.KeptCheckpoint(True, [1]),
    history.HistoryQuery(after=3, limit=5),
    history.EventsQuery(kinds="completed,failed", queue="mail", type="resize", task_id=7, after=17),
    history.WakeupsQuery(process="p", generation=3, wait=1.5),
    history.Woken("p", 3),
    workflows.Finalization(3, "p", "2025-11-12T10:30:00.000000Z"),
    workflows.WorkflowPage.from_models([WORKFLOW], 1),
    finalization.ClaimFinalizationBody(processor="p", lease=3.0),
    finalization.HolderBody.from_model("p", 3),
    finalization.ExtendBody.from_model("p", 3, lease=3.0),
    finalization.DueQuery(limit=3),
    finalization.DueWorkflows([1, 2]),
    schedules.TickBody.from_model(DueSchedule(SCHEDULE, LATER)),
    admin.NewTypeBody(name="t", schema={"type": "object"}, defaults={"a": 1}),
    admin.TypeQuery(version=3),
    admin.LimitBody(limit=3),
    admin.Alive(),
    admin.Ready(),
    keys.Revoked.from_model(KEY),
    retention.RuleBody.of(TARGET, None),
    limits.GroupsQuery(limit=3, cursor=""),
    limits.LimitGroup.from_model(LIMIT_GROUPS[0]),
    limits.WeightBody(weight=3.0),
    limits.SettleBody(after=3, limit=5),
    limits.DeclaredLimit.of(NEW_LIMIT),
    limits.DeclaredQueue("mail", True, ["stripe"]),
    limits.DeclaredType("charge", ["stripe"], "tenant"),
    admin.DeclaredSchemaBody("charge", {"type": "object"}),
    retention.ChangesQuery(limit=3),
]
"""Structs that have no counterpart in the model."""

ANSWERS_TO_MANY = {
    claims.FinishedAnswers,
    claims.Exchanged,
    claims.RenewedAnswers,
    claims.ProgressSavedAnswers,
    claims.StartedAnswers,
    limits.RefusedDeclaration,
}
"""Lists of answers and refusals; a client reads each entry on its own."""

BASES = {
    fields.RequestBody,
    fields.Query,
    tasks.TaskOptions,
    claims.OrderOptions,
    claims.ClaimHolder,
    claims.ClaimFields,
    history.EntryFields,
    finalization.ProcessorBody,
    keys.KeyFields,
}
"""Structs that only others are made of."""


def sent(struct: Any, kind: Any = None) -> Any:
    """The struct as the other side reads it."""
    return msgspec.json.decode(msgspec.json.encode(struct), type=kind or type(struct))


def named(case: Any) -> str:
    return case.__name__ if isinstance(case, type) else ""


@pytest.mark.parametrize(("kind", "thing"), ANSWERS, ids=named)
def test_a_response_is_decoded_into_the_model_that_the_server_encoded(kind: Any, thing: Any) -> None:
    assert sent(kind.from_model(thing)).to_model() == thing


@pytest.mark.parametrize(("kind", "made_of", "given", "thing"), REQUESTS, ids=named)
def test_a_request_is_decoded_into_the_model_that_the_client_encoded(
    kind: Any, made_of: Any, given: Any, thing: Any
) -> None:
    assert sent(kind.from_model(*made_of), kind).to_model(*given) == thing


@pytest.mark.parametrize("struct", PLAIN, ids=lambda struct: type(struct).__name__)
def test_a_struct_is_decoded_as_it_was_encoded(struct: Any) -> None:
    assert sent(struct) == struct


def test_a_page_of_workflows_is_decoded_into_workflows() -> None:
    assert sent(workflows.WorkflowPage.from_models([WORKFLOW], 1)).to_model() == [WORKFLOW]


def test_a_page_of_groups_has_a_cursor_only_if_it_is_full() -> None:
    assert limits.Groups.from_model(GROUPS, 2).next_cursor == "acme"
    assert limits.Groups.from_model(GROUPS[:1], 1).next_cursor == ""
    assert limits.LimitGroups.from_model("stripe", LIMIT_GROUPS, 3).next_cursor is None
    assert limits.Groups.from_model([], 1).next_cursor is None


def test_several_claims_are_decoded_into_claims() -> None:
    assert sent(claims.Claimed.from_model([CLAIM, CLAIM], several=True)).to_model() == [CLAIM, CLAIM]


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidValue("no", hint="do"),
        errors.InvalidGraph("no"),
        errors.SchemaViolation("no"),
        errors.TaskNotFound(7),
        errors.WorkflowNotFound(7),
        errors.ScheduleNotFound("nightly"),
        errors.RetentionNotFound("no"),
        errors.TaskTypeNotFound("no"),
        errors.KeyNotFound("no"),
        errors.KeyConflict("k", 7),
        errors.KeyConflict("k", workflow_id=7),
        errors.KeyConflict("k", 7, message="no", hint="do"),
        errors.AlreadyStarted("no", task_id=7, state="claimed"),
        errors.ClaimLost("no", task_id=7, token=3),
        errors.OutcomeConflict("no", task_id=7, token=3),
        errors.NotYourClaim("no", task_id=7, token=3),
        errors.NotClaimable("no", task_id=7, state="failed"),
        errors.AlreadyClaimed("no", task_id=7, worker_id="w", token=3),
        errors.AlreadyClaimed("no", task_id=7, worker_id="w"),
        errors.WrongState("no", task_id=7, state="failed"),
        errors.WrongWorkflowState("no", workflow_id=7, state="failed"),
        errors.FinalizationLost("no", workflow_id=7, token=3),
        errors.StoreBusy("no"),
        errors.StoreUnavailable("no"),
        errors.StoreRefused("no"),
        errors.OutcomeUnknown("no"),
        errors.RateLimited("no"),
    ],
    ids=named,
)
def test_an_error_is_raised_again_with_its_attributes(error: dibs.DibsError) -> None:
    again = sent(wire_errors.Refusal.from_model(error)).to_model()
    assert (type(again), again.message, again.hint, vars(again)) == (
        type(error),
        error.message,
        error.hint,
        vars(error),
    )


def test_every_struct_is_covered_by_these_tests() -> None:
    modules = [importlib.import_module(f"dibs.wire.{each.name}") for each in pkgutil.iter_modules(dibs.wire.__path__)]
    structs = {
        struct
        for module in modules
        for _, struct in inspect.getmembers(module, inspect.isclass)
        if issubclass(struct, msgspec.Struct) and struct.__module__ == module.__name__
    }
    here = {case[0] for case in [*ANSWERS, *REQUESTS]} | {type(struct) for struct in PLAIN}
    assert structs - here - BASES - ANSWERS_TO_MANY == {wire_errors.Refusal}
