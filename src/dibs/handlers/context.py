"""The context of an attempt: what a handler can read about its task, and what it can report."""

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
from dibs.workflow.builder import After, Draft, HandlerOrType, StepBuilder, StepRef
from dibs.workflow.task_data import AttemptCheckpoints, Results, TaskData

T = TypeVar("T")

ReportProgress = Callable[[Claim, int, str | None], None]
"""Receives a progress report: the claim, percent, a message."""


logger = logging.getLogger("dibs.task")


class Context:
    """The attempt in which a handler runs. A handler with a parameter of this type (or named `ctx`) receives it.

    The context is the same in threads, event loops and child processes. Only `results` and `checkpoint` wait for the
    store; a checkpoint of a coroutine function is awaited.
    """

    __slots__ = ("_checkpoints", "_draft", "_log", "_report_progress", "_results", "_task_data", "cancelled", "claim")

    def __init__(self, claim: Claim, report_progress: ReportProgress, task_data: TaskData) -> None:
        self.claim = claim
        self.cancelled = False
        """True when the handler should stop: after a request to cancel the task, its timeout, or the loss of the
        claim."""
        self._report_progress = report_progress
        self._task_data = task_data
        self._log: logging.LoggerAdapter[logging.Logger] | None = None
        self._results: Results | None = None
        self._checkpoints: AttemptCheckpoints | None = None
        self._draft: Draft | None = None

    @property
    def task(self) -> Task:
        """The task as it was at the time of the claim."""
        return self.claim.task

    @property
    def token(self) -> int:
        """The fencing token of this claim: an external system can refuse writes with a lower token than the highest it
        saw."""
        return self.claim.token

    @property
    def attempt(self) -> int:
        """Which attempt this is, counted from 1."""
        return self.claim.attempt

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose entries name the task."""
        if self._log is None:
            about = {"task_id": self.task.id, "task_type": self.task.type, "attempt": self.attempt}
            self._log = _TaskLog(logger, about)
        return self._log

    def progress(self, percent: int, message: str | None = None) -> None:
        """Report the progress of the task (0 to 100). The worker writes the latest report within a second, and always
        before the outcome of the attempt."""
        check_integer(percent, "progress", 0, 100)
        text = check_text(message, "The message")
        self._report_progress(self.claim, percent, None if text is None else clean_text(text))

    def raise_if_cancelled(self) -> None:
        """Raise Cancel if the handler should stop."""
        if self.cancelled:
            raise Cancel("The handler has to stop.")

    # In a workflow

    @property
    def workflow_id(self) -> int | None:
        """The workflow of which the task is a step; None for a task without a workflow."""
        return self.task.workflow_id

    @property
    def results(self) -> Results:
        """The results of the parent steps by name. For a finalizer: of the steps that no other step waits for."""
        if self._results is None:
            self._results = Results() if self.workflow_id is None else Results(self._task_data.results(self.claim))
        return self._results

    def step(self, which: HandlerOrType, /, *args: Any, after: After = None, **params: Any) -> StepRef:
        """Add a step to the workflow when this attempt completes.

        Steps that wait for this one then also wait for the added steps, and receive the results of the last of them.

        `after`: steps added in this attempt, or names of steps of the workflow.
        """
        return self.options().step(which, *args, after=after, **params)

    def options(self, *, name: str | None = None, on_failure: str | None = None) -> StepBuilder:
        """Set the name or the failure policy of the next step: `ctx.options(name="a").step(…)`."""
        if self.workflow_id is None:
            raise InvalidValue(
                f"Task {self.task.id} is not a step of a workflow, so it cannot add steps.",
                hint="Enqueue a task instead.",
            )
        if self._draft is None:
            self._draft = Draft()
        return self._draft.options(name=name, on_failure=on_failure)

    @property
    def added(self) -> Sequence[NewStep]:
        """The steps that this attempt has added so far."""
        return () if self._draft is None else self._draft.new_steps()

    # Across attempts

    @overload
    def checkpoint(self, name: str, function: Callable[[], Awaitable[T]]) -> Awaitable[T]: ...
    @overload
    def checkpoint(self, name: str, function: Callable[[], T]) -> T: ...
    def checkpoint(self, name: str, function: Callable[[], Any]) -> Any:
        """Call the function once for the task and store its result, as JSON, under this name.

        Later calls with the same name, also in later attempts, return the stored result. A concurrent call waits for
        the first. Await the result of a coroutine function. Raises ClaimLost if this worker no longer holds the task.
        """
        with _checkpoints_lock:
            if self._checkpoints is None:
                self._checkpoints = AttemptCheckpoints(self.claim, self._task_data)
        return self._checkpoints.make(name, function)


_checkpoints_lock = threading.Lock()
"""Several threads of a handler share its checkpoints. All attempts share this lock, which is held briefly."""


class _TaskLog(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        """Prefix the message with the task."""
        about = self.extra or {}
        kwargs["extra"] = {**about, **(kwargs.get("extra") or {})}
        return f"task {about['task_id']} ({about['task_type']}, attempt {about['attempt']}): {msg}", kwargs
