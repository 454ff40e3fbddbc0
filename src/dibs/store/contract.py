"""The contract of a store: what every engine promises.

A store has an interface for each subject: `store.queue.claim(...)` builds an operation, and `store.run(operation)` runs
it, sync or async, on the store's own connections or on a connection of the user. Operations take batches or are tiny,
every write about a claim is fenced by the token of the claim, and every change of a task's state writes its entry of
the history in the same transaction.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Container, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dibs.errors import DibsError
from dibs.model.change import TaskChange
from dibs.model.claim import AnyClaim, Claim, ClaimRequest, ClaimStatus, Filters, Finished, Outcome, Renewed
from dibs.model.declaration import Declarations, RefusedDeclaration, StoredDeclarations
from dibs.model.explanation import Explanation
from dibs.model.finalization import ExecutionContext, FinalizationAttempt, FinalizationClaim, Finalized
from dibs.model.history import EventFilter, EventPage, HistoryEntry, HistoryPosition, RecentHistory, StoreEvent
from dibs.model.key import ApiKey, BrowserSession, MintedKey, NewKey, RateLimit, RateLimitGrant
from dibs.model.limit import (
    GroupInfo,
    Limit,
    LimitChange,
    LimitGroup,
    NewLimit,
    NewQueueSettings,
    NewTypeSettings,
    QueueSettings,
    SettingSource,
    Settled,
    TypeSettings,
)
from dibs.model.registry import DeclaredSchema, Heartbeat, PausedType, QueueInfo, TaskType, WorkerInfo
from dibs.model.retention import RetentionChange, RetentionRule, RetentionTarget
from dibs.model.schedule import DueSchedule, NewSchedule, Schedule, ScheduleSource
from dibs.model.search import (
    BulkResult,
    DeadFilter,
    FoundTasks,
    TaskFilter,
    TaskMatch,
    TaskPage,
    TasksById,
    TaskSearch,
)
from dibs.model.statistics import (
    ChangesSince,
    DatabaseHealth,
    ErrorGroups,
    Latencies,
    Stats,
    TaskCounts,
    WorkersAndPauses,
)
from dibs.model.task import NewTask, State, Task
from dibs.model.upkeep import Check, Pause, PausesToPark, Pruned, PrunePosition
from dibs.model.workflow import (
    FoundWorkflows,
    NewStep,
    NewWorkflow,
    Step,
    StepDetails,
    StepGroup,
    StepResult,
    Workflow,
    WorkflowFilter,
    WorkflowOutline,
)
from dibs.store.migrate import OnMigration
from dibs.store.operation import Operation, Rows
from dibs.store.wakeups import Wakeups

if TYPE_CHECKING:
    from dibs.model.execution import Execution
    from dibs.model.logs import LogCount, LogFilter, LogLine, LogPage

T = TypeVar("T")

StoreClock = Callable[[], int]
"""Returns the time as microseconds since 1970. Tests give a store a clock of their own."""


class NumbersMissing(Exception):
    """Raised by a claim in random order before it has claimed anything: tasks have no random-order numbers yet.

    Random-order numbers are stored only in stores that are claimed in random order, so the first such claim finds none.
    The procedures `claim` and `exchange` run `number_random_order`, which needs short transactions of its own, and
    begin again.
    """

    def __init__(self, order: str) -> None:
        super().__init__(order)
        self.order = order


class IndexMissing(Exception):
    """Raised by a claim before it has claimed anything: claims have needed an index that does not exist (see
    store/operations/stream_indexes.py). The procedures run `provide_index`, and begin again."""

    def __init__(self, index: str) -> None:
        super().__init__(index)
        self.index = index


class Observer:
    """Receives the transitions of tasks that a store makes. This class ignores them; a metered store counts them.

    It is called in the middle of a transaction, because an operation may move tasks that its result does not mention.
    So it must be fast. In the rare case that the transaction fails later, it was called for a change that did not
    happen."""

    def added(self, queues: Iterable[str]) -> None:
        """Tasks were added to these queues, one for each name."""

    def moved(self, rows: Rows, ignored: Container[int] = frozenset()) -> None:
        """Claims ended, by their workers or by the end of their lease, or tasks expired. Each row begins with the
        columns of the history and ends with the task's queue and type. `ignored`: the failed tasks that are not in the
        dead letter, because their workflows ignore the failure."""

    def waited(self, waits: Iterable[tuple[str, float]]) -> None:
        """Tasks were claimed that had waited for a limit: its name, and for how many seconds."""


class QueueOperations(Protocol):
    """Enqueue, claim, finish, and keep a claim alive."""

    def enqueue(self, tasks: Sequence[NewTask]) -> Operation[list[Task]]:
        """Store the tasks, all or none, in this order. For a key that is taken in its queue, the result is the task
        that has the key, marked `deduplicated`; with another type or other params it is a KeyConflict, and nothing is
        stored."""

    def claim(self, request: ClaimRequest) -> Operation[list[Claim]]:
        """Up to `count` tasks, each under its next token, for this worker alone. Never more than requested; fewer only
        if no others are pending that pass the filters. Claimed `ahead`, a task counts as not started. With the
        `request` id of an earlier claim of this worker: the tasks of that claim that the worker still holds, if any.
        Raises NumbersMissing if the random order needs numbers first: see `number_random_order`; and IndexMissing if
        an index is to be provided first: see `provide_index`."""

    def claim_by_id(self, task_id: int, request: ClaimRequest) -> Operation[Claim]:
        """Claim this task, to start now. Raises AlreadyClaimed, NotClaimable or TaskNotFound."""

    def peek(self, filters: Filters, content: int | None = ...) -> Operation[list[Task]]:
        """The tasks that a claim would take now. Advisory. With `content`: only the first tasks, of so many characters
        at most (a server chooses its own limit)."""

    def finish(self, reports: Sequence[tuple[AnyClaim, Outcome]]) -> Operation[list[Finished | DibsError]]:
        """Each outcome is written if its token is live, and answered on its own. The same outcome with the same content
        again is answered with the state it led to (`repeated`), with the task's present attempts and run_at where the
        task still exists; with other content it is OutcomeConflict. Any other outcome of a dead claim is ClaimLost. An
        outcome that the database refuses is answered with StoreRefused. None of these changes anything."""

    def exchange(
        self, reports: Sequence[tuple[AnyClaim, Outcome]], request: ClaimRequest
    ) -> Operation[tuple[list[Finished | DibsError], list[Claim]]]:
        """The outcomes as in `finish`, then the tasks as in `claim`, in one transaction: both or neither. A refused
        outcome does not prevent the claims."""

    def start(self, claims: Sequence[AnyClaim]) -> Operation[list[DibsError | None]]:
        """Each task that was claimed ahead starts now, if its token is live: it is charged an attempt if its worker is
        lost from here on. The answer is None, or the error. A worker must not run the task before it has the answer
        None."""

    def renew(self, claims: Sequence[AnyClaim], lease: int) -> Operation[list[Renewed | DibsError]]:
        """Each lease now ends `lease` microseconds from now, if its token is live."""

    def progress(self, reports: Sequence[tuple[AnyClaim, int, str | None]]) -> Operation[list[bool | DibsError]]:
        """The progress of each task (percent, message), if its token is live, answered on its own. True: its
        cancellation was requested. Of several reports about one claim the last is kept."""

    def claim_status(self, claims: Sequence[AnyClaim]) -> Operation[list[ClaimStatus]]:
        """The status of each claim: held, stopping or lost. Nothing is written, no lease is extended."""

    def checkpoints(self, task_id: int) -> Operation[dict[str, Any]]:
        """The values that earlier attempts of the task have kept, by name."""

    def keep_checkpoint(self, claim: AnyClaim, name: str, value: Any) -> Operation[Any]:
        """Keep a value for later attempts, if the token is live; else ClaimLost. Returns the value that is kept: an
        earlier value under this name stays."""


class TaskOperations(Protocol):
    """Read, search, change, cancel, retry and discard tasks."""

    def get(self, task_id: int) -> Operation[Task | None]:
        """The task, or None."""

    def get_many(self, ids: Sequence[int]) -> Operation[TasksById]:
        """The tasks with these ids (up to 1000) that exist, in the order of the ids. Ends early where the tasks have
        much content; `left` has the ids that were not read."""

    def states(self, ids: Sequence[int]) -> Operation[dict[int, State]]:
        """The state of each of these tasks (up to MAX_STATES) that exists."""

    def list_tasks(self, which: TaskFilter, content: int | None = ...) -> Operation[TaskPage]:
        """A page of tasks by state, type and queue, newest first. The other filters are for `find`. The page ends
        before its limit where its tasks have more than `content` characters (a server chooses its own limit)."""

    def find(self, which: TaskSearch, span: int = ...) -> Operation[TaskPage]:
        """The newest matching tasks. A key, or a state with few tasks, is found by an index; otherwise the next `span`
        tasks below the cursor are searched (a server chooses its own span). The search continues at the cursor of the
        answer, also if nothing was found; None: all tasks have been searched."""

    def explain(self, task_id: int) -> Operation[Explanation]:
        """The reasons why the task is not running."""

    def change(self, task_id: int, change: TaskChange) -> Operation[Task]:
        """A waiting task has these new values: the next worker that claims it gets them. AlreadyStarted if a claim came
        first, WrongState for a finished task: nothing has changed then. Values that the task has already are not
        written again. The content of its idempotency key stays that of the enqueue; in another queue the key must be
        free, else KeyConflict. InvalidValue if a limit per group would be left without a group."""

    def cancel(self, task_id: int) -> Operation[Task]:
        """A waiting task is cancelled; the cancellation of a running task is requested from its worker."""

    def retry(self, task_id: int) -> Operation[Task]:
        """A failed, cancelled or scheduled task is pending now, with all its attempts."""

    def redrive_some(self, which: DeadFilter, limit: int) -> Operation[int]:
        """Retry up to `limit` matching tasks of the dead letter. Returns their number."""

    def discard(self, task_id: int) -> Operation[Task]:
        """A task of the dead letter stays failed and leaves the dead letter; the same again changes nothing. WrongState
        where it is not in the dead letter."""

    def discard_many(
        self, ids: Sequence[int], only: Sequence[str] | None = None, which: DeadFilter = ...
    ) -> Operation[int]:
        """Discard the tasks among these that are in the dead letter and match. Returns their number."""

    def discard_some(self, which: DeadFilter, limit: int) -> Operation[int]:
        """Discard up to `limit` matching tasks of the dead letter. Returns their number."""


class HistoryOperations(Protocol):
    """Read the history of tasks."""

    def task_history(self, task_id: int) -> Operation[list[HistoryEntry]]:
        """The history of a task, in order."""

    def history_after(self, entry_id: int, limit: int) -> Operation[list[HistoryEntry]]:
        """The history of all tasks, in order, page by page."""


class RegistryOperations(Protocol):
    """Task types, workers and queues."""

    def register_type(
        self, name: str, schema: dict[str, Any] | bool | None, defaults: dict[str, Any]
    ) -> Operation[TaskType]:
        """A new version of a task type, unless its newest is the same."""

    def declare_schemas(self, schemas: Sequence[DeclaredSchema]) -> Operation[Sequence[RefusedDeclaration]]:
        """Store the schemas that a program declares for its task types, each as a new version. A schema that is
        declared already changes nothing, even if another one was registered by hand since. Returns those that are
        refused; for their types, an earlier declaration is taken back."""

    def get_type(self, name: str, version: int | None) -> Operation[TaskType]:
        """One version of a task type; the newest for None."""

    def list_types(self) -> Operation[list[TaskType]]:
        """All versions of all task types."""

    def heartbeat(self, beat: Heartbeat) -> Operation[None]:
        """The worker is alive (or leaves)."""

    def workers(self) -> Operation[list[WorkerInfo]]:
        """Every known worker, and the tasks that it holds."""

    def queues(self) -> Operation[list[QueueInfo]]:
        """Every queue, its depth, and whether it is paused."""

    def pause(self, queue: str) -> Operation[None]:
        """No task is claimed from the queue."""

    def resume(self, queue: str) -> Operation[None]:
        """Tasks may be claimed from the queue again."""

    def pause_type(self, name: str) -> Operation[None]:
        """No task of this type is claimed. A task whose queue or type is paused waits until both are resumed."""

    def resume_type(self, name: str) -> Operation[None]:
        """Tasks of this type may be claimed again."""

    def paused_types(self) -> Operation[list[PausedType]]:
        """The paused task types by name, registered or not."""


class WorkflowOperations(Protocol):
    """Start workflows, add steps; cancel, retry and read workflows."""

    def start_workflow(self, new: NewWorkflow) -> Operation[Workflow]:
        """Store the whole graph, or nothing. If a workflow that was started in the same queues has the key, the result
        is that workflow, marked `deduplicated`; with another graph it is a KeyConflict."""

    def add_steps(self, workflow_id: int, steps: Sequence[NewStep]) -> Operation[Workflow]:
        """Add steps to a running workflow, all or none. Its existing steps can be their parents."""

    def get_workflow(self, workflow_id: int) -> Operation[Workflow | None]:
        """The workflow, or None."""

    def list_workflows(self, which: WorkflowFilter) -> Operation[list[Workflow]]:
        """A page of workflows, newest first."""

    def steps(self, workflow_id: int) -> Operation[list[Step]]:
        """The workflow's steps in the order in which they were added, or WorkflowNotFound."""

    def results(self, task_id: int) -> Operation[list[StepResult]]:
        """The results of the parents of this step, in the order in which the parents were added. For a finalizer: the
        results of the steps that no other step waits for. Nothing for a task that is not a step."""

    def execution(self, task_id: int) -> Operation[Execution]:
        """How the steps of the workflow of this step ended, without the finalizer. TaskNotFound for an unknown task,
        WrongState for one that is not a step."""

    def cancel_workflow(self, workflow_id: int) -> Operation[Workflow]:
        """Start no more steps, and request the cancellation of running steps. Raises WorkflowNotFound, or
        WrongWorkflowState for a workflow that has completed or failed."""

    def retry_workflow(self, workflow_id: int) -> Operation[Workflow]:
        """A failed or cancelled workflow continues: its failed and cancelled steps run, with all their attempts; its
        completed steps stay. Or WrongWorkflowState."""


