"""The keyword options that the methods of `Dibs` and `AsyncDibs` share, as types for type checkers and editors.

The names of the options are public. These classes check nothing at run time: the clients pass the options on as
arguments of the type in `dibs.model` that each docstring names, and that type checks the values. A new option therefore
needs a field of the same name in that type.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict

from dibs.handlers.handler import Lane
from dibs.model.retry import Backoff
from dibs.model.schedule import CatchUp, Overlap
from dibs.model.unique import KeyScope, OnConflict
from dibs.model.workflow import OnFailure

LaneOption = Lane | Literal["thread", "loop", "process"]
KeyScopeOption = KeyScope | Literal["always", "until_finished", "until_started"]
OnConflictOption = OnConflict | Literal["return", "keep", "raise", "replace"]
OverlapOption = Overlap | Literal["allow", "skip", "queue"]
CatchUpOption = CatchUp | Literal["one", "all", "none"]
OnFailureOption = OnFailure | Literal["fail", "continue", "ignore"]


class TaskOptions(TypedDict, total=False):
    """Options of `enqueue`, the arguments of `NewTask`. Durations are in seconds. `request`: an id of the call; after a
    lost answer, a second call with the same key and id returns the task of the first call. `limits`: names of limits,
    in addition to those of the queue and the type. `group`: instead of the group that the type's `group_by` names."""

    queue: str
    priority: int
    max_attempts: int
    delay: float
    run_at: datetime
    timeout: float | None
    key: str | None
    backoff: Backoff
    tags: Sequence[str]
    expires_in: float | None
    expires_at: datetime | None
    key_scope: KeyScopeOption
    key_for: float | None
    on_conflict: OnConflictOption
    max_delay: float | None
    request: str | None
    limits: Sequence[str]
    group: str | None


class ChangeOptions(TypedDict, total=False):
    """New values for a task that has not started, the arguments of `TaskChange`. `delay`: seconds from now; `group`: an
    empty text removes it."""

    priority: int | None
    delay: float | None
    run_at: datetime | None
    queue: str | None
    params: dict[str, Any] | None
    tags: Sequence[str] | None
    group: str | None


class ScheduleOptions(TypedDict, total=False):
    """Options of a schedule, the arguments of `NewSchedule`: its timing, options of its tasks, and whether it is
    enabled."""

    every: float | None
    at: datetime | None
    jitter: float
    start_at: datetime | None
    end_at: datetime | None
    overlap: OverlapOption
    queue: str
    priority: int
    max_attempts: int
    timeout: float | None
    backoff: Backoff
    tags: Sequence[str]
    expires_in: float | None
    enabled: bool | None
    limits: Sequence[str]
    group: str | None


class WorkflowOptions(TypedDict, total=False):
    """Options of a workflow, the arguments of `NewWorkflow`. `deadline`: a time, or seconds from the start of the
    workflow."""

    key: str | None
    deadline: float | datetime | None
    on_failure: OnFailureOption


class FilterOptions(TypedDict, total=False):
    """Which pending tasks to claim, and in which order: the arguments of `Filters`."""

    queues: Sequence[str] | None
    types: Sequence[str] | None
    max_attempts_remaining: int | None
    order: str


class ClaimOptions(FilterOptions, total=False):
    """Options of `claim`, the arguments of `ClaimRequest`. `lease`: seconds. `request`: an id of the call; after a lost
    response, a second call with the same id returns the tasks that the first call claimed."""

    lease: float
    incarnation: str | None
    request: str | None


class MatchOptions(TypedDict, total=False):
    """Filters for tasks, the arguments of `TaskMatch`. A task must pass all given filters."""

    state: str | None
    type: str | None
    queue: str | None
    key: str | None
    worker: str | None
    text: str | None
    since: datetime | None
    until: datetime | None
    tags: Sequence[str] | None
    group: str | None
    with_limit: str | None


class ListOptions(MatchOptions, total=False):
    """Which tasks to list: the arguments of `TaskFilter`."""

    limit: int
    cursor: int | None


class DeadLetterOptions(TypedDict, total=False):
    """Filters for the dead letter, the arguments of `DeadFilter`. A task must pass all given filters. `error`: a text
    that occurs in the error, written as "type: message"."""

    queue: str | None
    type: str | None
    error: str | None
    tags: Sequence[str] | None


class WorkflowListOptions(TypedDict, total=False):
    """Which workflows to list: the arguments of `WorkflowFilter`."""

    state: str | None
    name: str | None
    limit: int
    cursor: int | None
