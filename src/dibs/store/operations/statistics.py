"""Statistics: counts of tasks and their changes, latencies, errors, and a sample of every minute.

A count of all tasks is expensive, so a server counts once and then adds the changes in the history. Where several
transactions write at once (PostgreSQL) a snapshot does not end with an id: entry 8 can be in it while entry 7 is not
committed. So a position is the last id that was read, and the gaps before it; an entry that appears in a gap later is a
change since the position.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from dibs.json_values import decode
from dibs.model.checks import check_integer, check_names, from_micros
from dibs.model.history import HistoryPosition
from dibs.model.statistics import (
    MAX_GROUP_MESSAGE,
    ChangesSince,
    DatabaseHealth,
    ErrorGroup,
    ErrorGroups,
    HistoryChanges,
    Latencies,
    Percentiles,
    Stats,
    TaskCount,
    TaskCounts,
    TransitionCount,
    WorkersAndPauses,
    error_parts,
    kind_name,
    without_numbers,
)
from dibs.model.task import STATES, Event, State
from dibs.model.upkeep import BATCH, PauseScope
from dibs.store.operation import Mode, Operation, Row, Rows, Statement, Statements, limited
from dibs.store.operations.dialect import Dialect
from dibs.store.operations.filters import conditions, quoted_tags
from dibs.store.operations.registry import list_workers
from dibs.store.operations.rows import in_order_of_states, seconds

RECENT = 1000
"""The number of completed tasks from which latencies are computed."""

LATENCY_REACH = 10
"""The factor by which more completed tasks are read if only some queues are wanted."""

FAILURES = 10_000
"""The number of failed tasks that are grouped by error."""

ERROR_REACH = 2
"""The factor by which more failed tasks are read if only some queues or tags are wanted."""

MAX_CHANGES = 2_000_000
"""The largest number of entries that one operation counts: a minute at ten thousand tasks a second. A server that is
further behind counts all tasks again."""


class Statistics:
    """Figures about the whole store."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    def stats(self, queues: Sequence[str] | None = None) -> Operation[Stats]:
        """Depth, age, throughput and latency, of all queues or of these."""
        check_names(queues, "queues", "The queue")
        return Operation("stats", lambda: _stats(queues), mode=Mode.READ)

    def latencies(self, queues: Sequence[str] | None = None, limit: int = RECENT) -> Operation[Latencies]:
        """The waiting and running times of the last completed tasks (of these queues)."""
        check_names(queues, "queues", "The queue")
        check_integer(limit, "limit", 1, 2**31 - 1)
        return Operation("latencies", lambda: _latencies(queues, limit), mode=Mode.READ)

    def error_groups(
        self, queues: Sequence[str] | None = None, limit: int = FAILURES, tags: Sequence[str] | None = None
    ) -> Operation[ErrorGroups]:
        """The newest `limit` failed tasks (of these queues, with all of these tags), grouped by error."""
        check_names(queues, "queues", "The queue")
        check_integer(limit, "limit", 1, 2**31 - 1)
        given = {"queues": None if queues is None else list(queues), "tags": quoted_tags(tags)}
        return Operation("error_groups", lambda: _error_groups(given, limit), mode=Mode.READ)

    def save_sample(self, at: int, body: str) -> Operation[bool]:
        """Save the sample of a minute. True if the minute had none."""
        return Operation("save_sample", lambda: _save(at, body))

    def samples_since(self, at: int) -> Operation[list[tuple[int, str]]]:
        """The samples from this moment on, in order."""
        return Operation("samples_since", lambda: _samples(at), mode=Mode.READ)

    def sample_heads(self, at: int) -> Operation[list[tuple[int, str]]]:
        """As `samples_since`, without the queues of each sample, which are most of it."""
        return Operation("sample_heads", lambda: _samples(at, "{{body_without_queues}}"), mode=Mode.READ)

    def prune_samples(self, before: int, limit: int = BATCH) -> Operation[int]:
        """Delete samples from before this moment."""
        return Operation("prune_samples", lambda: _prune(before, limit))

    def count_tasks(self) -> Operation[TaskCounts]:
        """The counts of all tasks, and the position in the history at which they are true. This reads all tasks."""
        return Operation("count_tasks", self._count_tasks, mode=Mode.SNAPSHOT)

    def changes_since(self, positions: Sequence[HistoryPosition], limit: int = MAX_CHANGES) -> Operation[ChangesSince]:
        """The changes since each of these positions, counted, all up to the same moment."""
        check_integer(limit, "limit", 1, 2**31 - 1)
        return Operation("changes_since", lambda: self._changes_since(positions, limit), mode=Mode.SNAPSHOT)

    def workers_and_pauses(self) -> Operation[WorkersAndPauses]:
        """The workers and the paused queues. This reads no tasks."""
        return Operation("workers_and_pauses", _workers_and_pauses, mode=Mode.READ)

    def finished_within(self, window: int, queues: Sequence[str] | None = None) -> Operation[dict[str, int]]:
        """The number of tasks (of these queues) that reached each final state in the last `window` microseconds."""
        check_names(queues, "queues", "The queue")
        return Operation("finished_within", lambda: _finished(window, queues), mode=Mode.READ)

    def _count_tasks(self) -> Statements[TaskCounts]:
        position = yield from self._dialect.history_position()
        [(at,)] = yield Statement("clock")
        return TaskCounts(at, position, read_counts((yield Statement("counts"))))

    def _changes_since(self, positions: Sequence[HistoryPosition], limit: int) -> Statements[ChangesSince]:
        progress = yield from self._dialect.history_changes(positions, limit)
        [(at,)] = yield Statement("clock")
        return ChangesSince(at, progress)

    def claims_behind(self) -> Operation[dict[str, float]]:
        """By how many claims a group of each fair queue is behind its share, where one is."""
        return Operation("claims_behind", _claims_behind, mode=Mode.READ)

    def database_health(self) -> Operation[DatabaseHealth]:
        """The size of the database, and what keeps its engine from cleaning up."""
        return Operation("database_health", self._dialect.database_health, mode=Mode.READ)


