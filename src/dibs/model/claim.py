"""The types of claims: requests to claim, claims, the outcomes that end a claim, and the results of the store.

The types that callers construct check their values on construction, so no store has to. Most types are public
(`dibs.Claim`, `dibs.Completed` …); the JSON of the HTTP API is defined in `dibs.wire.claims`. The outcomes are tagged
structs: a child process sends its outcome to the worker in msgpack, and the tag is the name of the class.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from dibs.errors import DibsError, InvalidValue
from dibs.json_values import MAX_ERROR_TEXT, check_name
from dibs.model.checks import check_integer, check_names, check_request_id, check_seconds, check_worker_id
from dibs.model.task import FINAL, MAX_MAX_ATTEMPTS, Failure, SetAside, State, Task
from dibs.model.workflow import NewStep

DEFAULT_LEASE = 60.0
"""Seconds."""

MAX_BATCH = 1000
"""The largest number of tasks in one claim, and of entries in one batch."""


class Order(StrEnum):
    """Which pending task a claim takes first."""

    PRIORITY = "priority"  # the highest priority first, and of equal priorities the oldest task
    PRIORITY_LIFO = "priority_lifo"  # the highest priority first, and of equal priorities the newest task
    PRIORITY_ASC = "priority_asc"  # the lowest priority first, and of equal priorities the oldest task
    FIFO = "fifo"  # the oldest task first
    LIFO = "lifo"  # the newest task first
    RANDOM = "random"  # every task is equally likely
    WEIGHTED = "weighted"  # a task is the more likely, the higher its priority


ORDERS = frozenset(order.value for order in Order)


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Which pending tasks a claim may take, in which order, and how many.

    `queues`, `types`: None for all. `max_attempts_remaining`: only tasks with at least this number of attempts left
    (the name is that of the HTTP API).
    """

    queues: Sequence[str] | None = None
    types: Sequence[str] | None = None
    max_attempts_remaining: int | None = None
    order: str = Order.PRIORITY
    count: int = 1

    def __post_init__(self) -> None:
        check_names(self.queues, "queues", "The queue")
        check_names(self.types, "types", "The task type")
        if self.max_attempts_remaining is not None:
            check_integer(self.max_attempts_remaining, "max_attempts_remaining", 0, MAX_MAX_ATTEMPTS)
        if self.order not in ORDERS:
            raise InvalidValue(f"There is no order {self.order!r}.", hint=f"Use one of: {', '.join(Order)}.")
        check_integer(self.count, "count", 1, MAX_BATCH)


class ClaimRequest(Filters, frozen=True, kw_only=True):
    """A worker's request for up to `count` tasks under a lease of `lease` seconds.

    `incarnation`: tells two processes with the same worker id apart. `ahead`: the tasks will wait in the worker's
    memory before they start; if the worker dies before the start, no attempt is counted. `wait`: seconds for which a
    server may delay its response until a task is pending; a database ignores `wait`. `request`: an id of this request.
    If the response was lost and the worker repeats the request with the same id, the store returns the tasks of the
    first request that the worker still holds.
    """

    worker_id: str
    incarnation: str | None = None
    lease: float = DEFAULT_LEASE
    ahead: bool = False
    wait: float = 0
    request: str | None = None

    def __post_init__(self) -> None:
        Filters.__post_init__(self)
        check_worker_id(self.worker_id)
        check_lease(self.lease)
        _check_flag(self.ahead, "ahead")
        check_seconds(self.wait, "wait")
        if self.incarnation is not None:
            check_name(self.incarnation, "The incarnation")
        if self.request is not None:
            check_request_id(self.request)


class ClaimRef(msgspec.Struct, frozen=True):
    """A reference to a claim: enough to renew the claim or to write its outcome, also in another process."""

    task_id: int
    token: int
    worker_id: str

    def __post_init__(self) -> None:
        check_integer(self.task_id, "task_id", 0, 2**63 - 1)
        check_integer(self.token, "token", 0, 2**63 - 1)
        check_worker_id(self.worker_id)


class Claim(msgspec.Struct, frozen=True):
    """The right to run a task until the lease ends. The token fences every later write about this claim."""

    task: Task
    token: int
    worker_id: str
    lease_until: datetime
    limited: bool = False
    """True if the claim counts towards a limit; False also if the claim is the answer to a repeated request."""

    @property
    def task_id(self) -> int:
        """The id of the claimed task."""
        return self.task.id

    @property
    def attempt(self) -> int:
        """The number of this attempt, counted from 1."""
        return self.task.attempts + 1


