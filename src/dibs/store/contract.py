"""The contract of a store: what every engine promises, whatever it is made of.

An operation is built first and run afterwards, sync or async, on the store's own connections or on one that the user
hands in. All of them are batch-shaped or tiny, all writes about a claim are fenced by its token, and every change of
a task's state writes its line of history in the same transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from dibs.claim import Claim, ClaimRef, ClaimRequest, Filters, Finished, Outcome, Renewed
from dibs.errors import DibsError
from dibs.store.doctor import Check
from dibs.store.operation import Operation
from dibs.store.operations.looking import Explanation, HistoryEntry, QueueInfo, Stats, TaskFilter
from dibs.store.operations.managing import DeadFilter
from dibs.store.operations.registering import Heartbeat, TaskType, WorkerInfo
from dibs.store.operations.tending import Retention
from dibs.store.wakeups import Wakeups
from dibs.task import NewTask, Task

T = TypeVar("T")
Ref = Claim | ClaimRef


class Store(Protocol):
    """Where tasks live."""

    # Running

    def run(self, operation: Operation[T], on: Any = None) -> T:
        """Run the operation. A write is durable when this returns; after OutcomeUnknown it may be."""

    async def run_async(self, operation: Operation[T], on: Any = None) -> T:
        """The same, without blocking the event loop."""

    @property
    def wakeups(self) -> Wakeups:
        """Where to wait for changes by anyone. A hint: it may come late or for nothing."""

    def migrate(self) -> list[str]:
        """Bring the schema up to date; many processes may do so at once. The names of what was applied."""

    def maintain(self) -> None:
        """Whatever the engine itself needs now and then."""

    def doctor(self) -> list[Check]:
        """Look for damage and for settings that would cost a guarantee."""

    def close(self) -> None:
        """Let go of every connection; the next operation opens them again."""

    async def close_async(self) -> None:
        """The same, without blocking the event loop."""

    # Enqueue

    def enqueue(self, tasks: Sequence[NewTask]) -> Operation[list[Task]]:
        """Store the tasks, all or none, in this order. A key that is taken gives the task that has it, marked
        `deduplicated`; with another type or other params it is a KeyConflict, and nothing is stored."""

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
        no others are pending that pass the filters."""

    def claim_by_id(self, task_id: int, request: ClaimRequest) -> Operation[Claim]:
        """This task, or AlreadyClaimed, NotClaimable, TaskNotFound."""

    def peek(self, filters: Filters) -> Operation[list[Task]]:
        """What a claim would take now. Advisory."""

    # Finish

    def finish(self, reports: Sequence[tuple[Ref, Outcome]]) -> Operation[list[Finished | DibsError]]:
        """Each outcome is written if its token is live, and answered on its own. Telling the same outcome again is
        answered with the state it led to (`repeated`), with the task's present attempts and run_at where it still is
        there. Anything else about a dead claim is ClaimLost and changes nothing."""

    def renew(self, claims: Sequence[Ref], lease: int) -> Operation[list[Renewed | DibsError]]:
        """Each lease now ends `lease` microseconds from now, if its token is live."""

    def progress(self, claim: Ref, percent: int, message: str | None) -> Operation[bool]:
        """How far the task is, if the token is live. True: somebody asked the task to stop."""

    # Manage

    def cancel(self, task_id: int) -> Operation[Task]:
        """A waiting task is cancelled; the worker of a running one is asked to stop."""

    def retry(self, task_id: int) -> Operation[Task]:
        """A failed, cancelled or scheduled task is pending now, with all its attempts."""

    def redrive_some(self, which: DeadFilter, limit: int) -> Operation[int]:
        """Retry up to `limit` matching tasks of the dead letter; how many."""

    def pause(self, queue: str) -> Operation[None]:
        """Nobody claims from the queue."""

    def resume(self, queue: str) -> Operation[None]:
        """The queue may be claimed from again."""

    # Upkeep

    def promote(self, limit: int = ...) -> Operation[int]:
        """Due tasks become pending; how many."""

    def recover(self, limit: int = ...) -> Operation[int]:
        """Tasks whose lease ran out go back, or to the dead letter when their attempts are spent; how many."""

    def prune(self, retention: Retention, limit: int = ...) -> Operation[int]:
        """Finished tasks past their retention are deleted; how many."""

    def prune_history(self, retention: Retention, limit: int = ...) -> Operation[int]:
        """History past its retention is deleted; how many lines."""

    def prune_workers(self, retention: Retention) -> Operation[int]:
        """Workers silent for long are forgotten; how many."""

    def heartbeat(self, beat: Heartbeat) -> Operation[None]:
        """The worker lives (or leaves)."""

    # Look

    def get(self, task_id: int) -> Operation[Task | None]:
        """The task, or None."""

    def list_tasks(self, which: TaskFilter) -> Operation[list[Task]]:
        """A page of tasks, newest first."""

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
