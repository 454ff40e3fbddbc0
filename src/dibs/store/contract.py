"""The contract of a store: what every engine promises, whatever it is made of.

An operation is built first and run afterwards, sync or async, on the store's own connections or on one that the user
hands in. All of them are batch-shaped or tiny, all writes about a claim are fenced by its token, and every change of
a task's state writes its line of history in the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

from dibs.errors import DibsError
from dibs.model.claim import AnyClaim, Claim, ClaimRequest, ClaimStatus, Filters, Finished, Outcome, Renewed
from dibs.model.explanation import Explanation
from dibs.model.finalization import ExecutionContext, FinalizationAttempt, FinalizationClaim, Finalized
from dibs.model.history import HistoryEntry, HistoryPosition, RecentHistory, StoreEvent
from dibs.model.key import ApiKey, BrowserSession, MintedKey, NewKey, RateLimit, RateLimitGrant
from dibs.model.registry import Heartbeat, QueueInfo, TaskType, WorkerInfo
from dibs.model.retention import RetentionChange, RetentionRule, RetentionTarget
from dibs.model.schedule import DueSchedule, NewSchedule, Schedule, ScheduleSource
from dibs.model.search import BulkResult, DeadFilter, FoundTasks, TaskFilter, TaskMatch, TaskPage, TaskSearch
from dibs.model.statistics import (
    ChangesSince,
    DatabaseHealth,
    ErrorGroups,
    Latencies,
    Stats,
    TaskCounts,
    WorkersAndPauses,
)
from dibs.model.task import NewTask, Task
from dibs.model.upkeep import Check, Pruned, PrunePosition
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
from dibs.store.migrate import Note
from dibs.store.operation import Operation
from dibs.store.wakeups import Wakeups
from dibs.store.witness import Witness

T = TypeVar("T")


class Store(Protocol):
    """Where tasks live."""

    # Running

    def run(self, operation: Operation[T], on: Any = None) -> T:
        """Run the operation. A write is durable when this returns; after OutcomeUnknown it may be."""

    async def run_async(self, operation: Operation[T], on: Any = None) -> T:
        """The same, without blocking the event loop."""

    @property
    def served(self) -> bool:
        """True where a server stands before the database: it keeps the house, and waits for tasks on our behalf."""

    @property
    def wakeups(self) -> Wakeups:
        """Where to wait for changes by anyone. A hint: it may come late or for nothing."""

    def migrate(self, note: Note = ...) -> list[str]:
        """Bring the schema up to date; many processes may do so at once. The names of what was applied, each noted
        before it is."""

    def maintain(self) -> None:
        """Whatever the engine itself needs now and then."""

    def doctor(self) -> list[Check]:
        """Look for damage and for settings that would cost a guarantee."""

    @property
    def caution(self) -> str | None:
        """A known danger of the engine's release, for workers and servers to log when they start; None where there is
        none."""

    def close(self) -> None:
        """Let go of every connection; the next operation opens them again."""

    async def close_async(self) -> None:
        """The same, without blocking the event loop."""

    # Enqueue

    def enqueue(self, tasks: Sequence[NewTask]) -> Operation[list[Task]]:
        """Store the tasks, all or none, in this order. A key that is taken in its queue gives the task that has
        it, marked `deduplicated`; with another type or other params it is a KeyConflict, and nothing is stored."""

    def register_type(
        self, name: str, schema: dict[str, Any] | bool | None, defaults: dict[str, Any]
    ) -> Operation[TaskType]:
        """A new version of a task type, unless its newest is the same."""

    def get_type(self, name: str, version: int | None) -> Operation[TaskType]:
        """One version of a task type; the newest for None."""

    def list_types(self) -> Operation[list[TaskType]]:
        """All versions of all task types."""

    # Claim

    def claim(self, request: ClaimRequest) -> Operation[list[Claim]]:
        """Up to `count` tasks, each under its next token, to this worker alone. Never more than asked; fewer only if
        no others are pending that pass the filters. Claimed `ahead`, a task counts as not started. With the `request`
        of an earlier claim by this worker: what that one got and the worker still holds, if that is anything."""

    def claim_by_id(self, task_id: int, request: ClaimRequest) -> Operation[Claim]:
        """This task, to begin now, or AlreadyClaimed, NotClaimable, TaskNotFound."""

    def peek(self, filters: Filters) -> Operation[list[Task]]:
        """What a claim would take now. Advisory."""

    # Finish

    def finish(self, reports: Sequence[tuple[AnyClaim, Outcome]]) -> Operation[list[Finished | DibsError]]:
        """Each outcome is written if its token is live, and answered on its own. The same outcome with the same content
        again is answered with the state it led to (`repeated`), with the task's present attempts and run_at where the
        task still exists; with other content it is OutcomeConflict. Anything else about a dead claim is ClaimLost. An
        outcome that the database refuses is answered with StoreRefused. None of these changes anything."""

    def exchange(
        self, reports: Sequence[tuple[AnyClaim, Outcome]], request: ClaimRequest
    ) -> Operation[tuple[list[Finished | DibsError], list[Claim]]]:
        """The outcomes as in `finish`, then the tasks as in `claim`, in one transaction: both or neither. That an
        outcome was refused keeps nobody from the claims."""

    def start(self, claims: Sequence[AnyClaim]) -> Operation[list[DibsError | None]]:
        """Each task that was claimed ahead begins now, if its token is live: it is charged an attempt if its worker is
        lost from here on. None, or why not; before it is answered with None, the task must not be run."""

    def renew(self, claims: Sequence[AnyClaim], lease: int) -> Operation[list[Renewed | DibsError]]:
        """Each lease now ends `lease` microseconds from now, if its token is live."""

    def progress(self, notes: Sequence[tuple[AnyClaim, int, str | None]]) -> Operation[list[bool | DibsError]]:
        """How far each task is (percent, message), if its token is live, answered on its own. True: somebody asked the
        task to stop. Of several notes about one claim the last is kept."""

    def standing(self, claims: Sequence[AnyClaim]) -> Operation[list[ClaimStatus]]:
        """How each claim stands: held, asked to stop, or lost. Nothing is written, no lease prolonged."""

    # Manage

    def cancel(self, task_id: int) -> Operation[Task]:
        """A waiting task is cancelled; the worker of a running one is asked to stop."""

    def retry(self, task_id: int) -> Operation[Task]:
        """A failed, cancelled or scheduled task is pending now, with all its attempts."""

    def redrive_some(self, which: DeadFilter, limit: int) -> Operation[int]:
        """Retry up to `limit` matching tasks of the dead letter; how many."""

    def discard(self, task_id: int) -> Operation[Task]:
        """A task of the dead letter stays failed and leaves the dead letter; the same again changes nothing. WrongState
        where it is not in the dead letter."""

    def discard_many(
        self, ids: Sequence[int], only: Sequence[str] | None = None, which: DeadFilter = ...
    ) -> Operation[int]:
        """Those of these tasks that are in the dead letter and match are discarded; how many."""

    def discard_some(self, which: DeadFilter, limit: int) -> Operation[int]:
        """Up to `limit` matching tasks of the dead letter are discarded; how many."""

    def pause(self, queue: str) -> Operation[None]:
        """Nobody claims from the queue."""

    def resume(self, queue: str) -> Operation[None]:
        """The queue may be claimed from again."""

    # Upkeep

    def promote(self, limit: int = ...) -> Operation[int]:
        """DueSchedule tasks become pending; how many."""

    def recover(self, limit: int = ...) -> Operation[int]:
        """Tasks whose lease ran out go back, or to the dead letter when their attempts are spent; how many. One that
        was claimed ahead and not started goes back without an attempt spent, and its `dropped` grows by one."""

    def next_due(self) -> Operation[float | None]:
        """Seconds, by the database's clock, until time alone makes something claimable: a scheduled task falls due, a
        lease runs out, a schedule ticks. 0.0 where that has happened, None where nothing waits for the clock."""

    def prune(self, limit: int = ..., after: PrunePosition | None = None) -> Operation[Pruned]:
        """One batch of a pass over the finished records: up to `limit` tasks of each state, and ended workflows with
        their steps, are deleted if they are past their retention by the rules of the store. The answer has the number
        of rows, and the position for the next batch (None: the pass is complete). Without `after` a pass begins. The
        work of a batch is bounded, however many records there are."""

    def prune_history(self, limit: int = ...) -> Operation[int]:
        """History past its retention is deleted; how many lines. Sessions past their end and samples older than eight
        days go with it."""

    def prune_workers(self) -> Operation[int]:
        """Workers whose last heartbeat is past their retention are deleted; how many."""

    # Retention

    def set_retention(self, target: RetentionTarget, keep: float | None) -> Operation[RetentionRule]:
        """The rule is stored, and the change recorded with its author; the same value again changes nothing. Every
        prune that begins afterwards obeys it. None: for ever."""

    def remove_retention(self, target: RetentionTarget) -> Operation[None]:
        """The rule is removed, and the removal recorded; the default of the store goes back to its first value.
        RetentionNotFound where no rule is set for that queue, type or workflow."""

    def retention(self) -> Operation[list[RetentionRule]]:
        """The default for each kind of records, then the rules for types, queues and workflows."""

    def retention_changes(self, limit: int = ...) -> Operation[list[RetentionChange]]:
        """The newest changes of the rules, newest first."""

    def heartbeat(self, beat: Heartbeat) -> Operation[None]:
        """The worker lives (or leaves)."""

    # Schedules

    def put_schedule(self, new: NewSchedule, source: ScheduleSource) -> Operation[Schedule]:
        """The schedule is stored, or that of the same name changed to it. Another cron or time zone begins anew, from
        now; the same again changes nothing."""

    def list_schedules(self) -> Operation[list[Schedule]]:
        """All schedules, by name."""

    def get_schedule(self, name: str) -> Operation[Schedule]:
        """The schedule, or ScheduleNotFound."""

    def remove_schedule(self, name: str) -> Operation[None]:
        """The schedule is gone, its tasks stay; or ScheduleNotFound."""

    def enable_schedule(self, name: str) -> Operation[Schedule]:
        """The schedule ticks, if it was disabled from now on: nothing is caught up."""

    def disable_schedule(self, name: str) -> Operation[Schedule]:
        """The schedule does not tick."""

    def run_schedule(self, name: str) -> Operation[Task]:
        """The schedule's task, enqueued now, beside its ticks."""

    def due_schedules(self) -> Operation[list[DueSchedule]]:
        """The enabled schedules whose next tick has come. Advisory."""

    def tick_schedule(self, due: DueSchedule) -> Operation[int]:
        """The schedule moves on from the tick that was read and its tasks are enqueued, both or neither; how many
        tasks, 0 where somebody else did it first."""

    # Workflows

    def start_workflow(self, new: NewWorkflow) -> Operation[Workflow]:
        """The whole graph is stored, or nothing. A key that is taken by a workflow started in the same queues
        gives that workflow, marked `deduplicated`; with another graph it is a KeyConflict."""

    def add_steps(self, workflow_id: int, steps: Sequence[NewStep]) -> Operation[Workflow]:
        """More steps for a workflow that still runs; they may be after steps that it has. All or none."""

    def get_workflow(self, workflow_id: int) -> Operation[Workflow | None]:
        """The workflow, or None."""

    def list_workflows(self, which: WorkflowFilter) -> Operation[list[Workflow]]:
        """A page of workflows, newest first."""

    def steps(self, workflow_id: int) -> Operation[list[Step]]:
        """The workflow's steps in the order in which they were added, or WorkflowNotFound."""

    def results(self, task_id: int) -> Operation[list[StepResult]]:
        """What the parents of this step came to, in the order in which they were added. For a finalizer: what those
        steps came to that no other step waits for. Nothing for a task that is no step."""

    def cancel_workflow(self, workflow_id: int) -> Operation[Workflow]:
        """Nothing more is begun; running steps are asked to stop. WorkflowNotFound, or WrongWorkflowState where it has
        ended otherwise."""

    def retry_workflow(self, workflow_id: int) -> Operation[Workflow]:
        """A failed or cancelled workflow goes on from where it stopped: what failed or was cancelled runs, with all
        its attempts; what was completed stays. Or WrongWorkflowState."""

    def expire_workflows(self, limit: int = ...) -> Operation[int]:
        """Workflows past their deadline begin nothing more, their running steps are asked to stop; how many."""

    def mend_workflows(self, limit: int = ...) -> Operation[int]:
        """Steps that ended without their workflow being told (by a program older than workflows, say) are made up for;
        how many."""

    # Finalize

    def execution_context(self, workflow_id: int) -> Operation[ExecutionContext]:
        """How the workflow's steps stand and what follows from that, or WorkflowNotFound."""

    def due_finalizations(self, limit: int = ...) -> Operation[list[int]]:
        """Workflows that wait for their finalization and that nobody holds, the longest wait first. Advisory."""

    def claim_finalization(self, workflow_id: int, processor: str, lease: int) -> Operation[FinalizationClaim]:
        """The right to finalize the workflow, for `lease` microseconds, to this processor alone, under the next token;
        asked again by who has it, it is extended under the same token. Otherwise the answer says why not. Every wish
        is recorded with its reason."""

    def renew_finalization(
        self, workflow_id: int, processor: str, token: int, lease: int
    ) -> Operation[FinalizationClaim]:
        """Extends the claim that this processor has under this token, also after its lease ran out, if no other claim
        was granted since. Grants no new claim: any other caller gets an answer that says who holds it, or that nobody
        does."""

    def release_finalization(self, workflow_id: int, processor: str, token: int) -> Operation[bool]:
        """Gives up the claim that this processor has under this token: True. Any other caller: False, and nothing
        changes."""

    def finalize(self, workflow_id: int, processor: str, token: int) -> Operation[Finalized]:
        """The holder of the claim acts on the execution context, in one transaction: the workflow is completed (or its
        finalizer begins), fails, or is left to be checked later. The claim ends with it. FinalizationLost where the
        token is not the live one: nothing changes."""

    def finalization_attempts(self, workflow_id: int) -> Operation[list[FinalizationAttempt]]:
        """Every recorded wish to finalize the workflow, in order."""

    # Checkpoints

    def checkpoints(self, task_id: int) -> Operation[dict[str, Any]]:
        """What earlier attempts of the task have kept, by name."""

    def keep_checkpoint(self, claim: AnyClaim, name: str, value: Any) -> Operation[Any]:
        """Keep a value for later attempts, if the token is live; else ClaimLost. The value that is kept: an earlier one
        under this name stays."""

    # Keys

    def mint_key(self, new: NewKey) -> Operation[MintedKey]:
        """A new key; only this answer holds its secret. After OutcomeUnknown there may be one that nobody can use."""

    def list_keys(self) -> Operation[list[ApiKey]]:
        """All keys, oldest first, also those that expired or were revoked."""

    def revoke_key(self, key_id: str) -> Operation[ApiKey]:
        """Nobody may use the key from now on, or KeyNotFound. The same again keeps the time of the first."""

    # Look

    def get(self, task_id: int) -> Operation[Task | None]:
        """The task, or None."""

    def list_tasks(self, which: TaskFilter) -> Operation[list[Task]]:
        """A page of tasks by state, type and queue, newest first. The other filters are for `find`."""

    def find(self, which: TaskSearch, span: int = ...) -> Operation[TaskPage]:
        """The newest tasks that match. By key at once, by a state that few tasks are in among those; otherwise among
        the next `span` tasks below the cursor (a server decides itself how far it looks). The search continues at the
        cursor of the answer, also when nothing was found; None: all tasks have been looked through."""

    def history(self, task_id: int) -> Operation[list[HistoryEntry]]:
        """What happened to a task, in order."""

    def history_after(self, entry_id: int, limit: int) -> Operation[list[HistoryEntry]]:
        """What happened to all tasks, in order, page by page."""

    def explain(self, task_id: int) -> Operation[Explanation]:
        """Why the task is not running."""

    def workers(self) -> Operation[list[WorkerInfo]]:
        """Every worker heard of, and what it holds."""

    def queues(self) -> Operation[list[QueueInfo]]:
        """Every queue, its depth, and whether it is paused."""

    def stats(self) -> Operation[Stats]:
        """Depth, age, throughput, latency."""


