"""Check a recorded history offline: each claim went to one worker, no stale write was honoured, no task was lost."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import BinaryIO

import msgspec

from dibs.errors import InvalidValue
from dibs.model.history import HistoryEntry
from dibs.model.task import FINAL, MOVES, Event, State, Task

SHOWN = 20
"""Violations that a printed report lists; the list in the report itself has all of them."""


class Code(StrEnum):
    """Which rule was broken."""

    NO_BEGINNING = "no_beginning"  # the first entry is not `enqueued`
    OUT_OF_ORDER = "out_of_order"  # the ids of a task's entries do not grow
    MOVE_NOT_ALLOWED = "move_not_allowed"  # not in MOVES
    BROKEN_CHAIN = "broken_chain"  # it leaves another state than the entry before reached
    LIFE_AFTER_END = "life_after_end"
    LIFE_AFTER_PRUNING = "life_after_pruning"
    DOUBLE_CLAIM = "double_claim"  # claimed while claimed, or a token issued twice
    SKIPPED_TOKEN = "skipped_token"
    STALE_TOKEN = "stale_token_honoured"
    FOREIGN_WORKER = "foreign_worker_honoured"
    WRONG_TOKEN = "wrong_token"  # nobody's write, and still not under the task's own token
    LOST_TASK = "lost_task"
    UNRECORDED_TASK = "unrecorded_task"
    STATE_DIFFERS = "state_differs"  # the store holds another state than the history ends in
    TOKEN_DIFFERS = "token_differs"
    NOT_RECORDED = "acknowledged_not_recorded"
    DOUBLED_COMPLETION = "doubled_completion"


class Violation(msgspec.Struct, frozen=True):
    """One broken rule, and the entry that broke it (None where no single entry did)."""

    code: Code
    task_id: int
    message: str
    entry_id: int | None = None

    def __str__(self) -> str:
        place = "" if self.entry_id is None else f", entry {self.entry_id}"
        return f"task {self.task_id}{place}: {self.code}: {self.message}"


class Acknowledged(msgspec.Struct, frozen=True):
    """Something a client was told had succeeded.

    `event` is what the answer said: enqueued (token 0, no worker), claimed, completed, failed or released; an
    outcome that was answered with the state `cancelled`, because somebody had asked for that, is `cancelled`.
    """

    task_id: int
    token: int
    event: Event
    worker_id: str | None = None


class Report(msgspec.Struct, frozen=True):
    """What was checked, and everything that was wrong with it."""

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
        yield from (f"  {violation}" for violation in self.violations[:SHOWN])
        if len(self.violations) > SHOWN:
            yield f"  … and {len(self.violations) - SHOWN:,} more"


def verify(
    entries: Iterable[HistoryEntry],
    *,
    tasks: Iterable[Task] | None = None,
    acknowledged: Iterable[Acknowledged] | None = None,
    complete: bool = True,
) -> Report:
    """Check a history, read once, in the order of its ids.

    `tasks`: all that the store holds after the last entry. `acknowledged`: what clients were told. `complete`: False
    when the oldest history has been pruned, so that a task may begin in the middle; nothing is then held against it
    that the missing part could explain.
    """
    told = _Told(acknowledged or ())
    books = _Books(told, complete)
    violations = [violation for entry in entries for violation in books.enter(entry)]
    if tasks is not None:
        violations += _compare(books, tasks)
    violations += told.broken(books)
    count = books.count
    return Report(count.total(), len(books.lives), count[Event.CLAIMED], count[Event.COMPLETED], violations)


def dump(entries: Iterable[HistoryEntry], path: str | PathLike[str]) -> int:
    """Write a recording, one entry a line as JSON; how many."""
    encoder, count = msgspec.json.Encoder(), 0
    with create_for_owner(path) as file:
        for entry in entries:
            file.write(encoder.encode(entry) + b"\n")
            count += 1
    return count


def create_for_owner(path: str | PathLike[str]) -> BinaryIO:
    """A file to write a recording to, which nobody but its owner may read: the history has the errors of all tasks."""
    return open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600))


def load(path: str | PathLike[str]) -> Iterator[HistoryEntry]:
    """Read a recording entry by entry; a line that is none raises InvalidValue when it is reached."""
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
    return InvalidValue(message, hint="A recording cut short by a crash ends in half a line: remove that line.")


@dataclass(slots=True)
class _Life:
    """All that is remembered of a task while its history is read: as much after a thousand entries as after one."""

    state: State | None = None
    token: int = 0  # the highest issued
    live: int | None = None  # the token of the claim that holds now
    worker: str | None = None
    pruned: bool = False
    last_id: int = -1
    known_from: int = 0  # everything done under this token and later ones is in the recording


Fault = tuple[Code, str]

_AFTER_END = frozenset({Event.RETRIED, Event.IGNORED, Event.DISCARDED, Event.RESTORED, Event.PRUNED})
_ENDS_CLAIM = frozenset({Event.COMPLETED, Event.FAILED, Event.RELEASED, Event.CANCELLED})
_FENCED = _ENDS_CLAIM | {Event.RECOVERED, Event.CANCEL_REQUESTED}


class _Books:
    """The life of every task, as far as the history has been read."""

    def __init__(self, told: _Told, complete: bool) -> None:
        self.told = told
        self.complete = complete
        self.lives: dict[int, _Life] = {}
        self.count: Counter[Event] = Counter()

    def enter(self, entry: HistoryEntry) -> list[Violation]:
        """Judge the entry by the life it belongs to, then believe it: one fault is not to be charged twice."""
        life = self.lives.get(entry.task_id)
        faults: list[Fault] = []
        if life is None:
            life = self.lives[entry.task_id] = _begin(entry)
            faults += self._judge_beginning(entry)
        faults += _judge(life, entry)
        _advance(life, entry)
        self.count[entry.event] += 1
        self.told.tick_off(entry)
        return [Violation(code, entry.task_id, message, entry.id) for code, message in faults]

    def _judge_beginning(self, entry: HistoryEntry) -> list[Fault]:
        if not self.complete or entry.event == Event.ENQUEUED:
            return []
        return [(Code.NO_BEGINNING, f"the history begins with {entry.event}")]


def _begin(entry: HistoryEntry) -> _Life:
    """The life before its first entry: nothing, or, where the beginning is missing, what the entry implies."""
    if entry.event == Event.ENQUEUED:
        return _Life()
    claims = entry.event == Event.CLAIMED
    return _Life(
        state=entry.from_state,
        token=entry.token - claims,
        live=entry.token if entry.from_state == State.CLAIMED else None,
        worker=entry.worker_id,
        known_from=entry.token if claims else entry.token + 1,
    )


def _advance(life: _Life, entry: HistoryEntry) -> None:
    life.last_id = max(life.last_id, entry.id)
    life.state = entry.to_state
    if entry.event == Event.CLAIMED:
        life.token = max(life.token, entry.token)
        life.live, life.worker = entry.token, entry.worker_id
    elif entry.to_state != State.CLAIMED:
        life.live = life.worker = None
    if entry.event == Event.PRUNED:
        life.pruned = True


def _judge(life: _Life, entry: HistoryEntry) -> Iterator[Fault]:
    held, placed = _misheld(life, entry), _misplaced(life, entry)
    if held:
        yield held
    # A second claim leaves `pending`, a late write leaves `claimed`: that chain is broken by the same fault.
    echo = held and held[0] in (Code.DOUBLE_CLAIM, Code.STALE_TOKEN) and placed and placed[0] is Code.BROKEN_CHAIN
    if placed and not echo:
        yield placed


def _misplaced(life: _Life, entry: HistoryEntry) -> Fault | None:
    """What is wrong with the place of the entry in its task's life."""
    if entry.id <= life.last_id:
        return Code.OUT_OF_ORDER, f"{entry.event} comes after entry {life.last_id}"
    if life.pruned:
        return Code.LIFE_AFTER_PRUNING, f"{entry.event} after the task was pruned"
    if life.state in FINAL and entry.event not in _AFTER_END:
        return Code.LIFE_AFTER_END, f"{entry.event} after the task was {life.state}"
    if not _allowed(entry):
        return Code.MOVE_NOT_ALLOWED, f"{entry.event} cannot lead from {entry.from_state} to {entry.to_state}"
    if entry.from_state != life.state:
        return Code.BROKEN_CHAIN, f"{entry.event} leaves {entry.from_state}, but the task was {life.state}"
    return None


