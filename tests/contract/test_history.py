"""The history: one entry for each transition, in the same transaction, and none for a refused write."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

import dibs
from dibs import ClaimRef, Event, Failure, HistoryEntry, NewTask, State
from dibs.model.history import RecentHistory
from dibs.model.task import MOVES
from dibs.observe.verify import verify
from tests.helpers import workflows
from tests.helpers.clients import Clock, run
from tests.helpers.tasks import dead, enqueue_all, events, moment, task_in

DAY = 24 * 3600.0
ERROR = {"type": "Error", "message": "broken", "traceback": None}


def line(entry: HistoryEntry) -> tuple[str, str | None, str, str | None, int, str | None]:
    """Event, from, to, worker, token, by."""
    return entry.event.value, entry.from_state, entry.to_state, entry.worker_id, entry.token, entry.by


def claim_one(app: Any, **options: Any) -> Any:
    app.enqueue("resize", **options)
    return app.claim("worker-1")


# Each transition: what leads up to it, the verb, and the line it must write.

Step = Callable[[Any, Clock], int]


def _enqueue(app: Any, clock: Clock) -> int:
    return app.signed("key-1").enqueue("resize").id


def _schedule(app: Any, clock: Clock) -> int:
    return app.signed("key-1").enqueue("resize", delay=5).id


def _promote(app: Any, clock: Clock) -> int:
    task = app.enqueue("resize", delay=5)
    clock.advance(5)
    app.signed("key-1").promote()
    return task.id


def _claim(app: Any, clock: Clock) -> int:
    app.enqueue("resize")
    return app.signed("key-1").claim("worker-1").task_id


def _claim_by_id(app: Any, clock: Clock) -> int:
    return app.signed("key-1").claim_by_id(app.enqueue("resize").id, "worker-1").task_id


def _complete(app: Any, clock: Clock) -> int:
    return app.signed("key-1").complete(claim_one(app), {"size": 3}).task_id


def _fail(app: Any, clock: Clock) -> int:
    return app.signed("key-1").fail(claim_one(app), "broken").task_id


def _fail_at_once(app: Any, clock: Clock) -> int:
    return app.signed("key-1").fail(claim_one(app), "broken", retry_in=0).task_id


def _fail_for_good(app: Any, clock: Clock) -> int:
    return app.signed("key-1").fail(claim_one(app, max_attempts=1), "broken").task_id


def _release(app: Any, clock: Clock) -> int:
    return app.signed("key-1").release(claim_one(app)).task_id


def _release_later(app: Any, clock: Clock) -> int:
    return app.signed("key-1").release(claim_one(app), delay=5).task_id


def _recover(app: Any, clock: Clock) -> int:
    claim = claim_one(app)
    clock.advance(60)
    app.signed("key-1").recover()
    return claim.task_id


def _recover_the_last(app: Any, clock: Clock) -> int:
    claim = claim_one(app, max_attempts=1)
    clock.advance(60)
    app.signed("key-1").recover()
    return claim.task_id


def _request_cancel(app: Any, clock: Clock) -> int:
    return app.signed("key-1").cancel(claim_one(app).task_id).id


def _cancel(app: Any, clock: Clock) -> int:
    return app.signed("key-1").cancel(app.enqueue("resize").id).id


def _change(app: Any, clock: Clock) -> int:
    return app.signed("key-1").change(app.enqueue("resize").id, priority=2).id


def _replace(app: Any, clock: Clock) -> int:
    task = app.enqueue("resize", key="seven")
    app.signed("key-1").enqueue("resize", priority=2, key="seven", on_conflict="replace")
    return task.id


def _expire(app: Any, clock: Clock) -> int:
    task = app.enqueue("resize", expires_in=5)
    clock.advance(5)
    app.signed("key-1").upkeep()
    return task.id


def _stop(app: Any, clock: Clock) -> int:
    claim = claim_one(app)
    app.cancel(claim.task_id)
    app.signed("key-1").finish([(claim, dibs.Cancelled())])
    return claim.task_id


def _retry(app: Any, clock: Clock) -> int:
    return app.signed("key-1").retry(task_in(app, "failed").id).id


def _redrive(app: Any, clock: Clock) -> int:
    [task_id] = dead(app)
    app.signed("key-1").redrive()
    return task_id


def _discard(app: Any, clock: Clock) -> int:
    return app.signed("key-1").discard(task_in(app, "failed").id).id


def _discard_many(app: Any, clock: Clock) -> int:
    [task_id] = dead(app)
    app.signed("key-1").discard_dead()
    return task_id


def _ignore(app: Any, clock: Clock) -> int:
    flow = workflows.start(app, workflows.step("a", on_failure="ignore", max_attempts=1))
    claim = workflows.claim(app, flow, "a")
    app.signed("key-1").fail(claim, "broken")
    return claim.task_id


def _retry_discarded(app: Any, clock: Clock) -> int:
    """Restored, then retried, in one transaction."""
    task_id = _discard(app, clock)
    return app.signed("key-1").retry(task_id).id


def _prune(app: Any, clock: Clock) -> int:
    task = task_in(app, "completed")
    clock.advance(DAY)
    app.signed("key-1").prune()
    return task.id


TRANSITIONS: list[tuple[Step, int, tuple[Any, ...], dict[str, Any] | None]] = [
    (_enqueue, 1, ("enqueued", None, "pending", None, 0), None),
    (_schedule, 1, ("enqueued", None, "scheduled", None, 0), None),
    (_promote, 2, ("promoted", "scheduled", "pending", None, 0), None),
    (_claim, 2, ("claimed", "pending", "claimed", "worker-1", 1), None),
    (_claim_by_id, 2, ("claimed", "pending", "claimed", "worker-1", 1), None),
    (_complete, 3, ("completed", "claimed", "completed", "worker-1", 1), None),
    (_fail, 3, ("failed", "claimed", "scheduled", "worker-1", 1), ERROR),
    (_fail_at_once, 3, ("failed", "claimed", "pending", "worker-1", 1), ERROR),
    (_fail_for_good, 3, ("failed", "claimed", "failed", "worker-1", 1), ERROR),
    (_release, 3, ("released", "claimed", "pending", "worker-1", 1), None),
    (_release_later, 3, ("released", "claimed", "scheduled", "worker-1", 1), None),
    (_recover, 3, ("recovered", "claimed", "pending", "worker-1", 1), None),
    (_recover_the_last, 3, ("recovered", "claimed", "failed", "worker-1", 1), None),
    (_request_cancel, 3, ("cancel_requested", "claimed", "claimed", "worker-1", 1), None),
    (_cancel, 2, ("cancelled", "pending", "cancelled", None, 0), None),
    (_change, 2, ("changed", "pending", "pending", None, 0), {"priority": {"from": 0, "to": 2}}),
    (_replace, 2, ("replaced", "pending", "pending", None, 0), {"changed": ["priority"]}),
    (_expire, 2, ("expired", "pending", "cancelled", None, 0), None),
    (_stop, 4, ("cancelled", "claimed", "cancelled", "worker-1", 1), None),
    (_retry, 4, ("retried", "failed", "pending", None, 1), None),
    (_redrive, 4, ("retried", "failed", "pending", None, 1), None),
    (_discard, 4, ("discarded", "failed", "failed", None, 1), None),
    (_discard_many, 4, ("discarded", "failed", "failed", None, 1), None),
    (_ignore, 4, ("ignored", "failed", "failed", None, 1), None),
    (_retry_discarded, 6, ("retried", "failed", "pending", None, 1), None),
    (_prune, 4, ("pruned", "completed", "completed", None, 1), None),
]


@pytest.mark.parametrize(
    ("step", "lines", "written", "detail"), TRANSITIONS, ids=[step.__name__[1:] for step, *_ in TRANSITIONS]
)
def test_a_transition_writes_one_complete_history_entry(
    app: Any, clock: Clock, step: Step, lines: int, written: tuple[Any, ...], detail: dict[str, Any] | None
) -> None:
    history = app.history(step(app, clock))
    assert len(history) == lines
    assert line(history[-1]) == (*written, "key-1")
    assert (history[-1].at, history[-1].detail) == (moment(clock), detail)


def test_the_test_of_transitions_covers_every_event() -> None:
    last = {written[0] for _, _, written, _ in TRANSITIONS}
    assert last | {Event.RESTORED} == set(Event)  # which is never the last: the task is retried at once


def test_a_transition_without_a_signature_names_no_actor(app: Any, clock: Clock) -> None:
    task_id = _complete(app, clock)
    assert [entry.by for entry in app.history(task_id)] == [None, None, "key-1"]


def test_the_detail_of_a_failure_is_the_text_of_the_exception(app: Any) -> None:
    claim = claim_one(app)
    try:
        raise ValueError("bad image")
    except ValueError as error:
        app.fail(claim, error)
    detail = app.history(claim.task_id)[-1].detail
    assert (detail["type"], detail["message"]) == ("ValueError", "bad image")
    assert "test_the_detail_of_a_failure_is_the_text_of_the_exception" in detail["traceback"]


def test_each_failed_attempt_keeps_its_own_detail(app: Any) -> None:
    task = app.enqueue("resize")
    for message in ("first", "second", "third"):
        app.fail(app.claim("worker-1"), message, retry_in=0)
    failures = [entry for entry in app.history(task.id) if entry.event is Event.FAILED]
    assert [(entry.detail["message"], entry.token) for entry in failures] == [("first", 1), ("second", 2), ("third", 3)]


def test_a_failure_whose_text_no_database_can_store_is_still_recorded(app: Any) -> None:
    claim = claim_one(app)
    app.fail(claim, Failure("Odd\x00", "NUL \x00 and a surrogate \ud800"))
    assert app.history(claim.task_id)[-1].detail["message"] == "NUL ␀ and a surrogate �"


def test_a_batch_writes_one_history_entry_for_each_task(app: Any, clock: Clock) -> None:
    ids = [task.id for task in app.enqueue_many([NewTask("resize") for _ in range(20)])]
    app.finish([(claim, dibs.Completed()) for claim in app.claim_many("worker-1", 20)])
    assert [events(app, task_id) for task_id in ids] == [["enqueued", "claimed", "completed"]] * 20


def test_a_deduplicated_enqueue_writes_no_history_entry(app: Any) -> None:
    task = app.enqueue("resize", key="once")
    app.enqueue("resize", key="once")
    app.enqueue_many([NewTask("resize", key="once"), NewTask("resize", key="once")])
    assert events(app, task.id) == ["enqueued"]
    assert len(app.all_history()) == 1


@pytest.mark.parametrize("verb", ["renew", "progress"])
def test_renewals_and_progress_write_no_history_entry(app: Any, verb: str) -> None:
    claim = claim_one(app)
    getattr(app, verb)(*((claim, 50) if verb == "progress" else (claim,)))
    assert events(app, claim.task_id) == ["enqueued", "claimed"]


def stale(claim: Any) -> ClaimRef:
    return ClaimRef(claim.task_id, claim.token - 1, claim.worker_id)


def foreign(claim: Any) -> ClaimRef:
    return ClaimRef(claim.task_id, claim.token, "worker-2")


REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "complete with a stale token": lambda app, claim: app.complete(stale(claim)),
    "complete as another worker": lambda app, claim: app.complete(foreign(claim)),
    "fail with a stale token": lambda app, claim: app.fail(stale(claim), "broken"),
    "fail as another worker": lambda app, claim: app.fail(foreign(claim), "broken"),
    "release with a stale token": lambda app, claim: app.release(stale(claim)),
    "release as another worker": lambda app, claim: app.release(foreign(claim)),
    "renew with a stale token": lambda app, claim: app.renew(stale(claim)),
    "progress as another worker": lambda app, claim: app.progress(foreign(claim), 50),
    "a result that is not JSON": lambda app, claim: app.complete(claim, {1, 2}),
    "claim by id": lambda app, claim: app.claim_by_id(claim.task_id, "worker-2"),
    "retry": lambda app, claim: app.retry(claim.task_id),
}


@pytest.mark.parametrize("refused", list(REFUSED))
def test_a_refused_write_writes_no_history_entry_and_changes_nothing(app: Any, refused: str) -> None:
    claim = claim_one(app)
    before = app.all_history(), app.get(claim.task_id)
    with pytest.raises(dibs.DibsError):
        REFUSED[refused](app, claim)
    assert (app.all_history(), app.get(claim.task_id)) == before


def test_a_refused_enqueue_writes_no_history_entry(app: Any) -> None:
    app.enqueue("resize", key="once")
    with pytest.raises(dibs.KeyConflict):
        app.enqueue("crop", key="once")
    assert len(app.all_history()) == 1


@pytest.mark.parametrize("again", ["complete", "fail", "release"])
def test_a_repeated_outcome_writes_no_second_history_entry(app: Any, again: str) -> None:
    claim = claim_one(app)
    tell = {
        "complete": lambda: app.complete(claim),
        "fail": lambda: app.fail(claim, "broken"),
        "release": lambda: app.release(claim),
    }[again]
    tell()
    before = app.all_history()
    assert tell().repeated
    assert app.all_history() == before


# All of it, in order


def a_bit_of_everything(app: Any, clock: Clock) -> None:
    """Every transition, several tasks mixed; what a step leaves behind is done before the next."""
    for step, *_ in TRANSITIONS:
        step(app, clock)
        app.enqueue_many([NewTask("crop", key=f"{step.__name__}-{n}") for n in range(2)])
        app.fail(app.claim("worker-2", types=["crop"]), "again")
        clock.advance(1)
        app.upkeep()
        for claim in app.claim_many("worker-3", 100):
            app.complete(claim)


def all_tasks(app: Any) -> list[Any]:
    tasks: list[Any] = []
    while page := app.list_tasks(limit=1000, **({"cursor": tasks[-1].id} if tasks else {})):
        tasks += page
    return tasks


def test_the_whole_history_passes_the_offline_checker(app: Any, clock: Clock) -> None:
    a_bit_of_everything(app, clock)
    report = verify(app.all_history(), tasks=all_tasks(app))
    assert report.ok, str(report)
    assert report.operations > 100


def test_the_offline_checker_notices_a_missing_history_entry(app: Any, clock: Clock) -> None:
    a_bit_of_everything(app, clock)
    history, tasks = app.all_history(), all_tasks(app)
    claimed = next(entry for entry in history if entry.event is Event.CLAIMED)
    assert not verify([entry for entry in history if entry is not claimed], tasks=tasks).ok


def test_the_table_of_transitions_allows_every_recorded_transition(app: Any, clock: Clock) -> None:
    a_bit_of_everything(app, clock)
    history = app.all_history()
    assert {entry.event for entry in history} == set(Event)
    wrong = [
        entry
        for entry in history
        if entry.from_state not in MOVES[entry.event][0] or entry.to_state not in MOVES[entry.event][1]
    ]
    assert wrong == []


def test_each_history_entry_of_a_task_begins_with_the_state_that_the_entry_before_ended_with(
    app: Any, clock: Clock
) -> None:
    a_bit_of_everything(app, clock)
    last: dict[int, State] = {}
    for entry in app.all_history():
        assert entry.from_state == last.get(entry.task_id)
        last[entry.task_id] = entry.to_state


def test_all_history_is_read_in_pages_in_order_and_without_gaps(app: Any) -> None:
    ids = [task.id for task in enqueue_all(app, [NewTask("resize") for _ in range(1100)])]
    app.claim_many("worker-1", 1000)
    history = app.all_history()
    assert len(history) == 2100
    assert all(one.id < two.id for one, two in pairwise(history))
    assert sorted(entry.task_id for entry in history if entry.event is Event.ENQUEUED) == ids


@pytest.mark.parametrize("count", [1000, 1001])
def test_all_history_is_complete_when_its_length_is_about_one_page(app: Any, count: int) -> None:
    enqueue_all(app, [NewTask("resize") for _ in range(count)])
    assert len(app.all_history()) == count


def test_the_history_of_a_task_is_its_part_of_the_whole(app: Any, clock: Clock) -> None:
    a_bit_of_everything(app, clock)
    history = app.all_history()
    for task_id in {entry.task_id for entry in history}:
        assert app.history(task_id) == [entry for entry in history if entry.task_id == task_id]


def test_a_task_that_never_existed_has_no_history(app: Any) -> None:
    assert app.history(404) == []


def test_times_are_in_utc_with_microseconds(app: Any, clock: Clock) -> None:
    clock.now = clock.now // 1_000_000 * 1_000_000 + 123_456
    [entry] = app.history(app.enqueue("resize").id)
    assert isinstance(entry.at, datetime)
    assert (entry.at.microsecond, entry.at.utcoffset().total_seconds()) == (123456, 0)


# The same transaction


def test_a_batch_that_conflicts_at_its_end_leaves_neither_tasks_nor_history(app: Any) -> None:
    app.enqueue("resize", key="taken")
    before = app.list_tasks(), app.all_history()
    batch = [NewTask("resize", key=f"new-{n}") for n in range(5)] + [NewTask("crop", key="taken")]
    with pytest.raises(dibs.KeyConflict):
        app.enqueue_many(batch)
    assert (app.list_tasks(), app.all_history()) == before


def test_a_batch_with_a_bad_value_at_its_end_leaves_neither_tasks_nor_history(app: Any) -> None:
    with pytest.raises(dibs.InvalidValue):
        app.enqueue_many([NewTask("resize"), NewTask("resize", {"bad": float("nan")})])
    assert (app.list_tasks(), app.all_history()) == ([], [])


def test_a_result_that_cannot_be_stored_writes_no_history_entry_and_undoes_nothing_else(app: Any) -> None:
    app.enqueue_many([NewTask("resize"), NewTask("resize")])
    good, bad = app.claim_many("worker-1", 2)
    answers = app.finish([(good, dibs.Completed(1)), (bad, dibs.Completed(object()))])
    assert [type(answer) for answer in answers] == [dibs.Finished, dibs.InvalidValue]
    assert [events(app, claim.task_id)[-1] for claim in (good, bad)] == ["completed", "claimed"]


def test_of_a_batch_of_outcomes_only_the_accepted_ones_are_in_the_history(app: Any) -> None:
    app.enqueue_many([NewTask("resize"), NewTask("resize")])
    good, bad = app.claim_many("worker-1", 2)
    answers = app.finish([(good, dibs.Completed()), (foreign(bad), dibs.Completed())])
    assert isinstance(answers[1], dibs.NotYourClaim)
    assert [events(app, claim.task_id)[-1] for claim in (good, bad)] == ["completed", "claimed"]


@pytest.mark.database("only the dashboard asks for the newest entries, and its server has a database")
def test_the_newest_history_entries_are_read_without_older_ones_and_all_entries_are_counted(app: Any) -> None:
    task, other = app.enqueue("resize"), app.enqueue("other")
    for _ in range(3):
        app.release(app.claim_by_id(task.id, "worker-1"))
    whole = app.history(task.id)
    assert len(whole) == 7
    assert latest(app, task.id, 3) == RecentHistory(whole[-3:], 7)
    assert latest(app, task.id, 7) == latest(app, task.id, 1000) == RecentHistory(whole, 7)
    assert latest(app, other.id, 5).count == 1
    assert latest(app, 10**9, 5) == RecentHistory([], 0)
    with pytest.raises(dibs.InvalidValue):
        latest(app, task.id, 0)


def latest(app: Any, task_id: int, limit: int) -> RecentHistory:
    found: RecentHistory = run(app, app._store.history.latest_history(task_id, limit))
    return found
