"""Write and read the log lines of tasks."""

from __future__ import annotations

from collections.abc import Sequence

from dibs.errors import InvalidValue, TaskNotFound
from dibs.model.checks import from_micros, to_micros
from dibs.model.claim import MAX_BATCH
from dibs.model.logs import (
    LogCount,
    LogFilter,
    LogLevel,
    LogLine,
    LogPage,
    check_level,
    storable_logger,
    storable_message,
)
from dibs.store.operation import Mode, Operation, Row, Statement, Statements, limited


class Logs:
    """Operations on log lines. The contract of each is in LogOperations."""

    def add_log_lines(self, lines: Sequence[LogLine]) -> Operation[int]:
        """Store the lines. Returns how many were not stored before."""
        check_lines(lines)
        return Operation("add_log_lines", lambda: _add(lines))

    def log_page(self, task_id: int, which: LogFilter, wait: float = 0) -> Operation[LogPage]:
        """The next lines of the task. `wait` is for servers: a database answers at once."""
        return Operation("log_page", lambda: _page(task_id, which), mode=Mode.READ)

    def log_counts(self, task_id: int) -> Operation[list[LogCount]]:
        """How many lines each attempt of the task has."""
        return Operation("log_counts", lambda: _counts(task_id), mode=Mode.READ)


def check_lines(lines: Sequence[LogLine]) -> None:
    """Refuse a batch that is too large."""
    if len(lines) > MAX_BATCH:
        raise InvalidValue(f"A batch has at most {MAX_BATCH} lines, not {len(lines):,}.", hint="Write several batches.")


def _add(lines: Sequence[LogLine]) -> Statements[int]:
    if not lines:
        return 0
    return len((yield Statement("add_log_lines", rows=[_params(line) for line in lines])))


def _params(line: LogLine) -> dict[str, object]:
    return {
        "task_id": line.task_id,
        "token": line.token,
        "number": line.number,
        "attempt": line.attempt,
        "at": to_micros(line.at),
        "level": line.level.number,
        "logger": storable_logger(line.logger),
        "message": storable_message(line.message),
    }


def _page(task_id: int, which: LogFilter) -> Statements[LogPage]:
    """The state is read before the lines: if the task has ended by then, a later page has its last lines."""
    rows = yield Statement("task_progress_of_logs", {"id": task_id})
    if not rows:
        raise TaskNotFound(task_id)
    [(finished, attempts)] = rows
    token, number = which.position
    given = {"id": task_id, "token": token, "number": number, "attempt": which.attempt}
    lines = yield Statement(
        "log_lines", {**given, "level": check_level(which.level).number}, words=limited(which.limit)
    )
    ended = bool(finished) or (which.attempt is not None and attempts >= which.attempt)
    return LogPage([_read(row) for row in lines], ended)


def _read(row: Row) -> LogLine:
    task_id, token, attempt, number, at, level, logger, message = row
    return LogLine(task_id, token, attempt, number, from_micros(at), LogLevel.of(level), logger, message)


def _counts(task_id: int) -> Statements[list[LogCount]]:
    rows = yield Statement("log_counts", {"id": task_id})
    return [LogCount(*row) for row in rows]