class ServedStore(Store, Protocol):
    """A store behind a server, which does in one request what a client of a database does in several operations."""

    def cancel_matching(self, which: TaskMatch, cursor: int | None) -> Operation[BulkResult]:
        """Some of the tasks that match, below the cursor, are cancelled or asked to stop."""

    def retry_matching(self, which: TaskMatch, cursor: int | None) -> Operation[BulkResult]:
        """Some of the tasks that match, below the cursor, are pending again, with all their attempts."""


class DatabaseStore(Store, Protocol):
    """A store that is a database, and not spoken to over HTTP: what only the server that stands before it asks, for the
    keys and queues of its callers."""

    def claim_each(self, requests: Sequence[ClaimRequest]) -> Operation[list[list[Claim]]]:
        """As `claim`, for several workers at once who ask for the same kind of task: the tasks go to them in the order
        of the list. To each what it got."""

    def validated_quickly(self, tasks: Iterable[NewTask]) -> bool | None:
        """True where the params of these tasks are validated in this process and at once: such tasks can be stored
        together with others without keeping those waiting. None where the task types are not known: `know_types`."""

    async def know_types(self) -> None:
        """Read the registered task types, which are then known for a second."""

    witness: Witness
    """Told what the store does to tasks."""

    @property
    def many_writers(self) -> bool:
        """True where several write at once, so that an entry of the history can be committed after one with a higher
        id."""

    def get_key(self, key_id: str) -> Operation[ApiKey | None]:
        """The key with this id as the database knows it, with its digest, expired or not by the database's clock."""

    def note_keys_used(self, key_ids: Sequence[str]) -> Operation[None]:
        """These keys were used now."""

    def take_permits(self, key_id: str, limit: RateLimit, wanted: int) -> Operation[RateLimitGrant]:
        """Up to `wanted` requests for the key. Never more in a window than its limit, however many servers ask; a
        window begins with the first request after the last one ended, by the database's clock."""

    def cancel(self, task_id: int, only: Sequence[str] | None = None) -> Operation[Task]:
        """As for everybody; `only`: the queues of a caller, to whom a task that stands for a workflow with other queues
        does not exist."""

    def retry(self, task_id: int, only: Sequence[str] | None = None) -> Operation[Task]:
        """As for everybody; `only`: the queues of a caller, to whom a step that goes on with a workflow with other
        queues does not exist."""

    def discard(self, task_id: int, only: Sequence[str] | None = None) -> Operation[Task]:
        """As for everybody; `only`: the queues of a caller, to whom a task of another queue does not exist."""

    def explain(self, task_id: int, only: Sequence[str] | None = None) -> Operation[Explanation]:
        """Why the task is not running, with no word about steps in other queues than these."""

    def results(self, task_id: int, only: Sequence[str] | None = None) -> Operation[list[StepResult]]:
        """As for everybody; without the results of parents in other queues than these."""

    def heartbeat(self, beat: Heartbeat, only: Sequence[str] | None = None) -> Operation[None]:
        """As for everybody; `only`: the queue limit of the caller. A record belongs to the limit under which it was
        written: callers with different limits neither see nor change each other's."""

    def next_due(self, only: Sequence[str] | None = None) -> Operation[float | None]:
        """As for everybody; of these queues only, where they are given."""

    def check_parents(self, task_id: int, steps: Sequence[NewStep], only: Sequence[str]) -> Operation[None]:
        """InvalidGraph if this step adds steps after others that are in none of these queues, or do not exist."""

    def queues_of(self, task_ids: Sequence[int]) -> Operation[dict[int, str]]:
        """The queue of each of these tasks that exists."""

    def stats(self, queues: Sequence[str] | None = None) -> Operation[Stats]:
        """Depth, age, throughput, latency; of these queues only, where they are given."""

    def events_after(
        self, entry_id: int, limit: int, queues: Sequence[str] | None = None
    ) -> Operation[list[StoreEvent]]:
        """What happened after this entry, in order, with the task's queue and type; of these queues only, where they
        are given. On an engine with many writers an entry can be committed after one with a higher id: who must not
        miss any looks back."""

    def last_entry(self) -> Operation[int]:
        """The id of the newest entry of the history, 0 where there is none."""

    def vitals(self) -> Operation[DatabaseHealth]:
        """How large the database is, and what keeps its engine from cleaning up."""

    def workflow_counts(self) -> Operation[dict[str, int]]:
        """How many workflows there are in each state, sub-workflows included. It reads all workflows."""

    # Watching

    def search(self, which: TaskSearch, span: int = ...) -> Operation[FoundTasks]:
        """The newest tasks that match, as lines of a list. By id and key at once, by a state that few tasks are in
        among those; otherwise among the next `span` tasks below the cursor. Whoever wants more goes on from the cursor
        of the answer, also when nothing was found. Text in large params takes longest: a small `span` bounds it."""

    def cancel_many(
        self, ids: Sequence[int], only: Sequence[str] | None = None, state: str | None = None
    ) -> Operation[int]:
        """As `cancel`, for up to 500 tasks in one transaction; how many were cancelled or asked to stop. Tasks that
        cannot be cancelled, are not in the queues `only`, or are no longer in this state are left out."""

    def retry_many(
        self, ids: Sequence[int], only: Sequence[str] | None = None, state: str | None = None
    ) -> Operation[int]:
        """As `retry`, for up to 500 tasks in one transaction; how many went back. Tasks that cannot be retried, are not
        in the queues `only`, or are no longer in this state are left out."""

    def tally(self) -> Operation[TaskCounts]:
        """Every task counted, by queue, type and state, with the age of the oldest pending one, and the position in the
        history at which that is true. It reads all tasks."""

    def moves_since(self, positions: Sequence[HistoryPosition], limit: int = ...) -> Operation[ChangesSince]:
        """What happened since each of these positions, counted, up to one moment. Also on an engine with many writers
        nothing is missed and nothing told twice, but for what took very long to be committed."""

    def finished_within(self, window: int, queues: Sequence[str] | None = None) -> Operation[dict[str, int]]:
        """How many tasks (of these queues) reached each final state in the last `window` microseconds."""

    def roll(self) -> Operation[WorkersAndPauses]:
        """The workers and the paused queues. It reads no tasks."""

    def latest_history(self, task_id: int, limit: int) -> Operation[RecentHistory]:
        """The newest things that happened to the task, in order, and how many there were in all."""

    def outline(self, workflow_id: int, limit: int = ...) -> Operation[WorkflowOutline]:
        """What never changes of the workflow's first steps, in the order in which they were added, and what comes after
        what; none if there is no such workflow."""

    def step_states(self, workflow_id: int, last: int) -> Operation[list[StepGroup]]:
        """How the workflow's steps stand, up to the one with the id `last`."""

    def some_steps(self, task_ids: Sequence[int]) -> Operation[StepDetails]:
        """These steps as they are now, without their errors and what they come after, and how far their sub-workflows
        are; those that do not exist are left out."""

    def step_errors(self, task_ids: Sequence[int]) -> Operation[dict[int, str]]:
        """What went wrong last with each of these tasks (`type: message`), its first 200 characters."""

    def latest_attempts(self, workflow_id: int, limit: int = ...) -> Operation[list[FinalizationAttempt]]:
        """The newest recorded wishes to finalize the workflow, newest first."""

    def find_workflows(self, which: WorkflowFilter, span: int = ...) -> Operation[FoundWorkflows]:
        """As `list_workflows`, among those that an index leads to, else among the next `span` workflows alone; and
        where to go on."""

    def latencies(self, queues: Sequence[str] | None = None, limit: int = ...) -> Operation[Latencies]:
        """How long the last completed tasks waited and ran; of these queues among the last of all, where they are
        given."""

    def error_groups(self, queues: Sequence[str] | None = None, limit: int = ...) -> Operation[ErrorGroups]:
        """The newest failed tasks (of these queues), grouped by type, error and message, the most frequent first. This
        takes some 20 ms of Python for 10,000 of them: not for an event loop."""

    def note_sample(self, at: int, body: str) -> Operation[bool]:
        """Keep the sample of this minute (microseconds). True for exactly one of all who have one."""

    def samples_since(self, at: int) -> Operation[list[tuple[int, str]]]:
        """The samples from this moment on, in order."""

    def sample_heads(self, at: int) -> Operation[list[tuple[int, str]]]:
        """The same, each up to its queues: what comes after `,"queues":` is most of it, and left out."""

    def prune_samples(self, before: int, limit: int = ...) -> Operation[int]:
        """Samples from before this moment are deleted; how many."""

    # Sessions

    def create_session(self, digest: str, key_id: str, lifetime: int) -> Operation[None]:
        """Somebody signed in with this key, for `lifetime` microseconds. The same again changes nothing."""

    def get_session(self, digest: str) -> Operation[BrowserSession | None]:
        """The session, unless it has come to its end by the database's clock. Whether its key still is live is asked of
        the key."""

    def end_session(self, digest: str) -> Operation[bool]:
        """The session is over; True if there was one."""

    def prune_sessions(self, limit: int = ...) -> Operation[int]:
        """Sessions past their end are deleted; how many."""
