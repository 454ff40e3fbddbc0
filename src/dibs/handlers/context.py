"""The context of an attempt: what a handler can read about its task, and what it can report."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from dibs.errors import InvalidValue
from dibs.handlers.endings import Cancel
from dibs.json_values import check_text, clean_text
from dibs.model.checks import check_integer
from dibs.model.claim import Claim
from dibs.model.task import NewTask, Task
from dibs.model.workflow import NewStep
from dibs.workflow.builder import AddsSteps, After, Draft, StepBuilder, StepRef
from dibs.workflow.task_data import NO_RESOURCES, AttemptCheckpoints, Results, TaskData, ValueHandler

if TYPE_CHECKING:
    from dibs.handlers.log_capture import LogSink
    from dibs.model.execution import Execution

T = TypeVar("T")

ReportProgress = Callable[[Claim, int, str | None], None]
"""Receives a progress report: the claim, percent, a message."""


logger = logging.getLogger("dibs.task")


class Context(AddsSteps):
    """The attempt in which a handler runs. A handler with a parameter of this type (or named `ctx`) receives it.

    The context is the same in threads, event loops and child processes. Only `results` and `checkpoint` wait for the
    store; a checkpoint of a coroutine function is awaited.
    """

    __slots__ = (
        "_checkpoints",
        "_draft",
        "_execution",
        "_handler",
        "_log",
        "_report_progress",
        "_results",
        "_task_data",
        "cancelled",
        "claim",
        "sink",
    )

    def __init__(
        self, claim: Claim, report_progress: ReportProgress, task_data: TaskData, sink: LogSink | None = None
    ) -> None:
        self.claim = claim
        self.cancelled = False
        """True when the handler should stop: after a request to cancel the task, its timeout, or the loss of the
        claim."""
        self.sink = sink
        """Receives what the attempt logs; None for a handler that captures no logs."""
        self._report_progress = report_progress
        self._task_data = task_data
        self._log: logging.LoggerAdapter[logging.Logger] | None = None
        self._results: Results | None = None
        self._execution: Execution | None = None
        self._checkpoints: AttemptCheckpoints | None = None
        self._draft: Draft | None = None
        self._handler: ValueHandler | None = None
        """The handler that runs, whose codecs encode and decode values; None before it does."""

    def decode_params(self) -> dict[str, Any]:
        """Give the task its params as plain JSON, and return them. Raises CodecMissing or CodecFailed."""
        assert self._handler is not None
        task = self.claim.task
        what = f"the params of task {task.id} ({task.type})"
        params: dict[str, Any] = self._handler.decode_of(task.type, task.params, what)
        self.claim = msgspec.structs.replace(self.claim, task=msgspec.structs.replace(task, params=params))
        return params

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

    @property
    def resources(self) -> Any:
        """What the lifespan of the app has yielded in this process."""
        if self._task_data.resources is NO_RESOURCES:
            raise InvalidValue(
                "There are no resources here: no lifespan was started.",
                hint="Declare one with @app.lifespan. In a test, use `box.lifespan()` or set `box.resources`.",
            )
        return self._task_data.resources

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
            parents = () if self.workflow_id is None else self._task_data.results(self.claim)
            self._results = Results(parents, self._handler)
        return self._results

    @property
    def execution(self) -> Execution:
        """How the steps of the workflow ended, for a finalizer: `ctx.execution.failed` has the errors by name. In
        another step: the steps as they are at the first reading."""
        if self._execution is None:
            if self.workflow_id is None:
                raise InvalidValue(f"Task {self.task.id} is not a step of a workflow, so it has no execution.")
            self._execution = self._task_data.execution(self.claim)
        return self._execution

    def _add_step(self, task: NewTask, after: After) -> StepRef:
        return self.options()._add_step(task, after)

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
                self._checkpoints = AttemptCheckpoints(self.claim, self._task_data, self._handler)
        return self._checkpoints.make(name, function)


_checkpoints_lock = threading.Lock()
"""Several threads of a handler share its checkpoints. All attempts share this lock, which is held briefly."""


class _TaskLog(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        """Prefix the message with the task."""
        about = self.extra or {}
        kwargs["extra"] = {**about, **(kwargs.get("extra") or {})}
        return f"task {about['task_id']} ({about['task_type']}, attempt {about['attempt']}): {msg}", kwargs
