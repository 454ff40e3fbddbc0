"""Admission: how a claim takes tasks with limits, and tasks of fair queues.

The waiting tasks stand in backlogs. A backlog is open (its tasks may be taken), closed on one full counter, or empty.
The claim holds the lock of dibs_flow from the beginning to its commit, so that no other claim changes counters or
backlogs meanwhile; tasks that other transactions have locked are skipped. The claim

1. subtracts from the counters the tasks that have ended a claim since (`collect`);
2. registers tasks that wait since (`register`), and opens the first backlogs that wait for a counter with room
   (`open`);
3. takes tasks of open backlogs, together with plain tasks, in the requested order, in one or more laps.

A lap reads the first open backlogs. Those that meet a full counter close on it. If another counter of theirs has room,
the next backlog that waits for that counter is opened instead: no room stays unused while a task waits for it. A lap
ends where its order might become wrong, because backlogs were left out or others have to be opened; the next lap goes
on.

Backlogs are opened by priority and age, the order of their index. A claim in another order also opens the backlogs that
come first in its own order (`_open_first`), and so does a claim that demands a number of attempts left, which may not
take the first task of a backlog. Such a claim may open more backlogs than a counter has room for: they close again when
a claim meets the full counter.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter as CountOf
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, Any

import msgspec

from dibs.errors import LimitReached
from dibs.json_values import decode, encode
from dibs.model.claim import ClaimRequest, Filters, Order
from dibs.store.operation import HISTORY_COLUMNS, BeginTransaction, Row, Rows, Statement, Statements, limited
from dibs.store.operations.flow import (
    BacklogKey,
    FlowRules,
    LimitCounter,
    RulesCache,
    group_of_counter,
    limit_of,
)
from dibs.store.operations.limits import lock_flow
from dibs.store.operations.rows import LIMITED

if TYPE_CHECKING:
    from dibs.store.contract import Observer
    from dibs.store.operations.dialect import Dialect, Holders

BATCH = 1000
"""Tasks or signals that one statement collects or registers."""

BATCHES = 5
"""Batches of each kind that one claim works off; the next claims go on."""

EXTRA_BACKLOGS = 16
"""Open backlogs of each queue and type that a lap reads, beyond the requested number of tasks."""

ALL_ORDERS_REACH = 512
"""The same for orders that are not those of the index of backlogs, which need all open backlogs: so many are enough for
an exact order."""

CORRECTIONS = 8
"""How often one claim puts backlogs in their places whose first task was cancelled, changed or claimed by its id."""

MAX_WAITS = 8
"""How many waits of a backlog for one limit after the other are kept apart."""

EMPTY = ""
"""closed_on of a backlog without waiting tasks."""

DETAIL = HISTORY_COLUMNS.index("detail")
"""The place of the history detail in the row of a change."""

Key = tuple[float, ...]


def order_key(order: str) -> Callable[[int, int], Key]:
    """The place of a task (priority, id) in the order."""
    return _KEYS[Order(order)]


_KEYS: dict[Order, Callable[[int, int], Key]] = {
    Order.PRIORITY: lambda priority, task_id: (-priority, task_id),
    Order.PRIORITY_LIFO: lambda priority, task_id: (-priority, -task_id),
    Order.PRIORITY_ASC: lambda priority, task_id: (priority, task_id),
    Order.FIFO: lambda priority, task_id: (task_id,),
    Order.LIFO: lambda priority, task_id: (-task_id,),
    Order.RANDOM: lambda priority, task_id: (random.random(),),
    Order.WEIGHTED: lambda priority, task_id: (random.random(),),
}


_LEVELS = {Order.PRIORITY: -1, Order.PRIORITY_LIFO: -1, Order.PRIORITY_ASC: 1}
"""Orders by priority, and whether the highest or the lowest priority is first."""


class Backlog:
    """An open backlog during a claim. `tasks`: its first tasks, (id, priority), in order. `cut`: it may have more."""

    __slots__ = ("closed_on", "counters", "cut", "group", "head", "limits", "name", "next", "priority", "queue",
                 "taken", "tasks", "turn", "type", "waited_on", "waits", "weight")  # fmt: skip

    def __init__(self, row: Row, rules: FlowRules) -> None:
        (self.name, self.queue, self.type, self.group, self.limits, self.priority, self.head, self.turn, self.weight,
         self.waited_on, self.waits) = row  # fmt: skip
        self.counters = rules.counters(BacklogKey(self.queue, self.type, self.group, self.limits))
        self.closed_on: str | None = None
        self.tasks: list[tuple[int, int]] = []
        self.cut = False
        self.next = 0
        self.taken = 0

    @property
    def moved(self) -> bool:
        """True if its first task is not the one that is stored."""
        return self.next < len(self.tasks) and self.tasks[self.next] != (self.head, self.priority)

    @property
    def place(self) -> Key:
        """The place of the backlog among those of its queue and type."""
        return (-self.priority, self.turn, self.head)


Waiting = tuple[BacklogKey, int, int]
"""What a backlog has in common, and the priority and id of the first task that has begun to wait in it."""

Chosen = tuple[Backlog | None, int]
"""A chosen task, with its backlog; without one for a plain task."""


class Admission:
    """Claims of tasks with limits and tasks of fair queues, in any engine."""

    def __init__(self, dialect: Dialect, cache: RulesCache, observer: Observer) -> None:
        self._dialect = dialect
        self._cache = cache
        self._observer = observer

    def claim(self, request: ClaimRequest, holders: Holders | None) -> Statements[Rows]:
        """Claim plain tasks and tasks with limits together."""
        yield BeginTransaction()
        claim = _Claim(self._dialect, (yield from self._cache.at((yield from lock_flow()))), request, holders)
        return self._count_waits((yield from claim.run()))

    def claim_by_id(self, task_id: int, request: ClaimRequest) -> Statements[Rows]:
        """Claim this task, if it is a task of a backlog that could be claimed. Raises LimitReached."""
        yield BeginTransaction()
        rows = yield Statement("lock_limited", {"id": task_id})
        if not rows:
            return []
        claim = _Claim(self._dialect, (yield from self._cache.at((yield from lock_flow()))), request, None)
        return self._count_waits((yield from claim.run_one(task_id, Backlog(rows[0], claim.rules))))

    def _count_waits(self, rows: Rows) -> Rows:
        """Report how long the claimed tasks have waited for limits: the detail in their history."""
        details = [decode(row[DETAIL]) for row in rows if row[DETAIL] is not None]
        if waits := list(chain.from_iterable(_waits_of(detail) for detail in details)):
            self._observer.waited(waits)
        return rows

    def peek(self, filters: Filters) -> Statements[list[int]]:
        """The ids that a claim would take, without a change."""
        plain = yield from self._dialect.pick(filters)
        if not (yield from self._dialect.has_limited(filters, peek=True)):
            return plain
        request = ClaimRequest(worker_id="peek", **msgspec.structs.asdict(filters))
        rules = yield from self._cache.checked()
        return (yield from _Peek(self._dialect, rules, request).ids())


class _Admitting:
    """The rules, the counters, and the choice among open backlogs."""

    def __init__(self, dialect: Dialect, rules: FlowRules, request: ClaimRequest, holders: Holders | None) -> None:
        self._dialect = dialect
        self._rules = rules
        self._request = request
        self._holders = holders
        self._now = 0
        self._counters: dict[str, LimitCounter] = {}
        self._key = order_key(request.order)
        self._wider = 1
        self._skipped: set[int] = set()
        self._left_out: Collection[int] = self._skipped

    def _read_clock(self) -> Statements[None]:
        if self._rules.has_rates:  # under the lock: no earlier claim has read a later time
            [[self._now]] = yield Statement("clock")

    def _load_counters(self, names: Iterable[str]) -> Statements[None]:
        missing = sorted({name for name in names if name not in self._counters})
        if not missing:
            return
        rows = yield Statement("read_counters", {"names": missing})
        known = {row[0]: row[1:] for row in rows}
        for name in missing:
            used, allowed_at, watched = known.get(name, (0, 0, False))
            counter = LimitCounter(name, self._rules.limits[limit_of(name)], used, allowed_at, self._now)
            counter.watched = bool(watched)
            self._counters[name] = counter

    def _room(self, name: str) -> int:
        return self._counters[name].room(self._now)

    def _full(self, backlog: Backlog) -> str | None:
        """The first counter of the backlog that has no room."""
        return next((name for name in backlog.counters if self._room(name) <= 0), None)

    def _reach(self) -> int:
        if self.by_index:
            return (self._request.count + EXTRA_BACKLOGS) * self._wider
        return max(ALL_ORDERS_REACH, self._request.count)

    def _read_tasks(self, backlogs: Sequence[Backlog], wanted: int) -> Statements[None]:
        """Read the first tasks of the backlogs: twice as many in all as are wanted."""
        count = min(wanted, 2 * wanted // max(len(backlogs), 1) + 2) + len(self._left_out)
        by_name = {backlog.name: backlog for backlog in backlogs}
        for backlog in backlogs:
            backlog.tasks, backlog.next = [], 0
        for name, task_id, priority in (yield from self._dialect.read_backlogs(list(by_name), count, self._request)):
            by_name[name].tasks.append((task_id, priority))
        for backlog in backlogs:
            backlog.cut = len(backlog.tasks) >= count
            backlog.tasks = [task for task in backlog.tasks if task[0] not in self._left_out]
            backlog.tasks.sort(key=lambda task: self._key(task[1], task[0]))

    def _choose(
        self, backlogs: Sequence[Backlog], plain: Sequence[tuple[int, int]], wanted: int
    ) -> tuple[list[Chosen], bool]:
        """The first tasks in order, and whether the order is certain no further: then another lap is needed."""
        sources: list[_Source] = [_Source(self, _of_queue(backlogs, None, self._rules), fair=False)]
        fair = sorted({backlog.queue for backlog in backlogs if self._rules.is_fair(backlog.queue)})
        sources += [_Source(self, _of_queue(backlogs, queue, self._rules), fair=True) for queue in fair]
        chosen: list[Chosen] = []
        nth = 0
        while len(chosen) < wanted:
            best: tuple[Key, _Source | None] | None = None
            for source in sources:
                if (front := source.front()) is _STOP:
                    return chosen, True
                if front is not None and (best is None or front < best[0]):
                    best = front, source
            if nth < len(plain):
                front = self._key(plain[nth][1], plain[nth][0])
                if best is None or front < best[0]:
                    best = front, None
            if best is None:
                return chosen, False
            if best[1] is None:
                chosen.append((None, plain[nth][0]))
                nth += 1
            else:
                chosen.append(best[1].take())
        return chosen, False

    def take(self, backlog: Backlog) -> None:
        """Count a task of the backlog in its counters."""
        for name in backlog.counters:
            self._counters[name].take(self._now)

    def blocked(self, backlog: Backlog) -> str | None:
        """The counter that is full for the backlog."""
        return self._full(backlog)

    def passes_on(self, backlog: Backlog) -> bool:
        """True if the backlog is closed on one counter while another one has room, for which other backlogs wait."""
        return any(self._passes(name) for name in backlog.counters)

    def _passes(self, name: str) -> bool:
        """True if backlogs may wait for the counter although it has room."""
        counter = self._counters[name]
        return counter.watched and counter.rule.bounded and counter.room(self._now) > 0

    def key_of(self, backlog: Backlog) -> Key:
        """The place of the next task of the backlog."""
        task_id, priority = backlog.tasks[backlog.next]
        return self._key(priority, task_id)

    def level_of(self, backlog: Backlog) -> int:
        """The part of the place of its next task that comes before the turn of its group: the priority, if the order
        has it."""
        return _LEVELS.get(Order(self._request.order), 0) * backlog.tasks[backlog.next][1]

    def reach(self) -> int:
        """How many backlogs of a queue and type were read at most."""
        return self._reach()

    @property
    def by_index(self) -> bool:
        """True if the order is that of the index of backlogs, so that those that were left out come later. A claim that
        demands attempts may not take the first task of a backlog, so the index says nothing about its place."""
        return self._request.order == Order.PRIORITY and not self._demands_attempts

    @property
    def _demands_attempts(self) -> bool:
        """True if the claim may not take every task."""
        return (self._request.max_attempts_remaining or 0) > 1

    @property
    def is_random(self) -> bool:
        """True for orders in which a task has no fixed place."""
        return self._request.order in (Order.RANDOM, Order.WEIGHTED)

    def served(self, backlog: Backlog, turn: float) -> None:
        """Note that the group of the backlog has had this turn. A peek moves no turn."""


_STOP: Any = object()
"""The front of a source from which the order is not certain any more."""


class _Source:
    """Open backlogs that compete: all of the queues that are not fair, or those of one fair queue."""

    def __init__(self, claim: _Admitting, backlogs: list[Backlog], *, fair: bool) -> None:
        self._claim = claim
        self._fair = fair
        self._heap: list[tuple[Key, int, Backlog]] = []
        self._bound = _bound_of(backlogs, claim.reach()) if claim.by_index else None
        self._turns = {backlog.group: backlog.turn for backlog in backlogs} if fair else {}
        self._stopped = False
        for number, backlog in enumerate(backlogs):
            self._push(number, backlog)

    def _place(self, backlog: Backlog) -> Key:
        key = self._claim.key_of(backlog)
        if not self._fair:
            return key
        return (self._claim.level_of(backlog), self._turns[backlog.group], *key)

    def _push(self, number: int, backlog: Backlog) -> None:
        if backlog.next < len(backlog.tasks):
            heapq.heappush(self._heap, (self._place(backlog), number, backlog))
        elif backlog.cut:
            self._stopped = True

    def front(self) -> Key | None:
        """The place of the first task that may be taken; _STOP if it is not certain."""
        while not self._stopped and self._heap:
            place, number, backlog = self._heap[0]
            if not self._claim.is_random and place != self._place(backlog):  # the turn of its group has moved
                heapq.heapreplace(self._heap, (self._place(backlog), number, backlog))
            elif (full := self._claim.blocked(backlog)) is not None:
                heapq.heappop(self._heap)
                backlog.closed_on = full
                self._stopped = self._claim.passes_on(backlog)
            elif self._is_beyond(backlog):
                self._stopped = True
            else:
                return self._claim.key_of(backlog)
        return _STOP if self._stopped else None

    def _is_beyond(self, backlog: Backlog) -> bool:
        """True if backlogs that were not read may come before this one."""
        if self._bound is None:
            return False
        task_id, priority = backlog.tasks[backlog.next]
        return (-priority, self._turns.get(backlog.group, 0.0), task_id) > self._bound

    def take(self) -> Chosen:
        """Take the first task."""
        _, number, backlog = heapq.heappop(self._heap)
        task_id, _ = backlog.tasks[backlog.next]
        backlog.next += 1
        backlog.taken += 1
        self._claim.take(backlog)
        if self._fair:
            self._claim.served(backlog, self._turns[backlog.group])
            self._turns[backlog.group] += 1 / backlog.weight
        self._push(number, backlog)
        return backlog, task_id


def _of_queue(backlogs: Sequence[Backlog], queue: str | None, rules: FlowRules) -> list[Backlog]:
    """The backlogs of a fair queue, or those of all other queues."""
    if queue is None:
        return [backlog for backlog in backlogs if not rules.is_fair(backlog.queue)]
    return [backlog for backlog in backlogs if backlog.queue == queue]


def _bound_of(backlogs: Sequence[Backlog], reach: int) -> Key | None:
    """The place after which backlogs that were not read may come; None if all were read."""
    last: dict[tuple[str, str], Key] = {}
    counts = CountOf((backlog.queue, backlog.type) for backlog in backlogs)
    for backlog in backlogs:
        pair = backlog.queue, backlog.type
        if counts[pair] >= reach:
            last[pair] = max(last.get(pair, backlog.place), backlog.place)
    return min(last.values()) if last else None


class _Claim(_Admitting):
    """One claim, under the lock of dibs_flow."""

    def __init__(self, dialect: Dialect, rules: FlowRules, request: ClaimRequest, holders: Holders | None) -> None:
        super().__init__(dialect, rules, request, holders)
        self._rows: dict[int, Row] = {}
        self._order: list[int] = []
        self._touched: set[str] = set()
        self._turns: dict[tuple[str, str], float] = {}
        self._served: dict[str, float] = {}
        self._corrections = 0
        self._searched: set[str] = set()

    def run(self) -> Statements[Rows]:
        """Claim. Returns the rows of the tasks in order."""
        yield from self._read_clock()
        changed = yield from self._collect()
        changed |= yield from self._due_counters()
        yield from self._register()
        yield from self._open(changed)
        yield from self._take()
        yield from self._write_counters()
        return [self._rows[task_id] for task_id in self._order if task_id in self._rows]

    def run_one(self, task_id: int, backlog: Backlog) -> Statements[Rows]:
        """Claim this task, or raise LimitReached."""
        yield from self._read_clock()
        changed = yield from self._collect()
        yield from self._open(changed | set(backlog.counters))
        if (full := self._full(backlog)) is not None:
            raise _limit_reached(task_id, full)
        self.take(backlog)
        yield from self._claim_tasks([(backlog, task_id)])
        yield from self._write_counters()
        return list(self._rows.values())

    @property
    def rules(self) -> FlowRules:
        """The limits and settings."""
        return self._rules

    # Before the laps

    def _collect(self) -> Statements[set[str]]:
        """Subtract from the counters the tasks that have ended a claim. Returns the changed counters."""
        ended: CountOf[str] = CountOf()
        for _ in range(BATCHES):
            rows = yield Statement("ended_claims", words=limited(BATCH))
            if not rows:
                break
            yield Statement("clear_permits", {"ids": [row[0] for row in rows]})
            ended.update(chain.from_iterable(decode(row[1]) for row in rows))
            if len(rows) < BATCH:
                break
        if ended:
            items = [{"name": name, "count": count} for name, count in sorted(ended.items())]
            yield Statement("return_permits", rows=items)
        return set(ended)

    def _due_counters(self) -> Statements[set[str]]:
        """The counters whose rate allows a start again, or whose limit has been changed."""
        rows = yield Statement("due_counters", words=limited(BATCH))
        return {row[0] for row in rows}

    def _register(self) -> Statements[None]:
        """Open the backlogs in which tasks have begun to wait, or raise them."""
        waiting: dict[str, Waiting] = {}
        for backlog, queue, type_name, group, limits, priority, head in (yield from self._waiting_rows()):
            key = BacklogKey(queue, type_name, group or "", limits)
            _, high, first = waiting.get(backlog, (key, -(2**31), 0))
            if priority > high:
                high, first = priority, head
            elif priority == high:
                first = min(first, head)
            waiting[backlog] = key, high, first
        if waiting:
            yield from self._register_backlogs(waiting)

    def _waiting_rows(self) -> Statements[list[Row]]:
        """Signals, and tasks that are not registered; they are taken."""
        found: list[Row] = []
        for name in ("take_signals", "register_tasks"):
            for _ in range(BATCHES):
                rows = yield Statement(name, words=limited(BATCH))
                found += rows
                if len(rows) < BATCH:
                    break
        return found

    def _register_backlogs(self, waiting: dict[str, Waiting]) -> Statements[None]:
        items = [self._backlog_item(name, *waiting[name]) for name in sorted(waiting)]
        yield Statement("register_backlogs", rows=items)
        if fair := [item["name"] for item in items if item["fair"]]:
            yield Statement("raise_turns", {"names": fair})

    def _backlog_item(self, name: str, key: BacklogKey, priority: int, head: int) -> dict[str, Any]:
        return {
            "name": name,
            "queue": key.queue,
            "type": key.type,
            "group_key": key.group,
            "limits": key.limits,
            "limit_names": encode(self._rules.names(key), "limits"),
            "counters": encode(self._rules.counters(key), "counters"),
            "fair": self._rules.is_fair(key.queue),
            "priority": priority,
            "head": head,
        }

    def _open(self, changed: set[str]) -> Statements[int]:
        """Open the first backlogs that wait for these counters, as many as there is room."""
        known = {name for name in changed if limit_of(name) in self._rules.limits}
        yield from self._load_counters(known)
        self._touched |= known
        items = [{"name": name, "room": self._room(name)} for name in sorted(known) if self._room(name) > 0]
        return (yield from self._open_watchers(items)) if items else 0

    def _open_watchers(self, items: list[dict[str, Any]]) -> Statements[int]:
        return (yield from self._dialect.open_watchers(items))

    # Laps

    def _take(self) -> Statements[None]:
        """Take tasks in order, then the chosen plain tasks. If other claims have taken some of these, tasks of backlogs
        are taken instead."""
        backlogs = yield from self._admissible(self._request.count)
        plain = (yield from self._dialect.plain_candidates(self._request)) if backlogs else []
        yield from self._run_laps(backlogs, plain, self._request.count)
        yield from self._claim_plain(self._request.count - len(self._rows))
        if backlogs and plain and len(self._rows) < self._request.count:
            missing = self._request.count - len(self._rows)
            self._order = [task_id for task_id in self._order if task_id in self._rows]
            yield from self._run_laps((yield from self._admissible(missing)), [], missing)

    def _run_laps(self, backlogs: list[Backlog], plain: list[tuple[int, int]], left: int) -> Statements[None]:
        while backlogs:
            chosen, again = self._choose(backlogs, plain, left)
            from_backlogs = [(backlog, task_id) for backlog, task_id in chosen if backlog is not None]
            got = yield from self._claim_tasks(from_backlogs)
            self._order += [task_id for backlog, task_id in chosen if backlog is None or task_id in self._rows]
            plain = plain[len(chosen) - len(from_backlogs) :]
            left -= len(chosen) - len(from_backlogs) + got
            opened = yield from self._settle(backlogs)
            if left <= 0 or not (again or opened or got < len(from_backlogs)):
                return
            if not chosen:  # other transactions have locked the first tasks of all backlogs that were read
                self._wider *= 2
            backlogs = yield from self._admissible(left)
            if not backlogs and plain:
                self._order += [task_id for task_id, _ in plain[:left]]

    def _admissible(self, wanted: int) -> Statements[list[Backlog]]:
        """The first open backlogs that have tasks and room. The others are closed on the way."""
        while True:
            backlogs = [Backlog(row, self._rules) for row in (yield from self._open_rows())]
            if not backlogs:
                return []
            yield from self._load_counters(chain.from_iterable(backlog.counters for backlog in backlogs))
            refused = []
            for backlog in backlogs:
                backlog.closed_on = self._full(backlog)
                if backlog.closed_on is not None:
                    refused.append(backlog)
            if not refused and (yield from self._open_first(backlogs)):
                continue
            if not refused:
                yield from self._read_tasks(backlogs, wanted)
                refused = self._without_tasks(backlogs) + self._misplaced(backlogs)
            if not refused:
                return [backlog for backlog in backlogs if backlog.tasks]
            yield from self._close(refused)

    def _open_rows(self) -> Statements[Rows]:
        """The first open backlogs of each queue and type."""
        return (yield from self._dialect.open_backlogs(self._request, self._reach()))

    def _open_first(self, backlogs: Sequence[Backlog]) -> Statements[int]:
        """In an order that is not that of the index: of the backlogs that wait for counters of these backlogs, open the
        first ones of each queue and type, as many as there is room. Returns how many were opened."""
        if self.by_index or (self.is_random and not self._demands_attempts):
            return 0
        names = sorted({name for backlog in backlogs for name in backlog.counters if self._passes(name)})
        names = [name for name in names if name not in self._searched]
        self._searched.update(names)
        waiting = (yield from self._first_waiting(names)) if names else []
        pairs = [list(some) for _, some in groupby(waiting, key=lambda backlog: (backlog.queue, backlog.type))]
        first = {each.name for some in pairs for name in names for each in self._until_full(some, name)}
        if first:
            yield from self._open_these(sorted(first))
        return len(first)

    def _first_waiting(self, names: list[str]) -> Statements[list[Backlog]]:
        """Backlogs that wait for these counters, by queue, type and their first tasks. As many are read as of open
        backlogs. Those without any task come first, so that they are found to be empty."""
        items = [{"name": name, "room": ALL_ORDERS_REACH} for name in names]
        waiting = [Backlog(row, self._rules) for row in (yield from self._watchers(items))]
        if not waiting:
            return []
        yield from self._load_counters(chain.from_iterable(backlog.counters for backlog in waiting))
        yield from self._read_tasks(waiting, 1)
        known = [backlog for backlog in waiting if backlog.tasks or self._sees_all]
        return sorted(known, key=lambda backlog: (backlog.queue, backlog.type, self._requested_place(backlog)))

    def _requested_place(self, backlog: Backlog) -> Key:
        """The place of the backlog in the requested order."""
        return (self.level_of(backlog), backlog.turn, *self.key_of(backlog)) if backlog.tasks else (-math.inf,)

    def _until_full(self, backlogs: Sequence[Backlog], name: str) -> Iterator[Backlog]:
        """The first backlogs with this counter that may use its room up, and those before them that are full for
        another counter: these close on it."""
        left = self._room(name)
        for backlog in backlogs:
            if left > 0 and name in backlog.counters:
                left -= self._full(backlog) is None
                yield backlog

    def _watchers(self, items: list[dict[str, Any]]) -> Statements[Rows]:
        """The backlogs that wait for these counters."""
        return (yield from self._dialect.watchers(self._request, items))

    def _open_these(self, names: list[str]) -> Statements[None]:
        yield Statement("open_these", {"names": names})

    def _without_tasks(self, backlogs: Sequence[Backlog]) -> list[Backlog]:
        if not self._sees_all:
            return []
        empty = [backlog for backlog in backlogs if not backlog.tasks]
        for backlog in empty:
            backlog.closed_on = EMPTY
        return empty

    def _misplaced(self, backlogs: Sequence[Backlog]) -> list[Backlog]:
        """Backlogs whose first task is not the stored one, because that was cancelled, changed or claimed by its id.
        Others that wait for the same counter may come first: these are closed, and the first ones are opened again."""
        if not self._knows_heads or self._corrections >= CORRECTIONS:
            return []
        misplaced = []
        for backlog in backlogs:
            watched = [
                name for name in backlog.counters if self._counters[name].watched and self._counters[name].rule.bounded
            ]
            if backlog.moved and watched:
                backlog.closed_on = backlog.waited_on if backlog.waited_on in watched else watched[0]
                misplaced.append(backlog)
        self._corrections += bool(misplaced)
        return misplaced

    def _close(self, backlogs: Sequence[Backlog]) -> Statements[int]:
        """Store the first tasks of these backlogs, and on which counter each is closed. If another counter of a closed
        backlog has room, open the next backlogs that wait for it; also for a rate, whose room grows with time."""
        yield from self._store_closed([self._closed_item(backlog) for backlog in backlogs])
        for backlog in backlogs:
            if backlog.closed_on:
                self._counters[backlog.closed_on].watched = True
            if backlog.closed_on is not None:
                self._searched.difference_update(backlog.counters)
        self._touched.update(chain.from_iterable(backlog.counters for backlog in backlogs))
        names = {
            name
            for backlog in backlogs
            for name in backlog.counters
            if backlog.closed_on is not None or self._counters[name].rule.interval
        }
        items = [
            {"name": name, "room": self._room(name)}
            for name in sorted(names)
            if self._counters[name].rule.bounded and self._room(name) > 0
        ]
        return (yield from self._open_watchers(items)) if items else 0

    def _store_closed(self, items: list[dict[str, Any]]) -> Statements[None]:
        yield Statement("close_backlogs", rows=items)

    def _closed_item(self, backlog: Backlog) -> dict[str, Any]:
        priority, head = backlog.priority, backlog.head
        if backlog.next < len(backlog.tasks) and self._knows_heads:
            head, priority = backlog.tasks[backlog.next]
        item = {"name": backlog.name, "closed_on": backlog.closed_on, "priority": priority, "head": head}
        return {**item, **_wait_item(backlog)}

    def _settle(self, backlogs: Sequence[Backlog]) -> Statements[int]:
        """Store what the lap has changed. Returns how many backlogs were opened."""
        changed = [
            backlog
            for backlog in backlogs
            if backlog.taken or backlog.closed_on is not None or (self._knows_heads and backlog.moved)
        ]
        for backlog in changed:
            if backlog.next >= len(backlog.tasks) and not backlog.cut and self._sees_all:
                backlog.closed_on = EMPTY
            elif backlog.closed_on is None:
                backlog.closed_on = self._full(backlog)
        yield from self._write_turns()
        return (yield from self._close(changed)) if changed else 0

    @property
    def _knows_heads(self) -> bool:
        """True if the first task that was read of a backlog is the first one of the backlog."""
        return self.by_index and self._sees_all

    @property
    def _sees_all(self) -> bool:
        """True if a backlog of which no task was read has none."""
        return not self._demands_attempts and not self._skipped

    # Claims

    def _claim_tasks(self, chosen: Sequence[tuple[Backlog, int]]) -> Statements[int]:
        """Claim these tasks. Tasks that another transaction has locked are left out: their permits are not used."""
        if not chosen:
            return 0
        items = [self._claim_item(backlog, task_id, nth) for nth, (backlog, task_id) in enumerate(chosen)]
        rows = yield from self._claim_limited(items)
        limited = {task_id for backlog, task_id in chosen if backlog.counters}
        self._rows.update((row[0], (*row, LIMITED) if row[0] in limited else row) for row in rows)
        for backlog, task_id in chosen:
            if task_id not in self._rows:
                self._skipped.add(task_id)
                for name in backlog.counters:
                    self._counters[name].taken -= 1
        return len(rows)

    def _claim_limited(self, items: list[dict[str, Any]]) -> Statements[Rows]:
        return (yield from self._dialect.claim_limited(self._request, items, self._now or None))

    def _claim_item(self, backlog: Backlog, task_id: int, nth: int) -> dict[str, Any]:
        worker, incarnation = self._request.worker_id, self._request.incarnation
        if self._holders is not None:
            worker, incarnation = self._holders[len(self._rows) + nth]
        return {
            "id": task_id,
            "permits": encode(backlog.counters, "permits") if backlog.counters else None,
            "worker_id": worker,
            "incarnation": incarnation,
            "waits": backlog.waits,
        }

    def _claim_plain(self, count: int) -> Statements[None]:
        """Claim plain tasks for what is missing: as many as the laps have chosen, or more if other claims have taken
        tasks of backlogs."""
        if count <= 0:
            return
        request = msgspec.structs.replace(self._request, count=count)
        holders = None if self._holders is None else self._holders[len(self._rows) :][:count]
        rows = yield from self._plain_rows(request, holders)
        places = [place for place, task_id in enumerate(self._order) if task_id not in self._rows]
        for row, place in zip(rows, places, strict=False):  # the tasks may be others than those that were chosen
            self._order[place] = row[0]
        for place in reversed(places[len(rows) :]):  # other claims have taken tasks: one of these may be placed above
            del self._order[place]
        self._order += [row[0] for row in rows[len(places) :]]
        self._rows.update((row[0], row) for row in rows)

    def _plain_rows(self, request: ClaimRequest, holders: Holders | None) -> Statements[Rows]:
        return (yield from self._dialect.claim_plain(request, holders))

    # Turns

    def served(self, backlog: Backlog, turn: float) -> None:
        """Note that the group of the backlog has had this turn."""
        self._turns[backlog.queue, backlog.group] = turn + 1 / backlog.weight
        self._served[backlog.queue] = max(self._served.get(backlog.queue, 0.0), turn)

    def _write_turns(self) -> Statements[None]:
        if not self._turns:
            return
        items = [{"queue": queue, "group_key": group, "turn": turn} for (queue, group), turn in self._turns.items()]
        yield Statement("advance_groups", rows=items)
        yield Statement("advance_backlogs", rows=items)
        yield Statement("advance_queues", rows=[{"name": name, "turn": turn} for name, turn in self._served.items()])
        self._turns.clear()
        self._served.clear()

    # Counters

    def _write_counters(self) -> Statements[None]:
        """Store the use of the counters, and when those of rates open."""
        items = []
        for name in sorted(self._touched):
            counter = self._counters.get(name)
            if counter is not None and limit_of(name) in self._rules.limits:
                items.append(
                    {
                        "name": name,
                        "limit_name": limit_of(name),
                        "group_key": group_of_counter(name),
                        "taken": counter.taken,
                        "allowed_at": counter.allowed_at,
                        "opens_at": counter.opens_at(self._now),
                    }
                )
        if items:
            yield Statement("use_counters", rows=items)


class _Peek(_Claim):
    """A claim that changes nothing: what a claim would write is kept in memory, and covers what is stored. So a peek
    takes the same tasks by the same code, and reads as few rows, without a lock."""

    def __init__(self, dialect: Dialect, rules: FlowRules, request: ClaimRequest) -> None:
        super().__init__(dialect, rules, request, None)
        self._left_out = self._rows
        self._ended: CountOf[str] = CountOf()
        self._read: dict[str, Row] = {}
        self._states: dict[str, str | None] = {}  # closed_on of the backlogs that a claim would have written
        self._moved: dict[tuple[str, str], float] = {}

    def ids(self) -> Statements[list[int]]:
        """The ids, in order."""
        return [row[0] for row in (yield from self.run())]

    def _collect(self) -> Statements[set[str]]:
        for permits, count in (yield Statement("returning_permits")):
            for name in decode(permits):
                self._ended[name] += count
        return set(self._ended)

    def _load_counters(self, names: Iterable[str]) -> Statements[None]:
        missing = {name for name in names if name not in self._counters}
        yield from super()._load_counters(missing)
        for name in missing:
            self._counters[name].used -= self._ended[name]

    def _write_counters(self) -> Statements[None]:
        yield from ()

    # Tasks

    def _claim_limited(self, items: list[dict[str, Any]]) -> Statements[Rows]:
        yield from ()
        return [(item["id"],) for item in items]

    def _plain_rows(self, request: ClaimRequest, holders: Holders | None) -> Statements[Rows]:
        return [(task_id,) for task_id in (yield from self._dialect.pick(request))]

    # Backlogs

    def _waiting_rows(self) -> Statements[list[Row]]:
        """As many as a claim would take."""
        words = limited(BATCHES * BATCH)
        signals = yield Statement("waiting_signals", words=words)
        return [*signals, *(yield Statement("unregistered_tasks", words=words))]

    def _register_backlogs(self, waiting: dict[str, Waiting]) -> Statements[None]:
        """As section `register_backlogs`: empty and new backlogs are open, the others are raised. Those that do not
        pass the filters raise the turns of other backlogs of their groups."""
        stored = {row[0]: row for row in (yield Statement("backlogs_named", {"names": sorted(waiting)}))}
        opened = [name for name in waiting if name not in stored or stored[name][-1] == EMPTY]
        groups, queues = yield from self._turns_of([waiting[name][0] for name in opened])
        for key in (waiting[name][0] for name in opened):
            if self._rules.is_fair(key.queue):  # as section `raise_turns`
                turn, _ = groups.get((key.queue, key.group), (0.0, 1.0))
                self._moved[key.queue, key.group] = max(turn, queues.get(key.queue, 0.0))
        for name, (key, priority, head) in (yield from self._passing(waiting)).items():
            if name not in stored or stored[name][-1] == EMPTY:
                _, weight = groups.get((key.queue, key.group), (0.0, 1.0))
                turn = self._moved.get((key.queue, key.group), 0.0)
                self._note((name, *key, priority, head, turn, weight, None, None), None)
            else:
                self._note(stored[name][:-1], stored[name][-1])
                if (-priority, head) < (-stored[name][5], stored[name][6]):
                    self._move(name, priority, head)

    def _passing(self, waiting: dict[str, Waiting]) -> Statements[dict[str, Waiting]]:
        """Those that pass the filters, and that are not paused."""
        queues, types = self._request.queues, self._request.types
        found = {
            name: each
            for name, each in waiting.items()
            if (queues is None or each[0].queue in queues) and (types is None or each[0].type in types)
        }
        keys = [each[0] for each in found.values()]
        given = {"queues": sorted({key.queue for key in keys}), "types": sorted({key.type for key in keys})}
        paused = {tuple(row) for row in (yield Statement("paused_among", given))}
        return {
            name: each
            for name, each in found.items()
            if not {("queue", each[0].queue), ("type", each[0].type)} & paused
        }

    def _turns_of(
        self, keys: Sequence[BacklogKey]
    ) -> Statements[tuple[dict[tuple[str, str], tuple[float, float]], dict[str, float]]]:
        """The turns and weights of the groups, and the turns that the queues have reached."""
        queues = sorted({key.queue for key in keys})
        given = {"queues": queues, "names": sorted({key.group for key in keys})}
        groups = {(row[0], row[1]): (row[2], row[3]) for row in (yield Statement("turns_of_groups", given))}
        return groups, dict((yield Statement("turns_of_queues", {"queues": queues})))

    def _open_rows(self) -> Statements[Rows]:
        """The first open backlogs of each queue and type, with those that a claim would have opened."""
        reach = self._reach()
        stored = yield from self._dialect.open_backlogs(self._request, _rounded_up(reach + len(self._states)))
        names = [name for name, closed_on in self._states.items() if closed_on is None]
        return self._first([self._read[name] for name in names] + self._unknown(stored), reach)

    def _open_watchers(self, items: list[dict[str, Any]]) -> Statements[int]:
        """Open as many backlogs as a claim would, but no more than a lap can use."""
        reach = self._reach()
        rows = yield from self._watchers([{**item, "room": min(item["room"], reach)} for item in items])
        for row in rows:
            self._note(row, None)
        return len(rows)

    def _watchers(self, items: list[dict[str, Any]]) -> Statements[Rows]:
        """Those that wait in memory as well."""
        rows: list[Row] = []
        for item in items:
            asked = [{"name": item["name"], "room": _rounded_up(item["room"] + len(self._states))}]
            stored = yield from self._dialect.watchers(self._request, asked)
            names = [name for name, closed_on in self._states.items() if closed_on == item["name"]]
            rows += self._first([self._read[name] for name in names] + self._unknown(stored), item["room"])
        return rows

    def _open_these(self, names: list[str]) -> Statements[None]:
        yield from ()
        for name in names:
            self._note(self._read[name], None)

    def _unknown(self, stored: Rows) -> list[Row]:
        """Without the backlogs that this peek has changed."""
        return [row for row in stored if row[0] not in self._states]

    def _first(self, rows: list[Row], count: int) -> list[Row]:
        """The first of each queue and type, with the turns that a claim would have stored."""
        turned = [(*row[:7], self._moved.get((row[1], row[3]), row[7]), *row[8:]) for row in rows]
        turned.sort(key=lambda row: (row[1], row[2], -row[5], row[7], row[6]))
        pairs = groupby(turned, key=lambda row: (row[1], row[2]))
        found = list(chain.from_iterable(islice(some, count) for _, some in pairs))
        self._read.update((row[0], row) for row in found)
        return found

    def _store_closed(self, items: list[dict[str, Any]]) -> Statements[None]:
        yield from ()
        for item in items:
            self._note(self._read[item["name"]], item["closed_on"])
            self._move(item["name"], item["priority"], item["head"])

    def _note(self, row: Row, closed_on: str | None) -> None:
        self._read[row[0]] = row
        self._states[row[0]] = closed_on

    def _move(self, name: str, priority: int, head: int) -> None:
        row = self._read[name]
        self._read[name] = (*row[:5], priority, head, *row[7:])

    def _write_turns(self) -> Statements[None]:
        yield from ()
        self._moved |= self._turns
        self._turns.clear()


def _rounded_up(count: int) -> int:
    """The next power of two: a limit is a part of the SQL text, and each text is prepared once."""
    return 1 << max(count - 1, 1).bit_length()


def _wait_item(backlog: Backlog) -> dict[str, Any]:
    """What changes in the waits of a backlog. `waits`: JSON, the limits for which the backlog has waited, null while it
    was open, each with the time since when. `begins`: the next wait begins now, for the limit `wait_for`. Of more than
    MAX_WAITS the first ones are taken together."""
    if backlog.closed_on == EMPTY:
        return {"waits": None, "begins": False, "wait_for": None}
    if backlog.closed_on == backlog.waited_on:
        return {"waits": backlog.waits, "begins": False, "wait_for": None}
    waits = decode(backlog.waits) if backlog.waits else []
    del waits[1 : max(1, len(waits) - MAX_WAITS + 2)]
    wait_for = None if backlog.closed_on is None else limit_of(backlog.closed_on)
    return {"waits": encode(waits, "waits"), "begins": True, "wait_for": wait_for}


def _waits_of(detail: dict[str, Any]) -> Sequence[tuple[str, float]]:
    """The limits for which a claimed task has waited, and for how many seconds, from the detail of its history."""
    if "waits" in detail:
        return list(detail["waits"].items())
    return [(detail["limit"], detail["waited"])] if "limit" in detail else ()


def _limit_reached(task_id: int, counter: str) -> LimitReached:
    limit, group = limit_of(counter), group_of_counter(counter)
    of_group = f" for the group {group!r}" if group else ""
    return LimitReached(
        f"Task {task_id} cannot be claimed now: the limit {limit!r} is reached{of_group}.", task_id=task_id, name=limit
    )


def priorities(ids: Sequence[int]) -> Statements[list[tuple[int, int]]]:
    """These tasks with their priorities, in the same order."""
    if not ids:
        return []
    found: dict[int, int] = dict((yield Statement("priorities_of", {"ids": list(ids)})))
    return [(task_id, found[task_id]) for task_id in ids if task_id in found]
