"""DibsBackend in the place of the backends that the test suites expect."""

from __future__ import annotations

from typing import Any

from dibs.django import DibsBackend, app, tables


class OneAttempt(DibsBackend):
    """DibsBackend with one attempt for each task: the suites expect that a failed task has ended."""

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        given = params.get("OPTIONS", {})
        super().__init__(alias, {**params, "OPTIONS": {"max_attempts": 1, **given}})
        self.options = given


class Inspected(OneAttempt):
    """In the place of DummyBackend: what is in the store instead of a list in memory."""

    @property
    def results(self) -> list[Any]:
        """The results of all tasks, oldest first."""
        return [self.get_result(str(task.id)) for task in reversed(app.list_tasks())]

    def clear(self) -> None:
        """Delete all tasks."""
        tables.empty("default")


class Immediate(OneAttempt):
    """In the place of ImmediateBackend: a worker runs the task before `enqueue` returns."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """See BaseTaskBackend."""
        result = super().enqueue(task, args, kwargs)
        app.worker(burst=True, concurrency=1, poll=0.05).run()
        result.refresh()
        return result