class FinalizationOperations(Protocol):
    """Finalize a workflow whose steps have ended, under a claim of the finalization."""

    def execution_context(self, workflow_id: int) -> Operation[ExecutionContext]:
        """The state of the workflow's steps and the action that follows from it, or WorkflowNotFound."""

    def due_finalizations(self, limit: int = ...) -> Operation[list[int]]:
        """Workflows that wait for their finalization and that no processor holds, the longest wait first. Advisory."""

    def claim_finalization(self, workflow_id: int, processor: str, lease: int) -> Operation[FinalizationClaim]:
        """The right to finalize the workflow, for `lease` microseconds, for this processor alone, under the next token.
        A repeated claim of the holder extends the lease under the same token. Otherwise the answer has the reason.
        Every attempt is recorded with its reason."""

    def renew_finalization(
        self, workflow_id: int, processor: str, token: int, lease: int
    ) -> Operation[FinalizationClaim]:
        """Extends the claim that this processor has under this token, also after its lease ran out, if no other claim
        was granted since. Grants no new claim: any other caller gets an answer that names the holder, or says that
        there is none."""

    def release_finalization(self, workflow_id: int, processor: str, token: int) -> Operation[bool]:
        """Gives up the claim that this processor has under this token: True. Any other caller: False, and nothing
        changes."""

    def finalize(self, workflow_id: int, processor: str, token: int) -> Operation[Finalized]:
        """The holder of the claim acts on the execution context, in one transaction: the workflow is completed (or its
        finalizer begins), fails, or is left to be checked later. The claim ends with it. FinalizationLost where the
        token is not the live one: nothing changes."""

    def finalization_attempts(self, workflow_id: int) -> Operation[list[FinalizationAttempt]]:
        """Every recorded attempt to claim the finalization of the workflow, in order."""


