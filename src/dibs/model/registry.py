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
    """A queue: is it paused, and how many tasks it holds in each state."""

    name: str
    paused: bool
    paused_at: datetime | None
    depth: dict[str, int]


STALE_AFTER = 5 * 60 * 1_000_000


class WorkerState(StrEnum):
    """Whether a worker can be counted on."""

    ACTIVE = "active"
    STALE = "stale"  # no heartbeat for five minutes, or since another one of its name began
    GONE = "gone"  # it said goodbye


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's sign of life. `queues`, `types`: what it serves, None for everything."""

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
    """A worker as the store knows it. A name that is used again is another incarnation, and both are listed."""

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
        """True where the worker would claim such a task."""
        return (self.queues is None or task.queue in self.queues) and (self.types is None or task.type in self.types)


class TaskType(msgspec.Struct, frozen=True):
    """A registered task type. Old versions stay: a task keeps the version it was checked against."""

    name: str
    version: int
    schema: dict[str, Any] | bool | None
    defaults: dict[str, Any]
    created_at: datetime
