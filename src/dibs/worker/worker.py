"""The worker: claimer, lanes, lease keeper, finisher, finalizer and upkeep, put together and taken apart again.

Handlers run in lanes; everything else is plain threads, so that nothing a handler does to its thread or its event
loop keeps the worker from renewing leases and writing outcomes.
"""

from __future__ import annotations

import asyncio
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

from dibs.errors import DibsError, InvalidValue, StoreError
from dibs.handlers.context import Context
from dibs.handlers.handler import Handler
from dibs.handlers.handler import Lane as Where
from dibs.model.claim import Cancelled, Claim, Released
from dibs.model.finalization import unique_processor
from dibs.model.registry import Heartbeat
from dibs.store.contract import Store
from dibs.store.doctor import warn_once
from dibs.version import __version__
from dibs.worker.attempt import Attempt, Attempts, Stop, now
from dibs.worker.claimer import Claimer
from dibs.worker.config import WorkerConfig, new_worker_id
from dibs.worker.finalizer import Finalizer
from dibs.worker.finisher import Finisher
from dibs.worker.lanes import Duties, Lane, ThreadLane
from dibs.worker.leases import Leases
from dibs.worker.loop_lane import LoopLane
from dibs.worker.progress import Notes
from dibs.worker.service import Part, Signals
from dibs.worker.store_access import Contact, StoreShelf
from dibs.worker.upkeep import Upkeep

logger = logging.getLogger("dibs.worker")

WATCH_EVERY = 0.1
FLUSH_WITHIN = 10.0
"""Seconds that a stopping worker takes to write its last outcomes; what is not written comes back with its lease."""


SERVER_WITHIN = 1.0
"""Seconds that a burst gives the server, after a step has ended, to begin what follows from the end of its workflow."""


class Health(msgspec.Struct, frozen=True):
    """How a worker is doing. `store_silent_for`: seconds since the store last answered it."""

    worker_id: str
    running: bool
    held: int
    store_silent_for: float


