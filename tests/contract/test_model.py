"""All promises about one task together: any sequence of calls has the same effect on a store as on the model.

Hypothesis plays people and workers that enqueue, claim, finish, renew, cancel, retry, pause and wait, with live, stale
and foreign claims, of tasks with limits and of a fair queue too. After each step the whole store is compared with the
model (tests/helpers/model.py). A failure is shrunk to the fewest steps that lead to it. The steps are the same in every
run; `make stress` plays others, and more.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as some
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dibs import Cancelled, Claim, ClaimRef, Completed, Event, Failed, Failure, NewTask, Outcome, Released, State, Task
from dibs.errors import DibsError
from dibs.model.checks import to_micros
from dibs.model.claim import ClaimRequest, Filters
from dibs.model.history import HistoryEntry
from dibs.procedures import claim_now, exchange
from tests.conftest import ENGINES
from tests.helpers.clients import Clock, follow, run, sweep_every
from tests.helpers.databases import run_sql
from tests.helpers.flow_model import ModelLimit
from tests.helpers.key_model import shown_scope
from tests.helpers.model import (
    CHANCE,
    ENDED,
    KEPT,
    ORDERS,
    PER_GROUP,
    SECOND,
    Answer,
    Between,
    Life,
    Line,
    Model,
    ModelRequest,
    Ref,
)
from tests.helpers.retention import keep
from tests.helpers.tables import TABLES

LONG = int(os.environ.get("STRESS_EXAMPLES", "0")) // 10
"""Examples in `make stress`: of a hundred steps each, so that a tenth of those of other tests is as much."""

settings.register_profile(
    "model", max_examples=40, stateful_step_count=30, derandomize=True, database=None, deadline=None,
    suppress_health_check=list(HealthCheck), print_blob=False, report_multiple_bugs=False,
)  # fmt: skip
settings.register_profile(
    "model-stress", settings.get_profile("model"), max_examples=LONG or 1, stateful_step_count=100, derandomize=False,
)  # fmt: skip

RETENTION = {state.value: kept / SECOND for state, kept in KEPT.items()}
NEVER = 10**9

WORKERS = some.sampled_from(["ann", "ben"])
QUEUES = some.sampled_from(["default", "mail"])
TYPES = some.sampled_from(["draw", "read"])
LEASES = some.sampled_from([1, 10, 60])
WAITS = some.sampled_from([0.000001, 1, 10, 60])

BACK = some.integers(0, 5)
"""A task or a claim by its age, 0 the newest: what is chosen must not depend on what the store drew by lot."""


class Which(NamedTuple):
    """A claim that a worker has or had, or a wrong reference to one."""

    back: int = 0
    mistake: str | None = None


CLAIMS = some.builds(Which, back=BACK, mistake=some.sampled_from([None, None, None, "token", "worker", "task"]))

NEW_TASKS = some.fixed_dictionaries(
    {"type": TYPES},
    optional={
        "params": some.just({"n": 1}),
        "queue": QUEUES,
        "priority": some.integers(-2, 2),
        "max_attempts": some.integers(1, 3),
        "delay": some.one_of(some.just(0), WAITS),
        "key": some.sampled_from([None, None, None, None, "one", "two"]),
        "expires_in": some.sampled_from([1, 10, 61]),
        "limits": some.sampled_from([["lock"], ["quota"], [PER_GROUP], ["lock", PER_GROUP], ["quota", PER_GROUP]]),
        "group": some.sampled_from(["a", "b"]),
    },
)
LIMITS = {
    "lock": some.sampled_from([ModelLimit(1), ModelLimit(2), ModelLimit(3)]),
    "quota": some.sampled_from([ModelLimit(None, 1, burst=2), ModelLimit(None, 2), ModelLimit(2, 1, burst=3)]),
    PER_GROUP: some.sampled_from([ModelLimit(1), ModelLimit(2)]),
}
FLOODS = some.builds(
    lambda common, tasks: [common | dict(zip(("group", "priority"), task, strict=True)) for task in tasks],
    some.fixed_dictionaries(
        {"type": TYPES, "queue": QUEUES, "limits": some.sampled_from([[], ["lock"], ["quota"], [PER_GROUP]])}
    ),
    some.lists(some.tuples(some.sampled_from(["a", "b"]), some.integers(0, 1)), min_size=3, max_size=5),
)
"""Tasks that compete for the permits of one limit, or for the turns of two groups."""

NEW_LIMITS = some.one_of(*(some.tuples(some.just(name), limit) for name, limit in LIMITS.items()))
KEY_RULES = some.fixed_dictionaries(
    {"key": some.sampled_from(["one", "two"])},
    optional={
        "key_scope": some.sampled_from(["until_finished", "until_started"]),
        "on_conflict": some.sampled_from(["keep", "raise", "replace", "replace"]),
        "params": some.sampled_from([{"n": 1}, {"n": 2}]),
    },
)
DEBOUNCED = some.fixed_dictionaries(
    {"on_conflict": some.just("replace"), "delay": WAITS, "max_delay": some.sampled_from([5, 30, 90])}
)
UNIQUE_TASKS = some.one_of(
    some.builds(lambda new, rules: new | rules, NEW_TASKS, KEY_RULES),
    some.builds(lambda new, rules, late: new | rules | late, NEW_TASKS, KEY_RULES, DEBOUNCED),
)
TIMED_TASKS = some.builds(
    lambda new, key, seconds, rule: new | {"key": key, "key_for": seconds, "on_conflict": rule},
    NEW_TASKS,
    some.sampled_from(["one", "two"]),
    some.sampled_from([1, 60, 7200, 100_000]),
    some.sampled_from(["return", "keep", "raise", "replace"]),
)
FILTERS = {
    "queues": some.lists(QUEUES, min_size=1, max_size=2, unique=True),
    "types": some.lists(TYPES, min_size=1, max_size=2, unique=True),
    "max_attempts_remaining": some.integers(1, 3),
    "order": some.sampled_from([*ORDERS, *CHANCE]),
}
CLAIM_OPTIONS = some.fixed_dictionaries(
    {}, optional={**FILTERS, "lease": LEASES, "ahead": some.booleans(), "request": some.sampled_from(["one", "two"])}
)
CHANGES = some.fixed_dictionaries(
    {},
    optional={
        "priority": some.integers(-2, 2),
        "queue": QUEUES,
        "params": some.sampled_from([{"n": 1}, {"n": 2}]),
        "delay": some.one_of(some.just(0), WAITS),
        "group": some.sampled_from(["a", "b"]),
    },
).filter(bool)
DEAD = some.fixed_dictionaries(
    {}, optional={"queue": QUEUES, "type": TYPES, "error": some.sampled_from(["Late", "light", "lease"])}
)
OUTCOMES = some.one_of(
    some.builds(Completed, result=some.sampled_from([None, 7, {"made": [1]}])),
    some.builds(
        Failed,
        some.builds(Failure, some.sampled_from(["Broken", "Late"]), some.sampled_from(["no ink", "no light"])),
        retry_in=some.one_of(some.none(), some.just(0), WAITS),
        permanent=some.booleans(),
    ),
    some.builds(Released, delay=some.one_of(some.just(0), WAITS)),
    some.just(Cancelled()),
)


@pytest.mark.timeout(3600 if LONG else 420)  # a failure is shrunk for up to five minutes
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_a_store_does_what_the_model_does(url: str, open_app: Callable[..., Any]) -> None:
    open_app(url).queues()  # migrated once, and not for every example
    profile = settings.get_profile("model-stress" if LONG else "model")
    run_state_machine_as_test(lambda: Play(url, open_app), settings=profile)


class Play(RuleBasedStateMachine):
    """A store and the model of it, played side by side."""

    def __init__(self, url: str, open_app: Callable[..., Any]) -> None:
        super().__init__()
        run_sql(url, *(f"DELETE FROM {table}" for table in TABLES))
        self.clock = Clock()
        self.app = open_app(url, clock=self.clock)
        keep(self.app, history=None, **RETENTION)
        self.model = Model(self.clock.now)
        self.ids: list[int] = []
        self.claims: list[Ref] = []
        self.read = 0
        """The last entry of the history that has been compared."""

    def teardown(self) -> None:
        self.app.close()

    @initialize(
        new=some.one_of(some.lists(NEW_TASKS, min_size=1, max_size=4), FLOODS),
        count=some.integers(1, 3),
        lease=LEASES,
        in_passing=some.booleans(),
        limited=some.sampled_from([True, True, False]),
        fair=some.sampled_from([True, True, False]),
    )
    def begin(
        self, new: list[dict[str, Any]], count: int, lease: float, in_passing: bool, limited: bool, fair: bool
    ) -> None:
        """Some tasks, of which ann has claimed some; whether there are limits, and a fair queue; and whether claims
        always sweep in passing, or only when they find nothing (otherwise that is a matter of real time)."""
        sweep_every(self.app, 0 if in_passing else NEVER)
        if limited:
            for name, limit in {
                "lock": ModelLimit(3),
                "quota": ModelLimit(None, 1, burst=3),
                PER_GROUP: ModelLimit(2),
            }.items():
                self.set_limit((name, limit))
        if fair:
            self.app.set_queue("mail", fair=True)
            self.model.fair.add("mail")
        self.enqueue(new)
        self.claim("ann", count, {"lease": lease})

    # Time and upkeep

    @rule(seconds=some.sampled_from([0.000001, 1, 10, 60, 3600, 7200]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.model.now = self.clock.now

    @rule(which=some.sampled_from(["upkeep", "promote", "recover"]))
    def upkeep(self, which: str) -> None:
        if which == "upkeep":
            done = self.app.upkeep()
            counts = done.promoted, done.recovered, done.expired, done.pruned
            assert counts == (*self.model.sweep(State.SCHEDULED), self.model.prune())
        else:
            assert getattr(self.app, which)() == getattr(self.model, which)()

    # Enqueues and management

    @rule(new=TIMED_TASKS)
    def enqueue_for_a_time(self, new: dict[str, Any]) -> None:
        self.enqueue([new])

    @rule(new=some.lists(some.one_of(NEW_TASKS, UNIQUE_TASKS), min_size=1, max_size=3))
    def enqueue(self, new: list[dict[str, Any]]) -> None:
        new = [self.with_known_limits(each) for each in new]
        said = answered(lambda: self.app.enqueue_many([NewTask(**each) for each in new]))
        expected = self.model.enqueue(new)
        if isinstance(expected, str):
            assert said == expected
        else:
            self.stored(said, expected)

    def with_known_limits(self, new: dict[str, Any]) -> dict[str, Any]:
        """Unknown limits would be refused, and one per group without a group; other tests say so."""
        limits = [name for name in new.get("limits", []) if name in self.model.use.limits]
        return new | {"limits": limits} | ({"group": new.get("group", "a")} if PER_GROUP in limits else {})

    @rule(new=FLOODS)
    def flood(self, new: list[dict[str, Any]]) -> None:
        self.enqueue(new)

    def stored(self, said: list[Task], expected: list[tuple[int, bool, bool]]) -> None:
        """New tasks have higher ids than all before: age is the id."""
        self.ids += sorted(new_ids(said))
        assert self.ids == sorted(set(self.ids))
        assert len(self.ids) == len(self.model.lives)
        marks = [(task.id, task.deduplicated, task.replaced) for task in said]
        assert marks == [(self.ids[n], known, replaced) for n, known, replaced in expected]

    @rule(verb=some.sampled_from(["cancel", "retry"]), task=BACK)
    @precondition(lambda self: self.ids)
    def manage(self, verb: str, task: int) -> None:
        task = self.task(task)
        said = answered(lambda: getattr(self.app, verb)(self.ids[task]).state)
        assert said == getattr(self.model, verb)(task)

    @rule(task=BACK, changes=CHANGES)
    @precondition(lambda self: self.ids)
    def change(self, task: int, changes: dict[str, Any]) -> None:
        task = self.task(task)
        said = answered(lambda: self.app.change(self.ids[task], **changes).state)
        assert said == self.model.change(task, **changes)

    @rule(which=DEAD, limit=some.sampled_from([None, 1, 2]))
    def redrive(self, which: dict[str, str], limit: int | None) -> None:
        dead = {life.number: life.finished_at for life in self.model.dead(**which)}
        assert self.app.redrive(**which, limit=limit) == min(len(dead), limit or len(dead))
        moved = [number for number in dead if self.app.get(self.ids[number]).state not in ENDED]
        first = sorted(dead.values())[: len(moved)]  # the order of tasks that failed at the same time is not defined
        assert sorted(dead[number] for number in moved) == first
        # Which of several tasks with the same key has the key again is not defined.
        for number in sorted(moved, key=lambda number: self.app.get(self.ids[number]).key_scope == "ended"):
            self.model.retry(number)

    @rule(queue=QUEUES, paused=some.booleans())
    def pause(self, queue: str, paused: bool) -> None:
        (self.app.pause if paused else self.app.resume)(queue)
        (self.model.paused.add if paused else self.model.paused.discard)(queue)

    @rule(kind=TYPES, paused=some.booleans())
    def pause_type(self, kind: str, paused: bool) -> None:
        (self.app.pause_type if paused else self.app.resume_type)(kind)
        (self.model.paused_types.add if paused else self.model.paused_types.discard)(kind)

    # Limits

    @rule(limit=NEW_LIMITS)
    def set_limit(self, limit: tuple[str, ModelLimit]) -> None:
        name, values = limit
        per = "group" if name == PER_GROUP else None
        self.app.set_limit(name, max=values.max, rate=values.rate, burst=values.burst, per=per)
        self.model.use.limits[name] = values

    @rule(name=some.sampled_from(sorted(LIMITS)))
    @precondition(lambda self: self.model.use.limits)
    def remove_limit(self, name: str) -> None:
        known = self.model.use.limits.pop(name, None)
        said = answered(lambda: self.app.remove_limit(name))
        assert said == (None if known else "limit_not_found")

    @rule(queue=QUEUES, limits=some.sampled_from([[], ["lock"], ["lock", "quota"]]))
    @precondition(lambda self: self.model.use.limits)
    def limit_queue(self, queue: str, limits: list[str]) -> None:
        limits = [name for name in limits if name in self.model.use.limits]
        self.app.set_queue(queue, limits=limits)
        self.model.queue_limits[queue] = limits

    # Workers

    @rule(options=some.fixed_dictionaries({}, optional=FILTERS), count=some.integers(1, 3))
    def peek(self, options: dict[str, Any], count: int) -> None:
        said = self.numbers(run(self.app, self.app._store.queue.peek(Filters(count=count, **options))))
        expected, _ = self.model.choose(ModelRequest("nobody", count, **options), said)
        assert said == [life.number for life in expected]

    @rule(worker=WORKERS, count=some.integers(1, 3), options=CLAIM_OPTIONS)
    def claim(self, worker: str, count: int, options: dict[str, Any]) -> None:
        request = ClaimRequest(worker_id=worker, count=count, **options)
        self.claimed(follow(self.app, claim_now(self.app._store, request)), ModelRequest(worker, count, **options))

    def claimed(self, said: list[Claim], options: ModelRequest) -> None:
        got = self.numbers([claim.task for claim in said])
        assert got == self.model.claim(options, self.swept(), got)
        for claim in said:
            self.compare(self.model.lives[self.ids.index(claim.task_id)], claim.task)
        self.claims += [self.ref(claim) for claim in said]

    @rule(task=BACK, worker=WORKERS, lease=LEASES)
    @precondition(lambda self: self.ids)
    def claim_by_id(self, task: int, worker: str, lease: float) -> None:
        task = self.task(task)
        said = answered(lambda: self.app.claim_by_id(self.ids[task], worker, lease=lease))
        expected = self.model.claim_by_id(task, worker, lease, self.swept())
        assert (said if isinstance(said, str) else "claimed") == expected
        self.claims += [] if isinstance(said, str) else [self.ref(said)]

    @rule(claim=CLAIMS, outcome=OUTCOMES)
    @precondition(lambda self: self.claims)
    def finish(self, claim: Which, outcome: Outcome) -> None:
        ref = self.a_claim(claim)
        self.all_ended({ref: outcome}, self.app.finish([(self.name(ref), outcome)]))

    @rule(
        ends=some.dictionaries(CLAIMS, OUTCOMES, min_size=1, max_size=3),
        worker=WORKERS,
        count=some.integers(1, 3),
        options=CLAIM_OPTIONS,
    )
    @precondition(lambda self: self.claims)
    def exchange(self, ends: dict[Which, Outcome], worker: str, count: int, options: dict[str, Any]) -> None:
        reports = {self.a_claim(claim): outcome for claim, outcome in ends.items()}
        named = [(self.name(ref), outcome) for ref, outcome in reports.items()]
        request = ClaimRequest(worker_id=worker, count=count, **options)
        said, claims = follow(self.app, exchange(self.app._store, named, request))
        self.all_ended(reports, said)
        self.claimed(claims, ModelRequest(worker, count, **options))

    def all_ended(self, reports: dict[Ref, Outcome], said: list[Any]) -> None:
        expected = self.model.finish_all(reports)
        for ref, answer in zip(reports, said, strict=True):
            self.ended(ref, answer, expected[ref])

    def ended(self, ref: Ref, said: Any, expected: Answer | str) -> None:
        """What was said about the outcome, in the model's words; from now on the model knows what chance decided."""
        if isinstance(expected, str) or isinstance(said, DibsError):
            assert getattr(said, "code", said) == expected
            return
        heard = Answer(said.state, said.attempts, said.run_at, said.repeated)
        assert (said.task_id, heard._replace(run_at=None)) == (
            self.ids[ref.number],
            expected._replace(run_at=None),
        )
        assert (said.run_at is None) is (expected.run_at is None)
        if expected.run_at is not None:
            self.model.lives[ref.number].run_at = within(expected.run_at, to_micros(said.run_at))

    @rule(claim=CLAIMS)
    @precondition(lambda self: self.claims)
    def begin_and_tell(self, claim: Which) -> None:
        ref = self.a_claim(claim)
        [begun] = run(self.app, self.app._store.queue.start([self.name(ref)]))
        assert getattr(begun, "code", begun) == self.model.start(ref)
        said = answered(lambda: self.app.progress(self.name(ref), 50, "half"))
        assert said == self.model.note(ref, 50, "half")
        assert run(self.app, self.app._store.queue.claim_status([self.name(ref)])) == [self.model.claim_status(ref)]

    @rule(claim=CLAIMS, lease=LEASES)
    @precondition(lambda self: self.claims)
    def renew(self, claim: Which, lease: float) -> None:
        ref = self.a_claim(claim)
        said = answered(lambda: self.app.renew(self.name(ref), lease))
        if not isinstance(said, str):
            said = (to_micros(said.lease_until), said.cancel_requested)
        assert said == self.model.renew(ref, lease)

    # What must be so after every step

    @invariant()
    def store_and_model_agree(self) -> None:
        self.compare_tasks()
        self.compare_history()
        self.compare_counts()
        if self.model.use.limits:
            self.compare_limits()

    def compare_tasks(self) -> None:
        found = {task.id: task for task in self.app.list_tasks(limit=1000)}
        lives = {self.ids[life.number]: life for life in self.model.present()}
        assert found.keys() == lives.keys()
        for task_id, life in lives.items():
            self.compare(life, found[task_id])

    def compare_history(self) -> None:
        """Every change stands there, and nothing else."""
        entries = self.new_entries()
        self.read = entries[-1].id if entries else self.read
        for number, life in enumerate(self.model.lives):
            assert [line(entry) for entry in entries if entry.task_id == self.ids[number]] == life.lines
            life.lines = []
        assert {to_micros(entry.at) for entry in entries} <= {self.clock.now}

    def compare_counts(self) -> None:
        queues = self.app.queues()
        assert {queue.name: queue.depth for queue in queues if queue.depth} == self.model.depth()
        assert {queue.name for queue in queues if queue.paused} == self.model.paused
        assert {kind.name for kind in self.app.paused_types()} == self.model.paused_types

    def compare_limits(self) -> None:
        figures = self.model.figures()
        expected = dict.fromkeys(self.model.use.limits, (0, 0))
        for (name, _), (used, waiting) in figures.items():
            if name in expected:
                expected[name] = expected[name][0] + used, expected[name][1] + waiting
        assert {limit.name: (limit.used, limit.waiting) for limit in self.app.limits()} == expected
        if PER_GROUP in expected:
            groups = {(PER_GROUP, each.group): (each.used, each.waiting) for each in self.app.limit_groups(PER_GROUP)}
            assert groups == {name: each for name, each in figures.items() if name[0] == PER_GROUP}

    # Conversion between results of the store and of the model

    def task(self, back: int) -> int:
        """The number of a task, counted back from the newest."""
        number = len(self.ids) - 1 - back % len(self.ids)
        note(f"# task {number}")
        return number

    def a_claim(self, which: Which) -> Ref:
        ref = self.claims[-1 - which.back % len(self.claims)]
        match which.mistake:
            case "token":
                ref = ref._replace(token=ref.token + 1 if ref.token == 1 else ref.token - 1)
            case "worker":
                ref = ref._replace(worker="ben" if ref.worker == "ann" else "ann")
            case "task":
                ref = ref._replace(number=ref.number + 1)
        note(f"# {ref}")
        return ref

    def name(self, ref: Ref) -> ClaimRef:
        """For the store. It may be of a task that never was."""
        known = ref.number < len(self.ids)
        return ClaimRef(self.ids[ref.number] if known else NEVER + ref.number, ref.token, ref.worker)

    def ref(self, claim: Claim) -> Ref:
        return Ref(self.ids.index(claim.task_id), claim.token, claim.worker_id)

    def numbers(self, tasks: list[Task]) -> list[int]:
        return [self.ids.index(task.id) for task in tasks]

    def compare(self, life: Life, task: Task) -> None:
        seen, expected = of_task(task), of_life(life)
        differences = {name: (seen[name], expected[name]) for name in seen if seen[name] != expected[name]}
        assert not differences, f"task {life.number}: (the store, the model) = {differences}"

    def swept(self) -> bool:
        return any(entry.event in (Event.PROMOTED, Event.RECOVERED, Event.EXPIRED) for entry in self.new_entries())

    def new_entries(self) -> list[HistoryEntry]:
        entries: list[HistoryEntry] = self.app.history_after(self.read)
        return entries


