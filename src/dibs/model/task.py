"""A task, the states it can be in, and the table of moves between them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Self

import msgspec

from dibs.codec import check_name
from dibs.errors import InvalidValue
from dibs.model.checks import check_integer, check_moment, check_seconds, check_trace
from dibs.model.retry import Backoff

DEFAULT_QUEUE = "default"
DEFAULT_MAX_ATTEMPTS = 3
MAX_PRIORITY = 2**31 - 1
MAX_MAX_ATTEMPTS = 1_000_000


class State(StrEnum):
    """Where a task stands."""

    SCHEDULED = "scheduled"  # not due yet
    BLOCKED = "blocked"  # a workflow step whose parents are not done
    PENDING = "pending"  # may be claimed
    CLAIMED = "claimed"  # one worker holds it
    COMPLETED = "completed"
    FAILED = "failed"  # in the dead letter, unless it was set aside (see SetAside)
    CANCELLED = "cancelled"


STATES: dict[str, State] = {state.value: state for state in State}

FINAL = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})
WAITING = frozenset({State.SCHEDULED, State.BLOCKED, State.PENDING})
CANCELLABLE = frozenset(each for each in State if each not in FINAL)
RETRYABLE = frozenset({State.FAILED, State.CANCELLED, State.SCHEDULED})


class Event(StrEnum):
    """What can happen to a task; the history holds one row for each time it did."""

    ENQUEUED = "enqueued"
    PROMOTED = "promoted"  # its time came, or its parents are done
    CLAIMED = "claimed"
    COMPLETED = "completed"
    FAILED = "failed"  # an attempt failed; `to` says whether another follows
    RELEASED = "released"  # given back without an attempt spent
    RECOVERED = "recovered"  # taken back from a worker whose lease ran out
    CANCEL_REQUESTED = "cancel_requested"  # its worker has been asked to stop
    CANCELLED = "cancelled"
    RETRIED = "retried"  # sent back by hand, attempts counted anew
    IGNORED = "ignored"  # a step failed, and its workflow went on without it: it is no dead letter
    DISCARDED = "discarded"  # taken out of the dead letter by hand
    RESTORED = "restored"  # back in the dead letter, because it is retried
    PRUNED = "pruned"  # removed after its retention


class SetAside(StrEnum):
    """Why a failed task is not in the dead letter."""

    IGNORED = "ignored"  # its workflow went on without it
    DISCARDED = "discarded"  # somebody discarded it


_S = State
MOVES: dict[Event, tuple[frozenset[State | None], frozenset[State]]] = {
    Event.ENQUEUED: (frozenset({None}), frozenset({_S.SCHEDULED, _S.BLOCKED, _S.PENDING})),
    Event.PROMOTED: (frozenset({_S.SCHEDULED, _S.BLOCKED}), frozenset({_S.SCHEDULED, _S.PENDING})),
    Event.CLAIMED: (frozenset({_S.PENDING}), frozenset({_S.CLAIMED})),
    Event.COMPLETED: (frozenset({_S.CLAIMED}), frozenset({_S.COMPLETED})),
    Event.FAILED: (frozenset({_S.CLAIMED}), frozenset({_S.SCHEDULED, _S.PENDING, _S.FAILED})),
    Event.RELEASED: (frozenset({_S.CLAIMED}), frozenset({_S.SCHEDULED, _S.PENDING})),
    Event.RECOVERED: (frozenset({_S.CLAIMED}), frozenset({_S.PENDING, _S.FAILED, _S.CANCELLED})),
    Event.CANCEL_REQUESTED: (frozenset({_S.CLAIMED}), frozenset({_S.CLAIMED})),
    Event.CANCELLED: (WAITING | {_S.CLAIMED}, frozenset({_S.CANCELLED})),
    Event.RETRIED: (frozenset({_S.FAILED, _S.CANCELLED, _S.SCHEDULED}), frozenset({_S.PENDING, _S.BLOCKED})),
    Event.IGNORED: (frozenset({_S.FAILED}), frozenset({_S.FAILED})),
    Event.DISCARDED: (frozenset({_S.FAILED}), frozenset({_S.FAILED})),
    Event.RESTORED: (frozenset({_S.FAILED}), frozenset({_S.FAILED})),
    Event.PRUNED: (FINAL, FINAL),
}
"""Every allowed move: event -> (states it may leave, states it may reach)."""


class Failure(msgspec.Struct, frozen=True):
    """How an attempt ended that did not complete. `permanent`: no further attempt follows, whatever was left."""

    type: str
    message: str
    traceback: str | None = None
    permanent: bool = False


class Task(msgspec.Struct, frozen=True, dict=True):
    """A task as it stood when it was read."""

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
    result: Any = None
    error: Failure | None = None
    deduplicated: bool = False
    dropped: int = 0
    """How often its worker was lost while it was claimed ahead of its turn."""
    workflow_id: int | None = None
    """The workflow that it is a step of."""
    trace: str | None = None
    """The W3C traceparent of who enqueued it."""
    set_aside: SetAside | None = None
    """Why the failed task is not in the dead letter: None where it is, or where the task has not failed."""

    @property
    def finished(self) -> bool:
        """True in a state that only `retry` leaves."""
        return self.state in FINAL

    def wait(self, timeout: float | None = None) -> Any:
        """The task, once it is finished (to be awaited if it came from AsyncDibs). Raises WaitTimeout."""
        app = vars(self).get("app")
        if app is None:
            raise InvalidValue("This task does not know its queue.", hint=f"Use app.wait({self.id}).")
        return app.wait(self.id, timeout)

    def of(self, app: Any) -> Self:
        """The same task, which now knows the client it came from. Not a field: it is neither compared nor stored."""
        vars(self)["app"] = app
        return self


class NewTask(msgspec.Struct, frozen=True):
    """A task to enqueue, checked when it is made. `delay`, `timeout`: seconds."""

    type: str
    params: dict[str, Any] = {}
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    delay: float | None = None
    run_at: datetime | None = None
    timeout: float | None = None
    key: str | None = None
    backoff: Backoff = Backoff()
    trace: str | None = None
    """The W3C traceparent of who enqueues it."""

    def __post_init__(self) -> None:
        check_name(self.type, "The task type")
        if self.queue is not DEFAULT_QUEUE:
            check_name(self.queue, "The queue")
        if self.key is not None:
            check_name(self.key, "The key")
        if self.trace is not None:
            check_trace(self.trace)
        check_integer(self.priority, "priority", -MAX_PRIORITY, MAX_PRIORITY)
        check_integer(self.max_attempts, "max_attempts", 1, MAX_MAX_ATTEMPTS)
        if self.delay is not None:
            check_seconds(self.delay, "delay")
        if self.timeout is not None:
            check_seconds(self.timeout, "timeout", least=0.001)
        if type(self.backoff) is not Backoff:
            raise InvalidValue(f"backoff must be a dibs.Backoff, not {self.backoff!r}.")
        if self.run_at is not None:
            if self.delay is not None:
                raise InvalidValue("Give either delay or run_at, not both.")
            check_moment(self.run_at, "run_at")
