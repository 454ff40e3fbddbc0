"""Check limits and fair queues in a recorded history: no limit was exceeded, no permit was lost, no group was starved.

A history has the claims, and not the limits of the tasks; `LimitsRecord` has what it lacks. The events are kept in
memory until the tasks have been read, because only the tasks say which claims count towards which limit.

The rules are computed here from the documented promises, not from the store's own counters: live claims are counted
from the entries, rates are checked for every interval between two claims, and the turns of a fair queue are followed
by start-time fair queueing.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import NamedTuple

import msgspec

from dibs.model.claim import MAX_BATCH
from dibs.model.history import HistoryEntry
from dibs.model.limit import PER_GROUP, NewLimit, QueueSettings, TypeSettings
from dibs.model.task import Event, State, Task
from dibs.observe.violations import Code, Violation

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LimitPeriod(msgspec.Struct, frozen=True):
    """The time in which a limit had these values. `values`: None while the limit was removed.

    A claim between `since` and `until` may have followed these values. Where the moment of a change is not known
    exactly, let both periods contain the uncertain time: a claim is a violation only if it breaks the values of every
    period that contains the claim. A claim in no period is not checked."""

    name: str
    values: NewLimit | None
    since: datetime | None = None
    until: datetime | None = None

    def contains(self, at: datetime) -> bool:
        """True if the values may have been in effect at this time."""
        return (self.since is None or self.since <= at) and (self.until is None or at <= self.until)


class LimitsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the check of limits needs beside a history and its tasks. Settings of queues and types, and weights of
    groups, must not have changed while the tasks were claimed.

    `limits`: the values of each limit, the last period last. `queues`, `types`: the settings that name limits or make a
    queue fair. `weights`: of groups, by queue and group, where they are not 1. `used`: the live claims that the store
    counts for each limit at the end, by name and group; the group is None for a limit that holds for all tasks
    together, empty for tasks without a group. `drained`: True if a claim without filters found nothing at the end.
    `batch`: how many tasks one claim takes at most; a group of a fair queue may be late by twice as many
    turns. `slack`: seconds between the time at which a claim is measured against a rate and the time in its entry."""

    limits: Sequence[LimitPeriod] = ()
    queues: Mapping[str, QueueSettings] = {}
    types: Mapping[str, TypeSettings] = {}
    weights: Mapping[tuple[str, str | None], float] = {}
    used: Mapping[tuple[str, str | None], int] | None = None
    drained: bool = False
    batch: int = MAX_BATCH
    slack: float = 1.0


CounterKey = tuple[str, str | None]
"""A limit, and a group of it: None for all groups together, empty for tasks without a group."""


class _Kind(NamedTuple):
    """What tasks of a queue have in common if they differ in nothing but their groups and priorities."""

    queue: str
    type: str
    limits: tuple[str, ...]


class _Known(NamedTuple):
    """What the check knows about a task."""

    kind: _Kind
    group: str | None
    priority: int
    may_expire: bool

    @property
    def counters(self) -> Iterator[CounterKey]:
        """All that a claim of the task may count towards."""
        for name in self.kind.limits:
            yield name, None
            yield name, self.group or ""


class _Event(NamedTuple):
    """An entry of the history that claims a task, ends a claim, or lets a task wait."""

    id: int
    task_id: int
    before: State | None
    after: State
    at: datetime


