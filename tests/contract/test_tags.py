"""Tags: short texts on a task, set when it is enqueued, by which tasks are listed, searched, cancelled and retried."""

from __future__ import annotations

from typing import Any

import pytest

from dibs import Failed, Failure, InvalidValue, KeyConflict, NewTask
from tests.helpers.clients import Clock
from tests.helpers.workflows import BROKEN, drive, start, step

INVALID = (
    "eu",
    7,
    None,
    ["a,b"],
    ['a"b'],
    ["a\\b"],
    [" a"],
    ["a "],
    ["a\nb"],
    [""],
    ["x" * 65],
    [7],
    ["a"] * 21,
    ["\ud800"],
)


def ids(tasks: Any) -> list[int]:
    return [task.id for task in tasks]


def failed(app: Any, *tags: str) -> int:
    task = app.enqueue("resize", tags=tags)
    app.finish([(app.claim_by_id(task.id, "worker-1"), Failed(Failure("ValueError", "broken"), permanent=True))])
    return int(task.id)


def test_a_task_has_its_tags_when_it_is_enqueued_read_and_claimed(app: Any) -> None:
    task = app.enqueue("resize", tags=["eu", "Straße 7", "👩‍🚀"])
    assert task.tags == ["eu", "Straße 7", "👩‍🚀"]
    assert app.get(task.id).tags == task.tags
    assert app.claim("worker-1").task.tags == task.tags


def test_a_task_without_tags_has_an_empty_list(app: Any) -> None:
    assert app.enqueue("resize").tags == app.enqueue("resize", tags=[]).tags == []
    assert [task.tags for task in app.list_tasks()] == [[], []]


def test_a_tag_that_is_given_twice_is_stored_once(app: Any) -> None:
    assert app.enqueue("resize", tags=("b", "a", "b")).tags == ["b", "a"]


def test_each_task_of_a_batch_has_its_own_tags(app: Any) -> None:
    tasks = app.enqueue_many([NewTask("resize", tags=["a"]), NewTask("resize"), NewTask("resize", key="k", tags=["b"])])
    assert [task.tags for task in tasks] == [["a"], [], ["b"]]
    assert [app.get(task.id).tags for task in tasks] == [["a"], [], ["b"]]


def test_tags_are_not_part_of_the_content_of_an_idempotency_key(app: Any) -> None:
    first = app.enqueue("resize", key="k", tags=["a"])
    again = app.enqueue("resize", key="k", tags=["b"])
    assert (again.id, again.deduplicated, again.tags) == (first.id, True, ["a"])
    with pytest.raises(KeyConflict):
        app.enqueue("resize", {"other": "params"}, key="k", tags=["a"])


@pytest.mark.parametrize("tags", INVALID, ids=range(len(INVALID)))
def test_invalid_tags_are_refused(app: Any, tags: Any) -> None:
    with pytest.raises(InvalidValue):
        app.enqueue("resize", tags=tags)
    if tags is not None:
        with pytest.raises(InvalidValue):
            app.list_tasks(tags=tags)


def test_the_largest_number_of_the_longest_tags_is_accepted(app: Any) -> None:
    task = app.enqueue("resize", tags=[f"{n:02}" + "ü" * 62 for n in range(20)])
    assert app.list_tasks(tags=task.tags) == [task]


def test_a_list_by_tags_has_the_tasks_with_all_of_them(app: Any) -> None:
    both = app.enqueue("resize", tags=["eu", "customer-42"]).id
    one = app.enqueue("resize", tags=["customer-42"]).id
    app.enqueue("resize", tags=["customer-4", "EU"])
    app.enqueue("resize")
    assert ids(app.list_tasks(tags=["customer-42"])) == [one, both]
    assert ids(app.list_tasks(tags=["eu", "customer-42"])) == [both]
    assert ids(app.list_tasks(tags=["customer"])) == ids(app.list_tasks(tags=["%"])) == []


def test_other_filters_apply_together_with_tags(app: Any) -> None:
    wanted = app.enqueue("resize", {"name": "needle"}, queue="media", key="k", tags=["eu"]).id
    app.enqueue("resize", {"name": "hay"}, tags=["eu"])
    for filters in ({"queue": "media"}, {"key": "k"}, {"text": "needle"}, {"state": "pending", "queue": "media"}):
        assert ids(app.list_tasks(tags=["eu"], **filters)) == [wanted]


def test_an_empty_list_is_not_a_filter(app: Any) -> None:
    with pytest.raises(InvalidValue, match="matches every task"):
        app.list_tasks(tags=[])
    with pytest.raises(InvalidValue, match="matches every task"):
        app.cancel_matching(tags=[])


def test_matching_tasks_are_cancelled_and_retried_by_tags(app: Any) -> None:
    tagged, other = app.enqueue("resize", tags=["eu"]).id, app.enqueue("resize", tags=["us"]).id
    assert app.cancel_matching(tags=["eu"]) == 1
    assert (app.get(tagged).state, app.get(other).state) == ("cancelled", "pending")
    assert app.retry_matching(tags=["eu"]) == 1
    assert app.get(tagged).state == "pending"


def test_the_dead_letter_is_listed_retried_and_discarded_by_tags(app: Any) -> None:
    one, two, three = failed(app, "eu"), failed(app, "us"), failed(app, "us", "vip")
    assert ids(app.list_dead(tags=["us"])) == [three, two]
    assert app.redrive(tags=["eu"]) == 1
    assert app.get(one).state == "pending"
    assert app.discard_dead(tags=["us", "vip"]) == 1
    assert app.discard_dead(ids=[one, two, three], tags=["eu"]) == 0
    assert ids(app.list_dead()) == [two]


def test_a_failed_step_is_retried_by_its_tags(app: Any) -> None:
    start(app, step("fetch", tags=["eu"]))
    drive(app, {"fetch": BROKEN})
    [task] = app.list_dead(tags=["eu"])
    assert app.redrive(tags=["us"]) == 0
    assert app.redrive(tags=["eu"]) == 1
    assert app.get(task.id).state == "pending"


def test_a_retried_task_keeps_its_tags(app: Any) -> None:
    task_id = failed(app, "eu")
    assert app.retry(task_id).tags == ["eu"]


def test_the_tasks_of_a_schedule_have_its_tags(app: Any, clock: Clock) -> None:
    app.set_schedule("report", "* * * * *", "report", tags=["nightly", "eu"])
    assert app.get_schedule("report").tags == ["nightly", "eu"]
    clock.advance(61)
    app.upkeep()
    assert [task.tags for task in app.list_tasks(tags=["nightly"])] == [["nightly", "eu"]]
    assert app.set_schedule("report", "* * * * *", "report").tags == []


def test_a_handler_gives_its_tasks_default_tags(app: Any) -> None:
    @app.task(tags=["media"])
    def resize() -> None: ...

    assert app.enqueue_many([resize.new(), resize.options(tags=["eu"]).new()])[0].tags == ["media"]
    assert [task.tags for task in app.list_tasks()] == [["eu"], ["media"]]