class ScheduleOperations(Protocol):
    """Schedules and their ticks."""

    def put_schedule(self, new: NewSchedule, source: ScheduleSource) -> Operation[Schedule]:
        """Store the schedule, or change the schedule of the same name. Another cron or time zone starts from now; the
        same schedule again changes nothing."""

    def list_schedules(self) -> Operation[list[Schedule]]:
        """All schedules, by name."""

    def get_schedule(self, name: str) -> Operation[Schedule]:
        """The schedule, or ScheduleNotFound."""

    def remove_schedule(self, name: str) -> Operation[None]:
        """Remove the schedule; its tasks stay. Or ScheduleNotFound."""

    def enable_schedule(self, name: str) -> Operation[Schedule]:
        """Enable the schedule. If it was disabled, it ticks from now on: missed ticks are not caught up."""

    def disable_schedule(self, name: str) -> Operation[Schedule]:
        """Stop the ticks of the schedule."""

    def run_schedule(self, name: str) -> Operation[Task]:
        """Enqueue the schedule's task now, in addition to its ticks."""

    def due_schedules(self) -> Operation[list[DueSchedule]]:
        """The enabled schedules whose next tick is due. Advisory."""

    def tick_schedule(self, due: DueSchedule) -> Operation[int]:
        """Move the schedule from the tick that was read to the next one and enqueue the due tasks, both or neither.
        Returns the number of tasks; 0 if another process was first."""


