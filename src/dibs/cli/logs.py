"""The log of a worker or server on standard error: one entry a line, as text on a terminal and as JSON elsewhere.

Entries of dibs have a name (`event`) and fields; other entries have the fields that a program logs with `extra`.
An entry that a handler logs, with any logger, has the fields of its task. Control characters are escaped, so that text
from a task or a client cannot forge an entry.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from dibs.cli import text
from dibs.errors import InvalidValue
from dibs.handlers import running
from dibs.json_values import clean_text
from dibs.observe import log, tracing
from dibs.redaction import redact, redact_json

FORMATS = ("auto", "human", "json")
NOISY_LOGGERS = ("httpx", "httpcore", "opentelemetry")
"""Loggers that write a line for each request or export: they log warnings only, unless the level is debug."""

COLOURS = {"DEBUG": "2", "WARNING": "33", "ERROR": "31", "CRITICAL": "31;1"}


def configure(level: str, log_format: str = "auto", formatter: logging.Formatter | None = None) -> None:
    """Configure the root logger to write entries of this level and above to standard error. `formatter`: instead of
    that of the format."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter or _formatter(check_format(log_format), on_terminal=sys.stderr.isatty()))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    if level.lower() != "debug":
        for name in NOISY_LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)


def check_format(log_format: str) -> str:
    """Return the log format, or raise InvalidValue if it does not exist."""
    if log_format not in FORMATS:
        raise InvalidValue(f"{log_format!r} is not a log format.", hint=f"Use one of: {', '.join(FORMATS)}.")
    return log_format


def _formatter(log_format: str, *, on_terminal: bool) -> logging.Formatter:
    if log_format == "json" or (log_format == "auto" and not on_terminal):
        return JsonFormatter()
    return HumanFormatter(on_terminal=on_terminal, coloured=on_terminal and supports_colours())


def is_for_people(log_format: str) -> bool:
    """Whether entries in this format are text on a terminal."""
    return check_format(log_format) != "json"


def supports_colours() -> bool:
    """Whether the terminal shows colours, and the user wants them."""
    return sys.platform != "win32" and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


class TimedFormatter(logging.Formatter):
    """Formats the time in UTC. The text of a second is cached, because a second may have thousands of entries."""

    def __init__(self, time_format: str = "%Y-%m-%dT%H:%M:%S") -> None:
        super().__init__()
        self._time_format = time_format
        self._formatted = (-1, "")

    def second(self, record: logging.LogRecord) -> str:
        """Return the time of the entry, to the second."""
        second, formatted = self._formatted
        if second != int(record.created):
            second = int(record.created)
            formatted = time.strftime(self._time_format, time.gmtime(second))
            self._formatted = (second, formatted)  # one assignment, because threads share the formatter
        return formatted

    def trace_of(self, record: logging.LogRecord) -> str | None:
        """Return the traceback of the entry, if it has one."""
        return self.formatException(record.exc_info) if record.exc_info else record.exc_text


class HumanFormatter(TimedFormatter):
    """Formats entries as text. Control characters are escaped and tracebacks indented: only entries start a line."""

    def __init__(self, *, on_terminal: bool = False, coloured: bool = False) -> None:
        super().__init__("%H:%M:%S" if on_terminal else "%Y-%m-%dT%H:%M:%S")
        self._on_terminal, self.coloured = on_terminal, coloured

    def format(self, record: logging.LogRecord) -> str:
        """Return the entry as text that is safe to print on a terminal."""
        entry = self._start(record) + text.line(redact(f"{_task(record)}{record.getMessage()}"))
        parts = [part for part in (self.trace_of(record), record.stack_info) if part]
        if not parts:
            return entry
        formatted = [text.lines(redact(part)) for part in parts]
        return "\n".join([entry, *(f"    {each}" for part in formatted for each in part.splitlines())])

    def _start(self, record: logging.LogRecord) -> str:
        if self._on_terminal:
            return f"{self.second(record)} {self._level(record.levelname)} "
        return f"{self.second(record)}.{int(record.msecs):03d}Z {record.levelname:<7} {text.line(record.name)}: "

    def _level(self, name: str) -> str:
        colour = COLOURS.get(name) if self.coloured else None
        return f"{name:<8}" if colour is None else f"\x1b[{colour}m{name:<8}\x1b[0m"


class JsonFormatter(TimedFormatter):
    """Formats entries as one JSON object a line: time, level, logger, event, message and fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the entry as JSON on one line."""
        given = log.extra_fields(record)
        entry: dict[str, Any] = {
            "time": f"{self.second(record)}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if "event" in given:
            entry["event"] = given.pop("event")
        entry["message"] = record.getMessage()
        entry |= {name: value for name, value in {**running.fields(), **given}.items() if name not in entry}
        if "trace_id" not in given:
            entry |= tracing.current_ids()
        if trace := self.trace_of(record):
            entry["traceback"] = trace
        if record.stack_info:
            entry["stack"] = record.stack_info
        readable = {name: redact(value) if isinstance(value, str) else value for name, value in entry.items()}
        return redact_json(text.json_line(_encoded(readable)))


def _task(record: logging.LogRecord) -> str:
    """The task that logs the entry. The entries of dibs name their task themselves."""
    if record.name.partition(".")[0] == "dibs" or not (task := running.fields()):
        return ""
    return f"task {task['task_id']} ({task['task_type']}, attempt {task['attempt']}): "


def _encoded(entry: Mapping[str, Any]) -> str:
    try:
        return _encode(entry).decode()
    except Exception:  # a field of the program that JSON cannot encode is written as text
        return _encode({name: clean_text(_as_text(value)) for name, value in entry.items()}).decode()


def _as_text(value: Any) -> str:
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__}>"


_encode = msgspec.json.Encoder(enc_hook=_as_text).encode
