"""Dibs: the verbs of the queue, for programs that wait for their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from dibs import procedures
from dibs.client_base import ClientBase, check_id, check_workflow_id, or_raise
from dibs.codec import check_name, check_text
from dibs.errors import DibsError
from dibs.handlers.endings import describe
from dibs.handlers.options import (
    ClaimOptions,
    FilterOptions,
    ListOptions,
    MatchOptions,
    ScheduleOptions,
    TaskOptions,
    WorkflowListOptions,
)
from dibs.model.checks import check_integer, check_seconds
from dibs.model.claim import (
    DEFAULT_LEASE,
    Claim,
    ClaimRef,
    ClaimRequest,
    Completed,
    Failed,
    Filters,
    Finished,
    Outcome,
    Released,
    Renewed,
    check_lease,
)
from dibs.model.explanation import Explanation
from dibs.model.finalization import (
    DEFAULT_FINALIZATION_LEASE,
    ExecutionContext,
    FinalizationAttempt,
    FinalizationClaim,
    Finalized,
    unique_processor,
)
from dibs.model.history import HistoryEntry
from dibs.model.key import STANDARD_LIMIT, ApiKey, MintedKey, NewKey, read_limit
from dibs.model.registry import Heartbeat, QueueInfo, TaskType, WorkerInfo
from dibs.model.retention import RetentionChange, RetentionRule, RetentionTarget
from dibs.model.schedule import CatchUp, NewSchedule, Schedule
from dibs.model.search import DeadFilter, TaskFilter, TaskMatch
from dibs.model.statistics import Stats
from dibs.model.task import Failure, NewTask, Task
from dibs.model.upkeep import Check, Upkept
from dibs.model.workflow import NewStep, NewWorkflow, Step, StepResult, Workflow, WorkflowFilter
from dibs.observe import tracing
from dibs.procedures import Plan, Wait
from dibs.store.migrate import Note, tell_nobody
from dibs.store.operation import Operation, drive
from dibs.worker.config import new_worker_id

T = TypeVar("T")


class Dibs(ClientBase[Task]):
    __doc__ = ClientBase.__doc__

    # Enqueue

    def enqueue(self, type: str, params: dict[str, Any] | None = None, **options: Unpack[TaskOptions]) -> Task:
        """Store a task. It is durable when this returns.

        Options: queue, priority, max_attempts, delay or run_at, timeout, key, backoff. With a key that was used
        before in this queue, the task that has it is returned, marked `deduplicated`; other content under that key is
        KeyConflict. Each queue has its own keys.
        """
        return self._submit(NewTask(type, {} if params is None else params, **options))

    def enqueue_many(self, tasks: Iterable[NewTask]) -> list[Task]:
        """Store many tasks in one transaction, all or none, and return them in the same order."""
        with tracing.enqueueing(list(tasks)) as new:
            return [task.of(self) for task in self._run(self._store.queue.enqueue(new.what))]

    def register_type(
        self, name: str, schema: dict[str, Any] | bool | None = None, defaults: dict[str, Any] | None = None
    ) -> TaskType:
        """Give a task type a JSON Schema and defaults; other ones than before make a new version."""
        return self._run(self._store.registry.register_type(name, schema, defaults or {}))

    def get_type(self, name: str, version: int | None = None) -> TaskType:
        """A registered task type: this version, or the newest."""
        return self._run(self._store.registry.get_type(name, version))

    def list_types(self) -> list[TaskType]:
        """All versions of all registered task types."""
        return self._run(self._store.registry.list_types())

    # Claim

    def claim(self, worker_id: str, *, wait: float = 0, **options: Unpack[ClaimOptions]) -> Claim | None:
        """Claim the next task, or None. `wait`: seconds to wait for one.

        Options: queues, types, max_attempts_remaining, order, lease (seconds), incarnation, request (a name under which
        the same worker can ask again if the answer is lost: it then gets what it already holds).
        """
        claims = self.claim_many(worker_id, 1, wait=wait, **options)
        return claims[0] if claims else None

    def claim_many(
        self, worker_id: str, count: int, *, wait: float = 0, **options: Unpack[ClaimOptions]
    ) -> list[Claim]:
        """Claim up to `count` tasks at once. The options are those of claim."""
        request = ClaimRequest(worker_id=worker_id, count=count, **options)
        check_seconds(wait, "wait")
        return self._follow(procedures.claim(self._store, request, wait))

    def claim_by_id(self, task_id: int, worker_id: str, *, lease: float = DEFAULT_LEASE) -> Claim:
        """Claim this task, or raise AlreadyClaimed, NotClaimable or TaskNotFound."""
        check_id(task_id)
        return self._run(self._store.queue.claim_by_id(task_id, ClaimRequest(worker_id=worker_id, lease=lease)))

    def peek(self, count: int = 1, **options: Unpack[FilterOptions]) -> list[Task]:
        """What would be claimed next. Only a look: somebody else may claim it first."""
        return self._run(self._store.queue.peek(Filters(count=count, **options)))

    # Finish

    def complete(self, claim: Claim | ClaimRef, result: Any = None, *, steps: Sequence[NewStep] = ()) -> Finished:
        """The task is done, with this JSON result. Raises ClaimLost if the claim is no longer yours.

        `steps`: what it adds to its workflow; steps that wait for it then wait for these as well.
        """
        return self._finish_one(claim, Completed(result, steps))

    def fail(
        self,
        claim: Claim | ClaimRef,
        error: BaseException | Failure | str,
        *,
        retry_in: float | None = None,
        permanent: bool = False,
    ) -> Finished:
        """The attempt failed. The answer says whether and when the task will be tried again."""
        return self._finish_one(claim, Failed(describe(error), retry_in, permanent))

    def release(self, claim: Claim | ClaimRef, *, delay: float = 0) -> Finished:
        """Give the task back, without an attempt spent."""
        return self._finish_one(claim, Released(delay))

    def finish(self, reports: Sequence[tuple[Claim | ClaimRef, Outcome]]) -> list[Finished | DibsError]:
        """Many outcomes in one transaction; each is answered on its own, with an error where it was refused."""
        return self._run(self._store.queue.finish(reports))

    def exchange(
        self,
        reports: Sequence[tuple[Claim | ClaimRef, Outcome]],
        worker_id: str,
        count: int = 1,
        **options: Unpack[ClaimOptions],
    ) -> tuple[list[Finished | DibsError], list[Claim]]:
        """Write many outcomes and claim up to `count` next tasks in one transaction: both are done, or neither.

        Each outcome is answered on its own, as by finish; the options are those of claim.
        """
        request = ClaimRequest(worker_id=worker_id, count=count, **options)
        return self._follow(procedures.exchange(self._store, reports, request))

    def renew(self, claim: Claim | ClaimRef, lease: float = DEFAULT_LEASE) -> Renewed:
        """Prolong the lease to `lease` seconds from now. Raises ClaimLost if the claim is no longer yours."""
        return or_raise(self.renew_many([claim], lease)[0])

    def renew_many(self, claims: Sequence[Claim | ClaimRef], lease: float = DEFAULT_LEASE) -> list[Renewed | DibsError]:
        """Prolong many leases; each is answered on its own."""
        return self._run(self._store.queue.renew(claims, check_lease(lease)))

    def progress(self, claim: Claim | ClaimRef, percent: int, message: str | None = None) -> bool:
        """Note how far the task is (0 to 100). True means: somebody asked the task to stop."""
        check_integer(percent, "progress", 0, 100)
        check_text(message, "The message")
        return or_raise(self._run(self._store.queue.progress([(claim, percent, message)]))[0])

    # Manage

    def cancel(self, task_id: int) -> Task:
        """Cancel a waiting task at once; ask a running one to stop."""
        return self._run(self._store.tasks.cancel(check_id(task_id)))

    def retry(self, task_id: int) -> Task:
        """Send a failed, cancelled or scheduled task back to be claimed now, with all its attempts."""
        return self._run(self._store.tasks.retry(check_id(task_id)))

    def cancel_matching(self, *, note: Callable[[int], None] | None = None, **filters: Unpack[MatchOptions]) -> int:
        """Cancel all tasks that match, as `cancel` does; how many were cancelled or asked to stop.

        Filters: those of list_tasks; at least one is needed. The tasks are changed in batches, newest first, each in a
        transaction of its own; `note` is called after each with the number of tasks in it. Tasks that are enqueued
        after the first batch are left alone.
        """
        return self._follow(procedures.cancel_matching(self._store, TaskMatch(**filters), note))

    def retry_matching(self, *, note: Callable[[int], None] | None = None, **filters: Unpack[MatchOptions]) -> int:
        """Retry all tasks that match and are failed, cancelled or scheduled, as `retry` does; how many went back.

        Filters and `note` are those of cancel_matching.
        """
        return self._follow(procedures.retry_matching(self._store, TaskMatch(**filters), note))

    def redrive(
        self,
        *,
        queue: str | None = None,
        type: str | None = None,
        error: str | None = None,
        limit: int | None = None,
    ) -> int:
        """Retry the tasks of the dead letter that match (`error`: text in the error); how many."""
        return self._follow(procedures.redrive(self._store, DeadFilter(queue=queue, type=type, error=error), limit))

    def list_dead(
        self,
        *,
        queue: str | None = None,
        type: str | None = None,
        error: str | None = None,
        limit: int = 100,
        cursor: int | None = None,
    ) -> list[Task]:
        """The tasks of the dead letter that match (`error`: text in the error), newest first, page by page: failed
        tasks, without steps whose failure their workflow ignored and without discarded ones."""
        which = TaskFilter(dead=True, queue=queue, type=type, error=error, limit=limit, cursor=cursor)
        return self._run(self._store.tasks.list_tasks(which))

    def discard(self, task_id: int) -> Task:
        """Take a failed task out of the dead letter. It stays failed, keeps its history, is pruned as usual, and can
        still be retried by its id."""
        return self._run(self._store.tasks.discard(check_id(task_id)))

    def discard_dead(
        self,
        *,
        ids: Sequence[int] | None = None,
        queue: str | None = None,
        type: str | None = None,
        error: str | None = None,
        limit: int | None = None,
    ) -> int:
        """Discard the tasks of the dead letter that match (`error`: text in the error); how many. `ids`: of these tasks
        only. Without any argument the whole dead letter is discarded."""
        which = DeadFilter(queue=queue, type=type, error=error)
        return self._follow(procedures.discard(self._store, ids, which, limit))

    def pause(self, queue: str) -> None:
        """Let nobody claim from the queue; running tasks go on."""
        self._run(self._store.registry.pause(queue))

    def resume(self, queue: str) -> None:
        """Let the queue be claimed from again."""
        self._run(self._store.registry.resume(queue))

    # Schedules

    def set_schedule(
        self,
        name: str,
        cron: str,
        type: str,
        params: dict[str, Any] | None = None,
        *,
        timezone: str = "UTC",
        catch_up: str = CatchUp.ONE,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Enqueue a task at every tick of the cron expression; the schedule of that name is changed if there is one.

        `catch_up` says what becomes of ticks that nobody was there for: "one", "all", "none".
        Options: queue, priority, max_attempts, timeout, backoff, enabled.
        """
        given = {} if params is None else params
        new = NewSchedule(
            name=name, cron=cron, type=type, params=given, timezone=timezone, catch_up=catch_up, **options
        )
        return self._run(self._store.schedules.put_schedule(new, "command"))

    def schedules(self) -> list[Schedule]:
        """Every schedule, by name."""
        return self._run(self._store.schedules.list_schedules())

    def get_schedule(self, name: str) -> Schedule:
        """The schedule. Raises ScheduleNotFound."""
        return self._run(self._store.schedules.get_schedule(name))

    def remove_schedule(self, name: str) -> None:
        """Forget the schedule. What it has enqueued stays."""
        self._run(self._store.schedules.remove_schedule(name))

    def enable_schedule(self, name: str) -> Schedule:
        """Let a disabled schedule tick again, from now on: nothing is caught up."""
        return self._run(self._store.schedules.enable_schedule(name))

    def disable_schedule(self, name: str) -> Schedule:
        """Let the schedule not tick until it is enabled again."""
        return self._run(self._store.schedules.disable_schedule(name))

    def run_schedule(self, name: str) -> Task:
        """Enqueue the schedule's task now, beside its ticks."""
        return self._run(self._store.schedules.run_schedule(name)).of(self)

    def tick(self) -> int:
        """Enqueue what the schedules have due; how many tasks. Workers do this by themselves, as part of upkeep."""
        return self._follow(procedures.tick(self._store))

    # Workflows

    def start_workflow(self, new: NewWorkflow) -> Workflow:
        """Store a whole workflow, or nothing: what `with app.workflow(…)` does at the end of its block.

        With a key that was used before, the workflow that has it is returned, marked `deduplicated`; another graph
        under that key is KeyConflict. A key belongs to the set of queues that the graph names.
        """
        with tracing.starting(new) as traced:
            return traced.stored(self._run(self._store.workflows.start_workflow(traced.what))).of(self)

    def add_steps(self, workflow_id: int, steps: Sequence[NewStep]) -> Workflow:
        """Add steps to a workflow that still runs, all or none; they may be after steps that it has."""
        with tracing.adding(steps) as new:
            return self._run(self._store.workflows.add_steps(check_workflow_id(workflow_id), new.what)).of(self)

    def get_workflow(self, workflow_id: int) -> Workflow | None:
        """The workflow, or None."""
        workflow = self._run(self._store.workflows.get_workflow(check_workflow_id(workflow_id)))
        return None if workflow is None else workflow.of(self)

    def list_workflows(self, **options: Unpack[WorkflowListOptions]) -> list[Workflow]:
        """A page of workflows, newest first. Options: state, name, limit, cursor (the last id of the last page)."""
        return [
            workflow.of(self) for workflow in self._run(self._store.workflows.list_workflows(WorkflowFilter(**options)))
        ]

    def steps(self, workflow_id: int) -> list[Step]:
        """The workflow's steps, in the order in which they were added. Raises WorkflowNotFound."""
        return self._run(self._store.workflows.steps(check_workflow_id(workflow_id)))

    def results(self, task_id: int) -> list[StepResult]:
        """What the parents of this step came to: what its handler reads in `ctx.results`."""
        return self._run(self._store.workflows.results(check_id(task_id)))

    def wait_workflow(self, workflow_id: int, timeout: float | None = None) -> Workflow:
        """The workflow, once it has ended. Raises WaitTimeout after `timeout` seconds; the workflow goes on."""
        return self._follow(procedures.wait_workflow(self._store, check_workflow_id(workflow_id), timeout)).of(self)

    def cancel_workflow(self, workflow_id: int) -> Workflow:
        """Begin nothing more of the workflow, and ask its running steps to stop."""
        return self._run(self._store.workflows.cancel_workflow(check_workflow_id(workflow_id))).of(self)

    def retry_workflow(self, workflow_id: int) -> Workflow:
        """Let a failed or cancelled workflow go on from where it stopped. What was completed stays."""
        return self._run(self._store.workflows.retry_workflow(check_workflow_id(workflow_id))).of(self)

    def execution_context(self, workflow_id: int) -> ExecutionContext:
        """How the workflow's steps stand, and what should be done about that. Raises WorkflowNotFound."""
        return self._run(self._store.finalization.execution_context(check_workflow_id(workflow_id)))

    def claim_finalization(
        self, workflow_id: int, processor: str, timeout: float = DEFAULT_FINALIZATION_LEASE
    ) -> FinalizationClaim:
        """Ask for the right to finalize the workflow, for `timeout` seconds. The answer says why, where it is refused.

        Workers do this by themselves; it is for programs that decide themselves how their workflows end.
        """
        lease = check_lease(timeout)
        return self._run(self._store.finalization.claim_finalization(check_workflow_id(workflow_id), processor, lease))

    def renew_finalization(
        self, workflow_id: int, processor: str, token: int, timeout: float = DEFAULT_FINALIZATION_LEASE
    ) -> FinalizationClaim:
        """Extend the finalization claim that this processor has under this token to `timeout` seconds from now.

        Grants no new claim: `claimed` is False where the claim is another one, or nobody has it.
        """
        lease = check_lease(timeout)
        return self._run(
            self._store.finalization.renew_finalization(check_workflow_id(workflow_id), processor, token, lease)
        )

    def release_finalization(self, workflow_id: int, processor: str, token: int) -> bool:
        """Give up the finalization claim that this processor has under this token. False, and nothing changes, where
        the claim is another one."""
        return self._run(
            self._store.finalization.release_finalization(check_workflow_id(workflow_id), processor, token)
        )

    def finalize(self, workflow_id: int, processor: str, token: int) -> Finalized:
        """End the workflow, begin its finalizer, or leave it for later, by its execution context. The claim ends.

        Raises FinalizationLost, and changes nothing, where the token is no longer the live one.
        """
        check_integer(token, "token", 0, 2**63 - 1)
        return self._run(self._store.finalization.finalize(check_workflow_id(workflow_id), processor, token))

    def finalization_attempts(self, workflow_id: int) -> list[FinalizationAttempt]:
        """Everybody who asked for the workflow's finalization, in order, and what they were told."""
        return self._run(self._store.finalization.finalization_attempts(check_workflow_id(workflow_id)))

    def checkpoints(self, task_id: int) -> dict[str, Any]:
        """What the attempts of a task have kept, by name."""
        return self._run(self._store.queue.checkpoints(check_id(task_id)))

    def keep_checkpoint(self, claim: Claim | ClaimRef, name: str, value: Any) -> Any:
        """Keep a value for later attempts of the task; an earlier one under this name stays. The value that is kept.

        Raises ClaimLost if the claim is no longer yours.
        """
        check_name(name, "The name of a checkpoint")
        return self._run(self._store.queue.keep_checkpoint(claim, name, value))

    # Keys

    def create_key(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        queues: Sequence[str] | None = None,
        rate_limit: str = str(STANDARD_LIMIT),
        expires_in: float | None = None,
        expires_at: datetime | None = None,
    ) -> MintedKey:
        """Make a key for the server's API. Its text is in this answer alone: nobody can read it again.

        Scopes: enqueue, work, read, admin. `queues`: the only ones it is for. `rate_limit`: like "600/minute", or
        "none". It expires `expires_in` seconds from now, or at `expires_at`, or never.
        """
        new = NewKey(
            name=name,
            scopes=scopes,
            queues=queues,
            rate_limit=read_limit(rate_limit),
            expires_in=expires_in,
            expires_at=expires_at,
        )
        return self._run(self._store.keys.mint_key(new))

    def keys(self) -> list[ApiKey]:
        """Every key, oldest first, also those that expired or were revoked."""
        return self._run(self._store.keys.list_keys())

    def revoke_key(self, key_id: str) -> ApiKey:
        """Let nobody use the key from now on. Raises KeyNotFound."""
        return self._run(self._store.keys.revoke_key(key_id))

    # Retention

    def set_retention(
        self,
        records: str,
        keep: float | None,
        *,
        queue: str | None = None,
        type: str | None = None,
        workflow: str | None = None,
    ) -> RetentionRule:
        """Keep these records for `keep` seconds after they finished: None for ever, 0 until the next upkeep.

        Records: completed, failed, cancelled (tasks and workflows), history, workers. Without a queue, type or workflow
        this is the default of the store. A rule for a type takes precedence over a rule for a queue, and both over the
        default. Steps are kept as long as their workflow: by the rule for the workflow's name, else by the longest that
        applies in its queues. The rule is stored: every process obeys it from its next upkeep on.
        """
        target = RetentionTarget(records=records, queue=queue, type=type, workflow=workflow)
        return self._run(self._store.retention.set_retention(target, keep))

    def retention(self) -> list[RetentionRule]:
        """The retention rules: the default for each kind of records, then those for types, queues and workflows."""
        return self._run(self._store.retention.retention_rules())

    def remove_retention(
        self, records: str, *, queue: str | None = None, type: str | None = None, workflow: str | None = None
    ) -> None:
        """Remove a retention rule. Without a queue, type or workflow the default goes back to its first value.

        Raises RetentionNotFound where no rule is set for that queue, type or workflow.
        """
        target = RetentionTarget(records=records, queue=queue, type=type, workflow=workflow)
        self._run(self._store.retention.remove_retention(target))

    def retention_changes(self, limit: int = 100) -> list[RetentionChange]:
        """The newest changes of retention rules (up to 1000), newest first: what was set or removed, when, by whom."""
        return self._run(self._store.retention.retention_changes(limit))

    # Upkeep

    def promote(self) -> int:
        """Make a batch of due tasks pending; how many."""
        return self._run(self._store.upkeep.promote())

    def recover(self) -> int:
        """Take a batch of tasks back whose lease ran out; how many."""
        return self._run(self._store.upkeep.recover())

    def prune(self) -> int:
        """Delete finished tasks, ended workflows and history past their retention; the number of rows deleted."""
        return self._follow(procedures.prune(self._store))

    def upkeep(self) -> Upkept:
        """Tick, promote, recover, expire, finalize and mend workflows, and prune by the retention rules of the store.

        Workers and servers do this by themselves. It is safe to call from anywhere, from many processes at once.
        """
        done = self._follow(procedures.upkeep(self._store, unique_processor(new_worker_id())))
        self._store.maintain()
        return done

    def heartbeat(
        self,
        worker_id: str,
        *,
        incarnation: str = "",
        queues: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        metadata: dict[str, Any] | None = None,
        leaving: bool = False,
    ) -> None:
        """Register a worker, or note that it still lives (or is leaving)."""
        beat = Heartbeat(
            worker_id=worker_id,
            incarnation=incarnation,
            queues=queues,
            types=types,
            metadata=metadata or {},
            leaving=leaving,
        )
        self._run(self._store.registry.heartbeat(beat))

    # Look

    def get(self, task_id: int) -> Task | None:
        """The task, or None."""
        task = self._run(self._store.tasks.get(check_id(task_id)))
        return None if task is None else task.of(self)

    def wait(self, task_id: int, timeout: float | None = None) -> Task:
        """The task, once it is finished. Raises WaitTimeout after `timeout` seconds; the task goes on."""
        return self._follow(procedures.wait(self._store, check_id(task_id), timeout))

    def list_tasks(self, **options: Unpack[ListOptions]) -> list[Task]:
        """A page of tasks, newest first.

        Options: state, type, queue, key, worker (holds the task, or held it last), text (in the params, or in the
        error's type and message), since and until (when it was created, `until` excluded), limit, cursor (the last id
        of the last page). State, type, queue and key are found by an index; the others may read many tasks.
        """
        return self._follow(procedures.list_tasks(self._store, TaskFilter(**options)))

    def history(self, task_id: int) -> list[HistoryEntry]:
        """Everything that happened to a task, in order. It outlives the task."""
        return self._run(self._store.history.task_history(check_id(task_id)))

    def history_after(self, entry_id: int, limit: int = procedures.PAGE) -> list[HistoryEntry]:
        """What happened to all tasks after this entry (0: from the beginning), in order: a page of at most `limit`."""
        check_integer(entry_id, "entry_id", 0, 2**63 - 1)
        check_integer(limit, "limit", 1, procedures.PAGE)
        return self._run(self._store.history.history_after(entry_id, limit))

    def all_history(self) -> list[HistoryEntry]:
        """Everything that happened to all tasks, in order: what the offline checker reads."""
        return self._follow(procedures.all_history(self._store))

    def explain(self, task_id: int) -> Explanation:
        """Why is this task not running?"""
        return self._run(self._store.tasks.explain(check_id(task_id)))

    def workers(self) -> list[WorkerInfo]:
        """Every worker heard of, active, stale or gone, with the tasks it holds."""
        return self._run(self._store.registry.workers())

    def queues(self) -> list[QueueInfo]:
        """Every queue with its depth by state, and whether it is paused."""
        return self._run(self._store.registry.queues())

    def stats(self) -> Stats:
        """Depth, oldest age, throughput and latency."""
        return self._run(self._store.statistics.stats())

    # The store

    def migrate(self, note: Note = tell_nobody) -> list[str]:
        """Bring the database's schema up to date; the names of the migrations that were applied.

        `note` is told the name of each before it is applied. They are applied together, or none of them.
        """
        return self._store.migrate(note)

    def doctor(self) -> list[Check]:
        """Check the database for damage and for settings that would cost a guarantee."""
        return self._store.doctor()

    def close(self) -> None:
        """Let go of all connections. Using the object again opens them again."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _submit(self, task: NewTask) -> Task:
        with tracing.enqueueing([task]) as new:
            return new.stored(self._run(self._store.queue.enqueue(new.what))[0]).of(self)

    def _finish_one(self, claim: Claim | ClaimRef, outcome: Outcome) -> Finished:
        return or_raise(self.finish([(claim, outcome)])[0])

    def _run(self, operation: Operation[T]) -> T:
        try:
            return self._store.run(operation, by=self._by, on=self._on)
        except KeyboardInterrupt as interrupt:  # Ctrl-C: where in the library it came says nothing to the program
            raise interrupt.with_traceback(None) from None

    def _follow(self, plan: Plan[T]) -> T:
        try:
            return drive(plan, self._step)
        except KeyboardInterrupt as interrupt:
            raise interrupt.with_traceback(None) from None

    def _step(self, step: Operation[Any] | Wait) -> Any:
        if isinstance(step, Wait):
            return self._store.wakeups.wait(step.seen, step.timeout)
        return self._run(step)
