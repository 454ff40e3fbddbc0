"""The registry: workers, task types and queues as the store knows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from dibs.json_values import check_name
from dibs.model.checks import check_worker_id
from dibs.model.declaration import DECLARED_AT_ONCE
from dibs.model.limit import SettingSource
from dibs.model.task import Task


class QueueInfo(msgspec.Struct, frozen=True):
    """A queue: whether it is paused, and the number of its tasks in each state. `parked`: how many of its pending tasks
    are parked: while the queue is paused, upkeep parks all of them; after a resume it unparks them."""

    name: str
    paused: bool
    paused_at: datetime | None
    depth: dict[str, int]
    parked: int = 0

    @property
    def condition(self) -> str:
        """`paused`, `resuming` (the queue is not paused, and some of its tasks are still parked), or nothing."""
        return "paused" if self.paused else "resuming" if self.parked else ""


STALE_AFTER = 5 * 60 * 1_000_000
"""Microseconds without a heartbeat after which a worker is stale."""


class WorkerState(StrEnum):
    """The state of a worker."""

    ACTIVE = "active"
    STALE = "stale"  # no heartbeat for five minutes, or replaced by a newer incarnation
    GONE = "gone"  # it has stopped


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """A heartbeat of a worker. `queues`, `types`: what the worker serves, None for all. `leaving`: the worker stops."""

    worker_id: str
    incarnation: str = ""
    queues: Sequence[str] | None = None
    types: Sequence[str] | None = None
    metadata: dict[str, Any] = {}
    leaving: bool = False

    def __post_init__(self) -> None:
        check_worker_id(self.worker_id)
        if self.incarnation:
            check_name(self.incarnation, "The incarnation")


class WorkerInfo(msgspec.Struct, frozen=True):
    """A registered worker. A worker that reuses an id is another incarnation, and both are listed."""

    id: str
    incarnation: str
    state: WorkerState
    queues: list[str] | None
    types: list[str] | None
    metadata: dict[str, Any]
    started_at: datetime
    heartbeat_at: datetime
    stopped_at: datetime | None
    holds: list[int]

    @property
    def queues_with_bounds(self) -> list[str]:
        """The queues for people: `mail=2` for a queue of which the worker runs at most two tasks at once."""
        bounds = self.queue_bounds
        return [f"{queue}={bounds[queue]}" if queue in bounds else queue for queue in self.queues or ()]

    @property
    def queue_bounds(self) -> dict[str, int]:
        """The bounds in the metadata, which a worker in another language may have filled with anything."""
        given = self.metadata.get("queue_bounds")
        return {} if not isinstance(given, dict) else {name: n for name, n in given.items() if type(n) is int}

    def serves(self, task: Task) -> bool:
        """True if the worker claims tasks of this queue and type."""
        return (self.queues is None or task.queue in self.queues) and (self.types is None or task.type in self.types)


class TaskType(msgspec.Struct, frozen=True):
    """A registered task type. Old versions are kept: a task refers to the version that validated it."""

    name: str
    version: int
    schema: dict[str, Any] | bool | None
    defaults: dict[str, Any]
    created_at: datetime
    paused_at: datetime | None = None
    """When the type was paused; None if its tasks can be claimed."""
    source: SettingSource = "command"
    """`code`: the version was registered by a worker whose handler declares it; `command`: by hand."""


class DeclaredSchema(msgspec.Struct, frozen=True):
    """The JSON Schema of a task type that a handler declares. None: it declares none, and takes an earlier one back."""

    type: str
    schema: dict[str, Any] | None

    def __post_init__(self) -> None:
        check_name(self.type, "The task type")


DECLARED_BYTES = 256 * 1024
"""The size of the schemas that one call declares, unless a single schema is larger."""


def batches_of_schemas(schemas: Iterable[DeclaredSchema]) -> Iterator[list[DeclaredSchema]]:
    """The schemas, as many at once as one call may declare."""
    batch: list[DeclaredSchema] = []
    left = DECLARED_BYTES
    for each in schemas:
        size = len(msgspec.json.encode(each))
        if batch and (size > left or len(batch) == DECLARED_AT_ONCE):
            yield batch
            batch, left = [], DECLARED_BYTES
        batch.append(each)
        left -= size
    if batch:
        yield batch


class PausedType(msgspec.Struct, frozen=True):
    """A paused task type, which need not be registered."""

    name: str
    paused_at: datetime
