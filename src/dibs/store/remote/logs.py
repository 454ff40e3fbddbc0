"""The log lines of tasks over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dibs.model.checks import check_integer
from dibs.model.claim import MAX_BATCH
from dibs.model.logs import LogFilter, LogLine, LogPage, storable_logger, storable_message
from dibs.store.operation import Operation
from dibs.store.remote.decode import reader
from dibs.store.remote.request import HttpCall, HttpCalls, api_path, encode, get, joined, post, read_operation, split
from dibs.wire import logs as wire
from dibs.wire.fields import Counted

_read_page = reader(wire.LogLines)
_read_count = reader(Counted)


class RemoteLogs:
    """Write and read log lines. See LogOperations."""

    def add_log_lines(self, lines: Sequence[LogLine]) -> Operation[int]:
        """Store the lines, in as few requests as possible. Each request can be repeated."""
        check_integer(len(lines), "the number of lines", 0, MAX_BATCH)
        return Operation("add_log_lines", lambda: _add(lines))

    def log_page(self, task_id: int, which: LogFilter, wait: float = 0) -> Operation[LogPage]:
        """The next lines of the task. If there is none, the server waits for a line for up to `wait` seconds."""
        query = get(api_path("tasks", task_id, "logs"), wire.LogQuery.from_model(which, wait))
        return read_operation("log_page", HttpCall("GET", query.path, wait=wait), _read_page)


def _add(lines: Sequence[LogLine]) -> HttpCalls[int]:
    entries = [encode(wire.NewLogLine.from_model(_storable(line))) for line in lines]
    stored = 0
    for start, end in split([len(entry) for entry in entries], MAX_BATCH):
        some: Any = joined(entries[start:end])
        stored += _read_count((yield post("/api/tasks/logs", wire.LogLinesBody(lines=some))))
    return stored


def _storable(line: LogLine) -> LogLine:
    """The line with texts that JSON can carry."""
    message, logger = storable_message(line.message), storable_logger(line.logger)
    return LogLine(line.task_id, line.token, line.attempt, line.number, line.at, line.level, logger, message)
