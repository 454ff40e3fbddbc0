"""The result of a handler's task has the return type of the handler, on every engine and for both clients."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest

import dibs
from dibs import InvalidValue, ResultMismatch, ResultMissing, State
from tests.helpers.clients import AsyncAsSync

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)


@dataclass
class Size:
    width: int
    taken: datetime | None = None


class Album(msgspec.Struct):
    name: str
    sizes: list[Size]
    by_id: dict[UUID, Size] = {}


UNANNOTATED: Any = inspect.Parameter.empty
"""The return type of a handler without an annotation."""


def now(app: Any, value: Any) -> Any:
    """The value, awaited if it comes from AsyncDibs."""
    return app.loop.run(value) if inspect.iscoroutine(value) else value


def declare(app: Any, returns: Any, name: str = "work") -> Any:
    """A handler that returns its argument, annotated with this return type."""

    def work(value: Any = None) -> Any:
        return value

    work.__annotations__ = {} if returns is UNANNOTATED else {"return": returns}
    return app.task(name=name)(work)


def run(app: Any, value: Any) -> None:
    """Run the next task as a worker does; its handler returns the value."""
    claim = app.claim("worker-1")
    app.complete(claim, msgspec.to_builtins(value, str_keys=True))


VALUES: list[tuple[Any, Any]] = [
    (int, 7),
    (dict[str, int], {"width": 7}),
    (dict[int, str], {7: "seven"}),
    (Size, Size(7, NOW)),
    (Size | None, None),
    (datetime, NOW),
    (UUID, UUID(int=7)),
    (tuple[int, str], (7, "seven")),
    (bytes, b"seven"),
    (Album, Album("mine", [Size(1), Size(2, NOW)], {UUID(int=1): Size(3)})),
    (list[Album], [Album("mine", [])]),
    (None, None),
]


@pytest.mark.parametrize(("returns", "value"), VALUES)
def test_a_result_has_the_annotated_type_however_the_task_is_read(app: Any, returns: Any, value: Any) -> None:
    handler = declare(app, returns)
    task = now(app, handler.enqueue())
    run(app, value)
    waited = now(app, task.wait(timeout=10))
    found = now(app, handler.get(task.id))
    again = now(app, handler.enqueue())
    assert waited.result == found.result == value
    assert type(waited.result) is type(found.result) is type(value)
    assert waited.state is found.state is State.COMPLETED
    assert again.state is State.PENDING


def test_the_client_reads_plain_json_by_id(app: Any) -> None:
    handler = declare(app, Size)
    task = now(app, handler.enqueue())
    assert app.get(task.id).result is None
    run(app, Size(7))
    expected = {"width": 7, "taken": None}
    assert app.get(task.id).result == app.get(task.id).raw_result == expected
    assert app.wait(task.id).result == expected
    assert [each.result for each in app.list_tasks()] == [expected]


def test_a_result_that_does_not_fit_raises_and_stays_readable_as_raw_result(app: Any) -> None:
    handler = declare(app, Size)
    task = now(app, handler.enqueue())
    run(app, {"width": "wide"})
    done = now(app, task.wait(timeout=10))
    with pytest.raises(ResultMismatch, match=f"task {task.id} .*Size|Expected `int`") as raised:
        _ = done.result
    assert raised.value.task_id == task.id
    assert "raw_result" in raised.value.hint
    assert done.raw_result == {"width": "wide"}


def test_a_result_is_converted_once(app: Any) -> None:
    handler = declare(app, Album)
    task = now(app, handler.enqueue())
    run(app, Album("mine", []))
    done = now(app, task.wait(timeout=10))
    assert done.result is done.result


def test_the_result_of_a_task_that_is_not_completed_is_missing(app: Any) -> None:
    handler = declare(app, int)
    task = now(app, handler.enqueue())
    with pytest.raises(ResultMissing, match=f"Task {task.id} .* is pending") as raised:
        _ = task.result
    assert (raised.value.task_id, task.raw_result) == (task.id, None)
    assert "wait" in raised.value.hint


def test_the_result_of_a_failed_task_is_missing_and_the_message_has_its_error(app: Any) -> None:
    handler = declare(app, int)
    task = now(app, handler.enqueue())
    app.fail(app.claim("worker-1"), "There is no such picture.", permanent=True)
    done = now(app, task.wait(timeout=10))
    with pytest.raises(ResultMissing, match=r"has failed with Error: There is no such picture\.(?!\.)"):
        _ = done.result
    assert done.raw_result is None


@pytest.mark.parametrize("returns", [Any, Iterable[int], "NotDefined", UNANNOTATED])
def test_a_result_without_a_usable_annotation_is_plain_json(app: Any, returns: Any) -> None:
    handler = declare(app, returns)
    task = now(app, handler.enqueue())
    run(app, {"width": 7})
    assert now(app, task.wait(timeout=10)).result == {"width": 7}


def test_a_handler_reads_only_tasks_of_its_type(app: Any) -> None:
    handler = declare(app, int)
    other = app.enqueue("other")
    with pytest.raises(InvalidValue, match=f"Task {other.id} is of the type 'other', not 'work'"):
        now(app, handler.get(other.id))
    assert now(app, handler.get(other.id + 1)) is None


def test_a_task_that_was_found_by_its_key_has_the_type_too(app: Any) -> None:
    handler = declare(app, Size).options(key="size-7")
    first = now(app, handler.enqueue())
    run(app, Size(7))
    second = now(app, handler.enqueue())
    assert (second.id, second.deduplicated) == (first.id, True)
    assert second.result == Size(7)


def test_a_changed_task_keeps_its_type(app: Any) -> None:
    handler = declare(app, Size)
    task = now(app, handler.enqueue())
    changed = now(app, task.change(priority=5))
    run(app, Size(7))
    assert changed.priority == 5
    assert now(app, changed.wait(timeout=10)).result == Size(7)


def test_each_client_returns_its_kind_of_task(app: Any) -> None:
    kind = dibs.AsyncTask if isinstance(app, AsyncAsSync) else dibs.Task
    handler = declare(app, int)
    task = now(app, handler.enqueue())
    found = [task, now(app, handler.get(task.id)), app.get(task.id), app.enqueue("work"), *app.list_tasks()]
    found += [*app.peek(), *app.enqueue_many([handler.new()]), app.change(task.id, priority=1)]
    found += [app.cancel(app.enqueue("other").id)]
    found += [app.retry(found[-1].id)]
    assert {type(each) for each in found} == {kind}
    assert inspect.iscoroutinefunction(task.wait) is (kind is dibs.AsyncTask)


def test_a_task_of_a_claim_equals_the_same_task_read_by_its_id(app: Any) -> None:
    app.enqueue("work", {"a": [1]})
    claim = app.claim("worker-1")
    assert claim.task == app.get(claim.task_id)
    assert app.get(claim.task_id) == claim.task
    assert app.get(claim.task_id) != app.enqueue("work")
    assert app.get(claim.task_id) != 7