class Completed(msgspec.Struct, frozen=True, tag=True):
    """The handler returned. `steps`: steps to add to the workflow of the task. A step that waits for this task then
    also waits for the added steps."""

    result: Any = None
    steps: Sequence[NewStep] = ()


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The handler raised. While the task has attempts left, the next attempt is due after `retry_in` seconds, by
    default after the backoff of the task. `permanent`: the task fails at once."""

    failure: Failure
    retry_in: float | None = None
    permanent: bool = False

    def __post_init__(self) -> None:
        if self.retry_in is not None:
            check_seconds(self.retry_in, "retry_in")
        _check_flag(self.permanent, "permanent")


class Released(msgspec.Struct, frozen=True, tag=True):
    """The task is pending again, at once or after `delay` seconds, and no attempt is counted."""

    delay: float = 0

    def __post_init__(self) -> None:
        check_seconds(self.delay, "delay")


class Cancelled(msgspec.Struct, frozen=True, tag=True):
    """The handler stopped because of a request to cancel the task."""


Outcome = Completed | Failed | Released | Cancelled


class Finished(msgspec.Struct, frozen=True):
    """The result of writing an outcome: the state of the task afterwards.

    `run_at`: when the next attempt is due. `repeated`: the same outcome was already written, by an earlier request.
    `set_aside`: why the failed task is not in the dead letter; None if it is there.
    """

    task_id: int
    state: State
    attempts: int
    run_at: datetime | None = None
    repeated: bool = False
    finalize: int | None = None
    """The id of the workflow, if this outcome ended its last open step: the workflow is due for finalization."""
    set_aside: SetAside | None = None

    @property
    def dead(self) -> bool:
        """True if the task is in the dead letter."""
        return self.state is State.FAILED and self.set_aside is None

    @property
    def will_retry(self) -> bool:
        """True if the task is in a state from which it can be claimed again: after a failure, a release or a snooze."""
        return self.state not in FINAL


class Renewed(msgspec.Struct, frozen=True):
    """The result of a renewal: the new end of the lease, and whether the cancellation of the task was requested."""

    task_id: int
    lease_until: datetime
    cancel_requested: bool


class ClaimStatus(StrEnum):
    """The status of a claim."""

    HELD = "held"  # the claim is valid
    STOPPING = "stopping"  # the claim is valid, and the cancellation of the task was requested
    LOST = "lost"  # the claim is no longer valid


def check_lease(lease: Any) -> int:
    """Check a lease in seconds, and return it in microseconds."""
    return check_seconds(lease, "lease", least=0.001)


def _check_flag(value: Any, name: str) -> None:
    if type(value) is not bool:
        raise InvalidValue(f"{name} must be True or False, not {value!r}.")


AnyClaim = Claim | ClaimRef
_OUTCOMES = frozenset({Completed, Failed, Released, Cancelled})

OutcomeReport = tuple[AnyClaim, Outcome]
"""A claim and its outcome."""

FinishResult = Finished | DibsError
"""The result for one outcome of a batch, or the error for which the store refused this outcome."""

ProgressReport = tuple[AnyClaim, int, str | None]
"""A progress report: the claim, percent, a message."""

ClaimName = tuple[int, int, str]
"""The values that identify a claim: task id, token, worker id."""


def check_claims(claims: Sequence[AnyClaim]) -> None:
    """Raise InvalidValue unless all values are claims. A frequent mistake is None, which `claim()` returns when there
    is no task."""
    for claim in claims:
        if not isinstance(claim, (Claim, ClaimRef)):
            raise InvalidValue(
                f"{claim!r} is not a claim.", hint="claim() returns None when there is no task to claim."
            )


def outcome_size(outcome: Outcome) -> int:
    """The approximate size of the outcome as JSON, in bytes; 0 for a result that cannot be encoded: the store will
    refuse that outcome."""
    if isinstance(outcome, Failed):
        return min(len(outcome.failure.message), MAX_ERROR_TEXT) + min(
            len(outcome.failure.traceback or ""), MAX_ERROR_TEXT
        )
    if not isinstance(outcome, Completed) or (outcome.result is None and not outcome.steps):
        return 0
    try:
        return len(msgspec.json.encode((outcome.result, outcome.steps)))
    except Exception:
        return 0


def check_reports(reports: Sequence[OutcomeReport]) -> None:
    """Raise InvalidValue unless every report is a claim with an outcome, and no claim occurs twice."""
    check_claims([ref for ref, _ in reports])
    for _, outcome in reports:
        if type(outcome) not in _OUTCOMES:
            raise InvalidValue(f"{outcome!r} is not an outcome.", hint="Use Completed, Failed, Released or Cancelled.")
    if len({claim_name(ref) for ref, _ in reports}) < len(reports):
        raise InvalidValue("Two outcomes are for the same claim.", hint="Send one outcome for each claim.")


def claim_name(ref: AnyClaim) -> ClaimName:
    """The values that identify the claim, as a key for dictionaries."""
    return ref.task_id, ref.token, ref.worker_id