def _allowed(entry: HistoryEntry) -> bool:
    leaves, reaches = MOVES[entry.event]
    if entry.event == Event.PRUNED and entry.from_state != entry.to_state:
        return False  # the table cannot say it: pruning ends a life, it does not rewrite how it ended
    return entry.from_state in leaves and entry.to_state in reaches


def _misheld(life: _Life, entry: HistoryEntry) -> Fault | None:
    """What is wrong with the token of the entry, or with its worker."""
    if entry.event == Event.CLAIMED:
        return _misclaimed(life, entry)
    if entry.event in _FENCED and (entry.event != Event.CANCELLED or entry.from_state == State.CLAIMED):
        return _miswritten(life, entry)
    if entry.token != life.token:
        return Code.WRONG_TOKEN, f"{entry.event} is noted under token {entry.token}, the task's is {life.token}"
    return None


def _misclaimed(life: _Life, entry: HistoryEntry) -> Fault | None:
    claim = f"claimed by {entry.worker_id} under token {entry.token}"
    if life.live is not None:
        return Code.DOUBLE_CLAIM, f"{claim} while {life.worker} held it under token {life.live}"
    if entry.token <= life.token:
        return Code.DOUBLE_CLAIM, f"{claim}, though token {life.token} had been issued"
    if entry.token > life.token + 1:
        return Code.SKIPPED_TOKEN, f"{claim}, though the next token was {life.token + 1}"
    return None