class KeyOperations(Protocol):
    """API keys."""

    def mint_key(self, new: NewKey) -> Operation[MintedKey]:
        """Create a key. Only this result contains its secret. After OutcomeUnknown there may be a key whose secret is
        lost."""

    def list_keys(self) -> Operation[list[ApiKey]]:
        """All keys, oldest first, including expired and revoked keys."""

    def revoke_key(self, key_id: str) -> Operation[ApiKey]:
        """Revoke the key: it is refused from now on. Or KeyNotFound. A second call keeps the time of the first."""


class StatisticsOperations(Protocol):
    """Figures about the whole store."""

    def stats(self) -> Operation[Stats]:
        """Depth, age, throughput, latency."""


class UpkeepOperations(Protocol):
    """The work that is due by the clock. Each operation is one small batch."""

    def promote(self, limit: int = ...) -> Operation[int]:
        """Make due scheduled tasks pending. Returns their number."""

    def recover(self, limit: int = ...) -> Operation[int]:
        """Take back tasks whose lease ran out: to pending, or to the dead letter if their attempts are spent. A task
        that was claimed ahead and not started spends no attempt, and its `dropped` grows by one. Returns their
        number."""

    def next_due(self) -> Operation[float | None]:
        """Seconds, by the database's clock, until a task becomes claimable because its time has come: a scheduled task
        is due, a lease runs out, or a schedule ticks. 0.0 if that has happened, None if nothing waits for the clock."""

    def expire_tasks(self, limit: int = ...) -> Operation[int]:
        """Cancel waiting tasks that were not started by their expiry; for its workflow, such a step has failed. Returns
        their number. A claim never returns an expired task, even if this has not happened yet."""

    def expire_workflows(self, limit: int = ...) -> Operation[int]:
        """Stop workflows past their deadline: they start no more steps, and the cancellation of running steps is
        requested. Returns their number."""

    def mend_workflows(self, limit: int = ...) -> Operation[int]:
        """Advance workflows where a step has ended without that, for example because an older program ended it. Returns
        the number of these steps."""

    def prune(self, limit: int = ..., after: PrunePosition | None = None) -> Operation[Pruned]:
        """One batch of a pass over the finished records: up to `limit` tasks of each state, and ended workflows with
        their steps, are deleted if they are past their retention by the rules of the store. The answer has the number
        of rows, and the position for the next batch (None: the pass is complete). Without `after` a pass begins. The
        work of a batch is bounded, however many records there are."""

    def prune_history(self, limit: int = ...) -> Operation[int]:
        """Delete history past its retention. Returns the number of entries. Expired sessions and samples older than
        eight days are deleted as well."""

    def prune_workers(self) -> Operation[int]:
        """Delete workers whose last heartbeat is past their retention. Returns their number."""


