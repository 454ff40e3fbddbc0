"""Finalization by plain SQL, as a program in any language does it with a connection to PostgreSQL and without dibs.

dibs starts the workflows and runs their steps. Everything about their finalization is plain SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from dibs import NewTask
from dibs.model.workflow import WorkflowState
from tests.helpers import tables
from tests.helpers.workflows import WORKER, claim, complete, fail, inner, start, state, states, step, sub

pytestmark = [
    pytest.mark.parametrize("engine", ["postgres"], indirect=True),
    pytest.mark.database("the functions are those of the database"),
]

ME, ANOTHER = "perl-4711", "perl-4712"
DUE = """
    SELECT id FROM dibs_workflows
    WHERE due_at IS NOT NULL
      AND (finalization_until IS NULL OR finalization_until <= extract(epoch FROM clock_timestamp()) * 1000000)
    ORDER BY due_at"""
CLAIM = "SELECT claimed, reason, token FROM dibs_claim_finalization(%s, %s)"
RENEW = "SELECT claimed, reason, already_claimed_by, message, token FROM dibs_renew_finalization(%s, %s, %s)"
RELEASE = "SELECT dibs_release_finalization(%s, %s, %s)"
CONTEXT = "SELECT execution_status, recommended_action FROM dibs_execution_context(%s)"
FINALIZE = "SELECT finalized, state, execution_status, action, reason, message, due FROM dibs_finalize(%s, %s, %s)"


@pytest.fixture
def app(url: str, open_app: Callable[..., Any]) -> Any:
    """On the database's own clock: a program that calls the functions has no other."""
    return open_app(url)


