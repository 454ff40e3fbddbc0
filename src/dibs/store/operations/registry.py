"""The registry: workers and their heartbeats, task types with their schemas, queues and pauses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from dibs.encoded import is_marked
from dibs.errors import InvalidValue, TaskTypeNotFound
from dibs.json_values import check_name, decode, encode, encode_params
from dibs.model.checks import check_integer, check_names, from_micros
from dibs.model.declaration import RefusedDeclaration
from dibs.model.registry import (
    STALE_AFTER,
    DeclaredSchema,
    Heartbeat,
    PausedType,
    QueueInfo,
    TaskType,
    WorkerInfo,
    WorkerState,
)
from dibs.model.upkeep import Pause, PauseScope
from dibs.store.operation import Mode, Operation, Row, Rows, Statement, Statements
from dibs.store.operations.rows import in_order_of_states, moment
from dibs.store.operations.upkeep import park, unpark
from dibs.store.operations.validation import DeclaredSchemasValidation, SchemaValidation, TypeCache

RecordName = tuple[str, str, str]
"""A worker's id, its incarnation, and the queue limit under which its record was written."""

PAUSE_BATCH = 1000
"""Tasks that a pause parks itself, so that the tasks of most queues are parked at once."""

RESUME_BATCH = 10_000
"""Tasks that a resume unparks itself, before the queue is open."""

LIMIT = 9
"""The index of the queue limit in a row of `workers`."""


class Registry:
    """Workers, task types and queues."""

    def __init__(self, types: TypeCache) -> None:
        self._types = types

    def heartbeat(self, beat: Heartbeat, only: Sequence[str] | None = None) -> Operation[None]:
        """Register the worker, or record that it is alive (or leaves). `only`: the queue limit of the caller. A
        record belongs to the limit it was written under: callers with different limits may use the same worker id."""
        check_names(only, "only", "The queue")
        params = {
            "worker_id": beat.worker_id,
            "incarnation": beat.incarnation,
            "limited_to": "" if only is None else encode(sorted(set(only)), "only"),
            "queues": None if beat.queues is None else encode(list(beat.queues), "queues"),
            "types": None if beat.types is None else encode(list(beat.types), "types"),
            "metadata": encode(beat.metadata, "metadata"),
            "leaving": beat.leaving,
        }
        return Operation("heartbeat", lambda: _run_statement(Statement("heartbeat", params)))

    def workers(self) -> Operation[list[WorkerInfo]]:
        """Every registered worker, with the ids of the tasks that it holds."""
        return Operation("workers", read_workers, mode=Mode.READ)

    def register_type(
        self, name: str, schema: dict[str, Any] | bool | None, defaults: dict[str, Any]
    ) -> Operation[TaskType]:
        """Register a new version of a task type. If the newest version has the same schema and defaults, return it."""
        check_name(name, "The task type")
        if schema is not None and type(schema) not in (dict, bool):
            raise InvalidValue(f"A JSON Schema is a dict or a bool, not {type(schema).__name__}.")
        if is_marked(defaults):
            raise InvalidValue("Defaults cannot be encoded: they are merged with plain params.")
        params: dict[str, Any] = {
            "name": name,
            "schema": None if schema is None else encode(schema, "schema"),
            "defaults": encode_params(defaults),
        }
        return Operation(
            "register_type",
            lambda: self._register_type(params),
            mode=Mode.TRANSACTION,
            decode=self._forget_cached_types,
            validation=None if params["schema"] is None else SchemaValidation(params["schema"]),
        )

    def _forget_cached_types(self, registered: TaskType) -> TaskType:
        # After the commit: a read of the types before the commit has returned the old ones.
        self._types.forget()
        return registered

    def _register_type(self, params: dict[str, Any]) -> Statements[TaskType]:
        while True:
            known = yield Statement("get_type", {"name": params["name"], "version": None})
            if known and _same_type(known[0], params):
                return _read_type(known[0])
            version = known[0][1] + 1 if known else 1
            rows = yield Statement("register_type", {**params, "source": "command", "version": version})
            if rows:  # otherwise another process has registered this version meanwhile: read it
                return _read_type(rows[0])

    def declare_schemas(self, schemas: Sequence[DeclaredSchema]) -> Operation[Sequence[RefusedDeclaration]]:
        """Store the schemas that a program declares, and take back those of its types without a schema."""
        # All processes register types in the order of their names: two that start together do not wait for each other.
        texts = {each.type: None if each.schema is None else encode(each.schema, "schema") for each in schemas}
        validation = DeclaredSchemasValidation(dict(sorted(texts.items())))
        return Operation(
            "declare_schemas",
            lambda: _declare_schemas(validation.texts),
            mode=Mode.TRANSACTION,
            decode=lambda changed: self._declared(changed, validation.refused),
            validation=validation,
        )

    def _declared(self, changed: bool, refused: Mapping[str, InvalidValue]) -> Sequence[RefusedDeclaration]:
        if changed:
            self._types.forget()
        return [RefusedDeclaration("schema", name, error) for name, error in refused.items()]

    def get_type(self, name: str, version: int | None) -> Operation[TaskType]:
        """The newest version of a task type, or the given one."""
        check_name(name, "The task type")
        if version is not None:
            check_integer(version, "version", 1, 2**31 - 1)
        return Operation("get_type", lambda: _get_type(name, version), mode=Mode.READ)

    def list_types(self) -> Operation[list[TaskType]]:
        """All versions of all task types, newest version first."""
        return Operation("list_types", _list_types, mode=Mode.READ)

    def queues(self) -> Operation[list[QueueInfo]]:
        """Every queue that holds a task or has been paused."""
        return Operation("queues", _queues, mode=Mode.READ)

    def pause(self, queue: str) -> Operation[None]:
        """Stop claims from the queue until it is resumed. Running tasks continue. The first tasks of the queue are
        parked; upkeep parks the others."""
        check_name(queue, "The queue")
        return _pausing(Pause(PauseScope.QUEUE, queue))

    def resume(self, queue: str) -> Operation[None]:
        """Allow claims from the queue again. The first parked tasks of the queue become claimable in the same
        transaction, so that the next claim takes them in their order; upkeep unparks the others, in the same order."""
        check_name(queue, "The queue")
        return _resuming(Pause(PauseScope.QUEUE, queue))

    def pause_type(self, name: str) -> Operation[None]:
        """Stop claims of tasks of this type until it is resumed, as `pause` does for a queue."""
        check_name(name, "The task type")
        return _pausing(Pause(PauseScope.TYPE, name))

    def resume_type(self, name: str) -> Operation[None]:
        """Allow claims of tasks of this type again, as `resume` does for a queue."""
        check_name(name, "The task type")
        return _resuming(Pause(PauseScope.TYPE, name))

    def paused_types(self) -> Operation[list[PausedType]]:
        """The paused task types by name, registered or not."""
        return Operation("paused_types", _paused_types, mode=Mode.READ)


