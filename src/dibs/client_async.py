"""AsyncDibs: the asynchronous client, with the same methods as Dibs. A test compares the two."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

import msgspec
from msgspec import UNSET, UnsetType

from dibs import procedures
from dibs.client_base import ClientBase, check_id, check_workflow_id, goes_on, raise_if_error
from dibs.errors import DibsError, NotAllowed, OutcomeUnknown, TaskNotFound
from dibs.handlers.endings import describe
from dibs.handlers.handler import AsyncHandler
from dibs.json_values import check_name, check_text
from dibs.model.async_task import AsyncTask
from dibs.model.async_workflow import AsyncWorkflow
from dibs.model.change import TaskChange
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
from dibs.model.history import EventFilter, HistoryEntry, StoreEvent
from dibs.model.key import STANDARD_LIMIT, ApiKey, MintedKey, NewKey, read_limit
from dibs.model.limit import (
    GroupInfo,
    Limit,
    LimitChange,
    LimitGroup,
    NewQueueSettings,
    NewTypeSettings,
    QueueSettings,
    TypeSettings,
)
from dibs.model.registry import Heartbeat, PausedType, QueueInfo, TaskType, WorkerInfo
from dibs.model.retention import RetentionChange, RetentionRule, RetentionTarget
from dibs.model.schedule import CatchUp, NewSchedule, Schedule
from dibs.model.search import DeadFilter, TaskFilter, TaskMatch
from dibs.model.statistics import Stats
from dibs.model.task import Failure, NewTask, Task
from dibs.model.upkeep import Check, Upkept
from dibs.model.workflow import NewStep, NewWorkflow, Step, StepResult, Workflow, WorkflowFilter
from dibs.observe import tracing
from dibs.procedures import PauseFor, Procedure, WaitForChange
from dibs.store.migrate import OnMigration, ignore_migration
from dibs.store.operation import Operation, drive_async
from dibs.worker.config import new_worker_id
from dibs.workflow.async_flow import AsyncFlow

if TYPE_CHECKING:
    from dibs.handlers.batch import AsyncBatchHandler, BatchOptions
    from dibs.handlers.context import Context
    from dibs.handlers.handler import HandlerOptions
    from dibs.handlers.options import (
        CatchUpOption,
        ChangeOptions,
        ClaimOptions,
        DeadLetterOptions,
        FilterOptions,
        ListOptions,
        MatchOptions,
        ScheduleOptions,
        TaskOptions,
        WorkflowListOptions,
        WorkflowOptions,
    )
    from dibs.handlers.protocols import (
        AsyncBatchHandlerDecorator,
        AsyncEnqueueMiddleware,
        AsyncHandlerDecorator,
        AwaitsItems,
        Outcomes,
        RunsItems,
    )
    from dibs.many.async_tasks import AsyncTasks
    from dibs.many.handles import Convert
    from dibs.many.watch import Watch
    from dibs.model.logs import LogLine
    from dibs.model.search import TasksById

    P = ParamSpec("P")
    AroundEnqueue = TypeVar("AroundEnqueue", bound=AsyncEnqueueMiddleware)
    R = TypeVar("R")
    D = TypeVar("D")

T = TypeVar("T")

_INTERRUPTED = (asyncio.CancelledError, KeyboardInterrupt)
"""What Ctrl-C raises in a coroutine: asyncio cancels the main task."""


class AsyncDibs(ClientBase[AsyncHandler[..., Any, Any]]):
    __doc__ = ClientBase.__doc__
    _handler_kind = AsyncHandler
    _flow_kind = AsyncFlow

    if TYPE_CHECKING:

        @overload  # type: ignore[override]  # each client has its class of handlers
        def task(
            self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
        ) -> AsyncHandler[P, R, Coroutine[Any, Any, R]]: ...
        @overload
        def task(self, function: Callable[Concatenate[Context, P], R], /) -> AsyncHandler[P, R, R]: ...
        @overload
        def task(
            self, function: Callable[P, Coroutine[Any, Any, R]], /
        ) -> AsyncHandler[P, R, Coroutine[Any, Any, R]]: ...
        @overload
        def task(self, function: Callable[P, R], /) -> AsyncHandler[P, R, R]: ...
        @overload
        def task(self, function: None = None, /, **options: Unpack[HandlerOptions]) -> AsyncHandlerDecorator: ...
        def task(self, function: Any = None, /, **options: Any) -> Any:
            """See ClientBase.task."""

        def enqueue_middleware(self, function: AroundEnqueue, /) -> AroundEnqueue:
            """See ClientBase.enqueue_middleware."""

        def tasks(self, ids: Iterable[int]) -> AsyncTasks[Any]:
            """See ClientBase.tasks."""

        def workflow(self, name: str, **options: Unpack[WorkflowOptions]) -> AsyncFlow:
            """See ClientBase.workflow."""

        @overload  # type: ignore[override]  # each client has its class of handlers
        def batch_task(
            self, function: AwaitsItems[D, R], /
        ) -> AsyncBatchHandler[D, R, Coroutine[Any, Any, Outcomes[R]]]: ...
        @overload
        def batch_task(self, function: RunsItems[D, R], /) -> AsyncBatchHandler[D, R, Outcomes[R]]: ...
        @overload
        def batch_task(
            self, function: None = None, /, **options: Unpack[BatchOptions]
        ) -> AsyncBatchHandlerDecorator: ...
        def batch_task(self, function: Any = None, /, **options: Any) -> Any:
            """See ClientBase.batch_task."""

    # Enqueue

    async def enqueue(
        self, type: str, params: dict[str, Any] | None = None, **options: Unpack[TaskOptions]
    ) -> AsyncTask:
        """Store a task. The task is durable when this method returns.

        Options: queue, priority, max_attempts, delay or run_at, timeout, key, backoff, tags, limits (names, in addition
        to those of the queue and the type), group, expires_in or expires_at (a task that has not started by then is
        cancelled). With a key that is already used in this queue, the existing task is returned, marked
        `deduplicated`; another type or other params under that key raise KeyConflict. Each queue has its own keys.
        Options about the key: key_scope ("always", "until_finished" or "until_started") or key_for (seconds),
        on_conflict ("return", "keep", "raise" or "replace"), max_delay (seconds after the first enqueue beyond which
        "replace" does not postpone the task).
        """
        return await self._submit(NewTask(type, {} if params is None else params, **options))

    async def enqueue_many(self, tasks: Iterable[NewTask]) -> list[AsyncTask]:
        """Store many tasks in one transaction, all or none, and return them in the same order."""
        return await self._enqueue(list(tasks)) if not self._hooks.around_enqueue else await self._around(list(tasks))

    async def register_type(
        self, name: str, schema: dict[str, Any] | bool | None = None, defaults: dict[str, Any] | None = None
    ) -> TaskType:
        """Register a JSON Schema and defaults for a task type. A change creates a new version."""
        return await self._run(self._store.registry.register_type(name, schema, defaults or {}))

    async def get_type(self, name: str, version: int | None = None) -> TaskType:
        """A registered task type: this version, or the newest."""
        return await self._run(self._store.registry.get_type(name, version))

    async def list_types(self) -> list[TaskType]:
        """All versions of all registered task types."""
        return await self._run(self._store.registry.list_types())

    # Claim

    async def claim(self, worker_id: str, *, wait: float = 0, **options: Unpack[ClaimOptions]) -> Claim | None:
        """Claim the next task; None if there is none. `wait`: seconds to wait for a task.

        Options: queues, types, max_attempts_remaining, order, lease (seconds), incarnation, request (an id with which
        the same worker can repeat the claim if the response was lost: it then receives the tasks it already holds).
        """
        claims = await self.claim_many(worker_id, 1, wait=wait, **options)
        return claims[0] if claims else None

    async def claim_many(
        self, worker_id: str, count: int, *, wait: float = 0, **options: Unpack[ClaimOptions]
    ) -> list[Claim]:
        """Claim up to `count` tasks at once. Options: as for claim."""
        request = ClaimRequest(worker_id=worker_id, count=count, **options)
        check_seconds(wait, "wait")
        return await self._follow(procedures.claim(self._store, request, wait))

    async def claim_by_id(self, task_id: int, worker_id: str, *, lease: float = DEFAULT_LEASE) -> Claim:
        """Claim this task. Raises AlreadyClaimed, NotClaimable or TaskNotFound."""
        check_id(task_id)
        return await self._run(self._store.queue.claim_by_id(task_id, ClaimRequest(worker_id=worker_id, lease=lease)))

    async def peek(self, count: int = 1, **options: Unpack[FilterOptions]) -> list[AsyncTask]:
        """The tasks that would be claimed next, without claiming them: another worker may claim them first."""
        return self._own_all(await self._run(self._store.queue.peek(Filters(count=count, **options))))

    # Finish

    async def complete(self, claim: Claim | ClaimRef, result: Any = None, *, steps: Sequence[NewStep] = ()) -> Finished:
        """Complete the task with this JSON result. Raises ClaimLost if the claim is no longer valid.

        `steps`: steps to add to its workflow; steps that wait for this task then also wait for them.
        """
        return await self._finish_one(claim, Completed(result, steps))

    async def fail(
        self,
        claim: Claim | ClaimRef,
        error: BaseException | Failure | str,
        *,
        retry_in: float | None = None,
        permanent: bool = False,
    ) -> Finished:
        """Report a failed attempt. The result tells whether and when the task will be retried."""
        return await self._finish_one(claim, Failed(describe(error), retry_in, permanent))

    async def release(self, claim: Claim | ClaimRef, *, delay: float = 0) -> Finished:
        """Return the task to the queue, without counting an attempt."""
        return await self._finish_one(claim, Released(delay))

    async def finish(self, reports: Sequence[tuple[Claim | ClaimRef, Outcome]]) -> list[Finished | DibsError]:
        """Write many outcomes in one transaction. Returns one result for each, an error if it was refused."""
        return await self._run(self._store.queue.finish(reports))

    async def exchange(
        self,
        reports: Sequence[tuple[Claim | ClaimRef, Outcome]],
        worker_id: str,
        count: int = 1,
        **options: Unpack[ClaimOptions],
    ) -> tuple[list[Finished | DibsError], list[Claim]]:
        """Write many outcomes and claim up to `count` tasks in one transaction: both, or neither.

        Returns one result for each outcome, as finish does, and the claims. Options: as for claim.
        """
        request = ClaimRequest(worker_id=worker_id, count=count, **options)
        return await self._follow(procedures.exchange(self._store, reports, request))

    async def renew(self, claim: Claim | ClaimRef, lease: float = DEFAULT_LEASE) -> Renewed:
        """Extend the lease to `lease` seconds from now. Raises ClaimLost if the claim is no longer valid."""
        return raise_if_error((await self.renew_many([claim], lease))[0])

    async def renew_many(
        self, claims: Sequence[Claim | ClaimRef], lease: float = DEFAULT_LEASE
    ) -> list[Renewed | DibsError]:
        """Extend many leases. Returns one result for each, an error if it was refused."""
        return await self._run(self._store.queue.renew(claims, check_lease(lease)))

    async def progress(self, claim: Claim | ClaimRef, percent: int, message: str | None = None) -> bool:
        """Report the progress of the task (0 to 100). Returns True if the cancellation of the task was requested."""
        check_integer(percent, "progress", 0, 100)
        check_text(message, "The message")
        return raise_if_error((await self._run(self._store.queue.progress([(claim, percent, message)])))[0])

    # Manage

    async def change(self, task_id: int, **changes: Unpack[ChangeOptions]) -> AsyncTask:
        """Change a task that has not started: the next worker that claims it gets the new values.

        Changes: priority, delay (seconds from now) or run_at, queue, params (all of them), tags (all of them), group
        (an empty text removes it). Raises AlreadyStarted if a worker has claimed the task, and WrongState if the task
        is finished: nothing changed then. A step of a workflow keeps its queue, and its due time while it is blocked.
        The idempotency key stays, with the type and params of the enqueue, so repeating the enqueue returns this task;
        if another task has the key in the new queue, KeyConflict is raised. A change after which a limit per group
        would have no group is refused with InvalidValue.
        """
        return self._own(await self._run(self._store.tasks.change(check_id(task_id), TaskChange(**changes))))

    async def change_matching(
        self, change: TaskChange, *, note: Callable[[int], None] | None = None, **filters: Unpack[MatchOptions]
    ) -> int:
        """Change all matching tasks that have not started, as `change` does, except for params. Returns the number of
        changed tasks: `change_matching(TaskChange(priority=9), queue="mail")`.

        Filters and `note`: as for cancel_matching. A task whose key is taken in its new queue is left out, and one that
        a limit per group would find without a group.
        """
        return await self._follow(procedures.change_matching(self._store, change, TaskMatch(**filters), note))

    async def cancel(self, task_id: int) -> AsyncTask:
        """Cancel a waiting task at once, or ask a running task to stop."""
        return self._own(await self._run(self._store.tasks.cancel(check_id(task_id))))

    async def retry(self, task_id: int) -> AsyncTask:
        """Make a failed, cancelled or scheduled task pending now, with all its attempts."""
        return self._own(await self._run(self._store.tasks.retry(check_id(task_id))))

    async def cancel_matching(
        self, *, note: Callable[[int], None] | None = None, **filters: Unpack[MatchOptions]
    ) -> int:
        """Cancel all matching tasks, as `cancel` does. Returns the number of tasks cancelled or asked to stop.

        Filters: as for list_tasks; at least one is required. The tasks are changed in batches, newest first, each batch
        in its own transaction; `note` is called after each batch with its number of tasks. Tasks that are enqueued
        after the first batch are not changed.
        """
        return await self._follow(procedures.cancel_matching(self._store, TaskMatch(**filters), note))

    async def retry_matching(
        self, *, note: Callable[[int], None] | None = None, **filters: Unpack[MatchOptions]
    ) -> int:
        """Retry all matching tasks that are failed, cancelled or scheduled, as `retry` does. Returns their number.

        Filters and `note`: as for cancel_matching.
        """
        return await self._follow(procedures.retry_matching(self._store, TaskMatch(**filters), note))

    async def redrive(
        self,
        *,
        limit: int | None = None,
        **filters: Unpack[DeadLetterOptions],
    ) -> int:
        """Retry the matching tasks of the dead letter. Returns the number of tasks.

        Filters: queue, type, error (text in the error), tags.
        """
        return await self._follow(procedures.redrive(self._store, DeadFilter(**filters), limit))

    async def list_dead(
        self,
        *,
        limit: int = 100,
        cursor: int | None = None,
        **filters: Unpack[DeadLetterOptions],
    ) -> list[AsyncTask]:
        """A page of the matching tasks of the dead letter, newest first. Filters: as for redrive.

        The dead letter has all failed tasks except discarded ones and steps whose failure is ignored by their workflow.
        """
        which = TaskFilter(dead=True, limit=limit, cursor=cursor, **filters)
        return self._own_all(await self._follow(procedures.list_tasks(self._store, which)))

    async def discard(self, task_id: int) -> AsyncTask:
        """Remove a failed task from the dead letter. It stays failed, keeps its history, is pruned as usual, and can
        still be retried by id."""
        return self._own(await self._run(self._store.tasks.discard(check_id(task_id))))

    async def discard_dead(
        self,
        *,
        ids: Sequence[int] | None = None,
        limit: int | None = None,
        **filters: Unpack[DeadLetterOptions],
    ) -> int:
        """Discard the matching tasks of the dead letter. Filters: as for redrive; `ids`: only these tasks.

        Returns the number of tasks. Without any argument the whole dead letter is discarded.
        """
        which = DeadFilter(**filters)
        return await self._follow(procedures.discard(self._store, ids, which, limit))

    async def pause(self, queue: str) -> None:
        """Pause the queue: its tasks cannot be claimed. Running tasks continue."""
        await self._run(self._store.registry.pause(queue))

    async def resume(self, queue: str) -> None:
        """Resume a paused queue."""
        await self._run(self._store.registry.resume(queue))

    async def pause_type(self, name: str) -> None:
        """Pause the task type: its tasks cannot be claimed, in any queue. Running tasks continue. A task whose queue or
        type is paused waits until both are resumed."""
        await self._run(self._store.registry.pause_type(name))

    async def resume_type(self, name: str) -> None:
        """Resume a paused task type."""
        await self._run(self._store.registry.resume_type(name))

    async def paused_types(self) -> list[PausedType]:
        """The paused task types by name, registered or not."""
        return await self._run(self._store.registry.paused_types())

    # Limits and fair share

    async def set_limit(
        self,
        name: str,
        *,
        max: int | UnsetType | None = UNSET,
        rate: str | UnsetType | None = UNSET,
        burst: int | UnsetType = UNSET,
        per: str | UnsetType | None = UNSET,
    ) -> Limit:
        """Create or change the limit of this name. What is left out stays as it is; None removes it. The next claims
        obey the limit; running tasks are not stopped.

        `max`: how many claims may be live at once. `rate`: how many claims may start in a period, such as "100/minute";
        `burst`: how many of them may start at once, initially 1. `per`: "group" for a limit of its own for each group.
        """
        change = LimitChange(name=name, max=max, rate=rate, burst=burst, per=per)
        return await self._run(self._store.limits.change_limit(change))

    async def limits(self) -> list[Limit]:
        """All limits with their live claims and waiting tasks, by name."""
        return await self._run(self._store.limits.list_limits())

    async def get_limit(self, name: str) -> Limit:
        """The limit with its live claims and waiting tasks. Raises LimitNotFound."""
        return await self._run(self._store.limits.get_limit(name))

    async def remove_limit(self, name: str) -> None:
        """Remove the limit. The tasks that have it run without it."""
        await self._run(self._store.limits.remove_limit(name))

    async def limit_groups(self, name: str, limit: int = 100, *, after: str | None = None) -> list[LimitGroup]:
        """A page of the groups of a limit that hold claims or have tasks waiting. `after`: the last group of the page
        before ("" for the tasks without a group)."""
        return await self._run(self._store.limits.limit_groups(name, limit, after))

    async def set_queue(
        self,
        queue: str,
        *,
        fair: bool | None = None,
        limits: Sequence[str] | None = None,
        note: Callable[[int], None] | None = None,
    ) -> QueueSettings:
        """Change settings of the queue; None leaves a setting as it is. Tasks that wait obey them when the call
        returns; `note` is called after each batch of tasks with the number that was changed.

        `fair`: the groups of the queue take turns. `limits`: the limits that apply to every task of the queue; an empty
        list removes them.
        """
        new = NewQueueSettings(queue=queue, fair=fair, limits=limits)
        return await self._follow(procedures.set_queue(self._store, new, note))

    async def get_queue(self, queue: str) -> QueueSettings:
        """The settings of the queue; the defaults for a queue that has none."""
        return await self._run(self._store.limits.get_queue(queue))

    async def queue_settings(self) -> list[QueueSettings]:
        """The settings of all queues that have any, by name."""
        return await self._run(self._store.limits.queue_settings())

    async def set_type(
        self,
        type: str,
        *,
        limits: Sequence[str] | None = None,
        group_by: str | None = None,
        note: Callable[[int], None] | None = None,
    ) -> TypeSettings:
        """Change the limits of a task type; None leaves a setting as it is. Tasks that wait obey them when the call
        returns; `note` is called after each batch of tasks with the number that was changed.

        `limits`: the limits that apply to every task of the type. `group_by`: the parameter that names the group of a
        task; an empty text for none.
        """
        new = NewTypeSettings(type=type, limits=limits, group_by=group_by)
        return await self._follow(procedures.set_type(self._store, new, note))

    async def get_type_settings(self, type: str) -> TypeSettings:
        """The limits of the task type; none for a type that has none."""
        return await self._run(self._store.limits.get_type_settings(type))

    async def type_settings(self) -> list[TypeSettings]:
        """The limits of all task types that have any, by name."""
        return await self._run(self._store.limits.type_settings())

    async def set_group(self, queue: str, group: str | None, *, weight: float) -> GroupInfo:
        """Set the weight of a group of the queue: its share of the claims where the queue is fair. None: the tasks
        without a group."""
        return await self._run(self._store.limits.put_group(queue, group, weight))

    async def groups(self, queue: str, limit: int = 100, *, after: str | None = None) -> list[GroupInfo]:
        """A page of the groups of the queue that have a weight, or tasks that wait for a limit or for their turn."""
        return await self._run(self._store.limits.groups(queue, limit, after))

    # Schedules

    async def set_schedule(
        self,
        name: str,
        cron: str | None = None,
        type: str = "",
        params: dict[str, Any] | None = None,
        *,
        timezone: str = "UTC",
        catch_up: CatchUpOption = CatchUp.ONE,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Create or change the schedule of this name: it enqueues a task at every tick. It ticks by the cron expression
        (in `timezone`), at an interval (`every`, in seconds), or once (`at`, an aware datetime).

        `catch_up`: what to do with ticks missed while no worker or server ran: "one", "all", "none".
        Options: overlap ("allow", "skip" or "queue": what a tick does while a task of the schedule has not ended),
        jitter (the largest delay of a tick, in seconds), start_at and end_at (aware datetimes), queue, priority,
        max_attempts, timeout, backoff, tags, expires_in, limits, group, enabled.
        """
        given = {} if params is None else params
        new = NewSchedule(
            name=name, cron=cron, type=type, params=given, timezone=timezone, catch_up=catch_up, **options
        )
        return await self._run(self._store.schedules.put_schedule(new, "command"))

    async def schedules(self) -> list[Schedule]:
        """All schedules, by name."""
        return await self._run(self._store.schedules.list_schedules())

    async def get_schedule(self, name: str) -> Schedule:
        """The schedule. Raises ScheduleNotFound."""
        return await self._run(self._store.schedules.get_schedule(name))

    async def remove_schedule(self, name: str) -> None:
        """Remove the schedule. The tasks that it has enqueued stay."""
        await self._run(self._store.schedules.remove_schedule(name))

    async def enable_schedule(self, name: str) -> Schedule:
        """Enable a disabled schedule from now on. Ticks from the time it was disabled are not caught up."""
        return await self._run(self._store.schedules.enable_schedule(name))

    async def disable_schedule(self, name: str) -> Schedule:
        """Disable the schedule until it is enabled again."""
        return await self._run(self._store.schedules.disable_schedule(name))

    async def run_schedule(self, name: str) -> AsyncTask:
        """Enqueue the schedule's task now, in addition to its ticks."""
        return self._own(await self._run(self._store.schedules.run_schedule(name)))

    async def tick(self) -> int:
        """Enqueue the tasks of all due schedules. Returns their number. Workers and servers do this as part of
        upkeep."""
        return await self._follow(procedures.tick(self._store))

    # Workflows

    async def start_workflow(self, new: NewWorkflow) -> AsyncWorkflow:
        """Store a workflow, all or nothing, as `with app.workflow(…)` does at the end of its block.

        With a key that is already used, the existing workflow is returned, marked `deduplicated`; another graph under
        that key raises KeyConflict. Keys are unique among workflows with the same set of queues.
        """
        if self._must_declare:
            await self._declare_first()
        with tracing.start_workflow_span(new) as traced:
            return self._own_workflow(traced.stored(await self._run(self._store.workflows.start_workflow(traced.what))))

    async def add_steps(self, workflow_id: int, steps: Sequence[NewStep]) -> AsyncWorkflow:
        """Add steps to a running workflow, all or none. They may be after existing steps."""
        with tracing.add_steps_span(steps) as new:
            adding = self._store.workflows.add_steps(check_workflow_id(workflow_id), new.what)
            return self._own_workflow(await self._run(adding))

    async def get_workflow(self, workflow_id: int) -> AsyncWorkflow | None:
        """The workflow; None if it does not exist."""
        workflow = await self._run(self._store.workflows.get_workflow(check_workflow_id(workflow_id)))
        return None if workflow is None else self._own_workflow(workflow)

    async def list_workflows(self, **options: Unpack[WorkflowListOptions]) -> list[AsyncWorkflow]:
        """A page of workflows, newest first. Options: state, name, limit, cursor (the last id of the previous page)."""
        return [
            self._own_workflow(workflow)
            for workflow in await self._run(self._store.workflows.list_workflows(WorkflowFilter(**options)))
        ]

    async def steps(self, workflow_id: int) -> list[Step]:
        """The workflow's steps, in the order in which they were added. Raises WorkflowNotFound."""
        return await self._run(self._store.workflows.steps(check_workflow_id(workflow_id)))

    async def results(self, task_id: int) -> list[StepResult]:
        """The results of the parents of this step, as they are stored: what its handler reads in `ctx.results`."""
        return await self._run(self._store.workflows.results(check_id(task_id)))

    async def wait_workflow(self, workflow_id: int, timeout: float | None = None) -> AsyncWorkflow:
        """Wait until the workflow has ended, and return it. Raises WaitTimeout after `timeout` seconds; the workflow
        continues."""
        return self._own_workflow(
            await self._follow(
                procedures.wait_workflow(self._store, check_workflow_id(workflow_id), timeout),
                goes_on("workflow", workflow_id),
            )
        )

    async def workflow_result(self, workflow_id: int, timeout: float | None = None) -> Any:
        """Wait until the workflow has ended. Returns the result of its finalizer, or the results of its steps by name
        if it has none, or one that did not run; encoded ones are decoded by the codecs of this program's handlers.
        Raises WorkflowFailed, whose `execution` tells what failed, if the workflow failed or was cancelled,
        WaitTimeout after `timeout` seconds, and CodecMissing or CodecFailed for a result that cannot be decoded."""
        return await self._follow(
            procedures.workflow_result(self._store, check_workflow_id(workflow_id), timeout, self._decode_of),
            goes_on("workflow", workflow_id),
        )

    async def cancel_workflow(self, workflow_id: int) -> AsyncWorkflow:
        """Cancel the workflow: no further step starts, and running steps are asked to stop."""
        return self._own_workflow(
            await self._run(self._store.workflows.cancel_workflow(check_workflow_id(workflow_id)))
        )

    async def retry_workflow(self, workflow_id: int) -> AsyncWorkflow:
        """Continue a failed or cancelled workflow. Completed steps are not repeated."""
        return self._own_workflow(await self._run(self._store.workflows.retry_workflow(check_workflow_id(workflow_id))))

    async def execution_context(self, workflow_id: int) -> ExecutionContext:
        """The states of the workflow's steps, and the recommended action. Raises WorkflowNotFound."""
        return await self._run(self._store.finalization.execution_context(check_workflow_id(workflow_id)))

    async def claim_finalization(
        self, workflow_id: int, processor: str, timeout: float = DEFAULT_FINALIZATION_LEASE
    ) -> FinalizationClaim:
        """Claim the finalization of the workflow for `timeout` seconds. The result has the reason of a refusal.

        Workers and servers do this by themselves; the method is for programs that finalize their workflows.
        """
        lease = check_lease(timeout)
        return await self._run(
            self._store.finalization.claim_finalization(check_workflow_id(workflow_id), processor, lease)
        )

    async def renew_finalization(
        self, workflow_id: int, processor: str, token: int, timeout: float = DEFAULT_FINALIZATION_LEASE
    ) -> FinalizationClaim:
        """Extend the finalization claim with this token to `timeout` seconds from now.

        Never grants a new claim: `claimed` is False if this processor does not hold the claim with this token.
        """
        lease = check_lease(timeout)
        return await self._run(
            self._store.finalization.renew_finalization(check_workflow_id(workflow_id), processor, token, lease)
        )

    async def release_finalization(self, workflow_id: int, processor: str, token: int) -> bool:
        """Release the finalization claim with this token. Returns False, and changes nothing, if this processor does
        not hold it."""
        return await self._run(
            self._store.finalization.release_finalization(check_workflow_id(workflow_id), processor, token)
        )

    async def finalize(self, workflow_id: int, processor: str, token: int) -> Finalized:
        """End the workflow, start its finalizer, or leave it for later, according to its execution context.

        The claim ends. Raises FinalizationLost, and changes nothing, if the claim is no longer valid.
        """
        check_integer(token, "token", 0, 2**63 - 1)
        return await self._run(self._store.finalization.finalize(check_workflow_id(workflow_id), processor, token))

    async def finalization_attempts(self, workflow_id: int) -> list[FinalizationAttempt]:
        """All attempts to claim the workflow's finalization, in order, with their results."""
        return await self._run(self._store.finalization.finalization_attempts(check_workflow_id(workflow_id)))

    async def checkpoints(self, task_id: int) -> dict[str, Any]:
        """The stored checkpoints of a task, by name."""
        return await self._run(self._store.queue.checkpoints(check_id(task_id)))

    async def keep_checkpoint(self, claim: Claim | ClaimRef, name: str, value: Any) -> Any:
        """Store a checkpoint for later attempts of the task, unless one of this name exists. Returns the stored value.

        Raises ClaimLost if the claim is no longer valid.
        """
        check_name(name, "The name of a checkpoint")
        return await self._run(self._store.queue.keep_checkpoint(claim, name, value))

    # Logs of tasks

    async def logs(self, task_id: int, *, attempt: int | None = None, level: str | None = None) -> list[LogLine]:
        """What the attempts of the task have logged, in order: of one attempt, of a level ("warning") and above.

        Only handlers with capture_logs have lines. They are stored about once a second and soon after the end of an
        attempt, and deleted with the task. Raises TaskNotFound.
        """
        from dibs.log_follower import all_lines
        from dibs.model.logs import LogFilter

        which = LogFilter(attempt=attempt, level=level)
        return await self._follow(all_lines(self._store, check_id(task_id), which))

    async def follow_logs(
        self, task_id: int, *, attempt: int | None = None, level: str | None = None
    ) -> AsyncIterator[LogLine]:
        """The lines that `logs` returns, then each new line, until the task (or the attempt) has ended:
        `for line in app.follow_logs(7)`, in AsyncDibs `async for`."""
        from dibs.log_follower import LogFollower
        from dibs.model.logs import LogFilter

        follower = LogFollower(self._store, check_id(task_id), LogFilter(attempt=attempt, level=level))
        while not follower.done:
            try:
                for line in follower.take(await self._run(follower.operation)):
                    yield line
            except TaskNotFound as error:
                follower.end_if_pruned(error)
            await asyncio.sleep(follower.pause)

    # Declarations in code

    async def declare(self) -> None:
        """Store what the program declares with limit(), queue() and the options of @app.task.

        A worker does this when it starts, unless its API key lacks the scope admin: then call this method during the
        deployment, with another key. Waiting tasks obey the declarations when the call returns. If some are refused,
        the others are stored, and the first refusal is raised.
        """
        declarations = self._declarations(every_type=True)
        schedules = [schedule for each in self.handlers.values() if (schedule := each.schedule) is not None]
        schemas = [each.declared_schema for each in self.handlers.values()]
        await self._follow(procedures.declare(self._store, declarations, schedules, schemas))
        self._in_code.unwritten = False

    # Keys

    async def create_key(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        queues: Sequence[str] | None = None,
        rate_limit: str = str(STANDARD_LIMIT),
        expires_in: float | None = None,
        expires_at: datetime | None = None,
    ) -> MintedKey:
        """Create a key for the server's API. The result has the text of the key, which cannot be read again later.

        Scopes: enqueue, work, read, admin. `queues`: the only queues that it allows. `rate_limit`: such as
        "600/minute", or "none". The key expires `expires_in` seconds from now, or at `expires_at`, or never.
        """
        new = NewKey(
            name=name,
            scopes=scopes,
            queues=queues,
            rate_limit=read_limit(rate_limit),
            expires_in=expires_in,
            expires_at=expires_at,
        )
        return await self._run(self._store.keys.mint_key(new))

    async def keys(self) -> list[ApiKey]:
        """All keys, oldest first, including expired and revoked keys."""
        return await self._run(self._store.keys.list_keys())

    async def revoke_key(self, key_id: str) -> ApiKey:
        """Revoke the key: it cannot be used any more. Raises KeyNotFound."""
        return await self._run(self._store.keys.revoke_key(key_id))

    # Retention

    async def set_retention(
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
        applies in its queues. The rule is stored: every process applies it from its next upkeep on.
        """
        target = RetentionTarget(records=records, queue=queue, type=type, workflow=workflow)
        return await self._run(self._store.retention.set_retention(target, keep))

    async def retention(self) -> list[RetentionRule]:
        """The retention rules: the default for each kind of records, then those for types, queues and workflows."""
        return await self._run(self._store.retention.retention_rules())

    async def remove_retention(
        self, records: str, *, queue: str | None = None, type: str | None = None, workflow: str | None = None
    ) -> None:
        """Remove a retention rule. Without a queue, type or workflow the default is reset to its first value.

        Raises RetentionNotFound if no rule is set for that queue, type or workflow.
        """
        target = RetentionTarget(records=records, queue=queue, type=type, workflow=workflow)
        await self._run(self._store.retention.remove_retention(target))

    async def retention_changes(self, limit: int = 100) -> list[RetentionChange]:
        """The newest changes of retention rules (up to 1000), newest first: what was set or removed, when, by which
        author."""
        return await self._run(self._store.retention.retention_changes(limit))

    # Upkeep

    async def promote(self) -> int:
        """Make a batch of due tasks pending. Returns the number of tasks."""
        return await self._run(self._store.upkeep.promote())

    async def recover(self) -> int:
        """Recover a batch of tasks whose lease has expired. Returns the number of tasks."""
        return await self._run(self._store.upkeep.recover())

    async def prune(self) -> int:
        """Delete finished tasks, ended workflows and history past their retention. Returns the number of deleted
        rows."""
        return await self._follow(procedures.prune(self._store))

    async def upkeep(self) -> Upkept:
        """Tick, promote, recover, expire, finalize and mend workflows, and prune by the retention rules of the store.

        Workers and servers do this by themselves. Many processes may call it at the same time.
        """
        done = await self._follow(procedures.upkeep(self._store, unique_processor(new_worker_id())))
        await asyncio.to_thread(self._store.maintain)
        return done

    async def heartbeat(
        self,
        worker_id: str,
        *,
        incarnation: str = "",
        queues: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        metadata: dict[str, Any] | None = None,
        leaving: bool = False,
    ) -> None:
        """Register a worker, or record that it is alive (or that it stops, with `leaving`)."""
        beat = Heartbeat(
            worker_id=worker_id,
            incarnation=incarnation,
            queues=queues,
            types=types,
            metadata=metadata or {},
            leaving=leaving,
        )
        await self._run(self._store.registry.heartbeat(beat))

    # Inspect

    async def get(self, task_id: int) -> AsyncTask | None:
        """The task; None if it does not exist."""
        task = await self._run(self._store.tasks.get(check_id(task_id)))
        return None if task is None else self._own(task)

    async def wait(self, task_id: int, timeout: float | None = None) -> AsyncTask:
        """Wait until the task is finished, and return it. Raises WaitTimeout after `timeout` seconds; the task
        continues."""
        return self._own(
            await self._follow(procedures.wait(self._store, check_id(task_id), timeout), goes_on("task", task_id))
        )

    async def list_tasks(self, **options: Unpack[ListOptions]) -> list[AsyncTask]:
        """A page of tasks, newest first.

        Options: state, type, queue, key, worker (that holds the task or held it last), text (in the params, or in the
        error's type and message), tags (all of them), group, with_limit (claimed tasks that count towards the limit;
        other tasks if they, their type or their queue have it), since and until (time of creation, `until` excluded),
        limit, cursor (the last id of the previous page). State, type, queue and key have an index; the other filters
        may read many tasks.
        """
        return self._own_all(await self._follow(procedures.list_tasks(self._store, TaskFilter(**options))))

    async def history(self, task_id: int) -> list[HistoryEntry]:
        """The history of a task, in order. It is kept after the task is pruned."""
        return await self._run(self._store.history.task_history(check_id(task_id)))

    async def history_after(self, entry_id: int, limit: int = procedures.PAGE) -> list[HistoryEntry]:
        """A page of the history of all tasks after this entry (0: from the beginning), in order, at most `limit`
        entries."""
        check_integer(entry_id, "entry_id", 0, 2**63 - 1)
        check_integer(limit, "limit", 1, procedures.PAGE)
        return await self._run(self._store.history.history_after(entry_id, limit))

    async def all_history(self) -> list[HistoryEntry]:
        """The history of all tasks, in order: the input of the offline checker."""
        return await self._follow(procedures.all_history(self._store))

    def events(
        self,
        kinds: Sequence[str] | None = None,
        *,
        after: int | None = None,
        queue: str | None = None,
        type: str | None = None,
        task_id: int | None = None,
    ) -> AsyncIterator[StoreEvent]:
        """The events of all tasks, in order and without gaps: `for event in app.events(after=last)`, with AsyncDibs
        `async for`. The loop waits for the next event until it is left or the client is closed.

        `after`: the id of the last event that the program has handled; 0 begins with the oldest that is kept, None (the
        default) with the first event after the loop has begun. `kinds`: such as ["completed", "failed"]. `queue`,
        `type`, `task_id`: only events of these tasks. Raises EventsPruned if events after `after` were deleted by the
        retention of the history.
        """
        from dibs.events import check_after, follow_async

        which = EventFilter(kinds=kinds, queue=queue, type=type, task_id=task_id)
        check_after(after, self._on)
        return follow_async(self._store, self._run, which, after)

    async def explain(self, task_id: int) -> Explanation:
        """Explain why the task is not running."""
        return await self._run(self._store.tasks.explain(check_id(task_id)))

    async def workers(self) -> list[WorkerInfo]:
        """All registered workers, active, stale or gone, with the tasks they hold."""
        return await self._run(self._store.registry.workers())

    async def queues(self) -> list[QueueInfo]:
        """All queues with their depth by state, and whether they are paused."""
        return await self._run(self._store.registry.queues())

    async def stats(self) -> Stats:
        """Depth, oldest age, throughput and latency."""
        return await self._run(self._store.statistics.stats())

    # The store

    async def migrate(self, note: OnMigration = ignore_migration) -> list[str]:
        """Bring the database's schema up to date. Returns the names of the applied migrations.

        `note` is called with the name of each migration before it is applied. All are applied, or none.
        """
        return await asyncio.to_thread(self._store.migrate, note)

    async def doctor(self) -> list[Check]:
        """Check the database for damage and for settings that would break a guarantee."""
        return await asyncio.to_thread(self._store.doctor)

    async def close(self) -> None:
        """Close all connections. The next use of the client opens them again."""
        await self._store.close_async()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _submit(self, task: NewTask) -> AsyncTask:
        if self._hooks.around_enqueue:
            return (await self._around([task]))[0]
        if self._must_declare:
            await self._declare_first()
        with tracing.enqueue_span([task]) as new:
            return self._own(new.stored((await self._run(self._store.queue.enqueue(new.what)))[0]))

    def _own(self, task: Task[Any]) -> AsyncTask:
        return AsyncTask.from_record(task).of(self)

    def _own_all(self, tasks: list[Task[Any]]) -> list[AsyncTask]:
        return [self._own(task) for task in tasks]

    def _own_workflow(self, workflow: Workflow) -> AsyncWorkflow:
        return AsyncWorkflow.from_record(workflow).of(self)

    async def _enqueue(self, tasks: Sequence[NewTask]) -> list[AsyncTask]:
        if self._must_declare:
            await self._declare_first()
        with tracing.enqueue_span(tasks) as new:
            return self._own_all(await self._run(self._store.queue.enqueue(new.what)))

    async def _around(self, tasks: Sequence[NewTask]) -> list[AsyncTask]:
        """Enqueue the tasks inside the enqueue middleware of the app."""
        from dibs.handlers.middleware import check_stored, enqueue_call

        layers = self._hooks.around_enqueue
        return check_stored(layers, len(tasks), await enqueue_call(layers, self._enqueue)(tasks))

    async def _map(self, new: Iterable[NewTask] | AsyncIterable[NewTask], convert: Convert) -> AsyncTasks[Any]:
        from dibs.many.enqueue import enqueue_all_async, frames_of_program

        try:
            return await enqueue_all_async(self, new, self._handle((), convert), sized=self._store.served)
        except _INTERRUPTED as interrupt:
            from dibs.interrupts import in_wait

            raise in_wait(interrupt).with_traceback(frames_of_program(interrupt)) from None

    async def _wait_for_some(self, watch: Watch, deadline: float | None) -> dict[int, str]:
        return await self._follow(procedures.wait_for_some(self._store, watch, deadline))

    async def _count_states(self, ids: Sequence[int]) -> dict[str, int]:
        return await self._follow(procedures.count_states(self._store, ids))

    async def _read_many(self, ids: Sequence[int]) -> TasksById:
        found = await self._run(self._store.tasks.get_many(ids))
        return msgspec.structs.replace(found, tasks=self._own_all(found.tasks))

    def _handle(self, ids: Iterable[int], convert: Convert | None) -> AsyncTasks[Any]:
        from dibs.many.async_tasks import AsyncTasks

        return AsyncTasks(self, map(check_id, ids), convert)

    async def _declare_first(self) -> None:
        """Store the declarations before the first enqueue, outside of the caller's transaction: until its end, the
        lock of the limits would keep all workers from claiming tasks with limits."""
        declaring = self._store.limits.declare(self._declarations())
        try:
            self._note_declared(await self._store.run_async(declaring, by=self._by))
        except (NotAllowed, OutcomeUnknown) as error:
            self._note_not_declared(error)

    async def _finish_one(self, claim: Claim | ClaimRef, outcome: Outcome) -> Finished:
        return raise_if_error((await self.finish([(claim, outcome)]))[0])

    async def _run(self, operation: Operation[T]) -> T:
        try:
            return await self._store.run_async(operation, by=self._by, on=self._on)
        except _INTERRUPTED as interrupt:  # without the frames of the library, which do not help the program
            from dibs.interrupts import in_wait

            raise in_wait(interrupt).with_traceback(None) from None

    async def _follow(self, procedure: Procedure[T], note: str | None = None) -> T:
        """Run the operations of the procedure and its waits. `note`: what Ctrl-C tells the user."""
        try:
            return await drive_async(procedure, self._step)
        except _INTERRUPTED as interrupt:
            from dibs.interrupts import in_wait

            raise in_wait(interrupt, note).with_traceback(None) from None

    async def _step(self, step: Operation[Any] | WaitForChange | PauseFor) -> Any:
        if isinstance(step, PauseFor):
            return await asyncio.sleep(step.seconds)
        if isinstance(step, WaitForChange):
            return await self._store.wakeups.wait_async(step.seen, step.timeout)
        return await self._run(step)
