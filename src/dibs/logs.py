"""The task in your own log entries: the fields of the attempt that logs, for log handlers, formatters and structlog.

Import this module before the worker starts; a program that does not import it pays nothing. The fields come from a
context variable, so code that the handler calls has them as well, and coroutines that it starts. A thread that the
handler starts has them if it runs in a copy of the context (`asyncio.to_thread`, `contextvars.copy_context().run`).
"""

from __future__ import annotations

import logging
from typing import Any

from dibs.handlers import running

running.LogReaders.exist = True

FIELDS = ("task_id", "task_type", "queue", "attempt", "token", "worker_id")
"""The names of the fields, which are those of the entries of dibs."""


def task_fields() -> dict[str, Any]:
    """The fields of the attempt that runs in this thread or coroutine; empty outside of an attempt."""
    context = running.current.get()
    if context is None:
        return {}
    claim = context.claim
    values = (claim.task.id, claim.task.type, claim.task.queue, claim.attempt, claim.token, claim.worker_id)
    return dict(zip(FIELDS, values, strict=True))


class TaskFields(logging.Filter):
    """Adds the fields to each record, for `handler.addFilter(dibs.logs.TaskFields())`. Outside of an attempt the fields
    are None, so that a format such as `%(task_id)s` always works. Fields that a record has already stay."""

    def filter(self, record: logging.LogRecord) -> bool:
        """See logging.Filter. Every record passes."""
        fields = task_fields()
        for name in FIELDS:
            if not hasattr(record, name):
                setattr(record, name, fields.get(name))
        return True
