"""The hook runner: calls the outcome hooks of the user after the outcome is stored.

The hooks run in a thread of their own, so a slow hook delays other hooks and nothing else. Each is called at most once:
the list of calls is in memory, and a worker that dies loses it. A hook that fails is logged and changes nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import queue
import threading
from collections.abc import Mapping
from typing import Any

from dibs.handlers.middleware import name_of
from dibs.handlers.outcome_hooks import EndedAttempt, OutcomeHook, OutcomeHooks, ended_attempt, hooks_after
from dibs.model.claim import Finished, Outcome
from dibs.worker.attempt import Attempt, now
from dibs.worker.service import ServiceThread

logger = logging.getLogger("dibs.worker")

QUEUE_TIMEOUT = 1.0

MAX_WAITING = 10_000
"""The number of calls that may wait. More are dropped: hooks that are slower than the tasks must not fill the memory of
the worker, and must not delay outcomes."""

HookCall = tuple[OutcomeHook, EndedAttempt]


class HookRunner(ServiceThread):
    """The service thread that calls outcome hooks, one after the other. `hooks`: those of each task type."""

    name = "hooks"

    def __init__(self, hooks: Mapping[str, OutcomeHooks]) -> None:
        super().__init__()
        self._hooks = hooks
        self._queue: queue.SimpleQueue[HookCall | None] = queue.SimpleQueue()
        self._waiting = 0
        self._changed = threading.Condition()
        self.done_at = 0.0
        """The end of the last call, which may have enqueued a task."""
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the async handlers, for async hooks. None: each call has its own."""
        self.resources: Any = None

    def put(self, attempt: Attempt, outcome: Outcome, finished: Finished) -> None:
        """Queue the hooks for an outcome that is stored."""
        hooks = hooks_after(self._hooks[attempt.handler.name], outcome, finished)
        if not hooks:
            return
        if self._waiting + len(hooks) > MAX_WAITING:
            about = attempt.log_fields("hook.dropped", hooks=[name_of(hook) for hook in hooks])
            logger.error("%r: its hooks are not called, because %d calls wait", attempt, self._waiting, extra=about)
            return
        ended = ended_attempt(
            attempt.handler, attempt.claim, outcome, finished, seconds=attempt.seconds, resources=self.resources
        )
        with self._changed:
            self._waiting += len(hooks)
        for hook in hooks:
            self._queue.put((hook, ended))

    @property
    def idle(self) -> bool:
        """True when no call waits or runs."""
        return not self._waiting

    def wait_until_idle(self, timeout: float) -> bool:
        """Wait until all queued hooks have run. False, and an entry in the log, if some have not after `timeout`
        seconds."""
        with self._changed:
            idle = self._changed.wait_for(lambda: self.idle, timeout)
        if not idle:
            about = {"event": "hook.dropped", "waiting": self._waiting}
            logger.error("%d calls of hooks have not ended and are given up", self._waiting, extra=about)
        return idle

    def wake(self) -> None:
        """See ServiceThread."""
        self._queue.put(None)

    def step(self) -> None:
        """Call the next hook."""
        try:
            call = self._queue.get(timeout=QUEUE_TIMEOUT)
        except queue.Empty:
            return
        if call is None:
            return
        try:
            hook, ended = call
            if (waiting := call_hook(hook, ended)) is not None:
                self._wait_for(hook, ended, waiting)
        finally:
            with self._changed:
                self._waiting -= 1
                self.done_at = now()
                self._changed.notify_all()

    def _wait_for(self, hook: OutcomeHook, ended: EndedAttempt, waiting: Any) -> None:
        try:
            if self.loop is None:
                asyncio.run(waiting)
            else:
                asyncio.run_coroutine_threadsafe(waiting, self.loop).result()
        except BaseException as error:
            log_hook_failure(hook, ended, error)


def call_hook(hook: OutcomeHook, ended: EndedAttempt) -> Any:
    """Call the hook, and log its exception. Returns the coroutine of an async hook, else None."""
    try:
        waiting = hook(ended)
    except BaseException as error:  # SystemExit as well: a hook ends neither its thread nor the program
        log_hook_failure(hook, ended, error)
        return None
    return waiting if inspect.iscoroutine(waiting) else None


def log_hook_failure(hook: OutcomeHook, ended: EndedAttempt, error: BaseException) -> None:
    """Log the exception of a hook."""
    task = ended.task
    about = {"task_id": task.id, "task_type": task.type, "attempt": ended.attempt, "hook": name_of(hook)}
    logger.error(
        "task %d (%s, attempt %d): the hook %s failed: %s: %s",
        *about.values(),
        type(error).__name__,
        error,
        exc_info=error,
        extra={"event": "hook.failed", **about},
    )
