"""The plain loop: claim a task, call back with it, write how that ended, back off while there is nothing.

For programs that want no handlers and no concurrency, only "call this function with each task". Beside the callback
run the worker's own parts, so the lease is kept and the outcome written as surely as in a worker.
"""

from __future__ import annotations

import inspect
import logging
import os
import platform
import random
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

import msgspec

from dibs.client import Dibs
from dibs.errors import DibsError, InvalidValue, StoreError
from dibs.handlers.context import Context
from dibs.handlers.handler import Handler, Lane
from dibs.model.checks import check_seconds, check_worker_id
from dibs.model.claim import DEFAULT_LEASE, Claim, ClaimRequest, Filters, Order, Released, check_lease
from dibs.model.finalization import unique_processor
from dibs.model.registry import Heartbeat
from dibs.procedures import claim_now
from dibs.version import __version__
from dibs.worker.attempt import Attempt, Attempts, now
from dibs.worker.finalizer import Finalizer
from dibs.worker.finisher import Finisher
from dibs.worker.leases import Leases
from dibs.worker.progress import Notes
from dibs.worker.run import perform
from dibs.worker.service import Part, rest
from dibs.worker.store_access import Contact, StoreShelf

logger = logging.getLogger("dibs.worker")

BEAT_EVERY = 30.0
LOOK_UP = 0.25
"""Seconds after which a pause looks whether `stop` was called: a signal handler may only set a flag."""

VAIN = 0.05
"""Seconds to rest when wake-ups keep bringing nothing: others are quicker, or they were not for us."""

FLUSH_WITHIN = 10.0
"""Seconds that a stopping poller takes to write its last outcome; what is not written comes back with its lease."""

Callback = Callable[..., Any]
"""Called with the task, or with the task and its context; what it returns is the result."""


class PollerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a poller polls. Times are seconds."""

    poll_interval: float = 5.0
    """The pause after the first look that finds nothing. A wake-up of the store ends any pause at once."""

    max_backoff: float = 60.0
    """The longest pause."""

    backoff_multiplier: float = 1.5
    """Each further pause in a row is so many times as long as the one before."""

    priority_enabled: bool = True
    """Highest priority first; `order` then holds within a priority."""

    order: str = Order.LIFO
    """Which pending task comes first: "lifo" (newest) or "fifo" (oldest); any other order is taken as it is."""

    queues: Sequence[str] | None = None
    """Only tasks of these queues; None: of all."""

    types: Sequence[str] | None = None
    """Only tasks of these types; None: of all."""

    lease: float = DEFAULT_LEASE
    """How long a claim holds if the program falls silent; renewed every third of it while the callback runs."""

    def __post_init__(self) -> None:
        Filters(queues=self.queues, types=self.types, order=self.order)
        check_seconds(self.poll_interval, "poll_interval", least=0.01)
        check_seconds(self.max_backoff, "max_backoff", least=self.poll_interval)
        if type(self.backoff_multiplier) not in (int, float) or not 1 <= self.backoff_multiplier <= 100:
            raise InvalidValue(f"backoff_multiplier must be between 1 and 100, not {self.backoff_multiplier!r}.")
        if type(self.priority_enabled) is not bool:
            raise InvalidValue(f"priority_enabled must be True or False, not {self.priority_enabled!r}.")
        check_lease(self.lease)
        if self.lease < 1:
            raise InvalidValue(f"A poller's lease must be at least 1 second, not {self.lease}.")

    @property
    def claim_order(self) -> str:
        """The order in which tasks are claimed."""
        return _WITHIN_PRIORITY.get(self.order, self.order) if self.priority_enabled else self.order

    def pause(self, empty_looks: int) -> float:
        """Seconds to wait after so many looks in a row that found nothing."""
        return min(self.max_backoff, self.poll_interval * self.backoff_multiplier ** min(empty_looks - 1, 100))


_WITHIN_PRIORITY: dict[str, str] = {Order.LIFO: Order.PRIORITY_LIFO, Order.FIFO: Order.PRIORITY}


class TaskPoller:
    """Calls a function with each task, one after the other, until it is stopped."""

    def __init__(self, app: Dibs, worker_id: str, config: PollerConfig | None = None) -> None:
        self.worker_id = check_worker_id(worker_id)
        self.config = config or PollerConfig()
        self._incarnation = secrets.token_hex(8)
        self._contact = Contact(app._store, app._by)
        self._stopping = False
        self._empty_looks = 0
        self._in_vain = False

    def poll_loop(self, callback: Callback) -> int:
        """Call `callback(task)`, or `callback(task, context)` if it needs two arguments, until `stop`; how often.

        What it returns is the task's result, what it raises fails the task (or ends it otherwise: Retry, Snooze,
        Permanent, Cancel). Neither that nor a lost claim nor an outage of the store ends the loop.
        """
        handler = _as_handler(callback)
        ran = failures = 0
        with _Beside(self._contact, self.worker_id, self.config.lease, self._beat) as beside:
            while not self._stopping:
                try:
                    claim = self._claim_or_pause()
                    failures = 0
                except StoreError:  # the contact has told, once for all
                    failures += 1
                    time.sleep(rest(failures))
                    continue
                except KeyboardInterrupt as interrupt:  # where in the library it came says nothing to the program
                    raise interrupt.with_traceback(None) from None
                if claim is not None:
                    beside.run(handler, claim)
                    self._wait_until_written(beside.attempts)
                    ran += 1
        return ran

    def claim_next_task(self) -> Claim | None:
        """Claim the next task, or None: for a loop of your own, which then finishes what it claims."""
        request = ClaimRequest(
            worker_id=self.worker_id,
            incarnation=self._incarnation,
            queues=self.config.queues,
            types=self.config.types,
            order=self.config.claim_order,
            lease=self.config.lease,
        )
        claims = self._contact.follow(claim_now(self._contact.store, request))
        return claims[0] if claims else None

    def update_heartbeat(self) -> None:
        """Note that this poller lives. `poll_loop` does so by itself every 30 seconds, also while the callback runs."""
        self._beat(leaving=False)

    def stop(self) -> None:
        """End the loop after the current task; from any thread, or a signal handler. A stopped poller stays so."""
        self._stopping = True

    def _claim_or_pause(self) -> Claim | None:
        seen = self._contact.store.wakeups.generation  # before looking: a task that comes while we look wakes us
        claim = self.claim_next_task()
        if claim is None:
            self._pause(seen)
        else:
            self._empty_looks, self._in_vain = 0, False
        return claim

    def _pause(self, seen: int) -> None:
        wakeups, ends = self._contact.store.wakeups, now() + self._seconds_to_wait()
        while not self._stopping and wakeups.generation == seen and (left := ends - now()) > 0:
            wakeups.wait(seen, min(left, LOOK_UP))
        woken = wakeups.generation != seen
        if not woken:
            self._empty_looks += 1
        elif self._in_vain:
            time.sleep(VAIN)
        self._in_vain = woken

    def _seconds_to_wait(self) -> float:
        pause = self.config.pause(self._empty_looks + 1) * random.uniform(0.9, 1.1)
        due = self._contact.run(self._contact.store.upkeep.next_due())
        return pause if due is None else min(pause, max(due, LOOK_UP))  # overdue: it is not for us

    def _wait_until_written(self, attempts: Attempts) -> None:
        while not attempts.wait_until_none(LOOK_UP) and not self._stopping:
            pass  # the finisher tries until the store answers

    def _beat(self, leaving: bool) -> None:
        about = {"pid": os.getpid(), "host": platform.node(), "python": platform.python_version(), "dibs": __version__}
        beat = Heartbeat(
            worker_id=self.worker_id,
            incarnation=self._incarnation,
            queues=self.config.queues,
            types=self.config.types,
            metadata=about,
            leaving=leaving,
        )
        self._contact.run(self._contact.store.registry.heartbeat(beat))


class _Beside:
    """What goes on beside the callback: the lease is renewed, the outcome written, the heart beats."""

    def __init__(self, contact: Contact, worker_id: str, lease: float, beat: Callable[[bool], None]) -> None:
        served = contact.store.served  # then the server sees to the end of workflows
        self._finalizer = Finalizer(contact, unique_processor(worker_id))
        self._notes = Notes(contact)
        finisher = Finisher(contact, self._forget, self._notes, None if served else self._finalizer.put)
        self.attempts = Attempts(finisher.put)
        self._leases = Leases(contact, lease, self.attempts, self._notes)
        self._parts = (*(() if served else (self._finalizer,)), finisher, self._leases, _Heart(beat))
        self._shelf = StoreShelf(contact.store, contact.run)
        self._beat = beat

    def run(self, handler: Handler[..., Any, Any], claim: Claim) -> None:
        attempt = Attempt(Context(claim, self._notes.note, self._shelf), handler, now(), ahead=False)
        self.attempts.hold([attempt])
        attempt.begun_at = now()
        with attempt.traced():
            outcome = perform(handler, attempt.context)
        if not self.attempts.settle(attempt, outcome):
            logger.warning(
                "%r ended after its timeout, or its claim's loss; what it did is not counted",
                attempt,
                extra=attempt.about("task.came_late"),
            )

    def _forget(self, attempts: Sequence[Attempt]) -> None:
        self.attempts.forget(attempts)

    def __enter__(self) -> Self:
        for part in self._parts:
            part.start()
        return self

    def __exit__(self, *error: object) -> None:
        for attempt in self.attempts.unsettled():  # Ctrl-C in the middle of it
            self.attempts.settle(attempt, Released())
        if not self.attempts.wait_until_none(FLUSH_WITHIN):
            logger.error("%r: the outcome is not written; the task comes back when its lease ends", self.attempts.all())
        self._finalizer.wait_until_idle(FLUSH_WITHIN)  # what it does not get to is for any upkeep to find
        for part in self._parts:
            part.end(FLUSH_WITHIN)
        try:
            self._beat(True)
        except DibsError as reason:
            logger.debug("no goodbye: %s", reason.message)


class _Heart(Part):
    name = "heart"

    def __init__(self, beat: Callable[[bool], None]) -> None:
        super().__init__()
        self._beat = beat
        self._woken = threading.Event()

    def wake(self) -> None:
        """See Part."""
        self._woken.set()

    def step(self) -> None:
        """Beat once."""
        self._beat(False)
        self._woken.wait(BEAT_EVERY)


def _as_handler(callback: Callback) -> Handler[..., Any, None]:
    with_context = _needs_context(callback)

    def call(ctx: Context, **params: Any) -> Any:
        return callback(ctx.task, ctx) if with_context else callback(ctx.task)

    name = getattr(callback, "__name__", type(callback).__name__)
    return Handler(name, call, lane=Lane.THREAD, submit=lambda task: None, defaults={})


def _needs_context(callback: Callback) -> bool:
    try:
        signature = inspect.signature(callback)
    except ValueError:  # some functions written in C do not say what they take
        return False
    for count in (1, 2):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        return count == 2
    raise InvalidValue(f"{callback!r} takes {signature}.", hint="A callback takes (task) or (task, context).")