def _claims_behind() -> Statements[dict[str, float]]:
    return dict((yield Statement("claims_behind")))


def _stats(queues: Sequence[str] | None) -> Statements[Stats]:
    given, only = {"queues": queues if queues is None else list(queues)}, _of_queues(queues)
    counts = [row for row in (yield Statement("counts")) if queues is None or row[0] in queues]
    minute = yield Statement("throughput", {**given, "window": 60_000_000}, words=(only,))
    hour = yield Statement("throughput", {**given, "window": 3_600_000_000}, words=(only,))
    finished = yield recent(queues, RECENT)
    ages = [row[4] for row in counts if row[4] is not None]
    return Stats(
        depth=_sum(counts, lambda row: row[2]),
        by_queue=_sum_nested(counts, 0),
        by_type=_sum_nested(counts, 1),
        oldest_pending_age=seconds(max(ages)) if ages else None,
        finished_last_minute={row[0]: row[1] for row in minute},
        finished_last_hour={row[0]: row[1] for row in hour},
        wait=percentiles([row[0] for row in finished]),
        run=percentiles([row[1] for row in finished]),
        dead_letter=sum(row[3] - row[5] for row in counts if row[2] == State.FAILED),
    )


def _sum(counts: list[Row], key: Any) -> dict[str, int]:
    total: Counter[str] = Counter()
    for row in counts:
        total[key(row)] += row[3]
    return in_order_of_states(total)


def _sum_nested(counts: list[Row], column: int) -> dict[str, dict[str, int]]:
    names = sorted({row[column] for row in counts})
    return {name: _sum([row for row in counts if row[column] == name], lambda row: row[2]) for name in names}


def recent(queues: Sequence[str] | None, limit: int) -> Statement:
    """The statement for the waiting and running times of the last completed tasks. With `queues`, only the last
    LATENCY_REACH * limit tasks of all queues are read."""
    given = {"queues": None if queues is None else list(queues)}
    reach = limit if queues is None else LATENCY_REACH * limit
    return Statement("recent", given, words=(_of_queues(queues), ("reach", f"{reach:d}"), *limited(limit)))


