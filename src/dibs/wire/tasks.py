"""Tasks as JSON: enqueue, read, list, change, cancel, retry, the dead letter, and explanations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Self

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from dibs.errors import InvalidValue
from dibs.json_values import MAX_NAME, encode_params
from dibs.model import explanation as model_explanation
from dibs.model import retry as model_retry
from dibs.model import task as model_task
from dibs.model.change import TaskChange
from dibs.model.checks import MAX_TAGS, TAGS_IN_QUERY
from dibs.model.claim import MAX_BATCH, Claim
from dibs.model.construct import constructor
from dibs.model.limit import MAX_TASK_LIMITS
from dibs.model.retry import YEAR
from dibs.model.search import (
    MAX_STATES,
    MAX_TEXT,
    BulkResult,
    DeadFilter,
    TaskFilter,
    TaskMatch,
    TaskPage,
    TasksById,
    TaskSearch,
)
from dibs.model.task import (
    ALWAYS,
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_QUEUE,
    NO_LIMITS,
    NO_TAGS,
    RETURN,
    NewTask,
    SetAside,
    State,
)
from dibs.model.unique import KeyScope
from dibs.wire.fields import (
    MOMENT,
    NO_NUL,
    ONE_LINE_OR_EMPTY,
    EnqueueId,
    ExpiresIn,
    IdempotencyKey,
    JsonObject,
    KeyFor,
    KeyScopeOption,
    MaxAttempts,
    MaxDelay,
    Moment,
    Name,
    OnConflictOption,
    Params,
    Priority,
    Query,
    RequestBody,
    Seconds,
    Tag,
    Tags,
    TaskId,
    TaskTypeName,
    Timeout,
    Timestamp,
    Traceparent,
    at_least_one,
    not_both,
    only_if,
    only_with,
    to_datetime,
    to_text,
    to_text_or_none,
    utc,
    utc_or_none,
)

MAX_REDRIVE = 10_000
"""The largest number of tasks of the dead letter that one request retries or discards."""


# A stored task


class Failure(msgspec.Struct, frozen=True):
    """The error of an attempt."""

    type: str
    message: str
    traceback: str | None
    permanent: Annotated[bool, Meta(description="No further attempt follows, even if attempts were left.")] = False

    @classmethod
    def from_model(cls, failure: model_task.Failure) -> Self:
        """The failure as JSON."""
        return cls(type=failure.type, message=failure.message, traceback=failure.traceback, permanent=failure.permanent)

    def to_model(self) -> model_task.Failure:
        """The failure."""
        return model_task.Failure(
            type=self.type, message=self.message, traceback=self.traceback, permanent=self.permanent
        )


class Task(msgspec.Struct, frozen=True):
    """A task. `status` and `task_type` are its state and its type."""

    id: int
    type: Annotated[str, Meta(description="The name by which its handler is found.")] = field(name="task_type")
    state: State = field(name="status")
    params: JsonObject
    priority: Annotated[int, Meta(description="Higher first.")]
    attempts: Annotated[int, Meta(description="Attempts that have ended, including lost attempts.")]
    max_attempts: Annotated[
        int, Meta(description="After this number of failed attempts the task is in the dead letter.")
    ]
    worker_id: Annotated[str | None, Meta(description="The worker that holds the task, or held it last.")]
    claimed_at: Annotated[Timestamp | None, Meta(description="The time of the last claim.")]
    created_at: Annotated[Timestamp, Meta(description="The time of the enqueue.")]
    queue: str
    token: Annotated[int, Meta(description="Grows by one with every claim, and fences the writes of its worker.")]
    lease_until: Annotated[Timestamp | None, Meta(description="The time at which the claim ends unless it is renewed.")]
    run_at: Annotated[Timestamp, Meta(description="The task is not claimed before this time.")]
    finished_at: Annotated[
        Timestamp | None, Meta(description="The time at which the task was completed, failed or cancelled.")
    ]
    timeout: Annotated[float | None, Meta(description="The largest number of seconds of one attempt.")] = field(
        name="timeout_seconds"
    )
    key: str | None = field(name="idempotency_key")
    type_version: Annotated[
        int | None, Meta(description="The version of its type against which its params were validated.")
    ]
    dropped: Annotated[
        int, Meta(description="How often a worker that had claimed the task ahead was lost before it started the task.")
    ]
    cancel_requested: Annotated[bool, Meta(description="The cancellation of the running task was requested.")]
    progress: Annotated[int | None, Meta(description="In percent, as its worker reported.")]
    progress_message: str | None
    raw_result: Annotated[Any, Meta(description="The result of the handler; null unless completed.")] = field(
        name="result"
    )
    error: Annotated[Failure | None, Meta(description="The error of the last failed attempt.")]
    workflow_id: Annotated[int | None, Meta(description="The workflow of which the task is a step.")]
    tags: Annotated[list[str], Meta(description="The tags of the task, in the order of the enqueue.")] = field(
        default_factory=list
    )
    trace: Annotated[str, Meta(description="The span of the enqueue, if the client uses tracing.")] | UnsetType = field(
        name="traceparent", default=UNSET
    )
    set_aside: (
        Annotated[SetAside, Meta(description="Why the failed task is not in the dead letter; left out otherwise.")]
        | UnsetType
    ) = UNSET
    expires_at: (
        Annotated[
            Timestamp,
            Meta(
                description="The task is cancelled if it was not started by this time; left out if it does not expire."
            ),
        ]
        | UnsetType
    ) = UNSET
    key_scope: (
        Annotated[KeyScope, Meta(description="How long the task has its key; left out for a task without a key.")]
        | UnsetType
    ) = UNSET
    key_until: (
        Annotated[Timestamp, Meta(description="The end of a key with the scope until_time; left out otherwise.")]
        | UnsetType
    ) = UNSET
    limits: Annotated[
        list[str], Meta(description="The limits that the task itself names, beside those of its queue and type.")
    ] = field(default_factory=list)
    group: (
        Annotated[
            str,
            Meta(
                description="The group of the task, for limits per group and for fair queues; left out if it has none."
            ),
        ]
        | UnsetType
    ) = UNSET

    limited: (
        Annotated[
            bool, Meta(description="True in the answer to a claim that counts towards a limit; left out otherwise.")
        ]
        | UnsetType
    ) = UNSET

    @classmethod
    def from_model(cls, task: model_task.Task) -> Task:
        """The task as JSON."""
        return _task_from_model(task, UNSET)

    @classmethod
    def from_claim(cls, claim: Claim) -> Task:
        """The claimed task as JSON."""
        return _task_from_model(claim.task, True if claim.limited else UNSET)

    def to_model(self, deduplicated: bool = False, replaced: bool = False) -> model_task.Task:
        """The task."""
        return _task_to_model(self, deduplicated, replaced)

    def to_claim(self) -> Claim:
        """The claim under which the server hands out the task."""
        task = _task_to_model(self, False, False)
        assert task.worker_id is not None
        assert task.lease_until is not None
        return Claim(
            task=task,
            token=task.token,
            worker_id=task.worker_id,
            lease_until=task.lease_until,
            limited=self.limited is True,
        )


_task_from_model = constructor(
    Task,
    source=model_task.Task,
    also=("limited",),
    created_at=to_text,
    run_at=to_text,
    claimed_at=to_text,
    lease_until=to_text,
    finished_at=to_text,
    key_until=to_text,
    error=Failure.from_model,
    expires_at=to_text,
)
_task_to_model = constructor(
    model_task.Task,
    source=Task,
    also=("deduplicated", "replaced"),
    created_at=to_datetime,
    run_at=to_datetime,
    claimed_at=to_datetime,
    lease_until=to_datetime,
    finished_at=to_datetime,
    key_until=to_datetime,
    error=Failure.to_model,
    expires_at=to_datetime,
)


class Page(msgspec.Struct, frozen=True):
    """A page of a list; `next_cursor` is null on the last page."""

    tasks: list[Task]
    cursor: int | None = field(name="next_cursor")

    @classmethod
    def from_models(cls, tasks: Sequence[model_task.Task], limit: int) -> Self:
        """The tasks as a page. A full page has a next page."""
        cursor = tasks[-1].id if len(tasks) == limit else None
        return cls(tasks=[Task.from_model(task) for task in tasks], cursor=cursor)

    @classmethod
    def from_model(cls, page: TaskPage) -> Self:
        """The result of a search as a page."""
        return cls(tasks=[Task.from_model(task) for task in page.tasks], cursor=page.cursor)

    def to_model(self) -> TaskPage:
        """The page. The number of tasks that the server has searched is not known here."""
        return TaskPage(tasks=[task.to_model() for task in self.tasks], cursor=self.cursor, looked=len(self.tasks))


class OneTask(msgspec.Struct, frozen=True):
    """A task."""

    task: Task

    @classmethod
    def from_model(cls, task: model_task.Task) -> Self:
        """The task as an answer."""
        return cls(task=Task.from_model(task))

    def to_model(self) -> model_task.Task:
        """The task."""
        return self.task.to_model()


class ManyTasks(msgspec.Struct, frozen=True):
    """Some tasks."""

    tasks: list[Task]

    @classmethod
    def from_model(cls, tasks: Sequence[model_task.Task]) -> Self:
        """The tasks as an answer."""
        return cls(tasks=[Task.from_model(task) for task in tasks])

    def to_model(self) -> list[model_task.Task]:
        """The tasks."""
        return [task.to_model() for task in self.tasks]


class ReadManyBody(RequestBody, frozen=True):
    """The tasks to read."""

    ids: Annotated[list[TaskId], Meta(min_length=1, max_length=MAX_BATCH, description="The tasks.")]


class FoundTasks(msgspec.Struct, frozen=True):
    """The tasks with the given ids that exist, in the order of the ids."""

    tasks: list[Task]
    left: Annotated[
        list[int], Meta(description="Ids that were not read, because the tasks before have about 4 MB of content.")
    ]

    @classmethod
    def from_model(cls, found: TasksById) -> Self:
        """The tasks as an answer."""
        return cls(tasks=[Task.from_model(task) for task in found.tasks], left=found.left)

    def to_model(self) -> TasksById:
        """The tasks."""
        return TasksById(tasks=[task.to_model() for task in self.tasks], left=self.left)


class StatesBody(RequestBody, frozen=True):
    """The tasks whose states to read."""

    ids: Annotated[list[TaskId], Meta(min_length=1, max_length=MAX_STATES, description="The tasks.")]


class TaskStates(msgspec.Struct, frozen=True):
    """The states of tasks: the ids of the tasks in each state. A task that does not exist is in none."""

    states: dict[State, list[int]]

    @classmethod
    def from_model(cls, states: Mapping[int, State]) -> Self:
        """The states as an answer."""
        ids: dict[State, list[int]] = {}
        for task_id, state in states.items():
            ids.setdefault(state, []).append(task_id)
        return cls(states={state: sorted(ids[state]) for state in State if state in ids})

    def to_model(self) -> dict[int, State]:
        """The states by id."""
        return {task_id: state for state, ids in self.states.items() for task_id in ids}


class ChangedTask(msgspec.Struct, frozen=True):
    """The task as it is now."""

    success: bool
    task: Task

    @classmethod
    def from_model(cls, task: model_task.Task) -> Self:
        """The task as an answer."""
        return cls(success=True, task=Task.from_model(task))

    def to_model(self) -> model_task.Task:
        """The task."""
        return self.task.to_model()


class Created(msgspec.Struct, frozen=True):
    """The stored task. `deduplicated`: the idempotency key was in use, and this is the task that has it. `replaced`:
    the request has replaced the content of that task."""

    success: bool
    task: Task
    deduplicated: bool
    replaced: bool

    @classmethod
    def from_model(cls, task: model_task.Task) -> Self:
        """The task as an answer."""
        return cls(success=True, task=Task.from_model(task), deduplicated=task.deduplicated, replaced=task.replaced)

    def to_model(self) -> model_task.Task:
        """The task."""
        return self.task.to_model(self.deduplicated, self.replaced)


class CreatedBatch(msgspec.Struct, frozen=True):
    """The stored tasks, in the order of the request, and for each whether it is `deduplicated` and `replaced`."""

    success: bool
    tasks: list[Task]
    deduplicated: list[bool]
    replaced: list[bool]

    @classmethod
    def from_model(cls, tasks: Sequence[model_task.Task]) -> Self:
        """The tasks as an answer."""
        stored = [Task.from_model(task) for task in tasks]
        return cls(
            success=True,
            tasks=stored,
            deduplicated=[task.deduplicated for task in tasks],
            replaced=[task.replaced for task in tasks],
        )

    def to_model(self) -> list[model_task.Task]:
        """The tasks."""
        marks = zip(self.tasks, self.deduplicated, self.replaced, strict=True)
        return [task.to_model(again, replaced) for task, again, replaced in marks]


# A task to enqueue


class Backoff(msgspec.Struct, frozen=True):
    """The delay before the next attempt: the base, doubled with every failure, at most the cap."""

    base: float = field(name="base_seconds")
    cap: float = field(name="cap_seconds")

    @classmethod
    def from_model(cls, backoff: model_retry.Backoff) -> Self:
        """The backoff as JSON."""
        return cls(base=backoff.base, cap=backoff.cap)

    def to_model(self) -> model_retry.Backoff:
        """The backoff."""
        return model_retry.Backoff(base=self.base, cap=self.cap)


class BackoffBody(RequestBody, frozen=True):
    """The delay before the next attempt: the base, doubled with every failure, at most the cap (seconds)."""

    base: Annotated[
        float, Meta(ge=0, le=YEAR, description="The delay after the first failure, unless the cap is shorter.")
    ] = field(name="base_seconds", default=1.0)
    cap: Annotated[float, Meta(ge=0, le=YEAR, description="The longest delay.")] = field(
        name="cap_seconds", default=300.0
    )

    @classmethod
    def from_model(cls, backoff: model_retry.Backoff) -> BackoffBody | None:
        """The backoff to send; None if it is the default of the server."""
        return None if backoff == model_retry.DEFAULT_BACKOFF else cls(base=backoff.base, cap=backoff.cap)

    def to_model(self) -> model_retry.Backoff:
        """The backoff."""
        return model_retry.Backoff(base=min(self.base, self.cap), cap=self.cap)


def backoff_of(body: BackoffBody | None) -> model_retry.Backoff:
    """The requested backoff, or the default."""
    return model_retry.DEFAULT_BACKOFF if body is None else body.to_model()


class TaskOptions(RequestBody, frozen=True):
    """The options of a new task of any type."""

    rules: ClassVar[tuple[dict[str, Any], ...]] = (
        not_both("delay_seconds", "run_at"),
        not_both("expires_in_seconds", "expires_at"),
    )

    params: Params = field(default_factory=dict)
    queue: Annotated[Name, Meta(description="The queue of the task.")] = DEFAULT_QUEUE
    priority: Priority = 0
    max_attempts: MaxAttempts = DEFAULT_MAX_ATTEMPTS
    delay: Annotated[Seconds, Meta(description="Seconds until the task can be claimed.")] | None = field(
        name="delay_seconds", default=None
    )
    run_at: (
        Annotated[Moment, Meta(description="The time from which the task can be claimed; instead of delay_seconds.")]
        | None
    ) = None
    timeout: Timeout | None = field(name="timeout_seconds", default=None)
    backoff: Annotated[BackoffBody, Meta(description="The delay after a failure.")] | None = None
    trace: Traceparent | None = field(name="traceparent", default=None)
    tags: Annotated[Tags, Meta(description="Short texts by which tasks are found.")] = field(default_factory=list)
    expires_in: ExpiresIn | None = field(name="expires_in_seconds", default=None)
    expires_at: (
        Annotated[
            Moment,
            Meta(
                description="The task is cancelled if it was not started by this time; instead of expires_in_seconds.",
                examples=["2125-11-12T10:30:00Z"],
            ),
        ]
        | None
    ) = None
    limits: Annotated[
        list[Name],
        Meta(
            max_length=MAX_TASK_LIMITS,
            description="Limits of the task, beside those of its queue and type.",
            extra_json_schema={"uniqueItems": True},
        ),
    ] = field(default_factory=list)
    group: Annotated[Name, Meta(description="The group of the task, for limits per group and fair queues.")] | None = (
        None
    )

    def of_type(self, task_type: str) -> NewTask:
        """A task of this type with these options and without a key, checked."""
        return _new_task(self, task_type, backoff_of(self.backoff), None, ALWAYS, None, RETURN, None, None, None)


def tags_to_model(tags: list[str]) -> Sequence[str]:
    """The tags of a new task; no tags as the model has them by default."""
    return tags or NO_TAGS


def limits_to_model(limits: list[str]) -> Sequence[str]:
    """The limits of a new task; no limits as the model has them by default."""
    return limits or NO_LIMITS


_new_task = constructor(
    NewTask,
    source=TaskOptions,
    also=("type", "backoff", "key", "key_scope", "key_for", "on_conflict", "max_delay", "request", "checked_params"),
    tags=tags_to_model,
    limits=limits_to_model,
)


def checked_params(params: Any) -> Any:
    """The params as encoded JSON. InvalidValue if dibs cannot store them."""
    return msgspec.Raw(encode_params(params))


class NewTaskBody(TaskOptions, frozen=True, kw_only=True):
    """A task to enqueue."""

    rules: ClassVar[tuple[dict[str, Any], ...]] = (
        *TaskOptions.rules,
        only_with(
            "idempotency_key",
            "key_for_seconds",
            "max_delay_seconds",
            "request_id",
            key_scope=ALWAYS,
            on_conflict=RETURN,
        ),
        only_if(["key_for_seconds"], default=True, key_scope=ALWAYS),
        only_with("delay_seconds", "max_delay_seconds"),
        only_if(["max_delay_seconds"], on_conflict="replace"),
    )

    type: TaskTypeName = field(name="task_type")
    key: IdempotencyKey | None = field(name="idempotency_key", default=None)
    key_scope: KeyScopeOption = "always"
    key_for: KeyFor | None = field(name="key_for_seconds", default=None)
    on_conflict: OnConflictOption = "return"
    max_delay: MaxDelay | None = field(name="max_delay_seconds", default=None)
    request: EnqueueId | None = field(name="request_id", default=None)

    @classmethod
    def from_model(cls, task: NewTask) -> NewTaskBody:
        """The task to send; params that dibs does not store are refused."""
        return _body_of_task(task)

    def to_model(self) -> NewTask:
        """The task, checked."""
        return _task_of_body(self, backoff_of(self.backoff), None)


_task_of_body = constructor(
    NewTask, source=NewTaskBody, also=("backoff", "checked_params"), tags=tags_to_model, limits=limits_to_model
)

_body_of_task = constructor(
    NewTaskBody,
    source=NewTask,
    params=checked_params,
    run_at=utc,
    expires_at=utc,
    backoff=BackoffBody.from_model,
    tags=list,
    limits=list,
)


class ChangeForManyBody(RequestBody, frozen=True):
    """New values for tasks that have not started. A value that is missing or null stays."""

    rules: ClassVar[tuple[dict[str, Any], ...]] = (
        not_both("delay_seconds", "run_at"),
        at_least_one("priority", "delay_seconds", "run_at", "queue", "tags", "group"),
    )

    priority: Priority | None = None
    delay: Annotated[Seconds, Meta(description="Seconds from now until the task can be claimed.")] | None = field(
        name="delay_seconds", default=None
    )
    run_at: (
        Annotated[Moment, Meta(description="The time from which the task can be claimed; instead of delay_seconds.")]
        | None
    ) = None
    queue: Annotated[Name, Meta(description="The new queue.")] | None = None
    tags: Annotated[Tags, Meta(description="All tags of the task; an empty list removes them.")] | None = None
    group: (
        Annotated[
            str,
            Meta(
                max_length=MAX_NAME,
                pattern=ONE_LINE_OR_EMPTY,
                description="The group of the task. An empty text removes it: the task then has the group that its"
                " params name, or none.",
            ),
        ]
        | None
    ) = None

    @classmethod
    def from_model(cls, change: TaskChange) -> Self:
        """The change to send."""
        given = {name: getattr(change, name) for name in cls.__struct_fields__}
        return cls(**{**given, "run_at": utc_or_none(change.run_at), "tags": list_or_none(change.tags)})

    def to_model(self) -> TaskChange:
        """The change, checked."""
        return TaskChange(**{name: getattr(self, name) for name in self.__struct_fields__})


class ChangeBody(ChangeForManyBody, frozen=True):
    """New values for a task that has not started. A value that is missing or null stays."""

    rules: ClassVar[tuple[dict[str, Any], ...]] = (
        not_both("delay_seconds", "run_at"),
        at_least_one("priority", "delay_seconds", "run_at", "queue", "params", "tags", "group"),
    )

    params: Annotated[dict[str, Any], Meta(description="All params of the task.")] | None = None


class BatchBody(RequestBody, frozen=True):
    """Tasks to enqueue in one transaction, all or none."""

    tasks: Annotated[list[NewTaskBody], Meta(min_length=1, max_length=MAX_BATCH, description="The tasks.")]

    @classmethod
    def from_model(cls, tasks: Sequence[NewTask]) -> Self:
        """The tasks to send."""
        return cls(tasks=[NewTaskBody.from_model(task) for task in tasks])

    def to_model(self) -> list[NewTask]:
        """The tasks, checked."""
        return [task.to_model() for task in self.tasks]


# Filters

Status = Annotated[State, Meta(description="Only tasks in this state.")]
OfType = Annotated[Name, Meta(description="Only tasks of this type.")]
OfQueue = Annotated[Name, Meta(description="Only tasks of this queue.")]
OfKey = Annotated[Name, Meta(description="Only the task with this idempotency key.")]
OfWorker = Annotated[Name, Meta(description="Only tasks that this worker holds, or held last.")]
OfGroup = Annotated[Name, Meta(description="Only tasks of this group.")]
OfLimit = Annotated[
    Name,
    Meta(
        description="Only tasks with this limit: claimed tasks that count towards it; other tasks if they, their type "
        "or their queue have it."
    ),
]
SINCE = Meta(description="Only tasks that were created at this time or later.")
UNTIL = Meta(description="Only tasks that were created before this time.")
OfText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_TEXT,
        pattern=NO_NUL,
        description="Only tasks with this text in their params, or in their error's type and message.",
    ),
]
OfTags = Annotated[list[Tag], Meta(min_length=1, max_length=MAX_TAGS, description="Only tasks with all of these tags.")]
TagsInQuery = Annotated[
    str,
    Meta(
        pattern=TAGS_IN_QUERY,
        description="Only tasks with all of these tags; commas separate them.",
        examples=["customer-42,export"],
    ),
]
OfError = Annotated[Name, Meta(description="Text in the error's type or message.")]
TimeInQuery = Annotated[str, Meta(pattern=MOMENT, extra_json_schema={"format": "date-time"})]
"""A time in a query. Every value there is a text, and a number must not be read as seconds since 1970."""

PageLimit = Annotated[int, Meta(ge=1, le=MAX_BATCH, description="Tasks on a page.")]
PageCursor = Annotated[TaskId, Meta(description="`next_cursor` of the page before.")]


class MatchBody(RequestBody, frozen=True):
    """Filters, all of which a task must match. At least one filter is required."""

    rules: ClassVar[tuple[dict[str, Any], ...]] = (
        at_least_one(
            "status", "task_type", "queue", "key", "worker", "since", "until", "text", "tags", "group", "with_limit"
        ),
    )

    state: Status | None = field(name="status", default=None)
    type: OfType | None = field(name="task_type", default=None)
    queue: OfQueue | None = None
    key: OfKey | None = None
    worker: OfWorker | None = None
    since: Annotated[Moment, SINCE] | None = None
    until: Annotated[Moment, UNTIL] | None = None
    text: OfText | None = None
    tags: OfTags | None = None
    group: OfGroup | None = None
    with_limit: OfLimit | None = None
    cursor: Annotated[TaskId, Meta(description="`next_cursor` of the answer before.")] | None = None

    @classmethod
    def from_model(cls, which: TaskMatch, cursor: int | None) -> Self:
        """The filters to send; the server knows the queues of its caller."""
        return cls(
            state=None if which.state is None else State(which.state),
            type=which.type,
            queue=which.queue,
            key=which.key,
            worker=which.worker,
            since=utc_or_none(which.since),
            until=utc_or_none(which.until),
            text=which.text,
            tags=list_or_none(which.tags),
            group=which.group,
            with_limit=which.with_limit,
            cursor=cursor,
        )

    def to_model(self, queues: Sequence[str] | None) -> TaskMatch:
        """The filters, checked. `queues`: the queues that the caller is limited to, or None."""
        return TaskMatch(
            state=self.state,
            type=self.type,
            queue=self.queue,
            key=self.key,
            worker=self.worker,
            since=self.since,
            until=self.until,
            text=self.text,
            tags=self.tags,
            group=self.group,
            with_limit=self.with_limit,
            queues=queues,
        )


class ChangeMatchingBody(MatchBody, frozen=True, kw_only=True):
    """Filters, all of which a task must match, and the new values. At least one filter is required."""

    changes: ChangeForManyBody

    @classmethod
    def of_change(cls, change: TaskChange, which: TaskMatch, cursor: int | None) -> Self:
        """The filters and the change to send."""
        filters = msgspec.structs.asdict(MatchBody.from_model(which, cursor))
        return cls(**filters, changes=ChangeForManyBody.from_model(change))


class ListQuery(Query, frozen=True):
    """Which tasks to list."""

    state: Status | None = field(name="status", default=None)
    type: OfType | None = field(name="task_type", default=None)
    queue: OfQueue | None = None
    key: OfKey | None = None
    worker: OfWorker | None = None
    since: Annotated[TimeInQuery, SINCE] | None = None
    until: Annotated[TimeInQuery, UNTIL] | None = None
    text: OfText | None = None
    tags: TagsInQuery | None = None
    group: OfGroup | None = None
    with_limit: OfLimit | None = None
    limit: PageLimit = 100
    cursor: PageCursor | None = None

    @classmethod
    def from_model(cls, which: TaskFilter | TaskSearch) -> Self:
        """The filters to send; the server knows the queues of its caller."""
        return cls(
            state=None if which.state is None else State(which.state),
            type=which.type,
            queue=which.queue,
            key=which.key,
            worker=which.worker,
            since=to_text_or_none(which.since),
            until=to_text_or_none(which.until),
            text=which.text,
            tags=tags_to_query(which.tags),
            group=which.group,
            with_limit=which.with_limit,
            limit=which.limit,
            cursor=which.cursor,
        )

    def to_model(self, queues: Sequence[str] | None) -> TaskMatch:
        """The filters, checked. `queues`: the queues that the caller is limited to, or None."""
        return TaskMatch(
            state=self.state,
            type=self.type,
            queue=self.queue,
            key=self.key,
            worker=self.worker,
            since=_time_in_query(self.since, "since"),
            until=_time_in_query(self.until, "until"),
            text=self.text,
            tags=tags_from_query(self.tags),
            group=self.group,
            with_limit=self.with_limit,
            queues=queues,
        )


def list_or_none(tags: Sequence[str] | None) -> list[str] | None:
    """The tags as a list, or None."""
    return None if tags is None else list(tags)


def tags_to_query(tags: Sequence[str] | None) -> str | None:
    """The tags with commas between them."""
    return None if tags is None else ",".join(tags)


def tags_from_query(tags: str | None) -> list[str] | None:
    """The tags that commas separate."""
    return None if tags is None else tags.split(",")


def _time_in_query(given: str | None, what: str) -> datetime | None:
    if given is None:
        return None
    try:
        return msgspec.convert(given, Moment)
    except msgspec.ValidationError:
        raise InvalidValue(f"{what} is not a valid time: {given!r}.", hint="Write 2030-01-31T08:00:00Z.") from None


class MovedTasks(msgspec.Struct, frozen=True):
    """The number of changed tasks. `next_cursor`: where to continue; null: all tasks have been searched."""

    success: bool
    count: int
    cursor: int | None = field(name="next_cursor")

    @classmethod
    def from_model(cls, moved: BulkResult) -> Self:
        """The result as an answer."""
        return cls(success=True, count=moved.moved, cursor=moved.cursor)

    def to_model(self) -> BulkResult:
        """The result."""
        return BulkResult(moved=self.count, cursor=self.cursor)


# The dead letter


class DeadQuery(Query, frozen=True):
    """Which tasks of the dead letter to list. A task must match all filters."""

    queue: Annotated[Name, Meta(description="Only tasks of this queue.")] | None = None
    type: Annotated[Name, Meta(description="Only tasks of this type.")] | None = field(name="task_type", default=None)
    error: OfError | None = None
    tags: TagsInQuery | None = None
    limit: PageLimit = 100
    cursor: PageCursor | None = None

    @classmethod
    def from_model(cls, which: TaskFilter) -> Self:
        """The filters to send; the server knows the queues of its caller."""
        return cls(
            queue=which.queue,
            type=which.type,
            error=which.error,
            tags=tags_to_query(which.tags),
            limit=which.limit,
            cursor=which.cursor,
        )

    def to_model(self, queues: Sequence[str] | None) -> TaskFilter:
        """The filters, checked. `queues`: the queues that the caller is limited to, or None."""
        return TaskFilter(
            dead=True,
            queue=self.queue,
            type=self.type,
            error=self.error,
            tags=tags_from_query(self.tags),
            limit=self.limit,
            cursor=self.cursor,
            queues=queues,
        )


class RedriveBody(RequestBody, frozen=True):
    """Which tasks of the dead letter to retry. A task must match all filters."""

    queue: Name | None = None
    type: Name | None = field(name="task_type", default=None)
    error: OfError | None = None
    tags: OfTags | None = None
    limit: Annotated[
        int, Meta(ge=1, le=MAX_REDRIVE, description="The largest number of tasks, the oldest failures first.")
    ] = 1000

    @classmethod
    def from_model(cls, which: DeadFilter, limit: int) -> Self:
        """The filters to send; the server knows the queues of its caller."""
        tags = list_or_none(which.tags)
        return cls(queue=which.queue, type=which.type, error=which.error, tags=tags, limit=limit)

    def to_model(self, queue: str | None, only: Sequence[str] | None = None) -> DeadFilter:
        """The filters for one queue, checked. `only`: see DeadFilter."""
        return DeadFilter(queue=queue, type=self.type, error=self.error, tags=self.tags, only=only)


class DiscardBody(RedriveBody, frozen=True):
    """Which tasks of the dead letter to discard. A task must match all filters. `ids`: only these tasks."""

    ids: Annotated[list[TaskId], Meta(max_length=MAX_BATCH, description="Only these tasks.")] | None = None

    @classmethod
    def of_ids(cls, ids: Sequence[int], which: DeadFilter) -> Self:
        """The filters to send, for these tasks only."""
        some = max(len(ids), 1)
        tags = list_or_none(which.tags)
        return cls(queue=which.queue, type=which.type, error=which.error, tags=tags, limit=some, ids=list(ids))


class Redriven(msgspec.Struct, frozen=True):
    """The number of retried tasks. If it equals `limit`, there may be more to retry."""

    success: bool
    count: int = field(name="redriven")

    @classmethod
    def from_model(cls, count: int) -> Self:
        """The number as an answer."""
        return cls(success=True, count=count)

    def to_model(self) -> int:
        """The number."""
        return self.count


class Discarded(msgspec.Struct, frozen=True):
    """The number of discarded tasks. If it equals `limit`, there may be more to discard."""

    success: bool
    count: int = field(name="discarded")

    @classmethod
    def from_model(cls, count: int) -> Self:
        """The number as an answer."""
        return cls(success=True, count=count)

    def to_model(self) -> int:
        """The number."""
        return self.count


# Why a task is not running


class Reason(msgspec.Struct, frozen=True):
    """One reason why a task is not running; `code` is for programs."""

    code: str
    message: str

    @classmethod
    def from_model(cls, reason: model_explanation.Reason) -> Self:
        """The reason as JSON."""
        return cls(code=reason.code, message=reason.message)

    def to_model(self) -> model_explanation.Reason:
        """The reason."""
        return model_explanation.Reason(code=self.code, message=self.message)


class Explanation(msgspec.Struct, frozen=True):
    """Why a task is not running, as of now."""

    task_id: int
    state: State = field(name="status")
    reasons: list[Reason]

    @classmethod
    def from_model(cls, why: model_explanation.Explanation) -> Self:
        """The explanation as JSON."""
        return cls(task_id=why.task_id, state=why.state, reasons=[Reason.from_model(each) for each in why.reasons])

    def to_model(self) -> model_explanation.Explanation:
        """The explanation."""
        reasons = [each.to_model() for each in self.reasons]
        return model_explanation.Explanation(task_id=self.task_id, state=self.state, reasons=reasons)


class OneExplanation(msgspec.Struct, frozen=True):
    """Why a task is not running."""

    explanation: Explanation

    @classmethod
    def from_model(cls, why: model_explanation.Explanation) -> Self:
        """The explanation as an answer."""
        return cls(explanation=Explanation.from_model(why))

    def to_model(self) -> model_explanation.Explanation:
        """The explanation."""
        return self.explanation.to_model()
