"""Graphs: stored completely or not at all, and every step runs once, after its parents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from threading import Barrier
from typing import Any

import pytest

import dibs
from dibs import NewStep, NewTask, NewWorkflow, State
from tests import matrix
from tests.helpers import tables
from tests.helpers.borrowed import Borrowed
from tests.helpers.clients import Clock
from tests.helpers.databases import run_sql
from tests.helpers.tasks import events, moment
from tests.helpers.workflows import (
    BROKEN,
    DIAMOND,
    WORKER,
    by_name,
    claim,
    complete,
    drive,
    due,
    finalize,
    start,
    state,
    states,
    step,
    sub,
    task_of,
)

on_databases = pytest.mark.database("only a client of the database can join a transaction")

LINKS = 1000 if matrix.is_stress() else 300
"""Steps of the long chain: each step takes the same statements, so that a shorter chain shows the same."""


# Waiting for parents


def test_a_step_runs_when_all_its_parents_are_done_and_not_before(app: Any) -> None:
    order = start(app, *DIAMOND)
    assert states(app, order) == {"fetch": "pending", "left": "blocked", "right": "blocked", "merge": "blocked"}
    complete(app, order, "fetch")
    assert states(app, order) == {"fetch": "completed", "left": "pending", "right": "pending", "merge": "blocked"}
    complete(app, order, "left")
    assert states(app, order)["merge"] == "blocked"
    complete(app, order, "right")
    assert states(app, order)["merge"] == "pending"
    complete(app, order, "merge")
    assert finalize(app, order).state == "completed"


def test_a_blocked_step_is_not_claimed(app: Any) -> None:
    order = start(app, step("fetch"), step("merge", "fetch"))
    assert [held.task.type for held in app.claim_many(WORKER, 10)] == ["fetch"]
    with pytest.raises(dibs.NotClaimable):
        claim(app, order, "merge")


def test_a_workflow_advances_when_its_steps_are_finished_in_one_batch(app: Any) -> None:
    order = start(app, *DIAMOND)
    assert drive(app) == [["fetch"], ["left", "right"], ["merge"]]
    assert state(app, order) == "completed"


def test_a_graph_may_list_a_child_before_its_parent(app: Any) -> None:
    start(app, step("merge", "fetch"), step("fetch"))
    assert drive(app) == [["fetch"], ["merge"]]


def test_a_step_with_a_thousand_children_that_have_a_common_child_runs_to_the_end(app: Any) -> None:
    parts = [f"part-{n}" for n in range(1000)]
    fan = [NewStep(name=part, task=NewTask("render"), after=["fetch"]) for part in parts]
    order = start(app, step("fetch"), *fan, step("merge", *parts))
    assert [len(some) for some in drive(app)] == [1, 1000, 1]
    assert (state(app, order), app.get_workflow(order).ended) == ("completed", 1002)
    assert [each.result for each in app.results(task_of(app, order, "merge"))] == ["render"] * 1000


def test_a_chain_of_a_thousand_steps_runs_one_after_the_other(app: Any) -> None:
    links = [step("0"), *(step(str(n), str(n - 1)) for n in range(1, LINKS))]
    order = start(app, *links)
    held = app.claim_many(WORKER, 10)
    for n in range(LINKS):
        assert [each.task.type for each in held] == [str(n)]
        answers, held = app.exchange([(held[0], dibs.Completed(n))], WORKER, count=10)
        assert answers[0].state is State.COMPLETED
    assert (held, due(app)) == ([], [order])
    assert finalize(app, order).state == "completed"


def test_a_graph_of_ten_thousand_steps_is_stored_whole(app: Any) -> None:
    layers = [[f"{layer}-{n}" for n in range(100)] for layer in range(100)]
    steps = [NewStep(name=name, task=NewTask("t")) for name in layers[0]]
    for above, layer in pairwise(layers):
        steps += [NewStep(name=name, task=NewTask("t"), after=[above[n]]) for n, name in enumerate(layer)]
    order = start(app, *steps)
    workflow = app.get_workflow(order)
    assert (workflow.steps, workflow.active, workflow.ended) == (10_000, 100, 0)
    assert app.execution_context(order).by_state == {"pending": 100, "blocked": 9_900}
    assert [len(app.claim_many(WORKER, 1000)), len(app.claim_many(WORKER, 1000))] == [100, 0]


def test_a_workflow_without_steps_is_due_at_once(app: Any) -> None:
    order = start(app)
    assert due(app) == [order]
    assert finalize(app, order).state == "completed"


def test_steps_of_two_workflows_in_one_batch_advance_both(app: Any) -> None:
    first, second = start(app, *DIAMOND), start(app, *DIAMOND)
    drive(app)
    assert (state(app, first), state(app, second)) == ("completed", "completed")


def test_steps_and_plain_tasks_in_one_batch_are_both_finished(app: Any) -> None:
    task = app.enqueue("plain")
    order = start(app, step("fetch"), step("merge", "fetch"))
    assert drive(app) == [["fetch", "plain"], ["merge"]]
    assert (app.get(task.id).state, state(app, order)) == (State.COMPLETED, "completed")
    assert app.get(task.id).workflow_id is None


def test_a_step_is_a_task_that_knows_its_workflow(app: Any) -> None:
    order = start(app, step("fetch", params={"url": "x"}, queue="net", priority=3, max_attempts=7))
    task = app.get(task_of(app, order, "fetch"))
    assert (task.workflow_id, task.params, task.queue, task.priority, task.max_attempts) == (
        order,
        {"url": "x"},
        "net",
        3,
        7,
    )


def test_steps_are_claimed_by_priority_among_all_tasks(app: Any) -> None:
    app.enqueue("plain", priority=5)
    start(app, step("low", priority=1), step("high", priority=9))
    assert [app.claim(WORKER).task.type for _ in range(3)] == ["high", "plain", "low"]


def test_parents_that_complete_concurrently_unblock_their_child_once(app: Any) -> None:
    parts = [f"part-{n}" for n in range(12)]
    order = start(app, *(step(part) for part in parts), step("merge", *parts), step("also", *parts))
    claims = app.claim_many(WORKER, 12)
    barrier = Barrier(12)

    def end(held: Any) -> Any:
        barrier.wait()
        return app.complete(held)

    with ThreadPoolExecutor(12) as pool:
        assert {done.state for done in pool.map(end, claims)} == {State.COMPLETED}
    assert (app.get_workflow(order).ended, app.get_workflow(order).active) == (12, 2)
    assert events(app, task_of(app, order, "merge")) == ["enqueued", "promoted"]
    assert drive(app) == [["also", "merge"]]
    assert state(app, order) == "completed"


# What a workflow shows


def test_a_workflow_shows_its_progress(app: Any, clock: Clock) -> None:
    new = NewWorkflow(name="order", steps=DIAMOND, key="order-7", deadline=3600)
    workflow = app.start_workflow(new)
    assert (workflow.name, workflow.key, workflow.state, workflow.on_failure) == ("order", "order-7", "running", "fail")
    assert (workflow.steps, workflow.active, workflow.ended, workflow.failures) == (4, 1, 0, 0)
    assert (workflow.created_at, workflow.finished_at) == (moment(clock), None)
    assert (workflow.root_id, workflow.step_of, workflow.finalizer_id) == (workflow.id, None, None)
    assert (workflow.deadline - workflow.created_at).total_seconds() == 3600
    drive(app)
    ended = app.get_workflow(workflow.id)
    assert (ended.active, ended.ended, ended.finished, ended.finished_at) == (0, 4, True, moment(clock))


def test_a_workflow_shows_the_queues_of_its_tasks(app: Any) -> None:
    inside = sub("pages", step("b", queue="pages"), finalizer=NewTask("end", queue="late"))
    order = start(app, step("a", queue="net"), inside)
    assert app.get_workflow(order).queues == ["late", "net", "pages"]


def test_a_step_shows_its_parents(app: Any) -> None:
    order = start(app, *DIAMOND)
    steps = by_name(app, order)
    assert steps["merge"].after == [steps["left"].task_id, steps["right"].task_id]
    assert (steps["merge"].waits, steps["fetch"].waits, steps["fetch"].after) == (2, 0, [])
    assert (steps["fetch"].kind, steps["fetch"].type, steps["fetch"].passed) == ("task", "fetch", None)
    complete(app, order, "fetch")
    assert by_name(app, order)["fetch"].passed is True


def test_workflows_are_listed_newest_first_page_by_page(app: Any) -> None:
    ids = [start(app, step("a"), name=name) for name in ("one", "two", "one")]
    drive(app)
    last = start(app, step("a"), sub("inside", step("b")), name="one")
    assert [each.id for each in app.list_workflows()] == [last, *reversed(ids)]
    assert [each.id for each in app.list_workflows(name="one", state="completed")] == [ids[2], ids[0]]
    assert [each.id for each in app.list_workflows(limit=2)] == [last, ids[2]]
    assert [each.id for each in app.list_workflows(limit=2, cursor=ids[2])] == [ids[1], ids[0]]


def test_an_unknown_workflow_is_not_found(app: Any) -> None:
    assert app.get_workflow(404) is None
    for verb in (app.steps, app.cancel_workflow, app.retry_workflow, app.execution_context):
        with pytest.raises(dibs.WorkflowNotFound) as refused:
            verb(404)
        assert refused.value.workflow_id == 404
    assert app.results(404) == []


# Results


def test_a_step_reads_the_results_of_its_parents_in_the_order_of_the_graph(app: Any) -> None:
    order = start(app, step("b"), step("a"), step("other"), step("merge", "a", "b"))
    complete(app, order, "a", {"n": [1, None]})
    complete(app, order, "b")
    results = app.results(task_of(app, order, "merge"))
    assert [(each.name, each.type, each.state, each.result) for each in results] == [
        ("b", "b", "completed", None),
        ("a", "a", "completed", {"n": [1, None]}),
    ]


def test_a_task_that_is_not_a_step_has_no_results_of_parents(app: Any) -> None:
    assert app.results(app.enqueue("plain").id) == []


def test_a_finalizer_reads_the_results_of_steps_without_children(app: Any) -> None:
    order = start(app, *DIAMOND, step("apart"), finalizer=NewTask("report"))
    complete(app, order, "fetch", "unseen")
    complete(app, order, "apart", 1)
    complete(app, order, "left")
    complete(app, order, "right")
    complete(app, order, "merge", 2)
    finalize(app, order)
    held = claim(app, order, "(finalizer)")
    assert {each.name: each.result for each in app.results(held.task_id)} == {"merge": 2, "apart": 1}


# Finalizers


def test_a_finalizer_runs_once_when_all_steps_are_done(app: Any) -> None:
    order = start(app, step("a"), step("b"), finalizer=NewTask("report", {"to": "ops"}))
    complete(app, order, "a")
    assert states(app, order) == {"a": "completed", "b": "pending", "(finalizer)": "blocked"}
    complete(app, order, "b")
    assert states(app, order)["(finalizer)"] == "blocked"  # until a processor holds the finalization
    assert (finalize(app, order).state, due(app)) == ("finalizing", [])
    held = app.claim(WORKER)
    assert (held.task.type, held.task.params, held.task.workflow_id) == ("report", {"to": "ops"}, order)
    app.complete(held, "sent")
    assert (state(app, order), due(app), app.claim(WORKER)) == ("completed", [], None)


def test_a_finalizer_is_retried_like_any_task(app: Any, clock: Clock) -> None:
    order = start(app, step("a"), finalizer=NewTask("report", max_attempts=2))
    complete(app, order, "a")
    finalize(app, order)
    app.fail(app.claim(WORKER), "not yet", retry_in=5)
    assert state(app, order) == "finalizing"
    clock.advance(5)
    app.complete(app.claim(WORKER))
    assert state(app, order) == "completed"


def test_the_reply_to_the_last_outcome_reports_that_the_workflow_is_due_for_finalization(app: Any, engine: str) -> None:
    order = start(app, step("a"), step("b"))
    assert complete(app, order, "a").finalize is None
    held = claim(app, order, "b")
    last = app.complete(held)
    if engine.startswith("http"):
        return  # the server knows, and does it
    assert last.finalize == order
    assert app.complete(held).finalize is None  # repeated, it is not due again


@pytest.mark.database("over HTTP the server finalizes")
def test_the_replies_to_a_batch_report_each_workflow_that_is_due_for_finalization_once(app: Any) -> None:
    orders = {start(app, step("a"), step("b")) for _ in range(3)}
    claims = app.claim_many(WORKER, 10)
    answers = app.finish([(held, dibs.Completed()) for held in claims])
    told = [answer.finalize for answer in answers if answer.finalize is not None]
    assert (len(told), set(told)) == (3, orders)


# Delays


def test_a_delay_begins_when_the_parents_are_done(app: Any, clock: Clock) -> None:
    order = start(app, step("fetch"), step("later", "fetch", delay=60))
    clock.advance(300)
    complete(app, order, "fetch")
    task = app.get(task_of(app, order, "later"))
    assert (task.state, (task.run_at - moment(clock)).total_seconds()) == (State.SCHEDULED, 60)
    assert (app.claim(WORKER), due(app)) == (None, [])
    clock.advance(60)
    assert app.claim(WORKER).task.type == "later"


def test_a_future_run_at_applies_also_after_the_parents_are_done(app: Any, clock: Clock) -> None:
    at = moment(clock)
    clock.advance(-60)
    order = start(app, step("fetch"), step("later", "fetch", run_at=at), step("first", run_at=at))
    assert states(app, order) == {"fetch": "pending", "later": "blocked", "first": "scheduled"}
    complete(app, order, "fetch")
    assert states(app, order)["later"] == "scheduled"
    clock.advance(60)
    assert drive(app) == [["first", "later"]]


def test_a_run_at_that_is_past_when_the_parents_are_done_delays_nothing(app: Any, clock: Clock) -> None:
    at = moment(clock)
    clock.advance(-60)
    order = start(app, step("fetch"), step("later", "fetch", run_at=at))
    clock.advance(120)
    complete(app, order, "fetch")
    assert states(app, order)["later"] == "pending"


# Refused before anything is stored


def bad_graphs() -> dict[str, Callable[[], Any]]:
    return {
        "Two steps are named 'a'": lambda: NewWorkflow(name="x", steps=[step("a"), step("a")]),
        "'b', which is not a step": lambda: NewWorkflow(name="x", steps=[step("a", "b")]),
        "wait for each other: a → a": lambda: NewWorkflow(name="x", steps=[step("a", "a")]),
        "wait for each other: a → c → b → a|a → b → c → a": lambda: NewWorkflow(
            name="x", steps=[step("a", "c"), step("b", "a"), step("c", "b"), step("d")]
        ),
        "names a parent twice": lambda: NewWorkflow(name="x", steps=[step("a"), step("b", "a", "a")]),
        "is reserved for the finalizer": lambda: NewWorkflow(name="x", steps=[step("(finalizer)")]),
        "'inner', which is not a step": lambda: NewWorkflow(
            name="x", steps=[sub("s", step("inner")), step("outer", "inner")]
        ),
    }


@pytest.mark.parametrize("message", list(bad_graphs()))
def test_a_graph_that_could_not_run_to_its_end_is_refused_when_it_is_constructed(message: str) -> None:
    with pytest.raises(dibs.InvalidGraph, match=message):
        bad_graphs()[message]()


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"name": ""}, "name of a workflow"),
        ({"on_failure": "explode"}, "'explode' is not a valid on_failure"),
        ({"deadline": 0}, "deadline"),
        ({"deadline": "tomorrow"}, "deadline"),
        ({"finalizer": NewTask("t", key="k")}, "The finalizer has a key"),
        ({"key": ""}, "key"),
    ],
)
def test_a_workflow_with_an_invalid_value_is_refused_when_it_is_constructed(about: Any, message: str) -> None:
    with pytest.raises(dibs.InvalidValue, match=message):
        NewWorkflow(**{"name": "x", **about})


def test_a_step_is_a_task_or_a_workflow_and_has_no_key_of_its_own() -> None:
    with pytest.raises(dibs.InvalidValue, match="either a task or a workflow"):
        NewStep(name="a")
    with pytest.raises(dibs.InvalidValue, match="either a task or a workflow"):
        NewStep(name="a", task=NewTask("t"), workflow=NewWorkflow(name="w"))
    with pytest.raises(dibs.InvalidValue, match="has a key"):
        step("a", key="k")
    with pytest.raises(dibs.InvalidValue, match="has a key"):
        sub("a", key="k")


@pytest.mark.parametrize("key", [None, "order-7"])
def test_a_graph_with_params_that_are_not_json_is_refused_and_stores_nothing(
    app: Any, url: str, key: str | None
) -> None:
    app.queues()
    before = tables.read(url)
    for value in (float("nan"), object(), 2**64, "\ud800"):
        with pytest.raises(dibs.InvalidValue):
            start(app, step("a"), step("b", params={"n": value}), key=key)
    assert tables.read(url) == before


def test_params_are_checked_against_the_schemas_of_their_types(app: Any, url: str) -> None:
    app.register_type("ship", {"type": "object", "required": ["order"]}, {"by": "sea"})
    before = tables.read(url)
    for steps in ([step("a"), step("ship")], [sub("inside", step("ship"))]):
        with pytest.raises(dibs.SchemaViolation):
            start(app, *steps)
    with pytest.raises(dibs.SchemaViolation):
        start(app, step("a"), finalizer=NewTask("ship"))
    assert tables.read(url) == before
    order = start(app, step("ship", params={"order": 7}))
    task = app.get(task_of(app, order, "ship"))
    assert (task.params, task.type_version) == ({"order": 7, "by": "sea"}, 1)


# In the user's own transaction


@pytest.fixture
def mine(app: Any, url: str) -> Iterator[Borrowed]:
    """A connection of the user's own, beside a table of the user's own."""
    app.queues()
    run_sql(url, "CREATE TABLE orders (id integer PRIMARY KEY)")
    borrowed = Borrowed(app, url, {})
    yield borrowed
    borrowed.close()


@on_databases
def test_a_graph_in_the_users_transaction_is_undone_by_its_rollback(app: Any, url: str, mine: Borrowed) -> None:
    before = tables.read(url)
    mine.execute("INSERT INTO orders VALUES (7)")
    start(app.on(mine.connection), *DIAMOND, sub("pages", step("page")), finalizer=NewTask("report"), key="order-7")
    assert tables.read(url) == before  # other connections do not see it yet
    mine.rollback()
    assert (tables.read(url), run_sql(url, "SELECT count(*) FROM orders")) == (before, [(0,)])


@on_databases
def test_a_graph_in_the_users_transaction_runs_after_its_commit(app: Any, url: str, mine: Borrowed) -> None:
    mine.execute("INSERT INTO orders VALUES (7)")
    order = start(app.on(mine.connection), *DIAMOND)
    assert app.get_workflow(order) is None
    mine.commit()
    drive(app)
    assert (state(app, order), run_sql(url, "SELECT count(*) FROM orders")) == ("completed", [(1,)])


@on_databases
def test_a_step_finished_in_the_users_transaction_advances_with_its_commit(app: Any, mine: Borrowed) -> None:
    order = start(app, step("fetch"), step("merge", "fetch"))
    held = claim(app, order, "fetch")
    app.on(mine.connection).complete(held, 7)
    assert states(app, order) == {"fetch": "claimed", "merge": "blocked"}
    mine.rollback()
    assert states(app, order) == {"fetch": "claimed", "merge": "blocked"}
    app.on(mine.connection).complete(held, 8)
    mine.commit()
    assert states(app, order) == {"fetch": "completed", "merge": "pending"}
    assert app.results(task_of(app, order, "merge"))[0].result == 8


@on_databases
def test_a_whole_workflow_can_run_in_one_transaction_of_the_user(app: Any, mine: Borrowed) -> None:
    joined = app.on(mine.connection)
    order = start(joined, step("a"), step("b", "a"))
    complete(joined, order, "a")
    complete(joined, order, "b")
    assert finalize(joined, order).state == "completed"
    mine.commit()
    assert state(app, order) == "completed"


VERBS: dict[str, Callable[[Any, int, Any], Any]] = {
    "add_steps": lambda app, order, held: app.add_steps(order, [step("more", "a")]),
    "complete with steps": lambda app, order, held: app.complete(held, steps=[step("more")]),
    "fail": lambda app, order, held: app.fail(held, "broken", permanent=True),
    "cancel a step": lambda app, order, held: app.cancel(task_of(app, order, "c")),
    "cancel_workflow": lambda app, order, held: app.cancel_workflow(order),
    "claim_finalization": lambda app, order, held: app.claim_finalization(order, "processor-2"),
    "finalize": lambda app, order, held: finalize(app, order),
    "keep_checkpoint": lambda app, order, held: app.keep_checkpoint(held, "downloaded", 1),
}


@on_databases
@pytest.mark.parametrize("verb", list(VERBS))
def test_a_workflow_call_in_the_users_transaction_is_stored_with_its_commit(
    app: Any, url: str, mine: Borrowed, verb: str
) -> None:
    order = start(app, step("a"), step("b"), step("c", "b"))
    complete(app, order, "a")
    held = claim(app, order, "b")
    before = tables.read(url)
    VERBS[verb](app.on(mine.connection), order, held)
    assert tables.read(url) == before
    mine.rollback()
    assert tables.read(url) == before
    VERBS[verb](app.on(mine.connection), order, held)
    mine.commit()
    assert tables.read(url) != before


# Keys


def test_the_same_key_and_graph_give_the_same_workflow(app: Any, url: str) -> None:
    new = NewWorkflow(name="order", steps=DIAMOND, key="order-7", finalizer=NewTask("report"))
    first = app.start_workflow(new)
    before = tables.read(url)
    again = app.start_workflow(new)
    assert (first.deduplicated, again.deduplicated, again.id) == (False, True, first.id)
    assert tables.read(url) == before


def test_a_repeated_start_returns_the_workflow_in_its_current_state(app: Any) -> None:
    new = NewWorkflow(name="order", steps=[step("a")], key="order-7")
    app.start_workflow(new)
    drive(app, {"a": BROKEN})
    again = app.start_workflow(new)
    assert (again.deduplicated, again.state, drive(app)) == (True, "failed", [])


def test_params_with_their_keys_in_another_order_are_the_same_graph(app: Any) -> None:
    first = start(app, step("a", params={"x": {"p": 1, "q": 2}, "y": 2}), key="k")
    assert start(app, step("a", params={"y": 2, "x": {"q": 2, "p": 1}}), key="k") == first


def test_equal_times_in_another_notation_are_the_same_graph(app: Any) -> None:
    late = datetime(2099, 1, 1, 12, tzinfo=UTC)
    there = late.astimezone(timezone(timedelta(hours=5)))
    first = start(app, step("a", delay=60, timeout=5), step("b", run_at=late), key="k", deadline=90)
    assert start(app, step("a", delay=60.0, timeout=5.0), step("b", run_at=there), key="k", deadline=90.0) == first


OTHERS = {
    "another deadline": {"deadline": 60},
    "another name": {"name": "other"},
    "other params": {"steps": [step("a", params={"n": 1}), step("b", "a")]},
    "another edge": {"steps": [step("a"), step("b")]},
    "one step more": {"steps": [step("a"), step("b", "a"), step("c")]},
    "another policy": {"on_failure": "continue"},
    "a finalizer": {"finalizer": NewTask("report")},
}


@pytest.mark.parametrize("other", list(OTHERS))
def test_another_graph_under_the_same_key_is_a_conflict_that_names_the_workflow(app: Any, url: str, other: str) -> None:
    graph: dict[str, Any] = {"name": "order", "steps": [step("a"), step("b", "a")], "key": "order-7"}
    first = app.start_workflow(NewWorkflow(**graph))
    before = tables.read(url)
    with pytest.raises(dibs.KeyConflict) as refused:
        app.start_workflow(NewWorkflow(**{**graph, **OTHERS[other]}))
    assert (refused.value.key, refused.value.workflow_id) == ("order-7", first.id)
    assert tables.read(url) == before


def test_the_same_key_for_a_graph_in_other_queues_is_another_workflow(app: Any) -> None:
    graphs = [
        [step("a", queue="mail"), step("b", "a", queue="mail")],
        [step("a", queue="media"), step("b", "a", queue="media")],
        [step("a", queue="mail"), step("b", "a", queue="media")],
    ]
    started = [app.start_workflow(NewWorkflow(name="order", steps=graph, key="k")) for graph in graphs]
    assert [each.deduplicated for each in started] == [False] * 3
    again = [app.start_workflow(NewWorkflow(name="order", steps=graph, key="k")) for graph in graphs]
    assert [(each.id, each.deduplicated) for each in again] == [(each.id, True) for each in started]
    with pytest.raises(dibs.KeyConflict) as refused:
        app.start_workflow(NewWorkflow(name="other", steps=graphs[2], key="k"))
    assert refused.value.workflow_id == started[2].id


def test_a_workflow_that_grew_into_another_queue_keeps_its_key(app: Any) -> None:
    new = NewWorkflow(name="order", steps=[step("a")], key="k")
    first = app.start_workflow(new)
    app.add_steps(first.id, [step("b", queue="other")])
    again = app.start_workflow(new)
    assert (again.id, again.deduplicated, again.queues) == (first.id, True, ["default", "other"])


def test_keys_of_tasks_and_keys_of_workflows_are_independent(app: Any) -> None:
    app.enqueue("a", key="k")
    assert not app.start_workflow(NewWorkflow(name="order", steps=[step("a")], key="k")).deduplicated


def test_twenty_concurrent_callers_with_one_key_start_one_workflow(app: Any) -> None:
    barrier = Barrier(20)
    new = NewWorkflow(name="order", steps=DIAMOND, key="order-7")

    def call(_: int) -> Any:
        barrier.wait()
        return app.start_workflow(new)

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(call, range(20)))
    assert len({answer.id for answer in answers}) == 1
    assert sorted(answer.deduplicated for answer in answers) == [False] + [True] * 19
    assert (len(app.list_workflows()), len(app.list_tasks())) == (1, 4)


# History


def test_the_history_of_a_step_records_when_it_was_blocked_and_when_it_became_pending(app: Any) -> None:
    order = start(app, step("a"), step("b", "a"), step("c", "a", delay=60))
    complete(app, order, "a")
    complete(app, order, "b")
    assert events(app, task_of(app, order, "a")) == ["enqueued", "claimed", "completed"]
    assert events(app, task_of(app, order, "b")) == ["enqueued", "promoted", "claimed", "completed"]
    waits = [(each.from_state, each.to_state) for each in app.history(task_of(app, order, "c"))]
    assert waits == [(None, "blocked"), ("blocked", "scheduled")]
