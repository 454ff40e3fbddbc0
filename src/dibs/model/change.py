"""Changes to a task that has not started: new values for its priority, due time, queue, params, tags and group."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from dibs.errors import InvalidValue
from dibs.json_values import check_name, encode_params
from dibs.model.checks import check_integer, check_moment, check_seconds, check_tags
from dibs.model.limit import check_group
from dibs.model.task import MAX_PRIORITY


class TaskChange(msgspec.Struct, frozen=True, kw_only=True):
    """New values for a task that has not started, checked on construction. None: the value stays.

    `delay`: seconds from the moment of the change; `run_at`: the same as a time. `params`: all params, not a part of
    them. `tags`: all tags; an empty list removes them. `group`: an empty text removes the group that the task was
    given, so that it has the group that its params name, if its type has `group_by`, or none.
    """

    priority: int | None = None
    delay: float | None = None
    run_at: datetime | None = None
    queue: str | None = None
    params: dict[str, Any] | None = None
    tags: Sequence[str] | None = None
    group: str | None = None

    def __post_init__(self) -> None:
        if self.priority is not None:
            check_integer(self.priority, "priority", -MAX_PRIORITY, MAX_PRIORITY)
        if self.delay is not None:
            check_seconds(self.delay, "delay")
        if self.run_at is not None:
            if self.delay is not None:
                raise InvalidValue("Give either delay or run_at, not both.")
            check_moment(self.run_at, "run_at")
        if self.queue is not None:
            check_name(self.queue, "The queue")
        if self.params is not None:
            encode_params(self.params)
        if self.tags is not None:
            check_tags(self.tags)
        if self.group is not None and self.group != "":
            check_group(self.group)
        if all(getattr(self, name) is None for name in self.__struct_fields__):
            raise InvalidValue(
                "A change needs at least one new value.",
                hint="Give priority, delay, run_at, queue, params, tags or group.",
            )

    @property
    def sets_due_time(self) -> bool:
        """True if the task gets another due time."""
        return self.delay is not None or self.run_at is not None


def check_for_many(change: TaskChange) -> TaskChange:
    """Refuse new params for many tasks: each task type has its own params."""
    if change.params is not None:
        raise InvalidValue(
            "The params of many tasks cannot be changed together.", hint="Change the params of each task by its id."
        )
    return change