@pytest.fixture
def sql(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def one(sql: psycopg.Connection[Any], statement: str, *values: Any) -> Any:
    """The only row."""
    [row] = sql.execute(statement.encode(), values).fetchall()
    return row


def finalize_all(sql: psycopg.Connection[Any], processor: str = ME) -> list[tuple[int, str, str]]:
    """A whole processor: claims, renews and finalizes until nothing is due; the (workflow, action, state) of each."""
    done = []
    while waiting := [row[0] for row in sql.execute(DUE.encode())]:
        for workflow in waiting:
            claimed, _, token = one(sql, CLAIM, workflow, processor)
            if not claimed:
                continue
            _, advised = one(sql, CONTEXT, workflow)
            assert one(sql, RENEW, workflow, processor, token)[:2] == (True, "extended")
            finalized, now, _, action, *_ = one(sql, FINALIZE, workflow, processor, token)
            assert (finalized, action) == (True, advised)
            done.append((workflow, action, now))
    return done


def notifications(listener: psycopg.Connection[Any], sql: psycopg.Connection[Any]) -> int:
    """The number of notifications that `sql` has sent since the last call.

    The notifications of one session arrive in the order of its commits, so a last one with a payload ends the count.
    The client sends the notifications of its own writes some time after their commits: they may arrive in between.
    """
    sql.execute("NOTIFY dibs, 'last'")
    sent = []
    for notice in listener.notifies(timeout=60):
        if notice.pid == sql.info.backend_pid:
            if notice.payload == "last":
                return len(sent)
            sent.append(notice)
    raise AssertionError("the last notification has not arrived")


def test_a_program_finalizes_a_completed_workflow(app: Any, sql: psycopg.Connection[Any]) -> None:
    order = start(app, step("a"))
    complete(app, order, "a")
    assert one(sql, CLAIM, order, ME) == (True, "claimed", 1)
    assert one(sql, CLAIM, order, ANOTHER) == (False, "already_claimed", None)
    assert one(sql, CONTEXT, order) == ("all_complete", "complete_workflow")
    assert one(sql, RENEW, order, ME, 1) == (True, "extended", ME, "Claim extended", 1)
    done = (True, "completed", "all_complete", "complete_workflow", "finalized", "Workflow is completed", [])
    assert one(sql, FINALIZE, order, ME, 1) == done
    workflow = app.get_workflow(order)
    assert (workflow.state, workflow.finalization_by, workflow.finished_at is None) == ("completed", None, False)
    assert [attempt.processor for attempt in app.finalization_attempts(order) if attempt.claimed] == [ME]


def test_a_program_fails_a_workflow_whose_steps_failed(app: Any, sql: psycopg.Connection[Any]) -> None:
    order = start(app, step("a"), step("b", "a"), step("c"), on_failure="continue")
    fail(app, order, "a", "no paper")
    complete(app, order, "c")
    assert finalize_all(sql) == [(order, "fail_workflow", "failed")]
    workflow = app.get_workflow(order)
    assert workflow.error.type == "StepFailed"
    task = app.steps(order)[0].task_id
    assert workflow.error.message == f"Step 'a' (task {task}) failed: Error: no paper"
    assert states(app, order) == {"a": "failed", "b": "cancelled", "c": "completed"}
    assert app.history(app.steps(order)[1].task_id)[-1].event == "cancelled"
    app.retry_workflow(order)
    assert states(app, order)["a"] == "pending"


def test_a_program_starts_the_finalizer_and_wakes_the_workers(app: Any, url: str, sql: psycopg.Connection[Any]) -> None:
    order = start(app, step("a"), finalizer=NewTask("report"))
    complete(app, order, "a")
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute("LISTEN dibs")
        assert one(sql, FINALIZE, order, ME, 1)[0] is False
        assert notifications(listener, sql) == 0
        assert finalize_all(sql) == [(order, "complete_workflow", "finalizing")]
        assert notifications(listener, sql) == 1
    held = app.claim(WORKER)
    assert held.task.type == "report"
    app.complete(held)
    assert state(app, order) == "completed"


def test_a_program_finalizes_sub_workflows_and_the_workflows_around_them(
    app: Any, sql: psycopg.Connection[Any]
) -> None:
    pages = sub("pages", step("p"), sub("deep", step("x"), after=["p"]))
    order = start(app, pages, sub("next", sub("first", step("y")), after=["pages"]), step("last", "next"))
    inside = inner(app, order, "pages")
    complete(app, inside, "p", 7)
    deep = inner(app, inside, "deep")
    complete(app, deep, "x", 8)
    following = inner(app, inner(app, order, "next"), "first")
    assert states(app, following) == {"y": "blocked"}
    _, _, token = one(sql, CLAIM, deep, ME)
    assert one(sql, FINALIZE, deep, ME, token)[-1] == [inside]
    assert finalize_all(sql) == [(inside, "complete_workflow", "completed")]
    gate = app.get(app.steps(order)[0].task_id)
    assert (gate.state, gate.result, gate.attempts) == ("completed", {"deep": {"x": 8}}, 1)
    assert states(app, following) == {"y": "pending"}
    complete(app, following, "y")
    assert [each[1:] for each in finalize_all(sql)] == [("complete_workflow", "completed")] * 2
    assert states(app, order) == {"pages": "completed", "next": "completed", "last": "pending"}
    complete(app, order, "last")
    assert finalize_all(sql) == [(order, "complete_workflow", "completed")]


@pytest.mark.parametrize("policy", ["fail", "continue", "ignore"])
def test_the_failure_of_a_sub_workflow_follows_its_policy(app: Any, sql: psycopg.Connection[Any], policy: str) -> None:
    order = start(app, sub("pages", step("p"), policy=policy), step("other"), sub("after", step("x"), after=["pages"]))
    fail(app, inner(app, order, "pages"), "p")
    finalize_all(sql)
    pages, after = states(app, order)["pages"], states(app, order)["after"]
    assert (pages, after) == ("failed", {"fail": "cancelled", "continue": "blocked", "ignore": "claimed"}[policy])
    if policy == "ignore":
        complete(app, inner(app, order, "after"), "x")
    if policy != "fail":
        complete(app, order, "other")
    finalize_all(sql)
    assert state(app, order) == ("completed" if policy == "ignore" else "failed")
    if policy != "ignore":
        assert state(app, inner(app, order, "after")) == "cancelled"


def test_a_workflow_that_is_cancelled_while_a_step_runs_ends_cancelled(app: Any, sql: psycopg.Connection[Any]) -> None:
    order = start(app, step("a"), step("b", "a"))
    held = claim(app, order, "a")
    app.cancel_workflow(order)
    app.complete(held)
    assert [each[2] for each in finalize_all(sql)] == ["cancelled"]
    assert app.get_workflow(order).error is None


def test_a_workflow_with_steps_left_to_run_is_left_for_later(app: Any, sql: psycopg.Connection[Any]) -> None:
    order = start(app, step("a"), step("b", "a"))
    complete(app, order, "a")
    assert one(sql, CLAIM, order, ME)[0]
    said = (
        True,
        "running",
        "has_ready_steps",
        "recheck_later",
        "finalized",
        "Nothing to finalize yet: has ready steps",
        [],
    )
    assert one(sql, FINALIZE, order, ME, 1) == said
    assert app.get_workflow(order).finalization_by is None
    complete(app, order, "b")
    assert finalize_all(sql) == [(order, "complete_workflow", "completed")]


def test_only_the_holder_of_the_token_renews_releases_or_finalizes(
    app: Any, url: str, sql: psycopg.Connection[Any]
) -> None:
    order = start(app, step("a"))
    complete(app, order, "a")
    message = "Nobody holds the finalization of this workflow"
    assert one(sql, RENEW, order, ME, 1) == (False, "not_claimed", None, message, None)
    token = one(sql, CLAIM, order, ME)[2]
    before = tables.read(url)
    for processor, number in ((ANOTHER, token), (ME, token + 1), (ME, 0)):
        assert one(sql, RENEW, order, processor, number)[:3] == (False, "already_claimed", ME)
        assert one(sql, RELEASE, order, processor, number) == (False,)
        finalized, now, _, _, reason, message, _ = one(sql, FINALIZE, order, processor, number)
        assert (finalized, now, reason) == (False, "running", "finalization_lost")
        assert f"{ME} holds it under token {token}" in message
    for statement in (RENEW, FINALIZE):
        assert "not_found" in one(sql, statement, 404, ME, 1)
    assert tables.read(url) == before
    assert one(sql, RELEASE, order, ME, token) == (True,)
    assert one(sql, FINALIZE, order, ME, token)[5].endswith("no processor holds it now.")


NAMES = [None, "", "two\nlines", "x" * 256, "\x7f"]
SECONDS = [None, -5, 0, float("nan"), float("inf"), float("-inf"), 1e12]


@pytest.mark.parametrize("processor", NAMES)
def test_a_processor_without_a_valid_name_is_refused_with_a_hint(
    app: Any, url: str, sql: psycopg.Connection[Any], processor: Any
) -> None:
    order = start(app, step("a"))
    complete(app, order, "a")
    before = tables.read(url)
    for statement, values in ((CLAIM, ()), (RENEW, (1,)), (RELEASE, (1,)), (FINALIZE, (1,))):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="processor must be one line") as refused:
            sql.execute(statement.encode(), (order, processor, *values))
        assert "no other process has" in str(refused.value.diag.message_hint)
    assert tables.read(url) == before


