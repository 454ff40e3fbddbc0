"""The worker: starts and stops the lanes and the service threads (claimer, lease keeper, finisher, finalizer, upkeep).

Handlers run in lanes. Everything else runs in plain threads, so that a handler that blocks its thread or its event
loop does not keep the worker from renewing leases and writing outcomes.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import platform
import secrets
import sys
import threading
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec

from dibs.errors import DibsError, InvalidValue, OutcomeUnknown, StoreError
from dibs.handlers.context import Context
from dibs.handlers.handler import Handler, Lane
from dibs.model.claim import Cancelled, Claim, Released
from dibs.model.finalization import unique_processor
from dibs.model.registry import Heartbeat
from dibs.store.contract import Store
from dibs.store.doctor import warn_once
from dibs.version import __version__
from dibs.worker.attempt import Attempt, HeldAttempts, StopReason, now
from dibs.worker.claimer import Claimer
from dibs.worker.config import WorkerConfig, new_worker_id
from dibs.worker.finisher import Finisher
from dibs.worker.lanes import LaneCallbacks, LaneRunner, ThreadLane
from dibs.worker.leases import LeaseKeeper
from dibs.worker.loop_lane import LoopLane
from dibs.worker.progress import ProgressReports
from dibs.worker.service import ServiceThread, Signals
from dibs.worker.store_access import StoreAccess, StoreTaskData
from dibs.worker.upkeep import UpkeepService, WorkflowFinalizer

logger = logging.getLogger("dibs.worker")

REGISTER_ATTEMPTS = 5
"""How often the first heartbeat is sent if the connection breaks each time."""

WATCH_INTERVAL = 0.1
FLUSH_TIMEOUT = 10.0
"""Seconds for a stopping worker to write its last outcomes. A task without a written outcome is recovered when its
lease expires."""


SERVER_FINALIZATION_ALLOWANCE = 1.0
"""Seconds for which a burst waits, after the end of a step, for the server to finalize the workflow of the step."""


class Health(msgspec.Struct, frozen=True):
    """The health of a worker. `held`: number of claimed tasks. `store_silent_for`: seconds since the store last
    answered."""

    worker_id: str
    running: bool
    held: int
    store_silent_for: float


class Worker:
    """Runs the tasks of an application's handlers.

    `run()` works until a signal (or, with `burst`, until nothing is left to claim). `with` and `async with` start the
    worker in the background of another program, for the duration of the block.
    """

    def __init__(
        self,
        store: Store,
        by: str | None,
        handlers: Iterable[Handler[..., Any, Any]],
        config: WorkerConfig,
    ) -> None:
        self.config = config
        self.worker_id = config.worker_id or new_worker_id()
        self._incarnation = secrets.token_hex(8)
        self._handlers = {handler.name: handler for handler in handlers}
        if not self._handlers:
            raise InvalidValue(
                "This worker has nothing to do: there are no handlers.", hint="Declare one with @app.task."
            )
        self._access = StoreAccess(store, by)
        self._task_data = StoreTaskData(store, self._access.run)
        self._signals = Signals()
        self._stopping = threading.Event()
        self._shutting_down = threading.Lock()
        self._exit_code: int | None = None
        self._lanes: list[LaneRunner] = []
        self._services: list[ServiceThread] = []

    # Start, stop, health

    def _register(self) -> None:
        """Send the first heartbeat, which raises for a wrong URL. A heartbeat can be repeated, so a connection that
        breaks during the first one does not end the worker; the store waits for a server that is away."""
        for attempt in itertools.count(1):
            try:
                self._access.run(self._access.store.registry.heartbeat(self._heartbeat(False)))
                return
            except OutcomeUnknown:
                if attempt == REGISTER_ATTEMPTS:
                    raise

    def run(self) -> int:
        """Work until SIGTERM or SIGINT (or `stop`). Returns the exit code: 0, or 1 after a failure."""
        with self._signals.handled():
            self.start()
            self._watch()
            return self._shut_down()

    async def run_async(self) -> int:
        """`run`, with the coroutine handlers on the running event loop."""
        with self._signals.handled():
            await asyncio.to_thread(self.start, asyncio.get_running_loop())
            await asyncio.to_thread(self._watch)
            return await asyncio.to_thread(self._shut_down)

    def start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Start to work in the background. Coroutine handlers run on `loop`; None: on a new event loop in a separate
        thread."""
        if self._services:
            raise InvalidValue("This worker was already started.", hint="Create another worker: app.worker()")
        _refuse_in_child_process()
        self._served = self._access.store.served  # then the server finalizes workflows
        self._last_step_at = -SERVER_FINALIZATION_ALLOWANCE
        processor = unique_processor(self.worker_id)
        self._finalizer = WorkflowFinalizer(self._access, processor)
        self._progress = ProgressReports(self._access)
        finalize = None if self._served else self._finalizer.put
        self._finisher = Finisher(self._access, self._forget, self._progress, finalize)
        self._attempts = HeldAttempts(self._finisher.put)
        self._leases = LeaseKeeper(self._access, self.config.lease, self._attempts, self._progress)
        handlers = list(self._handlers.values())
        self._upkeep = UpkeepService(self._access, self.config, processor, handlers, self._heartbeat)
        self._register()
        warn_once(self._access.store.caution, logger)
        self._open_lanes(loop)
        identity = (self.worker_id, self._incarnation)
        self._claimer = Claimer(
            self._access,
            self.config,
            identity,
            self._lanes,
            on_claimed=self._receive,
            release=self._release,
            idle=self._idle,
        )
        finalizer = [] if self._served else [self._finalizer]
        self._services = [*finalizer, self._finisher, self._leases, self._upkeep, self._claimer]
        about = self._about("started", queues=self.config.queues, task_types=list(self._handlers))
        logger.info("worker %s starts: %s", self.worker_id, self._describe(), extra=about)
        for service in self._services:
            service.start()

    def stop(self, grace: float | None = None) -> int:
        """Claim nothing more, let running tasks end within the grace period, release the rest. Returns the exit
        code."""
        self._stopping.set()
        return self._shut_down(grace)

    @property
    def health(self) -> Health:
        """The health of the worker, for a health check or a metric."""
        alive = bool(self._services) and all(service.alive for service in self._services)
        held = len(self._attempts) if self._services else 0
        return Health(self.worker_id, alive, held, self._access.silent_for)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start, asyncio.get_running_loop())
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        await asyncio.to_thread(self.stop)

    # Assembly

    def _open_lanes(self, loop: asyncio.AbstractEventLoop | None) -> None:
        callbacks = LaneCallbacks(self._may_begin, self._ended, self._room, self._task_data)
        if handlers := self._in(Lane.PROCESS):  # first, because this lane may refuse a handler
            from dibs.worker.process_lane import ProcessLane

            names = [handler.name for handler in handlers]
            self._lanes.append(ProcessLane(names, callbacks, self.config, handlers))
        if handlers := self._in(Lane.THREAD):
            names = [handler.name for handler in handlers]
            self._lanes.append(ThreadLane(names, self.config.concurrency, callbacks))
        if handlers := self._in(Lane.LOOP):
            names = [handler.name for handler in handlers]
            self._lanes.append(LoopLane(names, self.config.concurrency, callbacks, loop))

    def _in(self, lane: Lane) -> list[Handler[..., Any, Any]]:
        return [handler for handler in self._handlers.values() if handler.lane is lane]

    def _describe(self) -> str:
        queues = "all queues" if self.config.queues is None else f"queues {', '.join(self.config.queues)}"
        return f"{', '.join(self._handlers)} of {queues}"

    def _about(self, event: str, **more: Any) -> dict[str, Any]:
        return {"event": f"worker.{event}", "worker_id": self.worker_id, **more}

    def _heartbeat(self, leaving: bool) -> Heartbeat:
        return Heartbeat(
            worker_id=self.worker_id,
            incarnation=self._incarnation,
            queues=self.config.queues,
            types=list(self._handlers),
            metadata={
                "pid": os.getpid(),
                "host": platform.node(),
                "python": platform.python_version(),
                "dibs": __version__,
                "concurrency": self.config.concurrency,
                "held": len(self._attempts),
            },
            leaving=leaving,
        )

    # Callbacks of lanes and service threads

    def _receive(self, claims: Sequence[Claim], lane: LaneRunner, ahead: bool) -> list[Attempt]:
        moment = now()
        attempts = [Attempt(self._context(claim), self._handlers[claim.task.type], moment, ahead) for claim in claims]
        self._attempts.hold(attempts)
        if logger.isEnabledFor(logging.DEBUG):
            for attempt in attempts:
                logger.debug("%r is claimed", attempt, extra=attempt.log_fields("task.claimed"))
        return attempts

    def _context(self, claim: Claim) -> Context:
        return Context(claim, self._progress.add, self._task_data)

    def _may_begin(self, attempt: Attempt) -> bool:
        """Whether the handler may start.

        False if the claim is lost, or if the lease expired while the attempt waited: another worker may run the task by
        now. False also for a task that was cancelled in the meantime, because its handler would not be notified.
        """
        if attempt.context.cancelled:
            self._attempts.settle(attempt, Cancelled())
        elif now() - attempt.renewed_at >= self.config.lease:
            self._attempts.settle(attempt, Released())
        return not attempt.settled and (not attempt.suspect or self._record_start(attempt))

    def _record_start(self, attempt: Attempt) -> bool:
        """Record the start of a suspect (see Attempt.suspect) in the store. False if that fails: it must not start.

        Finished outcomes are written first: if the suspect kills the worker, no other task loses its outcome.
        """
        self._finisher.wait_until_written(FLUSH_TIMEOUT)
        try:
            refused = self._access.run(self._access.store.queue.start([attempt.claim]))[0]
        except StoreError:
            self._attempts.settle(attempt, Released())
            return False
        if refused is not None:
            self._forget([attempt])
        return refused is None

    def _ended(self, attempt: Attempt, outcome: Any) -> None:
        self._attempts.settle(attempt, outcome)

    def _idle(self) -> bool:
        """True when nothing in this worker can make another task claimable."""
        return not len(self._attempts) and self._finalizer.idle and not self._upkeep.in_round

    def _room(self) -> None:
        self._claimer.room()

    def _release(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            self._attempts.settle(attempt, Released())

    def _forget(self, attempts: Sequence[Attempt]) -> None:
        if self._served and any(attempt.claim.task.workflow_id is not None for attempt in attempts):
            self._last_step_at = now()
        self._attempts.forget(attempts)
        if self.config.burst and not len(self._attempts):
            # a burst ends after a round of claims that finds nothing while the worker holds nothing
            self._claimer.wake()

    # Shutdown

    def _watch(self) -> None:
        """Wait for a request to stop, the end of a burst, or the death of a service thread (a bug, which is logged)."""
        while not self._stopping.wait(WATCH_INTERVAL):
            if self.config.burst and self._nothing_is_left():
                logger.info("worker %s: nothing is left to claim", self.worker_id, extra=self._about("drained"))
                return
            if self._signals.count:
                held, grace = len(self._attempts), self.config.grace
                about = self._about("stop_requested", held=held, grace=grace)
                logger.info(
                    "worker %s stops: %d running tasks have %g s to end", self.worker_id, held, grace, extra=about
                )
                return
            if dead := [service.name for service in self._services if not service.alive]:
                about = self._about("part_died", parts=dead)
                logger.critical(
                    "worker %s stops: these service threads died: %s", self.worker_id, ", ".join(dead), extra=about
                )
                return

    def _nothing_is_left(self) -> bool:
        """True when a round of claims found nothing and began after the last event that could make a task claimable."""
        claimed_at = self._claimer.dry_since
        last_change = max(
            self._finalizer.done_at, self._upkeep.changed_at, self._last_step_at + SERVER_FINALIZATION_ALLOWANCE
        )
        if claimed_at is None or not self._idle() or claimed_at <= last_change:
            return False
        if self._served:
            return True
        try:
            return not self._finalizer.queue_due()  # such as a workflow whose processor died before this worker started
        except StoreError:
            return False

    def _shut_down(self, grace: float | None = None) -> int:
        """Shut down once. A second call, from any thread, waits for the first and returns the same exit code."""
        if not self._services:
            return 0
        with self._shutting_down:
            if self._exit_code is None:
                self._exit_code = self._stop_all(grace)
        return self._exit_code

    def _stop_all(self, grace: float | None) -> int:
        died = not all(service.alive for service in self._services)
        self._claimer.end(FLUSH_TIMEOUT)
        for lane in self._lanes:
            self._release(lane.take_back(now()))
        self._wait_for_tasks(self.config.grace if grace is None else grace)
        self._release_unsettled()
        unwritten = not self._attempts.wait_until_none(FLUSH_TIMEOUT)
        self._finalizer.wait_until_idle(FLUSH_TIMEOUT)  # upkeep of any process finalizes the rest
        for service in (self._finisher, self._finalizer, self._leases, self._upkeep):
            service.end(FLUSH_TIMEOUT)
        self._send_last_heartbeat()  # after all other heartbeats
        for lane in self._lanes:
            lane.close()
        if unwritten:
            logger.error(
                "worker %s could not write %d outcomes; their tasks are recovered when their leases expire",
                self.worker_id,
                len(self._attempts),
                extra=self._about("left_unwritten", held=len(self._attempts)),
            )
        logger.info("worker %s has stopped", self.worker_id, extra=self._about("stopped"))
        return 1 if died or unwritten else 0

    def _wait_for_tasks(self, grace: float) -> None:
        ends = now() + grace
        while (left := ends - now()) > 0 and self._signals.count < 2:
            if self._attempts.wait_until_none(min(left, WATCH_INTERVAL)):
                return

    def _release_unsettled(self) -> None:
        for attempt in self._attempts.unsettled():
            if self._attempts.settle(attempt, Released()):
                about = attempt.log_fields("task.interrupted")
                logger.warning("%r is released: it did not end within the grace period", attempt, extra=about)
                attempt.stop(StopReason.SHUTDOWN)

    def _send_last_heartbeat(self) -> None:
        try:
            self._upkeep.leave()
        except DibsError as error:
            logger.debug("the stop of the worker could not be recorded: %s", error.message)


def _refuse_in_child_process() -> None:
    """Refuse to start in a child of a process lane, which imports the parent's main module: the worker would never
    end."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is not None and getattr(multiprocessing.current_process(), "_inheriting", False):
        raise InvalidValue(
            "A worker cannot start in a child process of another worker.",
            hint='Start the worker under `if __name__ == "__main__":`, or with the command `dibs worker MODULE:APP`.',
        )
