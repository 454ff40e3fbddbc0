"""What a handler may know about the attempt it runs in, and say while it runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, overload

from dibs.codec import check_text, clean_text
from dibs.errors import InvalidValue
from dibs.handlers.endings import Cancel
from dibs.model.checks import check_integer
from dibs.model.claim import Claim
from dibs.model.task import Task
from dibs.model.workflow import NewStep
from dibs.workflow.builder import Adding, After, Draft, StepRef, Which
from dibs.workflow.task_data import AttemptCheckpoints, Results, TaskData

T = TypeVar("T")

Note = Callable[[Claim, int, str | None], None]


logger = logging.getLogger("dibs.task")


class Context:
    """The attempt a handler runs in. A handler that has a parameter of this type (or one named `ctx`) is given it.

    It is the same in threads, event loops and child processes. Only a checkpoint waits for the store; with a coroutine
    function, it is awaited.
    """

    __slots__ = ("_checkpoints", "_draft", "_log", "_note", "_results", "_shelf", "cancelled", "claim")

    def __init__(self, claim: Claim, note: Note, shelf: TaskData) -> None:
        self.claim = claim
        self.cancelled = False
        """True when the handler should stop: somebody asked for it, its time is up, or the claim is lost."""
        self._note = note
        self._shelf = shelf
        self._log: logging.LoggerAdapter[logging.Logger] | None = None
        self._results: Results | None = None
        self._checkpoints: AttemptCheckpoints | None = None
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
        """Note how far the task is (0 to 100). The worker writes the latest note within a second, and
        before the outcome of the attempt."""
        check_integer(percent, "progress", 0, 100)
        said = check_text(message, "The message")
        self._note(self.claim, percent, None if said is None else clean_text(said))

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
        with _finding:
            if self._checkpoints is None:
                self._checkpoints = AttemptCheckpoints(self.claim, self._shelf)
        return self._checkpoints.make(name, function)


_finding = threading.Lock()
"""Several threads of a handler share its checkpoints. One for all attempts: most have none, and it is held briefly."""


class _TaskLog(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        """The message, with the task in front."""
        about = self.extra or {}
        kwargs["extra"] = {**about, **(kwargs.get("extra") or {})}
        return f"task {about['task_id']} ({about['task_type']}, attempt {about['attempt']}): {msg}", kwargs
