"""Metrics of tasks and finalizations, counted in the process that does the work.

`task_claim_…` count the requests of a process to its store, so over HTTP both the worker and the server count them.
The other metrics count changes of tasks once: in the process that wrote them to the database.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeVar

from dibs.errors import ClaimLost, DibsError
from dibs.model.claim import (
    Cancelled,
    Claim,
    ClaimRequest,
    Completed,
    Failed,
    Finished,
    OutcomeReport,
    Released,
    Renewed,
)
from dibs.model.finalization import ClaimReason, FinalizationClaim
from dibs.model.task import Event, State, Task
from dibs.observe import log
from dibs.observe.instruments import OTHER, Counter, Family, Histogram, Label
from dibs.store.contract import Observer
from dibs.store.operation import Rows

T = TypeVar("T", bound=Hashable)

MAX_QUEUES, MAX_TYPES, MAX_LIMITS = 100, 200, 100
RUN_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Histogram buckets in seconds, from a handler that reads one value to one that works for half an hour."""

WAIT_BUCKETS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)
"""Histogram buckets in seconds, from a permit that came back at once to a quota that was used up for hours."""

QUEUE = Label("queue", most=MAX_QUEUES)
TYPE = Label("task_type", most=MAX_TYPES)
LIMIT = Label("limit", most=MAX_LIMITS)
OPERATION = Label("operation", "complete", "fail", "release", "cancel", "renew", "progress", "start", "checkpoint")

claim_seconds = Histogram(
    "task_claim_duration_seconds", "Duration of claim requests in seconds, with or without a claimed task."
)
claim_attempts = Counter("task_claim_attempts_total", "Claim requests.")
claim_success = Counter("task_claim_success_total", "Claim requests that claimed at least one task.")
claim_tasks = Counter("task_claim_tasks_total", "Claimed tasks.")
claim_contention = Counter(
    "task_claim_contention_total",
    "Claim requests that claimed no task: none was pending, or other workers claimed them.",
)
renew_seconds = Histogram("task_claim_renew_duration_seconds", "Duration of renewals of leases in seconds.")
renew_attempts = Counter("task_claim_renew_attempts_total", "Leases for which a renewal was requested.")
renew_success = Counter("task_claim_renew_success_total", "Renewed leases.")
renew_failed = Counter("task_claim_renew_failed_total", "Leases that could not be renewed: the claim was lost.")
release_attempts = Counter("task_claim_release_attempts_total", "Tasks that workers released.")
stale_tokens = Counter(
    "task_claim_stale_token_total",
    "Writes that were refused because the claim was lost, by operation.",
    OPERATION,
)
expired = Counter("task_claim_expired_total", "Expired leases whose tasks were recovered.")
not_started = Counter(
    "task_expired_total", "Tasks that were cancelled because they were not started by their expiry.", QUEUE, TYPE
)
enqueued = Counter("task_enqueued_total", "Enqueued tasks, including steps of workflows.", QUEUE)
completed = Counter("task_completed_total", "Completed tasks.", QUEUE, TYPE)
failed = Counter("task_failed_total", "Failed attempts, with or without a retry.", QUEUE, TYPE)
retried = Counter("task_retried_total", "Failed attempts that are followed by a retry.", QUEUE, TYPE)
dead_letter = Counter(
    "task_dead_letter_total",
    "Tasks that went to the dead letter: failed without a retry, or lost with their worker too often.",
    QUEUE,
    TYPE,
)
run_seconds = Histogram(
    "task_run_duration_seconds", "Duration of handlers in seconds, with any outcome.", QUEUE, TYPE, buckets=RUN_BUCKETS
)

limit_waits = Histogram(
    "task_limit_wait_seconds",
    "Seconds for which claimed tasks had waited for a limit; tasks that did not wait are not counted.",
    LIMIT,
    buckets=WAIT_BUCKETS,
)

TASK_FAMILIES: tuple[Family, ...] = (
    claim_seconds,
    claim_attempts,
    claim_success,
    claim_tasks,
    claim_contention,
    renew_seconds,
    renew_attempts,
    renew_success,
    renew_failed,
    release_attempts,
    stale_tokens,
    expired,
    not_started,
    enqueued,
    completed,
    failed,
    retried,
    dead_letter,
    run_seconds,
    limit_waits,
)


_OUTCOME_OPERATIONS = {Completed: "complete", Failed: "fail", Released: "release", Cancelled: "cancel"}


def count_claim(request: ClaimRequest | None, claims: Sequence[Claim], seconds: float) -> None:
    """Count a claim request."""
    if request is None or not request.wait:  # otherwise the duration includes the wait of the server for a task
        claim_seconds.add(seconds)
    claim_attempts.add()
    if claims:
        claim_success.add()
        claim_tasks.add(times=len(claims))
    else:
        claim_contention.add()


def count_claims(claims: Sequence[Sequence[Claim]], seconds: float) -> None:
    """Count several claim requests that ran together: each has the duration of all."""
    granted, tasks = sum(map(bool, claims)), sum(map(len, claims))
    claim_seconds.add(seconds, times=len(claims))
    claim_attempts.add(times=len(claims))
    claim_success.add(times=granted)
    claim_tasks.add(times=tasks)
    claim_contention.add(times=len(claims) - granted)


def count_exchange(
    request: tuple[Sequence[OutcomeReport], ClaimRequest],
    result: tuple[Sequence[object], Sequence[Claim]],
    seconds: float,
) -> None:
    """Count an exchange: outcomes and a claim request in one operation."""
    count_outcomes(request[0], result[0])
    count_claim(request[1], result[1], seconds)


