"""Which tasks: the filters that listing, searching and bulk actions share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from dibs.claim import check_names
from dibs.codec import check_name, encode
from dibs.errors import InvalidValue
from dibs.store.operations.rows import STATES
from dibs.task import State, check_moment

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
