"""What a handler may know about the attempt it runs in, and say while it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from dibs.claim import Claim
from dibs.codec import check_text
from dibs.endings import Cancel
from dibs.task import Task, check_integer

Note = Callable[[Claim, int, str | None], None]

logger = logging.getLogger("dibs.task")


class Context:
    """The attempt a handler runs in. A handler that has a parameter of this type (or one named `ctx`) is given it.

    Nothing here blocks, so it is the same in threads, event loops and child processes.
    """

    __slots__ = ("_log", "_note", "cancelled", "claim")

    def __init__(self, claim: Claim, note: Note) -> None:
        self.claim = claim
        self.cancelled = False
        """True when the handler should stop: somebody asked for it, its time is up, or the claim is lost."""
        self._note = note
        self._log: logging.LoggerAdapter[logging.Logger] | None = None

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


class _TaskLog(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        """The message, with the task in front."""
        about = self.extra or {}
        kwargs["extra"] = {**about, **(kwargs.get("extra") or {})}
        return f"task {about['task_id']} ({about['task_type']}, attempt {about['attempt']}): {msg}", kwargs
