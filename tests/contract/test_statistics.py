"""Samples: every task and every transition is counted once, errors of one kind form a group, and one sample is kept for
each minute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from dibs import Completed, Event, Failed, Failure, InvalidValue, NewTask, State
from dibs.model import statistics
from dibs.model.history import HistoryPosition
from dibs.model.statistics import (
    ErrorGroup,
    ErrorGroups,
    HistoryChanges,
    Latencies,
    Percentiles,
    TaskCount,
    TaskCounts,
    TransitionCount,
)
from dibs.store.operations import statistics as statistics_operations
from tests.helpers.clients import Clock, run
from tests.helpers.retention import keep
from tests.helpers.tasks import STATES, dead, enqueue_all, moment, task_in

pytestmark = pytest.mark.database("only a server asks for these, and it has a database")

MINUTE = 60 * 1_000_000
BEGINNING = HistoryPosition()


def tally(app: Any) -> TaskCounts:
    found: TaskCounts = run(app, app._store.statistics.count_tasks())
    return found


def since(app: Any, position: HistoryPosition = BEGINNING, **options: Any) -> HistoryChanges:
    found: HistoryChanges = run(app, app._store.statistics.changes_since([position], **options)).progress[0]
    return found


def groups(app: Any, *args: Any, **options: Any) -> ErrorGroups:
    found: ErrorGroups = run(app, app._store.statistics.error_groups(*args, **options))
    return found


def latencies(app: Any, *args: Any) -> Latencies:
    found: Latencies = run(app, app._store.statistics.latencies(*args))
    return found


# Counts


def test_every_task_is_counted_by_queue_type_and_state(app: Any, clock: Clock) -> None:
    for state in STATES:
        task_in(app, state, queue="mail")
    clock.advance(5)
    app.enqueue_many([NewTask("crop", queue="media")] * 2)
    clock.advance(2)
    counts = tally(app).counts
    ages = {"pending": 7.0}
    mail = [TaskCount("mail", "resize", State(state), 1, ages.get(state)) for state in STATES]
    media = TaskCount("media", "crop", State.PENDING, 2, 2.0)
    assert sorted(counts, key=repr) == sorted([*mail, media], key=repr)


def test_an_empty_store_counts_nothing(app: Any) -> None:
    assert tally(app).counts == []
    assert since(app) == HistoryChanges(BEGINNING, [])
    assert groups(app) == ErrorGroups([], 0, False)
    assert latencies(app) == Latencies(Percentiles(), Percentiles())


# Moves


def test_transitions_are_counted_by_queue_event_and_states(app: Any) -> None:
    app.enqueue_many([NewTask("resize", queue="mail")] * 3 + [NewTask("resize", queue="media", delay=5)])
    app.complete(app.claim("worker-1"))
    assert sorted(since(app).moves, key=repr) == sorted(
        [
            TransitionCount("mail", Event.ENQUEUED, None, State.PENDING, 3),
            TransitionCount("media", Event.ENQUEUED, None, State.SCHEDULED, 1),
            TransitionCount("mail", Event.CLAIMED, State.PENDING, State.CLAIMED, 1),
            TransitionCount("mail", Event.COMPLETED, State.CLAIMED, State.COMPLETED, 1),
        ],
        key=repr,
    )


def test_a_move_to_another_queue_is_counted_with_both_queues(app: Any) -> None:
    task = app.enqueue("resize", {"queue": "x"}, queue="mail")
    app.change(task.id, params={"queue": "y"})
    app.change(task.id, queue="media", delay=5)
    assert sorted(since(app).moves, key=repr) == sorted(
        [
            TransitionCount("mail", Event.ENQUEUED, None, State.PENDING, 1),
            TransitionCount("mail", Event.CHANGED, State.PENDING, State.PENDING, 1),
            TransitionCount("media", Event.CHANGED, State.PENDING, State.SCHEDULED, 1, "mail"),
        ],
        key=repr,
    )


def test_earlier_counts_plus_later_transitions_are_the_current_counts(app: Any, clock: Clock) -> None:
    for state in STATES:
        task_in(app, state, queue=f"q-{state}")
    depth: Counter[tuple[str | None, State]] = Counter()
    before = tally(app)
    for each in before.counts:
        depth[each.queue, each.state] += each.count
    for state in STATES:
        task_in(app, state, queue="mail")
    app.retry(app.list_tasks(state="failed")[0].id)
    app.claim_many("worker-1", 2, queues=["mail", "q-pending"], lease=1)
    clock.advance(3600)
    app.upkeep()
    for move in since(app, before.position).moves:
        if move.from_state is not None:
            depth[move.queue, move.from_state] -= move.count
        depth[move.queue, move.to_state] += move.count
    now: Counter[tuple[str | None, State]] = Counter()
    for each in tally(app).counts:
        now[each.queue, each.state] += each.count
    assert +depth == now


def test_transitions_come_in_pages_and_none_is_counted_twice(app: Any) -> None:
    app.enqueue_many([NewTask("resize") for _ in range(10)])
    pages = [since(app, limit=3)]
    while not pages[-1].whole:
        pages.append(since(app, pages[-1].position, limit=3))
    assert [sum(move.count for move in page.moves) for page in pages] == [3, 3, 3, 1]
    end = pages[-1].position
    assert end.last == run(app, app._store.history.last_entry())
    assert since(app, end) == HistoryChanges(end, [])


def test_the_queue_of_a_pruned_task_is_unknown(app: Any, clock: Clock) -> None:
    task_in(app, "completed")
    clock.advance(60)
    keep(app, completed=1)
    app.prune()
    assert {move.queue for move in since(app).moves} == {None}


# Latencies


def done(app: Any, clock: Clock, queue: str, count: int, waits: float, runs: float) -> None:
    """Tasks of a queue that waited and ran for so long."""
    enqueue_all(app, [NewTask("resize", queue=queue) for _ in range(count)])
    clock.advance(waits)
    claims = app.claim_many("worker-1", count, queues=[queue], lease=1000)
    clock.advance(runs)
    app.finish([(claim, Completed()) for claim in claims])


def test_latencies_are_the_waiting_and_run_times_of_completed_tasks(app: Any, clock: Clock) -> None:
    done(app, clock, "mail", 10, 2, 5)
    task_in(app, "failed")
    assert latencies(app) == Latencies(Percentiles(2, 2, 2), Percentiles(5, 5, 5))


def test_latencies_are_those_of_the_newest_tasks_of_the_given_queues(app: Any, clock: Clock) -> None:
    done(app, clock, "mail", 10, 2, 5)
    done(app, clock, "media", 10, 1, 3)
    assert latencies(app, ["mail"]).run == Percentiles(5, 5, 5)
    assert latencies(app, ["media"]).wait == Percentiles(1, 1, 1)
    assert latencies(app, ["nobody"]).run == Percentiles()
    assert latencies(app, None, 10).run == Percentiles(3, 3, 3)


def test_latencies_of_rare_queues_are_searched_in_a_bounded_number_of_newest_tasks(app: Any, clock: Clock) -> None:
    done(app, clock, "rare", 1, 1, 9)
    done(app, clock, "mail", 9, 1, 2)
    assert latencies(app, ["rare"], 1).run == Percentiles(9, 9, 9)
    done(app, clock, "mail", 1, 1, 2)
    assert latencies(app, ["rare"], 1).run == Percentiles()


# Errors


def fail(app: Any, clock: Clock, error: Failure, type: str = "resize", queue: str = "default") -> int:
    task = app.enqueue(type, queue=queue)
    clock.advance(1)
    app.finish([(app.claim_by_id(task.id, "worker-1"), Failed(error, permanent=True))])
    return int(task.id)


def test_errors_that_differ_only_in_numbers_are_one_group(app: Any, clock: Clock) -> None:
    first = moment(clock) + timedelta(seconds=1)
    for n in (7, 12345):
        fail(app, clock, Failure("Timeout", f"user {n} at 0x7f{n:x} of 3f2a-{n}: no answer in {n}.5s", "long " * 1000))
    newest = fail(app, clock, Failure("Timeout", "user 9 at 0x7fab of a1-9: no answer in 1.5s"))
    fail(app, clock, Failure("Timeout", "no answer"))
    found = groups(app)
    assert (found.looked, found.more) == (4, False)
    assert found.groups[0] == ErrorGroup(
        task_type="resize",
        error_type="Timeout",
        message="user 9 at 0x7fab of a1-9: no answer in 1.5s",
        count=3,
        first_at=first,
        last_at=first + timedelta(seconds=2),
        newest_id=newest,
        kind=statistics.error_kind(
            '{"type":"Timeout","message":"user 1 at 0x2 of 3: no answer in 4.5s","traceback":"x"}'
        ),
    )
    assert [group.count for group in found.groups] == [3, 1]


def test_errors_are_grouped_by_task_type_error_type_and_message(app: Any, clock: Clock) -> None:
    for type, error in (("a", "X"), ("b", "X"), ("a", "Y"), ("a", "X")):
        fail(app, clock, Failure(error, "broken"), type)
    fail(app, clock, Failure("X", "bent"), "a")
    counted = {(group.task_type, group.error_type, group.message): group.count for group in groups(app).groups}
    assert counted == {
        ("a", "X", "broken"): 2,
        ("b", "X", "broken"): 1,
        ("a", "Y", "broken"): 1,
        ("a", "X", "bent"): 1,
    }


@pytest.mark.parametrize(
    "message",
    ['a "quoted" \\ text\nof two lines', '","traceback":', '","message":"', '"}', "", "Grüße 😀", "\x01\x7f␀", "\\u12"],
)
def test_the_message_of_an_error_group_is_shown_unchanged(app: Any, clock: Clock, message: str) -> None:
    fail(app, clock, Failure('E"\\', message, 'x","message":"y'))
    fail(app, clock, Failure('E"\\', message))
    [group] = groups(app).groups
    assert (group.error_type, group.message, group.count) == ('E"\\', message, 2)


@pytest.mark.parametrize("text", ["ü", "\\", '"', "\x01", "\n", "😀"])
def test_a_long_message_of_an_error_group_is_cut(app: Any, clock: Clock, text: str) -> None:
    fail(app, clock, Failure("E", text * 5000, "traceback " * 5000))
    [group] = groups(app).groups
    assert group.message == text * len(group.message)
    assert 30 <= len(group.message) <= 300


def test_a_task_whose_worker_was_lost_has_an_error_too(app: Any, clock: Clock) -> None:
    app.enqueue("resize", max_attempts=1)
    app.claim("worker-1", lease=1)
    clock.advance(2)
    app.recover()
    [group] = groups(app).groups
    assert (group.error_type, group.message.startswith("The lease ran out")) == ("LeaseLost", True)
    assert group.message.endswith(".")


def test_error_groups_cover_the_newest_failures_and_report_that_there_are_more(app: Any, clock: Clock) -> None:
    dead(app, 3, "old")
    clock.advance(1)
    dead(app, 2, "new")
    assert [(group.message, group.count) for group in groups(app, None, 2).groups] == [("new", 2)]
    assert (groups(app, None, 2).looked, groups(app, None, 2).more) == (2, True)
    assert (groups(app, None, 5).looked, groups(app, None, 5).more) == (5, False)


def test_error_groups_of_some_queues_contain_nothing_of_other_queues(app: Any, clock: Clock) -> None:
    dead(app, 2, "theirs", queue="media")
    clock.advance(1)
    dead(app, 3, "ours", queue="mail")
    found = groups(app, ["mail"])
    assert [(group.message, group.count) for group in found.groups] == [("ours", 3)]
    assert (found.looked, found.more) == (3, False)
    assert groups(app, ["nobody"]) == ErrorGroups([], 0, False)


def test_error_groups_of_tags_contain_only_tasks_with_all_of_them(app: Any, clock: Clock) -> None:
    dead(app, 1, "both", tags=["eu", "vip"])
    dead(app, 2, "one", tags=["eu"])
    dead(app, 3, "none")
    assert [(group.message, group.count) for group in groups(app, None, 10, ["eu", "vip"]).groups] == [("both", 1)]
    assert groups(app, None, 10, ["eu"]).looked == 3
    assert groups(app, ["default"], 10, ["v"]) == ErrorGroups([], 0, False)


def test_errors_of_rare_queues_are_searched_in_a_bounded_number_of_failures(app: Any, clock: Clock) -> None:
    dead(app, 1, "rare", queue="rare")
    clock.advance(1)
    dead(app, statistics_operations.ERROR_REACH - 1, "often")
    assert len(groups(app, ["rare"], 1).groups) == 1
    dead(app, 1, "often")
    assert groups(app, ["rare"], 1) == ErrorGroups([], 0, True)


def test_a_retried_task_is_no_longer_among_the_errors(app: Any) -> None:
    [task_id] = dead(app, 1)
    app.retry(task_id)
    assert groups(app).groups == []


def test_a_json_escape_that_was_cut_in_the_middle_is_left_out() -> None:
    whole = '{"type":"E","message":"a\\u0001\\\\\\"b'
    texts = {statistics_operations._text(statistics.error_parts(whole[:end])[1]) for end in range(23, len(whole) + 1)}
    assert texts == {"", "a", "a\x01", "a\x01\\", 'a\x01\\"', 'a\x01\\"b'}


# Samples


def test_the_first_sample_of_a_minute_is_kept(app: Any) -> None:
    store = app._store
    assert [run(app, store.statistics.save_sample(MINUTE, body)) for body in ("first", "second")] == [True, False]
    assert run(app, store.statistics.save_sample(2 * MINUTE, "third")) is True
    assert run(app, store.statistics.samples_since(0)) == [(MINUTE, "first"), (2 * MINUTE, "third")]


def test_of_concurrent_samples_of_one_minute_one_is_kept(url: str, open_app: Callable[..., Any]) -> None:
    apps = [open_app(url) for _ in range(8)]
    apps[0].queues()
    with ThreadPoolExecutor(8) as threads:
        for minute in range(5):
            kept = list(
                threads.map(
                    lambda app, at=minute: run(app, app._store.statistics.save_sample(at * MINUTE, str(id(app)))), apps
                )
            )
            assert kept.count(True) == 1
            [(_, body)] = run(apps[0], apps[0]._store.statistics.samples_since(minute * MINUTE))
            assert body == str(id(apps[kept.index(True)]))


def test_samples_since_a_time_are_returned_in_order(app: Any) -> None:
    for minute in (3, 1, 2):
        run(app, app._store.statistics.save_sample(minute * MINUTE, str(minute)))
    assert [body for _, body in run(app, app._store.statistics.samples_since(2 * MINUTE))] == ["2", "3"]
    assert run(app, app._store.statistics.samples_since(3 * MINUTE + 1)) == []


def test_sample_heads_are_samples_without_their_queues(app: Any) -> None:
    bodies = ['{"at":1,"queues":{"a":[1],",\\"queues\\":":[2]}}', '{"at":2}', '{"at":3,"queues":{}}']
    for minute, body in enumerate(bodies):
        run(app, app._store.statistics.save_sample(minute * MINUTE, body))
    heads = run(app, app._store.statistics.sample_heads(0))
    assert heads == [(0, '{"at":1'), (MINUTE, '{"at":2}'), (2 * MINUTE, '{"at":3')]
    assert run(app, app._store.statistics.sample_heads(MINUTE)) == heads[1:]


def test_samples_before_a_time_are_pruned_oldest_first(app: Any) -> None:
    for minute in range(5):
        run(app, app._store.statistics.save_sample(minute * MINUTE, ""))
    prune = app._store.statistics.prune_samples
    assert run(app, prune(3 * MINUTE, 2)) == 2
    assert [at for at, _ in run(app, app._store.statistics.samples_since(0))] == [2 * MINUTE, 3 * MINUTE, 4 * MINUTE]
    assert [run(app, prune(3 * MINUTE, 10)), run(app, prune(3 * MINUTE, 10))] == [1, 0]


@pytest.mark.parametrize("queues", [[], "mail", [""], [7]])
def test_malformed_queues_are_refused(app: Any, queues: Any) -> None:
    for ask in (app._store.statistics.latencies, app._store.statistics.error_groups):
        with pytest.raises(InvalidValue):
            ask(queues)
