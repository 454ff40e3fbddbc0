"""Values of many types become JSON and come back exactly; the schema accepts what is written; others are refused."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from dataclasses import InitVar, dataclass, make_dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, Never, Protocol

import attrs
import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_serializer, field_validator

from dibs import Context, Dibs, InvalidValue
from dibs.handlers import params_schema
from dibs.handlers.arguments import Arguments
from dibs.handlers.values import ReturnType, to_json
from dibs.model.task import Task
from dibs.store.schemas import check_schema
from tests.helpers.each import for_each
from tests.helpers.values import JOB, ORDER, VALUES, Color, Job, Level, Order, Point, Right, Size


def taking(kind: Any, returns: Any = Any) -> Any:
    """A function with one argument of this type."""

    def work(value):  # type: ignore[no-untyped-def]
        return value

    work.__annotations__ = {"value": kind, "return": returns}
    return work


def stored(kind: Any, value: Any) -> tuple[Any, Any, dict[str, Any]]:
    """The JSON of an argument, what the handler gets, and the schema. The JSON has been text, as in a store."""
    arguments = Arguments("work", taking(kind))
    params = msgspec.json.decode(msgspec.json.encode(arguments.to_params((value,), {})))
    got = arguments.from_params(params, None)["value"]  # type: ignore[arg-type]
    return params, got, arguments.schema()


@for_each("kind,values", VALUES)
def test_arguments_come_back_exactly_and_fit_their_schema(kind: Any, values: Any) -> None:
    for value in values:
        params, got, schema = stored(kind, value)
        assert got == value
        assert type(got) is type(value) or kind is float
        jsonschema_rs.validate(schema, params)
        check_schema(msgspec.json.encode(schema).decode(), cheap=True)


@for_each("kind,values", VALUES)
def test_results_come_back_exactly(kind: Any, values: Any) -> None:
    returns = ReturnType("work", taking(Any, kind))
    for value in values:
        task = msgspec.structs.replace(BLANK, raw_result=msgspec.json.decode(msgspec.json.encode(to_json(value))))
        assert returns.convert(task) == value


BLANK: Any = msgspec.convert(dict.fromkeys(Task.__struct_fields__), msgspec.defstruct("Blank", [
    (name, Any) for name in Task.__struct_fields__
]))  # fmt: skip


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Annotations of containers with the annotation, and unions with None."""
    return inner.flatmap(lambda pair: st.sampled_from(list(around(*pair))))


