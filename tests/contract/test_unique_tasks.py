"""Unique tasks: how long a key is in force, and what an enqueue does that meets a task with its key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import dibs
from dibs import Event, Failed, Failure, InvalidValue, KeyConflict, NewTask, State
from dibs.model.checks import from_micros
from dibs.observe.verify import verify
from tests.contract.test_idempotency import apps, race
from tests.helpers import tables
from tests.helpers.clients import Clock
from tests.helpers.processes import ask_all, processes
from tests.helpers.retention import NOTHING, keep

__all__ = ["apps"]

OLD, NEW = {"n": 1}, {"n": 2}
DEBOUNCED = {"key": "k", "key_scope": "until_started", "on_conflict": "replace"}


def enqueue(app: Any, params: dict[str, Any] = OLD, **options: Any) -> Any:
    return app.enqueue("index", params, **{"key": "k", **options})


def reach(app: Any, clock: Clock, task: Any, state: str) -> None:
    """Bring the new task into this state."""
    if state == "scheduled":
        return
    if state == "cancelled":
        app.cancel(task.id)
        return
    clock.advance(10)
    app.promote()
    if state == "pending":
        return
    claim = app.claim_by_id(task.id, "worker-1")
    match state:
        case "released":
            app.release(claim)
        case "retrying":
            app.fail(claim, "broken")
        case "completed":
            app.complete(claim)
        case "failed":
            app.finish([(claim, Failed(Failure("E", "broken"), permanent=True))])


STATES = ("scheduled", "pending", "claimed", "released", "retrying", "completed", "failed", "cancelled")
WAITING = {"scheduled", "pending"}
UNFINISHED = WAITING | {"claimed", "released", "retrying"}
IN_FORCE = {
    "always": set(STATES),
    "until_finished": UNFINISHED,
    "until_started": WAITING,
    "key_for": set(STATES),
}


def scope_options(scope: str) -> dict[str, Any]:
    return {"key_for": 3600} if scope == "key_for" else {"key_scope": scope}


@pytest.mark.parametrize("scope", IN_FORCE)
@pytest.mark.parametrize("state", STATES)
def test_a_key_is_in_force_for_its_scope_and_the_rule_for_conflicts_decides(
    app: Any, clock: Clock, scope: str, state: str
) -> None:
    """Every scope, state of the existing task, rule, and equal or other content."""
    options = scope_options(scope)
    for nth, rule in enumerate(("return", "keep", "raise", "replace")):
        for same in (True, False):
            key = f"{nth}-{same}"
            old = enqueue(app, key=key, delay=5, **options)
            reach(app, clock, old, state)
            found = app.get(old.id)
            params = OLD if same else NEW
            if state not in IN_FORCE[scope]:
                new = enqueue(app, params, key=key, on_conflict=rule, **options)
                assert (new.id != old.id, new.deduplicated, new.replaced) == (True, False, False), (rule, same)
                app.cancel(new.id)
            elif rule == "replace" and state in WAITING:
                new = enqueue(app, params, key=key, on_conflict=rule, **options)
                assert (new.id, new.deduplicated, new.replaced) == (old.id, True, True)
                assert (new.params, new.state) == (params, State.PENDING)
                assert app.get(old.id).params == params
            elif rule == "keep" or (same and rule != "raise"):
                again = enqueue(app, params, key=key, on_conflict=rule, **options)
                assert (again.id, again.deduplicated, again.replaced) == (old.id, True, False)
                assert (again.params, again.state) == (OLD, found.state)
            else:
                with pytest.raises(KeyConflict) as refused:
                    enqueue(app, params, key=key, on_conflict=rule, **options)
                assert (refused.value.key, refused.value.task_id) == (key, old.id)
                assert app.get(old.id) == found


def test_the_task_shows_the_scope_of_its_key(app: Any, clock: Clock) -> None:
    assert app.enqueue("index").key_scope is None
    for scope in ("always", "until_finished", "until_started"):
        task = enqueue(app, key=scope, key_scope=scope)
        assert (task.key_scope, task.key_until) == (scope, None)
        assert app.get(task.id) == task
    task = enqueue(app, key="timed", key_for=60)
    assert (task.key_scope, task.key_until) == ("until_time", from_micros(clock.now + 60_000_000))
    assert app.get(task.id) == task


def test_the_scope_of_the_existing_task_counts_not_that_of_the_new_one(app: Any) -> None:
    old = enqueue(app, key_scope="until_started")
    assert enqueue(app, key_scope="always").id == old.id
    app.claim("worker-1")
    new = enqueue(app, key_scope="always")
    assert new.id != old.id
    assert enqueue(app, key_scope="until_started").id == new.id


def test_a_key_of_another_queue_is_not_touched(app: Any) -> None:
    ours, theirs = enqueue(app, **DEBOUNCED), enqueue(app, queue="theirs", **DEBOUNCED)
    assert enqueue(app, NEW, **DEBOUNCED).id == ours.id
    assert app.get(theirs.id).params == OLD


# Replace


def test_a_replacement_changes_content_due_time_expiry_group_and_limits_and_nothing_else(
    app: Any, clock: Clock
) -> None:
    for name in ("one", "other"):
        app.set_limit(name, max=1)
    first = {"tags": ["a"], "group": "acme", "limits": ["one"], "expires_in": 600}
    old = enqueue(app, priority=1, max_attempts=2, timeout=9, **first, **DEBOUNCED)
    clock.advance(3)
    second = {"tags": ["b"], "group": "bolt", "limits": ["other"], "expires_in": 900}
    new = enqueue(app, NEW, priority=5, delay=60, max_attempts=7, timeout=1, **second, **DEBOUNCED)
    assert (new.params, new.priority, new.tags, new.state) == (NEW, 5, ["b"], State.SCHEDULED)
    assert (new.group, new.limits) == ("bolt", ["other"])
    assert new.run_at == from_micros(clock.now + 60_000_000)
    assert new.expires_at == from_micros(clock.now + 900_000_000)
    assert (new.max_attempts, new.timeout, new.created_at, new.token) == (2, 9, old.created_at, 0)
    stored = app.get(old.id)
    assert (stored.params, stored.priority, stored.tags, stored.run_at) == (NEW, 5, ["b"], new.run_at)


def test_a_replacement_is_in_the_history_with_the_names_of_what_changed(app: Any) -> None:
    task = enqueue(app, delay=60, **DEBOUNCED)
    enqueue(app, NEW, priority=5, **DEBOUNCED)
    enqueue(app, NEW, priority=5, tags=["a"], **DEBOUNCED)
    moves = [(entry.event, entry.from_state, entry.to_state, entry.detail) for entry in app.history(task.id)]
    assert moves == [
        (Event.ENQUEUED, None, "scheduled", None),
        (Event.REPLACED, "scheduled", "pending", {"changed": ["params", "priority", "run_at"]}),
        (Event.REPLACED, "pending", "pending", {"changed": ["tags"]}),
    ]


def test_the_counts_of_states_follow_a_replacement(app: Any) -> None:
    enqueue(app, delay=60, **DEBOUNCED)
    assert app.stats().depth == {"scheduled": 1}
    enqueue(app, **DEBOUNCED)
    assert app.stats().depth == {"pending": 1}
    enqueue(app, delay=60, **DEBOUNCED)
    assert app.stats().depth == {"scheduled": 1}
    assert app.claim("worker-1") is None


def test_a_burst_of_replacements_runs_once_after_the_last_one(app: Any, clock: Clock) -> None:
    for n in range(5):
        enqueue(app, {"n": n}, delay=5, **DEBOUNCED)
        clock.advance(4)
        assert app.claim("worker-1") is None
    clock.advance(1)
    assert app.claim("worker-1").task.params == {"n": 4}
    assert app.claim("worker-1") is None


def test_max_delay_counts_from_the_first_enqueue(app: Any, clock: Clock) -> None:
    for n in range(3):
        enqueue(app, {"n": n}, delay=5, max_delay=13, **DEBOUNCED)
        clock.advance(4)
        assert app.claim("worker-1") is None
    task = enqueue(app, {"n": 3}, delay=5, max_delay=13, **DEBOUNCED)
    assert task.run_at == from_micros(clock.now + 1_000_000)
    clock.advance(2)
    late = enqueue(app, {"n": 3}, delay=5, max_delay=13, **DEBOUNCED)
    assert (late.replaced, late.state) == (True, State.PENDING)
    assert app.claim("worker-1").task.params == {"n": 3}


def test_a_longer_delay_than_max_delay_is_shortened(app: Any, clock: Clock) -> None:
    first = enqueue(app, delay=50, max_delay=10, **DEBOUNCED)
    clock.advance(1)
    second = enqueue(app, delay=50, max_delay=10, **DEBOUNCED)
    assert first.run_at == second.run_at == from_micros(clock.now + 9_000_000)


def test_a_replaced_task_of_a_paused_queue_stays_claimable_after_the_resume(app: Any) -> None:
    app.pause("default")
    enqueue(app, **DEBOUNCED)
    app.promote()
    enqueue(app, {"n": 2}, delay=60, **DEBOUNCED)
    enqueue(app, {"n": 3}, **DEBOUNCED)
    assert app.claim("worker-1") is None
    app.resume("default")
    assert app.claim("worker-1").task.params == {"n": 3}


@pytest.mark.parametrize("order", ["random", "weighted", "fifo", "lifo", "priority"])
def test_a_replaced_task_is_claimed_in_every_order(app: Any, order: str) -> None:
    app.enqueue("other")
    app.claim("worker-1", order=order)
    enqueue(app, delay=60, **DEBOUNCED)
    enqueue(app, NEW, priority=3, **DEBOUNCED)
    assert app.claim("worker-1", order=order).task.params == NEW


def test_another_type_is_not_replaced(app: Any) -> None:
    old = enqueue(app, **DEBOUNCED)
    with pytest.raises(KeyConflict) as refused:
        app.enqueue("other", OLD, **DEBOUNCED)
    assert refused.value.task_id == old.id


def test_a_replacement_is_validated_against_the_newest_schema(app: Any) -> None:
    old = enqueue(app, **DEBOUNCED)
    app.register_type("index", {"type": "object", "required": ["n"], "properties": {"n": {"maximum": 9}}}, {"m": 1})
    with pytest.raises(dibs.SchemaViolation):
        enqueue(app, {"n": 10}, **DEBOUNCED)
    assert app.get(old.id).params == OLD
    new = enqueue(app, NEW, **DEBOUNCED)
    assert (new.params, new.type_version) == ({"n": 2, "m": 1}, 1)


# In a batch


def test_a_batch_resolves_each_conflict_by_its_own_rule(app: Any) -> None:
    old = {key: enqueue(app, key=key, key_scope="until_started") for key in "abc"}
    batch = [
        NewTask("index", NEW, key="a", on_conflict="replace"),
        NewTask("index", NEW, key="b", on_conflict="keep"),
        NewTask("index", OLD, key="c"),
        NewTask("index", NEW, key="d", on_conflict="raise"),
        NewTask("index", NEW),
    ]
    tasks = app.enqueue_many(batch)
    assert [task.id for task in tasks[:3]] == [old[key].id for key in "abc"]
    assert [(task.deduplicated, task.replaced) for task in tasks] == [
        (True, True), (True, False), (True, False), (False, False), (False, False)
    ]  # fmt: skip
    assert [task.params["n"] for task in tasks] == [2, 1, 1, 2, 2]


def test_a_batch_with_a_conflict_replaces_nothing(app: Any, url: str) -> None:
    enqueue(app, key="a", key_scope="until_started")
    enqueue(app, key="b")
    before = tables.read(url)
    batch = [NewTask("index", NEW, key="a", on_conflict="replace"), NewTask("index", OLD, key="b", on_conflict="raise")]
    for tasks in (batch, batch[::-1]):
        with pytest.raises(KeyConflict):
            app.enqueue_many(tasks)
    assert tables.read(url) == before


def test_the_last_replacement_of_a_batch_is_what_runs(app: Any) -> None:
    batch = [NewTask("index", {"n": n}, **DEBOUNCED) for n in range(50)]
    tasks = app.enqueue_many(batch)
    assert len({task.id for task in tasks}) == 1
    assert [task.replaced for task in tasks] == [False] + [True] * 49
    assert app.stats().depth == {"pending": 1}
    assert app.claim("worker-1").task.params == {"n": 49}


def test_a_batch_that_keeps_after_a_replacement_keeps_the_new_content(app: Any) -> None:
    enqueue(app, key_scope="until_started")
    replaced, kept = app.enqueue_many(
        [NewTask("index", NEW, key="k", on_conflict="replace"), NewTask("index", OLD, key="k", on_conflict="keep")]
    )
    assert (replaced.replaced, kept.replaced, kept.params) == (True, False, NEW)


def test_other_content_twice_in_a_batch_is_kept_if_the_rule_says_so(app: Any) -> None:
    first, second = app.enqueue_many([NewTask("index", {"n": n}, key="k", on_conflict="keep") for n in range(2)])
    assert (second.id, second.params, second.deduplicated) == (first.id, {"n": 0}, True)


# The end of a key


def test_a_released_task_does_not_get_its_key_back(app: Any) -> None:
    """The first claim ends the key for good, so nothing can fail when the task waits again."""
    old = enqueue(app, key_scope="until_started")
    app.release(app.claim("worker-1"))
    new = enqueue(app, NEW, key_scope="until_started")
    assert new.id != old.id
    assert enqueue(app, NEW, key_scope="until_started").id == new.id


def outcome(kind: str) -> Any:
    return {
        "failed": Failed(Failure("E", "broken"), retry_in=0),
        "retry later": Failed(Failure("E", "broken")),
        "released": dibs.Released(),
    }[kind]


@pytest.mark.parametrize("scope", ["until_started", "until_finished"])
def test_returning_tasks_whose_keys_were_taken_hold_up_no_batch(app: Any, clock: Clock, scope: str) -> None:
    """Released, failed and recovered tasks beside plain ones, in one batch, while new tasks have the keys."""
    kinds = ["failed", "retry later", "released", "lost"]
    tasks = app.enqueue_many(
        [NewTask("index", OLD, key=kind, key_scope=scope) for kind in kinds] + [NewTask("index", OLD)] * 2
    )
    claims = app.claim_many("worker-1", 10, lease=30)
    others = [enqueue(app, OLD, key=kind, key_scope=scope) for kind in kinds]
    assert all(other.id != task.id for other, task in zip(others, tasks, strict=False)) is (scope == "until_started")
    reports = [(claim, outcome(claim.task.key or "failed")) for claim in claims if claim.task.key != "lost"]
    assert all(not isinstance(each, Exception) for each in app.finish(reports))
    clock.advance(1000)
    app.recover()
    app.promote()
    waiting = 10 if scope == "until_started" else 6
    assert len(app.claim_many("worker-2", 20)) == waiting


@pytest.mark.parametrize("scope", ["until_started", "until_finished"])
@pytest.mark.parametrize("by", ["retry", "retry_many", "redrive"])
def test_a_retried_task_has_its_key_again_unless_another_task_took_it(
    app: Any, clock: Clock, scope: str, by: str
) -> None:
    kept, taken = enqueue(app, key="free", key_scope=scope), enqueue(app, key="taken", key_scope=scope)
    for task in (kept, taken):
        end(app, task, by)
    other = enqueue(app, NEW, key="taken", key_scope=scope)
    retry(app, [kept, taken], by)
    assert app.get(kept.id).state == app.get(taken.id).state == State.PENDING
    started = scope == "until_started" and by == "redrive"  # a claim has ended these keys for good
    assert app.get(taken.id).key_scope == (scope if started else "ended")
    assert enqueue(app, NEW, key="taken", key_scope=scope).id == other.id
    again = enqueue(app, key="free", key_scope=scope)
    assert (again.id == kept.id) is not started


@pytest.mark.parametrize("by", ["retry_many", "redrive"])
def test_of_several_retried_tasks_with_one_key_one_has_it_again(app: Any, by: str) -> None:
    tasks = []
    for _ in range(5):
        tasks.append(enqueue(app, key_scope="until_finished"))
        end(app, tasks[-1], by)
    retry(app, tasks, by)
    assert app.stats().depth == {"pending": 5}
    assert Counter(app.get(task.id).key_scope for task in tasks) == {"until_finished": 1, "ended": 4}
    assert enqueue(app, key_scope="until_finished").deduplicated
    assert len(app.claim_many("worker-1", 9)) == 5


def end(app: Any, task: Any, by: str) -> None:
    if by == "redrive":
        app.finish([(app.claim_by_id(task.id, "worker-1"), Failed(Failure("E", "broken"), permanent=True))])
    else:
        app.cancel(task.id)


def retry(app: Any, tasks: list[Any], by: str) -> None:
    if by == "redrive":
        assert app.redrive() == len(tasks)
    elif by == "retry":
        for task in tasks:
            app.retry(task.id)
    else:
        assert app.retry_matching(state="cancelled") == len(tasks)


def test_a_search_finds_tasks_whose_keys_have_ended(app: Any) -> None:
    ids = []
    for scope in ("until_started", "until_finished", "always"):
        ids.append(enqueue(app, key_scope=scope).id)
        app.complete(app.claim("worker-1"))
    assert [task.id for task in app.list_tasks(key="k")] == ids[::-1]


# Keys for a time


def test_a_key_for_a_time_ends_at_that_time_whatever_the_task_does(app: Any, clock: Clock) -> None:
    old = enqueue(app, key_for=60)
    clock.advance(59)
    assert enqueue(app, key_for=60).id == old.id
    clock.advance(1)
    new = enqueue(app, NEW, key_for=60)
    assert (new.id != old.id, new.deduplicated) == (True, False)
    assert (app.get(old.id).key_scope, app.get(old.id).state) == ("ended", State.PENDING)
    clock.advance(30)
    assert enqueue(app, NEW).id == new.id


def test_a_key_for_a_time_outlives_its_pruned_task(app: Any, clock: Clock) -> None:
    old = enqueue(app, key_for=3600)
    app.complete(app.claim("worker-1"))
    keep(app, **NOTHING)
    app.prune()
    assert app.get(old.id) is None
    for options in ({"key_for": 60}, {}, {"on_conflict": "replace"}, {"on_conflict": "keep"}):
        again = enqueue(app, **options)
        assert (again.id, again.state, again.deduplicated, again.replaced) == (old.id, State.COMPLETED, True, False)
    with pytest.raises(KeyConflict) as refused:
        enqueue(app, NEW, key_for=60)
    assert refused.value.task_id == old.id
    with pytest.raises(KeyConflict):
        enqueue(app, on_conflict="raise")
    clock.advance(3600)
    new = enqueue(app, NEW, key_for=60)
    assert (new.id > old.id, new.deduplicated) == (True, False)
    assert enqueue(app, NEW, key_for=60).id == new.id


def test_keys_past_their_time_are_pruned(app: Any, clock: Clock, url: str) -> None:
    app.enqueue_many([NewTask("index", key=f"k{n}", key_for=60 if n < 700 else 600) for n in range(710)])
    clock.advance(100)
    app.prune()
    assert len(tables.read(url)["dibs_kept_keys"]) == 10
    assert app.enqueue("index", key="k705").deduplicated


# Repetitions of a request


@pytest.mark.parametrize("scope", ["until_started", "until_finished"])
def test_a_repeated_request_finds_its_task_though_the_key_has_ended(app: Any, url: str, scope: str) -> None:
    first = enqueue(app, key_scope=scope, request="r-1")
    app.complete(app.claim("worker-1"))
    before = tables.read(url)
    again = enqueue(app, key_scope=scope, request="r-1")
    assert (again.id, again.deduplicated, again.state) == (first.id, True, State.COMPLETED)
    assert tables.read(url) == before
    assert enqueue(app, key_scope=scope, request="r-2").id != first.id


def test_a_repeated_replacement_counts_once(app: Any, url: str) -> None:
    enqueue(app, **DEBOUNCED)
    first = enqueue(app, NEW, request="r-1", **DEBOUNCED)
    before = tables.read(url)
    again = enqueue(app, NEW, request="r-1", **DEBOUNCED)
    assert (again.id, again.replaced) == (first.id, True)
    assert tables.read(url) == before
    app.claim("worker-1")
    again = enqueue(app, NEW, request="r-1", **DEBOUNCED)
    assert (again.id, again.replaced, again.state) == (first.id, True, State.CLAIMED)
    assert app.stats().depth == {"claimed": 1}


def test_a_repeated_request_does_not_refuse_its_own_task(app: Any) -> None:
    first = enqueue(app, on_conflict="raise", request="r-1")
    assert enqueue(app, on_conflict="raise", request="r-1").id == first.id
    with pytest.raises(KeyConflict, match="on_conflict is 'raise'") as refused:
        enqueue(app, on_conflict="raise", request="r-2")
    assert "same type and params" not in refused.value.hint  # that would be no help: the content is the same
    assert "'keep'" in refused.value.hint


# Options


WRONG = (
    {"key": None, "key_scope": "until_started"},
    {"key": None, "key_for": 5},
    {"key": None, "on_conflict": "keep"},
    {"key": None, "request": "r"},
    {"key_scope": "sometimes"},
    {"key_scope": "until_time"},
    {"key_scope": "ended"},
    {"key_scope": None},
    {"key_scope": "until_started", "key_for": 5},
    {"key_for": 0},
    {"key_for": -1},
    {"key_for": "5"},
    {"key_for": float("nan")},
    {"on_conflict": "ignore"},
    {"on_conflict": None},
    {"max_delay": 5},
    {"max_delay": 5, "delay": 5},
    {"max_delay": 5, "on_conflict": "replace"},
    {"max_delay": -5, "delay": 5, "on_conflict": "replace"},
    {"request": "not an id"},
)


def test_wrong_options_are_refused_with_a_reason(app: Any) -> None:
    for options in WRONG:
        with pytest.raises(InvalidValue) as refused:
            enqueue(app, **options)
        assert str(refused.value).endswith((".", ".)")) or refused.value.message.endswith("."), options
    assert app.list_tasks() == []


def test_a_handler_has_defaults_for_the_keys_of_its_tasks(app: Any, clock: Clock) -> None:
    @app.task(key_scope="until_started", on_conflict="replace", delay=5, max_delay=60)
    def index(n: int) -> None: ...

    submit = app.enqueue_many
    first, second = (submit([index.options(key="k").new(n)])[0] for n in range(2))
    assert (first.id, second.replaced, second.params) == (second.id, True, {"n": 1})
    with pytest.raises(InvalidValue, match="this task has none"):
        index.new(1)
    with pytest.raises(InvalidValue, match="no key_scope 'never'"):
        app.task(name="other", key_scope="never")(lambda: None)
    step = index.new_step(1)
    assert (step.key, step.key_scope, step.on_conflict) == (None, "always", "return")


# Races


def test_a_hundred_concurrent_replacements_leave_one_waiting_task(apps: list[Any]) -> None:
    calls = [lambda app, n=n: app.enqueue("index", {"n": n}, **DEBOUNCED) for n in range(100)]
    tasks = race(apps, calls)
    assert len({task.id for task in tasks}) == 1
    assert Counter(task.replaced for task in tasks) == {False: 1, True: 99}
    assert apps[0].stats().depth == {"pending": 1}
    events = Counter(entry.event for entry in apps[0].all_history())
    assert events[Event.ENQUEUED] == 1
    assert 1 <= events[Event.REPLACED] <= 99  # a server carries out replacements that wait at the same moment at once


def test_of_concurrent_senders_that_raise_one_wins(apps: list[Any]) -> None:
    answers = race(apps, [lambda app, n=n: enqueue(app, {"n": n}, on_conflict="raise") for n in range(30)])
    assert Counter(isinstance(answer, KeyConflict) for answer in answers) == {False: 1, True: 29}


@pytest.mark.parametrize("scope", ["until_started", "until_finished"])
def test_replacements_and_claims_at_once_leave_at_most_one_waiting_task(apps: list[Any], scope: str) -> None:
    options = {**DEBOUNCED, "key_scope": scope}

    def send(app: Any, n: int) -> Any:
        return app.enqueue("index", {"n": n}, **options)

    def work(app: Any) -> Any:
        claim = app.claim("worker-1")
        return None if claim is None else (claim, app.complete(claim))

    calls = [(lambda app, n=n: send(app, n)) if n % 2 else work for n in range(60)]
    answers = race(apps, calls)
    depth = apps[0].stats().depth
    assert depth.get("pending", 0) <= 1
    kinds = (dibs.Task, dibs.AsyncTask, tuple, KeyConflict, type(None))
    assert all(isinstance(each, kinds) for each in answers), answers
    assert len(apps[0].claim_many("worker-2", 9)) <= 1


def test_retries_and_enqueues_of_one_key_at_once_leave_one_task_with_the_key(apps: list[Any]) -> None:
    app = apps[0]
    tasks = []
    for _ in range(10):
        tasks.append(enqueue(app, key_scope="until_finished"))
        app.cancel(tasks[-1].id)
    calls = [lambda app, task=task: app.retry(task.id) for task in tasks]
    calls += [lambda app: enqueue(app, key_scope="until_finished")] * 10
    answers = race(apps, calls)
    assert all(isinstance(answer, dibs.Task | dibs.AsyncTask) for answer in answers), answers
    assert {app.get(task.id).state for task in tasks} == {State.PENDING}
    scopes = Counter(task.key_scope for task in app.list_tasks(key="k"))
    assert scopes["until_finished"] == 1


def test_a_conflict_says_why_the_task_is_not_replaced(app: Any) -> None:
    task = enqueue(app, **DEBOUNCED | {"key_scope": "until_finished"})
    with pytest.raises(KeyConflict, match=f"belongs to task {task.id}, which has another type, so it is not replaced"):
        app.enqueue("other", OLD, **DEBOUNCED)
    app.claim("worker-1")
    with pytest.raises(KeyConflict, match=f"belongs to task {task.id}, which has started, so it is not replaced"):
        enqueue(app, NEW, **DEBOUNCED)


def test_a_replacement_has_the_expiry_of_the_new_content(app: Any, clock: Clock) -> None:
    enqueue(app, delay=5, expires_in=20, **DEBOUNCED)
    clock.advance(4)
    assert enqueue(app, delay=5, expires_in=20, **DEBOUNCED).expires_at == from_micros(clock.now + 20_000_000)
    assert enqueue(app, delay=5, **DEBOUNCED).expires_at is None
    clock.advance(60)
    assert app.claim("worker-1") is not None


@pytest.mark.parametrize("mode", ["sync"], indirect=True)
def test_a_hundred_senders_in_processes_leave_one_waiting_task_for_each_key(
    url: str, open_app: Callable[..., Any]
) -> None:
    app = open_app(url)
    with processes(app.url, 4, "tests.helpers.debouncer") as members:
        commands = [{"do": "send", "senders": 25, "calls": 4, "first": n * 100} for n in range(4)]
        sent = [each for answer in ask_all(members, commands) for each in answer]
    assert len(sent) == 100
    depth = app.stats().depth
    assert sum(depth.values()) == depth.get("pending", 0) + depth.get("scheduled", 0) == 3
    check_versions(sent, {task.id: task.params["version"] for task in app.list_tasks()})


@pytest.mark.parametrize("mode", ["sync"], indirect=True)
def test_processes_that_replace_tasks_while_others_run_them_run_the_last_replacement(
    url: str, open_app: Callable[..., Any]
) -> None:
    app = open_app(url)
    with processes(app.url, 5, "tests.helpers.debouncer") as members:
        commands = [{"do": "send", "senders": 4, "calls": 25, "first": n * 100} for n in range(3)]
        *answers, one, two = ask_all(members, [*commands, {"do": "work"}, {"do": "work"}])
    ran = {int(task_id): version for task_id, version in [*one.items(), *two.items()]}
    assert len(ran) == len(one) + len(two)  # no task ran twice
    check_versions([each for answer in answers for each in answer], ran)
    tasks = app.list_tasks(limit=1000)
    assert {task.id for task in tasks} == set(ran)  # no task waits
    report = verify(app.all_history(), tasks=tasks)
    assert report.ok, str(report)


def check_versions(sent: list[Any], ran: dict[int, int]) -> None:
    """Each task has the content of an accepted call about it, which its sender has not replaced by a later call; and
    one call has stored it."""
    last: dict[int, dict[int, int]] = {}
    for sender, calls in enumerate(sent):
        for _, version, task_id, _ in calls:
            last.setdefault(task_id, {})[sender] = version
    assert set(last) == set(ran)
    assert {task_id: version for task_id, version in ran.items() if version not in last[task_id].values()} == {}
    stored = [task_id for calls in sent for _, _, task_id, new in calls if new]
    assert sorted(stored) == sorted(ran)