class LimitsCheck:
    """The check of one history: first all entries, then all tasks, then `violations`."""

    def __init__(self, record: LimitsRecord, *, complete: bool) -> None:
        self._record = record
        self._complete = complete
        self._events: list[_Event] = []
        self._changed: dict[int, int] = {}
        self._tasks: dict[int, _Known] = {}
        self._pending: list[int] = []

    def read(self, entries: Iterable[HistoryEntry]) -> Iterator[HistoryEntry]:
        """The entries, kept on the way."""
        for entry in entries:
            if entry.event in (Event.CHANGED, Event.REPLACED):
                self._changed[entry.task_id] = entry.id
            elif entry.from_state != entry.to_state and _KEPT & {entry.from_state, entry.to_state}:
                self._events.append(_Event(entry.id, entry.task_id, entry.from_state, entry.to_state, entry.at))
            yield entry

    def hold(self, tasks: Iterable[Task]) -> Iterator[Task]:
        """The tasks, kept on the way if a limit or a fair queue applies to them."""
        for task in tasks:
            kind = _Kind(task.queue, task.type, self._limits_of(task))
            if kind.limits or self._is_fair(task.queue):
                self._tasks[task.id] = _Known(kind, task.group, task.priority, task.expires_at is not None)
                if task.state is State.PENDING:
                    self._pending.append(task.id)
            yield task

    def violations(self) -> Iterator[Violation]:
        """All violations, those of claims in the order of the history."""
        counters, queues = _Counters(self._record), _FairQueues(self._record)
        for (claimed, _), batch in groupby(self._events, key=lambda event: (event.after is State.CLAIMED, event.at)):
            for event in batch:
                known = self._tasks.get(event.task_id)
                if known is None or event.id < self._changed.get(event.task_id, 0):
                    continue  # pruned, or changed afterwards: what it counted towards is not known
                queues.enter(event, known)
                yield from counters.enter(event, known)
            if claimed:
                yield from queues.judge()
        if self._complete and self._record.used is not None:
            yield from counters.compare(self._record.used)
        if self._record.drained:
            yield from counters.stranded((task_id, self._tasks[task_id]) for task_id in self._pending)

    def _limits_of(self, task: Task) -> tuple[str, ...]:
        """The limits that the task names, and those of its type and queue."""
        names = list(task.limits)
        if (of_type := self._record.types.get(task.type)) is not None:
            names += of_type.limits
        if (of_queue := self._record.queues.get(task.queue)) is not None:
            names += of_queue.limits
        return tuple(sorted(set(names)))

    def _is_fair(self, queue: str) -> bool:
        return (settings := self._record.queues.get(queue)) is not None and settings.fair


_KEPT = frozenset({State.PENDING, State.CLAIMED})


class _Counters:
    """The live claims of every limit, and of every group of every limit, up to an entry."""

    def __init__(self, record: LimitsRecord) -> None:
        self._periods: dict[str, list[LimitPeriod]] = defaultdict(list)
        for period in record.limits:
            self._periods[period.name].append(period)
        self._slack = record.slack
        self._live: Counter[CounterKey] = Counter()
        self._held: dict[int, _Known] = {}
        self._rates: dict[tuple[CounterKey, int], _Rate] = {}

    def enter(self, event: _Event, known: _Known) -> Iterator[Violation]:
        """Count a claim or its end; a claim is checked."""
        if event.before is State.CLAIMED:
            self._end(event.task_id)
        if event.after is State.CLAIMED:
            yield from self._claim(event, known)

    def _end(self, task_id: int) -> None:
        known = self._held.pop(task_id, None)
        if known is not None:
            self._live.subtract(known.counters)

    def _claim(self, event: _Event, known: _Known) -> Iterator[Violation]:
        self._end(event.task_id)  # a double claim, which the check of tokens reports
        self._held[event.task_id] = known
        self._live.update(known.counters)
        for name in known.kind.limits:
            periods = [period for period in self._periods[name] if period.contains(event.at)]
            yield from self._judge_count(event, periods, known.group)
            yield from self._judge_rate(event, periods, known.group)

    def _judge_count(self, event: _Event, periods: list[LimitPeriod], group: str | None) -> Iterator[Violation]:
        if not periods or any(self._room(period, group) >= 0 for period in periods):
            return
        widest = max(periods, key=lambda period: self._room(period, group))
        assert widest.values is not None
        key = _key(widest.values, group)
        message = f"claim number {self._live[key]} at the same time of {_called(key)}, whose maximum is"
        yield Violation(Code.LIMIT_EXCEEDED, event.task_id, f"{message} {widest.values.max}", event.id)

    def _room(self, period: LimitPeriod, group: str | None) -> float:
        """How many more claims the maximum allows; negative if there are too many."""
        if period.values is None or period.values.max is None:
            return float("inf")
        return period.values.max - self._live[_key(period.values, group)]

    def _judge_rate(self, event: _Event, periods: list[LimitPeriod], group: str | None) -> Iterator[Violation]:
        if len(periods) != 1 or periods[0].values is None or periods[0].values.starts is None:
            return  # near a change of the values it is not known which of them the claim followed
        values = periods[0].values
        key = _key(values, group)
        rate = self._rates.setdefault((key, id(periods[0])), _Rate(values, self._slack))
        if (found := rate.start(event.at)) is not None:
            message = f"{found[0]} claims of {_called(key)} within {found[1]:.3f} s, but the rate is {values.rate}"
            yield Violation(Code.RATE_EXCEEDED, event.task_id, f"{message} with a burst of {values.burst}", event.id)

    def compare(self, used: Mapping[CounterKey, int]) -> Iterator[Violation]:
        """Compare the live claims with those that the store counts."""
        for key, count in used.items():
            live = self._live[key]
            if count != live:
                code = Code.PERMIT_LOST if count > live else Code.PERMIT_NOT_COUNTED
                message = f"the store counts {count} live claims of {_called(key)}, but the history has {live}"
                yield Violation(code, None, message)

    def stranded(self, waiting: Iterable[tuple[int, _Known]]) -> Iterator[Violation]:
        """The tasks that wait though each of their limits has room; not those with a rate, which time opens."""
        for task_id, known in waiting:
            last = [self._periods[name][-1] for name in known.kind.limits if self._periods[name]]
            rated = any(period.values is not None and period.values.rate is not None for period in last)
            if not rated and all(self._room(period, known.group) > 0 for period in last):
                message = f"it waits, though its limits have room: {', '.join(known.kind.limits) or 'none'}"
                yield Violation(Code.STRANDED_TASK, task_id, message)