class LimitOperations(Protocol):
    """Limits, settings of queues and types, groups.

    A value that was set by hand (source 'command') overrides the value that code declares, until the declaration
    changes; both are stored."""

    @property
    def knows_rates(self) -> bool:
        """True if this process has read a limit with a rate, so that a claim may wait for one. False over HTTP, where
        the server waits."""

    def put_limit(self, new: NewLimit, source: SettingSource) -> Operation[Limit]:
        """Store the limit, or change the limit of the same name; the same limit again changes nothing. The next claims
        obey it. Running tasks are not stopped: a lower `max` is reached when enough of them have ended. A limit that
        was removed counts the claims that are still live. From code: LimitNotFound if the limit was removed by hand
        since the same declaration."""

    def change_limit(self, change: LimitChange) -> Operation[Limit]:
        """Change values of the limit, by hand, or store a limit that does not exist. A value that the change leaves out
        stays, also if another change comes at the same moment. See `put_limit`."""

    def declare(self, declarations: Declarations) -> Operation[StoredDeclarations]:
        """Store what a program declares in its code, as `put_limit`, `put_queue` and `put_type` do with the source
        'code', in one transaction. A declaration that is refused is part of the result, and the others are stored. A
        declaration that the store has already changes nothing."""

    def get_limit(self, name: str) -> Operation[Limit]:
        """The limit with its live claims and waiting tasks, or LimitNotFound."""

    def list_limits(self) -> Operation[list[Limit]]:
        """All limits with their live claims and waiting tasks, by name."""

    def remove_limit(self, name: str) -> Operation[None]:
        """Remove the limit, or raise LimitNotFound. Tasks that name it run without it. A limit that code declares is
        not set again until its declaration changes, and new tasks may name it."""

    def limit_groups(self, name: str, limit: int = ..., after: str | None = None) -> Operation[list[LimitGroup]]:
        """A page of the groups of the limit that hold claims or have tasks waiting, in order; one entry without a group
        for a limit that is not per group. `after`: the group after which the page begins. Or LimitNotFound."""

    def put_queue(self, new: NewQueueSettings, source: SettingSource) -> Operation[QueueSettings]:
        """Store the settings of the queue; from code, what the declaration leaves out has its default. Tasks that are
        enqueued afterwards obey them. Or LimitNotFound."""

    def get_queue(self, queue: str) -> Operation[QueueSettings]:
        """The settings of the queue; the defaults for a queue that has none."""

    def queue_settings(self) -> Operation[list[QueueSettings]]:
        """The settings of all queues that have any, by name."""

    def put_type(self, new: NewTypeSettings, source: SettingSource) -> Operation[TypeSettings]:
        """Store the limits of the task type, as `put_queue` does for a queue."""

    def get_type_settings(self, type: str) -> Operation[TypeSettings]:
        """The limits of the task type; none for a type that has none."""

    def type_settings(self) -> Operation[list[TypeSettings]]:
        """The limits of all task types that have any, by name."""

    def settle(self, after: int = ..., limit: int = ..., change: int = ...) -> Operation[Settled]:
        """Bring tasks that were enqueued before a change of settings in line with them: the next `limit` tasks of the
        store after this id. Running tasks obey the limits from their next claim on. `change`: that of the batch before;
        after the last batch, the store knows that all tasks obey this change. See procedures.settle, which does this
        for all tasks."""

    def put_group(self, queue: str, group: str | None, weight: float) -> Operation[GroupInfo]:
        """Store the weight of the group: its share of the claims where the queue is fair. None: the tasks without a
        group."""

    def groups(self, queue: str, limit: int = ..., after: str | None = None) -> Operation[list[GroupInfo]]:
        """A page of the groups of the queue that have a weight, or tasks that wait for a limit or for their turn."""


class RetentionOperations(Protocol):
    """The rules about how long finished records are kept."""

    def set_retention(self, target: RetentionTarget, keep: float | None) -> Operation[RetentionRule]:
        """Store the rule, and record the change with its author. The same value again changes nothing. Every pruning
        that begins afterwards follows the rule. None: for ever."""

    def remove_retention(self, target: RetentionTarget) -> Operation[None]:
        """Remove the rule, and record the removal. The default of the store returns to its first value.
        RetentionNotFound if no rule is set for that queue, type or workflow."""

    def retention_rules(self) -> Operation[list[RetentionRule]]:
        """The default for each kind of records, then the rules for types, queues and workflows."""

    def retention_changes(self, limit: int = ...) -> Operation[list[RetentionChange]]:
        """The newest changes of the rules, newest first."""


class LogOperations(Protocol):
    """The log lines of tasks: what handlers have logged, attempt by attempt."""

    def add_log_lines(self, lines: Sequence[LogLine]) -> Operation[int]:
        """Store lines of any tasks, each under its task, token and number. Returns how many were not stored before:
        the same lines again change nothing, and lines of a task that does not exist (any more), or under a token that
        it has not issued, are dropped. A token need not be live: what a frozen attempt logs is stored under that
        attempt."""

    def log_page(self, task_id: int, which: LogFilter, wait: float = 0) -> Operation[LogPage]:
        """The next lines of the task, by token and number. TaskNotFound for a task that does not exist: its lines are
        deleted with it. `wait`: seconds for which a server may delay an answer without lines; a database ignores it."""


INTERFACES = (
    "queue",
    "tasks",
    "history",
    "registry",
    "workflows",
    "finalization",
    "schedules",
    "keys",
    "statistics",
    "upkeep",
    "retention",
    "logs",
)
"""The attributes of a store that build operations."""


class Store(Protocol):
    """The place where tasks are stored: a database, or a server in front of one."""

    @property
    def queue(self) -> QueueOperations:
        """Enqueue, claim, finish, and keep a claim alive."""

    @property
    def tasks(self) -> TaskOperations:
        """Read, search, change, cancel, retry and discard tasks."""

    @property
    def history(self) -> HistoryOperations:
        """Read the history of tasks."""

    @property
    def registry(self) -> RegistryOperations:
        """Task types, workers and queues."""

    @property
    def workflows(self) -> WorkflowOperations:
        """Start workflows, add steps; cancel, retry and read workflows."""

    @property
    def finalization(self) -> FinalizationOperations:
        """Finalize workflows whose steps have ended."""

    @property
    def schedules(self) -> ScheduleOperations:
        """Schedules and their ticks."""

    @property
    def keys(self) -> KeyOperations:
        """API keys."""

    @property
    def statistics(self) -> StatisticsOperations:
        """Figures about the whole store."""

    @property
    def upkeep(self) -> UpkeepOperations:
        """The work that is due by the clock."""

    @property
    def retention(self) -> RetentionOperations:
        """The rules about how long finished records are kept."""

    @property
    def logs(self) -> LogOperations:
        """The log lines of tasks."""

    @property
    def limits(self) -> LimitOperations:
        """Limits, settings of queues and types, groups."""

    def run(self, operation: Operation[T], *, by: str | None = None, on: Any = None, idle: bool = False) -> T:
        """Run the operation. A write is durable when this returns; after OutcomeUnknown it may be.

        `by`: the author, for the history. `on`: a connection of the user, whose transaction the operation joins.
        `idle`: nothing waits for the result, so the engine may do some of its own maintenance with it."""

    async def run_async(
        self, operation: Operation[T], *, by: str | None = None, on: Any = None, idle: bool = False
    ) -> T:
        """The same, without blocking the event loop."""

    @property
    def served(self) -> bool:
        """True for a store behind a server: the server does the upkeep, and waits for tasks on behalf of its
        clients."""

    @property
    def wakeups(self) -> Wakeups:
        """Waits for changes by any process. A wake-up is a hint: it may come late or without a change."""

    def migrate(self, note: OnMigration = ...) -> list[str]:
        """Apply the missing migrations; many processes may do so at once. Returns the names of the applied migrations.
        `note` is called with each name before the migration is applied."""

    def maintain(self, *, wait: bool = True) -> None:
        """Do the maintenance that the engine needs from time to time. `wait`: until all of it is done; else what may
        take long goes on in the background."""

    def doctor(self) -> list[Check]:
        """Check for damage, and for settings that would weaken a guarantee."""

    @property
    def caution(self) -> str | None:
        """A warning about a known bug of the engine's release, which workers and servers log when they start; or
        None."""

    def close(self) -> None:
        """Close every connection; the next operation opens them again."""

    async def close_async(self) -> None:
        """The same, without blocking the event loop."""


