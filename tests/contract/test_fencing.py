"""Promise 4: every call with a lost claim is refused in every later state of the task, and changes nothing.

Each fenced statement checks three conditions of the row: this token, this worker, still claimed. For each condition
there is a claim that only this condition refuses, tried with every call. "Nothing" is every column of every table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

import dibs
from dibs import Cancelled, Claim, ClaimRef, Completed, Failed, Failure, Finished, NewTask, Outcome, Released, State
from dibs.client_base import raise_if_error
from dibs.model.claim import ClaimRequest
from tests.helpers import tables
from tests.helpers.clients import Clock, run
from tests.helpers.databases import run_sql
from tests.helpers.retention import keep
from tests.helpers.tasks import events

NO = Failure("Stale", "stale")
Ref = Claim | ClaimRef
Verb = Callable[[Any, Ref], Any]


def finishing(outcome: Outcome) -> Verb:
    return lambda app, claim: raise_if_error(app.finish([(claim, outcome)])[0])


VERBS: dict[str, Verb] = {
    "complete": lambda app, claim: app.complete(claim, "stale"),
    "fail": lambda app, claim: app.fail(claim, NO),
    "fail, retry at once": lambda app, claim: app.fail(claim, NO, retry_in=0),
    "fail for good": lambda app, claim: app.fail(claim, NO, permanent=True),
    "release": lambda app, claim: app.release(claim),
    "release for later": lambda app, claim: app.release(claim, delay=5),
    "stop": finishing(Cancelled()),
    "renew": lambda app, claim: app.renew(claim, 7777),
    "renew among many": lambda app, claim: raise_if_error(app.renew_many([claim], 7777)[0]),
    "progress": lambda app, claim: app.progress(claim, 99, "stale"),
    "start": lambda app, claim: raise_if_error(run(app, app._store.queue.start([claim]))[0]),
    "finish with completed": finishing(Completed("stale")),
    "finish with failed": finishing(Failed(NO)),
    "finish with released": finishing(Released()),
}
PLAIN = {"progress": False, "start": None}
"""The replies to a live claim by the calls whose reply does not name the task."""

OUTCOMES: list[Outcome] = [Completed("stale"), Failed(NO), Released(), Cancelled()]


def answer_or_error(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except dibs.DibsError as error:
        return error


def assert_fenced(
    app: Any, url: str, stale: Ref, error: type[dibs.DibsError] = dibs.ClaimLost, told: tuple[str, ...] = ()
) -> None:
    """Every verb is refused and changes nothing. `told`: verbs that repeat the outcome of this claim."""
    before, stats, queues = tables.read(url), app.stats(), app.queues()
    for name, verb in VERBS.items():
        answer = answer_or_error(lambda verb=verb: verb(app, stale))
        if not name.startswith(told) and not name.endswith(told):
            assert type(answer) is error, f"{name} was not refused: {answer!r}"
            assert answer.task_id == stale.task_id
        assert tables.read(url) == before, f"{name} changed something"
    assert (app.stats(), app.queues()) == (stats, queues)


# Every way to lose a claim


def claim_of(app: Any, worker_id: str = "worker-1", **options: Any) -> Claim:
    """A claim of a new task, with some progress noted."""
    claim: Claim = app.claim_by_id(app.enqueue("resize", **options).id, worker_id)
    app.progress(claim, 10, "begun")
    return claim


def reclaim(app: Any, claim: Claim, worker_id: str) -> Claim:
    """The next claim of the task, under a lease that outlasts the test."""
    again: Claim = app.claim_by_id(claim.task_id, worker_id, lease=10**6)
    assert again.token == claim.token + 1
    return again


def recovered(app: Any, clock: Clock, **options: Any) -> Claim:
    """The task is pending, and its row still shows the token and the worker of this claim."""
    claim = claim_of(app, **options)
    clock.advance(61)
    assert app.recover() == 1
    return claim


def recovered_and_claimed_by_another(app: Any, clock: Clock) -> Claim:
    claim = recovered(app, clock)
    reclaim(app, claim, "worker-2")
    return claim


def recovered_and_claimed_again_by_the_same_worker(app: Any, clock: Clock) -> Claim:
    claim = recovered(app, clock)
    reclaim(app, claim, "worker-1")
    return claim


def recovered_and_completed_by_the_same_worker(app: Any, clock: Clock) -> Claim:
    claim = recovered(app, clock)
    app.complete(reclaim(app, claim, "worker-1"), "fresh")
    return claim


def recovered_and_failed_by_another(app: Any, clock: Clock) -> Claim:
    claim = recovered(app, clock)
    app.fail(reclaim(app, claim, "worker-2"), "fresh", permanent=True)
    return claim


def recovered_to_the_dead_letter(app: Any, clock: Clock) -> Claim:
    return recovered(app, clock, max_attempts=1)


def recovered_and_retried(app: Any, clock: Clock) -> Claim:
    claim = recovered(app, clock, max_attempts=1)
    assert app.retry(claim.task_id).state is State.PENDING
    return claim


def recovered_retried_and_claimed_by_the_same_worker(app: Any, clock: Clock) -> Claim:
    claim = recovered_and_retried(app, clock)
    reclaim(app, claim, "worker-1")
    return claim


def recovered_and_cancelled(app: Any, clock: Clock) -> Claim:
    claim = recovered(app, clock)
    assert app.cancel(claim.task_id).state is State.CANCELLED
    return claim


def asked_to_stop_and_recovered(app: Any, clock: Clock) -> Claim:
    claim = claim_of(app)
    app.cancel(claim.task_id)
    clock.advance(61)
    app.recover()
    assert app.get(claim.task_id).state is State.CANCELLED
    return claim


def taken_over_by_a_claim(app: Any, clock: Clock) -> Claim:
    claim = claim_of(app, queue="taken over")
    clock.advance(61)
    assert app.claim("worker-1", queues=["taken over"], lease=10**6).token == 2
    return claim


def taken_over_by_a_claim_by_id(app: Any, clock: Clock) -> Claim:
    claim = claim_of(app)
    clock.advance(61)
    reclaim(app, claim, "worker-2")
    return claim


LOST = [
    recovered,
    recovered_and_claimed_by_another,
    recovered_and_claimed_again_by_the_same_worker,
    recovered_and_completed_by_the_same_worker,
    recovered_and_failed_by_another,
    recovered_to_the_dead_letter,
    recovered_and_retried,
    recovered_retried_and_claimed_by_the_same_worker,
    recovered_and_cancelled,
    asked_to_stop_and_recovered,
    taken_over_by_a_claim,
    taken_over_by_a_claim_by_id,
]


@pytest.mark.parametrize("lose", LOST, ids=lambda lose: lose.__name__)
def test_a_lost_claim_is_refused_by_every_verb_and_changes_nothing(
    app: Any, url: str, clock: Clock, lose: Callable[..., Claim]
) -> None:
    assert_fenced(app, url, lose(app, clock))


ENDED: dict[str, tuple[Outcome, tuple[str, ...]]] = {
    "completed": (Completed("fresh"), ("complete", "completed")),
    "failed": (Failed(Failure("Fresh", "fresh")), ("fail", "failed")),
    "failed for good": (Failed(Failure("Fresh", "fresh"), permanent=True), ("fail", "failed")),
    "released": (Released(), ("release", "released")),
    "released for later": (Released(delay=60), ("release", "released")),
    "stopped": (Cancelled(), ("stop",)),
}


@pytest.mark.parametrize("ended", ENDED)
def test_a_claim_that_its_worker_ended_is_refused_by_every_other_verb(app: Any, url: str, ended: str) -> None:
    outcome, told = ENDED[ended]
    claim = claim_of(app)
    app.finish([(claim, outcome)])
    assert_fenced(app, url, claim, told=told)


@pytest.mark.parametrize("ended", ["failed", "released"])
def test_a_claim_that_its_worker_ended_stays_refused_under_the_next_claim(app: Any, url: str, ended: str) -> None:
    claim = claim_of(app)
    app.finish([(claim, {"failed": Failed(NO, retry_in=0), "released": Released()}[ended])])
    assert app.claim("worker-1").token == 2
    assert_fenced(app, url, claim, told=ENDED[ended][1])


def test_a_claim_that_ended_for_good_stays_refused_when_the_task_is_retried(app: Any, url: str) -> None:
    dead, stopped = claim_of(app), claim_of(app)
    app.finish([(dead, Failed(NO, permanent=True)), (stopped, Cancelled())])
    for claim, ended in ((dead, "failed"), (stopped, "stopped")):
        app.retry(claim.task_id)
        assert_fenced(app, url, claim, told=ENDED[ended][1])


# Each condition of the fence on its own


def test_a_claim_is_refused_if_only_its_token_is_stale(app: Any, url: str, clock: Clock) -> None:
    stale = recovered_and_claimed_again_by_the_same_worker(app, clock)
    task = app.get(stale.task_id)
    assert (task.state, task.worker_id, task.token) == (State.CLAIMED, stale.worker_id, stale.token + 1)
    assert_fenced(app, url, ClaimRef(stale.task_id, stale.token, stale.worker_id))
    with pytest.raises(dibs.ClaimLost, match="claimed by worker-1 under token 2 now"):
        app.complete(stale)


def test_a_claim_is_refused_if_only_its_worker_differs(app: Any, url: str) -> None:
    claim = claim_of(app)
    stranger = ClaimRef(claim.task_id, claim.token, "worker-2")
    assert_fenced(app, url, stranger, dibs.NotYourClaim)
    with pytest.raises(dibs.NotYourClaim, match="is held by worker-1, not by worker-2"):
        app.complete(stranger)
    assert app.complete(claim).state is State.COMPLETED


def test_a_claim_is_refused_if_only_the_state_differs(app: Any, url: str, clock: Clock) -> None:
    stale = recovered(app, clock)
    run_sql(url, "UPDATE dibs_tasks SET worker_id = 'worker-1'")  # recovery clears it, older versions did not
    task = app.get(stale.task_id)
    assert (task.state, task.worker_id, task.token) == (State.PENDING, stale.worker_id, stale.token)
    assert_fenced(app, url, ClaimRef(stale.task_id, stale.token, stale.worker_id))
    with pytest.raises(dibs.ClaimLost, match="it is pending now"):
        app.complete(stale)


def claim_ahead(app: Any) -> Claim:
    """A claim of the next task ahead of its turn, whose mark a stray `start` would take away."""
    [claim] = run(app, app._store.queue.claim(ClaimRequest(worker_id="worker-1", ahead=True, lease=10**6)))
    return claim


def test_a_claim_ahead_is_refused_if_only_its_token_is_stale(app: Any, url: str, clock: Clock) -> None:
    stale = recovered(app, clock)
    assert claim_ahead(app).token == stale.token + 1
    assert_fenced(app, url, stale)


def test_a_claim_ahead_is_refused_if_only_its_worker_differs(app: Any, url: str) -> None:
    app.enqueue("resize")
    claim = claim_ahead(app)
    assert_fenced(app, url, ClaimRef(claim.task_id, claim.token, "worker-2"), dibs.NotYourClaim)


def test_a_live_claim_is_accepted_by_every_verb(app: Any) -> None:
    for name, verb in VERBS.items():
        claim = claim_of(app)
        answer = verb(app, claim)
        assert answer is PLAIN[name] if name in PLAIN else answer.task_id == claim.task_id, name


# Tokens and tasks that never were


def test_a_token_that_was_not_issued_is_refused(app: Any, url: str) -> None:
    claim = claim_of(app)
    for token in (0, 2, 2**63 - 1):
        assert_fenced(app, url, ClaimRef(claim.task_id, token, claim.worker_id))


def test_the_token_of_another_task_is_refused(app: Any, url: str) -> None:
    claim = claim_of(app)
    other = claim_of(app)
    for _ in range(2):
        app.release(other)
        other = app.claim_by_id(other.task_id, "worker-1")
    assert (claim.token, other.token) == (1, 3)
    assert_fenced(app, url, ClaimRef(claim.task_id, other.token, "worker-1"))
    assert_fenced(app, url, ClaimRef(other.task_id, claim.token, "worker-1"), told=("release", "released"))


def test_a_task_that_was_never_claimed_is_refused(app: Any, url: str) -> None:
    task, later = app.enqueue("resize"), app.enqueue("resize", delay=60)
    assert_fenced(app, url, ClaimRef(task.id, 1, "worker-1"))
    assert_fenced(app, url, ClaimRef(later.id, 1, "worker-1"))


def test_a_task_that_was_never_claimed_has_no_token_zero(app: Any, url: str) -> None:
    task = app.enqueue("resize")
    assert_fenced(app, url, ClaimRef(task.id, 0, "worker-1"))


def test_a_task_that_does_not_exist_is_not_found(app: Any, url: str) -> None:
    claim = claim_of(app)
    assert_fenced(app, url, ClaimRef(claim.task_id + 1, claim.token, "worker-1"), dibs.TaskNotFound)


def test_a_task_that_was_pruned_is_not_found(app: Any, url: str, clock: Clock) -> None:
    stale = recovered(app, clock, max_attempts=1)
    keep(app, failed=0)
    app.prune()
    assert_fenced(app, url, stale, dibs.TaskNotFound)


def test_only_the_worker_that_holds_a_task_is_named_as_its_holder(app: Any) -> None:
    claim = claim_of(app)
    app.complete(claim)
    with pytest.raises(dibs.ClaimLost) as refused:
        app.renew(ClaimRef(claim.task_id, claim.token, "worker-2"))
    assert "is held by" not in refused.value.message


# Batches


def test_a_batch_of_outcomes_writes_only_the_outcomes_of_live_claims(app: Any, url: str, clock: Clock) -> None:
    stale = [lose(app, clock) for lose in LOST]
    app.enqueue_many([NewTask("resize", queue="live") for _ in OUTCOMES])
    live = app.claim_many("worker-1", len(OUTCOMES), queues=["live"])
    ids = {claim.task_id for claim in stale}
    before = [app.get(task_id) for task_id in ids], [app.history(task_id) for task_id in ids]
    for outcome, claim in zip(OUTCOMES, live, strict=True):
        *refused, accepted = app.finish([(old, outcome) for old in stale] + [(claim, outcome)])
        assert [type(answer) for answer in refused] == [dibs.ClaimLost] * len(stale)
        assert isinstance(accepted, Finished)
    assert ([app.get(task_id) for task_id in ids], [app.history(task_id) for task_id in ids]) == before


def test_a_batch_of_renewals_renews_only_live_claims(app: Any, clock: Clock) -> None:
    stale = [lose(app, clock) for lose in LOST]
    live = claim_of(app)
    before = [app.get(claim.task_id) for claim in stale]
    unknown = ClaimRef(10**9, 1, "worker-1")
    *refused, missing, renewed = app.renew_many([*stale, unknown, live], 7777)
    assert [type(answer) for answer in refused] == [dibs.ClaimLost] * len(stale)
    assert [answer.task_id for answer in refused] == [claim.task_id for claim in stale]
    assert isinstance(missing, dibs.TaskNotFound)
    assert renewed.task_id == live.task_id
    assert [app.get(claim.task_id) for claim in stale] == before


def test_a_batch_of_renewals_distinguishes_a_stale_and_a_live_claim_of_one_task(app: Any, clock: Clock) -> None:
    stale = recovered(app, clock)
    live = app.claim("worker-1")
    first, second = app.renew_many([stale, live])
    assert (type(first), type(second)) == (dibs.ClaimLost, dibs.Renewed)
    third, fourth = app.renew_many([live, stale])
    assert (type(third), type(fourth)) == (dibs.Renewed, dibs.ClaimLost)


def test_an_empty_batch_of_renewals_returns_an_empty_list(app: Any) -> None:
    assert app.renew_many([]) == []


# Races


def race(calls: list[Callable[[], Any]]) -> list[Any]:
    """The answers (or refusals) of the calls, made at the same moment by a thread each."""
    start = Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        start.wait()
        return answer_or_error(call)

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def test_of_concurrent_outcomes_of_one_claim_one_is_written(
    app: Any, url: str, clock: Clock, open_app: Callable[..., Any]
) -> None:
    other = open_app(url, clock=clock)
    for turn in range(5):
        claim = claim_of(app, max_attempts=1)
        calls = [
            lambda a=a, o=o, c=claim: raise_if_error(a.finish([(c, o)])[0]) for a in (app, other) for o in OUTCOMES
        ]
        answers = race(calls)
        written = [answer for answer in answers if isinstance(answer, Finished) and not answer.repeated]
        assert len(written) == 1, turn
        assert app.get(claim.task_id).state is written[0].state
        assert Counter(events(app, claim.task_id))["claimed"] == 1
        assert len(events(app, claim.task_id)) == 3
        if written[0].state is State.PENDING:
            app.cancel(claim.task_id)


def test_a_claim_that_is_recovered_while_it_is_completed_is_either_recovered_or_completed(
    app: Any, url: str, clock: Clock, open_app: Callable[..., Any]
) -> None:
    other = open_app(url, clock=clock)
    for _ in range(5):
        claim = claim_of(app)
        clock.advance(61)
        completed, moved = race([lambda c=claim: app.complete(c), other.recover])
        won = isinstance(completed, Finished)
        assert (moved == 0) if won else (moved == 1 and type(completed) is dibs.ClaimLost)
        last = "completed" if won else "recovered"
        assert events(app, claim.task_id) == ["enqueued", "claimed", last]
        if not won:
            app.cancel(claim.task_id)
