"""Log lines of tasks as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

import msgspec
from msgspec import Meta, field

from dibs.model import logs as model_logs
from dibs.model.claim import MAX_BATCH
from dibs.model.logs import MAX_LINES, MAX_LOGGER, MAX_MESSAGE, MAX_PAGE, LogFilter, LogLevel, check_level
from dibs.wire.fields import MAX_WAIT, Moment, Query, RequestBody, TaskId, Timestamp, to_datetime, to_text, utc

AttemptNumber = Annotated[int, Meta(ge=1, le=2**31 - 1, description="Which attempt of the task it is, counted from 1.")]
LineToken = Annotated[int, Meta(ge=1, le=10**18 - 1, description="The token of the claim under which the task runs.")]
LineNumber = Annotated[int, Meta(ge=1, le=MAX_LINES, description="The number of the line in its attempt, from 1.")]
LineId = Annotated[
    str,
    Meta(
        pattern="^[0-9]{1,18}-[0-9]{1,9}$",
        description="The `id` of a line: the answer has the lines after it.",
        examples=["1-12"],
    ),
]


class NewLogLine(RequestBody, frozen=True):
    """A line to store."""

    task_id: TaskId
    token: LineToken
    attempt: AttemptNumber
    number: LineNumber
    at: Moment
    message: Annotated[str, Meta(max_length=MAX_MESSAGE + 100, description="The text, of one or several lines.")]
    level: Annotated[LogLevel, Meta(description="The level of the line.")] = LogLevel.INFO
    logger: Annotated[str, Meta(max_length=MAX_LOGGER, description="The name of the logger, or `stdout`.")] = ""

    @classmethod
    def from_model(cls, line: model_logs.LogLine) -> Self:
        """The line as JSON."""
        return cls(
            task_id=line.task_id,
            token=line.token,
            attempt=line.attempt,
            number=line.number,
            at=utc(line.at),
            level=line.level,
            logger=line.logger,
            message=line.message,
        )

    def to_model(self) -> model_logs.LogLine:
        """The line."""
        return model_logs.LogLine(
            self.task_id, self.token, self.attempt, self.number, self.at, self.level, self.logger, self.message
        )


class LogLinesBody(RequestBody, frozen=True):
    """Lines of any tasks."""

    lines: Annotated[list[NewLogLine], Meta(min_length=1, max_length=MAX_BATCH, description="The lines, in any order.")]


class LogLine(msgspec.Struct, frozen=True):
    """A line that a handler has logged. `id` is its place among the lines of the task, for `after`."""

    id: str
    task_id: int
    token: int
    attempt: int
    number: int
    at: Timestamp
    level: LogLevel
    logger: str
    message: str

    @classmethod
    def from_model(cls, line: model_logs.LogLine) -> Self:
        """The line as JSON."""
        return cls(
            id=line.id,
            task_id=line.task_id,
            token=line.token,
            attempt=line.attempt,
            number=line.number,
            at=to_text(line.at),
            level=line.level,
            logger=line.logger,
            message=line.message,
        )

    def to_model(self) -> model_logs.LogLine:
        """The line."""
        return model_logs.LogLine(
            task_id=self.task_id,
            token=self.token,
            attempt=self.attempt,
            number=self.number,
            at=to_datetime(self.at),
            level=self.level,
            logger=self.logger,
            message=self.message,
        )


class LogLines(msgspec.Struct, frozen=True):
    """Lines of a task, in order. `ended`: no further lines will come, except for those of the last second."""

    logs: list[LogLine]
    ended: bool

    @classmethod
    def from_model(cls, page: model_logs.LogPage) -> Self:
        """The page as JSON."""
        return cls(logs=[LogLine.from_model(line) for line in page.lines], ended=page.ended)

    @classmethod
    def from_models(cls, lines: Sequence[model_logs.LogLine], ended: bool) -> Self:
        """Lines of several pages as JSON."""
        return cls.from_model(model_logs.LogPage(list(lines), ended))

    def to_model(self) -> model_logs.LogPage:
        """The page."""
        return model_logs.LogPage([line.to_model() for line in self.logs], self.ended)


class LogQuery(Query, frozen=True):
    """Which lines to read."""

    after: LineId | None = None
    attempt: AttemptNumber | None = None
    level: Annotated[LogLevel, Meta(description="The lowest level to read.")] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE, description="Lines on a page.")] = MAX_PAGE
    wait: Annotated[
        float, Meta(ge=0, le=MAX_WAIT, description="Seconds to wait for a line, unless the task has ended.")
    ] = field(name="wait_seconds", default=0)

    @classmethod
    def from_model(cls, which: LogFilter, wait: float = 0) -> Self:
        """The filter as a query."""
        level = None if which.level is None else check_level(which.level)
        return cls(after=which.after, attempt=which.attempt, level=level, limit=which.limit, wait=wait)

    def to_model(self) -> LogFilter:
        """The filter."""
        return LogFilter(after=self.after, attempt=self.attempt, level=self.level, limit=self.limit)
