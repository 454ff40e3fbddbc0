"""The task in your own log entries: the fields of the attempt that logs, for log handlers, formatters and structlog.

An attempt has the fields if this module was imported before its start, and in `dibs worker`; other programs pay
nothing. The fields come from a context variable, so code that the handler calls has them as well, and coroutines that
it starts. A thread that the handler starts has them if it runs in a copy of the context (`asyncio.to_thread`,
`contextvars.copy_context().run`).
"""

from __future__ import annotations

import logging
from typing import Any

from dibs.handlers import running

running.LogReaders.exist = True

FIELDS = running.FIELDS
"""The names of the fields, which are those of the entries of dibs."""


def task_fields() -> dict[str, Any]:
    """The fields of the attempt that runs in this thread or coroutine; empty outside of an attempt."""
    return running.fields()


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
