"""The poller: a plain loop that claims a task, calls a function with the task and writes the outcome, one by one.

The poller is for programs that need neither handlers nor concurrency. While there is no task, the loop pauses, each
time for longer; a wake-up of the store ends the pause. The service threads of a worker run beside the callback, so
leases are renewed and outcomes are written as reliably as in a worker. `PollerConfig` and `TaskPoller` are public.

Keep three properties when you change the loop: no error of the callback or of the store ends the loop; the loop claims
the next task only after the outcome of the task before is written; `stop` only sets a flag, because a signal handler
may call it.
"""

from __future__ import annotations

import copy
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
from dibs.handlers.handler import AnyHandler, HandlerBase, Lane
from dibs.interrupts import in_wait
from dibs.model.checks import check_seconds, check_worker_id
from dibs.model.claim import DEFAULT_LEASE, Claim, ClaimRequest, Filters, Order, Released, check_lease
from dibs.model.finalization import unique_processor
from dibs.model.registry import Heartbeat
from dibs.procedures import DueWaits, claim_now
from dibs.version import __version__
from dibs.worker.attempt import Attempt, HeldAttempts, now
from dibs.worker.declaring import declare
from dibs.worker.finisher import Finisher
from dibs.worker.leases import LeaseKeeper
from dibs.worker.progress import ProgressReports
from dibs.worker.run import perform
from dibs.worker.service import ServiceThread, retry_delay
from dibs.worker.store_access import StoreAccess, StoreTaskData
from dibs.worker.upkeep import WorkflowFinalizer

logger = logging.getLogger("dibs.worker")

HEARTBEAT_INTERVAL = 30.0
"""Seconds between two heartbeats."""

STOP_CHECK_INTERVAL = 0.25
"""Seconds between two checks during a pause whether `stop` was called: `stop` sets a flag and wakes no thread."""

USELESS_WAKEUP_DELAY = 0.05
"""Seconds to wait if two wake-ups in a row led to no task: other workers claimed the new tasks, or the new tasks do not
pass the filters. The wait limits the rate of useless claims."""

FLUSH_TIMEOUT = 10.0
"""Seconds for a stopping poller to write its last outcome. A task without a written outcome is recovered when its lease
expires."""

Callback = Callable[..., Any]
"""A function of the task, or of the task and its context. Its return value is the result of the task."""


class PollerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a poller. Durations are in seconds."""

    poll_interval: float = 5.0
    """The pause after the first claim that finds no task. A wake-up of the store ends every pause at once."""

    max_backoff: float = 60.0
    """The longest pause."""

    backoff_multiplier: float = 1.5
    """The factor by which a pause is longer than the pause before, while claims find no task."""

    priority_enabled: bool = True
    """Claim the highest priority first; `order` then applies within a priority."""

    order: str = Order.LIFO
    """Which pending task is claimed first: "lifo" (newest) or "fifo" (oldest). Any other order ignores
    `priority_enabled`."""

    queues: Sequence[str] | None = None
    """Queues to claim from; None: all."""

    types: Sequence[str] | None = None
    """Task types to claim; None: all."""

    lease: float = DEFAULT_LEASE
    """How long a claim stays valid without a renewal. While the callback runs, the lease is renewed whenever a third of
    the lease has passed."""

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
        """The order of the claims: `order`, within a priority if `priority_enabled`."""
        return _WITHIN_PRIORITY.get(self.order, self.order) if self.priority_enabled else self.order

    def pause(self, empty_claims: int) -> float:
        """Seconds to wait after `empty_claims` claims in a row that found no task."""
        return min(self.max_backoff, self.poll_interval * self.backoff_multiplier ** min(empty_claims - 1, 100))


_WITHIN_PRIORITY: dict[str, str] = {Order.LIFO: Order.PRIORITY_LIFO, Order.FIFO: Order.PRIORITY}
"""The order that claims the highest priority first, and within a priority in the order of the key."""


class TaskPoller:
    """Calls a function with each claimed task, one after the other, until `stop`."""

    def __init__(self, app: Dibs, worker_id: str, config: PollerConfig | None = None) -> None:
        self.worker_id = check_worker_id(worker_id)
        self.config = config or PollerConfig()
        self._incarnation = secrets.token_hex(8)
        self._access = StoreAccess(app._store, app._by)
        self._app = app
        self._declared = False
        self._stopping = False
        self._empty_claims = 0
        self._due_waits = DueWaits(coarse=STOP_CHECK_INTERVAL)
        self._woken_without_task = False

    def poll_loop(self, callback: Callback) -> int:
        """Call `callback(task)`, or `callback(task, context)` if it needs two arguments, for each task until `stop`.

        Returns the number of calls. The return value of the callback is the task's result; an exception fails the task
        (or ends the attempt in another way: Retry, Snooze, Permanent, Cancel). Neither an exception nor a lost claim
        nor an outage of the store ends the loop.
        """
        handlers = _CallbackHandlers(callback, self._app)
        ran = failures = 0
        with _BackgroundServices(self._access, self.worker_id, self.config.lease, self._send_heartbeat) as services:
            while not self._stopping:
                try:
                    claim = self._claim_or_pause()
                    failures = 0
                except StoreError:  # logged by StoreAccess
                    failures += 1
                    time.sleep(retry_delay(failures))
                    continue
                except KeyboardInterrupt as interrupt:  # hide the frames of dibs, which do not help the user
                    raise in_wait(interrupt).with_traceback(None) from None
                if claim is not None:
                    services.run(handlers.of(claim.task.type), claim)
                    self._wait_until_written(services.attempts)
                    ran += 1
        return ran

    def claim_next_task(self) -> Claim | None:
        """Claim the next task; None if there is none. For programs with their own loop, which must finish the claim.

        Before the first claim, the limits that the program declares are stored, as by a worker."""
        if not self._declared:
            self._declare()
        request = ClaimRequest(
            worker_id=self.worker_id,
            incarnation=self._incarnation,
            queues=self.config.queues,
            types=self.config.types,
            order=self.config.claim_order,
            lease=self.config.lease,
        )
        claims = self._access.follow(claim_now(self._access.store, request))
        return claims[0] if claims else None

    def update_heartbeat(self) -> None:
        """Send a heartbeat. `poll_loop` sends one every 30 seconds, also while the callback runs."""
        self._send_heartbeat(leaving=False)

    def stop(self) -> None:
        """End the loop after the current task. Any thread and any signal handler may call this method. A stopped poller
        cannot be started again."""
        self._stopping = True

    def _declare(self) -> None:
        declarations = self._app._declarations()
        if declarations.any:
            declare(self._access, declarations)
        self._declared = True

    def _claim_or_pause(self) -> Claim | None:
        # The generation is read before the claim, so that a task that is enqueued during the claim ends the pause.
        seen = self._access.store.wakeups.generation
        claim = self.claim_next_task()
        if claim is None:
            self._due_waits.claimed(False)
            self._pause(seen)
        else:
            self._due_waits.claimed(True)
            self._empty_claims, self._woken_without_task = 0, False
        return claim

    def _pause(self, seen: int) -> None:
        """Wait until a wake-up after generation `seen`, until the pause is over, or until `stop`."""
        wakeups, ends = self._access.store.wakeups, now() + self._seconds_to_wait()
        while not self._stopping and wakeups.generation == seen and (left := ends - now()) > 0:
            wakeups.wait(seen, min(left, STOP_CHECK_INTERVAL))
        woken = wakeups.generation != seen
        if woken:
            self._due_waits.woken()
        if not woken:
            self._empty_claims += 1
        elif self._woken_without_task:
            time.sleep(USELESS_WAKEUP_DELAY)
        self._woken_without_task = woken

    def _seconds_to_wait(self) -> float:
        """The length of the pause, which ends earlier if a task becomes due or a lease ends in the meantime."""
        pause = self.config.pause(self._empty_claims + 1) * random.uniform(0.9, 1.1)
        due = self._access.run(self._access.store.upkeep.next_due())
        return self._due_waits.seconds(due, pause)

    def _wait_until_written(self, attempts: HeldAttempts) -> None:
        while not attempts.wait_until_none(STOP_CHECK_INTERVAL) and not self._stopping:
            pass  # the finisher repeats the write until the store responds

    def _send_heartbeat(self, leaving: bool) -> None:
        process = {
            "pid": os.getpid(),
            "host": platform.node(),
            "python": platform.python_version(),
            "dibs": __version__,
        }
        heartbeat = Heartbeat(
            worker_id=self.worker_id,
            incarnation=self._incarnation,
            queues=self.config.queues,
            types=self.config.types,
            metadata=process,
            leaving=leaving,
        )
        self._access.run(self._access.store.registry.heartbeat(heartbeat))


class _BackgroundServices:
    """The service threads beside the callback: they renew leases, write outcomes and send heartbeats."""

    def __init__(self, access: StoreAccess, worker_id: str, lease: float, heartbeat: Callable[[bool], None]) -> None:
        served = access.store.served  # a server finalizes the workflows of its store
        self._finalizer = WorkflowFinalizer(access, unique_processor(worker_id))
        self._progress = ProgressReports(access)
        finisher = Finisher(access, self._forget, self._progress, None if served else self._finalizer.put)
        self.attempts = HeldAttempts(finisher.put)
        self._leases = LeaseKeeper(access, lease, self.attempts, self._progress)
        self._services = (*(() if served else (self._finalizer,)), finisher, self._leases, _HeartbeatService(heartbeat))
        self._task_data = StoreTaskData(access.store, access.run)
        self._send_heartbeat = heartbeat

    def run(self, handler: AnyHandler, claim: Claim) -> None:
        attempt = Attempt(Context(claim, self._progress.add, self._task_data), handler, now(), ahead=False)
        self.attempts.hold([attempt])
        attempt.begun_at = now()
        with attempt.traced():
            outcome = perform(handler, attempt.context)
        if not self.attempts.decide(attempt, outcome):
            logger.warning(
                "%r ended after its timeout or the loss of its claim; its outcome is discarded",
                attempt,
                extra=attempt.log_fields("task.came_late"),
            )

    def _forget(self, attempts: Sequence[Attempt]) -> None:
        self.attempts.forget(attempts)

    def __enter__(self) -> Self:
        for service in self._services:
            service.start()
        return self

    def __exit__(self, *error: object) -> None:
        for attempt in self.attempts.undecided():  # Ctrl-C has interrupted the callback
            self.attempts.decide(attempt, Released())
        if not self.attempts.wait_until_none(FLUSH_TIMEOUT):
            logger.error(
                "%r: the outcome is not written; the task is recovered when its lease expires", self.attempts.all()
            )
        self._finalizer.wait_until_idle(FLUSH_TIMEOUT)  # the upkeep of other processes finalizes what is left
        for service in self._services:
            service.end(FLUSH_TIMEOUT)
        try:
            self._send_heartbeat(True)
        except DibsError as reason:
            logger.debug("the stop of the poller could not be recorded: %s", reason.message)


class _HeartbeatService(ServiceThread):
    name = "heartbeat"

    def __init__(self, heartbeat: Callable[[bool], None]) -> None:
        super().__init__()
        self._send_heartbeat = heartbeat
        self._woken = threading.Event()

    def wake(self) -> None:
        """See ServiceThread."""
        self._woken.set()

    def step(self) -> None:
        """Send a heartbeat and wait."""
        self._send_heartbeat(False)
        self._woken.wait(HEARTBEAT_INTERVAL)


class _CallbackHandlers:
    """Handlers that call the callback, so that `perform` runs the callback like the handler of a worker: for each codec
    that the app has for a task type, and one without."""

    def __init__(self, callback: Callback, app: Dibs) -> None:
        self._app = app
        self._handler = _as_handler(callback, app)

    def of(self, type_name: str) -> AnyHandler:
        """The handler for tasks of this type."""
        declared = self._app.handlers.get(type_name)
        codecs = self._app.codecs if declared is None else declared.codecs
        if codecs is self._handler.codecs:
            return self._handler
        handler = copy.copy(self._handler)
        handler.codecs = codecs
        return handler


def _as_handler(callback: Callback, app: Dibs) -> AnyHandler:
    with_context = _needs_context(callback)

    def call(ctx: Context, **params: Any) -> Any:
        return callback(ctx.task, ctx) if with_context else callback(ctx.task)

    name = getattr(callback, "__name__", type(callback).__name__)
    return HandlerBase(name, call, lane=Lane.THREAD, app=None, defaults={}, siblings=app.handlers)


def _needs_context(callback: Callback) -> bool:
    """True if the callback cannot be called with the task alone. InvalidValue if it takes neither one nor two
    arguments."""
    try:
        signature = inspect.signature(callback)
    except ValueError:  # some functions written in C have no signature
        return False
    for count in (1, 2):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        return count == 2
    raise InvalidValue(f"{callback!r} takes {signature}.", hint="A callback takes (task) or (task, context).")
