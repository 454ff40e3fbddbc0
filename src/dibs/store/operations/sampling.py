"""Samples: the whole store counted, what has moved since, how long tasks wait and run, what they fail of; and a sample
of every minute, kept for those who want to see how it went."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any

import msgspec

from dibs.claim import check_names
from dibs.codec import decode
from dibs.store.operation import Operation, Row, Rows, Statement, Steps, limited
from dibs.store.operations.filters import conditions
from dibs.store.operations.looking import RECENT, Percentiles, percentiles, recent
from dibs.store.operations.rows import STATES, seconds
from dibs.store.operations.tending import BATCH
from dibs.task import Event, State, check_integer, from_micros

FAILURES = 10_000

FURTHER = 2
"""How many times as many failed tasks are looked at where only those of some queues are wanted."""

SHOWN = 300
"""Characters of a message that are compared and shown."""


class Count(msgspec.Struct, frozen=True):
    """How many tasks of a queue and type are in a state, and for how many seconds the oldest has been pending. Of the
    failed ones `set_aside` are not in the dead letter."""

    queue: str
    type: str
    state: State
    count: int
    oldest_age: float | None
    set_aside: int = 0


class Move(msgspec.Struct, frozen=True):
    """So many tasks of a queue went from one state to the other; no queue where they have been pruned since."""

    queue: str | None
    event: Event
    from_state: State | None
    to_state: State
    count: int


class Latencies(msgspec.Struct, frozen=True):
    """How long tasks waited until they were claimed, and then ran."""

    wait: Percentiles
    run: Percentiles


class ErrorGroup(msgspec.Struct, frozen=True):
    """Failed tasks of a type whose errors are alike but for numbers. `message` is the newest one's, its beginning;
    `kind`: the name of what their errors have in common, as `kind_of` tells it of each."""

    task_type: str
    error_type: str
    message: str
    count: int
    first_at: datetime
    last_at: datetime
    newest_id: int
    kind: str


class ErrorGroups(msgspec.Struct, frozen=True):
    """The dead letter by error, the most frequent first: of the `looked` newest failures; `more`: there are others."""

    groups: list[ErrorGroup]
    looked: int
    more: bool


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


def read_counts(rows: Rows) -> list[Count]:
    """The counts in the rows of `counts`."""
    return [
        Count(queue, name, STATES[state], count, seconds(age), set_aside)
        for queue, name, state, count, age, set_aside in rows
    ]


def read_move(row: Row) -> Move:
    """The move in a row of `moves`."""
    queue, event, from_state, to_state, count, _ = row
    return Move(queue, Event(event), None if from_state is None else STATES[from_state], STATES[to_state], count)


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
    errors = [_parts(row[2]) for row in rows]
    messages = _alike([message[:SHOWN] for _, message in errors])
    kinds = [(row[1], error[0], message) for row, error, message in zip(rows, errors, messages, strict=True)]
    oldest = dict(zip(kinds, rows, strict=True))
    newest = dict(zip(reversed(kinds), reversed(rows), strict=True))
    counted = Counter(kinds).most_common()
    return [_group(newest[kind], oldest[kind][3], count, _name(*kind[1:])) for kind, count in counted]


def _group(newest: Row, oldest: int, count: int, kind: str) -> ErrorGroup:
    task_id, task_type, head, finished_at = newest
    error_type, message = map(_text, _parts(head))
    return ErrorGroup(
        task_type, error_type, message[:SHOWN], count, from_micros(oldest), from_micros(finished_at), task_id, kind
    )


_NUMBER = re.compile(r"[0-9][0-9a-fA-FxX-]*")
_REST = re.compile(r"\b[a-fA-F]+#")


def _alike(messages: list[str]) -> list[str]:
    """The messages without what differs from one error to the next of the same kind: 123, 0x7f3a, a3f2-99. What stands
    before the first digit of an id is looked for in the different ones alone: that takes ten times as long."""
    numbered = _NUMBER.sub("#", "\n".join(messages)).split("\n")
    names = {each: _REST.sub("#", each) for each in set(numbered)}
    return [names[each] for each in numbered]


def kind_of(head: str | None) -> str:
    """The name of the kind of an error, by its beginning (`error_head`): two errors have the same name if and only if
    they are grouped together, so that those of a group can be found again. It is safe in an address or a form, which
    an error is not: a browser changes its line breaks."""
    error_type, message = _parts(head)
    return _name(error_type, *_alike([message[:SHOWN]]))


def _name(error_type: str, message: str) -> str:
    """32 hex digits: nobody writes two errors that get the same ones. No line break stands in either part."""
    return sha256(f"{error_type}\n{message}".encode()).hexdigest()[:32]


_ERROR = re.compile(r'\{"type":"([^"\\\n]*(?:\\.[^"\\\n]*)*)(?:","message":"([^"\\\n]*(?:\\.[^"\\\n]*)*))?')
"""The beginning of an error as msgspec writes it. A quotation mark or a line break inside of a text is escaped."""


def _parts(head: str | None) -> tuple[str, str]:
    """The error's type and message, as JSON writes them."""
    found = _ERROR.match(head or "")
    return (found[1], found[2] or "") if found else ("", "")


def _text(written: str) -> str:
    """The text that is written as JSON, without an escape that was cut in two at its end."""
    for cut in range(len("\\u0000")):
        try:
            text: Any = decode(f'"{written[: len(written) - cut]}"')
        except msgspec.DecodeError:
            continue
        return str(text)
    return written
