"""The task as AsyncDibs returns it. Programs that use Dibs do not import this module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dibs.model.task import TaskRecord, client_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from typing_extensions import TypeVar

    from dibs.model.logs import LogLine

    R_co = TypeVar("R_co", covariant=True, default=Any)
else:
    from dibs.model.task import R_co


class AsyncTask(TaskRecord[R_co], frozen=True, dict=True):
    """A task as returned by AsyncDibs: a Task whose methods are awaited."""

    async def wait(self, timeout: float | None = None) -> AsyncTask[R_co]:
        """Wait until the task is finished, and return it. Raises WaitTimeout."""
        done: AsyncTask[R_co] = await client_of(self, "wait").wait(self.id, timeout)
        return done.of(vars(self)["app"], vars(self).get("convert"))

    async def change(self, **changes: Any) -> AsyncTask[R_co]:
        """Change this task if it has not started, as `app.change` does, and return it as it is then."""
        changed: AsyncTask[R_co] = await client_of(self, "change").change(self.id, **changes)
        return changed.of(vars(self)["app"], vars(self).get("convert"))

    async def logs(self, *, attempt: int | None = None, level: str | None = None) -> list[LogLine]:
        """What the attempts of this task have logged, as `app.logs` returns it."""
        lines: list[LogLine] = await client_of(self, "logs").logs(self.id, attempt=attempt, level=level)
        return lines

    def follow_logs(self, *, attempt: int | None = None, level: str | None = None) -> AsyncIterator[LogLine]:
        """The log lines, then each new one until the task has ended: `async for line in task.follow_logs()`."""
        lines: AsyncIterator[LogLine] = client_of(self, "follow_logs").follow_logs(
            self.id, attempt=attempt, level=level
        )
        return lines

    @classmethod
    def from_record(cls, record: TaskRecord[R_co]) -> AsyncTask[R_co]:
        """The task of this record, which the store has read."""
        return cls(*msgspec.structs.astuple(record))

    def __eq__(self, other: object) -> bool:
        """Equal to a task with the same fields, also to the task of a claim, which is a Task."""
        if not isinstance(other, TaskRecord):
            return NotImplemented
        return msgspec.structs.astuple(self) == msgspec.structs.astuple(other)

    __hash__ = None  # type: ignore[assignment]