def count_renewals(results: Sequence[Renewed | DibsError], seconds: float) -> None:
    """Count the renewal of leases."""
    renewed = sum(isinstance(result, Renewed) for result in results)
    renew_seconds.add(seconds)
    renew_attempts.add(times=len(results))
    renew_success.add(times=renewed)
    renew_failed.add(times=len(results) - renewed)
    count_stale("renew", results)


def count_outcomes(reports: Sequence[OutcomeReport], results: Sequence[object]) -> None:
    """Count written outcomes. The store reports the changes of the tasks to TaskMetrics."""
    for (_, outcome), result in zip(reports, results, strict=True):
        if type(outcome) is Released:
            release_attempts.add()
        if type(result) is not Finished and isinstance(result, ClaimLost):
            stale_tokens.add(_OUTCOME_OPERATIONS[type(outcome)])


def count_stale(operation: str, results: Iterable[object]) -> None:
    """Count the results that are a lost claim."""
    lost = sum(isinstance(result, ClaimLost) for result in results)
    if lost:
        stale_tokens.add(operation, times=lost)


def count_run(task: Task, seconds: float) -> None:
    """Count the end of a handler."""
    run_seconds.add(seconds, task.queue, task.type)


class TaskMetrics(Observer):
    """Counts the changes that a store makes to tasks."""

    def added(self, queues: Iterable[str]) -> None:
        """See Observer."""
        for queue, times in _count(queues).items():
            enqueued.add(queue, times=times)

    def moved(self, rows: Rows, ignored: Container[int] = frozenset()) -> None:
        """See Observer."""
        log.record_recoveries(rows)
        dead = [row for row in rows if row[3] == State.FAILED and row[0] not in ignored]
        for (queue, kind), times in _count(map(_KIND, dead)).items():
            dead_letter.add(queue, kind, times=times)
        for (event, state, queue, kind), times in _count(map(_MOVE, rows)).items():
            for counter in _COUNTERS.get((event, state), ()):
                counter.add(queue, kind, times=times)
            if event == Event.RECOVERED:
                expired.add(times=times)

    def waited(self, waits: Iterable[tuple[str, float]]) -> None:
        """See Observer."""
        for limit, seconds in waits:
            limit_waits.add(seconds, limit)


def _count(values: Iterable[T]) -> dict[T, int]:
    """Count each value. For the few values of most calls, `collections.Counter` takes four times as long."""
    counts: dict[T, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return counts


_MOVE = itemgetter(1, 3, -2, -1)  # event, new state, queue, type
_KIND = itemgetter(-2, -1)
_COUNTERS: dict[tuple[str, str], tuple[Counter, ...]] = {
    (Event.COMPLETED, State.COMPLETED): (completed,),
    (Event.FAILED, State.FAILED): (failed,),
    (Event.FAILED, State.SCHEDULED): (failed, retried),
    (Event.FAILED, State.PENDING): (failed, retried),
    (Event.EXPIRED, State.CANCELLED): (not_started,),
}


# Finalization claims

REFUSAL_REASONS = (
    ClaimReason.ALREADY_CLAIMED,
    ClaimReason.ALREADY_COMPLETE,
    ClaimReason.NOT_READY,
    ClaimReason.RACE_CONDITION,
    OTHER,
)
"""The values of the label `reason`; any other reason is `other`."""


@dataclass(frozen=True, slots=True)
class FinalizationVerb:
    """The metrics of one operation on finalization claims."""

    seconds: Histogram
    attempts: Counter
    success: Counter
    refused: Counter

    def count(self, granted: bool, seconds: float) -> None:
        """Count one operation."""
        self.seconds.add(seconds)
        self.attempts.add()
        (self.success if granted else self.refused).add()


def _finalization_verb(name: str, verb: str, refused: str) -> FinalizationVerb:
    return FinalizationVerb(
        Histogram(f"{name}_duration_seconds", f"Duration of attempts to {verb} a finalization in seconds."),
        Counter(f"{name}_attempts_total", f"Attempts to {verb} a finalization."),
        Counter(f"{name}_success_total", f"Attempts to {verb} a finalization that were granted."),
        Counter(f"{name}_{refused}_total", f"Attempts to {verb} a finalization that were refused."),
    )


finalization_claims = _finalization_verb("finalization_claim", "claim", "contention")
finalization_releases = _finalization_verb("finalization_claim_release", "release", "not_owned")
finalization_extensions = _finalization_verb("finalization_claim_extend", "extend", "failed")
finalization_contention = Counter(
    "finalization_claim_contention_by_reason_total",
    "Attempts to claim a finalization that were refused, by reason.",
    Label("reason", *REFUSAL_REASONS),
)

FINALIZATION_FAMILIES: tuple[Family, ...] = (
    *(verb.seconds for verb in (finalization_claims, finalization_releases, finalization_extensions)),
    *(
        each
        for verb in (finalization_claims, finalization_releases, finalization_extensions)
        for each in (verb.attempts, verb.success, verb.refused)
    ),
    finalization_contention,
)


def count_finalization_claim(claim: FinalizationClaim, seconds: float) -> None:
    """Count the claim of a finalization."""
    finalization_claims.count(claim.claimed, seconds)
    if not claim.claimed:
        finalization_contention.add(claim.reason)


def count_finalization_extension(claim: FinalizationClaim, seconds: float) -> None:
    """Count the renewal of a finalization claim."""
    finalization_extensions.count(claim.claimed, seconds)


def count_finalization_release(released: bool, seconds: float) -> None:
    """Count the release of a finalization claim."""
    finalization_releases.count(released, seconds)


FAMILIES: tuple[Family, ...] = (*FINALIZATION_FAMILIES, *TASK_FAMILIES)
"""All metric families that a process counts."""
