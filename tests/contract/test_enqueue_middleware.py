"""Middleware around enqueues: it sees every enqueue of its app, may change or refuse it; a batch goes through once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

import dibs
from dibs import InvalidValue, NewTask
from tests.helpers.clients import AsyncAsSync
from tests.helpers.each import for_each


class Refused(Exception):
    """Raised by a middleware of a test."""


def add(app: Any, before: Any = lambda tasks: tasks, after: Any = lambda stored: stored) -> None:
    """Add a middleware of the kind of the client, with these two steps."""

    async def around_async(tasks: Sequence[NewTask], call_next: Any) -> Any:
        return after(await call_next(before(tasks)))

    def around(tasks: Sequence[NewTask], call_next: Any) -> Any:
        return after(call_next(before(tasks)))

    app.enqueue_middleware(around_async if isinstance(app, AsyncAsSync) else around)


def marked(text: str) -> Any:
    """A step that adds a tag to each task."""
    return lambda tasks: [msgspec.structs.replace(task, tags=[*task.tags, text]) for task in tasks]


def test_every_enqueue_goes_through_the_middleware_and_a_batch_once(app: Any) -> None:
    seen: list[list[str]] = []
    add(app, lambda tasks: seen.append([task.type for task in tasks]) or tasks)

    @app.task
    def resize(image: int) -> None: ...

    enqueued = resize.enqueue(7)
    if isinstance(app, AsyncAsSync):
        enqueued = app.loop.run(enqueued)
    one = app.enqueue("scale")
    many = app.enqueue_many([NewTask("a"), NewTask("b")])
    signed = app.signed("me").enqueue("c")
    assert app.enqueue_many([]) == []
    assert seen == [["resize"], ["scale"], ["a", "b"], ["c"], []]
    stored = [enqueued, one, *many, signed]
    assert [app.get(task.id).type for task in stored] == ["resize", "scale", "a", "b", "c"]


def test_middleware_runs_in_the_order_of_its_declaration_and_changes_what_is_stored(app: Any) -> None:
    add(app, marked("outer"))
    add(app, marked("inner"))
    task = app.enqueue("resize", tags=["own"])
    assert app.get(task.id).tags == task.tags == ["own", "outer", "inner"]


def test_an_exception_of_the_middleware_refuses_the_enqueue(app: Any) -> None:
    def refuse(tasks: Sequence[NewTask]) -> Any:
        raise Refused([task.type for task in tasks])

    add(app, refuse)
    with pytest.raises(Refused, match="resize"):
        app.enqueue("resize")
    with pytest.raises(Refused, match="'a', 'b'"):
        app.enqueue_many([NewTask("a"), NewTask("b")])
    assert app.list_tasks() == []


def test_an_error_of_the_store_passes_through_the_middleware(app: Any) -> None:
    app.register_type("strict", {"type": "object", "required": ["n"]})
    add(app)
    with pytest.raises(dibs.SchemaViolation):
        app.enqueue("strict")


def test_a_middleware_that_returns_the_wrong_number_of_tasks_is_an_error(app: Any) -> None:
    add(app, after=lambda stored: stored[1:])
    with pytest.raises(InvalidValue, match=r"around.* returned 1 tasks for an enqueue of 2"):
        app.enqueue_many([NewTask("a"), NewTask("b")])


def test_a_middleware_that_returns_nothing_is_an_error(app: Any) -> None:
    add(app, after=lambda stored: None)
    with pytest.raises(InvalidValue, match="returned None for an enqueue of 1"):
        app.enqueue("a")


def test_what_other_clients_enqueue_does_not_go_through(app: Any, open_app: Any, url: str) -> None:
    def refuse(tasks: Sequence[NewTask]) -> Any:
        raise Refused

    other = open_app(url)
    add(app, refuse)
    assert other.enqueue("resize").id


def takes_one(tasks: Sequence[NewTask]) -> Any: ...


def plain(tasks: Sequence[NewTask], call_next: Any) -> Any: ...


async def coroutine(tasks: Sequence[NewTask], call_next: Any) -> Any: ...


def generator(tasks: Sequence[NewTask], call_next: Any) -> Any:
    yield


@for_each(
    "client, function, complaint",
    [
        (dibs.Dibs, takes_one, "does not take two arguments"),
        (dibs.Dibs, coroutine, "coroutine is async, and the enqueues of Dibs are plain"),
        (dibs.AsyncDibs, plain, "plain is plain, and the enqueues of AsyncDibs are async"),
        (dibs.Dibs, generator, "is a generator"),
        (dibs.Dibs, 7, "7 is not a function"),
    ],
)
def test_a_wrong_enqueue_middleware_is_refused_at_its_declaration(client: Any, function: Any, complaint: str) -> None:
    with pytest.raises(InvalidValue, match=complaint):
        client("sqlite:///nowhere.db").enqueue_middleware(function)