class ServedTasks(TaskOperations, Protocol):
    """Operations on tasks that a server does in one request, and a client of a database in several operations."""

    def change_matching(self, change: TaskChange, which: TaskMatch, cursor: int | None) -> Operation[BulkResult]:
        """Change some of the matching tasks below the cursor."""

    def cancel_matching(self, which: TaskMatch, cursor: int | None) -> Operation[BulkResult]:
        """Cancel some of the matching tasks below the cursor."""

    def retry_matching(self, which: TaskMatch, cursor: int | None) -> Operation[BulkResult]:
        """Retry some of the matching tasks below the cursor."""


class ServedStore(Store, Protocol):
    """A store behind a server."""

    @property
    def tasks(self) -> ServedTasks:
        """Read, search, change, cancel, retry and discard tasks, one by one or all that match."""

    def stream_events(self, which: EventFilter, after: int | None) -> Generator[StoreEvent, None, None]:
        """The events after this one (None: from now on), in order, until the store is closed."""

    def stream_events_async(self, which: EventFilter, after: int | None) -> AsyncGenerator[StoreEvent, None]:
        """`stream_events`, without blocking the event loop."""


# Operations for servers only. `only` and `queues`: the queues that the caller's key is limited to.


class DatabaseQueue(QueueOperations, Protocol):
    """Claims for many workers, and random order."""

    def claim_each(self, requests: Sequence[ClaimRequest]) -> Operation[list[list[Claim]]]:
        """As `claim`, for several workers that request the same kind of task. The first requests get the first tasks.
        Returns the claims of each request."""

    def number_random_order(self, order: str) -> Operation[bool]:
        """Give waiting tasks their random-order numbers, for a short time. From now on new tasks get their numbers when
        they become pending. Returns whether tasks without a number are left. Wakes the claims that found nothing while
        this operation locked tasks."""

    def provide_index(self, name: str) -> Operation[None]:
        """An index of streams (see STREAM_INDEXES) exists, or is requested from upkeep."""


class DatabaseTasks(TaskOperations, Protocol):
    """Tasks for callers that are limited to some queues, and for the pages of the dashboard."""

    def get_many(self, ids: Sequence[int], only: Sequence[str] | None = None) -> Operation[TasksById]:
        """As in TaskOperations. With `only`: the tasks of these queues."""

    def states(self, ids: Sequence[int], only: Sequence[str] | None = None) -> Operation[dict[int, State]]:
        """As in TaskOperations. With `only`: of the tasks in these queues."""

    def change(self, task_id: int, change: TaskChange, only: Sequence[str] | None = None) -> Operation[Task]:
        """As in TaskOperations. A task of another queue than `only` is TaskNotFound."""

    def change_many(
        self, ids: Sequence[int], change: TaskChange, only: Sequence[str] | None = None, state: str | None = None
    ) -> Operation[int]:
        """Change the tasks among these that can be changed, without params. Returns the number of changed tasks. A task
        whose key is taken in its new queue is left out, and one that a limit per group would find without a group."""

    def cancel(self, task_id: int, only: Sequence[str] | None = None) -> Operation[Task]:
        """As in TaskOperations. A task that represents a workflow with other queues than `only` is TaskNotFound."""

    def retry(self, task_id: int, only: Sequence[str] | None = None) -> Operation[Task]:
        """As in TaskOperations. A step that continues a workflow with other queues than `only` is TaskNotFound."""

    def discard(self, task_id: int, only: Sequence[str] | None = None) -> Operation[Task]:
        """As in TaskOperations. A task of another queue than `only` is TaskNotFound."""

    def explain(self, task_id: int, only: Sequence[str] | None = None) -> Operation[Explanation]:
        """The reasons why the task is not running, without names of steps in other queues than `only`."""

    def search(self, which: TaskSearch, span: int = ...) -> Operation[FoundTasks]:
        """The newest matching tasks, as summaries. An id, a key, or a state with few tasks is found by an index;
        otherwise the next `span` tasks below the cursor are searched. The search continues at the cursor of the answer,
        also if nothing was found. A search for text in large params takes longest: a small `span` bounds it."""

    def cancel_many(
        self, ids: Sequence[int], only: Sequence[str] | None = None, state: str | None = None
    ) -> Operation[int]:
        """As `cancel`, for up to 500 tasks in one transaction. Tasks that cannot be cancelled, are not in the queues
        `only`, or are no longer in this state are left out. Returns the number of changed tasks."""

    def retry_many(
        self, ids: Sequence[int], only: Sequence[str] | None = None, state: str | None = None
    ) -> Operation[int]:
        """As `retry`, for up to 500 tasks in one transaction. Tasks that cannot be retried, are not in the queues
        `only`, or are no longer in this state are left out. Returns the number of changed tasks."""

    def queues_of(self, task_ids: Sequence[int]) -> Operation[dict[int, str]]:
        """The queue of each of these tasks that exists."""


