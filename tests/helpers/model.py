"""The states of tasks in plain Python, as documented: every store is compared with this model.

No database, no batches, no concurrency: a list of tasks, and for each call the few lines that change one of them. The
model shares the terms of dibs (states, events, outcomes) and none of its rules. Tasks have numbers, from 0, in the
order in which they were enqueued; times are microseconds.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dibs import Cancelled, Completed, Event, Failed, Outcome, Released, State
from tests.helpers import key_model
from tests.helpers.flow_model import CounterName, FairQueues, Kind, Turns, Use, choose

SECOND = 1_000_000
NEVER = 10**9
JITTER = 0.1
LEASE_LOST = "LeaseLost"
EXPIRED = "TaskExpired"
ENDED = (State.COMPLETED, State.FAILED, State.CANCELLED)

KEPT = {State.COMPLETED: 3600 * SECOND, State.CANCELLED: 2 * 3600 * SECOND, State.FAILED: 4 * 3600 * SECOND}
"""How long ended tasks are kept, in the retention that the tests use."""


class Ref(NamedTuple):
    """The name of a claim, live or not."""

    number: int
    token: int
    worker: str


class Line(NamedTuple):
    """An entry of the history."""

    event: Event
    left: State | None
    reached: State
    worker: str | None
    token: int


class Between(NamedTuple):
    """A moment that chance has a part in: not before the one, not after the other."""

    earliest: int
    latest: int


class Answer(NamedTuple):
    """What a worker hears about an outcome."""

    state: State
    attempts: int
    run_at: Between | None
    repeated: bool = False


@dataclass
class ModelRequest:
    """What a claim asks for."""

    worker: str
    count: int = 1
    order: str = "priority"
    lease: float = 60
    queues: Sequence[str] | None = None
    types: Sequence[str] | None = None
    max_attempts_remaining: int | None = None
    ahead: bool = False
    request: str | None = None


@dataclass
class Life:
    """A task."""

    number: int
    type: str
    created_at: int
    run_at: int
    params: dict[str, Any] = field(default_factory=dict)
    queue: str = "default"
    priority: int = 0
    max_attempts: int = 3
    key: str | None = None
    key_scope: str | None = None
    key_until: int | None = None
    key_lost: bool = False
    state: State = State.PENDING
    attempts: int = 0
    token: int = 0
    worker: str | None = None
    claimed_at: int | None = None
    lease_until: int | None = None
    finished_at: int | None = None
    cancel_requested: bool = False
    progress: tuple[int | None, str | None] = (None, None)
    result: Any = None
    error: tuple[str, str] | None = None
    dropped: int = 0
    expires_at: int | None = None
    group: str | None = None
    limits: list[str] = field(default_factory=list)
    counters: tuple[CounterName, ...] = ()
    """What a claim counts towards: of a task that waits the next one, otherwise the last one."""
    ahead: bool = False
    request: str | None = None
    gone: bool = False
    lines: list[Line] = field(default_factory=list)
    content: dict[str, Any] = field(default_factory=dict)
    """The params of the enqueue, which its key keeps."""

    told: dict[tuple[int, str], tuple[Outcome, State]] = field(default_factory=dict)
    """Claim (token and worker) -> the outcome that ended it, and where that led."""

    @property
    def attempts_left(self) -> int:
        return self.max_attempts - self.attempts

    @property
    def waits(self) -> bool:
        return self.state in (State.SCHEDULED, State.PENDING)

    def leave(self) -> None:
        """A task that waits has no holder."""
        if self.waits:
            self.worker = self.claimed_at = None

    def move(self, event: Event, to: State, worker: str | None = None) -> None:
        """Every change of state is a line of history."""
        left = None if event is Event.ENQUEUED else self.state
        self.state = to
        self.lines.append(Line(event, left, to, worker, self.token))


ORDERS: dict[str, Callable[[Life], tuple[int, int]]] = {
    "priority": lambda life: (-life.priority, life.number),
    "priority_lifo": lambda life: (-life.priority, -life.number),
    "priority_asc": lambda life: (life.priority, life.number),
    "fifo": lambda life: (0, life.number),
    "lifo": lambda life: (0, -life.number),
}
CHANCE = ("random", "weighted")
"""Orders in which any task may come first."""

PER_GROUP = "tenant"
"""The limit that holds for each group."""


class Model:
    """A store."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.lives: list[Life] = []
        self.paused: set[str] = set()
        self.paused_types: set[str] = set()
        self.use = Use()
        self.queue_limits: dict[str, list[str]] = {}
        self.fair = FairQueues()

    def present(self) -> list[Life]:
        """Tasks that have not been pruned."""
        return [life for life in self.lives if not life.gone]

    def find(self, number: int) -> Life | None:
        """The task, if there is one."""
        return next((life for life in self.present() if life.number == number), None)

    def depth(self) -> dict[str, Counter[State]]:
        """How many tasks are in each state, of each queue that has any."""
        queues = {life.queue for life in self.present()}
        return {queue: Counter(life.state for life in self.present() if life.queue == queue) for queue in queues}

    # Enqueue

    def enqueue(self, news: Sequence[dict[str, Any]]) -> list[tuple[int, bool, bool]] | str:
        """For each its number, whether its key was there before, and whether it replaced the content of that task; or
        why none of them is stored."""
        if any(new.get("expires_in", NEVER) <= new.get("delay", 0) for new in news):
            return "invalid_value"
        try:
            copy.deepcopy(self)._enqueue_all(news)
        except key_model.Conflict:
            return "key_conflict"
        return self._enqueue_all(news)

    def _enqueue_all(self, news: Sequence[dict[str, Any]]) -> list[tuple[int, bool, bool]]:
        """Tasks whose key is past its time are stored after the others of the batch."""
        late = [key_model.waits_for_end(self, new) for new in news]
        order = sorted(range(len(news)), key=late.__getitem__)
        answers = {nth: self._enqueue(news[nth], news[nth + 1 :]) for nth in order}
        return [answers[nth] for nth in range(len(news))]

    def _enqueue(self, new: dict[str, Any], later: Sequence[dict[str, Any]]) -> tuple[int, bool, bool]:
        if new.get("key") is not None:
            if (owner := key_model.owner(self, new)) is not None:
                return key_model.meet(self, owner, new, later)
            key_model.leave_to(self, new)
        return self._store(**new)

    def _store(
        self,
        *,
        delay: float = 0,
        key: str | None = None,
        key_scope: str = "always",
        key_for: float | None = None,
        on_conflict: str = "return",
        max_delay: float = NEVER,
        expires_in: float | None = None,
        **values: Any,
    ) -> tuple[int, bool, bool]:
        run_at = self.now + round(min(delay, max_delay) * SECOND)
        content = values.get("params", {})
        life = Life(len(self.lives), created_at=self.now, run_at=run_at, key=key, content=content, **values)
        life.expires_at = None if expires_in is None else self.now + round(expires_in * SECOND)
        if key is not None:
            life.key_scope = key_scope if key_for is None else "until_time"
            life.key_until = None if key_for is None else self.now + round(key_for * SECOND)
        life.move(Event.ENQUEUED, State.SCHEDULED if run_at > self.now else State.PENDING)
        self.lives.append(life)
        return life.number, False, False

    # Claim

    def claim(self, request: ModelRequest, swept: bool, got: Sequence[int]) -> list[int]:
        """The tasks that the worker must have got. What was swept in passing, and what chance chose, the store says."""
        if asked := self._received(request):
            return asked
        if swept or not any(map(self._use().has_room, self.candidates(request))):
            self.sweep()
        chosen, worlds = self.choose(request, got)
        before = self._waiting_kinds()
        for life in chosen:
            self._hand_out(life, request)
        self.fair.end(worlds, before, self._waiting_kinds(), lambda kind: self._looks_for(kind, request))
        return [life.number for life in chosen]

    def choose(self, request: ModelRequest, got: Sequence[int]) -> tuple[list[Life], list[Turns]]:
        """What a claim takes, and the possible turns after it. If chance has a part in it: what it got, if it may."""
        tasks, worlds = self.candidates(request), self.fair.begin(self._waiting_kinds(), self._expired_kinds())
        if request.order in CHANCE or (request.count > 1 and any(self._waits_for_turn(life) for life in tasks)):
            return self._allowed(tasks, request, got, worlds), worlds
        key = ORDERS[request.order]
        choices = [choose(tasks, request.count, request.order, key, self._use(), turns) for turns in worlds]
        same = [nth for nth, lives in enumerate(choices) if [life.number for life in lives] == list(got)]
        return choices[same[0] if same else 0], [worlds[nth] for nth in same]

    def _allowed(
        self, tasks: Sequence[Life], request: ModelRequest, got: Sequence[int], worlds: Sequence[Turns]
    ) -> list[Life]:
        """Those that the claim got, as far as they were free and no limit was full; and one more if there was room."""
        use, left = self._use(), {life.number: life for life in tasks}
        chosen = []
        for number in got:
            if number in left and use.has_room(left[number]):
                chosen.append(left.pop(number))
                for each in (use.take, *(turns.serve for turns in worlds)):
                    each(chosen[-1])
        missed = [life for life in left.values() if use.has_room(life)]
        return chosen + missed[: request.count - len(chosen)]

    def _waits_for_turn(self, life: Life) -> bool:
        """Which groups get the permits of a full limit is decided at the beginning of a claim."""
        return life.queue in self.fair.worlds[0].reached and bool(life.counters)

    def _use(self) -> Use:
        """What the limits have left."""
        return self.use.at(self.now, [life for life in self.present() if life.state is State.CLAIMED])

    def _waiting_kinds(self) -> set[Kind]:
        """The kinds of tasks of fair queues that wait."""
        return {_kind(life) for life in self._of_fair_queues() if not self._expired(life)}

    def _expired_kinds(self) -> set[Kind]:
        """The kinds of which a task expired and is not cancelled yet: claims do not count it as waiting."""
        return {_kind(life) for life in self._of_fair_queues() if self._expired(life)}

    def _of_fair_queues(self) -> list[Life]:
        fair = self.fair.worlds[0].reached
        return [life for life in self.present() if life.queue in fair and life.state is State.PENDING]

    def _looks_for(self, kind: Kind, request: ModelRequest) -> bool:
        """Whether the claim would have found a task of this kind."""
        one = Life(0, kind[1], 0, 0, queue=kind[0], max_attempts=1, limits=[name for name, _ in kind[3]])
        return not self.counters_of(one) and self._is_open(one) and _fits(one, request)

    def counters_of(self, life: Life) -> tuple[CounterName, ...]:
        """What a claim of the task would count towards: the limits of the task and of its queue."""
        names = dict.fromkeys([*life.limits, *self.queue_limits.get(life.queue, [])])
        return tuple((name, (life.group or "") if name == PER_GROUP else None) for name in names)

    def figures(self) -> dict[CounterName, tuple[int, int]]:
        """Of each limit and group: the live claims, and the pending tasks."""
        used: Counter[CounterName] = Counter()
        waiting: Counter[CounterName] = Counter()
        for life in self.present():
            if life.state is State.CLAIMED:
                used.update(life.counters)
            elif life.state is State.PENDING:
                waiting.update(self.counters_of(life))
        return {name: (used[name], waiting[name]) for name in {*used, *waiting}}

    def _received(self, request: ModelRequest) -> list[int]:
        """What this worker got under the name of this request, and still holds."""
        return [
            life.number
            for life in self.present()
            if life.state is State.CLAIMED and (life.worker, life.request) == (request.worker, request.request)
            if request.request is not None and life.lease_until is not None and life.lease_until > self.now
            if request.queues is None or life.queue in request.queues
        ]

    def candidates(self, request: ModelRequest) -> list[Life]:
        """What may be claimed now, first things first."""
        for life in self.present():
            if life.waits:
                life.counters = self.counters_of(life)
        fit = [life for life in self.present() if self._claimable(life) and _fits(life, request)]
        return sorted(fit, key=ORDERS.get(request.order, ORDERS["fifo"]))

    def _claimable(self, life: Life) -> bool:
        return life.state is State.PENDING and self._is_open(life) and not self._expired(life)

    def _is_open(self, life: Life) -> bool:
        return life.queue not in self.paused and life.type not in self.paused_types

    def _expired(self, life: Life) -> bool:
        """True if the task was not started by its expiry."""
        not_started = life.waits or (life.state is State.CLAIMED and life.ahead)
        return not_started and life.expires_at is not None and life.expires_at <= self.now

    def _hand_out(self, life: Life, request: ModelRequest) -> None:
        life.counters = self.counters_of(life)
        self.use = self._use()
        self.use.take(life)
        life.token += 1
        life.move(Event.CLAIMED, State.CLAIMED, request.worker)
        life.worker, life.request, life.ahead = request.worker, request.request, request.ahead
        life.claimed_at, life.lease_until = self.now, self.now + round(request.lease * SECOND)
        life.progress = (None, None)

    def claim_by_id(self, number: int, worker: str, lease: float, swept: bool) -> str:
        """ "claimed", or why not. The store may sweep before it says no; then it says it about what it found then."""
        life = self.find(number)
        if life is None:
            self._sweep_if(swept)
            return "task_not_found"
        pending = self.after_sweep(life) is State.PENDING
        claimable = pending and self._is_open(life) and not self._expired(life)
        state = self.after_sweep(life)
        life.counters = self.counters_of(life) if life.waits else life.counters
        if claimable and not self._use_after_sweep(swept).has_room(life):
            self._sweep_if(swept)
            return "limit_reached"
        if claimable:
            self._sweep_if(swept or life.state is not State.PENDING)
            self._hand_out(life, ModelRequest(worker, lease=lease))
            return "claimed"
        self._sweep_if(swept)
        return "already_claimed" if state is State.CLAIMED else "not_claimable"

    def _use_after_sweep(self, swept: bool) -> Use:
        """What the limits have left after the claims whose leases ran out were taken back, if they were."""
        live = [life for life in self.present() if life.state is State.CLAIMED]
        return self.use.at(self.now, [life for life in live if not (swept and self._moves(life))])

    # Finish

    def holds(self, ref: Ref) -> Life | None:
        """The task, if this claim of it is the live one: an expired lease is no end, only its recovery is."""
        life = self.find(ref.number)
        live = life is not None and life.state is State.CLAIMED and (life.token, life.worker) == ref[1:]
        return life if live else None

    def refusal(self, ref: Ref) -> str:
        """What a write about a claim hears that is not live."""
        life = self.find(ref.number)
        if life is None:
            return "task_not_found"
        others = life.token == ref.token and life.worker not in (ref.worker, None)
        return "not_your_claim" if others else "claim_lost"

    def finish_all(self, reports: dict[Ref, Outcome]) -> dict[Ref, Answer | str]:
        """A batch: a repeated outcome is answered with the state after the whole batch."""
        live_first = sorted(reports, key=lambda ref: self.holds(ref) is None)
        return {ref: self.finish(ref, reports[ref]) for ref in live_first}

    def finish(self, ref: Ref, outcome: Outcome) -> Answer | str:
        """Where the task stands then, or why nothing changed."""
        life = self.holds(ref)
        if life is None:
            return self._repeat(ref, outcome) or self.refusal(ref)
        run_at = self._end(life, outcome)
        life.told[ref[1:]] = (outcome, life.state)
        life.leave()
        life.lease_until = None
        life.finished_at = self.now if life.state in ENDED else None
        return Answer(life.state, life.attempts, None if life.state in ENDED else run_at)

    def _end(self, life: Life, outcome: Outcome) -> Between:
        match outcome:
            case Completed(result=result):
                life.attempts, life.result, life.error = life.attempts + 1, result, None
                life.move(Event.COMPLETED, State.COMPLETED, life.worker)
            case Failed():
                return self._fail(life, outcome)
            case Released(delay=delay):
                life.run_at = self.now + round(delay * SECOND)
                back = State.SCHEDULED if life.run_at > self.now else State.PENDING
                self._back(life, Event.RELEASED, back)
                life.expires_at = life.expires_at if life.ahead else None
            case Cancelled():
                life.attempts += 1
                life.move(Event.CANCELLED, State.CANCELLED, life.worker)
        return Between(life.run_at, life.run_at)

    def _fail(self, life: Life, outcome: Failed) -> Between:
        when = self._next_attempt(life, outcome.retry_in)
        last = outcome.permanent or life.attempts_left == 1
        life.attempts += 1
        life.error = (outcome.failure.type, outcome.failure.message)
        life.expires_at = None
        again = State.PENDING if outcome.retry_in == 0 else State.SCHEDULED
        self._back(life, Event.FAILED, State.FAILED if last else again)
        return when

    def _next_attempt(self, life: Life, retry_in: float | None) -> Between:
        if retry_in is not None:
            return Between(*[self.now + round(retry_in * SECOND)] * 2)
        backoff = min(300, 2**life.attempts) * SECOND
        return Between(self.now + int(backoff * (1 - JITTER)), self.now + int(backoff * (1 + JITTER)) + 1)

    def _back(self, life: Life, event: Event, to: State) -> None:
        """Take the task from its worker, with or without a cancel request."""
        if life.cancel_requested:
            life.move(Event.CANCELLED, State.CANCELLED, life.worker)
        else:
            life.move(event, to, life.worker)

    def _repeat(self, ref: Ref, outcome: Outcome) -> Answer | str | None:
        """The same outcome of the same claim is answered as before, if its content is the same."""
        life = self.lives[ref.number] if ref.number < len(self.lives) else None
        if life is None or type(life.told.get(ref[1:], (None,))[0]) is not type(outcome):
            return None
        before, state = life.told[ref[1:]]
        if _differs(before, outcome, life.gone):
            return "outcome_conflict"
        if life.gone:
            return Answer(state, 0, None, repeated=True)
        unmoved = (life.state, life.token) == (state, ref.token) and state not in ENDED
        return Answer(state, life.attempts, Between(life.run_at, life.run_at) if unmoved else None, repeated=True)

    def start(self, ref: Ref) -> str | None:
        """It was claimed ahead, and begins now. None, or why not."""
        life = self.holds(ref)
        if life is None:
            return self.refusal(ref)
        if self._expired(life):
            return "task_expired"
        life.ahead = False
        return None

    def renew(self, ref: Ref, lease: float) -> tuple[int, bool] | str:
        """The new end of the lease and whether to stop, or why not."""
        life = self.holds(ref)
        if life is None:
            return self.refusal(ref)
        life.lease_until = self.now + round(lease * SECOND)
        return life.lease_until, life.cancel_requested

    def note(self, ref: Ref, percent: int, message: str | None) -> bool | str:
        """Whether to stop, or why nothing was noted."""
        life = self.holds(ref)
        if life is None:
            return self.refusal(ref)
        life.progress = (percent, message)
        return life.cancel_requested

    def claim_status(self, ref: Ref) -> str:
        """How the claim stands."""
        life = self.holds(ref)
        return "lost" if life is None else "stopping" if life.cancel_requested else "held"

    # Manage

    def change(self, number: int, *, delay: float | None = None, **values: Any) -> State | str:
        """The state of the task then, or why not."""
        life = self.find(number)
        if life is None:
            return "task_not_found"
        if not life.waits:
            return "already_started" if life.state is State.CLAIMED else "wrong_state"
        if delay is not None:
            values["run_at"] = run_at = self.now + round(delay * SECOND)
            if life.expires_at is not None and run_at != life.run_at and life.expires_at <= run_at:
                return "invalid_value"
        if values.get("queue", life.queue) != life.queue and not key_model.move(self, life, values["queue"]):
            return "key_conflict"
        if all(getattr(life, name) == value for name, value in values.items()):
            return life.state
        vars(life).update(values)
        due = State.SCHEDULED if life.run_at > self.now else State.PENDING
        life.move(Event.CHANGED, life.state if delay is None else due)
        return life.state

    def cancel(self, number: int) -> State | str:
        """The state of the task then, or why not."""
        life = self.find(number)
        if life is None:
            return "task_not_found"
        if life.state in (State.COMPLETED, State.FAILED):
            return "wrong_state"
        if life.state is State.CLAIMED and not life.cancel_requested:
            life.move(Event.CANCEL_REQUESTED, State.CLAIMED, life.worker)
            life.cancel_requested = True
        elif life.waits:
            life.move(Event.CANCELLED, State.CANCELLED)
            life.finished_at = self.now
        return life.state

    def retry(self, number: int) -> State | str:
        """The state of the task then, or why not."""
        life = self.find(number)
        if life is None:
            return "task_not_found"
        if life.state not in (State.FAILED, State.CANCELLED, State.SCHEDULED):
            return "wrong_state"
        life.move(Event.RETRIED, State.PENDING)
        life.attempts, life.cancel_requested = 0, False
        life.run_at, life.finished_at, life.expires_at = self.now, None, None
        life.leave()
        key_model.take_back(self, life)
        return life.state

    def dead(self, queue: str | None = None, type: str | None = None, error: str | None = None) -> list[Life]:
        """What a redrive finds in the dead letter."""
        return [
            life
            for life in self.present()
            if life.state is State.FAILED and life.queue == (queue or life.queue) and life.type == (type or life.type)
            if error is None or (life.error is not None and any(error in text for text in life.error))
        ]

    # Upkeep

    def after_sweep(self, life: Life) -> State:
        """The state that the clock brings the task to."""
        if life.state is State.SCHEDULED and life.run_at <= self.now:
            return State.PENDING
        if life.state is State.CLAIMED and life.lease_until is not None and life.lease_until <= self.now:
            spent = life.attempts_left == 1 and not life.ahead
            return State.CANCELLED if life.cancel_requested else State.FAILED if spent else State.PENDING
        return life.state

    def promote(self) -> int:
        """Due tasks become pending; how many."""
        due = [life for life in self.present() if life.state is State.SCHEDULED and self._moves(life)]
        for life in due:
            life.move(Event.PROMOTED, State.PENDING)
        return len(due)

    def recover(self) -> int:
        """Tasks whose lease ran out are taken back; how many."""
        lost = [life for life in self.present() if life.state is State.CLAIMED and self._moves(life)]
        for life in lost:
            self._take_back(life)
        return len(lost)

    def _take_back(self, life: Life) -> None:
        life.move(Event.RECOVERED, self.after_sweep(life), life.worker)
        if life.ahead:  # it is not known to have started
            life.dropped, life.claimed_at = life.dropped + 1, None
        else:
            life.attempts, life.error, life.expires_at = life.attempts + 1, (LEASE_LOST, _LEASE_LOST), None
        life.finished_at = self.now if life.state in ENDED else None
        life.lease_until, life.ahead = None, False
        life.leave()

    def expire(self, *states: State) -> int:
        """Tasks that wait in one of these states and were not started by their expiry are cancelled; how many."""
        late = [life for life in self.present() if life.state in states and self._expired(life)]
        for life in late:
            life.move(Event.EXPIRED, State.CANCELLED)
            life.error, life.finished_at = (EXPIRED, _EXPIRED), self.now
        return len(late)

    def prune(self) -> int:
        """Ended tasks past their retention are deleted; how many."""
        old = [life for life in self.present() if life.state in ENDED and self._old(life)]
        for life in old:
            life.move(Event.PRUNED, life.state)
            life.gone = True
        return len(old)

    def sweep(self, *also: State) -> tuple[int, int, int]:
        """What claims do in passing; `also`: upkeep expires tasks in these states as well."""
        return self.promote(), self.recover(), self.expire(State.PENDING, *also)

    def _sweep_if(self, swept: bool) -> None:
        if swept:
            self.sweep()

    def _moves(self, life: Life) -> bool:
        return self.after_sweep(life) is not life.state

    def _old(self, life: Life) -> bool:
        assert life.finished_at is not None
        return life.finished_at <= self.now - KEPT[life.state]


def _fits(life: Life, request: ModelRequest) -> bool:
    return (
        (request.queues is None or life.queue in request.queues)
        and (request.types is None or life.type in request.types)
        and life.attempts_left >= (request.max_attempts_remaining or 0)
        and not (request.ahead and life.counters)
    )


def _kind(life: Life) -> Kind:
    return life.queue, life.type, life.group or "", tuple((name, None) for name in life.limits)


_EXPIRED = "The task was not started by its expiry."
_LEASE_LOST = "The lease ran out: the worker died, froze or lost its connection."


def _differs(before: Outcome, outcome: Outcome, gone: bool) -> bool:
    """True if an outcome is repeated with other content; the result of a pruned task cannot be compared."""
    if isinstance(before, Completed) and isinstance(outcome, Completed):
        return not gone and before.result != outcome.result
    if isinstance(before, Failed) and isinstance(outcome, Failed):
        return (before.failure, before.permanent) != (outcome.failure, outcome.permanent)
    return False
