"""Task types: versioned JSON Schemas and defaults, which apply to every enqueue; no schema is fetched."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import dibs
from dibs import InvalidValue, NewTask, SchemaViolation, TaskTypeNotFound
from tests.helpers.clients import Clock
from tests.helpers.tasks import moment
from tests.helpers.waiting import until

IMAGE = {
    "type": "object",
    "properties": {"image": {"type": "integer"}, "size": {"type": "object", "properties": {"w": {"type": "integer"}}}},
    "required": ["image"],
}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


# Versions


def test_the_first_registration_is_version_one(app: Any, clock: Clock) -> None:
    registered = app.register_type("resize", IMAGE, {"width": 800})
    assert (registered.name, registered.version, registered.created_at) == ("resize", 1, moment(clock))
    assert (registered.schema, registered.defaults) == (IMAGE, {"width": 800})
    assert app.get_type("resize") == registered


def test_the_same_registration_again_is_the_same_version(app: Any, clock: Clock) -> None:
    first = app.register_type("resize", IMAGE, {"width": 800})
    clock.advance(1)
    reordered = {key: IMAGE[key] for key in reversed(IMAGE)}
    assert app.register_type("resize", reordered, {"width": 800}) == first
    assert app.list_types() == [first]


@pytest.mark.parametrize("changed", [(TEXT, {"width": 800}), (IMAGE, {"width": 900}), (None, {"width": 800})])
def test_a_change_is_the_next_version(app: Any, changed: tuple[Any, dict[str, Any]]) -> None:
    app.register_type("resize", IMAGE, {"width": 800})
    assert app.register_type("resize", *changed).version == 2
    assert app.get_type("resize").version == 2


def test_going_back_to_an_old_schema_is_a_new_version(app: Any) -> None:
    versions = [app.register_type("resize", schema).version for schema in (IMAGE, TEXT, IMAGE)]
    assert versions == [1, 2, 3]


def test_a_default_that_changes_from_a_number_to_a_boolean_is_a_change(app: Any) -> None:
    app.register_type("resize", None, {"on": 1})
    assert app.register_type("resize", None, {"on": True}).version == 2


def test_a_schema_with_a_boolean_constant_differs_from_one_with_a_number(app: Any) -> None:
    app.register_type("resize", {"properties": {"on": {"const": 1}}})
    app.register_type("resize", {"properties": {"on": {"const": True}}})
    assert app.enqueue("resize", {"on": True}).type_version == 2


def test_types_count_their_versions_separately(app: Any) -> None:
    assert [app.register_type(name, IMAGE).version for name in ("resize", "crop")] == [1, 1]


def test_ten_registrations_of_the_same_new_schema_create_one_version(app: Any) -> None:
    app.register_type("resize", TEXT)
    with ThreadPoolExecutor(10) as pool:
        registered = list(pool.map(lambda _: app.register_type("resize", IMAGE), range(10)))
    assert {each.version for each in registered} == {2}
    assert len(app.list_types()) == 2


def test_ten_clients_that_register_the_same_schema_create_one_version(
    url: str, open_app: Callable[..., Any], clock: Clock
) -> None:
    apps = [open_app(url, clock=clock) for _ in range(5)]
    with ThreadPoolExecutor(10) as pool:
        registered = list(pool.map(lambda n: apps[n % 5].register_type("resize", IMAGE), range(10)))
    assert {each.version for each in registered} == {1}
    assert len(apps[0].list_types()) == 1


def test_ten_different_schemas_registered_concurrently_get_ten_versions(app: Any) -> None:
    with ThreadPoolExecutor(10) as pool:
        registered = list(pool.map(lambda n: app.register_type("resize", None, {"n": n}), range(10)))
    assert sorted(each.version for each in registered) == list(range(1, 11))
    for each in registered:
        assert app.get_type("resize", each.version).defaults == each.defaults


def test_a_type_is_found_by_its_version(app: Any) -> None:
    one, two = app.register_type("resize", IMAGE), app.register_type("resize", TEXT)
    assert [app.get_type("resize", 1), app.get_type("resize", 2), app.get_type("resize")] == [one, two, two]


def test_all_types_are_listed_by_name_the_newest_version_first(app: Any) -> None:
    for name, schema in (("resize", IMAGE), ("crop", IMAGE), ("resize", TEXT)):
        app.register_type(name, schema)
    assert [(each.name, each.version) for each in app.list_types()] == [("crop", 1), ("resize", 2), ("resize", 1)]


def test_a_type_that_is_not_registered_is_not_found(app: Any) -> None:
    app.register_type("resize", IMAGE)
    with pytest.raises(TaskTypeNotFound, match="'crop'"):
        app.get_type("crop")
    with pytest.raises(TaskTypeNotFound, match="version 2"):
        app.get_type("resize", 2)


def test_a_malformed_version_is_refused(app: Any) -> None:
    for version in (0, -1, "1", True, 2**31):
        with pytest.raises(InvalidValue):
            app.get_type("resize", version)


# What a schema does to enqueue


def test_params_that_fit_are_stored_with_the_version_they_fit(app: Any) -> None:
    app.register_type("resize", IMAGE)
    task = app.enqueue("resize", {"image": 7})
    assert task.type_version == 1
    assert app.get(task.id).type_version == 1


def test_params_that_do_not_fit_are_refused_and_the_error_names_the_place(app: Any) -> None:
    app.register_type("resize", IMAGE)
    with pytest.raises(SchemaViolation, match=r"params/size/w of 'resize' \(version 1\)"):
        app.enqueue("resize", {"image": 7, "size": {"w": "wide"}})
    with pytest.raises(SchemaViolation, match="image"):
        app.enqueue("resize")
    assert (app.list_tasks(), app.all_history()) == ([], [])


def test_one_bad_task_in_a_batch_stores_none(app: Any) -> None:
    app.register_type("resize", IMAGE)
    with pytest.raises(SchemaViolation):
        app.enqueue_many([NewTask("resize", {"image": 7}), NewTask("crop"), NewTask("resize", {"image": "7"})])
    assert app.list_tasks() == []


def test_defaults_are_filled_in_where_params_are_missing(app: Any) -> None:
    app.register_type("resize", None, {"width": 800, "height": 600})
    task = app.enqueue("resize", {"width": 10})
    assert task.params == {"width": 10, "height": 600}
    assert app.get(task.id).params == task.params


def test_defaults_are_filled_in_before_params_are_validated(app: Any) -> None:
    app.register_type("resize", IMAGE, {"image": 1})
    assert app.enqueue("resize").params == {"image": 1}


def test_defaults_that_do_not_fit_the_schema_are_refused_when_they_are_used(app: Any) -> None:
    app.register_type("resize", IMAGE, {"image": "none"})
    with pytest.raises(SchemaViolation):
        app.enqueue("resize")
    assert app.enqueue("resize", {"image": 2}).params == {"image": 2}


def test_the_content_of_an_idempotency_key_is_the_params_as_sent_without_defaults(app: Any) -> None:
    app.register_type("resize", None, {"width": 800})
    first = app.enqueue("resize", {"image": 7}, key="once")
    app.register_type("resize", None, {"width": 900})
    again = app.enqueue("resize", {"image": 7}, key="once")
    assert (again.id, again.deduplicated, again.params["width"]) == (first.id, True, 800)


def test_types_without_a_schema_take_any_object(app: Any) -> None:
    app.register_type("resize", IMAGE)
    task = app.enqueue("crop", {"whatever": [1, None]})
    assert (task.type_version, task.params) == (None, {"whatever": [1, None]})


def test_a_task_keeps_the_version_it_was_checked_against(app: Any) -> None:
    app.register_type("resize", IMAGE)
    old = app.enqueue("resize", {"image": 7})
    app.register_type("resize", TEXT)
    new = app.enqueue("resize", {"text": "a"})
    assert (app.get(old.id).type_version, app.get(new.id).type_version) == (1, 2)


def test_tasks_of_an_old_version_stay_claimable_by_name(app: Any) -> None:
    app.register_type("resize", IMAGE)
    old = app.enqueue("resize", {"image": 7})
    app.register_type("resize", TEXT)
    claim = app.claim("worker-1", types=["resize"])
    assert (claim.task_id, claim.task.params, claim.task.type_version) == (old.id, {"image": 7}, 1)


def test_a_new_version_applies_to_its_own_client_at_once(app: Any) -> None:
    app.register_type("resize", IMAGE)
    app.enqueue("resize", {"image": 7})
    app.register_type("resize", TEXT)
    with pytest.raises(SchemaViolation):
        app.enqueue("resize", {"image": 7})


def test_a_schema_registered_by_another_client_applies_within_about_a_second(
    url: str, open_app: Callable[..., Any]
) -> None:
    here, elsewhere = open_app(url), open_app(url)
    assert here.enqueue("resize").type_version is None
    elsewhere.register_type("resize", IMAGE)

    def refused() -> bool:
        try:
            here.enqueue("resize")
        except SchemaViolation:
            return True
        return False

    until(refused, 10)


def test_a_schema_outlives_the_client_that_registered_it(url: str, open_app: Callable[..., Any]) -> None:
    open_app(url).register_type("resize", IMAGE)
    with pytest.raises(SchemaViolation):
        open_app(url).enqueue("resize")


def test_the_schema_true_accepts_everything_and_false_nothing(app: Any) -> None:
    assert app.register_type("open", True).schema is True
    assert app.register_type("closed", False).schema is False
    assert app.enqueue("open", {"a": 1}).type_version == 1
    with pytest.raises(SchemaViolation):
        app.enqueue("closed", {"a": 1})
    assert app.get_type("closed").schema is False


# What is no schema

NO_SCHEMAS: list[Any] = [
    {"type": "no such type"},
    {"required": "image"},
    {"properties": []},
    {"pattern": "("},
    {"minimum": "1"},
    7,
    "x",
    [],
]


def test_an_invalid_schema_is_refused(app: Any) -> None:
    for schema in NO_SCHEMAS:
        with pytest.raises(InvalidValue):
            app.register_type("resize", schema)
    assert app.list_types() == []


def test_defaults_that_are_not_a_json_object_are_refused(app: Any) -> None:
    for defaults in ([("a", 1)], "a", {"a": {1, 2}}, {"a": float("inf")}):
        with pytest.raises(InvalidValue):
            app.register_type("resize", None, defaults)
    assert app.list_types() == []


def test_a_malformed_type_name_is_refused(app: Any) -> None:
    for name in ("", "a\nb", 7, "x" * 256):
        with pytest.raises(InvalidValue):
            app.register_type(name, IMAGE)


def test_a_schema_with_a_reference_to_the_network_is_refused_and_nothing_is_fetched(app: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/image.json"
        with pytest.raises(InvalidValue, match="fetches no schemas"):
            app.register_type("resize", {"properties": {"image": {"$ref": address}}})
        with pytest.raises(BlockingIOError):  # no connection was made
            server.accept()
    assert app.list_types() == []


def test_a_schema_with_any_external_reference_is_refused(app: Any) -> None:
    for address in ("file:///etc/passwd", "https://example.com/a.json", "other.json"):
        with pytest.raises(InvalidValue):
            app.register_type("resize", {"properties": {"image": {"$ref": address}}})


def test_a_schema_may_have_references_into_itself(app: Any) -> None:
    schema = {"$defs": {"id": {"type": "integer"}}, "properties": {"image": {"$ref": "#/$defs/id"}}}
    app.register_type("resize", schema)
    assert app.enqueue("resize", {"image": 7}).type_version == 1
    with pytest.raises(dibs.SchemaViolation):
        app.enqueue("resize", {"image": "7"})