def _miswritten(life: _Life, entry: HistoryEntry) -> Fault | None:
    if entry.token != life.live:
        held = "no claim was live" if life.live is None else f"the live one was {life.live}"
        return Code.STALE_TOKEN, f"{entry.event} under token {entry.token} by {entry.worker_id}, but {held}"
    if entry.event in _ENDS_CLAIM and entry.worker_id != life.worker:
        return Code.FOREIGN_WORKER, f"{entry.event} by {entry.worker_id}, but {life.worker} held the task"
    return None


def _compare(books: _Books, tasks: Iterable[Task]) -> Iterator[Violation]:
    """Conservation: what the store holds is what the history left there, no less and no more."""
    held: set[int] = set()
    for task in tasks:
        held.add(task.id)
        life = books.lives.get(task.id)
        if life is not None:
            yield from (Violation(code, task.id, message, life.last_id) for code, message in _differences(task, life))
        elif books.complete:
            yield Violation(Code.UNRECORDED_TASK, task.id, f"it is {task.state}, but has no history")
    for task_id, life in books.lives.items():
        if not life.pruned and task_id not in held:
            yield Violation(Code.LOST_TASK, task_id, f"its history ends {life.state}, but it is gone", life.last_id)


def _differences(task: Task, life: _Life) -> Iterator[Fault]:
    if life.pruned:
        yield Code.LIFE_AFTER_PRUNING, f"it was pruned, but is still there, {task.state}"
    if task.state != life.state:
        yield Code.STATE_DIFFERS, f"it is {task.state}, but its history ends {life.state}"
    if task.token != life.token:
        yield Code.TOKEN_DIFFERS, f"its token is {task.token}, but its history issued {life.token}"


class _Told:
    """What clients were told, ticked off as the history confirms it. To be told the same twice is no harm."""

    def __init__(self, acknowledged: Iterable[Acknowledged]) -> None:
        self.unconfirmed = dict.fromkeys(acknowledged)  # a set that keeps its order
        self.double_claims = list(_claims_told_twice(self.unconfirmed))
        self.completions = _completions_told_twice(self.unconfirmed)
        self.retried: dict[int, list[int]] = {task_id: [] for task_id in self.completions}

    def tick_off(self, entry: HistoryEntry) -> None:
        """The history says this happened."""
        if self.unconfirmed:
            self.unconfirmed.pop(Acknowledged(entry.task_id, entry.token, entry.event, entry.worker_id), None)
        if entry.event == Event.RETRIED and entry.task_id in self.retried:
            self.retried[entry.task_id].append(entry.token)

    def broken(self, books: _Books) -> Iterator[Violation]:
        """What clients were told that cannot have been so."""
        yield from self.double_claims
        for task_id, tokens in self.completions.items():
            yield from _doubled(task_id, sorted(tokens), self.retried[task_id])
        for told in self.unconfirmed:
            life = books.lives.get(told.task_id)
            if books.complete or (life is not None and told.token >= life.known_from):
                yield _unconfirmed(told)


def _claims_told_twice(acknowledged: Iterable[Acknowledged]) -> Iterator[Violation]:
    holders: dict[tuple[int, int], str | None] = {}
    for told in acknowledged:
        if told.event != Event.CLAIMED:
            continue
        first = holders.setdefault((told.task_id, told.token), told.worker_id)
        if first != told.worker_id:
            message = f"{first} and {told.worker_id} were both told that they hold it under token {told.token}"
            yield Violation(Code.DOUBLE_CLAIM, told.task_id, message)


def _completions_told_twice(acknowledged: Iterable[Acknowledged]) -> dict[int, set[int]]:
    tokens: dict[int, set[int]] = {}
    for told in acknowledged:
        if told.event == Event.COMPLETED:
            tokens.setdefault(told.task_id, set()).add(told.token)
    return {task_id: several for task_id, several in tokens.items() if len(several) > 1}


def _doubled(task_id: int, tokens: list[int], retried: list[int]) -> Iterator[Violation]:
    for first, second in pairwise(tokens):
        # A retry notes the highest token issued before it, so it lies between two claims when its token does.
        if not any(first <= token < second for token in retried):
            message = f"told completed under token {first} and again under token {second}, not retried in between"
            yield Violation(Code.DOUBLED_COMPLETION, task_id, message)


def _unconfirmed(told: Acknowledged) -> Violation:
    who = "a client" if told.worker_id is None else told.worker_id
    message = f"{who} was told {told.event} under token {told.token}, which the history does not say"
    return Violation(Code.NOT_RECORDED, told.task_id, message)
