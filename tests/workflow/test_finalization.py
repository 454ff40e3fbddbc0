"""Promise 8: exactly one processor finalizes a workflow, a zombie is refused, and a lost claim loses nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import psycopg
import pytest

import dibs
from dibs import FinalizationLost, NewTask, State
from dibs.model.finalization import ClaimReason, FinalizationClaim
from tests.helpers import tables
from tests.helpers.clients import Clock
from tests.helpers.databases import run_sql
from tests.helpers.tasks import moment
from tests.helpers.waiting import until
from tests.helpers.workflows import (
    BROKEN,
    WORKER,
    claim,
    complete,
    drive,
    due,
    fail,
    finalize,
    finalize_due,
    inner,
    start,
    state,
    states,
    step,
    sub,
    task_of,
)

on_postgres = pytest.mark.parametrize("engine", ["postgres"], indirect=True)
P1, P2 = "processor-1", "processor-2"


def ready(app: Any, **about: Any) -> int:
    """A workflow that waits for its finalization."""
    order = start(app, step("a"), **about)
    complete(app, order, "a")
    assert order in due(app)
    return order


def fields_of(answer: FinalizationClaim) -> tuple[Any, ...]:
    """claimed, reason, already claimed by, state, message, token."""
    holder, word = answer.already_claimed_by, str(answer.state)
    return answer.claimed, answer.reason.value, holder, word, answer.message, answer.token


# The seven answers


def test_a_ready_finalization_is_claimed(app: Any, clock: Clock) -> None:
    order = ready(app)
    answer = app.claim_finalization(order, P1, timeout=10)
    assert fields_of(answer) == (True, "claimed", None, "all_complete", "Successfully claimed for finalization", 1)
    assert (answer.workflow_id, answer.processor) == (order, P1)
    assert (answer.lease_until - moment(clock)).total_seconds() == 10
    workflow = app.get_workflow(order)
    held = (workflow.finalization_by, workflow.finalization_token, workflow.finalization_until)
    assert held == (P1, 1, answer.lease_until)


def test_the_lease_of_a_finalization_is_thirty_seconds_by_default(app: Any, clock: Clock) -> None:
    answer = app.claim_finalization(ready(app), P1)
    assert (answer.lease_until - moment(clock)).total_seconds() == 30


def test_a_repeated_claim_of_the_holder_extends_the_finalization_under_the_same_token(app: Any, clock: Clock) -> None:
    order = ready(app)
    app.claim_finalization(order, P1)
    clock.advance(29)
    answer = app.claim_finalization(order, P1)
    assert fields_of(answer) == (True, "extended", P1, "all_complete", "Claim extended", 1)
    assert (answer.lease_until - moment(clock)).total_seconds() == 30
    clock.advance(29)
    assert not app.claim_finalization(order, P2).claimed


def test_a_finalization_that_another_processor_holds_is_refused_as_already_claimed(app: Any) -> None:
    order = ready(app)
    app.claim_finalization(order, P1)
    message = "Workflow already claimed for finalization"
    assert fields_of(app.claim_finalization(order, P2)) == (False, "already_claimed", P1, "all_complete", message, None)


@pytest.mark.parametrize("ended", ["completed", "failed", "cancelled"])
def test_the_finalization_of_an_ended_workflow_is_refused_as_already_complete(app: Any, ended: str) -> None:
    order = start(app, step("a"), step("b", "a"))
    if ended == "cancelled":
        app.cancel_workflow(order)
    drive(app, {"b": BROKEN} if ended == "failed" else None)
    answer = app.claim_finalization(order, P1)
    assert fields_of(answer) == (False, "already_complete", None, ended, "Workflow already complete", None)


def test_the_finalization_of_a_workflow_without_ended_steps_is_refused_as_not_ready(app: Any) -> None:
    order = start(app, step("a"))
    message = "Workflow has no completed or failed steps"
    assert fields_of(app.claim_finalization(order, P1)) == (False, "not_ready", None, "has_ready_steps", message, None)
    claim(app, order, "a")
    assert fields_of(app.claim_finalization(order, P1)) == (False, "not_ready", None, "processing", message, None)


def test_the_finalization_of_an_unknown_workflow_is_refused_as_not_found(app: Any) -> None:
    assert fields_of(app.claim_finalization(404, P1)) == (
        False,
        "not_found",
        None,
        "not_found",
        "Workflow not found",
        None,
    )


@on_postgres
def test_a_processor_that_loses_a_concurrent_claim_is_refused_with_race_condition(app: Any, url: str) -> None:
    """Two processors read a free workflow, one writes first: the other waits for it, and gets race_condition."""
    order = ready(app)
    with psycopg.connect(url) as first, ThreadPoolExecutor(1) as pool:
        ask = "SELECT claimed, token FROM dibs_claim_finalization(%s, %s, 1000)"
        assert first.execute(ask, (order, P1)).fetchone() == (True, 1)
        second = pool.submit(app.claim_finalization, order, P2)
        until(lambda: waits_for_a_lock(url), 30)
        first.commit()
        answer = second.result(30)
    message = "Failed to claim: lost the race"
    assert fields_of(answer) == (False, "race_condition", P1, "all_complete", message, None)
    assert [(each.processor, each.reason) for each in app.finalization_attempts(order)] == [
        (P1, ClaimReason.CLAIMED),
        (P2, ClaimReason.RACE_CONDITION),
    ]


@on_postgres
def test_a_processor_that_waited_for_a_rolled_back_claim_gets_the_finalization(app: Any, url: str) -> None:
    order = ready(app)
    with psycopg.connect(url) as first, ThreadPoolExecutor(1) as pool:
        first.execute("SELECT FROM dibs_claim_finalization(%s, %s, 1000)", (order, P1))
        second = pool.submit(app.claim_finalization, order, P2)
        until(lambda: waits_for_a_lock(url), 30)
        first.rollback()
        assert fields_of(second.result(30))[:2] == (True, "claimed")


def waits_for_a_lock(url: str) -> bool:
    waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return bool(run_sql(url, waiting))


def test_of_many_concurrent_processors_one_claims_the_finalization(app: Any) -> None:
    order = ready(app)
    barrier = Barrier(10)

    def ask(number: int) -> FinalizationClaim:
        barrier.wait()
        answer: FinalizationClaim = app.claim_finalization(order, f"processor-{number}")
        return answer

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(ask, range(10)))
    reasons = Counter(answer.reason for answer in answers)
    assert reasons[ClaimReason.CLAIMED] == 1
    assert reasons[ClaimReason.ALREADY_CLAIMED] + reasons[ClaimReason.RACE_CONDITION] == 9
    [holder] = [answer.processor for answer in answers if answer.claimed]
    assert {answer.already_claimed_by for answer in answers if not answer.claimed} == {holder}
    assert len(app.finalization_attempts(order)) == 10


# The lease and the token


def test_an_expired_finalization_is_claimed_by_another_processor_under_the_next_token(app: Any, clock: Clock) -> None:
    order = ready(app)
    app.claim_finalization(order, P1)
    clock.advance(30)
    assert fields_of(app.claim_finalization(order, P2))[:2] == (True, "claimed")
    assert app.get_workflow(order).finalization_token == 2


def test_the_holder_of_an_expired_finalization_claims_it_again_under_the_next_token(app: Any, clock: Clock) -> None:
    order = ready(app)
    app.claim_finalization(order, P1)
    clock.advance(30)
    answer = app.claim_finalization(order, P1)
    assert (answer.reason, answer.token) == ("claimed", 2)


def test_a_zombie_is_refused_and_changes_nothing(app: Any, url: str, clock: Clock) -> None:
    order = ready(app)
    zombie = app.claim_finalization(order, P1)
    clock.advance(30)
    heir = app.claim_finalization(order, P2)
    before = tables.read(url)
    with pytest.raises(FinalizationLost) as refused:
        app.finalize(order, P1, zombie.token)
    assert (refused.value.workflow_id, refused.value.token) == (order, 1)
    assert f"{P2} holds it under token 2" in refused.value.message
    assert tables.read(url) == before
    assert app.finalize(order, P2, heir.token).state == "completed"


def test_a_zombie_with_the_name_of_its_successor_is_refused_by_its_token(app: Any, url: str, clock: Clock) -> None:
    order = ready(app)
    zombie = app.claim_finalization(order, P1)
    clock.advance(30)
    app.claim_finalization(order, P1)
    before = tables.read(url)
    with pytest.raises(FinalizationLost):
        app.finalize(order, P1, zombie.token)
    assert tables.read(url) == before


def test_the_token_of_another_processor_is_refused(app: Any, url: str) -> None:
    order = ready(app)
    token = app.claim_finalization(order, P1).token
    before = tables.read(url)
    for processor, number in ((P2, token), (P1, token + 1), (P2, 0)):
        with pytest.raises(FinalizationLost):
            app.finalize(order, processor, number)
    assert tables.read(url) == before


def test_a_released_claim_cannot_finalize(app: Any) -> None:
    order = ready(app)
    token = app.claim_finalization(order, P1).token
    app.release_finalization(order, P1, token)
    with pytest.raises(FinalizationLost, match="no processor holds it now"):
        app.finalize(order, P1, token)
    assert state(app, order) == "running"


def test_a_workflow_is_finalized_once(app: Any, url: str) -> None:
    order = ready(app, finalizer=NewTask("report"))
    token = app.claim_finalization(order, P1).token
    assert app.finalize(order, P1, token).state == "finalizing"
    before = tables.read(url)
    with pytest.raises(FinalizationLost, match="it is finalizing"):
        app.finalize(order, P1, token)
    assert tables.read(url) == before
    drive(app)
    with pytest.raises(FinalizationLost, match="it is completed"):
        app.finalize(order, P1, token)


def test_an_unknown_workflow_cannot_be_finalized(app: Any) -> None:
    with pytest.raises(dibs.WorkflowNotFound):
        app.finalize(404, P1, 1)


def test_an_expired_finalization_that_is_not_claimed_again_can_still_be_finished(app: Any, clock: Clock) -> None:
    order = ready(app)
    token = app.claim_finalization(order, P1).token
    clock.advance(3600)
    assert app.finalize(order, P1, token).state == "completed"


def test_tokens_are_never_issued_twice_over_retries(app: Any) -> None:
    order = start(app, step("a"))
    tokens = []
    for _ in range(3):
        fail(app, order, "a")
        tokens.append(app.claim_finalization(order, P1).token)
        app.finalize(order, P1, tokens[-1])
        app.retry_workflow(order)
    assert tokens == [1, 2, 3]
    with pytest.raises(FinalizationLost):
        app.finalize(order, P1, 3)


# Renewing and releasing


def test_renewing_extends_the_claim_under_its_token(app: Any, clock: Clock) -> None:
    order = ready(app)
    token = app.claim_finalization(order, P1).token
    clock.advance(20)
    answer = app.renew_finalization(order, P1, token, timeout=50)
    assert fields_of(answer) == (True, "extended", P1, "all_complete", "Claim extended", 1)
    assert (answer.lease_until - moment(clock)).total_seconds() == 50
    clock.advance(49)
    assert not app.claim_finalization(order, P2).claimed


def test_renewing_an_unclaimed_finalization_is_refused(app: Any, url: str, clock: Clock) -> None:
    order = ready(app)
    nobody = (False, "not_claimed", None, "all_complete", "Nobody holds the finalization of this workflow", None)
    before = tables.read(url)
    assert fields_of(app.renew_finalization(order, P1, 1)) == nobody
    assert tables.read(url) == before
    token = app.claim_finalization(order, P1).token
    app.release_finalization(order, P1, token)
    assert fields_of(app.renew_finalization(order, P1, token)) == nobody
    app.claim_finalization(order, P2)
    clock.advance(30)  # the lease of P2 is over: no processor holds the claim
    assert fields_of(app.renew_finalization(order, P1, token)) == nobody


def test_renewing_a_finalization_of_another_processor_is_refused_with_holder_and_token(app: Any, url: str) -> None:
    order = ready(app)
    token = app.claim_finalization(order, P1).token
    before = tables.read(url)
    message = f"Workflow already claimed for finalization by {P1} under token {token}"
    refused = (False, "already_claimed", P1, "all_complete", message, None)
    for processor, number in ((P2, token), (P1, token + 1), (P1, 0), (P2, token + 1)):
        assert fields_of(app.renew_finalization(order, processor, number)) == refused
    assert tables.read(url) == before


def test_an_expired_finalization_that_is_not_claimed_again_can_be_renewed(app: Any, clock: Clock) -> None:
    order = ready(app)
    token = app.claim_finalization(order, P1).token
    clock.advance(3600)
    assert fields_of(app.renew_finalization(order, P1, token))[:2] == (True, "extended")
    assert not app.claim_finalization(order, P2).claimed


def test_renewing_the_finalization_of_an_ended_or_unknown_workflow_is_refused(app: Any) -> None:
    order = ready(app, finalizer=NewTask("report"))
    finalize(app, order)
    assert fields_of(app.renew_finalization(order, P1, 1))[1:4] == ("already_claimed", None, "finalizing")
    drive(app)
    assert fields_of(app.renew_finalization(order, P1, 1))[1:4] == ("already_complete", None, "completed")
    assert fields_of(app.renew_finalization(404, P1, 1))[1:4] == ("not_found", None, "not_found")


def test_a_released_finalization_can_be_claimed_at_once(app: Any) -> None:
    order = ready(app)
    token = app.claim_finalization(order, P1).token
    assert due(app) == []
    assert app.release_finalization(order, P1, token) is True
    assert due(app) == [order]
    assert fields_of(app.claim_finalization(order, P2))[:2] == (True, "claimed")
    assert app.get_workflow(order).finalization_token == 2


def test_only_the_holder_can_release_a_finalization(app: Any, url: str) -> None:
    order = ready(app)
    token = app.claim_finalization(order, P1).token
    before = tables.read(url)
    assert app.release_finalization(order, P2, token) is False
    assert app.release_finalization(order, P1, token + 1) is False
    assert app.release_finalization(404, P1, token) is False
    assert tables.read(url) == before


def test_releasing_a_finalization_twice_is_the_same_as_once(app: Any, url: str) -> None:
    order = ready(app)
    token = app.claim_finalization(order, P1).token
    app.release_finalization(order, P1, token)
    before = tables.read(url)
    assert app.release_finalization(order, P1, token) is False
    assert tables.read(url) == before


def test_a_zombie_with_the_name_of_its_successor_neither_renews_nor_releases_the_new_claim(
    app: Any, url: str, clock: Clock
) -> None:
    order = ready(app)
    zombie = app.claim_finalization(order, P1)
    clock.advance(30)
    heir = app.claim_finalization(order, P1)
    assert (zombie.token, heir.token) == (1, 2)
    before = tables.read(url)
    assert fields_of(app.renew_finalization(order, P1, zombie.token, timeout=1000))[:3] == (
        False,
        "already_claimed",
        P1,
    )
    assert app.release_finalization(order, P1, zombie.token) is False
    assert tables.read(url) == before
    assert app.renew_finalization(order, P1, heir.token).claimed
    assert app.finalize(order, P1, heir.token).state == "completed"


# The finalizer has its own claim


def test_a_finalization_whose_finalizer_is_pending_or_running_cannot_be_claimed(app: Any) -> None:
    order = ready(app, finalizer=NewTask("report"))
    finalize(app, order)
    message = "Workflow already claimed for finalization: its finalizer runs"
    assert fields_of(app.claim_finalization(order, P2)) == (False, "already_claimed", None, "finalizing", message, None)
    claim(app, order, "(finalizer)", "worker-7")
    answer = app.claim_finalization(order, P2)
    assert fields_of(answer) == (False, "already_claimed", "worker-7", "finalizing", message, None)
    assert due(app) == []


def test_a_finalizer_whose_worker_is_lost_is_run_by_another_and_the_zombie_is_refused(app: Any, clock: Clock) -> None:
    order = ready(app, finalizer=NewTask("report"))
    finalize(app, order)
    zombie = app.claim("worker-1")
    clock.advance(61)
    heir = app.claim("worker-2")
    assert (heir.task_id, heir.token) == (zombie.task_id, zombie.token + 1)
    with pytest.raises(dibs.ClaimLost):
        app.complete(zombie)
    assert state(app, order) == "finalizing"
    app.complete(heir)
    assert state(app, order) == "completed"


# Attempts


def test_every_finalization_claim_is_recorded_with_its_reason_in_order(app: Any, clock: Clock) -> None:
    order = start(app, step("a"))
    app.claim_finalization(order, P1)
    complete(app, order, "a")
    clock.advance(1)
    app.claim_finalization(order, P1)
    app.claim_finalization(order, P1)
    clock.advance(1)
    app.claim_finalization(order, P2)
    app.finalize(order, P1, 1)
    app.claim_finalization(order, P2)
    attempts = app.finalization_attempts(order)
    assert [
        (each.processor, each.claimed, each.reason.value, str(each.state), each.already_claimed_by, each.token)
        for each in attempts
    ] == [
        (P1, False, "not_ready", "has_ready_steps", None, None),
        (P1, True, "claimed", "all_complete", None, 1),
        (P1, True, "extended", "all_complete", P1, 1),
        (P2, False, "already_claimed", "all_complete", P1, None),
        (P2, False, "already_complete", "completed", None, None),
    ]
    assert [each.id for each in attempts] == sorted(each.id for each in attempts)
    assert {each.workflow_id for each in attempts} == {order}
    assert [each.message for each in attempts][:2] == [
        "Workflow has no completed or failed steps",
        "Successfully claimed for finalization",
    ]
    assert (attempts[1].at - attempts[0].at).total_seconds() == 1
    assert attempts[-1].at == moment(clock)


def test_a_finalization_claim_of_an_unknown_workflow_is_recorded_too(app: Any, url: str) -> None:
    app.claim_finalization(404, P1)
    with dibs.Dibs(url) as database:  # a server only answers that it does not exist
        [attempt] = database.finalization_attempts(404)
    assert (attempt.claimed, attempt.reason, attempt.processor) == (False, "not_found", P1)


# The execution context


def waiting_for_retry(app: Any) -> int:
    order = start(app, step("a"), step("b", "a"))
    app.fail(claim(app, order, "a"), "not yet", retry_in=60)
    return order


def processing(app: Any) -> int:
    order = start(app, step("a"), step("b", "a"), step("later", delay=60))
    claim(app, order, "a")
    return order


def has_ready_steps(app: Any) -> int:
    order = start(app, step("a"), step("b", "a"), step("c"), step("later", delay=60))
    claim(app, order, "c")
    return order


def blocked_by_failures(app: Any) -> int:
    order = start(app, step("a"), step("b", "a"), step("c"), on_failure="continue")
    fail(app, order, "a")
    complete(app, order, "c")
    return order


def all_complete(app: Any) -> int:
    order = start(app, step("a"), step("b", on_failure="ignore"), step("c"), finalizer=NewTask("report"))
    complete(app, order, "a")
    fail(app, order, "b")
    complete(app, order, "c")
    return order


def waiting_for_dependencies(app: Any) -> int:
    """Of a sub-workflow that has not begun."""
    return inner(app, start(app, step("a"), sub("pages", step("b"), after=["a"])), "pages")


CONTEXTS: dict[Callable[[Any], int], tuple[str, dict[str, int], int, int, float]] = {
    waiting_for_retry: ("recheck_later", {"scheduled": 1, "blocked": 1}, 0, 0, 0.0),
    processing: ("recheck_later", {"claimed": 1, "blocked": 1, "scheduled": 1}, 0, 0, 0.0),
    has_ready_steps: ("recheck_later", {"pending": 1, "blocked": 1, "claimed": 1, "scheduled": 1}, 0, 0, 0.0),
    blocked_by_failures: ("fail_workflow", {"failed": 1, "blocked": 1, "completed": 1}, 1, 1, 33.3),
    all_complete: ("complete_workflow", {"completed": 2, "failed": 1}, 3, 0, 100.0),
    waiting_for_dependencies: ("recheck_later", {"blocked": 1}, 0, 0, 0.0),
}


@pytest.mark.parametrize("prepare", list(CONTEXTS), ids=lambda each: each.__name__)
def test_the_execution_context_has_the_counts_of_steps_and_the_next_action(
    app: Any, prepare: Callable[[Any], int]
) -> None:
    workflow_id = prepare(app)
    action, by_state, passed, failures, percentage = CONTEXTS[prepare]
    context = app.execution_context(workflow_id)
    assert (context.execution_status.value, context.recommended_action.value) == (prepare.__name__, action)
    assert (context.by_state, context.total_steps) == (by_state, sum(by_state.values()))
    assert (context.passed, context.failures, context.completion_percentage) == (passed, failures, percentage)
    assert (context.workflow_id, context.state) == (workflow_id, "running")


def test_a_workflow_without_steps_is_all_complete(app: Any) -> None:
    context = app.execution_context(start(app))
    assert (context.execution_status, context.completion_percentage, context.by_state) == ("all_complete", 100.0, {})


def test_percentages_are_rounded_alike_on_every_engine(app: Any) -> None:
    order = start(app, *(step(str(n)) for n in range(16)))
    complete(app, order, "0")
    assert app.execution_context(order).completion_percentage == 6.3


def test_a_finalization_with_steps_left_to_run_is_left_for_later(app: Any, clock: Clock) -> None:
    order = start(app, step("a"), step("b", "a"))
    complete(app, order, "a")
    answer = app.claim_finalization(order, P1)
    assert (answer.claimed, str(answer.state)) == (True, "has_ready_steps")
    done = app.finalize(order, P1, answer.token)
    assert (done.workflow_id, done.state, done.execution_status, done.action) == (
        order,
        "running",
        "has_ready_steps",
        "recheck_later",
    )
    assert (due(app), app.get_workflow(order).finalization_by) == ([], None)
    complete(app, order, "b")
    assert due(app) == [order]


def test_an_early_finalization_claim_does_not_prevent_the_finalization_after_its_lease(app: Any, clock: Clock) -> None:
    order = start(app, step("a"), step("b", "a"))
    complete(app, order, "a")
    app.claim_finalization(order, P1)  # and is never heard of again
    complete(app, order, "b")
    assert app.upkeep().finalized == 0
    clock.advance(30)
    assert (app.upkeep().finalized, state(app, order)) == (1, "completed")


# Repaired by upkeep


def test_upkeep_finalizes_ready_workflows(app: Any) -> None:
    orders = [ready(app), ready(app, finalizer=NewTask("report"))]
    assert app.upkeep().finalized == 2
    assert [state(app, order) for order in orders] == ["completed", "finalizing"]
    assert (app.upkeep().finalized, due(app)) == (0, [])


def test_upkeep_takes_over_from_a_processor_that_died_with_its_claim(app: Any, clock: Clock) -> None:
    order = ready(app)
    app.claim_finalization(order, P1)
    assert (app.upkeep().finalized, state(app, order)) == (0, "running")
    clock.advance(30)
    assert (app.upkeep().finalized, state(app, order)) == (1, "completed")


def test_upkeep_that_has_nothing_to_finalize_records_nothing(app: Any) -> None:
    order = start(app, step("a"), sub("pages", step("p"), after=["a"]))
    app.upkeep()
    assert app.finalization_attempts(order) == []


def test_upkeep_finalizes_the_longest_waiting_workflow_first(app: Any, clock: Clock) -> None:
    first, second, third = start(app, step("a")), start(app, step("b")), start(app, step("c"))
    for order, name in ((second, "b"), (third, "c"), (first, "a")):
        complete(app, order, name)
        clock.advance(1)
    assert due(app) == [second, third, first]


# Steps that ended behind the workflow's back


def end_behind_the_back(url: str, task_id: int, ended: str = "completed") -> None:
    """As a program does that does not know workflows."""
    now = time.time_ns() // 1000
    run_sql(
        url,
        f"UPDATE dibs_tasks SET state = '{ended}', attempts = attempts + 1, result = '7', lease_until = NULL, "
        f"finished_at = {now} WHERE id = {task_id}",
    )


def test_upkeep_repairs_a_workflow_that_missed_the_completion_of_a_step(app: Any, url: str) -> None:
    order = start(app, step("a"), step("b", "a"))
    held = claim(app, order, "a")
    end_behind_the_back(url, held.task_id)
    assert states(app, order) == {"a": "completed", "b": "blocked"}
    assert app.upkeep().mended == 1
    assert states(app, order) == {"a": "completed", "b": "pending"}
    assert app.results(task_of(app, order, "b"))[0].result == 7
    assert app.upkeep().mended == 0
    complete(app, order, "b")
    assert finalize(app, order).state == "completed"


def test_one_upkeep_repairs_and_finalizes_a_workflow(app: Any, url: str) -> None:
    done, failed = start(app, step("a")), start(app, step("b"), step("c", "b"))
    end_behind_the_back(url, claim(app, done, "a").task_id)
    end_behind_the_back(url, claim(app, failed, "b").task_id, "failed")
    upkept = app.upkeep()
    assert (upkept.mended, upkept.finalized) == (2, 2)
    assert (state(app, done), state(app, failed), states(app, failed)["c"]) == ("completed", "failed", "cancelled")


def test_upkeep_repairs_a_workflow_that_missed_the_end_of_its_finalizer(app: Any, url: str) -> None:
    order = ready(app, finalizer=NewTask("report"))
    finalize(app, order)
    end_behind_the_back(url, claim(app, order, "(finalizer)").task_id)
    app.upkeep()
    assert state(app, order) == "completed"


def test_upkeep_repairs_a_workflow_with_wrong_counters(app: Any, url: str) -> None:
    order = start(app, step("a"))
    run_sql(url, f"UPDATE dibs_workflows SET active = 5 WHERE id = {order}")
    complete(app, order, "a")
    assert due(app) == []
    app.upkeep()
    assert state(app, order) == "completed"


def test_a_step_whose_end_is_reported_twice_is_counted_once(app: Any, url: str) -> None:
    """An old program ended the step, upkeep settled it in the workflow, and its worker reports it again."""
    order = start(app, step("a"), step("b"), step("c", "a", "b"))
    held = claim(app, order, "a")
    complete_row = f"UPDATE dibs_tasks SET state = 'completed' WHERE id = {held.task_id}"
    run_sql(url, complete_row)
    app.upkeep()
    run_sql(url, f"UPDATE dibs_tasks SET state = 'claimed' WHERE id = {held.task_id}")
    app.complete(held)
    workflow = app.get_workflow(order)
    assert (workflow.ended, workflow.active, states(app, order)["c"]) == (1, 1, "blocked")
    complete(app, order, "b")
    assert states(app, order)["c"] == "pending"


# As SQL functions, for other languages


@on_postgres
def test_any_program_can_claim_a_finalization_by_an_sql_function(app: Any, url: str) -> None:
    order = ready(app)
    with psycopg.connect(url, autocommit=True) as other:
        ask = "SELECT claimed, already_claimed_by, state, message, reason, token FROM dibs_claim_finalization(%s, %s)"
        granted = other.execute(ask, (order, "perl-1")).fetchone()
        assert granted == (True, None, "all_complete", "Successfully claimed for finalization", "claimed", 1)
        refused = app.claim_finalization(order, P1)
        assert (refused.claimed, refused.already_claimed_by) == (False, "perl-1")
        assert other.execute(ask, (order, "perl-1")).fetchone()[4] == "extended"  # type: ignore[index]
        assert other.execute(ask, (order, "perl-2")).fetchone()[:2] == (False, "perl-1")  # type: ignore[index]
        unknown = other.execute(ask, (404, "perl-1")).fetchone()
        assert unknown == (False, None, "not_found", "Workflow not found", "not_found", None)
    assert app.finalize(order, "perl-1", 1).state == "completed"
    reasons = [each.reason.value for each in app.finalization_attempts(order)]
    assert reasons == ["claimed", "already_claimed", "extended", "already_claimed"]


@on_postgres
def test_the_lease_of_the_sql_function_is_thirty_seconds_by_the_clock_of_the_database(url: str, open_app: Any) -> None:
    app = open_app(url)
    order = ready(app)
    lease = """SELECT lease_until - extract(epoch FROM clock_timestamp()) * 1000000
               FROM dibs_claim_finalization({}, 'perl-1'{})"""
    [(default,)] = run_sql(url, lease.format(order, ""))
    assert 29e6 < default <= 30e6
    [(longer,)] = run_sql(url, lease.format(order, ", 100"))
    assert 99e6 < longer <= 100e6


@on_postgres
def test_the_execution_context_is_an_sql_function(app: Any, url: str) -> None:
    order = start(app, step("a"), step("b", "a"), step("c"), on_failure="continue")
    fail(app, order, "a")
    complete(app, order, "c")
    columns = "total_steps, failed, blocked, completed, passed, failures, completion_percentage"
    words = "execution_status, recommended_action"
    rows = run_sql(url, f"SELECT {columns}, {words} FROM dibs_execution_context({order})")
    assert rows == [(3, 1, 1, 1, 1, 1, 33.3, "blocked_by_failures", "fail_workflow")]
    assert run_sql(url, "SELECT * FROM dibs_execution_context(404)") == []


# Together


def test_many_processors_finalize_many_workflows_once_each(app: Any) -> None:
    orders = [start(app, step("a"), finalizer=NewTask("report")) for _ in range(20)]
    app.finish([(held, dibs.Completed()) for held in app.claim_many(WORKER, 100)])
    barrier = Barrier(4)

    def process(number: int) -> int:
        barrier.wait()
        done = 0
        for order in orders:
            answer = app.claim_finalization(order, f"processor-{number}")
            if answer.claimed:
                app.finalize(order, f"processor-{number}", answer.token)
                done += 1
        return done

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(process, range(4))) == len(orders)
    assert {app.get(app.get_workflow(order).finalizer_id).state for order in orders} == {State.PENDING}
    assert len(app.claim_many(WORKER, 100)) == len(orders)
    assert finalize_due(app) == []


@pytest.mark.parametrize("processor", ["", "two\nlines", ["p1"], None])
def test_a_processor_needs_a_valid_name(app: Any, processor: Any) -> None:
    order = start(app, step("a"))
    with pytest.raises(dibs.InvalidValue, match="processor"):
        app.claim_finalization(order, processor)
    for verb in (app.renew_finalization, app.release_finalization, app.finalize):
        with pytest.raises(dibs.InvalidValue, match="processor"):
            verb(order, processor, 1)


@pytest.mark.parametrize("token", [None, "1", 1.0, True, -1, 2**63])
def test_a_finalization_needs_a_valid_token(app: Any, token: Any) -> None:
    order = ready(app)
    for verb in (app.renew_finalization, app.release_finalization, app.finalize):
        with pytest.raises(dibs.InvalidValue, match="token"):
            verb(order, P1, token)
