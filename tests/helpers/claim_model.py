"""A plain model of what a claim takes, and random claims that are played against a store and the model side by side.

The model is a dictionary of tasks. A claim filters all of them and sorts what is left: no index, no partition, no pause
table; limits and turns are in tests/helpers/flow_model.py. So the model cannot share a mistake with the SQL that finds
the same tasks without reading all of them.

Every choice comes from one seeded generator, and no choice depends on what a store draws by lot: tasks that were
claimed in random or weighted order are released at once. So a shape and a seed repeat a run on any engine.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from dibs import (
    AlreadyClaimed,
    Claim,
    Completed,
    Failed,
    Failure,
    Finished,
    LimitReached,
    NewTask,
    NotClaimable,
    Outcome,
    Released,
    TaskNotFound,
)
from tests.helpers.clients import Clock
from tests.helpers.flow_model import CounterName, FairQueues, Kind, ModelLimit, Turns, Use, choose
from tests.helpers.tasks import enqueue_all

LEASE = 30 * 24 * 3600.0
"""Seconds: no lease ends during a run, although time passes."""

DELAY = 60.0
"""Seconds until a task that was scheduled during a run is due: more than all moments between two promotions."""

MOMENTS = (0.001, 0.01, 0.04)
"""Seconds in which rates allow no start, one or some."""

AHEAD = 2100
"""Tasks at the head of an order that a claim must pass over: more than a claim reads before it has to search."""

MAX_HELD = 400
"""Claims that are held at the same time, at most."""


class ModelTask(NamedTuple):
    """A task that has not ended."""

    id: int
    queue: str
    type: str
    priority: int
    attempts_left: int
    state: str = "pending"
    is_ahead: bool = False
    group: str | None = None
    counters: tuple[CounterName, ...] = ()
    """What a claim of the task counts towards."""

    @property
    def kind(self) -> Kind:
        """Tasks of the same kind wait together."""
        return self.queue, self.type, self.group or "", self.counters


ORDERS: dict[str, Callable[[ModelTask], tuple[int, ...]]] = {
    "priority": lambda task: (-task.priority, task.id),
    "priority_lifo": lambda task: (-task.priority, -task.id),
    "priority_asc": lambda task: (task.priority, task.id),
    "fifo": lambda task: (task.id,),
    "lifo": lambda task: (-task.id,),
}
RANDOM_ORDERS = ("random", "weighted")

Filters = dict[str, Any]
"""queues, types, max_attempts_remaining: as a claim takes them."""


@dataclass
class ClaimModel:
    """The tasks that have not ended, the paused queues and types, the limits, and the fair queues."""

    tasks: dict[int, ModelTask] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    paused_types: set[str] = field(default_factory=set)
    use: Use = field(default_factory=Use)
    fair: FairQueues = field(default_factory=FairQueues)

    def matching(self, filters: Filters) -> list[ModelTask]:
        """The tasks that a claim may take."""
        queues, types = filters.get("queues"), filters.get("types")
        least = filters.get("max_attempts_remaining", 0)
        return [
            task
            for task in self.tasks.values()
            if task.state == "pending"
            and task.attempts_left >= least
            and (types is None or task.type in types)
            and (queues is None or task.queue in queues)
            and self.is_open(task)
        ]

    def is_open(self, task: ModelTask) -> bool:
        """Whether neither its queue nor its type is paused."""
        return task.queue not in self.paused and task.type not in self.paused_types

    def choices(self, count: int, order: str, filters: Filters, now: int) -> list[tuple[list[int], Turns]]:
        """The ids that a claim in a sorted order may take, in that order, each with the turns after it."""
        tasks = self.matching(filters)
        found = []
        for turns in self.fair.begin(self.waiting_kinds()):
            chosen = choose(tasks, count, order, ORDERS[order], self.use_at(now), turns)
            found.append(([task.id for task in chosen], turns))
        return found

    def drop_worlds(self, asked: list[int], count: int, filters: Filters, now: int) -> None:
        """A peek by age has shown these tasks: turns with which no claim would take them are not possible."""
        possible, worlds = [], self.fair.worlds
        for turns in worlds:
            self.fair.worlds = [turns]
            if asked in [ids for ids, _ in self.choices(count, "fifo", filters, now)]:
                possible.append(turns)
        assert possible, asked
        self.fair.worlds = possible

    def use_at(self, now: int) -> Use:
        """What the limits have left."""
        return self.use.at(now, [task for task in self.tasks.values() if task.state == "claimed"])

    def waiting_kinds(self) -> set[Kind]:
        """The kinds of tasks that wait in fair queues."""
        fair = self.fair.worlds[0].reached
        return {task.kind for task in self.tasks.values() if task.state == "pending" and task.queue in fair}

    def claimed(self, ids: list[int], worlds: list[Turns], filters: Filters, now: int) -> None:
        """A claim has taken these tasks, and has left these possible turns."""
        before = self.waiting_kinds()
        for task_id in ids:
            self.start(task_id, now)
        self.fair.end(worlds, before, self.waiting_kinds(), lambda kind: self.looks_for(kind, filters))

    def start(self, task_id: int, now: int) -> None:
        """A claim of the task begins."""
        self.use = self.use_at(now)
        self.use.take(self.tasks[task_id])
        self.set_state([task_id], "claimed")

    def looks_for(self, kind: Kind, filters: Filters) -> bool:
        """Whether a claim would have found tasks of this kind. Those with limits may have waited for one."""
        one = ModelTask(0, kind[0], kind[1], 0, attempts_left=1, counters=kind[3])
        return not one.counters and bool(ClaimModel({0: one}, self.paused, self.paused_types).matching(filters))

    def set_state(self, ids: Sequence[int], state: str) -> None:
        for task_id in ids:
            self.tasks[task_id] = self.tasks[task_id]._replace(state=state)

    def finish(self, task_id: int, outcome: Outcome) -> None:
        """What an outcome does to its task."""
        task = self.tasks[task_id]
        if isinstance(outcome, Released):
            self.tasks[task_id] = task._replace(state="scheduled" if outcome.delay else "pending")
        elif isinstance(outcome, Failed) and not outcome.permanent and task.attempts_left > 1:
            state = "scheduled" if outcome.retry_in else "pending"
            self.tasks[task_id] = task._replace(state=state, attempts_left=task.attempts_left - 1)
        else:
            del self.tasks[task_id]

    def promote(self) -> None:
        """All scheduled tasks are due."""
        self.set_state([task.id for task in self.tasks.values() if task.state == "scheduled"], "pending")


# Shapes


@dataclass(frozen=True)
class Shape:
    """How many tasks a run begins with, over how many queues, types and numbers of attempts; and what stands ahead.

    `ahead`: kinds of tasks that are the first in every order, AHEAD at each end: the oldest have the highest priority,
    the newest the lowest. `paused`: the queues that are paused at the beginning.
    """

    name: str
    queues: int
    types: int
    attempts: int
    tasks: int
    priorities: int = 5
    ahead: tuple[Filters, ...] = ()
    paused: tuple[str, ...] = ()
    least_attempts: int = 0
    """What most claims demand as attempts left."""
    limits: tuple[str, ...] = ()
    """The limits that tasks may have; PER_GROUP is one for each group."""
    groups: int = 0
    rates: tuple[str, ...] = ()
    """Those of the limits that may have a rate."""
    fair: tuple[str, ...] = ()
    """The fair queues."""
    pauses_types: bool = False
    most: int = 100
    """How many tasks a claim takes at most."""

    @property
    def queue_names(self) -> list[str]:
        """The queues of the tasks that are not ahead."""
        return [f"queue-{n}" for n in range(self.queues)]

    @property
    def type_names(self) -> list[str]:
        """The types of the tasks that are not ahead."""
        return [f"type-{n}" for n in range(self.types)]


PER_GROUP = "tenant"
UNSERVED_QUEUE, UNSERVED_TYPE = "unserved-queue", "unserved-type"

SHAPES = {
    shape.name: shape
    for shape in (
        Shape("one partition", queues=1, types=1, attempts=1, tasks=400),
        Shape("few queues", queues=3, types=4, attempts=4, tasks=400),
        Shape("one priority", queues=5, types=5, attempts=2, tasks=400, priorities=1),
        Shape("many queues", queues=300, types=40, attempts=4, tasks=2400),
        Shape(
            "paused ahead", queues=20, types=5, attempts=3, tasks=300,
            ahead=({"queue": "paused-0"}, {"queue": "paused-1"}), paused=("paused-0", "paused-1"),
        ),
        Shape("unserved queue ahead", queues=6, types=6, attempts=3, tasks=300, ahead=({"queue": UNSERVED_QUEUE},)),
        Shape("unserved type ahead", queues=6, types=6, attempts=3, tasks=300, ahead=({"type": UNSERVED_TYPE},)),
        Shape(
            "unserved pairs ahead", queues=6, types=6, attempts=3, tasks=300,
            ahead=({"type": UNSERVED_TYPE}, {"queue": UNSERVED_QUEUE}),
        ),
        Shape(
            "few attempts ahead", queues=4, types=4, attempts=4, tasks=300, ahead=({"max_attempts": 1},),
            least_attempts=2,
        ),
        Shape(
            "limits", queues=3, types=3, attempts=4, tasks=300, limits=("stripe", "mail", PER_GROUP), groups=6,
        ),
        Shape(
            "paused types", queues=3, types=6, attempts=3, tasks=300, limits=("stripe",), groups=3, pauses_types=True,
        ),
        Shape(
            "rates", queues=3, types=3, attempts=3, tasks=300, limits=("stripe", "mail", PER_GROUP), groups=6,
            rates=("mail", PER_GROUP),
        ),
        Shape("fair", queues=3, types=2, attempts=3, tasks=300, groups=5, fair=("queue-0", "queue-1"), most=20),
        Shape(
            "fair with limits", queues=2, types=2, attempts=3, tasks=300, limits=("stripe", PER_GROUP), groups=5,
            rates=("stripe",), fair=("queue-0",), pauses_types=True, most=20,
        ),
        Shape("many groups", queues=2, types=2, attempts=3, tasks=600, limits=("stripe", PER_GROUP), groups=200),
    )
}  # fmt: skip


# A run


class Play:
    """A store and the model, with the same tasks, claims and outcomes."""

    def __init__(self, app: Any, clock: Clock, shape: Shape, seed: int) -> None:
        self.app, self.clock, self.shape, self.seed = app, clock, shape, seed
        self.chance = random.Random(f"{shape.name} {seed}")
        self.model = ClaimModel()
        self.held: dict[int, Claim] = {}
        self.done: Counter[str] = Counter()
        """How often each kind of step was played, and how many tasks the claims took in all."""

    def run(self, claims: int) -> None:
        """Play until that many claims were made, besides claims by id. The failure names shape and seed."""
        try:
            self.begin()
            while self.done["claim"] + self.done["exchange"] < claims:
                self.step()
            self.compare_states()
        except Exception as error:
            error.add_note(f"shape {self.shape.name!r}, seed {self.seed}, after {dict(self.done)}")
            raise

    def begin(self) -> None:
        oldest, newest = ([self.new_ahead(n, sign) for n in range(AHEAD)] for sign in (1, -1))
        between = [self.new_task() for _ in range(self.shape.tasks)]
        for name in self.shape.limits:
            self.set_limit(name)
        for queue in self.shape.fair:
            self.app.set_queue(queue, fair=True)
            self.model.fair.add(queue)
        blocks = [oldest, between, newest] if self.shape.ahead else [between]
        for new in blocks:
            self.enqueue(new, is_ahead=new is not between)
        for queue in self.shape.paused:
            self.pause(queue)

    def step(self) -> None:
        steps: dict[Callable[[], None], int] = {
            self.claim: 60, self.exchange: 10, self.claim_by_id: 8, self.finish: 25, self.pause_or_resume: 6,
            self.pass_time: 4, self.upkeep: 2, self.change_limit: 6 if self.shape.limits else 0,
            self.pass_a_moment: 40 if self.shape.rates else 0, self.weigh_a_group: 2 if self.shape.fair else 0,
            self.pause_or_resume_types: 6 if self.shape.pauses_types else 0,
        }  # fmt: skip
        [step] = self.chance.choices(list(steps), list(steps.values()))
        step()
        self.done[step.__name__] += 1
        if len(self.held) > MAX_HELD:
            self.end(list(self.held.values()))
        if len(self.model.tasks) - len(self.held) < self.least_tasks:
            self.enqueue([self.new_task() for _ in range(self.shape.tasks // 3)])

    @property
    def least_tasks(self) -> int:
        """If fewer are left, new ones are enqueued."""
        return self.shape.tasks * 2 // 3 + (2 * AHEAD if self.shape.ahead else 0)

    # Claims

    def claim(self) -> None:
        count, order, filters = self.a_count(), self.an_order(), self.some_filters()
        if self.chance.random() < 0.3:
            self.check_chosen([task.id for task in self.app.peek(count, order=order, **filters)], count, order, filters)
            self.done["peek"] += 1
        claims = self.app.claim_many("ann", count, order=order, lease=LEASE, **filters)
        self.claimed(claims, count, order, filters)

    def exchange(self) -> None:
        """Finish some tasks and claim others in one transaction, in which the finished ones are already free."""
        count, order, filters = self.a_count(), self.an_order(), self.some_filters()
        reports = self.some_reports(self.some_held())
        results, claims = self.app.exchange(reports, "ann", count, order=order, lease=LEASE, **filters)
        self.ended(reports, results)
        self.claimed(claims, count, order, filters)

    def claimed(self, claims: list[Claim], count: int, order: str, filters: Filters) -> None:
        ids = [claim.task_id for claim in claims]
        worlds = self.check_chosen(ids, count, order, filters)
        self.done["tasks"] += len(ids)
        self.model.claimed(ids, worlds, filters, self.clock.now)
        self.ask_for_turns()
        if order in RANDOM_ORDERS:
            self.report([(claim, Released()) for claim in claims])
        else:
            self.held |= {claim.task_id: claim for claim in claims}

    def ask_for_turns(self) -> None:
        """If several turns are possible, a peek shows which are true."""
        if len(self.model.fair.worlds) > 1:
            count = 1 if self.shape.limits else 100
            for queue in self.shape.fair:
                asked = [task.id for task in self.app.peek(count, order="fifo", queues=[queue])]
                self.model.drop_worlds(asked, count, {"queues": [queue]}, self.clock.now)

    def check_chosen(self, ids: list[int], count: int, order: str, filters: Filters) -> list[Turns]:
        """A sorted order takes what the model takes. A random one takes so many that no other task could start, from
        those that match, and none above a limit; also several tasks of fair queues with limits, because the groups that
        get the permits of full limits are chosen at the beginning of a claim (see decision 48). Returns the possible
        turns after the claim."""
        asked = f"{count} in order {order} with {filters}"
        if order not in RANDOM_ORDERS and (count == 1 or not (self.shape.fair and self.shape.limits)):
            choices = self.model.choices(count, order, filters, self.clock.now)
            assert ids in [chosen for chosen, _ in choices], (asked, ids, choices)
            return [turns for chosen, turns in choices if chosen == ids]
        left = {task.id: task for task in self.model.matching(filters)}
        use, worlds = self.model.use_at(self.clock.now), self.model.fair.begin(self.model.waiting_kinds())
        for task_id in ids:  # each once, and none above a limit
            task = left.pop(task_id)
            assert use.has_room(task), asked
            use.take(task)
            for turns in worlds:
                turns.serve(task)
        assert len(ids) == count or not any(use.has_room(task) for task in left.values()), asked
        return worlds

    def claim_by_id(self) -> None:
        """Any task that has not ended, or one that never was."""
        task_id = self.chance.choice([*self.model.tasks, 10**12])
        task = self.model.tasks.get(task_id)
        if task is None:
            refused: type[Exception] | None = TaskNotFound
        elif task.state == "claimed":
            refused = AlreadyClaimed
        else:
            refused = NotClaimable if task.state == "scheduled" or not self.model.is_open(task) else None
            if refused is None and not self.model.use_at(self.clock.now).has_room(task):
                refused = LimitReached
        if refused is not None:
            with pytest.raises(refused):
                self.app.claim_by_id(task_id, "ann", lease=LEASE)
            return
        self.held[task_id] = self.app.claim_by_id(task_id, "ann", lease=LEASE)
        self.model.start(task_id, self.clock.now)

    # Everything else that happens to tasks and queues

    def finish(self) -> None:
        if claims := self.some_held():
            self.end(claims)

    def end(self, claims: list[Claim]) -> None:
        self.report(self.some_reports(claims))

    def report(self, reports: list[tuple[Claim, Outcome]]) -> None:
        if reports:
            self.ended(reports, self.app.finish(reports))

    def ended(self, reports: list[tuple[Claim, Outcome]], results: list[Any]) -> None:
        for (claim, outcome), result in zip(reports, results, strict=True):
            assert isinstance(result, Finished), result
            self.held.pop(claim.task_id, None)
            self.model.finish(claim.task_id, outcome)

    def pause_or_resume(self) -> None:
        """More queues are resumed than paused, so that about a tenth of them are paused."""
        if self.model.paused and self.chance.random() < 0.5:
            self.resume(self.chance.choice(sorted(self.model.paused)))
        for queue in self.chance.sample(self.shape.queue_names, self.chance.randint(0, 1 + self.shape.queues // 20)):
            (self.pause if len(self.model.paused) <= self.shape.queues // 10 else self.resume)(queue)
        for queue in self.shape.paused:
            (self.resume if self.chance.random() < 0.1 else self.pause)(queue)

    def pause(self, queue: str) -> None:
        self.app.pause(queue)
        self.model.paused.add(queue)

    def resume(self, queue: str) -> None:
        self.app.resume(queue)
        self.model.paused.discard(queue)

    def pause_or_resume_types(self) -> None:
        """About a third of the types are paused."""
        for name in self.chance.sample(self.shape.type_names, 1 + self.shape.types // 3):
            paused = self.chance.random() < 0.35
            (self.app.pause_type if paused else self.app.resume_type)(name)
            (self.model.paused_types.add if paused else self.model.paused_types.discard)(name)

    def change_limit(self) -> None:
        """Tasks above a lower maximum run on; a limit that was removed and is set again counts what runs."""
        name = self.chance.choice(self.shape.limits)
        if name in self.model.use.limits and self.chance.random() < 0.3:
            self.app.remove_limit(name)
            del self.model.use.limits[name]
        else:
            self.set_limit(name)

    def set_limit(self, name: str) -> None:
        limit = ModelLimit(self.chance.choice([1, 1, 2, 3, 10] if name == PER_GROUP else [1, 5, 20, 40, 200]))
        if name in self.shape.rates and self.chance.random() < 0.8:
            rate = self.chance.choice([(7, 1), (100, 1), (1000, 1), (700, 60)])
            maximum = self.chance.choice([None, limit.max])
            limit = ModelLimit(maximum, *rate, burst=self.chance.choice([1, 1, 2, 20]))
        self.app.set_limit(
            name, max=limit.max, rate=limit.rate, burst=limit.burst, per="group" if name == PER_GROUP else None
        )
        self.model.use.limits[name] = limit

    def weigh_a_group(self) -> None:
        queue, group = self.chance.choice(self.shape.fair), self.a_group()
        weight = self.chance.choice([0.5, 1.0, 2.0, 3.0])
        self.app.set_group(queue, group, weight=weight)
        self.model.fair.weigh(queue, group or "", weight)

    def pass_a_moment(self) -> None:
        """No scheduled task becomes due."""
        self.clock.advance(self.chance.choice(MOMENTS))

    def pass_time(self) -> None:
        """Until all scheduled tasks are due. Upkeep promotes them at once: when a claim would do that is a matter of
        real time."""
        self.clock.advance(DELAY)
        self.app.promote()
        self.model.promote()

    def upkeep(self) -> None:
        """Upkeep may move the tasks of paused queues elsewhere, and must not change what a claim takes."""
        self.app.upkeep()
        self.clock.advance(DELAY)
        self.app.upkeep()
        self.model.promote()

    def enqueue(self, new: list[NewTask], *, is_ahead: bool = False) -> None:
        for task in enqueue_all(self.app, new):
            self.model.tasks[task.id] = ModelTask(
                task.id, task.queue, task.type, task.priority, task.max_attempts, is_ahead=is_ahead, group=task.group,
                counters=tuple((name, task.group if name == PER_GROUP else None) for name in task.limits),
            )  # fmt: skip

    def compare_states(self) -> None:
        """In the end the store has the tasks of the model, in the same states."""
        left = Counter(task.state for task in self.model.tasks.values())
        depth: Counter[str] = Counter()
        for queue in self.app.queues():
            depth.update({state: count for state, count in queue.depth.items() if state in left})
        assert {state: count for state, count in depth.items() if count} == dict(left)

    # Choices

    def a_count(self) -> int:
        most = self.shape.most
        return self.chance.choice([1, 1, 2, self.chance.randint(1, 20), self.chance.randint(1, most), most])

    def an_order(self) -> str:
        """In a fair queue the turns after a claim in random order depend on what the store drew by lot."""
        return self.chance.choice([*ORDERS, *ORDERS, *ORDERS, *(() if self.shape.fair else RANDOM_ORDERS)])

    def some_filters(self) -> Filters:
        """None, queues, types, both; a third of each with attempts."""
        shape, filters = self.shape, Filters()
        if self.chance.random() < 0.5:
            filters["queues"] = self.some_names(shape.queue_names, [UNSERVED_QUEUE, *shape.paused])
        if self.chance.random() < 0.5:
            filters["types"] = self.some_names(shape.type_names, [UNSERVED_TYPE])
        if shape.least_attempts and self.chance.random() < 0.7:
            filters["max_attempts_remaining"] = shape.least_attempts
        elif self.chance.random() < 0.33:
            filters["max_attempts_remaining"] = self.chance.randint(0, shape.attempts + 1)
        return filters

    def some_names(self, names: list[str], others: list[str]) -> list[str]:
        """One, a few, many or all of the names; sometimes one twice, sometimes one of the others too."""
        size = self.chance.choice([1, min(3, len(names)), 1 + len(names) // 3, len(names)])
        chosen = self.chance.sample(names, size)
        if self.chance.random() < 0.2:
            chosen.append(self.chance.choice([*others, "nothing-has-this-name", chosen[0]]))
        return chosen

    def some_held(self) -> list[Claim]:
        held = list(self.held.values())
        return self.chance.sample(held, min(len(held), self.a_count()))

    def some_reports(self, claims: list[Claim]) -> list[tuple[Claim, Outcome]]:
        return [(claim, self.an_outcome(claim.task_id)) for claim in claims]

    def an_outcome(self, task_id: int) -> Outcome:
        """What stands ahead stays there."""
        if self.model.tasks[task_id].is_ahead:
            return Released()
        kind = self.chance.random()
        if kind < 0.3:
            return Completed()
        if kind < 0.35:
            return Failed(Failure("Broken", "no ink"), permanent=True)
        if kind < 0.65:
            return Failed(Failure("Broken", "no ink"), retry_in=self.chance.choice([0, 0, DELAY]))
        return Released(delay=self.chance.choice([0, 0, 0, DELAY]))

    def new_task(self) -> NewTask:
        shape, spread = self.shape, self.shape.priorities // 2
        return NewTask(
            self.chance.choice(shape.type_names),
            queue=self.chance.choice(shape.queue_names),
            priority=self.chance.randint(-spread, spread),
            max_attempts=self.chance.randint(max(shape.least_attempts, 1), shape.attempts),
            **self.some_limits(),
        )

    def some_limits(self) -> dict[str, Any]:
        """None for a shape without limits. A limit that was removed cannot be named."""
        if not self.shape.groups:
            return {}
        usable = [name for name in self.shape.limits if name in self.model.use.limits]
        group = self.a_group()
        return {
            "limits": [name for name in usable if (name, group) != (PER_GROUP, None) and self.chance.random() < 0.5],
            "group": group,
        }

    def a_group(self) -> str | None:
        """In a shape with fair queues it may be none."""
        number = self.chance.randrange(self.shape.groups)
        return None if number == 0 and self.shape.fair else f"group-{number}"

    def new_ahead(self, number: int, sign: int) -> NewTask:
        """One of those that are first: of the kinds in turns, otherwise like the first of the others."""
        kind: Filters = self.shape.ahead[number % len(self.shape.ahead)] if self.shape.ahead else {}
        new = {"queue": "queue-0", "type": "type-0", "max_attempts": self.shape.attempts, **kind}
        return NewTask(**new, priority=sign * 9)