def _run_statement(statement: Statement) -> Statements[None]:
    yield statement


def read_workers() -> Statements[list[WorkerInfo]]:
    """The statements of `workers`, for operations that need the live workers."""
    workers = yield Statement("workers")
    held = yield Statement("held")
    return list_workers(workers, _holds(workers, held))


def _holds(workers: Rows, held: Rows) -> dict[RecordName, list[int]]:
    """The tasks that each record's worker holds. A claim names its worker and incarnation, not the queue limit of the
    caller: the holder is the newest such worker that may use the task's queue."""
    records: dict[str, list[Row]] = {}
    for row in reversed(workers):  # rows come oldest first
        records.setdefault(row[0], []).append(row)
    limits = {row[LIMIT]: row[LIMIT] and frozenset(decode(row[LIMIT])) for row in workers}
    holds: dict[RecordName, list[int]] = {}
    for worker_id, incarnation, task_id, queue in held:
        for row in records.get(worker_id, ()):
            limit = limits[row[LIMIT]]
            if (not incarnation or row[1] == incarnation) and (not limit or queue in limit):
                holds.setdefault(_name(row), []).append(task_id)
                break
    return holds


def list_workers(rows: Rows, holds: Mapping[RecordName, list[int]] = MappingProxyType({})) -> list[WorkerInfo]:
    """The workers in the rows of `workers`, with the tasks that each incarnation holds."""
    newest = {(row[0], row[LIMIT]): row[5] for row in rows}  # the start of the newest incarnation
    return [_read_worker(row, newest[row[0], row[LIMIT]], holds.get(_name(row), [])) for row in rows]


def _name(row: Row) -> RecordName:
    return row[0], row[1], row[LIMIT]


def _read_worker(row: Row, newest: int, holds: list[int]) -> WorkerInfo:
    worker_id, incarnation, queues, types, metadata, started_at, heartbeat_at, stopped_at, silent_for, _ = row
    if stopped_at is not None:
        state = WorkerState.GONE
    elif silent_for >= STALE_AFTER or heartbeat_at < newest:  # a newer incarnation has replaced it
        state = WorkerState.STALE
    else:
        state = WorkerState.ACTIVE
    return WorkerInfo(
        id=worker_id,
        incarnation=incarnation,
        state=state,
        queues=None if queues is None else decode(queues),
        types=None if types is None else decode(types),
        metadata=decode(metadata),
        started_at=from_micros(started_at),
        heartbeat_at=from_micros(heartbeat_at),
        stopped_at=moment(stopped_at),
        holds=holds,
    )


