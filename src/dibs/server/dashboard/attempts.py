"""The attempts of a task, told by its history: how long each waited, who ran it for how long, how it ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from dibs.model.history import HistoryEntry
from dibs.model.task import FINAL, Event, State

THIN = 0.5
"""Percent of the line that the shortest piece takes, so that it can be seen."""

DRAWN = 40
"""Attempts that are drawn, the last ones."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A time in one state. `kind`: the state, or how it ended for the time in which it ran."""

    kind: str
    began: datetime
    ended: datetime

    @property
    def seconds(self) -> float:
        """How long."""
        return max(0.0, (self.ended - self.began).total_seconds())


@dataclass(slots=True)
class Attempt:
    """One claim, and the wait before it; without a worker: the wait for the next."""

    number: int
    waits: list[Piece] = field(default_factory=list)
    worker: str | None = None
    token: int | None = None
    run: Piece | None = None
    outcome: str | None = None
    error: dict[str, Any] | None = None

    @property
    def waited(self) -> float:
        """Seconds before it was claimed, since it could be."""
        return sum(piece.seconds for piece in self.waits if piece.kind == State.PENDING)

    @property
    def pieces(self) -> list[Piece]:
        """All of it, in order."""
        return [*self.waits, *([self.run] if self.run else [])]


@dataclass(frozen=True, slots=True)
class Bar:
    """A piece on the line: `x` and `width` in percent of it."""

    kind: str
    x: str
    width: str
    words: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Line:
    """The attempts over the same stretch of time."""

    rows: list[tuple[Attempt, list[Bar]]]
    began: datetime
    seconds: float
    left_out: int

    @property
    def marks(self) -> list[tuple[str, float]]:
        """Places on the line (percent, seconds since its beginning)."""
        return [(f"{percent}%", self.seconds * percent / 100) for percent in (0, 25, 50, 75, 100)]


def attempts_of(history: Sequence[HistoryEntry], now: datetime) -> list[Attempt]:
    """The attempts in order; a task that waits has one more, which has not begun. Every claim has a token of its own,
    one more than the one before: so their numbers are right also where the beginning of the history is missing."""
    attempts = [Attempt(_first_number(history))]
    for entry, after in _pairs(history):
        if entry.event is Event.PRUNED:
            break
        ended = after.at if after else max(now, entry.at)
        _note(attempts, entry, ended, after)
    return attempts if attempts[-1].pieces else attempts[:-1]


def _first_number(history: Sequence[HistoryEntry]) -> int:
    entry = history[0] if history else None
    if entry is None or entry.to_state is State.CLAIMED:
        return entry.token if entry else 1
    return entry.token + 1


def _note(attempts: list[Attempt], entry: HistoryEntry, ended: datetime, after: HistoryEntry | None) -> None:
    attempt = attempts[-1]
    if entry.to_state is State.CLAIMED:
        if entry.event is Event.CLAIMED:
            attempt.worker, attempt.token = entry.worker_id, entry.token
        _note_run(attempt, entry, ended, after)
        if attempt.outcome is not None:
            attempts.append(Attempt(attempt.number + 1))
    elif entry.to_state not in FINAL:
        attempt.waits.append(Piece(entry.to_state, entry.at, ended))


def _note_run(attempt: Attempt, entry: HistoryEntry, ended: datetime, after: HistoryEntry | None) -> None:
    began = attempt.run.began if attempt.run else entry.at
    if after is None or after.to_state is State.CLAIMED:
        attempt.run = Piece(State.CLAIMED, began, ended)
        return
    attempt.run = Piece(_colour(after), began, ended)
    attempt.outcome = after.event.value
    attempt.error = after.detail if after.event is Event.FAILED else None


def _colour(end: HistoryEntry) -> str:
    """The state that says how an attempt ended."""
    kinds = {Event.COMPLETED: State.COMPLETED, Event.RELEASED: State.BLOCKED, Event.CANCELLED: State.CANCELLED}
    return kinds.get(end.event, State.FAILED)


def line_of(attempts: Sequence[Attempt]) -> Line | None:
    """The line on which the attempts are drawn: from the moment when it could first run."""
    shown = [attempt for attempt in attempts if attempt.pieces][-DRAWN:]
    if not any(attempt.run for attempt in shown):
        return None
    first = [piece for piece in shown[0].pieces if piece.kind not in (State.SCHEDULED, State.BLOCKED)]
    began = (first or shown[0].pieces)[0].began
    ended = max(piece.ended for attempt in shown for piece in attempt.pieces)
    length = max((ended - began).total_seconds(), 0.000_001)
    rows = [(attempt, [_bar(p, began, length) for p in attempt.pieces if p.ended > began]) for attempt in shown]
    return Line(rows, began, length, len(attempts) - len(shown))


def _bar(piece: Piece, began: datetime, length: float) -> Bar:
    start = max(piece.began - began, timedelta(0)).total_seconds()
    width = max(100 * (piece.ended - max(piece.began, began)).total_seconds() / length, THIN)
    x = min(100 * start / length, 100 - min(width, 100))
    return Bar(piece.kind, f"{x:.3f}%", f"{min(width, 100):.3f}%", _WORDS.get(piece.kind, "ran"), piece.seconds)


_WORDS: dict[str, str] = {
    State.SCHEDULED: "waited for its time",
    State.BLOCKED: "ran, released",
    State.PENDING: "waited for a worker",
}


def _pairs(history: Sequence[HistoryEntry]) -> Iterator[tuple[HistoryEntry, HistoryEntry | None]]:
    """Each entry, and the one after it."""
    yield from zip(history, [*history[1:], None], strict=False)
