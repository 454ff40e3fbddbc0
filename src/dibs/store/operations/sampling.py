"""Samples: the whole store counted, what has moved since, how long tasks wait and run, what they fail of; and a sample
of every minute, kept for those who want to see how it went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from dibs.codec import decode
from dibs.model.checks import check_integer, check_names, from_micros
from dibs.model.statistics import (
    MAX_GROUP_MESSAGE,
    ErrorGroup,
    ErrorGroups,
    Latencies,
    TaskCount,
    TransitionCount,
    error_parts,
    kind_name,
    without_numbers,
)
from dibs.model.task import STATES, Event
from dibs.model.upkeep import BATCH
from dibs.store.operation import Operation, Row, Rows, Statement, Steps, limited
from dibs.store.operations.filters import conditions
from dibs.store.operations.looking import RECENT, percentiles, recent
from dibs.store.operations.rows import seconds

FAILURES = 10_000

FURTHER = 2
"""How many times as many failed tasks are looked at where only those of some queues are wanted."""


class Sampling:
    """Measuring the store."""

    def latencies(self, queues: Sequence[str] | None = None, limit: int = RECENT) -> Operation[Latencies]:
        """How long the last completed tasks (of these queues) waited and ran."""
        check_names(queues, "queues", "The queue")
        check_integer(limit, "limit", 1, 2**31 - 1)
        return Operation("latencies", lambda: _latencies(queues, limit), writes=False)

    def error_groups(self, queues: Sequence[str] | None = None, limit: int = FAILURES) -> Operation[ErrorGroups]:
        """The newest `limit` failed tasks (of these queues), grouped by error."""
        check_names(queues, "queues", "The queue")
        check_integer(limit, "limit", 1, 2**31 - 1)
        return Operation("error_groups", lambda: _failures(queues, limit), writes=False)

    def note_sample(self, at: int, body: str) -> Operation[bool]:
        """Keep the sample of a minute; True if it had none."""
        return Operation("note_sample", lambda: _note(at, body))

    def samples_since(self, at: int) -> Operation[list[tuple[int, str]]]:
        """The samples from this moment on, in order."""
        return Operation("samples_since", lambda: _samples(at), writes=False)

    def sample_heads(self, at: int) -> Operation[list[tuple[int, str]]]:
        """The same, each up to its queues: what comes after `,"queues":` is most of it, and left out."""
        return Operation("sample_heads", lambda: _samples(at, "{{body_without_queues}}"), writes=False)

    def prune_samples(self, before: int, limit: int = BATCH) -> Operation[int]:
        """Delete samples from before this moment."""
        return Operation("prune_samples", lambda: _prune(before, limit))


def read_counts(rows: Rows) -> list[TaskCount]:
    """The counts in the rows of `counts`."""
    return [
        TaskCount(queue, name, STATES[state], count, seconds(age), set_aside)
        for queue, name, state, count, age, set_aside in rows
    ]


def read_move(row: Row) -> TransitionCount:
    """The move in a row of `moves`."""
    queue, event, from_state, to_state, count, _ = row
    return TransitionCount(
        queue, Event(event), None if from_state is None else STATES[from_state], STATES[to_state], count
    )


def _latencies(queues: Sequence[str] | None, limit: int) -> Steps[Latencies]:
    rows = yield recent(queues, limit)
    return Latencies(percentiles([row[0] for row in rows]), percentiles([row[1] for row in rows]))


def _note(at: int, body: str) -> Steps[bool]:
    rows = yield Statement("note_sample", {"at": at, "body": body})
    return bool(rows)


def _samples(at: int, body: str = "body") -> Steps[list[tuple[int, str]]]:
    rows = yield Statement("samples_since", {"at": at}, words=(("body", body),))
    return [(when, body) for when, body in rows]


def _prune(before: int, limit: int) -> Steps[int]:
    rows = yield Statement("prune_samples", {"before": before}, words=limited(limit))
    return len(rows)


# Errors


def _failures(queues: Sequence[str] | None, limit: int) -> Steps[ErrorGroups]:
    reach = limit if queues is None else FURTHER * limit
    given = {"queues": None if queues is None else list(queues)}
    words = (conditions(given, ("queues",)), ("reach", f"{reach:d}"), *limited(limit))
    rows = yield Statement("failures", given, words=words)
    [(dead,)] = yield Statement("count_failed", words=limited(reach + 1))
    more = dead > reach or (queues is not None and len(rows) == limit)
    return ErrorGroups(_grouped(rows) if rows else [], len(rows), more)


def _grouped(rows: Rows) -> list[ErrorGroup]:
    """Rows come newest first, so the first of a group is its newest."""
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
        task_type,
        error_type,
        message[:MAX_GROUP_MESSAGE],
        count,
        from_micros(oldest),
        from_micros(finished_at),
        task_id,
        kind,
    )


def _text(written: str) -> str:
    """The text that is written as JSON, without an escape that was cut in two at its end."""
    for cut in range(len("\\u0000")):
        try:
            text: Any = decode(f'"{written[: len(written) - cut]}"')
        except msgspec.DecodeError:
            continue
        return str(text)
    return written
