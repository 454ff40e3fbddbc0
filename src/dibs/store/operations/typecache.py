"""The registered task types as this process knows them, and the validation of params against them.

Asking the database before every enqueue would cost a round trip each, so the types are kept for a second: a schema
registered by this process holds at once, one registered elsewhere within that second.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from dibs.codec import decode
from dibs.errors import InvalidValue, SchemaViolation, ValidationTooSlow
from dibs.store.operation import Mode, Operation, Row, Statement, Statements
from dibs.store.schemas import Schema, TooSlow

KEPT_FOR = 1.0

Types = Mapping[str, "Type"]
"""The newest version of each registered task type, as it was at one moment."""


class TypeCache:
    """The newest version of each registered task type."""

    def __init__(self) -> None:
        self._types: dict[str, Type] = {}
        self._stale_at = 0.0
        self._forgotten = 0

    @property
    def known(self) -> Types | None:
        """The types; None where what is known is too old."""
        return self._types if time.monotonic() < self._stale_at else None

    def forget(self) -> None:
        """Read the types again before the next enqueue."""
        self._forgotten += 1
        self._stale_at = 0.0

    def reading(self) -> Operation[Types]:
        """The operation that reads the types."""
        return Operation("types", self._read, mode=Mode.READ)

    def _read(self) -> Statements[Types]:
        forgotten = self._forgotten
        rows = yield Statement("latest_types")
        known = self._types
        types = {row[0]: _same_or_new(known.get(row[0]), row) for row in rows}
        self._types = types
        if forgotten == self._forgotten:  # else a type was registered while we read, and we may have read the old ones
            self._stale_at = time.monotonic() + KEPT_FOR
        return types


class Type:
    """One version of a task type."""

    def __init__(self, name: str, version: int, schema: str | None, defaults: str | None) -> None:
        self.name, self.version, self.content = name, version, (version, schema, defaults)
        self._defaults: dict[str, Any] = decode(defaults) if defaults else {}
        self._schema = None if schema is None else Schema(schema)

    def fill_in(self, params: dict[str, Any]) -> dict[str, Any]:
        """The params with the type's defaults."""
        return {**self._defaults, **params}

    def work(self, params: dict[str, Any], size: int) -> float:
        """The estimated work of validating params that take `size` characters as JSON."""
        return 0.0 if self._schema is None else self._schema.work(params, size)

    def brief(self, params: dict[str, Any], size: int) -> bool:
        """True where the validation needs no other process."""
        return self._schema is None or self._schema.brief(params, size)

    def validate(self, params: dict[str, Any], text: str, until: float | None) -> InvalidValue | None:
        """What is wrong with the params (`text` is their JSON). Without `until`: NotHere where that takes long."""
        if self._schema is None:
            return None
        about = f"of {self.name!r} (version {self.version})"
        try:
            problem = self._schema.validate(params, text, until)
        except TooSlow as error:
            return ValidationTooSlow(f"Validating the params {about} takes {error}.")
        except InvalidValue as error:  # registered by a version of dibs that could compile it
            return InvalidValue(f"The params {about} cannot be validated. {error.message}", hint=error.hint)
        if problem is None:
            return None
        place, message = problem
        return SchemaViolation(
            f"params{'/' + place if place else ''} {about}: {message}",
            hint="Change the params, or register a new version of the task type.",
        )


def _same_or_new(known: Type | None, row: Row) -> Type:
    return known if known is not None and known.content == row[1:] else Type(*row)