def answered(call: Callable[[], Any]) -> Any:
    """What it gives, or the code of its refusal."""
    try:
        return call()
    except DibsError as error:
        return error.code


def new_ids(tasks: list[Task]) -> list[int]:
    """Each once, in the order in which they were enqueued."""
    return list(dict.fromkeys(task.id for task in tasks if not task.deduplicated))


def within(bounds: Between, moment: int) -> int:
    assert bounds.earliest <= moment <= bounds.latest
    return moment


def line(entry: HistoryEntry) -> Line:
    return Line(entry.event, entry.from_state, entry.to_state, entry.worker_id, entry.token)


def of_task(task: Task) -> dict[str, Any]:
    """What is compared. When it runs next, and whether it should stop, means nothing once it has ended."""
    ended = task.state in ENDED
    return {
        "type": task.type,
        "queue": task.queue,
        "params": task.params,
        "priority": task.priority,
        "max_attempts": task.max_attempts,
        "key": task.key,
        "key_scope": task.key_scope,
        "key_until": micros(task.key_until),
        "state": task.state,
        "attempts": task.attempts,
        "token": task.token,
        "worker": task.worker_id,
        "created_at": micros(task.created_at),
        "run_at": None if ended else micros(task.run_at),
        "claimed_at": micros(task.claimed_at),
        "lease_until": micros(task.lease_until),
        "finished_at": micros(task.finished_at),
        "cancel_requested": None if ended else task.cancel_requested,
        "progress": (task.progress, task.progress_message),
        "result": task.result,
        "error": task.error and (task.error.type, task.error.message),
        "dropped": task.dropped,
        "expires_at": micros(task.expires_at),
        "group": task.group,
        "limits": task.limits,
    }


def of_life(life: Life) -> dict[str, Any]:
    """The same of the model's."""
    ended = life.state in ENDED
    unsaid = {"run_at": None, "cancel_requested": None} if ended else {}
    return {**vars(life), "key_scope": shown_scope(life), **unsaid}


def micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)