@pytest.mark.parametrize("seconds", SECONDS, ids=str)
def test_a_timeout_that_is_not_a_valid_lease_is_refused(
    app: Any, url: str, sql: psycopg.Connection[Any], seconds: Any
) -> None:
    order = start(app, step("a"))
    complete(app, order, "a")
    before = tables.read(url)
    for call in ("dibs_claim_finalization(%s, 'p', %s::float8)", "dibs_renew_finalization(%s, 'p', 1, %s::float8)"):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=r"timeout must be between 0\.001"):
            sql.execute(f"SELECT {call}".encode(), (order, seconds))
    assert tables.read(url) == before


def test_a_workflow_or_token_that_is_null_is_refused(app: Any, sql: psycopg.Connection[Any]) -> None:
    app.migrate()
    for statement, values in (
        (CLAIM, (None, ME)),
        (RENEW, (None, ME, 1)),
        (RELEASE, (None, ME, 1)),
        (FINALIZE, (None, ME, 1)),
    ):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="workflow must not be NULL"):
            sql.execute(statement.encode(), values)
    for statement in (RENEW, RELEASE, FINALIZE):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="token must not be NULL"):
            sql.execute(statement.encode(), (1, ME, None))


def test_a_claim_made_in_sql_is_respected_by_dibs_and_the_other_way_round(
    app: Any, sql: psycopg.Connection[Any]
) -> None:
    first, second = start(app, step("a")), start(app, step("a"))
    for order in (first, second):
        complete(app, order, "a")
    assert one(sql, CLAIM, first, ME)[0]
    token = app.claim_finalization(second, "python-1").token
    assert app.upkeep().finalized == 0
    assert app.claim_finalization(first, "python-1").already_claimed_by == ME
    assert one(sql, CLAIM, second, ME)[:2] == (False, "already_claimed")
    assert app.finalize(second, "python-1", token).state is WorkflowState.COMPLETED
    assert one(sql, FINALIZE, first, ME, 1)[1] == "completed"


def test_the_finalization_is_part_of_the_callers_transaction(app: Any, url: str) -> None:
    order = start(app, step("a"), finalizer=NewTask("report"))
    complete(app, order, "a")
    before = tables.read(url)
    with psycopg.connect(url) as own:
        finalize_all(own)
        own.rollback()
    assert tables.read(url) == before
