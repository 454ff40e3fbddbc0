"""The JSON Schemas of handlers: a worker registers them, and they apply to what other programs enqueue."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import dibs
from dibs import SchemaViolation
from dibs.model.registry import DECLARED_BYTES, DeclaredSchema, batches_of_schemas
from tests.helpers.clients import run

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TEXT = {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]}


@dataclass
class Picture:
    path: Path
    shown_for: timedelta = timedelta(seconds=5)


def store(app: Any, schema: Any, name: str = "resize") -> list[str]:
    """Declare the schema, as a worker does. Returns the refused types."""
    refused = run(app, app._store.registry.declare_schemas([DeclaredSchema(name, schema)]))
    return [each.name for each in refused]


def versions(app: Any, name: str = "resize") -> list[tuple[Any, str]]:
    """The schemas of the type with their sources, oldest first."""
    return [(each.schema, each.source) for each in reversed(app.list_types()) if each.name == name]


# Registering


def test_declare_registers_the_schema_of_each_handler(app: Any) -> None:
    app.task(name="show")(lambda picture, times=1: None)

    def resize(picture: Picture, width: int = 800) -> None: ...

    app.task(resize)
    app.declare()
    assert [(each.name, each.version, each.source) for each in app.list_types()] == [
        ("resize", 1, "code"),
        ("show", 1, "code"),
    ]
    app.enqueue("resize", {"picture": {"path": "a.png"}})
    app.enqueue("show", {"picture": [1]})
    for name, params in (("resize", {"picture": {}}), ("resize", {"width": 1}), ("show", {"picture": 1, "other": 1})):
        with pytest.raises(SchemaViolation):
            app.enqueue(name, params)


def test_an_unchanged_schema_is_no_new_version(app: Any) -> None:
    for schema in (NUMBER, NUMBER, {key: NUMBER[key] for key in reversed(NUMBER)}):
        assert store(app, schema) == []
    assert versions(app) == [(NUMBER, "code")]
    store(app, TEXT)
    store(app, NUMBER)
    assert versions(app) == [(NUMBER, "code"), (TEXT, "code"), (NUMBER, "code")]


def test_programs_that_start_together_register_one_version_of_each_type(app: Any) -> None:
    names = [f"type-{number}" for number in range(8)]

    def start(number: int) -> None:
        given = [DeclaredSchema(name, NUMBER) for name in names[number:] + names[:number]]
        run(app, app._store.registry.declare_schemas(given))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(start, range(4)))
    assert [(each.name, each.version) for each in app.list_types()] == [(name, 1) for name in names]


def test_a_schema_registered_by_hand_stays_until_the_declaration_changes(app: Any) -> None:
    store(app, NUMBER)
    app.register_type("resize", None, {"n": 1})
    store(app, NUMBER)
    assert versions(app) == [(NUMBER, "code"), (None, "command")]
    store(app, TEXT)
    newest = app.get_type("resize")
    assert (newest.version, newest.schema, newest.defaults, newest.source) == (3, TEXT, {"n": 1}, "code")


def test_a_schema_registered_by_hand_before_the_declaration_stays_as_well(app: Any) -> None:
    app.register_type("resize", TEXT, {"n": "x"})
    store(app, NUMBER)
    assert versions(app) == [(TEXT, "command"), (NUMBER, "code"), (TEXT, "command")]
    assert app.get_type("resize").defaults == {"n": "x"}
    store(app, NUMBER)
    assert len(versions(app)) == 3
    store(app, None)
    assert versions(app)[3:] == [(None, "code")]


def test_a_handler_without_a_schema_takes_its_declaration_back(app: Any, open_app: Any, url: str) -> None:
    def resize(n: int) -> None: ...

    app.task(resize)
    app.declare()
    off = open_app(url)
    off.task(register_schema=False)(resize)
    off.declare()
    assert versions(app)[1:] == [(None, "code")]
    app.enqueue("resize", {"n": "x"})
    off.declare()
    assert len(versions(app)) == 2


def test_the_option_of_a_handler_overrides_the_option_of_the_app() -> None:
    app = dibs.Dibs("sqlite:///never.db", register_schemas=False)

    @app.task
    def quiet(n: int) -> None: ...

    @app.task(register_schema=True)
    def loud(n: int) -> None: ...

    def batch(items: Sequence[dibs.BatchItem[Picture]]) -> list[None]: ...

    for handler in (quiet, app.batch_task(name="quiet batch")(batch)):
        assert handler.declared_schema == DeclaredSchema(handler.name, None)
    assert loud.declared_schema.schema is not None


# Tasks


def test_tasks_of_an_older_schema_are_claimed_and_run(app: Any, open_app: Any, url: str) -> None:
    store(app, NUMBER)
    old = app.enqueue("resize", {"n": 1})
    store(app, TEXT)
    new = app.enqueue("resize", {"n": "x"})
    claims = [app.claim("worker-1", types=["resize"]) for _ in range(2)]
    assert [(each.task_id, each.task.type_version) for each in claims] == [(old.id, 1), (new.id, 2)]


@pytest.mark.database("a server checks what a client sends, whatever the client has checked")
def test_what_a_handler_has_checked_is_not_checked_by_the_schema_of_another_program(app: Any) -> None:
    def resize(n: str) -> None: ...

    handler = app.task(resize)
    store(app, NUMBER)  # as of an older worker, during a deployment
    task = run_new(app, handler.new("x"))
    assert (task.type_version, task.params) == (1, {"n": "x"})
    app.register_type("resize", {**NUMBER, "title": "by hand"})
    with pytest.raises(SchemaViolation):
        run_new(app, handler.new("x"))


@pytest.mark.database("a server checks what a client sends, whatever the client has checked")
def test_params_that_a_middleware_replaces_are_checked(app: Any) -> None:
    def resize(n: int) -> None: ...

    new = app.task(resize).new(1)
    store(app, NUMBER)
    with pytest.raises(SchemaViolation):
        run_new(app, msgspec.structs.replace(new, params={"n": "x"}))


def run_new(app: Any, new: Any) -> Any:
    return app.enqueue_many([new])[0]


# Refusals


def test_a_schema_that_dibs_cannot_use_is_refused_and_the_others_are_stored(app: Any) -> None:
    store(app, NUMBER, "huge")
    huge = {"properties": {f"p{number}": {"type": "string"} for number in range(4000)}}
    declared = [DeclaredSchema("huge", huge), DeclaredSchema("wrong", {"type": 7}), DeclaredSchema("resize", NUMBER)]
    refused = run(app, app._store.registry.declare_schemas(declared))
    assert [(each.kind, each.name) for each in refused] == [("schema", "huge"), ("schema", "wrong")]
    assert "a process of its own" in refused[0].error.message
    assert versions(app) == [(NUMBER, "code")]
    assert versions(app, "huge")[-1] == (None, "code"), "the schema before would refuse what the handler accepts now"


def test_many_schemas_are_sent_in_calls_of_a_bounded_size() -> None:
    large = {"title": "x" * (DECLARED_BYTES // 3)}
    schemas = [DeclaredSchema(f"type-{number}", large) for number in range(5)]
    batches = list(batches_of_schemas(schemas))
    assert [len(each) for each in batches] == [2, 2, 1]
    assert [each for batch in batches for each in batch] == schemas
    small = [DeclaredSchema("type", None)] * 2001
    assert [len(each) for each in batches_of_schemas(small)] == [1000, 1000, 1]