class DatabaseLogs(LogOperations, Protocol):
    """Log lines for the pages of the dashboard."""

    def log_counts(self, task_id: int) -> Operation[list[LogCount]]:
        """How many lines each attempt of the task has, in order."""


class DatabaseHistory(HistoryOperations, Protocol):
    """The history for the dashboard and for history followers."""

    def latest_history(self, task_id: int, limit: int) -> Operation[RecentHistory]:
        """The newest entries of the task's history, in order, and the number of all its entries."""

    def events_page(self, entry_id: int, limit: int, queues: Sequence[str] | None = None) -> Operation[EventPage]:
        """The entries after this one, in order, with the task's queue and type; of these queues only, where they are
        given. On an engine with many writers an entry can be committed after one with a higher id:
        `dibs.history_follower` misses none."""

    def pruned_to(self) -> Operation[int]:
        """The id of the newest entry that was deleted by its retention, 0 where none was."""

    def history_writers(self) -> Operation[list[str]]:
        """The open transactions that have written to the history, or are about to. None on an engine with one
        writer."""

    def last_entry(self) -> Operation[int]:
        """The id of the newest entry of the history, 0 where there is none."""


class DatabaseRegistry(RegistryOperations, Protocol):
    """Heartbeats of callers that are limited to some queues."""

    def heartbeat(self, beat: Heartbeat, only: Sequence[str] | None = None) -> Operation[None]:
        """As in RegistryOperations. A record belongs to the queue limit under which it was written: callers with
        different limits neither see nor change each other's."""


class DatabaseWorkflows(WorkflowOperations, Protocol):
    """Workflows for callers that are limited to some queues, and for pages."""

    def results(self, task_id: int, only: Sequence[str] | None = None) -> Operation[list[StepResult]]:
        """As in WorkflowOperations, without the results of parents in other queues than `only`."""

    def execution(self, task_id: int, only: Sequence[str] | None = None) -> Operation[Execution]:
        """As in WorkflowOperations. With `only`: the steps in these queues, and neither the name nor the error of a
        workflow that has tasks in other queues."""

    def check_parents(self, task_id: int, steps: Sequence[NewStep], only: Sequence[str]) -> Operation[None]:
        """Raise InvalidGraph if a parent of the steps that this task adds is in other queues, or does not exist."""

    def find_workflows(self, which: WorkflowFilter, span: int = ...) -> Operation[FoundWorkflows]:
        """As `list_workflows`, among the candidates of an index, else among the next `span` workflows only; and the
        cursor to continue at."""

    def workflow_counts(self) -> Operation[dict[str, int]]:
        """The number of workflows in each state, sub-workflows included. It reads all workflows."""

    def outline(self, workflow_id: int, limit: int = ...) -> Operation[WorkflowOutline]:
        """The constant fields of the workflow's first steps, in the order in which they were added, and their
        dependencies; empty if there is no such workflow."""

    def step_states(self, workflow_id: int, last: int) -> Operation[list[StepGroup]]:
        """The states of the workflow's steps, up to the one with the id `last`."""

    def step_details(self, task_ids: Sequence[int]) -> Operation[StepDetails]:
        """These steps as they are now, without their errors and dependencies, and the progress of their sub-workflows;
        steps that do not exist are left out."""

    def step_errors(self, task_ids: Sequence[int]) -> Operation[dict[int, str]]:
        """The last error of each of these tasks (`type: message`), its first 200 characters."""


class DatabaseFinalization(FinalizationOperations, Protocol):
    """Finalizations for the dashboard."""

    def latest_attempts(self, workflow_id: int, limit: int = ...) -> Operation[list[FinalizationAttempt]]:
        """The newest recorded attempts to claim the finalization of the workflow, newest first."""


class DatabaseKeys(KeyOperations, Protocol):
    """Keys, rate limits and browser sessions, as a server checks them."""

    def get_key(self, key_id: str) -> Operation[ApiKey | None]:
        """The key with this id as the database knows it, with its digest, expired or not by the database's clock."""

    def note_keys_used(self, key_ids: Sequence[str]) -> Operation[None]:
        """Set the time of the last use of these keys to now."""

    def take_permits(self, key_id: str, limit: RateLimit, wanted: int) -> Operation[RateLimitGrant]:
        """Take up to `wanted` requests out of the key's rate limit. All servers together never get more in a window
        than the limit. A window begins with the first request after the last window ended, by the database's clock."""

    def create_session(self, digest: str, key_id: str, lifetime: int) -> Operation[None]:
        """Store a browser session of this key, for `lifetime` microseconds. A second call changes nothing."""

    def get_session(self, digest: str) -> Operation[BrowserSession | None]:
        """The session, or None if it has expired by the database's clock. The caller checks whether its key is live."""

    def end_session(self, digest: str) -> Operation[bool]:
        """Delete the session. True if it existed."""

    def prune_sessions(self, limit: int = ...) -> Operation[int]:
        """Delete expired sessions. Returns their number."""


