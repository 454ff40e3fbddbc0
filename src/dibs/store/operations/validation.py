"""Validate the params that an operation will store, before its transaction begins.

Validation takes time that depends on the schema and the params. Inside a transaction it would hold the lock of a SQLite
file, or rows of PostgreSQL, for that time; on an event loop it would stop all other requests. So it is done before: by
the calling thread, or for an event loop by a thread of its own unless it is known to be short.

A new version of a task type may be registered between the validation and the insert. Such a task is stored with the
version that it was validated against, as if it had been enqueued before the registration: the two calls overlap, so
either order is correct, and `type_version` shows which it was. A second validation inside the transaction would defeat
the purpose of this module. A call that begins after a registration has returned in the same process is always
validated against the new version; in other processes the types may be up to a second old (see TypeCache).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from dibs.encoded import is_encoded
from dibs.errors import InvalidValue, SchemaViolation, ValidationTooSlow
from dibs.json_values import decode, encode_params
from dibs.model.task import NewTask
from dibs.store.operation import Mode, Operation, Row, Statement, Statements
from dibs.store.operations.rows import NewRow, new_row
from dibs.store.schemas import HERE, Schema, TooSlow, check_schema

OPERATION_LIMIT = 5.0
"""Seconds for which the params of one operation (a batch of tasks, a workflow) may be validated in all."""

MORE_FOR_EACH = 0.002
"""Seconds that each task of the operation adds to the limit, so that a large batch of ordinary tasks passes."""

ON_LOOP = HERE
"""The estimated work up to which an event loop validates by itself. A thread would not help other requests: the
validator holds the interpreter's lock."""

THREADS = 4


class TaskToStore:
    """A task as the caller passed it, the row to store, and the error in its params, if any."""

    __slots__ = ("error", "row", "sent", "task")

    def __init__(self, task: NewTask) -> None:
        self.task = task
        self.sent = new_row(task)
        self.row = self.sent
        self.error: InvalidValue | None = None

    def validate(self, types: Types, until: float | None) -> None:
        """Add the defaults of the type to the params, and validate them. Encoded params stay as they are."""
        self.row, self.error = self.sent, None
        if (known := types.get(self.task.type)) is None or is_encoded(self.task.params):
            return
        if known.trusts(self.task):
            self.row = msgspec.structs.replace(self.sent, type_version=known.version)
            return
        params = known.fill_in(self.task.params)
        text = encode_params(params)
        self.row = msgspec.structs.replace(self.sent, params=text, type_version=known.version)
        self.error = known.validate(params, text, until)

    def work(self, types: Types) -> float:
        """The estimated work of `validate`."""
        known, size = types.get(self.task.type), len(self.sent.params)
        if known is None or known.trusts(self.task) or is_encoded(self.task.params):
            return 0.0
        return size + known.work(self.task.params, size)


class NotValidated(Exception):
    """Raised by statements that need params which are not validated yet. The operation has written nothing, or is
    rolled back as a whole; it validates the params and starts again."""

    def __init__(self, validation: TaskValidation) -> None:
        super().__init__("params that have not been validated")
        self.validation = validation


class TaskValidation:
    """The validation of the tasks that an operation will store."""

    needs_types = True

    def __init__(self, given: Iterable[TaskToStore]) -> None:
        self._given = list(given)
        self._by_task = {id(each.task): each for each in self._given}

        self._unstorable: dict[int, tuple[NewTask, InvalidValue]] = {}

    @classmethod
    def of(cls, tasks: Iterable[NewTask]) -> TaskValidation:
        """The validation of these tasks. The error of a task is raised by `find`, so that other tasks can be stored."""
        validation = cls([])
        for task in tasks:
            try:
                validation._add(TaskToStore(task))
            except InvalidValue as error:
                validation._unstorable[id(task)] = task, error
        return validation

    def _add(self, given: TaskToStore) -> None:
        self._given.append(given)
        self._by_task[id(given.task)] = given

    def work(self, types: Types) -> float:
        """The estimated work of `run`."""
        return sum(each.work(types) for each in self._given) if types else 0.0

    def run(self, types: Types, *, brief: bool = False) -> None:
        """Validate the tasks one after the other; after the time limit the rest is refused. `brief`: raise NotHere if
        a validation needs another process."""
        if not types:
            return
        until = None if brief else time.monotonic() + OPERATION_LIMIT + MORE_FOR_EACH * len(self._given)
        for each in self._given:
            each.validate(types, until)

    def find(self, task: NewTask) -> TaskToStore:
        """The task with its row. A task that was read in the transaction (that of a schedule) is found by its type and
        params. Raises NotValidated if it is new, InvalidValue if it cannot be stored."""
        if (found := self._by_task.get(id(task))) is not None:
            return found
        if id(task) in self._unstorable:
            raise self._unstorable[id(task)][1]
        new = TaskToStore(task)
        for each in self._given:
            if (each.sent.type, each.sent.params) == (new.sent.type, new.sent.params):
                new.row = msgspec.structs.replace(new.sent, params=each.row.params, type_version=each.row.type_version)
                new.error = each.error
                return new
        self._add(new)
        raise NotValidated(self)

    def check(self, tasks: Iterable[NewTask]) -> None:
        """Raise the first error that validation found in the params of these tasks."""
        for task in tasks:
            if (invalid := self.find(task).error) is not None:
                raise invalid

    def row(self, task: NewTask) -> NewRow:
        """The row of the task. Tasks that dibs itself creates are not validated."""
        found = self._by_task.get(id(task))
        return new_row(task) if found is None else found.row


