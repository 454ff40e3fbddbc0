"""Which tasks: the filters that listing, searching and bulk actions share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from dibs.codec import check_name, encode
from dibs.errors import InvalidValue
from dibs.model.checks import check_integer, check_moment, check_names
from dibs.model.claim import MAX_BATCH
from dibs.model.task import STATES, State, Task

MAX_TEXT = 1000


class TaskMatch(msgspec.Struct, frozen=True, kw_only=True):
    """Filters for tasks; a task matches if all of them do.

    `queues`: the only queues to look at, whatever the other filters say. `text`: occurs in the params, or in the
    error's type and message. `since`, `until`: when the task was created, at or after the one and before the other.
    """

    state: str | None = None
    type: str | None = None
    queue: str | None = None
    queues: Sequence[str] | None = None
    key: str | None = None
    worker: str | None = None
    text: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        if self.state is not None and self.state not in STATES:
            raise InvalidValue(f"There is no state {self.state!r}.", hint=f"Use one of: {', '.join(State)}.")
        for value, what in self._names():
            if value is not None:
                check_name(value, what)
        for time, what in ((self.since, "since"), (self.until, "until")):
            if time is not None:
                check_moment(time, what)
        check_names(self.queues, "queues", "The queue")
        _check_text(self.text)

    def _names(self) -> list[tuple[str | None, str]]:
        return [
            (self.type, "The task type"),
            (self.queue, "The queue"),
            (self.key, "The key"),
            (self.worker, "The worker's id"),
        ]

    def filters(self) -> dict[str, Any]:
        """The filters by name, without those of a subclass."""
        return {name: getattr(self, name) for name in TaskMatch.__struct_fields__}

    @property
    def needs_search(self) -> bool:
        """True if a filter is given for which the plain list has no index."""
        return any(value is not None for value in (self.key, self.worker, self.text, self.since, self.until))


def check_not_everything(which: TaskMatch) -> None:
    """Refuse to act on all tasks where no filter is given: a filter that was forgotten must not cancel everything."""
    if all(value is None for name, value in which.filters().items() if name != "queues"):
        raise InvalidValue(
            "This acts on all tasks that match, and needs at least one filter.",
            hint="Give a state, type, queue, key, worker, text or time; a `since` long ago means every task.",
        )


def _check_text(text: Any) -> None:
    if text is None:
        return
    if type(text) is not str:
        raise InvalidValue(f"text must be a string, not {text!r}.")
    if not 1 <= len(text) <= MAX_TEXT:
        raise InvalidValue(f"text must have 1 to {MAX_TEXT:,} characters; this one has {len(text):,}.")
    encode(text, "text")


class TaskFilter(TaskMatch, frozen=True, kw_only=True):
    """Which tasks to list: newest first, `limit` a page; `cursor` is the last id of the page before. `dead`: tasks of
    the dead letter only; `error`: text in the error's type and message."""

    limit: int = 100
    cursor: int | None = None
    dead: bool = False
    error: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.error is not None:
            check_name(self.error, "The error text")
        if self.error is not None and not self.dead:
            raise InvalidValue("A list by error is a list of the dead letter.", hint="Say dead=True as well.")
        if self.dead and self.needs_search:
            raise InvalidValue(
                "The dead letter is listed by queue, type and error only.",
                hint="Leave out key, worker, text and times, or list failed tasks with state='failed'.",
            )
        check_integer(self.limit, "limit", 1, MAX_BATCH)
        if self.cursor is not None:
            check_integer(self.cursor, "cursor", 0, 2**63 - 1)


class DeadFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks of the dead letter: by queue, type, and text in the error's type and message. `only`: no steps but
    those whose workflow is in these queues as a whole, since it goes on with them."""

    queue: str | None = None
    type: str | None = None
    error: str | None = None
    only: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for value, what in ((self.queue, "The queue"), (self.type, "The task type"), (self.error, "The error text")):
            if value is not None:
                check_name(value, what)
        check_names(self.only, "only", "The queue")


ALL_DEAD = DeadFilter()


class BulkResult(msgspec.Struct, frozen=True):
    """Some of many tasks were cancelled or retried. `cursor`: continue with the tasks below this id; None: all tasks
    have been looked through."""

    moved: int
    cursor: int | None


MAX_SEARCH_PAGE = 500


MAX_ID = 2**63 - 1


class TaskSearch(TaskMatch, frozen=True, kw_only=True):
    """Which tasks to find: newest first, up to `limit`; `cursor`: only those with lower ids. `dead`: tasks of the dead
    letter only."""

    id: int | None = None
    limit: int = 50
    cursor: int | None = None
    dead: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for number, what in ((self.id, "id"), (self.cursor, "cursor")):
            if number is not None:
                check_integer(number, what, 0, MAX_ID)
        check_integer(self.limit, "limit", 1, MAX_SEARCH_PAGE)


class TaskSummary(msgspec.Struct, frozen=True):
    """A task as a list shows it: of `params` (JSON) and `error` (type: message) the first 200 characters.
    `error_head`: the beginning of the error as it is stored, of which `sampling.kind_of` tells the kind."""

    id: int
    type: str
    state: State
    queue: str
    priority: int
    attempts: int
    max_attempts: int
    worker_id: str | None
    created_at: datetime
    run_at: datetime
    claimed_at: datetime | None
    lease_until: datetime | None
    finished_at: datetime | None
    progress: int | None
    workflow_id: int | None
    key: str | None
    params: str
    error: str | None
    cancel_requested: bool
    error_head: str | None


class FoundTasks(msgspec.Struct, frozen=True):
    """What a search found. `cursor`: go on below this id; None: everything has been looked through. `looked`: at how
    many tasks, at most."""

    tasks: list[TaskSummary]
    cursor: int | None
    looked: int


class TaskPage(msgspec.Struct, frozen=True):
    """Whole tasks that a search found; `cursor` and `looked` as in `FoundTasks`."""

    tasks: list[Task]
    cursor: int | None
    looked: int


REDRIVE_BATCH = 500


BULK_BATCH = 500
"""Tasks that are cancelled or retried in one transaction at most."""


SEARCH_SPAN = 20_000
"""Tasks that one call looks at where no index leads to those that match."""
