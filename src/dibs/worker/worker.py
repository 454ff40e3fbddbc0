"""The worker: starts and stops the lanes and the service threads (claimer, lease keeper, finisher, finalizer, upkeep).

Handlers run in lanes. Everything else runs in plain threads, so that a handler that blocks its thread or its event
loop does not keep the worker from renewing leases and writing outcomes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import platform
import secrets
import sys
import threading
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from dibs.errors import DibsError, InvalidValue, OutcomeUnknown, StoreError, TaskExpired
from dibs.handlers.context import Context
from dibs.handlers.handler import AnyHandler, Lane
from dibs.handlers.hooks import AppHooks
from dibs.model.claim import Cancelled, Claim, Released
from dibs.model.declaration import Declarations
from dibs.model.finalization import unique_processor
from dibs.model.registry import Heartbeat
from dibs.store.contract import Store
from dibs.store.doctor import warn_once
from dibs.version import __version__
from dibs.worker.attempt import Attempt, Batch, HandlerCall, HeldAttempts, StopReason, now
from dibs.worker.claimer import Claimer
from dibs.worker.config import WorkerConfig, new_worker_id
from dibs.worker.declaring import declare, schemas_of
from dibs.worker.finisher import Finisher
from dibs.worker.lanes import LaneCallbacks, LaneRunner, ThreadLane
from dibs.worker.leases import LeaseKeeper
from dibs.worker.loop_lane import LoopLane
from dibs.worker.progress import ProgressReports
from dibs.worker.service import ServiceThread, Signals
from dibs.worker.store_access import StoreAccess, StoreTaskData
from dibs.worker.upkeep import UpkeepService, WorkflowFinalizer

if TYPE_CHECKING:
    from dibs.worker.batch_lane import BatchLane
    from dibs.worker.figures import OutcomeTotals, WaitingReader, WorkerFigures
    from dibs.worker.hook_runner import HookRunner
    from dibs.worker.lifespan import RunningLifespan
    from dibs.worker.log_writer import LogWriter
    from dibs.worker.queue_bounds import QueueBounds

logger = logging.getLogger("dibs.worker")

REGISTER_ATTEMPTS = 5
"""How often the first heartbeat and the declarations are sent if the connection breaks each time."""

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
        handlers: Iterable[AnyHandler],
        config: WorkerConfig,
        declarations: Declarations,
        *,
        hooks: AppHooks | None = None,
    ) -> None:
        self.config = config
        self.worker_id = config.worker_id or new_worker_id()
        self._incarnation = secrets.token_hex(8)
        self._handlers = {handler.name: handler for handler in handlers}
        if not self._handlers:
            raise InvalidValue(
                "This worker has nothing to do: there are no handlers.", hint="Declare one with @app.task."
            )
        self._declarations = declarations
        self._access = StoreAccess(store, by)
        self._task_data = StoreTaskData(store, self._access.run)
        self._signals = Signals()
        self._stopping = threading.Event()
        self._shutting_down = threading.Lock()
        self._exit_code: int | None = None
        self._lanes: list[LaneRunner] = []
        self._bounds: QueueBounds | None = None
        self._batch_lanes: list[BatchLane] = []
        self._services: list[ServiceThread] = []
        self.totals: OutcomeTotals | None = None
        """Set before the start, it counts the outcomes."""
        self._hooks = hooks
        self._hook_runner: HookRunner | None = None
        self._lifespan: RunningLifespan | None = None
        self._log_writer: LogWriter | None = None

    # Start, stop, health

    def _register(self) -> None:
        """Send the first heartbeat, which raises for a wrong URL, and store what the program declares. Both can be
        repeated, so a connection that breaks meanwhile does not end the worker; the store waits for a server that is
        away."""
        handlers = self._handlers.values()
        schedules = [schedule for handler in handlers if (schedule := handler.schedule) is not None]
        schemas = schemas_of(handlers)
        for attempt in itertools.count(1):
            try:
                self._access.run(self._access.store.registry.heartbeat(self._heartbeat(False)))
                declare(self._access, self._declarations, schedules, schemas)
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
        for handler in self._handlers.values():
            handler.check_types()
        self._create_services()
        self._register()
        warn_once(self._access.store.caution, logger)
        with contextlib.ExitStack() as undo:
            if self._log_writer is not None:  # before the lanes: child processes get the level of the root logger
                self._log_writer.begin()
                undo.callback(self._log_writer.abandon)
            self._open_lanes(loop)
            self._start_lifespan()
            undo.pop_all()
        self._claimer = self._new_claimer()
        finalizer = [] if self._served else [self._finalizer]
        hooks = [] if self._hook_runner is None else [self._hook_runner]
        logs = [] if self._log_writer is None else [self._log_writer]
        self._services = [*finalizer, *hooks, *logs, self._finisher, self._leases, self._upkeep, self._claimer]
        about = self._about("started", queues=self.config.queue_names, task_types=list(self._handlers))
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

    @property
    def figures(self) -> WorkerFigures:
        """The outcomes since the start, if `totals` is set, and the use of the lanes."""
        from dibs.worker.figures import OutcomeTotals, WorkerFigures

        totals = self.totals or OutcomeTotals()
        lanes = self._lanes if self._exit_code is None else []  # a released task may still run in its thread
        return WorkerFigures(
            completed=totals.completed,
            failed=totals.failed,
            retried=totals.retried,
            running=sum(lane.running for lane in lanes),
            free=sum(max(0, lane.free) for lane in lanes),
            full_queues=self._bounds.full if self._bounds is not None else (),
        )

    @property
    def places(self) -> dict[Lane, int]:
        """The number of tasks that each lane with handlers runs at once."""
        lanes = {handler.lane for handler in self._handlers.values()}
        config = self.config
        return {lane: config.children if lane is Lane.PROCESS else config.concurrency for lane in Lane if lane in lanes}

    @property
    def queues_with_bounds(self) -> list[str] | None:
        """The queues that the worker serves, for people: `mail=2` for one with a bound. None: all."""
        names, bounds = self.config.queue_names, self.config.queue_bounds
        return None if names is None else [f"{name}={bounds[name]}" if name in bounds else name for name in names]

    @property
    def handler_names(self) -> list[str]:
        """The types of the tasks that the worker runs."""
        return list(self._handlers)

    def waiting_reader(self, interval: float) -> WaitingReader:
        """A reader of the tasks that wait for this worker, at most once in `interval` seconds."""
        from dibs.worker.figures import WaitingReader

        return WaitingReader(self._access, self.config.queue_names, list(self._handlers), interval)

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
        ended = self._ended_within_bounds if self.config.queue_bounds else self._ended
        callbacks = LaneCallbacks(self._may_begin, ended, self._room, self._task_data)
        if handlers := self._in(Lane.PROCESS):  # first, because this lane may refuse a handler
            from dibs.worker.process_lane import ProcessLane

            self._add_lane(ProcessLane(_one_by_one(handlers), callbacks, self.config, handlers), handlers, callbacks)
        if handlers := self._in(Lane.THREAD):
            lane = ThreadLane(_one_by_one(handlers), self.config.concurrency, callbacks)
            self._add_lane(lane, handlers, callbacks)
        if handlers := self._in(Lane.LOOP):
            self._add_lane(
                LoopLane(_one_by_one(handlers), self.config.concurrency, callbacks, loop), handlers, callbacks
            )

    def _add_lane(self, lane: LaneRunner, handlers: Sequence[AnyHandler], callbacks: LaneCallbacks) -> None:
        """Add the lane, and a batch lane for each batch handler that runs in it."""
        self._lanes.append(lane)
        for handler in handlers:
            if handler.batch is not None:
                from dibs.worker.batch_lane import BatchLane

                batch_lane = BatchLane(handler, handler.batch, lane, callbacks, burst=self.config.burst)
                self._batch_lanes.append(batch_lane)

    def _create_services(self) -> None:
        self._served = self._access.store.served  # then the server finalizes workflows
        self._last_step_at = -SERVER_FINALIZATION_ALLOWANCE
        processor = unique_processor(self.worker_id)
        self._finalizer = WorkflowFinalizer(self._access, processor)
        self._progress = ProgressReports(self._access)
        finalize = None if self._served else self._finalizer.put
        self._hook_runner = self._new_hook_runner()
        stored = None if self._hook_runner is None else self._hook_runner.put
        self._log_writer = self._new_log_writer()
        self._finisher = Finisher(
            self._access, self._forget, self._progress, finalize, stored=stored, totals=self.totals
        )
        self._attempts = HeldAttempts(self._finisher.put)
        self._leases = LeaseKeeper(self._access, self.config.lease, self._attempts, self._progress)
        self._upkeep = UpkeepService(self._access, self.config, processor, self._heartbeat)

    def _new_claimer(self) -> Claimer:
        identity = (self.worker_id, self._incarnation)
        if bounds := self.config.queue_bounds:
            from dibs.worker.queue_bounds import QueueBounds

            self._bounds = QueueBounds(self.config.queue_names or (), bounds, self._lanes)
        return Claimer(
            self._access,
            self.config,
            identity,
            self._lanes,
            on_claimed=self._receive,
            release=self._release,
            idle=self._idle,
            bounds=self._bounds,
            batch_lanes=self._batch_lanes,
        )

    def _new_hook_runner(self) -> HookRunner | None:
        if self._hooks is None:
            return None
        hooks = {
            name: self._hooks.outcome_hooks_for(handler.own_outcome_hooks) for name, handler in self._handlers.items()
        }
        if not any(hooks.values()):
            return None
        from dibs.worker.hook_runner import HookRunner

        return HookRunner(hooks)

    def _new_log_writer(self) -> LogWriter | None:
        if all(handler.capture is None for handler in self._handlers.values()):
            return None
        from dibs.worker.log_writer import LogWriter

        return LogWriter(self._access, self._handlers.values())

    def _start_lifespan(self) -> None:
        """Start the lifespan where handlers or hooks run in this process, and in a first child process. If one fails,
        the worker does not start."""
        loops = [lane.loop for lane in self._lanes if isinstance(lane, LoopLane)]
        runner = self._hook_runner
        if runner is not None and loops:
            runner.loop = loops[0]
        if self._hooks is None or self._hooks.lifespan is None:
            return
        from dibs.worker.lifespan import RunningLifespan

        try:
            if runner is not None or any(handler.lane is not Lane.PROCESS for handler in self._handlers.values()):
                lifespan = RunningLifespan(self._hooks.lifespan, loops[0] if loops else None)
                self._task_data.resources = lifespan.start(lambda: bool(self._signals.count))
                self._lifespan = lifespan
                if runner is not None:
                    runner.resources, runner.loop = self._task_data.resources, lifespan.loop
            for lane in self._lanes:
                lane.prepare()
        except Exception:
            self._end_lifespan()
            for lane in self._lanes:
                lane.close()
            self._send_last_heartbeat()
            raise

    def _end_lifespan(self) -> bool:
        """End the lifespan. False if that fails."""
        lifespan, self._lifespan = self._lifespan, None
        return lifespan is None or lifespan.end()

    def _in(self, lane: Lane) -> list[AnyHandler]:
        return [handler for handler in self._handlers.values() if handler.lane is lane]

    def _describe(self) -> str:
        shown = self.queues_with_bounds
        queues = "all queues" if shown is None else f"queues {', '.join(shown)}"
        return f"{', '.join(self._handlers)} of {queues}"

    def _about(self, event: str, **more: Any) -> dict[str, Any]:
        return {"event": f"worker.{event}", "worker_id": self.worker_id, **more}

    def _heartbeat(self, leaving: bool) -> Heartbeat:
        return Heartbeat(
            worker_id=self.worker_id,
            incarnation=self._incarnation,
            queues=self.config.queue_names,
            types=list(self._handlers),
            metadata={
                "pid": os.getpid(),
                "host": platform.node(),
                "python": platform.python_version(),
                "dibs": __version__,
                "concurrency": self.config.concurrency,
                "held": len(self._attempts),
                **({"queue_bounds": bounds} if (bounds := self.config.queue_bounds) else {}),
            },
            leaving=leaving,
        )

    # Callbacks of lanes and service threads

    def _receive(self, claims: Sequence[Claim], lane: LaneRunner, ahead: bool) -> list[Attempt]:
        moment = now()
        attempts = [
            Attempt(self._context(claim, handler := self._handlers[claim.task.type]), handler, moment, ahead)
            for claim in claims
        ]
        self._attempts.hold(attempts)
        if logger.isEnabledFor(logging.DEBUG):
            for attempt in attempts:
                logger.debug("%r is claimed", attempt, extra=attempt.log_fields("task.claimed"))
        return attempts

    def _context(self, claim: Claim, handler: AnyHandler) -> Context:
        sink = None if self._log_writer is None else self._log_writer.open(claim, handler)
        return Context(claim, self._progress.add, self._task_data, sink)

    def _may_begin(self, attempt: HandlerCall) -> bool:
        """Whether the handler may start.

        False if the claim is lost, or if the lease expired while the attempt waited: another worker may run the task by
        now. False also for a task that was cancelled in the meantime, because its handler would not be notified.
        Finished outcomes are written before a suspect starts: if the suspect kills the worker, no other task loses its
        outcome.
        """
        if isinstance(attempt, Batch):
            return self._may_begin_batch(attempt)
        if attempt.context.cancelled:
            self._attempts.decide(attempt, Cancelled())
        elif now() - attempt.renewed_at >= self.config.lease:
            self._attempts.decide(attempt, Released())
        if attempt.suspect and not attempt.decided:
            self._finisher.wait_until_written(FLUSH_TIMEOUT)
        return not attempt.decided and (not attempt.records_start or self._record_starts([attempt]))

    def _may_begin_batch(self, batch: Batch) -> bool:
        """Keep the attempts that may start in the batch. False if there is none."""
        if starts := [attempt for attempt in batch.attempts if attempt.records_start and not attempt.decided]:
            self._record_starts(starts)
        batch.attempts = [attempt for attempt in batch.attempts if self._may_begin(attempt)]
        return bool(batch.attempts)

    def _record_starts(self, attempts: Sequence[Attempt]) -> bool:
        """Record the start of attempts in the store. False if that fails or a task has expired: it must not start."""
        try:
            refusals = self._access.run(self._access.store.queue.start([attempt.claim for attempt in attempts]))
        except StoreError:
            self._release(attempts)
            return False
        for attempt, refused in zip(attempts, refusals, strict=True):
            if isinstance(refused, TaskExpired):
                self._attempts.decide(attempt, Released())  # the task waits again, and upkeep cancels it
            elif refused is not None:
                self._forget([attempt])
            else:
                attempt.ahead = False
        return not any(refusals)

    def _ended(self, attempt: HandlerCall, outcome: Any) -> None:
        if isinstance(attempt, Batch):
            outcomes = outcome if isinstance(outcome, list) else [outcome] * len(attempt.attempts)
            for each, its_outcome in zip(attempt.attempts, outcomes, strict=True):
                self._attempts.decide(each, its_outcome)
        else:
            self._attempts.decide(attempt, outcome)

    def _ended_within_bounds(self, attempt: HandlerCall, outcome: Any) -> None:
        """As `_ended`. The end of a task of a queue with a bound also makes room in the queue, even if its lane is busy
        with tasks that were claimed ahead."""
        self._ended(attempt, outcome)
        bounds = self._bounds
        if bounds is not None and any(each.claim.task.queue in bounds for each in attempt.attempts):
            self._claimer.report_room()
            self._claimer.report_permits()

    def _idle(self) -> bool:
        """True when nothing in this worker can make another task claimable."""
        hooks = self._hook_runner
        return (
            not len(self._attempts)
            and self._finalizer.idle
            and not self._upkeep.in_round
            and (hooks is None or hooks.idle)
        )

    def _room(self) -> None:
        self._claimer.report_room()

    def _release(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            self._attempts.decide(attempt, Released())

    def _forget(self, attempts: Sequence[Attempt]) -> None:
        if self._served and any(attempt.claim.task.workflow_id is not None for attempt in attempts):
            self._last_step_at = now()
        self._attempts.forget(attempts)
        if any(attempt.claim.limited for attempt in attempts):
            self._claimer.report_permits()
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
                self._log_stop()
                return
            if dead := [service.name for service in self._services if not service.alive]:
                about = self._about("part_died", parts=dead)
                logger.critical(
                    "worker %s stops: these service threads died: %s", self.worker_id, ", ".join(dead), extra=about
                )
                return

    def _log_stop(self) -> None:
        running = self._running
        follows = stop_text(running, self.config.grace, self._signals.interrupted)
        about = self._about(
            "stop_requested", held=len(self._attempts), running=running, grace=self.config.grace, follows=follows
        )
        logger.info("worker %s is stopping: %s", self.worker_id, follows, extra=about)

    @property
    def _running(self) -> int:
        return sum(attempt.begun_at is not None for attempt in self._attempts.undecided())

    def _nothing_is_left(self) -> bool:
        """True when a round of claims found nothing and began after the last event that could make a task claimable."""
        claimed_at = self._claimer.dry_since
        last_change = max(
            self._finalizer.done_at, self._upkeep.changed_at, self._last_step_at + SERVER_FINALIZATION_ALLOWANCE
        )
        if self._hook_runner is not None:
            last_change = max(last_change, self._hook_runner.done_at)
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
        for lane in (*self._batch_lanes, *self._lanes):
            self._release(lane.take_back(now()))
        self._wait_for_tasks(self.config.grace if grace is None else grace)
        self._release_undecided()
        unwritten = not self._attempts.wait_until_none(FLUSH_TIMEOUT)
        self._finalizer.wait_until_idle(FLUSH_TIMEOUT)  # upkeep of any process finalizes the rest
        for service in (self._finisher, self._finalizer, self._leases, self._upkeep):
            service.end(FLUSH_TIMEOUT)
        if self._hook_runner is not None:
            idle = self._hook_runner.wait_until_idle(FLUSH_TIMEOUT)
            self._hook_runner.end(FLUSH_TIMEOUT if idle else 0)
        if self._log_writer is not None:
            self._log_writer.finish(FLUSH_TIMEOUT)
        self._send_last_heartbeat()  # after all other heartbeats
        ended_well = self._end_lifespan()  # before the lanes: it runs on the event loop of a lane
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
        return 1 if died or unwritten or not ended_well else 0

    def _wait_for_tasks(self, grace: float) -> None:
        ends = now() + grace
        while (left := ends - now()) > 0 and self._signals.count < 2:
            if self._attempts.wait_until_none(min(left, WATCH_INTERVAL)):
                return

    def _release_undecided(self) -> None:
        second = self._signals.count > 1
        reason = "a second signal ended the grace period" if second else "it did not end within the grace period"
        for attempt in self._attempts.undecided():
            if self._attempts.decide(attempt, Released()):
                about = attempt.log_fields("task.interrupted")
                logger.warning("%r is released: %s", attempt, reason, extra=about)
                attempt.stop(StopReason.SHUTDOWN)

    def _send_last_heartbeat(self) -> None:
        try:
            self._upkeep.leave()
        except DibsError as error:
            logger.debug("the stop of the worker could not be recorded: %s", error.message)


def stop_text(running: int, grace: float, interrupted: bool) -> str:
    """What happens to running tasks after a first signal to stop, and what a second signal does. `interrupted`: the
    signal was Ctrl-C."""
    again = "press Ctrl-C again to release" if interrupted else "a second signal releases"
    them = "it" if running == 1 else "them"
    return running_tasks_text(running, grace) + (f"; {again} {them} now" if running else "")


def running_tasks_text(running: int, grace: float) -> str:
    """How many tasks run when a worker is asked to stop, and how long they may go on."""
    if not running:
        return "no task is running"
    verbs = "task is running and has" if running == 1 else "tasks are running and have"
    return f"{running} {verbs} {grace:g} s to end"


def _one_by_one(handlers: Sequence[AnyHandler]) -> list[str]:
    """The names of the handlers whose tasks run one by one."""
    return [handler.name for handler in handlers if handler.batch is None]


def _refuse_in_child_process() -> None:
    """Refuse to start in a child of a process lane, which imports the parent's main module: the worker would never
    end."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is not None and getattr(multiprocessing.current_process(), "_inheriting", False):
        raise InvalidValue(
            "A worker cannot start in a child process of another worker.",
            hint='Start the worker under `if __name__ == "__main__":`, or with the command `dibs worker MODULE:APP`.',
        )
