"""The registry: workers, task types and queues as the store knows them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from dibs.codec import check_name
from dibs.model.checks import check_worker_id
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
