"""Filters for tasks in JSON, as bulk actions and lists take them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from dibs.body.fields import MOMENT, Body, Moment, Name, TaskId, at_least_one
from dibs.errors import InvalidValue
from dibs.model.search import MAX_TEXT, TaskMatch
from dibs.model.task import State

Status = Annotated[State, Meta(description="Only tasks in this state.")]
OfType = Annotated[Name, Meta(description="Only tasks of this type.")]
OfQueue = Annotated[Name, Meta(description="Only tasks of this queue.")]
OfKey = Annotated[Name, Meta(description="Only the task with this idempotency key.")]
OfWorker = Annotated[Name, Meta(description="Only tasks that this worker holds, or held last.")]
Since = Annotated[Moment, Meta(description="Only tasks that were created at this time or later.")]
Until = Annotated[Moment, Meta(description="Only tasks that were created before this time.")]
OfText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_TEXT,
        pattern=r"^[^\x00]+$",
        description="Only tasks with this text in their params, or in their error's type and message.",
    ),
]


Written = Annotated[str, Meta(pattern=MOMENT, extra_json_schema={"format": "date-time"})]
"""A time in a query, where every value is a text: a number there must not be read as seconds since 1970."""

SinceWritten = Annotated[Written, Meta(description="Only tasks that were created at this time or later.")]
UntilWritten = Annotated[Written, Meta(description="Only tasks that were created before this time.")]


class MatchBody(Body, frozen=True):
    """Which tasks: those that all filters match. At least one filter is needed."""

    rules: ClassVar[tuple[dict[str, Any], ...]] = (
        at_least_one("status", "task_type", "queue", "key", "worker", "since", "until", "text"),
    )

    status: Status | None = None
    task_type: OfType | None = None
    queue: OfQueue | None = None
    key: OfKey | None = None
    worker: OfWorker | None = None
    since: Since | None = None
    until: Until | None = None
    text: OfText | None = None
    cursor: Annotated[TaskId, Meta(description="`next_cursor` of the answer before.")] | None = None


def match(asked: Any, queues: Any) -> TaskMatch:
    """The filters of a body or a query. `queues`: the only ones that the caller may see."""
    return TaskMatch(
        state=asked.status, type=asked.task_type, queue=asked.queue, key=asked.key, worker=asked.worker,
        since=_moment(asked.since, "since"), until=_moment(asked.until, "until"), text=asked.text, queues=queues
    )  # fmt: skip


def _moment(given: datetime | str | None, what: str) -> datetime | None:
    if not isinstance(given, str):
        return given
    try:
        return msgspec.convert(given, Moment)
    except msgspec.ValidationError:
        raise InvalidValue(f"{what} is not a valid time: {given!r}.", hint="Write 2030-01-31T08:00:00Z.") from None
