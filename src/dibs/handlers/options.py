"""The keyword options of the client methods, shared by both clients."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypedDict

from dibs.model.retry import Backoff


class TaskOptions(TypedDict, total=False):
    """Options of enqueue. Durations are in seconds."""

    queue: str
    priority: int
    max_attempts: int
    delay: float
    run_at: datetime
    timeout: float | None
    key: str | None
    backoff: Backoff
    tags: Sequence[str]


class ScheduleOptions(TypedDict, total=False):
    """Options of a schedule: options of its tasks, and whether the schedule is enabled."""

    queue: str
    priority: int
    max_attempts: int
    timeout: float | None
    backoff: Backoff
    tags: Sequence[str]
    enabled: bool | None


class WorkflowOptions(TypedDict, total=False):
    """Options of a workflow. `deadline`: seconds from its start, or a time."""

    key: str | None
    deadline: float | datetime | None
    on_failure: str


class FilterOptions(TypedDict, total=False):
    """Which pending tasks to claim, and in which order."""

    queues: Sequence[str] | None
    types: Sequence[str] | None
    max_attempts_remaining: int | None
    order: str


class ClaimOptions(FilterOptions, total=False):
    """Options of claim. `lease`: seconds. `request`: an id with which the claim can be repeated if its response was
    lost."""

    lease: float
    incarnation: str | None
    request: str | None


class MatchOptions(TypedDict, total=False):
    """Filters for tasks; all given filters must match."""

    state: str | None
    type: str | None
    queue: str | None
    key: str | None
    worker: str | None
    text: str | None
    since: datetime | None
    until: datetime | None
    tags: Sequence[str] | None


class ListOptions(MatchOptions, total=False):
    """Which tasks to list."""

    limit: int
    cursor: int | None


class DeadLetterOptions(TypedDict, total=False):
    """Filters for the dead letter; all given filters must match. `error`: text in the error's type and message."""

    queue: str | None
    type: str | None
    error: str | None
    tags: Sequence[str] | None


class WorkflowListOptions(TypedDict, total=False):
    """Which workflows to list."""

    state: str | None
    name: str | None
    limit: int
    cursor: int | None