def around(kind: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    holder = make_dataclass("Holder", [("x", kind)])
    yield holder, holder(value)
    yield list[kind], [value, value]
    yield dict[str, kind], {"a": value}
    yield tuple[kind, int], (value, 1)
    yield kind | None, value


EACH = [(kind, value) for kind, values in VALUES for value in values if kind is not object]


@settings(max_examples=150, deadline=None)
@given(st.recursive(st.sampled_from(EACH), nested, max_leaves=3))
def test_nested_values_come_back_exactly_and_fit_their_schema(pair: tuple[Any, Any]) -> None:
    kind, value = pair
    params, got, schema = stored(kind, value)
    assert got == value
    jsonschema_rs.validate(schema, params)


@for_each(
    "kind,value",
    [
        (Decimal, 7),
        (float, 7),
        (set[int], [1, 1]),
        (Order, {"orderNumber": 1, "lines": [{"price": 2}, {"price": "2.0", "tags": ["a", "a"]}]}),
        (Job, {"order": None, "where": "a"}),
        (Right, 3),
        (Path, "a"),
    ],
)
def test_the_schema_accepts_what_the_annotation_accepts(kind: Any, value: Any) -> None:
    params, _, schema = stored(kind, value)
    jsonschema_rs.validate(schema, params)


@for_each(
    "kind,value,place",
    [
        (int, "7", "value"),
        (Path, 7, "value"),
        (Order, {"orderNumber": "1"}, "value.orderNumber"),
        (list[Order], [ORDER, {"orderNumber": 1, "lines": [{"price": "x"}]}], "value[1].lines[0].price"),
        (Job, Job({"orderNumber": 0}, Path()), "value.order.orderNumber"),
        (Order, {"orderNumber": 1, "other": 1}, "value.other"),
        (Color, "green", "value"),
        (dict[str, Size], {"a": {"width": "1"}}, "value[...].width"),
    ],
)
def test_a_wrong_argument_is_refused_with_its_place(kind: Any, value: Any, place: str) -> None:
    with pytest.raises(InvalidValue, match=f"do not match the handler 'work': .* for `{re.escape(place)}`"):
        Arguments("work", taking(kind)).to_params((value,), {})


class FromText(BaseModel):
    """A model whose validator accepts another shape."""

    names: list[str]

    @field_validator("names", mode="before")
    @classmethod
    def split(cls, value: Any) -> Any:
        return value.split(",") if isinstance(value, str) else value


class AsText(BaseModel):
    """A model that writes another type than it has."""

    n: int

    @field_serializer("n")
    def as_text(self, value: int) -> str:
        return f"{value}"

    @field_validator("n", mode="before")
    @classmethod
    def from_text(cls, value: Any) -> Any:
        return int(value)


def test_what_is_stored_is_the_model_and_not_what_its_validator_was_given() -> None:
    params, got, schema = stored(FromText, {"names": "a,b"})
    assert (params, got) == ({"value": {"names": ["a", "b"]}}, FromText(names=["a", "b"]))
    jsonschema_rs.validate(schema, params)


def test_a_model_that_writes_another_type_than_it_reads_has_no_schema() -> None:
    params, got, schema = stored(list[AsText], [AsText(n=7)])
    assert (params, got) == ({"value": [{"n": "7"}]}, [AsText(n=7)])
    assert schema["properties"] == {"value": {"type": "array", "items": {}}}


def output_of(code: str, seed: str) -> bytes:
    """What a Python process prints whose texts have these hashes."""
    environment = {"PYTHONHASHSEED": seed}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout


def test_equal_sets_are_stored_alike_in_every_process() -> None:
    code = (
        "from dibs.handlers.arguments import Arguments\n"
        "def f(names: dict[str, set[str]]): ...\n"
        "print(Arguments('f', f).to_params(({'x': {'a', 'b', 'c', 'd', 'e'}},), {}))"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(runs) == 1


def test_pydantic_and_attrs_are_not_imported_for_programs_without_them() -> None:
    code = (
        "import sys, dibs, pathlib\n"
        "app = dibs.Dibs('sqlite:///x.db')\n"
        "@app.task\n"
        "def f(a: int, b: pathlib.Path | None = None) -> set[int]: ...\n"
        "f.new(7, pathlib.Path('a')); f.declared_schema\n"
        "assert not {'pydantic', 'attr', 'attrs'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# Schemas


def test_the_schema_has_the_arguments_and_not_the_context() -> None:
    def work(ctx: Context, a: int, b: str = "x", *, c, d: Path | None = None) -> None: ...  # type: ignore[no-untyped-def]

    assert Arguments("work", work).schema() == {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "c": {},
            "b": {"type": "string"},
            "d": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["a", "c"],
        "additionalProperties": False,
    }


def test_a_handler_with_arbitrary_arguments_has_an_open_schema() -> None:
    def work(a: int = 1, **others: int) -> None: ...

    assert Arguments("work", work).schema() == {"type": "object", "properties": {"a": {"type": "integer"}}}


def test_classes_with_equal_names_have_definitions_of_their_own() -> None:
    def point(kind: Any) -> Any:
        return make_dataclass("Line", [("kind", kind)])

    def work(a, b, c): ...  # type: ignore[no-untyped-def]

    work.__annotations__ = {"a": point(int), "b": point(str), "c": Order}
    schema = Arguments("work", work).schema()
    assert {"Line", "Line_2", "Line_3", "Order"} <= schema["$defs"].keys()
    good = {"a": {"kind": 1}, "b": {"kind": "x"}, "c": {"orderNumber": 1, "lines": [{"price": 1}]}}
    jsonschema_rs.validate(schema, good)
    for name, bad in (("a", {"kind": "x"}), ("b", {"kind": 1}), ("c", {"orderNumber": 1, "lines": [{}]})):
        assert not jsonschema_rs.is_valid(schema, {**good, name: bad})


def test_the_schema_does_not_depend_on_the_process() -> None:
    code = (
        "import json; from dibs.handlers.arguments import Arguments; from tests.helpers.values import VALUES\n"
        "for kind, _ in VALUES:\n"
        "    def f(x): ...\n"
        "    f.__annotations__ = {'x': kind}\n"
        "    print(json.dumps(Arguments('f', f).schema()))"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1


def test_every_type_of_msgspec_has_a_writer() -> None:
    kinds = [each for each in vars(msgspec.inspect).values() if isinstance(each, type)]
    kinds = [each for each in kinds if issubclass(each, msgspec.inspect.Type) and each is not msgspec.inspect.Type]
    known = tuple(inner for each in params_schema._WRITERS for inner in (each if isinstance(each, tuple) else (each,)))
    inspect = msgspec.inspect
    others = (*params_schema._CLASSES, inspect.EnumType, inspect.Metadata, inspect.AnyType, inspect.RawType)
    assert [each for each in kinds if not issubclass(each, (*known, *others, inspect.ExtType))] == []


# What cannot be stored


class Plain:
    """A class without fields."""


class Mixed(Enum):
    ONE = 1
    TEXT = "text"


class Secret(BaseModel):
    token: SecretStr


@attrs.define
class Private:
    _x: int = 1


@dataclass
class WithInit:
    x: InitVar[int]


@dataclass
class Connection:
    socket: socket.socket


@dataclass
class Unhashable:
    x: int


class Second(NamedTuple):
    z: int


REFUSED: list[tuple[Any, str]] = [
    (socket.socket, "socket.socket is not a type that dibs can store"),
    (list[socket.socket | None], "socket.socket"),
    (Connection, "socket.socket"),
    (Plain, "test_stored_values.Plain is not a type that dibs can store"),
    (Fraction, "fractions.Fraction"),
    (complex, "complex"),
    (Callable[[], int], "functions and classes cannot be stored"),
    (type[int], "functions and classes cannot be stored"),
    (Iterator[int], "Iterator is consumed while it is read"),
    (Awaitable[int], "Awaitable is consumed"),
    (Size | Unhashable, "JSON cannot tell the types of a union apart"),
    (str | datetime, "JSON cannot tell the types of a union apart"),
    (str | Path, "JSON cannot tell the types of a union apart"),
    (list[Order | Size], "JSON cannot tell the types of a union apart"),
    (list[int] | Point, "JSON cannot tell the types of a union apart"),
    (Mixed, "Enums must contain either all str or all int values"),
    (dict[tuple[int, int], str], "the keys of a dict"),
    (dict[int | str, str], "the keys of a dict"),
    (dict[Path, str], "the keys of a dict"),
    (set[Unhashable], "Unhashable, which is not hashable"),
    (set[list[int]], "a set cannot contain lists"),
    (Private, "'_x' of .*Private is private"),
    (WithInit, "InitVar"),
    (list[Secret], "the secret in the field 'token' of .*Secret would be stored as asterisks"),
]


@for_each("kind,reason", REFUSED)
def test_what_cannot_be_stored_is_refused_when_the_handler_is_declared(kind: Any, reason: str) -> None:
    app = Dibs("sqlite:///never.db")
    with pytest.raises(
        InvalidValue, match=f"The handler 'work' cannot store the argument value: .*{reason}"
    ) as refused:
        app.task(taking(kind))
    assert refused.value.hint
    with pytest.raises(InvalidValue, match=f"The handler 'work' cannot store the result: .*{reason}"):
        app.task(taking(Any, kind))
    assert not app.handlers


class Sized(Protocol):
    """A Protocol."""

    size: int


class Name(str):
    """A subclass of a JSON type."""


@for_each("kind", [Any, object, Iterable[int], Hashable, Sized, Name, Name | int, Never, Iterable[int] | None])
def test_what_json_values_fit_stays_plain_json(kind: Any) -> None:
    Dibs("sqlite:///never.db").task(taking(kind, kind))
    for value in ("a", [1], {"a": 1}):
        assert stored(kind, value)[:2] == ({"value": value}, value)


def test_a_forward_reference_is_checked_at_the_first_use_and_by_the_worker(tmp_path: Path) -> None:
    app = Dibs(f"sqlite:///{tmp_path}/a.db")

    @app.task
    def work(value: Later) -> None: ...  # noqa: F821

    work.function.__globals__["Later"] = socket.socket
    try:
        with pytest.raises(InvalidValue, match=r"cannot store the argument value: socket\.socket"):
            work.new(1)
        with pytest.raises(InvalidValue, match=r"cannot store the argument value: socket\.socket"):
            app.worker(burst=True).run()
    finally:
        del work.function.__globals__["Later"]
        app.close()


def test_the_context_is_not_an_argument_to_store() -> None:
    @Dibs("sqlite:///never.db").task
    def work(ctx: Context, level: Level = Level.LOW) -> None: ...

    assert work.new().params == {}


class Aliased(BaseModel):
    """A model that is read and written by its alias."""

    model_config = ConfigDict(populate_by_name=True)
    width: int = Field(alias="w")


def test_a_model_is_stored_by_its_aliases_however_it_is_given() -> None:
    for value in (Aliased(w=1), {"w": 1}, {"width": 1}):
        params, got, schema = stored(Aliased, value)
        assert (params, got) == ({"value": {"w": 1}}, Aliased(w=1))
        jsonschema_rs.validate(schema, params)


def test_a_nested_value_is_stored_by_the_documented_rules() -> None:
    params, _, _ = stored(Job, JOB)
    assert params["value"] == {
        "order": {
            "orderNumber": 3,
            "lines": [
                {
                    "price": "1.50",
                    "tags": ["a", "b"],
                    "at": "2026-01-02T03:04:05.000678Z",
                    "path": "a/b",
                    "took": "-P1D",
                    "rate": 0.1,
                    "code": "a-1",
                }
            ],
            "color": "red",
            "of": None,
        },
        "where": "some/where",
        "point": [1, 0],
        "wait": "PT1S",
    }