def _queues() -> Statements[list[QueueInfo]]:
    paused = {row[1]: row[2] for row in (yield Statement("pauses")) if row[0] == PauseScope.QUEUE}
    depth: dict[str, Counter[str]] = {name: Counter() for name in paused}
    parked: Counter[str] = Counter()
    for queue, _, state, count, _, _, parked_count in (yield Statement("counts")):
        depth.setdefault(queue, Counter())[state] += count
        parked[queue] += parked_count
    return [
        QueueInfo(
            name, paused.get(name) is not None, moment(paused.get(name)), in_order_of_states(depth[name]), parked[name]
        )
        for name in sorted(depth)
    ]


def _pausing(pause: Pause) -> Operation[None]:
    return Operation("pause", lambda: _pause(pause), mode=Mode.TRANSACTION, wakes=True)


def _pause(pause: Pause) -> Statements[None]:
    yield Statement("pause", {"scope": pause.scope.value, "name": pause.name})
    yield from park(pause, PAUSE_BATCH)


def _resuming(pause: Pause) -> Operation[None]:
    return Operation("resume", lambda: _resume(pause), mode=Mode.TRANSACTION, wakes=True)


def _resume(pause: Pause) -> Statements[None]:
    yield Statement("resume", {"scope": pause.scope.value, "name": pause.name})
    yield from unpark(pause, RESUME_BATCH)


def _paused_types() -> Statements[list[PausedType]]:
    rows = yield Statement("pauses")
    paused = sorted(row[1:3] for row in rows if row[0] == PauseScope.TYPE and row[2] is not None)
    return [PausedType(name, from_micros(at)) for name, at in paused]


def _declare_schemas(texts: Mapping[str, str | None]) -> Statements[bool]:
    """Register the schemas that have changed. A program that declares what the store has already writes nothing."""
    changed = False
    known = yield from _declared_types()
    for name, text in texts.items():
        while versions := _new_versions(known.get(name, ()), text):
            changed = True
            if (yield from _register_versions(name, versions)):
                break
            known = yield from _declared_types()  # another process has registered this version meanwhile
    return changed


def _declared_types() -> Statements[dict[str, list[Row]]]:
    known: dict[str, list[Row]] = {}
    for row in (yield Statement("declared_types")):
        known.setdefault(row[0], []).append(row)
    return known


def _new_versions(known: Sequence[Row], declared: str | None) -> list[dict[str, Any]]:
    """The versions to register for a declared schema, given the rows of `declared_types` about its type. A type that
    was registered by hand before any code declared a schema stays as it is: its newest version is repeated after the
    declared one, by which the next declaration is compared."""
    before = [row[2] for row in known if row[4] == "code"]
    if _canonical(before[-1] if before else None) == _canonical(declared):
        return []
    _, version, schema, defaults, _ = known[-1] if known else (None, 0, None, "{}", None)
    new = [{"version": version + 1, "schema": declared, "defaults": defaults, "source": "code"}]
    if known and not before:
        new.append({"version": version + 2, "schema": schema, "defaults": defaults, "source": "command"})
    return new


def _register_versions(name: str, versions: Sequence[dict[str, Any]]) -> Statements[bool]:
    """False if another process has registered the first version."""
    for version in versions:
        if not (yield Statement("register_type", {"name": name, **version})):
            return False
    return True


def _same_type(row: Row, params: dict[str, Any]) -> bool:
    # As text, since to Python 1, 1.0 and True are equal.
    return _canonical(row[2]) == _canonical(params["schema"]) and _canonical(row[3]) == _canonical(params["defaults"])


def _canonical(text: str | None) -> bytes:
    return msgspec.json.encode(None if text is None else decode(text), order="sorted")


def _get_type(name: str, version: int | None) -> Statements[TaskType]:
    rows = yield Statement("get_type", {"name": name, "version": version})
    if not rows:
        which = f" in version {version}" if version else ""
        raise TaskTypeNotFound(f"No task type {name!r} is registered{which}.", hint="Register it first.")
    return _read_type(rows[0])


def _list_types() -> Statements[list[TaskType]]:
    rows = yield Statement("list_types")
    return [_read_type(row) for row in rows]


def _read_type(row: Row) -> TaskType:
    name, version, schema, defaults, source, created_at, paused_at = row
    decoded = None if schema is None else decode(schema)
    return TaskType(name, version, decoded, decode(defaults), from_micros(created_at), moment(paused_at), source)
