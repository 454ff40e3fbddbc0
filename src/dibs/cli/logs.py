"""The log of a worker or server on standard error: one entry a line, for people on a terminal and as JSON elsewhere,
and none that a task or a client could forge.

An entry of dibs has a name (`event`) and fields; so has whatever a program logs with `extra`.
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
from dibs.codec import clean_text
from dibs.errors import InvalidValue
from dibs.observe import log, tracing
from dibs.redaction import redact, redact_encoded

FORMATS = ("auto", "human", "json")
QUIETER = ("httpx", "httpcore", "opentelemetry")
"""A line for every request that a worker makes, and whatever an exporter has to say."""

COLOURS = {"DEBUG": "2", "WARNING": "33", "ERROR": "31", "CRITICAL": "31;1"}


def configure(level: str, log_format: str = "auto") -> None:
    """Log everything of this level and above."""
    handler = logging.StreamHandler()
    handler.setFormatter(_formatter(check_format(log_format), on_terminal=sys.stderr.isatty()))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    if level.lower() != "debug":
        for name in QUIETER:
            logging.getLogger(name).setLevel(logging.WARNING)


def check_format(log_format: str) -> str:
    """Refuse a format that there is not."""
    if log_format not in FORMATS:
        raise InvalidValue(f"There is no log format {log_format!r}.", hint=f"Use one of: {', '.join(FORMATS)}.")
    return log_format


def _formatter(log_format: str, *, on_terminal: bool) -> logging.Formatter:
    if log_format == "json" or (log_format == "auto" and not on_terminal):
        return Json()
    return Human(on_terminal=on_terminal, coloured=on_terminal and _likes_colours())


def _likes_colours() -> bool:
    return sys.platform != "win32" and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


class Timed(logging.Formatter):
    """Tells the time in UTC, as everywhere in dibs; a second is spelled once, for there may be thousands of entries."""

    def __init__(self, times: str = "%Y-%m-%dT%H:%M:%S") -> None:
        super().__init__()
        self._times = times
        self._spelled = (-1, "")

    def second(self, record: logging.LogRecord) -> str:
        """The second of the entry."""
        second, spelled = self._spelled
        if second != int(record.created):
            second = int(record.created)
            spelled = time.strftime(self._times, time.gmtime(second))
            self._spelled = (second, spelled)  # at once: threads share the formatter
        return spelled

    def trace_of(self, record: logging.LogRecord) -> str | None:
        """The traceback of what is logged, if it has one."""
        return self.formatException(record.exc_info) if record.exc_info else record.exc_text


class Human(Timed):
    """Spells out control characters, and indents a traceback: only an entry of its own begins at the margin."""

    def __init__(self, *, on_terminal: bool = False, coloured: bool = False) -> None:
        super().__init__("%H:%M:%S" if on_terminal else "%Y-%m-%dT%H:%M:%S")
        self._on_terminal, self._coloured = on_terminal, coloured

    def format(self, record: logging.LogRecord) -> str:
        """The entry, safe to show."""
        entry = self._start(record) + text.line(redact(record.getMessage()))
        parts = [part for part in (self.trace_of(record), record.stack_info) if part]
        if not parts:
            return entry
        spelled = [text.lines(redact(part)) for part in parts]
        return "\n".join([entry, *(f"    {each}" for part in spelled for each in part.splitlines())])

    def _start(self, record: logging.LogRecord) -> str:
        if self._on_terminal:
            return f"{self.second(record)} {self._level(record.levelname)} "
        return f"{self.second(record)}.{int(record.msecs):03d}Z {record.levelname:<7} {text.line(record.name)}: "

    def _level(self, name: str) -> str:
        colour = COLOURS.get(name) if self._coloured else None
        return f"{name:<8}" if colour is None else f"\x1b[{colour}m{name:<8}\x1b[0m"


class Json(Timed):
    """One JSON object a line: when, how grave, who says it, what happened (`event`), the sentence, and its fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The entry, on one line whatever it holds."""
        given = log.given(record)
        entry: dict[str, Any] = {
            "time": f"{self.second(record)}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if "event" in given:
            entry["event"] = given.pop("event")
        entry["message"] = record.getMessage()
        entry |= {name: value for name, value in given.items() if name not in entry}
        if "trace_id" not in given:
            entry |= tracing.ids()
        if trace := self.trace_of(record):
            entry["traceback"] = trace
        if record.stack_info:
            entry["stack"] = record.stack_info
        readable = {name: redact(value) if isinstance(value, str) else value for name, value in entry.items()}
        return redact_encoded(text.json_line(_encoded(readable)))


def _encoded(entry: Mapping[str, Any]) -> str:
    try:
        return _encode(entry).decode()
    except Exception:  # whatever a program gave its entry: it is told as text instead
        return _encode({name: clean_text(_said(value)) for name, value in entry.items()}).decode()


def _said(value: Any) -> str:
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__}>"


_encode = msgspec.json.Encoder(enc_hook=_said).encode
