"""Check a recorded history offline: each claim went to one worker, no stale write was accepted, no task was lost."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import BinaryIO

import msgspec

from dibs.errors import InvalidValue
from dibs.model.history import HistoryEntry
from dibs.model.task import FINAL, MOVES, Event, State, Task
from dibs.observe.limits_check import LimitsCheck, LimitsRecord
from dibs.observe.violations import Code, Violation

MAX_LISTED = 20
"""The number of violations in a printed report; `violations` has all of them."""


class Acknowledged(msgspec.Struct, frozen=True):
    """A success that a client has received as a response.

    `event`: enqueued (token 0, no worker), claimed, completed, failed or released; `cancelled` for an outcome whose
    response had the state `cancelled`, because the cancellation of the task was requested.
    """

    task_id: int
    token: int
    event: Event
    worker_id: str | None = None


class VerifyReport(msgspec.Struct, frozen=True):
    """The result of a check: the number of checked operations, and all violations."""

    operations: int
    tasks: int
    claims: int
    completions: int
    violations: list[Violation]

    @property
    def ok(self) -> bool:
        """True when no rule was broken."""
        return not self.violations

    def __str__(self) -> str:
        return "\n".join([f"{self._counted()}: {self._verdict()}", *self._listed()])

    def _counted(self) -> str:
        seen = f"{self.operations:,} operations on {self.tasks:,} tasks"
        return f"{seen} ({self.claims:,} claims, {self.completions:,} completions)"

    def _verdict(self) -> str:
        return "no violation" if self.ok else f"violations: {len(self.violations):,}"

    def _listed(self) -> Iterator[str]:
        yield from (f"  {violation}" for violation in self.violations[:MAX_LISTED])
        if len(self.violations) > MAX_LISTED:
            yield f"  … and {len(self.violations) - MAX_LISTED:,} more"


def verify(
    entries: Iterable[HistoryEntry],
    *,
    tasks: Iterable[Task] | None = None,
    acknowledged: Iterable[Acknowledged] | None = None,
    complete: bool = True,
    limits: LimitsRecord | None = None,
) -> VerifyReport:
    """Check a history, read once, in the order of its ids.

    `tasks`: all tasks of the store after the last entry. `acknowledged`: responses that clients received. `complete`:
    False if the oldest history has been pruned, so that the history of a task may begin in the middle; what the missing
    part could explain is then not a violation. `limits`: the limits and fair queues, to check them as well; this needs
    the tasks, and memory for every claim.
    """
    writes = _AcknowledgedWrites(acknowledged or ())
    records = _TaskRecords(writes, complete)
    flow = None if limits is None else LimitsCheck(limits, complete=complete)
    if flow is not None:
        if tasks is None:
            raise InvalidValue("A check of limits needs the tasks.", hint="Give tasks= as well.")
        entries, tasks = flow.read(entries), flow.hold(tasks)
    violations = [violation for entry in entries for violation in records.enter(entry)]
    if tasks is not None:
        violations += _compare(records, tasks)
    violations += writes.broken(records)
    if flow is not None:
        violations += flow.violations()
    count = records.count
    return VerifyReport(count.total(), len(records.tasks), count[Event.CLAIMED], count[Event.COMPLETED], violations)


def dump(entries: Iterable[HistoryEntry], path: str | PathLike[str]) -> int:
    """Write a recording, one JSON entry per line. Returns the number of entries."""
    encoder, count = msgspec.json.Encoder(), 0
    with create_for_owner(path) as file:
        for entry in entries:
            file.write(encoder.encode(entry) + b"\n")
            count += 1
    return count


def create_for_owner(path: str | PathLike[str]) -> BinaryIO:
    """Create a file that only its owner can read: the history contains the errors of all tasks."""
    return open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600))


def load(path: str | PathLike[str]) -> Iterator[HistoryEntry]:
    """Read a recording entry by entry. Raises InvalidValue at a line that is not an entry."""
    decoder = msgspec.json.Decoder(HistoryEntry)
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                entry = decoder.decode(line)
            except (ValueError, RecursionError) as error:
                raise _malformed(path, number, error) from error
            yield entry


def _malformed(path: str | PathLike[str], number: int, error: Exception) -> InvalidValue:
    message = f"Line {number} of {path} is not an entry of a history: {error}."
    return InvalidValue(
        message, hint="A recording that was cut off by a crash ends with an incomplete line: remove that line."
    )


@dataclass(slots=True)
class _TaskRecord:
    """The state of a task while its history is read. Its size does not grow with the number of entries."""

    state: State | None = None
    token: int = 0  # the highest issued
    live: int | None = None  # the token of the valid claim
    worker: str | None = None
    pruned: bool = False
    last_id: int = -1
    known_from: int = 0  # the recording has all entries from this token on


Fault = tuple[Code, str]

_AFTER_END = frozenset({Event.RETRIED, Event.IGNORED, Event.DISCARDED, Event.RESTORED, Event.PRUNED})
_ENDS_CLAIM = frozenset({Event.COMPLETED, Event.FAILED, Event.RELEASED, Event.CANCELLED})
_FENCED = _ENDS_CLAIM | {Event.RECOVERED, Event.CANCEL_REQUESTED}


class _TaskRecords:
    """The records of all tasks, up to the last read entry."""

    def __init__(self, acknowledged: _AcknowledgedWrites, complete: bool) -> None:
        self.acknowledged = acknowledged
        self.complete = complete
        self.tasks: dict[int, _TaskRecord] = {}
        self.count: Counter[Event] = Counter()

    def enter(self, entry: HistoryEntry) -> list[Violation]:
        """Check the entry against the record of its task, then apply it, so that one fault is not reported twice."""
        record = self.tasks.get(entry.task_id)
        faults: list[Fault] = []
        if record is None:
            record = self.tasks[entry.task_id] = _record_before(entry)
            faults += self._judge_beginning(entry)
        faults += _faults(record, entry)
        _advance(record, entry)
        self.count[entry.event] += 1
        self.acknowledged.confirm(entry)
        return [Violation(code, entry.task_id, message, entry.id) for code, message in faults]

    def _judge_beginning(self, entry: HistoryEntry) -> list[Fault]:
        if not self.complete or entry.event == Event.ENQUEUED:
            return []
        return [(Code.NO_BEGINNING, f"the history begins with {entry.event}")]


def _record_before(entry: HistoryEntry) -> _TaskRecord:
    """The record before the first entry: empty, or what the entry implies if the beginning is missing."""
    if entry.event == Event.ENQUEUED:
        return _TaskRecord()
    claims = entry.event == Event.CLAIMED
    return _TaskRecord(
        state=entry.from_state,
        token=entry.token - claims,
        live=entry.token if entry.from_state == State.CLAIMED else None,
        worker=entry.worker_id,
        known_from=entry.token if claims else entry.token + 1,
    )


def _advance(record: _TaskRecord, entry: HistoryEntry) -> None:
    record.last_id = max(record.last_id, entry.id)
    record.state = entry.to_state
    if entry.event == Event.CLAIMED:
        record.token = max(record.token, entry.token)
        record.live, record.worker = entry.token, entry.worker_id
    elif entry.to_state != State.CLAIMED:
        record.live = record.worker = None
    if entry.event == Event.PRUNED:
        record.pruned = True


def _faults(record: _TaskRecord, entry: HistoryEntry) -> Iterator[Fault]:
    held, placed = _token_fault(record, entry), _transition_fault(record, entry)
    if held:
        yield held
    # A second claim starts from `pending`, a late write from `claimed`: the same fault also breaks the chain.
    echo = held and held[0] in (Code.DOUBLE_CLAIM, Code.STALE_TOKEN) and placed and placed[0] is Code.BROKEN_CHAIN
    if placed and not echo:
        yield placed


def _transition_fault(record: _TaskRecord, entry: HistoryEntry) -> Fault | None:
    """The fault in the transition of the entry, if there is one."""
    if entry.id <= record.last_id:
        return Code.OUT_OF_ORDER, f"{entry.event} comes after entry {record.last_id}"
    if record.pruned:
        return Code.LIFE_AFTER_PRUNING, f"{entry.event} after the task was pruned"
    if record.state in FINAL and entry.event not in _AFTER_END:
        return Code.LIFE_AFTER_END, f"{entry.event} after the task was {record.state}"
    if not _allowed(entry):
        return Code.MOVE_NOT_ALLOWED, f"{entry.event} cannot lead from {entry.from_state} to {entry.to_state}"
    if entry.from_state != record.state:
        return Code.BROKEN_CHAIN, f"{entry.event} leaves {entry.from_state}, but the task was {record.state}"
    return None


def _allowed(entry: HistoryEntry) -> bool:
    leaves, reaches = MOVES[entry.event]
    if entry.event == Event.PRUNED and entry.from_state != entry.to_state:
        return False  # not in the table: pruning does not change the state
    if entry.event == Event.CHANGED and (entry.from_state == State.BLOCKED) != (entry.to_state == State.BLOCKED):
        return False  # not in the table either: a change does not decide whether a step waits for others
    if entry.event == Event.REPLACED and entry.token > 0:
        return False  # not in the table: a task that has started keeps its content
    return entry.from_state in leaves and entry.to_state in reaches


def _token_fault(record: _TaskRecord, entry: HistoryEntry) -> Fault | None:
    """The fault in the token or the worker of the entry, if there is one."""
    if entry.event == Event.CLAIMED:
        return _claim_fault(record, entry)
    if entry.event in _FENCED and (entry.event != Event.CANCELLED or entry.from_state == State.CLAIMED):
        return _write_fault(record, entry)
    if entry.token != record.token:
        return (
            Code.WRONG_TOKEN,
            f"{entry.event} is recorded under token {entry.token}, the task's token is {record.token}",
        )
    return None


def _claim_fault(record: _TaskRecord, entry: HistoryEntry) -> Fault | None:
    claim = f"claimed by {entry.worker_id} under token {entry.token}"
    if record.live is not None:
        return Code.DOUBLE_CLAIM, f"{claim} while {record.worker} held it under token {record.live}"
    if entry.token <= record.token:
        return Code.DOUBLE_CLAIM, f"{claim}, though token {record.token} had been issued"
    if entry.token > record.token + 1:
        return Code.SKIPPED_TOKEN, f"{claim}, though the next token was {record.token + 1}"
    return None


def _write_fault(record: _TaskRecord, entry: HistoryEntry) -> Fault | None:
    if entry.token != record.live:
        held = "no claim was live" if record.live is None else f"the live one was {record.live}"
        return Code.STALE_TOKEN, f"{entry.event} under token {entry.token} by {entry.worker_id}, but {held}"
    if entry.event in _ENDS_CLAIM and entry.worker_id != record.worker:
        return Code.FOREIGN_WORKER, f"{entry.event} by {entry.worker_id}, but {record.worker} held the task"
    return None


def _compare(records: _TaskRecords, tasks: Iterable[Task]) -> Iterator[Violation]:
    """Compare the tasks of the store with the end of their histories."""
    held: set[int] = set()
    for task in tasks:
        held.add(task.id)
        record = records.tasks.get(task.id)
        if record is not None:
            yield from (
                Violation(code, task.id, message, record.last_id) for code, message in _differences(task, record)
            )
        elif records.complete:
            yield Violation(Code.UNRECORDED_TASK, task.id, f"it is {task.state}, but has no history")
    for task_id, record in records.tasks.items():
        if not record.pruned and task_id not in held:
            yield Violation(
                Code.LOST_TASK, task_id, f"its history ends {record.state}, but the task does not exist", record.last_id
            )


def _differences(task: Task, record: _TaskRecord) -> Iterator[Fault]:
    if record.pruned:
        yield Code.LIFE_AFTER_PRUNING, f"it was pruned, but still exists, {task.state}"
    if task.state != record.state:
        yield Code.STATE_DIFFERS, f"it is {task.state}, but its history ends {record.state}"
    if task.token != record.token:
        yield Code.TOKEN_DIFFERS, f"its token is {task.token}, but its history issued {record.token}"


class _AcknowledgedWrites:
    """Responses that clients received, removed as the history confirms them. The same response twice is not a fault."""

    def __init__(self, acknowledged: Iterable[Acknowledged]) -> None:
        self.unconfirmed = dict.fromkeys(acknowledged)  # a set that keeps its order
        self.double_claims = list(_claims_acknowledged_twice(self.unconfirmed))
        self.completions = _completions_acknowledged_twice(self.unconfirmed)
        self.retried: dict[int, list[int]] = {task_id: [] for task_id in self.completions}

    def confirm(self, entry: HistoryEntry) -> None:
        """Remove the response that this entry confirms."""
        if self.unconfirmed:
            self.unconfirmed.pop(Acknowledged(entry.task_id, entry.token, entry.event, entry.worker_id), None)
        if entry.event == Event.RETRIED and entry.task_id in self.retried:
            self.retried[entry.task_id].append(entry.token)

    def broken(self, records: _TaskRecords) -> Iterator[Violation]:
        """The responses that the history contradicts."""
        yield from self.double_claims
        for task_id, tokens in self.completions.items():
            yield from _doubled(task_id, sorted(tokens), self.retried[task_id])
        for response in self.unconfirmed:
            record = records.tasks.get(response.task_id)
            if records.complete or (record is not None and response.token >= record.known_from):
                yield _unconfirmed(response)


def _claims_acknowledged_twice(acknowledged: Iterable[Acknowledged]) -> Iterator[Violation]:
    holders: dict[tuple[int, int], str | None] = {}
    for response in acknowledged:
        if response.event != Event.CLAIMED:
            continue
        first = holders.setdefault((response.task_id, response.token), response.worker_id)
        if first != response.worker_id:
            message = f"{first} and {response.worker_id} both received the claim under token {response.token}"
            yield Violation(Code.DOUBLE_CLAIM, response.task_id, message)


def _completions_acknowledged_twice(acknowledged: Iterable[Acknowledged]) -> dict[int, set[int]]:
    tokens: dict[int, set[int]] = {}
    for response in acknowledged:
        if response.event == Event.COMPLETED:
            tokens.setdefault(response.task_id, set()).add(response.token)
    return {task_id: several for task_id, several in tokens.items() if len(several) > 1}


def _doubled(task_id: int, tokens: list[int], retried: list[int]) -> Iterator[Violation]:
    for first, second in pairwise(tokens):
        # A retry records the highest token before it, so the retry lies between two claims if its token does.
        if not any(first <= token < second for token in retried):
            message = (
                f"acknowledged as completed under token {first} and under token {second}, without a retry in between"
            )
            yield Violation(Code.DOUBLED_COMPLETION, task_id, message)


def _unconfirmed(response: Acknowledged) -> Violation:
    client = "a client" if response.worker_id is None else response.worker_id
    message = f"{client} received {response.event} under token {response.token}, which is not in the history"
    return Violation(Code.NOT_RECORDED, response.task_id, message)
