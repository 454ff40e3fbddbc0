"""Tasks, their states, and the table of transitions between the states."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

import msgspec

from dibs.codec import check_name
from dibs.errors import InvalidValue
from dibs.model.checks import check_integer, check_moment, check_seconds, check_tags, check_trace
from dibs.model.retry import DEFAULT_BACKOFF, Backoff

DEFAULT_QUEUE = "default"
DEFAULT_MAX_ATTEMPTS = 3
NO_TAGS: tuple[str, ...] = ()
"""The default of `NewTask.tags`: a tuple, because msgspec would make a new list for every task."""

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
WAITING = frozenset({State.SCHEDULED, State.BLOCKED, State.PENDING})
CANCELLABLE = frozenset(each for each in State if each not in FINAL)
RETRYABLE = frozenset({State.FAILED, State.CANCELLED, State.SCHEDULED})


class Event(StrEnum):
    """The events of a task. The history has one entry for each."""

    ENQUEUED = "enqueued"
    PROMOTED = "promoted"  # it became due, or its parents have ended
    CLAIMED = "claimed"
    COMPLETED = "completed"
    FAILED = "failed"  # an attempt failed; `to_state` shows whether another follows
    RELEASED = "released"  # returned to the queue without counting an attempt
    RECOVERED = "recovered"  # returned to the queue after the lease of its worker expired
    CANCEL_REQUESTED = "cancel_requested"  # its handler has to stop
    CANCELLED = "cancelled"
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
"""The allowed transitions: event -> (states before, states after)."""


class Failure(msgspec.Struct, frozen=True):
    """The error of a failed attempt. `permanent`: no further attempt follows, even if attempts are left."""

    type: str
    message: str
    traceback: str | None = None
    permanent: bool = False


class Task(msgspec.Struct, frozen=True, dict=True):
    """A task as read from the store."""

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
    """How often a worker died while it held this task claimed ahead."""
    workflow_id: int | None = None
    """The workflow of which the task is a step."""
    trace: str | None = None
    """The W3C traceparent of the span that enqueued the task."""
    set_aside: SetAside | None = None
    """Why the failed task is not in the dead letter; None if it is, or if the task has not failed."""
    tags: list[str] = []

    @property
    def finished(self) -> bool:
        """True in a final state, which only `retry` leaves."""
        return self.state in FINAL

    def wait(self, timeout: float | None = None) -> Any:
        """Wait until the task is finished, and return it. Awaitable if the task came from AsyncDibs. Raises
        WaitTimeout."""
        app = vars(self).get("app")
        if app is None:
            raise InvalidValue(
                "This task was not returned by a client, so it cannot wait.", hint=f"Use app.wait({self.id})."
            )
        return app.wait(self.id, timeout)

    def of(self, app: Any) -> Self:
        """Attach the client that returned the task. The client is not a field: it is neither compared nor stored."""
        vars(self)["app"] = app
        return self


class NewTask(msgspec.Struct, frozen=True):
    """A task to enqueue, checked on construction. `delay`, `timeout`: seconds."""

    type: str
    params: dict[str, Any] = {}
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    delay: float | None = None
    run_at: datetime | None = None
    timeout: float | None = None
    key: str | None = None
    backoff: Backoff = DEFAULT_BACKOFF
    trace: str | None = None
    """The W3C traceparent of the span that enqueues the task."""
    tags: Sequence[str] = NO_TAGS

    def __post_init__(self) -> None:
        check_name(self.type, "The task type")
        if self.queue is not DEFAULT_QUEUE:
            check_name(self.queue, "The queue")
        if self.key is not None:
            check_name(self.key, "The key")
        if self.trace is not None:
            check_trace(self.trace)
        if self.tags is not NO_TAGS:
            check_tags(self.tags)
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