def _key(values: NewLimit, group: str | None) -> CounterKey:
    """What a claim of this group counts towards."""
    return values.name, (group or "") if values.per == PER_GROUP else None


def _called(key: CounterKey) -> str:
    return f"the limit {key[0]!r}" if key[1] is None else f"the limit {key[0]!r} for the group {key[1]!r}"


class _Rate:
    """The starts under one rate. The level of a start is its number - rate x time: an interval has too many starts if
    the level at its end is more than `burst - 1` above that at its beginning. So the lowest level decides for all
    intervals."""

    def __init__(self, values: NewLimit, slack: float) -> None:
        assert values.starts is not None
        self._per_second = values.starts.requests / values.starts.period
        self._allowed = values.burst - 1 + self._per_second * slack + 1e-6
        self._slack = timedelta(seconds=slack)
        self._number = 0
        self._first = self._last = EPOCH
        self._lowest: tuple[float, int, datetime] | None = None

    def start(self, at: datetime) -> tuple[int, float] | None:
        """Add a start. Returns the number of starts and the seconds of an interval with too many."""
        self._number += 1
        if self._lowest is None or at < self._last - self._slack:  # the clock was set back: intervals begin anew
            self._first, self._lowest = at, None
        self._last = at
        level = self._number - self._per_second * (at - self._first).total_seconds()
        if self._lowest is None or level < self._lowest[0]:
            self._lowest = level, self._number, at
        if level - self._lowest[0] <= self._allowed:
            return None
        found = self._number - self._lowest[1] + 1, (at - self._lowest[2]).total_seconds()
        self._lowest = level, self._number, at  # reported once
        return found


@dataclass(slots=True)
class _FairQueue:
    """The turns of the groups of one fair queue. `turn`: that of the group that was served last."""

    lightest: float = 1.0
    turn: float = 0.0
    turns: dict[str | None, float] = field(default_factory=dict)
    waiting: Counter[tuple[_Kind, str | None]] = field(default_factory=Counter)
    lanes: dict[_Kind, dict[int, _Lane]] = field(default_factory=lambda: defaultdict(dict))


@dataclass(slots=True)
class _Lane:
    """The waiting tasks of one kind and priority. `since`: the turn of the queue when a group began to wait here."""

    waiting: Counter[str | None] = field(default_factory=Counter)
    since: dict[str | None, float] = field(default_factory=dict)
    heap: list[tuple[float, str, str | None]] = field(default_factory=list)

    def begin(self, group: str | None, place: float, since: float) -> None:
        """The group has a task here, and had none."""
        self.since[group] = since
        heapq.heappush(self.heap, (max(place, since), group or "", group))

    def earliest(self, turns: Mapping[str | None, float]) -> tuple[float, str | None] | None:
        """The waiting group with the earliest turn, and that turn."""
        while self.heap:
            place, text, group = self.heap[0]
            if not self.waiting[group]:
                heapq.heappop(self.heap)
            elif (now := max(turns[group], self.since[group])) > place:
                heapq.heapreplace(self.heap, (now, text, group))
            else:
                return place, group
        return None


