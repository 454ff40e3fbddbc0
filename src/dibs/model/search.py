"""Filters and results of task lists, searches and bulk actions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from dibs.errors import InvalidValue
from dibs.json_values import check_name, encode
from dibs.model.checks import check_integer, check_moment, check_names, check_tags
from dibs.model.claim import MAX_BATCH
from dibs.model.task import STATES, State, Task

MAX_TEXT = 1000


class TaskMatch(msgspec.Struct, frozen=True, kw_only=True):
    """Filters for tasks; a task matches if all filters match.

    `queues`: the only queues to search, in addition to the other filters. `text`: occurs in the params, or in the
    error's type and message. The task was created at or after `since` and before `until`. `tags`: the task has all of
    them. `with_limit`: a claimed task counts towards the limit; for any other task, the limit is among those of the
    task, its type or its queue.
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
    tags: Sequence[str] | None = None
    group: str | None = None
    with_limit: str | None = None

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
        _check_tags(self.tags)

    def _names(self) -> list[tuple[str | None, str]]:
        return [
            (self.type, "The task type"),
            (self.queue, "The queue"),
            (self.key, "The key"),
            (self.worker, "The worker's id"),
            (self.group, "The group"),
            (self.with_limit, "The limit's name"),
        ]

    def filters(self) -> dict[str, Any]:
        """The filters by name, without the fields of a subclass."""
        return {name: getattr(self, name) for name in TaskMatch.__struct_fields__}

    @property
    def needs_search(self) -> bool:
        """True if a filter is set for which the task list has no index."""
        return self.tags is not None or self.only_searched

    @property
    def only_searched(self) -> bool:
        """True if a filter is set that lists of the dead letter do not have."""
        searched = (self.key, self.worker, self.text, self.since, self.until, self.group, self.with_limit)
        return any(value is not None for value in searched)


def check_not_everything(which: TaskMatch) -> None:
    """Refuse a bulk action without a filter: a forgotten filter must not cancel all tasks."""
    if all(value is None for name, value in which.filters().items() if name != "queues"):
        raise InvalidValue(
            "A bulk action needs at least one filter.",
            hint="Give a state, type, queue, key, worker, text, tags, group, with_limit or time. "
            "A `since` long ago matches all tasks.",
        )


def _check_tags(tags: Any) -> None:
    if tags is None:
        return
    check_tags(tags)
    if not tags:
        raise InvalidValue("tags is an empty list, which matches every task.", hint="Leave it out to match every task.")


def _check_text(text: Any) -> None:
    if text is None:
        return
    if type(text) is not str:
        raise InvalidValue(f"text must be a string, not {text!r}.")
    if not 1 <= len(text) <= MAX_TEXT:
        raise InvalidValue(f"text must have 1 to {MAX_TEXT:,} characters; this one has {len(text):,}.")
    encode(text, "text")


class TaskFilter(TaskMatch, frozen=True, kw_only=True):
    """Which tasks to list: newest first, `limit` per page; `cursor`: the last id of the previous page. `dead`: tasks in
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
            raise InvalidValue("Only the dead letter can be listed by error.", hint="Add dead=True.")
        if self.dead and self.only_searched:
            raise InvalidValue(
                "The dead letter is listed by queue, type, error and tags only.",
                hint="Leave out the other filters, or list failed tasks with state='failed'.",
            )
        check_integer(self.limit, "limit", 1, MAX_BATCH)
        if self.cursor is not None:
            check_integer(self.cursor, "cursor", 0, 2**63 - 1)


class DeadFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filters for the dead letter: by queue, type, text in the error's type and message, and tags.

    `only`: of workflow steps, those whose workflow has all its tasks in these queues, since a retry continues the
    workflow.
    """

    queue: str | None = None
    type: str | None = None
    error: str | None = None
    only: Sequence[str] | None = None
    tags: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for value, what in ((self.queue, "The queue"), (self.type, "The task type"), (self.error, "The error text")):
            if value is not None:
                check_name(value, what)
        check_names(self.only, "only", "The queue")
        _check_tags(self.tags)


ALL_DEAD = DeadFilter()


class BulkResult(msgspec.Struct, frozen=True):
    """The result of one batch of a bulk action. `cursor`: continue with the tasks below this id; None: all tasks have
    been read."""

    moved: int
    cursor: int | None


MAX_SEARCH_PAGE = 500


MAX_ID = 2**63 - 1


class TaskSearch(TaskMatch, frozen=True, kw_only=True):
    """Which tasks to find: newest first, up to `limit`; `cursor`: only tasks with lower ids. `dead`: tasks in the dead
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
    """A task as lists show it: the first 200 characters of `params` (JSON) and `error` (type: message). `error_head`:
    the beginning of the stored error, from which `error_kind` derives the kind."""

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
    tags: list[str]


class FoundTasks(msgspec.Struct, frozen=True):
    """The result of a search. `cursor`: continue below this id; None: all tasks have been read. `looked`: the number of
    tasks that were read, at most."""

    tasks: list[TaskSummary]
    cursor: int | None
    looked: int


PAGE_CONTENT = 4 * 1024 * 1024
"""The largest content of one page that a server reads, in characters of params, results and errors; at least one task.
One task may have two megabytes, and a page a thousand tasks: decoding them all would take gigabytes, and minutes in
which an event loop does nothing else."""


MAX_STATES = 10_000
"""The largest number of tasks whose states one operation reads."""


class TasksById(msgspec.Struct, frozen=True):
    """Tasks that were read by their ids, in the order of the ids. `left`: ids that were not read, because the tasks
    before them have much content. An id without a task is in neither."""

    tasks: list[Task]
    left: list[int]


class TaskPage(msgspec.Struct, frozen=True):
    """The result of a search with complete tasks; `cursor` and `looked` as in `FoundTasks`. `cut`: the page has ended
    before its limit, because of its content."""

    tasks: list[Task]
    cursor: int | None
    looked: int
    cut: bool = False


REDRIVE_BATCH = 500
"""Tasks of the dead letter that are retried in one transaction at most."""


BULK_BATCH = 500
"""Tasks that are cancelled or retried in one transaction at most."""


SEARCH_SPAN = 20_000
"""Tasks that one call reads where no index finds the matching tasks."""
