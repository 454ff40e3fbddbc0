"""The attempts of a task, derived from its history: wait, worker, duration and outcome of each attempt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from dibs.model.history import HistoryEntry
from dibs.model.task import FINAL, Event, State

MIN_WIDTH = 0.5
"""Minimum width of a bar in percent, so that a short phase is visible."""

MAX_DRAWN = 40
"""Maximum number of attempts in the timeline; older ones are left out."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A period in one state. `kind`: the state, or for a run the state that shows its outcome."""

    kind: str
    began: datetime
    ended: datetime

    @property
    def seconds(self) -> float:
        """The duration in seconds."""
        return max(0.0, (self.ended - self.began).total_seconds())


@dataclass(slots=True)
class AttemptView:
    """One claim and the wait before it. Without a worker: the wait for the next claim."""

    number: int
    waits: list[Phase] = field(default_factory=list)
    worker: str | None = None
    token: int | None = None
    run: Phase | None = None
    outcome: str | None = None
    error: dict[str, Any] | None = None

    @property
    def waited(self) -> float:
        """Seconds from pending to claimed."""
        return sum(phase.seconds for phase in self.waits if phase.kind == State.PENDING)

    @property
    def phases(self) -> list[Phase]:
        """All phases, in order."""
        return [*self.waits, *([self.run] if self.run else [])]


@dataclass(frozen=True, slots=True)
class PhaseBar:
    """A phase in the timeline. `x` and `width` are percentages of its width."""

    kind: str
    x: str
    width: str
    label: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """The attempts as bars over a common time axis."""

    rows: list[tuple[AttemptView, list[PhaseBar]]]
    began: datetime
    seconds: float
    left_out: int

    @property
    def marks(self) -> list[tuple[str, float]]:
        """The marks of the time axis: position in percent, seconds since the start."""
        return [(f"{percent}%", self.seconds * percent / 100) for percent in (0, 25, 50, 75, 100)]


def attempts_of(history: Sequence[HistoryEntry], now: datetime) -> list[AttemptView]:
    """Return the attempts in order, plus one that has not started for a waiting task.

    The token of a claim is its number, so attempts are numbered correctly when the oldest history was pruned.
    """
    attempts = [AttemptView(_first_number(history))]
    for entry, after in _pairs(history):
        if entry.event is Event.PRUNED:
            break
        ended = after.at if after else max(now, entry.at)
        _add_entry(attempts, entry, ended, after)
    return attempts if attempts[-1].phases else attempts[:-1]


def _first_number(history: Sequence[HistoryEntry]) -> int:
    entry = history[0] if history else None
    if entry is None or entry.to_state is State.CLAIMED:
        return entry.token if entry else 1
    return entry.token + 1


def _add_entry(attempts: list[AttemptView], entry: HistoryEntry, ended: datetime, after: HistoryEntry | None) -> None:
    attempt = attempts[-1]
    if entry.to_state is State.CLAIMED:
        if entry.event is Event.CLAIMED:
            attempt.worker, attempt.token = entry.worker_id, entry.token
        _add_run(attempt, entry, ended, after)
        if attempt.outcome is not None:
            attempts.append(AttemptView(attempt.number + 1))
    elif entry.to_state not in FINAL:
        attempt.waits.append(Phase(entry.to_state, entry.at, ended))


def _add_run(attempt: AttemptView, entry: HistoryEntry, ended: datetime, after: HistoryEntry | None) -> None:
    began = attempt.run.began if attempt.run else entry.at
    if after is None or after.to_state is State.CLAIMED:
        attempt.run = Phase(State.CLAIMED, began, ended)
        return
    attempt.run = Phase(_outcome_state(after), began, ended)
    attempt.outcome = after.event.value
    attempt.error = after.detail if after.event is Event.FAILED else None


def _outcome_state(end: HistoryEntry) -> str:
    """Return the state whose colour shows how the attempt ended."""
    kinds = {Event.COMPLETED: State.COMPLETED, Event.RELEASED: State.BLOCKED, Event.CANCELLED: State.CANCELLED}
    return kinds.get(end.event, State.FAILED)


def timeline_of(attempts: Sequence[AttemptView]) -> Timeline | None:
    """Return the timeline of the attempts, from the time when the task first became pending."""
    drawn = [attempt for attempt in attempts if attempt.phases][-MAX_DRAWN:]
    if not any(attempt.run for attempt in drawn):
        return None
    first = [phase for phase in drawn[0].phases if phase.kind not in (State.SCHEDULED, State.BLOCKED)]
    began = (first or drawn[0].phases)[0].began
    ended = max(phase.ended for attempt in drawn for phase in attempt.phases)
    length = max((ended - began).total_seconds(), 0.000_001)
    rows = [(attempt, [_bar(p, began, length) for p in attempt.phases if p.ended > began]) for attempt in drawn]
    return Timeline(rows, began, length, len(attempts) - len(drawn))


def _bar(phase: Phase, began: datetime, length: float) -> PhaseBar:
    start = max(phase.began - began, timedelta(0)).total_seconds()
    width = max(100 * (phase.ended - max(phase.began, began)).total_seconds() / length, MIN_WIDTH)
    x = min(100 * start / length, 100 - min(width, 100))
    return PhaseBar(
        phase.kind, f"{x:.3f}%", f"{min(width, 100):.3f}%", _LABELS.get(phase.kind, "claimed for"), phase.seconds
    )


_LABELS: dict[str, str] = {
    State.SCHEDULED: "scheduled for",
    State.BLOCKED: "claimed, then released, for",
    State.PENDING: "pending for",
}


def _pairs(history: Sequence[HistoryEntry]) -> Iterator[tuple[HistoryEntry, HistoryEntry | None]]:
    """Yield each entry with its successor."""
    yield from zip(history, [*history[1:], None], strict=False)