class _FairQueues:
    """Follows the turns in all fair queues.

    A group is starved if a group with a much later turn is served while it waits. Two groups are compared only by tasks
    that differ in nothing but the group: with other limits or of another type a task may wait for other reasons. Tasks
    with a limit per group are not compared at all, because such a limit stops one group alone."""

    def __init__(self, record: LimitsRecord) -> None:
        self._record = record
        self._per_group = {
            period.name for period in record.limits if period.values is not None and period.values.per is not None
        }
        self._queues: dict[str, _FairQueue] = {}
        for name, settings in record.queues.items():
            if settings.fair:
                weights = [weight for (queue, _), weight in record.weights.items() if queue == name]
                self._queues[name] = _FairQueue(lightest=min([1.0, *weights]))
        self._waiting: dict[int, _Known] = {}
        self._served: list[tuple[_Event, _Known, float]] = []
        """The claims since the last `judge`, each with the turn of its group before it."""

    def enter(self, event: _Event, known: _Known) -> None:
        """Let the task wait, or end that; a claim moves the turn of its group."""
        queue = self._queues.get(known.kind.queue)
        if queue is None:
            return
        if event.before is State.PENDING:
            self._leave(event.task_id)
        if event.after is State.PENDING and not known.may_expire:
            self._wait(event.task_id, known, queue)
        if event.after is State.CLAIMED:
            self._claim(event, known, queue)

    def _wait(self, task_id: int, known: _Known, queue: _FairQueue) -> None:
        self._waiting[task_id] = known
        if not queue.waiting[known.kind, known.group]:  # no credit for the time in which it had no such task
            queue.turns[known.group] = max(queue.turns.get(known.group, 0.0), queue.turn)
        queue.waiting[known.kind, known.group] += 1
        lane = queue.lanes[known.kind].setdefault(known.priority, _Lane())
        lane.waiting[known.group] += 1
        if lane.waiting[known.group] == 1:
            lane.begin(known.group, queue.turns[known.group], queue.turn)

    def _leave(self, task_id: int) -> None:
        known = self._waiting.pop(task_id, None)
        if known is not None:
            queue = self._queues[known.kind.queue]
            queue.waiting[known.kind, known.group] -= 1
            queue.lanes[known.kind][known.priority].waiting[known.group] -= 1

    def _claim(self, event: _Event, known: _Known, queue: _FairQueue) -> None:
        turn = queue.turns.get(known.group, queue.turn)
        queue.turn = max(queue.turn, turn)
        queue.turns[known.group] = turn + 1 / self._record.weights.get((known.kind.queue, known.group), 1.0)
        if not self._per_group.intersection(known.kind.limits):
            self._served.append((event, known, turn))

    def judge(self) -> Iterator[Violation]:
        """Check that no group that waits after a claim was served too late. This is judged after all entries of a
        claim, because they are not in the order of the turns."""
        for event, known, turn in self._served:
            queue = self._queues[known.kind.queue]
            # A claim in flight when the group begins to wait does not see it, and the next one takes a batch at once.
            tolerated = (2 * self._record.batch + 1) / queue.lightest
            for priority, lane in queue.lanes[known.kind].items():
                first = lane.earliest(queue.turns) if priority >= known.priority else None
                if first is not None and turn - first[0] > tolerated:
                    lane.since[first[1]] = turn  # reported once
                    yield _starved(event, known, first[1], turn - first[0])
        self._served.clear()


def _starved(event: _Event, known: _Known, group: str | None, turns: float) -> Violation:
    message = f"the group {known.group!r} of {known.kind.queue!r} was served {turns:.0f} turns ahead of"
    return Violation(Code.STARVED_GROUP, event.task_id, f"{message} {group!r}, which waits", event.id)
