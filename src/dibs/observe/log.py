"""Log entries about recovered tasks, and the extra fields of log records.

Recoveries are recorded in the middle of a transaction and logged later, by the upkeep: a log handler that blocks must
not delay the database."""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

from dibs.model.task import Event
from dibs.store.operation import Row, Rows

logger = logging.getLogger("dibs.worker")

MAX_RECORDED = 1000
"""The largest number of recovered tasks that wait to be logged; older ones are dropped."""

_recovered: deque[Row] = deque(maxlen=MAX_RECORDED)


def record_recoveries(rows: Rows) -> None:
    """Record the recovered tasks among these transitions: the history columns, then queue and type."""
    if rows and rows[0][1] == Event.RECOVERED:
        _recovered.extend(rows)


def log_recoveries() -> None:
    """Log all recorded recoveries."""
    while _recovered:
        task_id, _, _, state, worker_id, token, *_, queue, kind = _recovered.popleft()
        about = {
            "event": "task.recovered",
            "task_id": task_id,
            "task_type": kind,
            "queue": queue,
            "worker_id": worker_id,
            "token": token,
            "state": state,
        }
        logger.warning(
            "task %d (%s) was recovered from worker %s, whose lease expired; the task is %s",
            task_id,
            kind,
            worker_id,
            state,
            extra=about,
        )


_STANDARD = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})
"""The attributes of every log record."""


def extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    """The fields that were passed as `extra` to the log call."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}
