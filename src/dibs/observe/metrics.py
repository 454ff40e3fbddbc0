"""How tasks fare, counted in the process that does it.

`task_claim_…` count what a process asks of its store, so over HTTP the worker and its server both do. The others count
what became of tasks, once: in the process that wrote it to the database.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Sequence
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
from dibs.model.task import Event, State, Task
from dibs.observe import log
from dibs.observe.instruments import Counter, Family, Histogram, Label
from dibs.store.contract import Observer
from dibs.store.operation import Rows

T = TypeVar("T", bound=Hashable)

MAX_QUEUES, MAX_TYPES = 100, 200
RUNS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Seconds, from a handler that only looks something up to one that works for half an hour."""

QUEUE = Label("queue", most=MAX_QUEUES)
TYPE = Label("task_type", most=MAX_TYPES)
OPERATION = Label("operation", "complete", "fail", "release", "cancel", "renew", "progress", "start", "checkpoint")

claim_seconds = Histogram(
    "task_claim_duration_seconds", "Seconds that it took to ask for tasks, whether any came or not."
)
claim_attempts = Counter("task_claim_attempts_total", "Requests for tasks, of one or of many.")
claim_success = Counter("task_claim_success_total", "Requests for tasks that got at least one.")
claim_tasks = Counter("task_claim_tasks_total", "Tasks that were claimed.")
claim_contention = Counter(
    "task_claim_contention_total", "Requests for tasks that got none: there were none, or others were quicker."
)
renew_seconds = Histogram("task_claim_renew_duration_seconds", "Seconds that it took to renew leases, one or many.")
renew_attempts = Counter("task_claim_renew_attempts_total", "Leases that were to be renewed.")
renew_success = Counter("task_claim_renew_success_total", "Leases that were renewed.")
renew_failed = Counter("task_claim_renew_failed_total", "Leases that could not be renewed: the claim was lost.")
release_attempts = Counter("task_claim_release_attempts_total", "Tasks that their workers gave back.")
stale_tokens = Counter(
    "task_claim_stale_token_total",
    "Writes about a claim that were refused because it was lost, by what was to be written.",
    OPERATION,
)
expired = Counter("task_claim_expired_total", "Leases that ran out, and whose tasks were taken back.")
enqueued = Counter("task_enqueued_total", "Tasks that were enqueued, steps of workflows included.", QUEUE)
completed = Counter("task_completed_total", "Tasks that were completed by their workers.", QUEUE, TYPE)
failed = Counter("task_failed_total", "Attempts that failed, whether or not another follows.", QUEUE, TYPE)
retried = Counter("task_retried_total", "Failed attempts that another one follows.", QUEUE, TYPE)
dead_letter = Counter(
    "task_dead_letter_total",
    "Tasks that went to the dead letter: failed for good, or lost with their worker once too often.",
    QUEUE,
    TYPE,
)
run_seconds = Histogram(
    "task_run_duration_seconds", "Seconds that handlers ran, whatever came of it.", QUEUE, TYPE, buckets=RUNS
)

FAMILIES: tuple[Family, ...] = (
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
    enqueued,
    completed,
    failed,
    retried,
    dead_letter,
    run_seconds,
)


_SAID = {Completed: "complete", Failed: "fail", Released: "release", Cancelled: "cancel"}


def count_claim(request: ClaimRequest | None, claims: Sequence[Claim], seconds: float) -> None:
    """A request for tasks was answered."""
    if request is None or not request.wait:  # otherwise the server has waited for a task: that says nothing of claims
        claim_seconds.add(seconds)
    claim_attempts.add()
    if claims:
        claim_success.add()
        claim_tasks.add(times=len(claims))
    else:
        claim_contention.add()


def count_claims(claims: Sequence[Sequence[Claim]], seconds: float) -> None:
    """Several requests were answered at once: each has taken as long as all."""
    granted, tasks = sum(map(bool, claims)), sum(map(len, claims))
    claim_seconds.add(seconds, times=len(claims))
    claim_attempts.add(times=len(claims))
    claim_success.add(times=granted)
    claim_tasks.add(times=tasks)
    claim_contention.add(times=len(claims) - granted)


def count_exchange(
    about: tuple[Sequence[OutcomeReport], ClaimRequest], done: tuple[Sequence[object], Sequence[Claim]], seconds: float
) -> None:
    """Outcomes were told and tasks asked for at once."""
    count_outcomes(about[0], done[0])
    count_claim(about[1], done[1], seconds)


def count_renewals(answers: Sequence[Renewed | DibsError], seconds: float) -> None:
    """Leases were to be renewed."""
    renewed = sum(isinstance(answer, Renewed) for answer in answers)
    renew_seconds.add(seconds)
    renew_attempts.add(times=len(answers))
    renew_success.add(times=renewed)
    renew_failed.add(times=len(answers) - renewed)
    count_stale("renew", answers)


def count_outcomes(reports: Sequence[OutcomeReport], answers: Sequence[object]) -> None:
    """Count outcomes. The observer of the store counts what became of the tasks."""
    for (_, said), answer in zip(reports, answers, strict=True):
        if type(said) is Released:
            release_attempts.add()
        if type(answer) is not Finished and isinstance(answer, ClaimLost):
            stale_tokens.add(_SAID[type(said)])


def count_stale(operation: str, answers: Iterable[object]) -> None:
    """Those of the answers that say that a claim was lost."""
    lost = sum(isinstance(answer, ClaimLost) for answer in answers)
    if lost:
        stale_tokens.add(operation, times=lost)


def count_run(task: Task, seconds: float) -> None:
    """A handler has ended."""
    run_seconds.add(seconds, task.queue, task.type)


class Counting(Observer):
    """Counts what a store does to tasks."""

    def added(self, queues: Iterable[str]) -> None:
        """See Observer."""
        for queue, times in _tally(queues).items():
            enqueued.add(queue, times=times)

    def moved(self, rows: Rows, ignored: Container[int] = frozenset()) -> None:
        """See Observer."""
        log.note(rows)
        dead = [row for row in rows if row[3] == State.FAILED and row[0] not in ignored]
        for (queue, kind), times in _tally(map(_KIND, dead)).items():
            dead_letter.add(queue, kind, times=times)
        for (event, state, queue, kind), times in _tally(map(_MOVE, rows)).items():
            for counter in _COUNTERS.get((event, state), ()):
                counter.add(queue, kind, times=times)
            if event == Event.RECOVERED:
                expired.add(times=times)


def _tally(things: Iterable[T]) -> dict[T, int]:
    """How often each occurs. For the few that most calls have, `collections.Counter` takes four times as long."""
    counts: dict[T, int] = {}
    for thing in things:
        counts[thing] = counts.get(thing, 0) + 1
    return counts


_MOVE = itemgetter(1, 3, -2, -1)  # event, the state that it led to, queue, type
_KIND = itemgetter(-2, -1)
_COUNTERS: dict[tuple[str, str], tuple[Counter, ...]] = {
    (Event.COMPLETED, State.COMPLETED): (completed,),
    (Event.FAILED, State.FAILED): (failed,),
    (Event.FAILED, State.SCHEDULED): (failed, retried),
    (Event.FAILED, State.PENDING): (failed, retried),
}
