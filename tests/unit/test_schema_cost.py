"""The estimate of validation work: small for ordinary schemas, large or unbounded for schemas that may be slow."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from math import inf
from typing import Any

import pytest

from dibs.errors import StoreError
from dibs.store.schemas import processes
from dibs.store.schemas.cost import UNBOUNDED, cost_of
from dibs.store.schemas.processes import Processes, TooSlow
from dibs.store.schemas.schema import DESCRIBED_HERE, HERE, NotHere, Schema
from tests.contract.test_validation_limits import CATEGORY, ENDLESS, TREE, nested_references, tree

MODEL = {
    "$defs": {"address": {"properties": {"street": {"type": "string"}, "city": {"$ref": "#/$defs/city"}}},
              "city": {"type": "object", "properties": {"name": {"type": "string", "pattern": "^[A-Z][a-z]{1,80}$"}}}},
    "properties": {f"field{n}": {"anyOf": [{"type": "string"}, {"type": "null"}]} for n in range(30)}
    | {"home": {"$ref": "#/$defs/address"}, "work": {"$ref": "#/$defs/address"}},
    "required": ["field0", "home"],
}  # fmt: skip


def test_an_ordinary_schema_is_validated_in_this_process_up_to_large_params() -> None:
    assert Schema(json.dumps(MODEL)).work({}, 10_000) < HERE


def test_a_recursion_without_alternatives_costs_no_more_at_depth() -> None:
    assert cost_of(CATEGORY).peak(64) < 20


def test_each_level_of_a_recursion_with_two_alternatives_doubles_the_work() -> None:
    cost = cost_of(TREE)
    assert cost.peak(11) / cost.peak(10) == pytest.approx(2)
    assert cost.peak(64) > 2**40


def test_references_that_are_used_twice_count_twice() -> None:
    assert cost_of(nested_references(10)).peak(0) >= 2**10
    assert cost_of(ENDLESS).peak(0) >= 2**60


def test_a_short_validation_whose_errors_take_long_to_describe_describes_them_in_another_process() -> None:
    """Each alternative that fails at each level is an error of its own: describing them took 0.8 s here."""
    schema = Schema(json.dumps(TREE))
    bodies = [(params, json.dumps(params)) for params in (tree(depth, {"kind": "c"}) for depth in range(1, 20))]
    between = [body for body in bodies if DESCRIBED_HERE < schema.work(body[0], len(body[1])) <= HERE]
    assert between
    for params, text in between:
        with pytest.raises(NotHere):
            schema.validate(params, text, until=None)
    found = schema.validate(*between[0], until=time.monotonic() + 20)
    assert found is not None


UNKNOWN: list[Any] = [
    {"$ref": "#"},
    {"allOf": [{"$ref": "#"}]},
    {"$dynamicAnchor": "n", "properties": {"a": {"$dynamicRef": "#n"}}},
    {"$defs": {"a": {"$id": "other", "type": "object"}}, "properties": {"a": {"$ref": "#/$defs/a"}}},
    {"$defs": {"a": {"$anchor": "there"}}, "$ref": "#there"},
    {"$defs": {"a": {"$id": "other", "$defs": {"b": {}}}}, "$ref": "#/$defs/a/$defs/b"},
    {"$schema": "http://json-schema.org/draft-04/schema#", "allOf": [{"id": "http://other"}]},
    {"$ref": "#/all/+0", "all": [{}]},
    {"properties": {"a": {"pattern": "^(?!b)"}}},
    {"properties": {"a": {"format": "regex"}}},
]


@pytest.mark.parametrize("schema", UNKNOWN, ids=json.dumps)
def test_a_schema_whose_work_is_unknown_has_no_bound(schema: Any) -> None:
    assert cost_of(schema) is UNBOUNDED
    assert cost_of(schema).peak(0) == inf


def test_the_estimate_itself_is_short_for_a_large_recursive_schema() -> None:
    names = [f"n{number}" for number in range(1_500)]
    defs = {
        name: {"anyOf": [{"properties": {"a": {"$ref": f"#/$defs/{names[(place * 7 + 1) % 1_500]}"}}}] * 2}
        for place, name in enumerate(names)
    }
    began = time.process_time()
    cost_of({"$defs": defs, "$ref": "#/$defs/n0"})
    assert time.process_time() - began < 2.0


def test_a_validation_process_that_ended_while_it_was_idle_is_replaced() -> None:
    processes = Processes()
    try:
        assert processes.validate("{}", "{}", decided=False, seconds=10).valid
        [child] = processes._idle
        child._process.kill()
        assert processes.validate("false", "{}", decided=False, seconds=10).message is not None
    finally:
        processes.close()


def test_a_validation_that_takes_too_long_ends_only_its_own_process() -> None:
    processes = Processes()
    try:
        with pytest.raises(TooSlow, match="longer than"):
            processes.validate(json.dumps(ENDLESS), "{}", decided=False, seconds=0.5)
        assert processes.validate("{}", "{}", decided=False, seconds=10).valid
    finally:
        processes.close()


@pytest.fixture
def fresh_processes() -> Iterator[Processes]:
    """Validating processes of this test alone."""
    fresh = Processes()
    yield fresh
    fresh.close()


def test_the_start_of_a_validation_process_does_not_count_for_the_time_limit(
    fresh_processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "PROGRAM", f"import time; time.sleep(2); {processes.PROGRAM}")
    assert fresh_processes.validate("{}", "{}", decided=False, seconds=1).valid
    assert not fresh_processes.validate("false", "{}", decided=True, seconds=1).valid


@pytest.mark.parametrize("program", ["raise SystemExit", "import time; time.sleep(60)"], ids=["ends", "hangs"])
def test_a_validation_process_that_cannot_start_is_an_error_without_endless_retries(
    fresh_processes: Processes, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(processes, "PROGRAM", program)
    monkeypatch.setattr(processes, "START_LIMIT", 1.0, raising=False)
    with pytest.raises(StoreError, match="could not be started") as refused:
        fresh_processes.validate("{}", "{}", decided=False, seconds=1)
    assert refused.value.hint


@pytest.mark.skipif(sys.platform != "linux", reason="reads the limits of another process")
def test_a_validation_process_may_use_half_a_gibibyte() -> None:
    import resource

    processes = Processes()
    try:
        assert processes.validate("{}", "{}", decided=False, seconds=10).valid
        [child] = processes._idle
        assert resource.prlimit(child._process.pid, resource.RLIMIT_AS) == (512 * 1024**2, 512 * 1024**2)
    finally:
        processes.close()
