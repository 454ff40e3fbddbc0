"""Tasks, their states, and the table of transitions between the states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, Self

import msgspec

from dibs.errors import InvalidValue, ResultMissing
from dibs.json_values import check_name
from dibs.model.checks import check_integer, check_moment, check_seconds, check_tags, check_trace
from dibs.model.limit import check_limit_names
from dibs.model.retry import DEFAULT_BACKOFF, Backoff
from dibs.model.unique import KeyScope, OnConflict, check_key_rules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import TypeVar

    from dibs.model.logs import LogLine

    R_co = TypeVar("R_co", covariant=True, default=Any)
else:  # before Python 3.13, typing has no TypeVar with a default
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)

DEFAULT_QUEUE = "default"
DEFAULT_MAX_ATTEMPTS = 3
DEFAULT_PRIORITY = 0
NO_TAGS: tuple[str, ...] = ()
"""The default of `NewTask.tags`: a tuple, because msgspec would make a new list for every task."""

NO_LIMITS: tuple[str, ...] = ()
"""The default of `NewTask.limits`, a tuple for the same reason."""

ALWAYS: str = KeyScope.ALWAYS.value
RETURN: str = OnConflict.RETURN.value
"""The defaults of `NewTask.key_scope` and `NewTask.on_conflict`."""

MAX_PRIORITY = 2**31 - 1
MAX_MAX_ATTEMPTS = 1_000_000


class State(StrEnum):
    """The state of a task."""

    SCHEDULED = "scheduled"  # not due yet
    BLOCKED = "blocked"  # a workflow step whose parents have not ended
    PENDING = "pending"  # may be claimed
    CLAIMED = "claimed"  # one worker holds it
    COMPLETED = "completed"
    FAILED = "failed"  # in the dead letter, unless it was set aside (see SetAside)
    CANCELLED = "cancelled"


STATES: dict[str, State] = {state.value: state for state in State}

FINAL = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})
"""The states of a finished task."""

WAITING = frozenset({State.SCHEDULED, State.BLOCKED, State.PENDING})
CANCELLABLE = frozenset(each for each in State if each not in FINAL)
RETRYABLE = frozenset({State.FAILED, State.CANCELLED, State.SCHEDULED})
"""The states in which a task waits for its start; in which it can be cancelled; from which it can be retried."""


class Event(StrEnum):
    """The events of a task. The history has one entry for each."""

    ENQUEUED = "enqueued"
    REPLACED = "replaced"  # an enqueue with the same key gave it another content before it started
    PROMOTED = "promoted"  # it became due, or its parents have ended
    CLAIMED = "claimed"
    COMPLETED = "completed"
    FAILED = "failed"  # an attempt failed; `to_state` shows whether another follows
    RELEASED = "released"  # returned to the queue without counting an attempt
    RECOVERED = "recovered"  # returned to the queue after the lease of its worker expired
    CANCEL_REQUESTED = "cancel_requested"  # its handler has to stop
    CANCELLED = "cancelled"
    CHANGED = "changed"  # before a claim, by hand: the detail has the old and the new values
    EXPIRED = "expired"  # cancelled because it was not started by its expiry
    RETRIED = "retried"  # returned to the queue by hand, with new attempts
    IGNORED = "ignored"  # the workflow ignores the failure of this step, which is not in the dead letter
    DISCARDED = "discarded"  # removed from the dead letter by hand
    RESTORED = "restored"  # in the dead letter again, because the task is retried
    PRUNED = "pruned"  # deleted after its retention


class SetAside(StrEnum):
    """Why a failed task is not in the dead letter."""

    IGNORED = "ignored"  # its workflow ignores the failure
    DISCARDED = "discarded"  # it was discarded by hand


_S = State
MOVES: dict[Event, tuple[frozenset[State | None], frozenset[State]]] = {
    Event.ENQUEUED: (frozenset({None}), frozenset({_S.SCHEDULED, _S.BLOCKED, _S.PENDING})),
    Event.REPLACED: (frozenset({_S.SCHEDULED, _S.PENDING}), frozenset({_S.SCHEDULED, _S.PENDING})),
    Event.PROMOTED: (frozenset({_S.SCHEDULED, _S.BLOCKED}), frozenset({_S.SCHEDULED, _S.PENDING})),
    Event.CLAIMED: (frozenset({_S.PENDING}), frozenset({_S.CLAIMED})),
    Event.COMPLETED: (frozenset({_S.CLAIMED}), frozenset({_S.COMPLETED})),
    Event.FAILED: (frozenset({_S.CLAIMED}), frozenset({_S.SCHEDULED, _S.PENDING, _S.FAILED})),
    Event.RELEASED: (frozenset({_S.CLAIMED}), frozenset({_S.SCHEDULED, _S.PENDING})),
    Event.RECOVERED: (frozenset({_S.CLAIMED}), frozenset({_S.PENDING, _S.FAILED, _S.CANCELLED})),
    Event.CANCEL_REQUESTED: (frozenset({_S.CLAIMED}), frozenset({_S.CLAIMED})),
    Event.CANCELLED: (WAITING | {_S.CLAIMED}, frozenset({_S.CANCELLED})),
    Event.EXPIRED: (WAITING, frozenset({_S.CANCELLED})),
    Event.RETRIED: (frozenset({_S.FAILED, _S.CANCELLED, _S.SCHEDULED}), frozenset({_S.PENDING, _S.BLOCKED})),
    Event.CHANGED: (WAITING, WAITING),
    Event.IGNORED: (frozenset({_S.FAILED}), frozenset({_S.FAILED})),
    Event.DISCARDED: (frozenset({_S.FAILED}), frozenset({_S.FAILED})),
    Event.RESTORED: (frozenset({_S.FAILED}), frozenset({_S.FAILED})),
    Event.PRUNED: (FINAL, FINAL),
}
"""The allowed transitions: event -> (states before, states after)."""


LEASE_LOST = "LeaseLost"
"""The type of the error of an attempt whose worker died, froze or lost its connection."""

EXPIRED = "TaskExpired"
"""The type of the error of a task that was cancelled because it was not started by its expiry."""


class Failure(msgspec.Struct, frozen=True):
    """The error of a failed attempt. `permanent`: no further attempt follows, even if attempts are left."""

    type: str
    message: str
    traceback: str | None = None
    permanent: bool = False


class TaskRecord(msgspec.Struct, Generic[R_co], frozen=True, dict=True):
    """What Task and AsyncTask have in common: a task as read from the store. `R_co`: the type of its result."""

    id: int
    type: str
    queue: str
    state: State
    params: dict[str, Any]
    priority: int
    attempts: int
    max_attempts: int
    token: int
    created_at: datetime
    run_at: datetime
    type_version: int | None = None
    timeout: float | None = None
    claimed_at: datetime | None = None
    lease_until: datetime | None = None
    finished_at: datetime | None = None
    worker_id: str | None = None
    key: str | None = None
    cancel_requested: bool = False
    progress: int | None = None
    progress_message: str | None = None
    raw_result: Any = None
    """The result as it is stored: JSON. None if the task is not completed."""
    error: Failure | None = None
    deduplicated: bool = False
    dropped: int = 0
    """How often a worker died while it held this task claimed ahead."""
    workflow_id: int | None = None
    """The workflow of which the task is a step."""
    trace: str | None = None
    """The W3C traceparent of the span that enqueued the task."""
    set_aside: SetAside | None = None
    """Why the failed task is not in the dead letter; None if it is, or if the task has not failed."""
    tags: list[str] = []
    expires_at: datetime | None = None
    """The time by which the task must be started; else it is cancelled with the error EXPIRED. None if it does not
    expire, or after its first attempt."""
    key_scope: KeyScope | None = None
    """How long the task has its key; None for a task without a key."""
    key_until: datetime | None = None
    """The end of a key with the scope `until_time`."""
    replaced: bool = False
    """The enqueue that returned this task replaced its content."""
    limits: list[str] = []
    """The limits that the task itself names, beside those of its queue and type."""
    group: str | None = None
    """The group of the task: that of its limits per group, and of its queue where the queue is fair."""

    @property
    def result(self) -> R_co:
        """The result of the task. A task of a handler has the type that the handler returns; a task that was read by
        its id alone has plain JSON, and None as long as it is not completed.

        Raises ResultMissing if the task of a handler is not completed, and ResultMismatch if the stored result does not
        fit the handler's return type. `raw_result` has the stored JSON in any case.
        """
        attached = vars(self)
        convert: Callable[[Any], R_co] | None = attached.get("convert")
        if convert is None:
            raw: R_co = self.raw_result
            return raw
        if self.state is not State.COMPLETED:
            raise no_result(self)
        if "result" not in attached:
            attached["result"] = convert(self)
        converted: R_co = attached["result"]
        return converted

    @property
    def expired(self) -> bool:
        """True if the task was cancelled because it was not started by its expiry."""
        failure = None if self.expires_at is None else self.error  # a task that was started has no expiry any more
        return self.state is State.CANCELLED and failure is not None and failure.type == EXPIRED

    @property
    def finished(self) -> bool:
        """True in a final state, which only `retry` leaves."""
        return self.state in FINAL

    def of(self, app: Any, convert: Callable[[Any], Any] | None = None) -> Self:
        """Attach the client that returned the task, and the function that converts its result. They are not fields:
        they are neither compared nor stored."""
        attached = vars(self)
        attached["app"] = app
        if convert is not None:
            attached["convert"] = convert
        return self


class Task(TaskRecord[R_co], frozen=True, dict=True):
    """A task as read from the store. `Task[int]`: a task whose result is an int."""

    def wait(self, timeout: float | None = None) -> Task[R_co]:
        """Wait until the task is finished, and return it. Raises WaitTimeout."""
        done: Task[R_co] = client_of(self, "wait").wait(self.id, timeout)
        return done.of(vars(self)["app"], vars(self).get("convert"))

    def change(self, **changes: Any) -> Task[R_co]:
        """Change this task if it has not started, as `app.change` does, and return it as it is then."""
        changed: Task[R_co] = client_of(self, "change").change(self.id, **changes)
        return changed.of(vars(self)["app"], vars(self).get("convert"))

    def logs(self, *, attempt: int | None = None, level: str | None = None) -> list[LogLine]:
        """What the attempts of this task have logged, as `app.logs` returns it."""
        lines: list[LogLine] = client_of(self, "logs").logs(self.id, attempt=attempt, level=level)
        return lines

    def follow_logs(self, *, attempt: int | None = None, level: str | None = None) -> Iterator[LogLine]:
        """The log lines, then each new one until the task has ended: `for line in task.follow_logs()`."""
        lines: Iterator[LogLine] = client_of(self, "follow_logs").follow_logs(self.id, attempt=attempt, level=level)
        return lines


def client_of(task: TaskRecord[Any], verb: str) -> Any:
    """The client that returned the task. Raises InvalidValue if there is none."""
    app = vars(task).get("app")
    if app is None:
        raise InvalidValue(
            f"This task was not returned by a client, so it cannot {verb}.", hint=f"Use app.{verb}({task.id}, …)."
        )
    return app


def no_result(task: TaskRecord[Any], hint: str | None = None) -> ResultMissing:
    """The error: the task is not completed."""
    why = f" with {task.error.type}: {task.error.message.removesuffix('.')}" if task.error is not None else ""
    verb = {State.FAILED: "has", State.CANCELLED: "was"}.get(task.state, "is")
    if not task.finished:
        hint = "Wait for the task: task.wait().result."
    elif hint is None:
        hint = "Check `task.state` before reading `task.result`; `task.error` has the error."
    return ResultMissing(
        f"Task {task.id} ({task.type}) has no result: it {verb} {task.state}{why}.", task_id=task.id, hint=hint
    )


RETRY_EXPIRED = "Retry it to run it without an expiry."


def expiry_text(task: TaskRecord[Any]) -> str:
    """The part of a message that says when the task expired."""
    assert task.expires_at is not None
    return f"it expired at {task.expires_at:%Y-%m-%d %H:%M:%S} UTC and was not started before"


class NewTask(msgspec.Struct, frozen=True):
    """A task to enqueue, checked on construction. `delay`, `timeout`, `expires_in`, `key_for`, `max_delay`: seconds.

    `expires_in`, `expires_at`: the task is cancelled if it was not started by then. The seconds count from the enqueue;
    those of a workflow step from the end of its parents."""

    type: str
    params: dict[str, Any] = {}
    queue: str = DEFAULT_QUEUE
    priority: int = DEFAULT_PRIORITY
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    delay: float | None = None
    run_at: datetime | None = None
    timeout: float | None = None
    key: str | None = None
    backoff: Backoff = DEFAULT_BACKOFF
    trace: str | None = None
    """The W3C traceparent of the span that enqueues the task."""
    tags: Sequence[str] = NO_TAGS
    expires_in: float | None = None
    expires_at: datetime | None = None
    key_scope: str = ALWAYS
    key_for: float | None = None
    on_conflict: str = RETURN
    max_delay: float | None = None
    request: str | None = None
    """An id of this enqueue: a repetition with the same id, after a lost answer, gets the task of the first enqueue. It
    is only needed if the key may have ended in the meantime (`key_scope`, `key_for`), or with another `on_conflict`
    than "return"; otherwise the key alone has this effect."""
    limits: Sequence[str] = NO_LIMITS
    group: str | None = None
    checked_params: dict[str, Any] | None = None
    """The same object as `params` if a handler has checked them by its annotations. If a middleware has replaced
    `params` since, they are another object, and are validated like unchecked ones."""

    def __post_init__(self) -> None:
        check_name(self.type, "The task type")
        if self.queue is not DEFAULT_QUEUE:
            check_name(self.queue, "The queue")
        if self.key is not None:
            check_name(self.key, "The key")
        if self.limits is not NO_LIMITS or self.group is not None:
            _check_limits(self)
        if self.trace is not None or self.tags is not NO_TAGS:
            _check_labels(self)
        if self.priority is not DEFAULT_PRIORITY or self.max_attempts is not DEFAULT_MAX_ATTEMPTS:
            check_integer(self.priority, "priority", -MAX_PRIORITY, MAX_PRIORITY)
            check_integer(self.max_attempts, "max_attempts", 1, MAX_MAX_ATTEMPTS)
        if self.timeout is not None:
            check_seconds(self.timeout, "timeout", least=0.001)
        if type(self.backoff) is not Backoff:
            raise InvalidValue(f"backoff must be a dibs.Backoff, not {self.backoff!r}.")
        if (
            self.delay is not None
            or self.run_at is not None
            or self.expires_in is not None
            or self.expires_at is not None
        ):
            _check_due(self)
            _check_expiry(self)
        if (
            self.key_scope is not ALWAYS
            or self.on_conflict is not RETURN
            or self.key_for is not None
            or self.max_delay is not None
            or self.request is not None
        ):
            check_key_rules(self)


def _check_labels(task: NewTask) -> None:
    if task.trace is not None:
        check_trace(task.trace)
    check_tags(task.tags)


def _check_limits(task: NewTask) -> None:
    check_limit_names(task.limits)
    if task.group is not None:
        check_name(task.group, "The group")


def _check_due(task: NewTask) -> None:
    if task.delay is not None:
        check_seconds(task.delay, "delay")
    if task.run_at is not None:
        if task.delay is not None:
            raise InvalidValue("Give either delay or run_at, not both.")
        check_moment(task.run_at, "run_at")


def _check_expiry(task: NewTask) -> None:
    """Check that the expiry is after the due time, as far as both are given in the same way. The store checks the rest
    by its clock."""
    if task.expires_at is not None:
        if task.expires_in is not None:
            raise InvalidValue("Give either expires_in or expires_at, not both.")
        check_moment(task.expires_at, "expires_at")
        if task.run_at is not None and task.expires_at <= task.run_at:
            raise expires_too_early(task)
    if task.expires_in is not None:
        check_seconds(task.expires_in, "expires_in", least=0.001)
        if task.delay is not None and task.expires_in <= task.delay:
            raise expires_too_early(task)


def expires_before(task: Task, due: datetime) -> InvalidValue:
    """The error of a change that would make a task due after its expiry."""
    message = f"Task {task.id} would expire at {task.expires_at}, before it is due at {due}."
    return InvalidValue(message, hint="Give an earlier due time, or enqueue a new task.")


def expires_too_early(task: NewTask) -> InvalidValue:
    """The error of a task that would expire before it is due."""
    expiry = f"in {task.expires_in:g} s" if task.expires_in is not None else f"at {task.expires_at}"
    due = f"in {task.delay:g} s" if task.delay is not None else f"at {task.run_at}"
    return InvalidValue(
        f"The task would expire {expiry}, before it is due {due}.", hint="Give a later expiry, or none."
    )
