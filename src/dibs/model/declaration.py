"""Declarations: the limits and settings that a program states in its code, without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeVar

import msgspec

from dibs.errors import DibsError, InvalidValue
from dibs.model.limit import NewLimit, NewQueueSettings, NewTypeSettings

DeclaredKind = Literal["limit", "queue", "type", "schema"]
"""What a declaration is about."""

DECLARED_AT_ONCE = 1000
"""The largest number of limits, of queues and of task types that one call declares."""

Declared = TypeVar("Declared", NewLimit, NewQueueSettings)


class Declarations(msgspec.Struct, frozen=True, kw_only=True):
    """What a program declares about limits. A task type without limits and group takes an earlier declaration of the
    type back, and stores nothing otherwise."""

    limits: Sequence[NewLimit] = ()
    queues: Sequence[NewQueueSettings] = ()
    types: Sequence[NewTypeSettings] = ()

    @property
    def any(self) -> bool:
        """True if something is declared."""
        return bool(self.limits or self.queues) or any(each.limits or each.group_by for each in self.types)


class RefusedDeclaration(NamedTuple):
    """A declaration that could not be stored, and why."""

    kind: DeclaredKind
    name: str
    error: DibsError


class StoredDeclarations(msgspec.Struct, frozen=True):
    """The result of storing declarations. `removed`: the limits that are not set, because they were removed by hand
    since the same declaration. `unsettled`: tasks that wait may not obey the settings yet, until they are settled."""

    refused: list[RefusedDeclaration]
    removed: list[str]
    unsettled: bool


class DeclaredInCode:
    """The declarations of a program, which grow while its modules are imported. `unwritten`: some of them may not be in
    the store yet."""

    def __init__(self) -> None:
        self.limits: dict[str, NewLimit] = {}
        self.queues: dict[str, NewQueueSettings] = {}
        self.unwritten = False

    def add_limit(self, new: NewLimit) -> None:
        """Declare the limit. The same declaration again is allowed."""
        _add(self.limits, new.name, new, f"The limit {new.name!r}")
        self.unwritten = True

    def add_queue(self, new: NewQueueSettings) -> None:
        """Declare the settings of the queue. The same declaration again is allowed."""
        _add(self.queues, new.queue, new, f"The queue {new.queue!r}")
        self.unwritten = True


def _add(known: dict[str, Declared], name: str, new: Declared, what: str) -> None:
    if known.setdefault(name, new) != new:
        raise InvalidValue(
            f"{what} is already declared with other values.", hint="Declare it once, in one module of the program."
        )