class SchemaValidation:
    """The validation of a JSON Schema before it is registered."""

    needs_types = False

    def __init__(self, text: str) -> None:
        self._text = text

    def work(self, types: object) -> float:
        """More than an event loop does: schemas are compiled in another thread."""
        return HERE + 1

    def run(self, types: object, *, brief: bool = False) -> None:
        """Raise InvalidValue if dibs cannot use the schema."""
        check_schema(self._text)


class DeclaredSchemasValidation:
    """The validation of the schemas that a program declares. A schema that dibs cannot use is put into `refused`."""

    needs_types = False

    def __init__(self, texts: dict[str, str | None]) -> None:
        self.texts = texts
        self.refused: dict[str, InvalidValue] = {}

    def work(self, types: object) -> float:
        """More than an event loop does: schemas are compiled in another thread."""
        return HERE + 1

    def run(self, types: object, *, brief: bool = False) -> None:
        """Check the schemas."""
        for name, text in self.texts.items():
            if text is not None:
                self._check(name, text)

    def _check(self, name: str, text: str) -> None:
        try:
            check_schema(text, cheap=True)
        except InvalidValue as error:
            self.refused[name] = error
            self.texts[name] = None


def validated_quickly(task: NewTask, types: Types) -> bool:
    """True if validating the task does not delay operations that are combined with it."""
    known = types.get(task.type)
    if known is None or known.trusts(task) or is_encoded(task.params):
        return True
    return known.brief(task.params, len(msgspec.json.encode(task.params)))


_threads: tuple[int, ThreadPoolExecutor] | None = None
_starting = threading.Lock()


def threads() -> ThreadPoolExecutor:
    """The threads that validate for event loops, separate from the default threads of the loop."""
    global _threads  # noqa: PLW0603
    with _starting:
        if _threads is None or _threads[0] != os.getpid():
            _threads = os.getpid(), ThreadPoolExecutor(THREADS, thread_name_prefix="dibs-validating")
        return _threads[1]


CACHE_SECONDS = 1.0
"""Seconds for which the registered types are cached."""

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
        """The types; None if the cache is too old."""
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
        if (
            forgotten == self._forgotten
        ):  # else a type was registered during the read, which may have returned the old types
            self._stale_at = time.monotonic() + CACHE_SECONDS
        return types


class Type:
    """One version of a task type."""

    def __init__(self, name: str, version: int, schema: str | None, defaults: str | None, source: str) -> None:
        self.name, self.version, self.content = name, version, (version, schema, defaults, source)
        self._defaults: dict[str, Any] = decode(defaults) if defaults else {}
        self._trusting = source == "code" and not self._defaults
        self._schema = None if schema is None else Schema(schema)

    def trusts(self, task: NewTask) -> bool:
        """True if the params need no validation: the schema is declared by a handler, and a handler has checked the
        params by its annotations, which say more than the schema."""
        return self._trusting and task.checked_params is task.params

    def fill_in(self, params: dict[str, Any]) -> dict[str, Any]:
        """The params with the type's defaults."""
        return {**self._defaults, **params}

    def work(self, params: dict[str, Any], size: int) -> float:
        """The estimated work of validating params that take `size` characters as JSON."""
        return 0.0 if self._schema is None else self._schema.work(params, size)

    def brief(self, params: dict[str, Any], size: int) -> bool:
        """True if the validation needs no other process."""
        return self._schema is None or self._schema.brief(params, size)

    def validate(self, params: dict[str, Any], text: str, until: float | None) -> InvalidValue | None:
        """The error in the params (`text`: the params as JSON), or None. Without `until`: NotHere if it takes long."""
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
