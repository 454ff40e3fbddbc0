"""What the server's JSON says, as the words of dibs: one struct for each shape whose field names differ from ours.

The API's words are older than ours (`task_type`, `status`, `timeout_seconds`). Fields that this dibs does not know are
passed over, so that a newer server can say more.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal, TypeVar

import msgspec

from dibs.errors import InvalidValue, StoreError
from dibs.model.claim import Claim, ClaimStatus
from dibs.model.explanation import Explanation, Reason
from dibs.model.history import HistoryEntry
from dibs.model.key import ApiKey, MintedKey, Scope, read_limit
from dibs.model.registry import QueueInfo, TaskType, WorkerInfo, WorkerState
from dibs.model.retention import Records, RetentionChange, RetentionRule
from dibs.model.retry import Backoff
from dibs.model.schedule import CatchUp, DueSchedule, Schedule, ScheduleSource
from dibs.model.search import BulkResult, TaskPage
from dibs.model.statistics import Percentiles, Stats
from dibs.model.task import Failure, SetAside, State, Task
from dibs.model.upkeep import Check, Pruned, PrunePosition

T = TypeVar("T")
A = TypeVar("A")


class WireTask(msgspec.Struct):
    """A task."""

    id: int
    task_type: str
    status: State
    params: dict[str, Any]
    priority: int
    attempts: int
    max_attempts: int
    queue: str
    token: int
    created_at: datetime
    run_at: datetime
    worker_id: str | None = None
    claimed_at: datetime | None = None
    lease_until: datetime | None = None
    finished_at: datetime | None = None
    timeout_seconds: float | None = None
    idempotency_key: str | None = None
    type_version: int | None = None
    dropped: int = 0
    cancel_requested: bool = False
    progress: int | None = None
    progress_message: str | None = None
    result: Any = None
    error: Failure | None = None
    workflow_id: int | None = None
    traceparent: str | None = None
    set_aside: SetAside | None = None

    def read(self, deduplicated: bool = False) -> Task:
        """The task. By place, not by name: half the time, and a claim of a thousand asks for a thousand."""
        return Task(
            self.id, self.task_type, self.queue, self.status, self.params, self.priority, self.attempts,
            self.max_attempts, self.token, self.created_at, self.run_at, self.type_version, self.timeout_seconds,
            self.claimed_at, self.lease_until, self.finished_at, self.worker_id, self.idempotency_key,
            self.cancel_requested, self.progress, self.progress_message, self.result, self.error, deduplicated,
            self.dropped, self.workflow_id, self.traceparent, self.set_aside,
        )  # fmt: skip

    def claim(self) -> Claim:
        """The claim under which the server hands out the task."""
        assert self.worker_id is not None
        assert self.lease_until is not None
        return Claim(self.read(), self.token, self.worker_id, self.lease_until)


class WireBackoff(msgspec.Struct):
    """How long to wait after a failure."""

    base_seconds: float
    cap_seconds: float

    @classmethod
    def of(cls, backoff: Backoff) -> WireBackoff | None:
        """None where it is the server's default as well."""
        return None if backoff == _DEFAULT_BACKOFF else cls(backoff.base, backoff.cap)


_DEFAULT_BACKOFF = Backoff()


class WireSchedule(msgspec.Struct):
    """A schedule."""

    name: str
    cron: str
    timezone: str
    catch_up: CatchUp
    enabled: bool
    task_type: str
    params: dict[str, Any]
    queue: str
    priority: int
    max_attempts: int
    timeout_seconds: float | None
    backoff: WireBackoff
    source: ScheduleSource
    next_at: datetime
    created_at: datetime
    updated_at: datetime
    last_at: datetime | None = None
    last_task_id: int | None = None
    last_error: str | None = None

    def read(self) -> Schedule:
        """The schedule."""
        return Schedule(
            self.name, self.cron, self.timezone, self.catch_up, self.enabled, self.task_type, self.params, self.queue,
            self.priority, self.max_attempts, self.timeout_seconds,
            Backoff(self.backoff.base_seconds, self.backoff.cap_seconds), self.source, self.next_at, self.created_at,
            self.updated_at, self.last_at, self.last_task_id, self.last_error,
        )  # fmt: skip


class WireRule(msgspec.Struct):
    """A retention rule."""

    records: Records
    keep_seconds: float | None
    queue: str | None = None
    task_type: str | None = None
    workflow: str | None = None
    changed_at: datetime | None = None
    changed_by: str | None = None

    def read(self) -> RetentionRule:
        """The rule."""
        return RetentionRule(
            self.records, self.keep_seconds, self.queue, self.task_type, self.workflow, self.changed_at, self.changed_by
        )


