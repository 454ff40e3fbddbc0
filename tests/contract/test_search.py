"""Search: tasks by any combination of filters, newest first, page by page. One call reads a bounded number of tasks,
and the next call continues where it stopped: no task is returned twice and none is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dibs import Failed, Failure, InvalidValue, NewTask, State
from dibs.model.search import SEARCH_SPAN, FoundTasks, TaskSearch, TaskSummary
from dibs.store.operations import search as search_operations
from tests.helpers.clients import Clock, run
from tests.helpers.databases import run_sql
from tests.helpers.tasks import STATES, enqueue_all, moment, task_in
from tests.helpers.workflows import DIAMOND, start, task_of

pytestmark = pytest.mark.database("only a server asks for these, and it has a database")


def search(app: Any, span: int = SEARCH_SPAN, **options: Any) -> FoundTasks:
    return run(app, app._store.tasks.search(TaskSearch(**options), span))


def found(app: Any, **options: Any) -> list[int]:
    """The ids of one call that looks at everything."""
    answer = search(app, **options)
    assert answer.cursor is None
    return [line.id for line in answer.tasks]


def pages(app: Any, span: int, **options: Any) -> Iterator[FoundTasks]:
    cursor = None
    while True:
        answer = search(app, span, cursor=cursor, **options)
        yield answer
        cursor = answer.cursor
        if cursor is None:
            return


def failed(app: Any, error: Failure, **options: Any) -> int:
    task = app.enqueue("resize", **options)
    app.finish([(app.claim_by_id(task.id, "worker-1"), Failed(error, permanent=True))])
    return int(task.id)


# A line


def test_a_search_result_shows_the_state_of_the_task(app: Any, clock: Clock) -> None:
    task = app.enqueue("resize", {"image": 7}, queue="media", priority=5, max_attempts=2, key="order-7", tags=["eu"])
    claim = app.claim("worker-7", lease=30)
    app.progress(claim, 40)
    app.cancel(task.id)
    [line] = search(app).tasks
    assert line == TaskSummary(
        id=task.id,
        type="resize",
        state=State.CLAIMED,
        queue="media",
        priority=5,
        attempts=0,
        max_attempts=2,
        worker_id="worker-7",
        created_at=moment(clock),
        run_at=moment(clock),
        claimed_at=moment(clock),
        lease_until=moment(clock) + timedelta(seconds=30),
        finished_at=None,
        progress=40,
        workflow_id=None,
        key="order-7",
        params='{"image":7}',
        error=None,
        cancel_requested=True,
        error_head=None,
        tags=["eu"],
    )


def test_a_search_result_has_the_beginning_of_large_params_and_errors(app: Any) -> None:
    task_id = failed(app, Failure("Boom", "ü" * 5000, "traceback " * 1000), params={"text": "ä" * 500_000})
    [line] = search(app).tasks
    assert (line.id, line.params) == (task_id, '{"text":"' + "ä" * 191)
    assert line.error == "Boom: " + "ü" * 194


def test_a_step_shows_its_workflow(app: Any) -> None:
    workflow_id = start(app, *DIAMOND)
    assert {line.workflow_id for line in search(app).tasks} == {workflow_id}


# What to find


def test_without_a_condition_everything_is_found_newest_first(app: Any) -> None:
    ids = [task.id for task in app.enqueue_many([NewTask("resize") for _ in range(5)])]
    assert found(app) == ids[::-1]


def test_a_search_of_an_empty_store_is_complete(app: Any) -> None:
    assert search(app) == FoundTasks([], None, 0)
    assert search(app, text="anything", since=datetime.now(UTC)) == FoundTasks([], None, 0)


def test_a_task_is_found_by_its_id_and_by_its_key(app: Any) -> None:
    one, two = app.enqueue_many([NewTask("resize", key="a"), NewTask("crop", key="b")])
    assert (found(app, id=one.id), found(app, key="b")) == ([one.id], [two.id])
    assert (found(app, id=404), found(app, key="c")) == ([], [])
    assert found(app, id=one.id, key="b") == []


@pytest.mark.parametrize("span", [2, SEARCH_SPAN])
@pytest.mark.parametrize("state", STATES)
def test_a_search_by_state_finds_rare_and_frequent_states(
    app: Any, state: str, span: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if span == 2:
        monkeypatch.setattr(search_operations, "MAX_CANDIDATES", 0)
    tasks = {each: task_in(app, each).id for each in STATES}
    lines = [line for page in pages(app, span, state=state) for line in page.tasks]
    assert [(line.id, line.state) for line in lines] == [(tasks[state], state)]


@pytest.mark.parametrize("few", [0, search_operations.MAX_CANDIDATES])
def test_pending_tasks_are_found_by_any_filter_though_they_cannot_be_claimed(
    app: Any, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_operations, "MAX_CANDIDATES", few)
    app.set_limit("one", max=1)
    for name, options in (
        ("resize", {}),
        ("resize", {"limits": ["one"]}),
        ("resize", {"queue": "paused"}),
        ("paused", {}),
        ("paused", {"queue": "paused"}),
    ):
        app.enqueue(name, {"case": 7}, tags=["wanted"], **options)
    app.pause("paused")
    app.pause_type("paused")
    app.upkeep()
    every = [5, 4, 3, 2, 1]
    assert found(app, state="pending", tags=["wanted"]) == every
    assert found(app, state="pending", text="case") == every
    assert found(app, state="pending", queue="default", text="case") == [4, 2, 1]
    assert found(app, state="pending", queue="paused", text="case") == [5, 3]
    assert found(app, state="pending", type="paused", text="case") == [5, 4]
    assert found(app, state="pending", type="paused", queue="paused", text="case") == [5]


@pytest.mark.parametrize("few", [0, search_operations.MAX_CANDIDATES])
def test_blocked_steps_are_found_among_unfinished_tasks(app: Any, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_operations, "MAX_CANDIDATES", few)
    workflow_id = start(app, *DIAMOND)
    app.enqueue("resize")
    blocked = [task_of(app, workflow_id, name) for name in ("merge", "right", "left")]
    assert found(app, state="blocked") == sorted(blocked, reverse=True)


def test_type_queue_and_worker_narrow_a_search_and_all_must_match(app: Any) -> None:
    one = task_in(app, "claimed", "resize", "worker-1", queue="slow").id
    two = task_in(app, "completed", "crop", "worker-1", queue="fast").id
    three = task_in(app, "failed", "crop", "worker-2", queue="slow").id
    four = task_in(app, "pending", "crop", queue="slow").id
    assert found(app, type="crop") == [four, three, two]
    assert found(app, queue="slow") == [four, three, one]
    assert found(app, worker="worker-1") == [two, one]
    assert found(app, queue="slow", type="crop", worker="worker-2", state="failed") == [three]
    assert found(app, state="pending", queue="slow") == [four]
    assert found(app, state="pending", queue="slow", type="resize") == []
    assert found(app, state="pending", type="crop") == [four]


def test_a_search_limited_to_queues_finds_nothing_of_other_queues(app: Any) -> None:
    ours = app.enqueue("resize", {"text": "needle"}, queue="mail", key="a").id
    theirs = app.enqueue("resize", {"text": "needle"}, queue="media", key="b").id
    for which in ({}, {"state": "pending"}, {"text": "needle"}, {"type": "resize"}):
        assert found(app, queues=["mail"], **which) == [ours]
    for which in ({"id": theirs}, {"key": "b"}, {"queue": "media"}, {"state": "pending", "queue": "media"}):
        assert found(app, queues=["mail"], **which) == []


def test_tasks_are_found_by_the_time_of_their_creation(app: Any, clock: Clock) -> None:
    ids, moments = [], []
    for _ in range(5):
        ids.append(app.enqueue("resize").id)
        moments.append(moment(clock))
        clock.advance(10)
    assert found(app, since=moments[3]) == [ids[4], ids[3]]
    assert found(app, until=moments[1]) == [ids[0]]
    assert found(app, since=moments[1], until=moments[3], state="pending") == [ids[2], ids[1]]
    assert found(app, since=moments[4] + timedelta(microseconds=1)) == []


# Text


def test_text_is_found_in_params_as_it_was_enqueued(app: Any) -> None:
    task = app.enqueue("resize", {"say": 'a "quoted" \\ text\nof two lines', "name": "Grüße", "n": 17}).id
    app.enqueue("resize", {"say": "something else"})
    for text in ('"quoted"', "\\ text\nof", "Grüße", '"n":17', "two lines", "17"):
        assert found(app, text=text) == [task], text
    for text in ("QUOTED", "grüße", "%", "_"):
        assert found(app, text=text) == [], text


@pytest.mark.parametrize(
    "text", ["ValueError", "no such", "ValueError: no", "Error: no s", 'file "a.txt"', "r: n", ":", ": no", "x: y: z"]
)
def test_text_is_found_in_the_type_and_message_of_an_error(app: Any, text: str) -> None:
    task_id = failed(app, Failure("ValueError", 'no such file "a.txt" x: y: z', "a traceback"))
    app.enqueue("resize")
    assert task_id in found(app, text=text)
    assert found(app, text=text, state="failed") == [task_id]


def test_text_is_not_found_in_tracebacks_and_results(app: Any) -> None:
    failed(app, Failure("Boom", "as planned", "secret of the traceback"))
    task = app.enqueue("resize")
    app.complete(app.claim_by_id(task.id, "worker-1"), "secret of the result")
    assert found(app, text="secret") == []


def test_text_with_wildcards_and_sql_is_only_text(app: Any) -> None:
    app.enqueue("other")
    for text in (
        "'; DROP TABLE dibs_tasks; --",
        "%",
        "{{task}}",
        "%(now)s",
        ":now",
        "a_b",
        "\\",
        '"',
        "\x01",
        "\u2028",
    ):
        task = app.enqueue("resize", {"text": f"before {text} after"}, key=f"key {ord(text[0])} {len(text)}")
        assert found(app, text=f"before {text} after") == [task.id], text


# Page by page


def test_pages_leave_no_gap_and_repeat_nothing(app: Any) -> None:
    tasks = app.enqueue_many([NewTask(f"type-{n % 3}", {"n": n}) for n in range(20)])
    wanted = [task.id for task in tasks if task.type == "type-1"][::-1]
    for span in (1, 3, 7, 20, 100):
        for limit in (1, 2, 50):
            lines = [line.id for page in pages(app, span, type="type-1", limit=limit) for line in page.tasks]
            assert lines == wanted, (span, limit)


def test_pages_by_state_stay_complete_when_a_rare_state_becomes_frequent(
    app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_operations, "MAX_CANDIDATES", 10)
    ids = [task.id for task in app.enqueue_many([NewTask("resize") for _ in range(9)])]
    first = search(app, state="pending", limit=4)
    app.enqueue_many([NewTask("resize") for _ in range(9)])
    rest = list(pages_from(app, first.cursor, state="pending", limit=4))
    assert [line.id for page in (first, *rest) for line in page.tasks] == ids[::-1]


def pages_from(app: Any, cursor: int | None, **options: Any) -> Iterator[FoundTasks]:
    while cursor is not None:
        answer = search(app, 3, cursor=cursor, **options)
        yield answer
        cursor = answer.cursor


def test_one_search_call_reads_no_more_tasks_than_its_span(app: Any) -> None:
    app.enqueue_many([NewTask("resize") for _ in range(10)])
    assert [(page.looked, page.tasks) for page in pages(app, 4, type="crop")] == [(4, []), (4, []), (2, [])]
    assert search(app, 4, text="nowhere").cursor is not None


def test_one_search_call_over_an_index_reads_no_more_tasks_than_its_span(app: Any) -> None:
    ids = [task.id for task in app.enqueue_many([NewTask("resize", {"n": n}) for n in range(10)])]
    looks = list(pages(app, 4, state="pending", text="nowhere"))
    assert [(page.looked, page.tasks) for page in looks] == [(4, []), (4, []), (2, [])]
    found = [line.id for page in pages(app, 3, state="pending", limit=2) for line in page.tasks]
    assert found == ids[::-1]


def test_the_last_page_has_no_continuation(app: Any) -> None:
    app.enqueue_many([NewTask("resize") for _ in range(3)])
    assert search(app, limit=4).cursor is None
    assert search(app, type="resize", limit=3).cursor is None


def test_a_search_by_time_skips_the_tasks_of_other_days_and_misses_none(app: Any, clock: Clock) -> None:
    by_hour: list[list[int]] = []
    for _ in range(24):
        by_hour.append([task.id for task in app.enqueue_many([NewTask("resize") for _ in range(20)])])
        clock.advance(3600)
    begin = moment(clock) - timedelta(hours=24)
    for hour in range(24):
        options = {"since": begin + timedelta(hours=hour), "until": begin + timedelta(hours=hour + 1)}
        looks = list(pages(app, 10, **options))
        assert [line.id for page in looks for line in page.tasks] == by_hour[hour][::-1]
        assert sum(page.looked for page in looks) <= 5 * 20


def test_a_search_by_time_finds_tasks_created_while_the_clock_was_wrong(app: Any, clock: Clock, url: str) -> None:
    ids = [task.id for task in enqueue_all(app, [NewTask("resize") for _ in range(200)])]
    back = clock.now - 3_500_000_000
    run_sql(url, f"UPDATE dibs_tasks SET created_at = {back} WHERE id % 2 = 0")
    lines = [line.id for page in pages(app, 10, since=moment(clock)) for line in page.tasks]
    assert lines == [task_id for task_id in ids[::-1] if task_id % 2 == 1]
    lines = [line.id for page in pages(app, 10, until=moment(clock)) for line in page.tasks]
    assert lines == [task_id for task_id in ids[::-1] if task_id % 2 == 0]


# What makes no sense


BAD: list[dict[str, Any]] = [
    {"state": "running"},
    {"id": -1},
    {"id": "7"},
    {"id": True},
    {"type": ""},
    {"queue": "a\nb"},
    {"queues": []},
    {"queues": "mail"},
    {"key": "a\x00"},
    {"worker": 7},
    {"text": ""},
    {"text": "a\x00b"},
    {"text": "\ud800"},
    {"text": "x" * 1001},
    {"text": 7},
    {"since": "yesterday"},
    {"until": datetime(2026, 1, 1)},  # noqa: DTZ001
    {"limit": 0},
    {"limit": 501},
    {"cursor": -1},
    {"cursor": 2**63},
]


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_a_search_with_invalid_arguments_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        TaskSearch(**bad)


def test_searching_changes_nothing(app: Any) -> None:
    for state in STATES:
        task_in(app, state)
    before = app.list_tasks(), app.all_history()
    search(app, text="a", since=datetime.now(UTC) - timedelta(days=1), state="pending")
    search(app, id=1)
    assert (app.list_tasks(), app.all_history()) == before
