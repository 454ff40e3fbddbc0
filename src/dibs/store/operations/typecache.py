"""The registered task types as this process knows them, and the check of params against them.

Asking the database before every enqueue would cost a round trip each, so the types are kept for a second: a schema
registered by this process holds at once, one registered elsewhere within that second.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jsonschema_rs

from dibs.codec import decode
from dibs.errors import InvalidValue, SchemaViolation
from dibs.store.operation import Row, Statement, Steps

KEPT_FOR = 1.0


class TypeCache:
    """The newest version of each registered task type."""

    def __init__(self) -> None:
        self._types: dict[str, _Type] = {}
        self._stale_at = 0.0

    @property
    def empty(self) -> bool:
        """True where no type is registered."""
        return not self._types

    def forget(self) -> None:
        """Ask again before the next enqueue."""
        self._stale_at = 0.0

    def refresh(self) -> Steps[None]:
        """Read the types if what is known is too old."""
        if time.monotonic() < self._stale_at:
            return
        rows = yield Statement("latest_types")
        known = self._types
        self._types = {row[0]: _same_or_new(known.get(row[0]), row) for row in rows}
        self._stale_at = time.monotonic() + KEPT_FOR

    def apply(self, name: str, params: Any) -> tuple[Any, int | None, SchemaViolation | None]:
        """The params with the type's defaults filled in, the version they were checked against, and what is wrong."""
        if not self._types or (known := self._types.get(name)) is None or type(params) is not dict:
            return params, None, None
        full = known.fill_in(params)
        return full, known.version, known.check(full)


_own: ContextVar[TypeCache | None] = ContextVar("types of its own", default=None)


@contextmanager
def types_of_its_own() -> Iterator[None]:
    """For an operation in the user's transaction: what it reads there may be rolled back, and binds nobody else."""
    token = _own.set(TypeCache())
    try:
        yield
    finally:
        _own.reset(token)


def known_types(shared: TypeCache) -> TypeCache:
    """The types as the current operation knows them."""
    return _own.get() or shared


class _Type:
    def __init__(self, name: str, version: int, schema: str | None, defaults: str | None) -> None:
        self.name, self.version, self.content = name, version, (version, schema, defaults)
        self._defaults: dict[str, Any] = decode(defaults) if defaults else {}
        self._validator = None if schema is None else compile_schema(decode(schema))

    def fill_in(self, params: dict[str, Any]) -> dict[str, Any]:
        return {**self._defaults, **params}

    def check(self, params: dict[str, Any]) -> SchemaViolation | None:
        if self._validator is None or (error := next(self._errors(params), None)) is None:
            return None
        place = "/".join(str(part) for part in error.instance_path)
        return SchemaViolation(
            f"params{'/' + place if place else ''} of {self.name!r} (version {self.version}): {error.message}",
            hint="Change the params, or register a new version of the task type.",
        )

    def _errors(self, params: dict[str, Any]) -> Any:
        assert self._validator is not None
        try:
            return iter(self._validator.iter_errors(params))
        except ValueError as error:  # a value that is not JSON: the codec says it better
            raise InvalidValue(f"params of {self.name!r} are not JSON: {error}") from None


def compile_schema(schema: Any) -> Any:
    """A validator for the JSON Schema; InvalidValue where it is not a valid schema. It never fetches anything."""
    try:
        return jsonschema_rs.validator_for(schema, retriever=_refuse_to_fetch)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise InvalidValue(f"This is not a valid JSON Schema: {str(error).splitlines()[0]}") from None


def _refuse_to_fetch(uri: str) -> Any:
    raise ValueError(f"the schema refers to {uri}, and dibs fetches no schemas; put it inside")


def _same_or_new(known: _Type | None, row: Row) -> _Type:
    return known if known is not None and known.content == row[1:] else _Type(*row)
