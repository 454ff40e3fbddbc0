"""Generated constructors: fields are assigned by name, and a missing field is an error at import."""

from __future__ import annotations

from typing import Annotated

import msgspec
import pytest
from msgspec import UNSET, Meta, UnsetType

from dibs.model.construct import constructor


class Point(msgspec.Struct, frozen=True):
    """A struct of the model."""

    x: int
    y: int | None = None
    note: str | None = None
    marked: bool = False


class WirePoint(msgspec.Struct, frozen=True):
    """The same in another order, with a text for a number."""

    y: Annotated[str | None, Meta(description="A number.")]
    x: int
    note: str | UnsetType = UNSET


class PointBody(msgspec.Struct, frozen=True, kw_only=True):
    """The same by keyword only."""

    y: int | None = None
    x: int


def test_fields_are_assigned_by_name_in_any_order() -> None:
    to_wire = constructor(WirePoint, source=Point, y=str)
    assert to_wire(Point(1, 2, "n")) == WirePoint(y="2", x=1, note="n")


def test_a_keyword_only_field_is_passed_by_keyword() -> None:
    assert constructor(PointBody, source=Point)(Point(1, 2)) == PointBody(x=1, y=2)


def test_none_is_not_converted_and_is_absent_on_the_wire() -> None:
    to_wire = constructor(WirePoint, source=Point, y=str)
    to_model = constructor(Point, source=WirePoint, also=("marked",), y=int)
    assert to_wire(Point(1)) == WirePoint(y=None, x=1, note=UNSET)
    assert to_model(to_wire(Point(1)), True) == Point(1, marked=True)


def test_a_field_that_the_source_does_not_have_is_an_error_at_once() -> None:
    with pytest.raises(TypeError, match="WirePoint has no field marked, which Point needs"):
        constructor(Point, source=WirePoint)


def test_a_conversion_for_an_unknown_field_is_an_error_at_once() -> None:
    with pytest.raises(TypeError, match="PointBody has no field z"):
        constructor(PointBody, source=Point, z=str)
