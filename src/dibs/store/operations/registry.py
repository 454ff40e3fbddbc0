"""The registry: workers and their heartbeats, task types with their schemas, queues and pauses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from dibs.codec import check_name, decode, encode, encode_params
from dibs.errors import InvalidValue, TaskTypeNotFound
from dibs.model.checks import check_integer, check_names, from_micros
from dibs.model.registry import STALE_AFTER, Heartbeat, QueueInfo, TaskType, WorkerInfo, WorkerState
from dibs.store.operation import Mode, Operation, Row, Rows, Statement, Statements
from dibs.store.operations.rows import moment
from dibs.store.operations.upkeep import park, unpark
from dibs.store.operations.validation import SchemaValidation, TypeCache

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
            rows = yield Statement("register_type", {**params, "version": version})
            if rows:  # otherwise another process has registered this version meanwhile: read it
                return _read_type(rows[0])

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
        return Operation("pause", lambda: _pause(queue), mode=Mode.TRANSACTION, wakes=True)

    def resume(self, queue: str) -> Operation[None]:
        """Allow claims from the queue again. The first parked tasks of the queue become claimable in the same
        transaction, so that the next claim takes them in their order; upkeep unparks the others, in the same order."""
        check_name(queue, "The queue")
        return Operation("resume", lambda: _resume(queue), mode=Mode.TRANSACTION, wakes=True)


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
    paused = {row[0]: row[1] for row in (yield Statement("queues"))}
    depth: dict[str, Counter[str]] = {name: Counter() for name in paused}
    parked: Counter[str] = Counter()
    for queue, _, state, count, _, _, parked_count in (yield Statement("counts")):
        depth.setdefault(queue, Counter())[state] += count
        parked[queue] += parked_count
    return [
        QueueInfo(name, paused.get(name) is not None, moment(paused.get(name)), dict(depth[name]), parked[name])
        for name in sorted(depth)
    ]


def _pause(queue: str) -> Statements[None]:
    yield Statement("pause", {"queue": queue})
    yield from park(queue, PAUSE_BATCH)


def _resume(queue: str) -> Statements[None]:
    yield Statement("resume", {"queue": queue})
    yield from unpark(queue, RESUME_BATCH)


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
    name, version, schema, defaults, created_at = row
    decoded = None if schema is None else decode(schema)
    return TaskType(name, version, decoded, decode(defaults), from_micros(created_at))