class DatabaseStatistics(StatisticsOperations, Protocol):
    """Figures for the dashboard and for metrics."""

    def stats(self, queues: Sequence[str] | None = None) -> Operation[Stats]:
        """Depth, age, throughput, latency; of these queues only, where they are given."""

    def count_tasks(self) -> Operation[TaskCounts]:
        """The number of tasks by queue, type and state, with the age of the oldest pending one, and the position in the
        history at which that is true. It reads all tasks."""

    def changes_since(self, positions: Sequence[HistoryPosition], limit: int = ...) -> Operation[ChangesSince]:
        """The changes since each of these positions, counted, up to the same moment. No change is missed or counted
        twice, also on an engine with many writers, except changes whose commit took very long."""

    def finished_within(self, window: int, queues: Sequence[str] | None = None) -> Operation[dict[str, int]]:
        """The number of tasks (of these queues) that reached each final state in the last `window` microseconds."""

    def workers_and_pauses(self) -> Operation[WorkersAndPauses]:
        """The workers and the paused queues. It reads no tasks."""

    def latencies(self, queues: Sequence[str] | None = None, limit: int = ...) -> Operation[Latencies]:
        """The waiting and running times of the last completed tasks; of these queues among the last of all, where they
        are given."""

    def error_groups(
        self, queues: Sequence[str] | None = None, limit: int = ..., tags: Sequence[str] | None = None
    ) -> Operation[ErrorGroups]:
        """The newest failed tasks (of these queues, with all of these tags), grouped by type, error and message, the
        most frequent first. This takes some 20 ms of Python for 10,000 tasks, too long for an event loop."""

    def save_sample(self, at: int, body: str) -> Operation[bool]:
        """Save the sample of this minute (microseconds). True for exactly one of the processes that save one."""

    def samples_since(self, at: int) -> Operation[list[tuple[int, str]]]:
        """The samples from this moment on, in order."""

    def sample_heads(self, at: int) -> Operation[list[tuple[int, str]]]:
        """As `samples_since`, without the queues of each sample, which are most of it."""

    def prune_samples(self, before: int, limit: int = ...) -> Operation[int]:
        """Delete the samples from before this moment. Returns their number."""

    def claims_behind(self) -> Operation[dict[str, float]]:
        """For each fair queue in which a group has had fewer claims than its share, while it had tasks that no limit
        and no pause stops: by how many claims the group is behind that is furthest behind."""

    def database_health(self) -> Operation[DatabaseHealth]:
        """The size of the database, and what keeps its engine from cleaning up."""


class DatabaseUpkeep(UpkeepOperations, Protocol):
    """Upkeep that a server does by itself, and for callers that are limited to some queues."""

    def pauses_to_park(self) -> Operation[PausesToPark]:
        """Some of the pauses of queues and types whose tasks are not all parked, and of the pauses that have ended and
        still have parked tasks. A parked task is pending, and outside of the indexes that claims read."""

    def park(self, pause: Pause, limit: int = ...) -> Operation[int]:
        """Park the first tasks of the queue or type, if it is paused. Returns their number."""

    def unpark(self, pause: Pause, limit: int = ...) -> Operation[int]:
        """Make the first tasks that are parked for this pause claimable, if it has ended; a task with another pause is
        parked for that one from now on. Returns their number."""

    def end_random_orders(self) -> Operation[int]:
        """End the random orders that no claim has used for a day: tasks that become pending get no more numbers.
        Returns how many orders ended."""

    def next_due(self, only: Sequence[str] | None = None) -> Operation[float | None]:
        """As in UpkeepOperations; of these queues only, where they are given."""


class DatabaseStore(Store, Protocol):
    """A store that is a database."""

    observer: Observer
    """Receives the transitions of tasks that the store makes."""

    @property
    def queue(self) -> DatabaseQueue:
        """Enqueue, claim, finish, and keep a claim alive."""

    @property
    def tasks(self) -> DatabaseTasks:
        """Read, search, change, cancel, retry and discard tasks."""

    @property
    def history(self) -> DatabaseHistory:
        """Read the history of tasks."""

    @property
    def registry(self) -> DatabaseRegistry:
        """Task types, workers and queues."""

    @property
    def workflows(self) -> DatabaseWorkflows:
        """Start workflows, add steps; cancel, retry and read workflows."""

    @property
    def finalization(self) -> DatabaseFinalization:
        """Finalize workflows whose steps have ended."""

    @property
    def keys(self) -> DatabaseKeys:
        """API keys, rate limits and browser sessions."""

    @property
    def statistics(self) -> DatabaseStatistics:
        """Figures about the whole store."""

    @property
    def logs(self) -> DatabaseLogs:
        """The log lines of tasks."""

    @property
    def upkeep(self) -> DatabaseUpkeep:
        """The work that is due by the clock."""

    @property
    def many_writers(self) -> bool:
        """True where several transactions write at once, so that an entry of the history can be committed after one
        with a higher id."""

    def validates_quickly(self, tasks: Iterable[NewTask]) -> bool | None:
        """True if the params of these tasks are validated in this process and quickly, so that these tasks can be
        combined with others without delaying them. None if the task types are not known: call `read_types`."""

    async def read_types(self) -> None:
        """Read the registered task types, which are then cached for a second."""
