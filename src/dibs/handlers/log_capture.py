"""The option `capture_logs`: which records of an attempt become log lines of its task, and how many."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from dibs.errors import InvalidValue
from dibs.handlers.middleware import name_of
from dibs.model.checks import check_integer
from dibs.model.logs import MAX_LINES, LogLevel, check_level

RecordFilter = Callable[[logging.LogRecord], bool | logging.LogRecord | None]
"""Receives a copy of a record. Returns True to keep it, False or None to drop it, or the record to keep instead."""

MAX_BYTES = 64 * 1024 * 1024


class LogSink(Protocol):
    """Receives what one attempt logs and prints. No method blocks."""

    def record(self, record: logging.LogRecord) -> None:
        """Take a record."""

    def printed(self, stream: str, text: str) -> None:
        """Take text that was written to `stdout` or `stderr`."""

    def close(self) -> None:
        """Take no more: the attempt has ended."""


class LogCapture(msgspec.Struct, frozen=True, kw_only=True):
    """What to capture: `@app.task(capture_logs=LogCapture(level="warning", prints=True))`."""

    level: str = LogLevel.INFO.value
    """The lowest level that is captured. A logger with a level of its own keeps it, and records have to reach the root
    logger."""

    prints: bool = False
    """Capture what is written to sys.stdout and sys.stderr as well, line by line."""

    max_lines: int = 1000
    """Lines of one attempt. Further ones are dropped, and a last line tells how many."""

    max_bytes: int = 256 * 1024
    """Bytes of the messages of one attempt, beyond which lines are dropped."""

    filter: RecordFilter | None = None
    """A function that drops or rewrites records, such as one that masks personal data."""

    def __post_init__(self) -> None:
        check_level(self.level)
        if type(self.prints) is not bool:
            raise InvalidValue(f"prints is True or False, not {self.prints!r}.")
        check_integer(self.max_lines, "max_lines", 1, MAX_LINES - 1)
        check_integer(self.max_bytes, "max_bytes", 1, MAX_BYTES)
        if self.filter is not None and not callable(self.filter):
            raise InvalidValue(
                f"The filter of captured logs is not a function: {self.filter!r}.",
                hint="Write `def keep(record): …` that returns True, False, or another record.",
            )

    @property
    def least(self) -> int:
        """The number of the lowest level."""
        return check_level(self.level).number

    def __repr__(self) -> str:
        name = None if self.filter is None else name_of(self.filter)
        return f"LogCapture(level={self.level!r}, prints={self.prints}, filter={name})"


def capture_of(option: Any) -> LogCapture | None:
    """The meaning of the option: True, False, or a LogCapture."""
    if isinstance(option, LogCapture):
        return option
    if option is True:
        return LogCapture()
    if option is False:
        return None
    raise InvalidValue(
        f"capture_logs is True, False or a dibs.LogCapture, not {option!r}.",
        hint='For example: capture_logs=dibs.LogCapture(level="warning", prints=True).',
    )
