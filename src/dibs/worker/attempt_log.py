"""The log of one attempt: turns records and printed text into lines, within the bounds of its handler."""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from dibs.handlers import running
from dibs.handlers.log_capture import LogCapture
from dibs.handlers.middleware import name_of
from dibs.model.claim import Claim
from dibs.model.logs import LogLevel, LogLine, storable_logger, storable_message
from dibs.redaction import redact

logger = logging.getLogger("dibs.worker")

OWN_LOGGER = "dibs"
TASK_LOGGER = "dibs.task"
"""The logger of `ctx.log`. Other records of dibs are about the worker, not about the attempt, and are not captured."""

LONGEST_TEXT = 1024 * 1024
"""Characters of a text that are searched for secrets; the rest is cut off before."""

_formatter = logging.Formatter()
_reported_filters: set[int] = set()
"""Filters whose failure was logged: once in a process, because every record of every attempt may fail."""


class AttemptLog:
    """Collects the lines of one attempt. `put`: passes a line on; False if there is no room for it. `ended`: called at
    the end of the attempt. Safe for threads: those of a handler may share the attempt."""

    def __init__(
        self, claim: Claim, capture: LogCapture, put: Callable[[LogLine, bool], bool], ended: Callable[[], None]
    ) -> None:
        self._claim = claim
        self._capture = capture
        self._put = put
        self._ended = ended
        self._lock = threading.RLock()  # the garbage collector may run code that logs while the lock is held
        self._number = 0
        self._bytes = 0
        self._dropped = 0
        self._full = False
        self._closed = False
        self._prints = PrintedLines(self.print_line) if capture.prints else None

    def record(self, record: logging.LogRecord) -> None:
        """See LogSink."""
        if record.levelno < self._capture.least or _is_own(record.name):
            return
        kept = record if self._capture.filter is None else self._filtered(self._capture.filter, record)
        if kept is not None:
            self._add(kept.created, LogLevel.of(kept.levelno), kept.name, self._text(kept))

    def printed(self, stream: str, text: str) -> None:
        """See LogSink."""
        if self._prints is not None:
            self._prints.write(stream, text)

    def print_line(self, stream: str, text: str) -> None:
        """Take a complete line that was written to a stream."""
        self.record(logging.LogRecord(stream, logging.INFO, "", 0, text, None, None))

    def close(self) -> None:
        """See LogSink. The last line tells how many lines are missing."""
        if self._prints is not None:
            self._prints.end()
        with self._lock:
            self._closed = True
            if self._dropped:
                dropped = f"{self._dropped:,} more line{'s were' if self._dropped > 1 else ' was'} dropped."
                self._put(self._line(time.time(), LogLevel.WARNING, OWN_LOGGER, dropped), True)
        self._ended()

    def _filtered(
        self, function: Callable[[logging.LogRecord], Any], record: logging.LogRecord
    ) -> logging.LogRecord | None:
        """What the user's filter makes of the record. It gets a copy, because other log handlers get the record as
        well; and what it logs itself is not captured."""
        mine = copy.copy(record)
        with running.no_attempt():
            try:
                kept = function(mine)
            except Exception as error:
                if id(function) not in _reported_filters:
                    _reported_filters.add(id(function))
                    about = {"event": "logs.filter_failed", "filter": name_of(function)}
                    logger.error(
                        "the filter %s of captured logs failed, and its records are dropped: %r",
                        *(name_of(function), error),
                        exc_info=error,
                        extra=about,
                    )
                return None
        return kept if isinstance(kept, logging.LogRecord) else mine if kept else None

    def _text(self, record: logging.LogRecord) -> str:
        text = text_of(record)
        if record.name == TASK_LOGGER:  # `ctx.log` names the task in every message, and the line does anyway
            task = self._claim.task
            text = text.removeprefix(f"task {task.id} ({task.type}, attempt {self._claim.attempt}): ")
        return storable_message(redact(text[:LONGEST_TEXT]))

    def _add(self, created: float, level: LogLevel, name: str, message: str) -> None:
        size = len(message) if message.isascii() else len(message.encode())
        with self._lock:
            if self._closed:
                return
            self._full = (
                self._full or self._number >= self._capture.max_lines or self._bytes + size > self._capture.max_bytes
            )
            if self._full or not self._put(self._line(created, level, storable_logger(name), message), False):
                self._dropped += 1
            else:
                self._bytes += size

    def _line(self, created: float, level: LogLevel, name: str, message: str) -> LogLine:
        """The next line. Its number is taken even if there is no room for it."""
        claim, at = self._claim, datetime.fromtimestamp(created, UTC)
        self._number += 1
        return LogLine(claim.task_id, claim.token, claim.attempt, self._number, at, level, name, message)


class PrintedLines:
    """Splits the text that is written to a stream into lines. Of a line that a progress bar draws again and again, the
    last state is kept."""

    def __init__(self, add: Callable[[str, str], None]) -> None:
        self._add = add
        self._lock = threading.RLock()
        self._begun: dict[str, str] = {}

    def write(self, stream: str, text: str) -> None:
        """Take text, and pass its complete lines on."""
        with self._lock:
            *lines, rest = (self._begun.get(stream, "") + text).split("\n")
            if len(rest) > LONGEST_TEXT:
                lines, rest = [*lines, rest], ""
            self._begun[stream] = rest.rpartition("\r")[2] if not rest.endswith("\r") else rest
        for line in lines:
            self._pass_on(stream, line)

    def end(self) -> None:
        """Pass on what was written without a line break at its end."""
        with self._lock:
            begun, self._begun = self._begun, {}
        for stream, line in begun.items():
            self._pass_on(stream, line)

    def _pass_on(self, stream: str, line: str) -> None:
        shown = line.rstrip("\r").rpartition("\r")[2]
        if shown.strip():
            self._add(stream, shown)


def text_of(record: logging.LogRecord) -> str:
    """The message with its traceback and stack, as a log handler would write it."""
    try:
        text = record.getMessage()
    except Exception as error:  # the arguments do not fit the message: the other log handlers report it
        text = f"{record.msg!r} (its arguments do not fit: {error})"
    parts = [text]
    if record.exc_info:
        parts.append(record.exc_text or _formatter.formatException(record.exc_info))
    elif record.exc_text:
        parts.append(record.exc_text)
    if record.stack_info:
        parts.append(record.stack_info)
    return "\n".join(parts)


def _is_own(name: str) -> bool:
    return name != TASK_LOGGER and (name == OWN_LOGGER or name.startswith("dibs."))
