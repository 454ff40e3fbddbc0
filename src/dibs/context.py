"""What a handler may know about the attempt it runs in, and say while it runs."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar, overload

import msgspec

from dibs.claim import Claim
from dibs.codec import check_name, check_text, encode
from dibs.endings import Cancel
from dibs.errors import InvalidValue
from dibs.step import NewStep, StepResult
from dibs.task import Task, check_integer
from dibs.workflow.flow import Adding, After, Draft, StepRef, Which
from dibs.workflow.results import Results

T = TypeVar("T")

Note = Callable[[Claim, int, str | None], None]


class Shelf(Protocol):
    """Where a handler's attempt finds what was before it, and leaves what is for later: the store, or the way to it."""

    def results(self, claim: Claim) -> Sequence[StepResult]:
        """What the parents of this step came to."""

    def checkpoints(self, claim: Claim) -> dict[str, Any]:
        """What earlier attempts have kept."""

    def keep(self, claim: Claim, name: str, value: Any) -> Any:
        """Keep this for later attempts; the value that is kept, or ClaimLost."""


logger = logging.getLogger("dibs.task")


class Context:
    """The attempt a handler runs in. A handler that has a parameter of this type (or one named `ctx`) is given it.

    It is the same in threads, event loops and child processes. Only a checkpoint waits for the store; with a coroutine
    function, it is awaited.
    """

    __slots__ = (
        "_draft",
        "_kept",
        "_kept_known",
        "_log",
        "_making",
        "_note",
        "_results",
        "_shelf",
        "_turns",
        "_turns_async",
        "cancelled",
        "claim",
    )

    def __init__(self, claim: Claim, note: Note, shelf: Shelf) -> None:
        self.claim = claim
        self.cancelled = False
        """True when the handler should stop: somebody asked for it, its time is up, or the claim is lost."""
        self._note = note
        self._shelf = shelf
        self._log: logging.LoggerAdapter[logging.Logger] | None = None
        self._results: Results | None = None
        self._kept: dict[str, Any] = {}
        self._kept_known = False
        self._turns: dict[str, threading.RLock] = {}
        self._turns_async: dict[tuple[str, asyncio.AbstractEventLoop], asyncio.Lock] = {}
        self._making: set[tuple[asyncio.Task[Any] | None, str]] = set()
        self._draft: Draft | None = None

    @property
    def task(self) -> Task:
        """The task, as it was when it was claimed."""
        return self.claim.task

    @property
    def token(self) -> int:
        """The token of this claim: an outside system that remembers the highest it saw can refuse older ones."""
        return self.claim.token

    @property
    def attempt(self) -> int:
        """Which attempt this is, counted from 1."""
        return self.claim.attempt

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines name the task."""
        if self._log is None:
            about = {"task_id": self.task.id, "task_type": self.task.type, "attempt": self.attempt}
            self._log = _TaskLog(logger, about)
        return self._log

    def progress(self, percent: int, message: str | None = None) -> None:
        """Note how far the task is (0 to 100). The worker writes the latest note within a second."""
        check_integer(percent, "progress", 0, 100)
        check_text(message, "The message")
        self._note(self.claim, percent, message)

    def raise_if_cancelled(self) -> None:
        """Stop here if the handler should stop."""
        if self.cancelled:
            raise Cancel("The handler was asked to stop.")

    # In a workflow

    @property
    def workflow_id(self) -> int | None:
        """The workflow of which the task is a step, if it is one."""
        return self.task.workflow_id

    @property
    def results(self) -> Results:
        """The results of the steps that this one came after, by their names. For a finalizer: of the last steps."""
        if self._results is None:
            self._results = Results() if self.workflow_id is None else Results(self._shelf.results(self.claim))
        return self._results

    def step(self, which: Which, /, *args: Any, after: After = None, **params: Any) -> StepRef:
        """Add a step to the workflow when this attempt completes.

        Steps that wait for this one then also wait for what it adds, and read the results of the last of that.

        `after`: steps that were added here, or names of steps that the workflow has.
        """
        return self.options().step(which, *args, after=after, **params)

    def options(self, *, name: str | None = None, on_failure: str | None = None) -> Adding:
        """The next step with a name of its own, or another policy for its failure: `ctx.options(name="a").step(…)`."""
        if self.workflow_id is None:
            raise InvalidValue(
                f"Task {self.task.id} is no step of a workflow, and cannot add one.", hint="Enqueue a task instead."
            )
        if self._draft is None:
            self._draft = Draft()
        return self._draft.options(name=name, on_failure=on_failure)

    @property
    def added(self) -> Sequence[NewStep]:
        """The steps that were added so far."""
        return () if self._draft is None else self._draft.written()

    # Across attempts

    @overload
    def checkpoint(self, name: str, function: Callable[[], Awaitable[T]]) -> Awaitable[T]: ...
    @overload
    def checkpoint(self, name: str, function: Callable[[], T]) -> T: ...
    def checkpoint(self, name: str, function: Callable[[], Any]) -> Any:
        """What the function returns, as JSON: kept under this name, so that later attempts get it without calling.

        To be awaited where it is a coroutine function. Whoever asks for the same name meanwhile waits for that value.
        Raises ClaimLost where the task is no longer ours.
        """
        check_name(name, "The name of a checkpoint")
        if inspect.iscoroutinefunction(function):
            return self._checkpoint_async(name, function)
        with self._turns.setdefault(name, threading.RLock()):
            kept = self._checkpoints()
            return kept[name] if name in kept else self._keep(name, _not_awaitable(name, function()))

    async def _checkpoint_async(self, name: str, function: Callable[[], Awaitable[Any]]) -> Any:
        me = asyncio.current_task()
        if (me, name) in self._making:
            raise InvalidValue(
                f"The checkpoint {name!r} is asked for by its own function, and would wait for itself.",
                hint="Give the inner one another name.",
            )
        async with self._turns_async.setdefault((name, asyncio.get_running_loop()), asyncio.Lock()):
            kept = await asyncio.to_thread(self._checkpoints)
            return kept[name] if name in kept else await self._make_async(me, name, function)

    async def _make_async(self, me: asyncio.Task[Any] | None, name: str, function: Callable[[], Awaitable[Any]]) -> Any:
        self._making.add((me, name))
        try:
            value = await function()
        finally:
            self._making.remove((me, name))
        return await asyncio.to_thread(self._keep, name, value)

    def _checkpoints(self) -> dict[str, Any]:
        if not self._kept_known:  # once: nobody else adds to them while the claim is ours
            for name, value in self._shelf.checkpoints(self.claim).items():
                self._kept.setdefault(name, value)
            self._kept_known = True
        return self._kept

    def _keep(self, name: str, value: Any) -> Any:
        try:
            value = msgspec.to_builtins(value, str_keys=True)
        except Exception as error:  # several kinds: RecursionError for what contains itself, and any of the value's own
            raise InvalidValue(f"The checkpoint {name!r} is not JSON: {error}.") from None
        encode(value, f"the checkpoint {name!r}")  # told here in every lane alike
        kept = self._checkpoints()[name] = self._shelf.keep(self.claim, name, value)
        return kept


def _not_awaitable(name: str, value: Any) -> Any:
    """The value. One to be awaited is refused: later attempts get what is kept, and could not know to await it."""
    if not inspect.isawaitable(value):
        return value
    if inspect.iscoroutine(value):
        value.close()
    raise InvalidValue(
        f"The function of the checkpoint {name!r} is no coroutine function, but what it returned is to be awaited.",
        hint="Give a coroutine function: an `async def`, or functools.partial(fetch, url) for one with arguments.",
    )


class _TaskLog(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        """The message, with the task in front."""
        about = self.extra or {}
        kwargs["extra"] = {**about, **(kwargs.get("extra") or {})}
        return f"task {about['task_id']} ({about['task_type']}, attempt {about['attempt']}): {msg}", kwargs