class WireRuleChange(msgspec.Struct):
    """A change of a retention rule."""

    id: int
    at: datetime
    by: str | None
    records: Records
    keep_seconds: float | None
    removed: bool
    queue: str | None = None
    task_type: str | None = None
    workflow: str | None = None

    def read(self) -> RetentionChange:
        """The change."""
        target = self.queue, self.task_type, self.workflow
        return RetentionChange(self.id, self.at, self.by, self.records, self.keep_seconds, self.removed, *target)


class WireDue(msgspec.Struct):
    """A schedule whose tick has come."""

    schedule: WireSchedule
    now: datetime


class WireWorker(msgspec.Struct):
    """A worker."""

    id: str
    incarnation: str
    state: WorkerState
    queues: list[str] | None
    task_types: list[str] | None
    metadata: dict[str, Any]
    started_at: datetime
    heartbeat_at: datetime
    stopped_at: datetime | None
    holds: list[int]

    def read(self) -> WorkerInfo:
        """The worker."""
        return WorkerInfo(
            self.id, self.incarnation, self.state, self.queues, self.task_types, self.metadata, self.started_at,
            self.heartbeat_at, self.stopped_at, self.holds,
        )  # fmt: skip


class WireStats(msgspec.Struct):
    """The whole store in numbers."""

    depth: dict[str, int]
    by_queue: dict[str, dict[str, int]]
    by_type: dict[str, dict[str, int]]
    oldest_pending_age_seconds: float | None
    finished_last_minute: dict[str, int]
    finished_last_hour: dict[str, int]
    wait_seconds: Percentiles
    run_seconds: Percentiles
    dead_letter: int = 0

    def read(self) -> Stats:
        """The numbers."""
        return Stats(
            self.depth, self.by_queue, self.by_type, self.oldest_pending_age_seconds, self.finished_last_minute,
            self.finished_last_hour, self.wait_seconds, self.run_seconds, self.dead_letter,
        )  # fmt: skip


class WireExplanation(msgspec.Struct):
    """Why a task is not running."""

    task_id: int
    status: State
    reasons: list[Reason]


class WireKey(msgspec.Struct):
    """An API key; its text only in the answer to its making."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    queues: tuple[str, ...] | None
    rate_limit: str
    created_at: datetime
    created_by: str | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None
    key: str = ""

    def __repr__(self) -> str:
        return f"WireKey({self.id!r}, {self.name!r})"

    def read(self) -> ApiKey:
        """What is known of the key. How long it is left is not: that is for the database's clock to say."""
        return ApiKey(
            self.id, self.name, self.scopes, self.queues, read_limit(self.rate_limit), self.created_at, self.created_by,
            self.expires_at, self.revoked_at, self.last_used_at,
        )  # fmt: skip


class Reply(msgspec.Struct):
    """One answer of many: what became of an outcome, a renewal, a note; or the refusal of it, with a code."""

    success: bool
    task_id: int | None = None
    workflow_id: int | None = None
    status: str | None = None
    attempts: int = 0
    run_at: datetime | None = None
    repeated: bool = False
    lease_until: datetime | None = None
    cancel_requested: bool = False
    error: str = ""
    code: str = ""
    hint: str | None = None
    message: str | None = None
    token: int | None = None
    worker_id: str | None = None
    key: str | None = None
    name: str | None = None
    filters: dict[str, Any] | None = None


class Replies(msgspec.Struct):
    """An answer to many at once, and what was claimed in exchange."""

    answers: list[Reply]
    tasks: list[WireTask] = []


class Woken(msgspec.Struct, frozen=True):
    """How much a server process has noticed so far."""

    process: str
    generation: int


class _Done(msgspec.Struct):
    """It was done, and that is all there is to say: but a dibs server says it, whoever else answers 200 does not."""

    success: Literal[True]


class _Ready(msgspec.Struct):
    status: Literal["ready"]


class _Task(msgspec.Struct):
    task: WireTask
    deduplicated: bool = False


class _Tasks(msgspec.Struct):
    tasks: list[WireTask]
    deduplicated: list[bool] = []


class _Page(msgspec.Struct):
    tasks: list[WireTask]
    next_cursor: int | None


class _Moved(msgspec.Struct):
    count: int
    next_cursor: int | None


class _Type(msgspec.Struct):
    task_type: TaskType


class _Types(msgspec.Struct):
    task_types: list[TaskType]


class _History(msgspec.Struct):
    history: list[HistoryEntry]


class _Explained(msgspec.Struct):
    explanation: WireExplanation


class _Queues(msgspec.Struct):
    queues: list[QueueInfo]


