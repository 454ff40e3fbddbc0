"""Tasks that were taken back from their workers: noted where it happens, in the middle of a transaction, and told in
the log later, by whoever keeps the house. A log that blocks must not hold up a database."""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

from dibs.model.task import Event
from dibs.store.operation import Row, Rows

logger = logging.getLogger("dibs.worker")

MOST = 1000
"""Tasks that are told of, if so many are lost at once that nobody could read of them all."""

_noted: deque[Row] = deque(maxlen=MOST)


def note(rows: Rows) -> None:
    """These tasks moved: their history columns first, their queue and type last."""
    if rows and rows[0][1] == Event.RECOVERED:
        _noted.extend(rows)


def tell() -> None:
    """Tell of all that were noted."""
    while _noted:
        task_id, _, _, state, worker_id, token, *_, queue, kind = _noted.popleft()
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
            "task %d (%s) is taken back from worker %s, whose lease ran out; it is %s",
            task_id,
            kind,
            worker_id,
            state,
            extra=about,
        )


_STANDARD = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})
"""What every record has."""


def given(record: logging.LogRecord) -> dict[str, Any]:
    """The fields that the entry was given as `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}