class Worker:
    """Runs the tasks of an application's handlers.

    `run()` works until a signal (or, with `burst`, until nothing is left). `with` and `async with` work in the
    background of a program that does something else, for as long as the block lasts.
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
            raise InvalidValue("This worker has nothing to do: there are no handlers.", hint="Declare one: @app.task")
        self._contact = Contact(store, by)
        self._shelf = StoreShelf(store, self._contact.run)
        self._signals = Signals()
        self._stopping = threading.Event()
        self._shutting_down = threading.Lock()
        self._exit_code: int | None = None
        self._lanes: list[Lane] = []
        self._parts: list[Part] = []

    # From outside

    def run(self) -> int:
        """Work until SIGTERM or SIGINT (or `stop`). Returns an exit code: 0, or 1 if something went wrong."""
        with self._signals.handled():
            self.start()
            self._watch()
            return self._shut_down()

    async def run_async(self) -> int:
        """`run` on the running event loop, where its coroutine handlers then run as well."""
        with self._signals.handled():
            await asyncio.to_thread(self.start, asyncio.get_running_loop())
            await asyncio.to_thread(self._watch)
            return await asyncio.to_thread(self._shut_down)

    def start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Begin to work in the background. Coroutine handlers run on `loop`, or on one of the worker's own."""
        if self._parts:
            raise InvalidValue("This worker was started before.", hint="Make another: app.worker()")
        _refuse_in_a_child()
        self._served = self._contact.store.served  # then the server sees to the end of workflows
        self._left_at = -SERVER_WITHIN
        processor = unique_processor(self.worker_id)
        self._finalizer = Finalizer(self._contact, processor)
        self._notes = Notes(self._contact)
        finalize = None if self._served else self._finalizer.put
        self._finisher = Finisher(self._contact, self._forget, self._notes, finalize)
        self._attempts = Attempts(self._finisher.put)
        self._leases = Leases(self._contact, self.config.lease, self._attempts, self._notes)
        handlers = list(self._handlers.values())
        self._upkeep = Upkeep(self._contact, self.config, processor, handlers, self._heartbeat)
        self._contact.run(
            self._contact.store.registry.heartbeat(self._heartbeat(False))
        )  # a wrong URL is told here and now
        warn_once(self._contact.store.caution, logger)
        self._open_lanes(loop)
        identity = (self.worker_id, self._incarnation)
        self._claimer = Claimer(
            self._contact,
            self.config,
            identity,
            self._lanes,
            received=self._receive,
            give_back=self._give_back,
            idle=self._idle,
        )
        finalizing = [] if self._served else [self._finalizer]
        self._parts = [*finalizing, self._finisher, self._leases, self._upkeep, self._claimer]
        about = self._about("started", queues=self.config.queues, task_types=list(self._handlers))
        logger.info("worker %s begins: %s", self.worker_id, self._describe(), extra=about)
        for part in self._parts:
            part.start()

    def stop(self, grace: float | None = None) -> int:
        """Claim nothing more, let running tasks end within the grace period, release the rest. The exit code."""
        self._stopping.set()
        return self._shut_down(grace)

    @property
    def health(self) -> Health:
        """How the worker is doing: for a health check, or a metric."""
        alive = bool(self._parts) and all(part.alive for part in self._parts)
        held = len(self._attempts) if self._parts else 0
        return Health(self.worker_id, alive, held, self._contact.silent_for)

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

    # Putting it together

    def _open_lanes(self, loop: asyncio.AbstractEventLoop | None) -> None:
        duties = Duties(self._may_begin, self._ended, self._room, self._shelf)
        if apart := self._in(Where.PROCESS):  # first, because it may refuse a handler
            from dibs.worker.process_lane import ProcessLane

            self._lanes.append(ProcessLane([handler.name for handler in apart], duties, self.config, apart))
        if plain := self._in(Where.THREAD):
            self._lanes.append(ThreadLane([handler.name for handler in plain], self.config.concurrency, duties))
        if coroutines := self._in(Where.LOOP):
            names = [handler.name for handler in coroutines]
            self._lanes.append(LoopLane(names, self.config.concurrency, duties, loop))

    def _in(self, where: Where) -> list[Handler[..., Any, Any]]:
        return [handler for handler in self._handlers.values() if handler.lane is where]

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

    # What the parts ask of it

    def _receive(self, claims: Sequence[Claim], lane: Lane, ahead: bool) -> list[Attempt]:
        moment = now()
        attempts = [Attempt(self._context(claim), self._handlers[claim.task.type], moment, ahead) for claim in claims]
        self._attempts.hold(attempts)
        if logger.isEnabledFor(logging.DEBUG):
            for attempt in attempts:
                logger.debug("%r is claimed", attempt, extra=attempt.about("task.claimed"))
        return attempts

    def _context(self, claim: Claim) -> Context:
        return Context(claim, self._notes.note, self._shelf)

    def _may_begin(self, attempt: Attempt) -> bool:
        """False if the claim is lost, or its lease has run out while it waited here: others may be at it by now.
        Nor does a task begin that was cancelled meanwhile: nobody would tell its handler again."""
        if attempt.context.cancelled:
            self._attempts.settle(attempt, Cancelled())
        elif now() - attempt.renewed_at >= self.config.lease:
            self._attempts.settle(attempt, Released())
        return not attempt.settled and (not attempt.suspect or self._note_start(attempt))

    def _note_start(self, attempt: Attempt) -> bool:
        """Note the start of a suspect (see Attempt.suspect). False if that is impossible, and so must not begin.
        What has ended is written first: if the suspect kills us, its neighbours are not to be charged for it."""
        self._finisher.wait_until_written(FLUSH_WITHIN)
        try:
            refused = self._contact.run(self._contact.store.queue.start([attempt.claim]))[0]
        except StoreError:
            self._attempts.settle(attempt, Released())
            return False
        if refused is not None:
            self._forget([attempt])
        return refused is None

    def _ended(self, attempt: Attempt, outcome: Any) -> None:
        self._attempts.settle(attempt, outcome)

    def _idle(self) -> bool:
        """True when nothing here can make something claimable any more."""
        return not len(self._attempts) and self._finalizer.idle and not self._upkeep.tending

    def _room(self) -> None:
        self._claimer.room()

    def _give_back(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            self._attempts.settle(attempt, Released())

    def _forget(self, attempts: Sequence[Attempt]) -> None:
        if self._served and any(attempt.claim.task.workflow_id is not None for attempt in attempts):
            self._left_at = now()
        self._attempts.forget(attempts)
        if self.config.burst and not len(self._attempts):
            self._claimer.wake()  # for the look that finds nothing while nothing is held

    # Taking it apart

    def _watch(self) -> None:
        """Until somebody asks to stop, a burst is over, or a part has died (which is a bug, and must be seen)."""
        while not self._stopping.wait(WATCH_EVERY):
            if self.config.burst and self._nothing_is_left():
                logger.info("worker %s: nothing is left", self.worker_id, extra=self._about("drained"))
                return
            if self._signals.count:
                held, grace = len(self._attempts), self.config.grace
                about = self._about("stop_requested", held=held, grace=grace)
                logger.info("worker %s stops: %d tasks have %g s to end", self.worker_id, held, grace, extra=about)
                return
            if dead := [part.name for part in self._parts if not part.alive]:
                about = self._about("part_died", parts=dead)
                logger.critical("worker %s stops: its %s died", self.worker_id, ", ".join(dead), extra=about)
                return

    def _nothing_is_left(self) -> bool:
        """True when a look for tasks found none, after the last moment at which something here could begin one."""
        looked = self._claimer.dry_since
        begun = max(self._finalizer.done_at, self._upkeep.tended_at, self._left_at + SERVER_WITHIN)
        if looked is None or not self._idle() or looked <= begun:
            return False
        if self._served:
            return True
        try:
            return not self._finalizer.look()  # one whose processor has died before we came, say
        except StoreError:
            return False

    def _shut_down(self, grace: float | None = None) -> int:
        """Once, whoever asks and from whatever thread: the next waits for the first and gets the same answer."""
        if not self._parts:
            return 0
        with self._shutting_down:
            if self._exit_code is None:
                self._exit_code = self._take_apart(grace)
        return self._exit_code

    def _take_apart(self, grace: float | None) -> int:
        died = not all(part.alive for part in self._parts)
        self._claimer.end(FLUSH_WITHIN)
        for lane in self._lanes:
            self._give_back(lane.take_back(now()))
        self._wait_for_tasks(self.config.grace if grace is None else grace)
        self._release_the_rest()
        unwritten = not self._attempts.wait_until_none(FLUSH_WITHIN)
        self._finalizer.wait_until_idle(FLUSH_WITHIN)  # what it does not get to is for any upkeep to find
        for part in (self._finisher, self._finalizer, self._leases, self._upkeep):
            part.end(FLUSH_WITHIN)
        self._say_goodbye()  # after the last sign of life
        for lane in self._lanes:
            lane.close()
        if unwritten:
            logger.error(
                "worker %s leaves %d outcomes unwritten; their tasks come back when their leases end",
                self.worker_id,
                len(self._attempts),
                extra=self._about("left_unwritten", held=len(self._attempts)),
            )
        logger.info("worker %s has stopped", self.worker_id, extra=self._about("stopped"))
        return 1 if died or unwritten else 0

    def _wait_for_tasks(self, grace: float) -> None:
        ends = now() + grace
        while (left := ends - now()) > 0 and self._signals.count < 2:
            if self._attempts.wait_until_none(min(left, WATCH_EVERY)):
                return

    def _release_the_rest(self) -> None:
        for attempt in self._attempts.unsettled():
            if self._attempts.settle(attempt, Released()):
                about = attempt.about("task.interrupted")
                logger.warning("%r is released: it did not end within the grace period", attempt, extra=about)
                attempt.stop(Stop.SHUTDOWN)

    def _say_goodbye(self) -> None:
        try:
            self._upkeep.leave()
        except DibsError as error:
            logger.debug("no goodbye: %s", error.message)


def _refuse_in_a_child() -> None:
    """A child of a process lane imports the main module of its parent; a worker begun there would never end."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is not None and getattr(multiprocessing.current_process(), "_inheriting", False):
        raise InvalidValue(
            "A worker was about to begin in a child process of a worker.",
            hint='Start it under `if __name__ == "__main__":`, or with the command `dibs worker MODULE:APP`.',
        )
