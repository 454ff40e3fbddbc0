"""Statistics: counts by state, latencies, groups of errors, changes since a position in the history, database size.

`Stats` is public (`app.stats()`, `/api/stats`): add fields with a default. The other types are internal to the store
and the server, which keeps counts up to date with them (decision 27).
"""

from __future__ import annotations

import re
from datetime import datetime
from hashlib import sha256

import msgspec

from dibs.model.history import HistoryPosition
from dibs.model.registry import WorkerInfo
from dibs.model.task import Event, State


class DatabaseHealth(msgspec.Struct, frozen=True):
    """Figures about the database from the engine.

    `size`: bytes of the database. `wal_size`: bytes of SQLite's write-ahead log, which grows while a reader keeps an
    old snapshot. `oldest_transaction`: age in seconds of the oldest open transaction on PostgreSQL, which keeps vacuum
    from removing dead rows. None: the engine has no such figure.
    """

    size: int
    wal_size: int | None = None
    oldest_transaction: float | None = None


class Percentiles(msgspec.Struct, frozen=True):
    """Percentiles in seconds; None while no task has completed."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class Stats(msgspec.Struct, frozen=True):
    """Counts and percentiles of the store. Percentiles cover the last 1,000 completed tasks; where only some queues are
    selected, their tasks among the last 10,000."""

    depth: dict[str, int]
    by_queue: dict[str, dict[str, int]]
    by_type: dict[str, dict[str, int]]
    oldest_pending_age: float | None
    finished_last_minute: dict[str, int]
    finished_last_hour: dict[str, int]
    wait: Percentiles
    run: Percentiles
    dead_letter: int = 0
    """Failed tasks that are neither ignored by their workflow nor discarded."""


class TaskCount(msgspec.Struct, frozen=True):
    """The number of tasks of a queue and type in a state. `oldest_age`: seconds for which the oldest has been pending.
    `set_aside`: the number of failed tasks that are not in the dead letter."""

    queue: str
    type: str
    state: State
    count: int
    oldest_age: float | None
    set_aside: int = 0


class TransitionCount(msgspec.Struct, frozen=True):
    """The number of tasks of a queue that went from one state to another. `queue` is None for tasks pruned since.
    `from_queue`: the queue that they left with the transition, if they moved to another one."""

    queue: str | None
    event: Event
    from_state: State | None
    to_state: State
    count: int
    from_queue: str | None = None


class Latencies(msgspec.Struct, frozen=True):
    """How long tasks waited for their claim, and how long they ran."""

    wait: Percentiles
    run: Percentiles


class ErrorGroup(msgspec.Struct, frozen=True):
    """Failed tasks of a type whose errors differ only in numbers. `message`: the beginning of the newest message;
    `kind`: the name of their kind of error (see `error_kind`)."""

    task_type: str
    error_type: str
    message: str
    count: int
    first_at: datetime
    last_at: datetime
    newest_id: int
    kind: str


class ErrorGroups(msgspec.Struct, frozen=True):
    """The dead letter by kind of error, the most frequent first, from the `looked` newest failures. `more`: older
    failures exist."""

    groups: list[ErrorGroup]
    looked: int
    more: bool


class TaskCounts(msgspec.Struct, frozen=True):
    """All tasks counted by queue, type and state: `at` is the database time in microseconds, `position` the end of the
    history at that moment."""

    at: int
    position: HistoryPosition
    counts: list[TaskCount]


class HistoryChanges(msgspec.Struct, frozen=True):
    """The transitions after a position of the history, and the new position. `whole`: no transition is left."""

    position: HistoryPosition
    moves: list[TransitionCount]
    whole: bool = True


class ChangesSince(msgspec.Struct, frozen=True):
    """The transitions after each of several positions, all read at the same time `at`."""

    at: int
    progress: list[HistoryChanges]


class WorkersAndPauses(msgspec.Struct, frozen=True):
    """The registered workers (without the tasks they hold), and the paused queues with the time of their pause.
    `resuming`: the queues that were resumed and may still have parked tasks. `paused_types`: the paused types."""

    workers: list[WorkerInfo]
    paused: dict[str, datetime]
    resuming: frozenset[str] = frozenset()
    paused_types: dict[str, datetime] = {}


MAX_GROUP_MESSAGE = 300
"""Characters of a message that are compared and shown."""


_NUMBER = re.compile(r"[0-9][0-9a-fA-FxX-]*")


_REST = re.compile(r"\b[a-fA-F]+#")


def without_numbers(messages: list[str]) -> list[str]:
    """Replace numbers and hexadecimal ids (123, 0x7f3a, a3f2-99) in the messages, so that errors of one kind are equal.

    The letters before the first digit of an id are removed from the distinct messages only: that pattern is ten times
    slower.
    """
    numbered = _NUMBER.sub("#", "\n".join(messages)).split("\n")
    names = {each: _REST.sub("#", each) for each in set(numbered)}
    return [names[each] for each in numbered]


def error_kind(head: str | None) -> str:
    """The name of an error's kind, from the first characters of the stored error (`error_head` in the SQL).

    Two errors have the same name if and only if they are in the same group, so the name finds the tasks of a group. A
    name is safe in a URL or a form; an error text is not, because a browser changes its line breaks.
    """
    error_type, message = error_parts(head)
    return kind_name(error_type, *without_numbers([message[:MAX_GROUP_MESSAGE]]))


def kind_name(error_type: str, message: str) -> str:
    """32 hex digits that identify a kind of error: a SHA-256 prefix, so no two kinds share a name."""
    return sha256(f"{error_type}\n{message}".encode()).hexdigest()[:32]


_ERROR = re.compile(r'\{"type":"([^"\\\n]*(?:\\.[^"\\\n]*)*)(?:","message":"([^"\\\n]*(?:\\.[^"\\\n]*)*))?')
"""The beginning of an error as msgspec writes it. A quotation mark or a line break inside of a text is escaped."""


def error_parts(head: str | None) -> tuple[str, str]:
    """The error's type and message, as JSON writes them."""
    found = _ERROR.match(head or "")
    return (found[1], found[2] or "") if found else ("", "")