class _Workers(msgspec.Struct):
    workers: list[WireWorker]


class _Stats(msgspec.Struct):
    stats: WireStats


class _Schedule(msgspec.Struct):
    schedule: WireSchedule


class _Schedules(msgspec.Struct):
    schedules: list[WireSchedule]


class _Rule(msgspec.Struct):
    rule: WireRule


class _Rules(msgspec.Struct):
    rules: list[WireRule]


class _RuleChanges(msgspec.Struct):
    changes: list[WireRuleChange]


class _Dues(msgspec.Struct):
    due: list[WireDue]


class _Checks(msgspec.Struct):
    checks: list[Check]


class _Standings(msgspec.Struct):
    standings: list[ClaimStatus]


class _Keys(msgspec.Struct):
    keys: list[WireKey]


class _Count(msgspec.Struct):
    count: int


class _Discarded(msgspec.Struct):
    discarded: int


class _Pruned(msgspec.Struct):
    count: int
    next: str | None = None

    def read(self) -> Pruned:
        try:
            return Pruned(self.count, None if self.next is None else PrunePosition.read(self.next))
        except InvalidValue as error:
            raise not_understood(error.message) from None


class _Redriven(msgspec.Struct):
    redriven: int


class _Seconds(msgspec.Struct):
    seconds: float | None


def reader(shape: type[A], read: Callable[[A], T]) -> Callable[[bytes], T]:
    """Bytes to the thing; StoreError where the server says something that this dibs does not understand."""
    decode = msgspec.json.Decoder(shape).decode

    def from_bytes(content: bytes) -> T:
        try:
            return read(decode(content))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise not_understood(str(error)) from None

    return from_bytes


def not_understood(what: str) -> StoreError:
    """An answer that is none of ours."""
    return StoreError(
        f"The server's answer is not understood: {what}.",
        hint="Check that the URL leads to a dibs server, and that it and this dibs are of about the same version.",
    )


read_task = reader(_Task, lambda said: said.task.read(said.deduplicated))
read_enqueued = reader(_Task, lambda said: [said.task.read(said.deduplicated)])
read_batch = reader(
    _Tasks, lambda said: [task.read(again) for task, again in zip(said.tasks, said.deduplicated, strict=True)]
)
read_tasks = reader(_Tasks, lambda said: [task.read() for task in said.tasks])
read_page = reader(
    _Page, lambda said: TaskPage([task.read() for task in said.tasks], said.next_cursor, len(said.tasks))
)
read_moved = reader(_Moved, lambda said: BulkResult(said.count, said.next_cursor))
read_claims = reader(_Tasks, lambda said: [task.claim() for task in said.tasks])
read_claim = reader(_Task, lambda said: said.task.claim())
read_replies = reader(Replies, lambda said: said)
read_standings = reader(_Standings, lambda said: said.standings)
read_type = reader(_Type, lambda said: said.task_type)
read_types = reader(_Types, lambda said: said.task_types)
read_history = reader(_History, lambda said: said.history)
read_explanation = reader(
    _Explained,
    lambda said: Explanation(said.explanation.task_id, said.explanation.status, said.explanation.reasons),
)
read_queues = reader(_Queues, lambda said: said.queues)
read_workers = reader(_Workers, lambda said: [worker.read() for worker in said.workers])
read_stats = reader(_Stats, lambda said: said.stats.read())
read_schedule = reader(_Schedule, lambda said: said.schedule.read())
read_schedules = reader(_Schedules, lambda said: [schedule.read() for schedule in said.schedules])
read_rule = reader(_Rule, lambda said: said.rule.read())
read_rules = reader(_Rules, lambda said: [rule.read() for rule in said.rules])
read_rule_changes = reader(_RuleChanges, lambda said: [change.read() for change in said.changes])
read_due = reader(_Dues, lambda said: [DueSchedule(due.schedule.read(), due.now) for due in said.due])
read_checks = reader(_Checks, lambda said: said.checks)
read_minted = reader(WireKey, lambda said: MintedKey(said.key, said.read()))
read_keys = reader(_Keys, lambda said: [key.read() for key in said.keys])
read_count = reader(_Count, lambda said: said.count)
read_discarded = reader(_Discarded, lambda said: said.discarded)
read_pruned = reader(_Pruned, lambda said: said.read())
read_redriven = reader(_Redriven, lambda said: said.redriven)
read_seconds = reader(_Seconds, lambda said: said.seconds)
read_woken = reader(Woken, lambda said: said)
read_done = reader(_Done, lambda said: None)
read_ready = reader(_Ready, lambda said: None)