def percentiles(values: list[int | None]) -> Percentiles:
    """The percentiles of the known values (microseconds), in seconds."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return Percentiles()
    p50, p95, p99 = (known[min(len(known) - 1, len(known) * percent // 100)] / 1e6 for percent in (50, 95, 99))
    return Percentiles(p50, p95, p99)


def _of_queues(queues: Sequence[str] | None) -> tuple[str, str]:
    return conditions({"queues": queues}, ("queues",))


def read_counts(rows: Rows) -> list[TaskCount]:
    """The counts in the rows of `counts`."""
    return [
        TaskCount(queue, name, STATES[state], count, seconds(age), set_aside)
        for queue, name, state, count, age, set_aside, _ in rows
    ]


def read_transition(row: Row) -> TransitionCount:
    """The count of transitions in a row of `moves`."""
    queue, event, from_state, to_state, from_queue, count, _ = row
    before = None if from_state is None else STATES[from_state]
    return TransitionCount(queue, Event(event), before, STATES[to_state], count, from_queue)


def _latencies(queues: Sequence[str] | None, limit: int) -> Statements[Latencies]:
    rows = yield recent(queues, limit)
    return Latencies(percentiles([row[0] for row in rows]), percentiles([row[1] for row in rows]))


def _save(at: int, body: str) -> Statements[bool]:
    rows = yield Statement("save_sample", {"at": at, "body": body})
    return bool(rows)


def _samples(at: int, body: str = "body") -> Statements[list[tuple[int, str]]]:
    rows = yield Statement("samples_since", {"at": at}, words=(("body", body),))
    return [(when, body) for when, body in rows]


def _prune(before: int, limit: int) -> Statements[int]:
    rows = yield Statement("prune_samples", {"before": before}, words=limited(limit))
    return len(rows)


# Errors


def _error_groups(given: dict[str, Any], limit: int) -> Statements[ErrorGroups]:
    filtered = any(value is not None for value in given.values())
    reach = ERROR_REACH * limit if filtered else limit
    words = (conditions(given, ("queues", "tags")), ("reach", f"{reach:d}"), *limited(limit))
    rows = yield Statement("failures", given, words=words)
    [(dead,)] = yield Statement("count_failed", words=limited(reach + 1))
    more = dead > reach or (filtered and len(rows) == limit)
    return ErrorGroups(_grouped(rows) if rows else [], len(rows), more)


def _grouped(rows: Rows) -> list[ErrorGroup]:
    """Group the rows by type, error and message. The rows are ordered newest first."""
    errors = [error_parts(row[2]) for row in rows]
    messages = without_numbers([message[:MAX_GROUP_MESSAGE] for _, message in errors])
    kinds = [(row[1], error[0], message) for row, error, message in zip(rows, errors, messages, strict=True)]
    oldest = dict(zip(kinds, rows, strict=True))
    newest = dict(zip(reversed(kinds), reversed(rows), strict=True))
    counted = Counter(kinds).most_common()
    return [_group(newest[kind], oldest[kind][3], count, kind_name(*kind[1:])) for kind, count in counted]


def _group(newest: Row, oldest: int, count: int, kind: str) -> ErrorGroup:
    task_id, task_type, head, finished_at = newest
    error_type, message = map(_text, error_parts(head))
    return ErrorGroup(
        task_type=task_type,
        error_type=error_type,
        message=message[:MAX_GROUP_MESSAGE],
        count=count,
        first_at=from_micros(oldest),
        last_at=from_micros(finished_at),
        newest_id=task_id,
        kind=kind,
    )


def _text(written: str) -> str:
    """Decode the content of a JSON string. An escape sequence that was cut off at the end is left out."""
    for cut in range(len("\\u0000")):
        try:
            text: Any = decode(f'"{written[: len(written) - cut]}"')
        except msgspec.DecodeError:
            continue
        return str(text)
    return written


def read_changes(position: HistoryPosition, rows: Sequence[Row], limit: int) -> HistoryChanges:
    """The changes in the rows of `moves`. The gaps of the position stay the same."""
    last = max((row[-1] for row in rows), default=position.last)
    whole = sum(row[-2] for row in rows) < limit
    return HistoryChanges(HistoryPosition(last, position.gaps), [read_transition(row) for row in rows], whole)


def _finished(window: int, queues: Sequence[str] | None) -> Statements[dict[str, int]]:
    given = {"window": window, "queues": None if queues is None else list(queues)}
    return dict((yield Statement("throughput", given, words=(conditions(given, ("queues",)),))))


def _workers_and_pauses() -> Statements[WorkersAndPauses]:
    workers = yield Statement("workers")
    pauses = yield Statement("pauses")
    paused: dict[str, dict[str, datetime]] = {scope: {} for scope in PauseScope}
    for scope, name, at, _ in pauses:
        if at is not None:
            paused[scope][name] = from_micros(at)
    resuming = (name for scope, name, at, parked in pauses if scope == PauseScope.QUEUE and at is None and parked)
    return WorkersAndPauses(
        list_workers(workers), paused[PauseScope.QUEUE], frozenset(resuming), paused[PauseScope.TYPE]
    )
