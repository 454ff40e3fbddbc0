"""Paths and Pydantic models as JSON: the types that msgspec leaves to its caller.

Pydantic is never imported here: a class can be a Pydantic model only if the program has imported Pydantic.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import PurePath
from typing import Any

import msgspec

INNER = "\0"
"""In the message of a conversion error: what follows is a place inside of the value."""


def is_path(kind: Any) -> bool:
    """True for a class of paths."""
    return isinstance(kind, type) and issubclass(kind, PurePath)


def is_model(kind: Any) -> bool:
    """True for a Pydantic 2 model."""
    pydantic: Any = sys.modules.get("pydantic.main")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def encode_custom(value: Any) -> Any:
    """The value as JSON. TypeError for a value of another type."""
    if isinstance(value, PurePath):
        return str(value)
    if is_model(type(value)):
        return _encode_model(value)
    raise TypeError(f"Encoding objects of type {type(value).__qualname__} is unsupported")


def _encode_model(value: Any) -> Any:
    written = value.model_dump(mode="json", by_alias=True, round_trip=True)
    kind: Any = type(value)
    if not _may_have_sets(kind):
        return written
    return _sort_sets(written, value.model_dump(by_alias=True, round_trip=True))


@cache
def _may_have_sets(kind: Any) -> bool:
    try:
        return b"uniqueItems" in msgspec.json.encode(kind.model_json_schema())
    except Exception:  # a model without a schema
        return True


def _sort_sets(written: Any, value: Any) -> Any:
    """The JSON with the items of sets in an order that is the same in every process. `value`: the same value as Python
    objects."""
    if isinstance(value, (set, frozenset)) and isinstance(written, list):
        return sorted(written, key=msgspec.json.encode)
    if isinstance(value, dict) and isinstance(written, dict):
        pairs = zip(written.items(), value.values(), strict=True)
        return {name: _sort_sets(each, inner) for (name, each), inner in pairs}
    if isinstance(value, (list, tuple)) and isinstance(written, list):
        return [_sort_sets(each, inner) for each, inner in zip(written, value, strict=True)]
    return written


def decode_custom(kind: Any, value: Any) -> Any:
    """The JSON value as the type. ValueError if it does not fit."""
    if is_path(kind):
        if type(value) is not str:
            raise ValueError(f"Expected `str`, got `{type(value).__name__}`")
        return kind(value)
    try:
        return kind.model_validate_json(msgspec.json.encode(value), strict=True)
    except ValueError as error:
        raise ValueError(_first_problem(error)) from None


def _first_problem(error: Any) -> str:
    """The first problem of a ValidationError of Pydantic, with its place."""
    found = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in found["loc"])
    return f"{found['msg']}{INNER}{place}"
