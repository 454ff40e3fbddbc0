"""Validation is bounded: no schema and no params delay a store, a server or another caller."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import dibs
from dibs import InvalidValue, NewStep, NewTask, SchemaViolation, ValidationTooSlow
from dibs.store.schemas import schema
from dibs.store.schemas.processes import processes
from tests import matrix
from tests.helpers.clients import Clock
from tests.helpers.waiting import let_pass, until


def variant(kind: str) -> dict[str, Any]:
    properties = {"kind": {"const": kind}, "child": {"$ref": "#/$defs/node"}}
    return {"type": "object", "properties": properties, "required": ["kind"]}


TREE = {
    "$defs": {"node": {"anyOf": [variant("a"), variant("b")]}},
    "type": "object",
    "properties": {"tree": {"$ref": "#/$defs/node"}},
}
"""A recursive schema with two alternatives: describing an error takes twice as long with each level."""


def nested_references(levels: int) -> dict[str, Any]:
    """Each level refers to the next one twice: validating any value takes 2**levels steps."""
    defs: dict[str, Any] = {
        f"level{number}": {"allOf": [{"$ref": f"#/$defs/level{number + 1}"}] * 2} for number in range(levels)
    }
    return {"$defs": {**defs, f"level{levels}": {"type": "object"}}, "$ref": "#/$defs/level0"}


ENDLESS = nested_references(60)

CATEGORY = {
    "$defs": {"category": {"properties": {"sub": {"type": "array", "items": {"$ref": "#/$defs/category"}}}}},
    "$ref": "#/$defs/category",
}


def tree(depth: int, leaf: Any) -> dict[str, Any]:
    for _ in range(depth):
        leaf = {"kind": "a", "child": leaf}
    return {"tree": leaf}


@contextmanager
def within(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


@contextmanager
def in_less_time() -> Iterator[None]:
    """A quarter of the time that one value may take, where a test waits for the end of that time. `make stress` takes
    all of it, and so do tests whose other values must be validated in time."""
    usual = schema.TIME_LIMIT
    schema.TIME_LIMIT = usual if matrix.is_stress() else usual / 4
    try:
        yield
    finally:
        schema.TIME_LIMIT = usual


# Decide


@pytest.mark.parametrize("depth", [14, 18, 40, 60])
def test_a_deeply_nested_invalid_value_of_a_recursive_schema_is_refused_in_time(app: Any, depth: int) -> None:
    app.register_type("tree", TREE)
    with within(10), in_less_time(), pytest.raises((SchemaViolation, ValidationTooSlow)):
        app.enqueue("tree", tree(depth, 5))
    assert app.list_tasks() == []


def test_recursive_schemas_stay_allowed(app: Any) -> None:
    app.register_type("tree", TREE)
    app.register_type("category", CATEGORY)
    for depth in (1, 5, 10, 14):
        assert app.enqueue("tree", tree(depth, {"kind": "b"})).type_version == 1
        assert app.enqueue("category", {"sub": [{"sub": []}] * depth}).type_version == 1
    with pytest.raises(SchemaViolation, match=r"params/sub/0/sub of 'category' \(version 1\)"):
        app.enqueue("category", {"sub": [{"sub": 7}]})


def test_the_error_about_a_shallow_invalid_value_states_what_is_wrong(app: Any) -> None:
    app.register_type("tree", TREE)
    with pytest.raises(SchemaViolation, match=r"params/tree of 'tree' \(version 1\): .*anyOf"):
        app.enqueue("tree", tree(2, 5))


def test_params_with_many_errors_are_refused_with_the_first_error(app: Any) -> None:
    """To describe all 1,200,000 errors would take a quarter of a minute and gigabytes."""
    app.register_type("things", {"properties": {"all": {"items": {"required": ["a", "b", "c", "d", "e", "f"]}}}})
    with within(10), pytest.raises(SchemaViolation, match="params/all/0 "):
        app.enqueue("things", {"all": [{}] * 200_000})


def test_an_error_does_not_repeat_a_megabyte_of_params(app: Any) -> None:
    app.register_type("short", {"properties": {"text": {"maxLength": 3}}})
    with pytest.raises(SchemaViolation) as refused:
        app.enqueue("short", {"text": "x" * 500_000})
    assert len(str(refused.value)) < 2_000


def test_a_value_whose_validation_takes_too_long_is_refused_and_not_stored(app: Any) -> None:
    app.register_type("endless", ENDLESS)
    with within(15), pytest.raises(ValidationTooSlow, match=r"'endless' \(version 1\) takes longer than") as refused:
        app.enqueue("endless", {})
    assert refused.value.code == "validation_too_slow"
    assert "smaller" in refused.value.hint
    assert app.list_tasks() == []


SHORT_HERE = {f"level{number}": {} for number in range(61)}
ELSEWHERE = {
    "a reference through a schema with an $id": {
        "$defs": {"other": {**ENDLESS, "$id": "http://other"}, **SHORT_HERE},
        "$ref": "#/$defs/other/$defs/level0",
    },
    "an id of draft 4": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "$defs": SHORT_HERE,
        "allOf": [{"id": "http://other", "$defs": ENDLESS["$defs"], "allOf": [{"$ref": "#/$defs/level0"}]}],
    },
    "an index that only the validator understands": {**ENDLESS, "$ref": "#/all/+0", "all": [{"$ref": ENDLESS["$ref"]}]},
}
"""Schemas whose references mean something else than the same path from the root."""


@pytest.mark.parametrize("schema", ELSEWHERE.values(), ids=ELSEWHERE.keys())
def test_a_reference_into_another_part_of_a_schema_does_not_hide_slow_validation(app: Any, schema: Any) -> None:
    app.register_type("endless", schema)
    with within(15), pytest.raises(ValidationTooSlow):
        app.enqueue("endless", {})


def test_a_regular_expression_that_backtracks_is_bounded(app: Any) -> None:
    """Each text is valid, after some milliseconds of backtracking: a minute for all of them."""
    app.register_type("text", {"properties": {"all": {"items": {"pattern": "^(?:((?!x)a|(?!x)aa)*c|a*)$"}}}})
    with within(15), in_less_time(), pytest.raises(ValidationTooSlow):
        app.enqueue("text", {"all": ["a" * 22] * 20_000})
    assert app.list_tasks() == []


def test_a_large_schema_and_large_params_are_bounded(app: Any) -> None:
    everything = {f"^.*x{number}$": {"type": "integer"} for number in range(3_000)}
    app.register_type("large", {"patternProperties": everything})
    with within(15), in_less_time(), pytest.raises(ValidationTooSlow):
        app.enqueue("large", {f"key{number}": number for number in range(60_000)})
    assert app.list_tasks() == []


def test_a_repeated_enqueue_finds_its_task_also_if_its_validation_now_takes_too_long(app: Any) -> None:
    first = app.enqueue("endless", {"a": 1}, key="once")
    app.register_type("endless", ENDLESS)
    again = app.enqueue("endless", {"a": 1}, key="once")
    assert (again.id, again.deduplicated) == (first.id, True)


# Every way into the store


def test_every_way_to_enqueue_has_the_validation_limit(app: Any) -> None:
    app.register_type("endless", ENDLESS)
    slow = NewTask("endless", {})
    workflow = app.start_workflow(
        dibs.NewWorkflow(name="running", steps=[NewStep(name="first", task=NewTask("plain"))])
    )
    ways: list[Callable[[], Any]] = [
        lambda: app.enqueue_many([NewTask("plain"), slow]),
        lambda: app.start_workflow(dibs.NewWorkflow(name="new", steps=[NewStep(name="slow", task=slow)])),
        lambda: app.add_steps(workflow.id, [NewStep(name="slow", task=slow)]),
    ]
    for way in ways:
        with within(15), in_less_time(), pytest.raises(ValidationTooSlow):
            way()
    assert [task.type for task in app.list_tasks()] == ["plain"]


def test_a_batch_of_slow_values_is_refused_as_a_whole_within_the_time_of_one_call(app: Any) -> None:
    app.register_type("slow", nested_references(23))
    with within(25), pytest.raises(ValidationTooSlow):
        app.enqueue_many([NewTask("slow", {"number": number}) for number in range(200)])
    assert app.list_tasks() == []


def test_an_outcome_that_adds_a_slow_step_is_refused_and_other_outcomes_of_its_batch_are_not(app: Any) -> None:
    app.register_type("endless", ENDLESS)
    app.start_workflow(dibs.NewWorkflow(name="grows", steps=[NewStep(name="first", task=NewTask("plain"))]))
    other = app.enqueue("other")
    claims = app.claim_many("worker-1", 2)
    outcomes = [
        dibs.Completed(
            None, steps=[NewStep(name="slow", task=NewTask("endless", {}))] if claim.task.type == "plain" else []
        )
        for claim in claims
    ]
    with within(20), in_less_time():
        answers = app.finish(list(zip(claims, outcomes, strict=True)))
    refused = [answer for answer in answers if isinstance(answer, Exception)]
    assert [type(error) for error in refused] == [ValidationTooSlow]
    assert app.get(other.id).state == dibs.State.COMPLETED


def test_a_tick_with_slow_params_is_recorded_as_error_and_the_schedule_continues(app: Any, clock: Clock) -> None:
    app.set_schedule("nightly", "* * * * *", "endless", {})
    app.register_type("endless", ENDLESS)
    with within(15), in_less_time(), pytest.raises(ValidationTooSlow):
        app.run_schedule("nightly")
    clock.advance(61)
    with within(20), in_less_time():
        app.upkeep()
    schedule = app.get_schedule("nightly")
    assert "takes longer than" in (schedule.last_error or "")
    assert app.list_tasks() == []


# Others


def test_other_calls_are_served_while_a_slow_value_is_validated(url: str, open_app: Callable[..., Any]) -> None:
    app = open_app(url)
    app.register_type("endless", ENDLESS)
    app.enqueue("plain")
    began, refusals = threading.Event(), []

    def validate() -> None:
        began.set()
        try:
            app.enqueue("endless", {})
        except ValidationTooSlow as error:
            refusals.append(error)

    slow = threading.Thread(target=validate)
    slow.start()
    began.wait()
    longest = served = 0.0
    while slow.is_alive():
        called = time.monotonic()
        app.enqueue("plain", {"n": served})
        longest = max(longest, time.monotonic() - called)
        served += 1
        let_pass(0.02)  # without a pause the calls alone keep a processor busy
    slow.join()
    assert len(refusals) == 1
    assert served > 5
    assert longest < 1.5, f"a call took {longest:.1f} s beside a validation"


def test_slow_values_of_one_type_do_not_stop_the_validation_of_another(url: str, open_app: Callable[..., Any]) -> None:
    app = open_app(url)
    app.register_type("endless", ENDLESS)
    app.register_type("careful", {"properties": {"name": {"pattern": "^(?!admin)[a-z]+$"}}})
    app.enqueue("careful", {"name": "bob"})
    refused: list[Exception] = []

    def validate() -> None:
        try:
            app.enqueue("endless", {})
        except dibs.DibsError as error:
            refused.append(error)

    slow = [threading.Thread(target=validate) for _ in range(4)]
    for thread in slow:
        thread.start()
    with within(5):
        assert app.enqueue("careful", {"name": "eve"}).type_version == 1
    with pytest.raises(SchemaViolation):
        app.enqueue("careful", {"name": "admin"})
    for thread in slow:
        thread.join()
    assert {type(error) for error in refused} <= {ValidationTooSlow, dibs.StoreBusy}


@pytest.mark.database
def test_a_version_registered_during_a_validation_does_not_apply_to_it(url: str, open_app: Callable[..., Any]) -> None:
    """The two calls overlap: the task is stored as if it had been enqueued first, and says which version it fits."""
    app = open_app(url)
    app.register_type("slow", nested_references(21))  # some tenths of a second
    tasks: list[dibs.Task] = []
    enqueueing = threading.Thread(target=lambda: tasks.append(app.enqueue("slow", {"a": 1})))
    enqueueing.start()
    until(lambda: processes()._busy.total() == 1)
    second = app.register_type("slow", {"required": ["b"]})
    assert enqueueing.is_alive()
    enqueueing.join()
    [task] = tasks
    assert (second.version, task.type_version, app.get(task.id).type_version) == (2, 1, 1)
    with pytest.raises(SchemaViolation):  # what begins after the registration is bound by it
        app.enqueue("slow", {"a": 1})


# Registering


def test_a_schema_that_takes_too_long_to_compile_is_refused(app: Any) -> None:
    patterns = [{"pattern": f"(a{{100}}){{100}}{number}"} for number in range(20_000)]
    with within(15), in_less_time(), pytest.raises(InvalidValue, match="JSON Schema"):
        app.register_type("large", {"allOf": patterns})
    assert app.list_types() == []


def test_a_schema_beyond_a_megabyte_is_refused(app: Any) -> None:
    with within(15), pytest.raises(InvalidValue):
        app.register_type("huge", {"enum": ["x" * 100] * 20_000})


def test_schemas_that_refer_to_themselves_in_place_are_harmless(app: Any) -> None:
    for each in ({"$ref": "#"}, {"allOf": [{"$ref": "#"}]}, {"$dynamicAnchor": "n", "$dynamicRef": "#n"}):
        with within(15):
            app.register_type("itself", each)
            app.enqueue("itself", {})


def test_a_meta_schema_is_not_fetched_either(app: Any) -> None:
    for each in ({"$schema": "http://127.0.0.1:9/meta"}, {"$dynamicRef": "http://127.0.0.1:9/other#x"}):
        with within(10), pytest.raises(InvalidValue):
            app.register_type("remote", each)
    large = {"properties": {f"p{number}": {"$ref": "file:///etc/hostname"} for number in range(3_000)}}
    with within(10), pytest.raises(InvalidValue, match="fetches no schemas"):
        app.register_type("remote", large)
