"""Log lines of tasks: what handlers have logged or printed, and the pages in which the lines are read.

A line belongs to one attempt: to the task and the token of the claim. Its number counts the lines of the attempt from
1.
"""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

import msgspec

from dibs.errors import InvalidValue
from dibs.json_values import clean_text
from dibs.model.checks import check_integer, check_seconds

MAX_LINES = 100_000
"""The largest number of lines of one attempt that any option allows, and the largest number of a line."""

MAX_MESSAGE = 8000
"""Characters of one message. Of a longer one the beginning and the end are kept."""

MAX_LOGGER = 255

MAX_PAGE = 500
"""Lines on one page: of lines of the largest size, some megabytes."""

MAX_WAIT = 60.0

CUT = "\n… {:,} characters are left out …\n"

_LINE_ID = re.compile(r"[0-9]{1,18}-[0-9]{1,9}")


class LogLevel(StrEnum):
    """The level of a line. Other levels of `logging` are stored as the next lower one of these."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"

    @property
    def number(self) -> int:
        """The number of the level in `logging`."""
        return _NUMBERS[self]

    @classmethod
    def of(cls, number: int) -> LogLevel:
        """The level for a number of `logging`."""
        return next((level for level, least in reversed(_NUMBERS.items()) if number >= least), cls.DEBUG)


_NUMBERS = {level: 10 * place for place, level in enumerate(LogLevel, 1)}


class LogLine(msgspec.Struct, frozen=True):
    """One line: `at` by the clock of the worker, `logger` (or `stdout` and `stderr` for printed text), and the message
    with its traceback, if there is one."""

    task_id: int
    token: int
    attempt: int
    number: int
    at: datetime
    level: LogLevel
    logger: str
    message: str

    @property
    def id(self) -> str:
        """The place of the line among those of its task. The lines after it are read with `after`."""
        return f"{self.token}-{self.number}"


class LogFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines of a task to read: those after the line with the id `after`, of this attempt, of this level and
    above."""

    after: str | None = None
    attempt: int | None = None
    level: str | None = None
    limit: int = MAX_PAGE

    def __post_init__(self) -> None:
        if self.after is not None and (type(self.after) is not str or not _LINE_ID.fullmatch(self.after)):
            raise InvalidValue(f"{self.after!r} is not the id of a line.", hint="Pass the `id` of the last line read.")
        if self.attempt is not None:
            check_integer(self.attempt, "attempt", 1, 2**31 - 1)
        check_level(self.level)
        check_integer(self.limit, "limit", 1, MAX_PAGE)

    @property
    def position(self) -> tuple[int, int]:
        """The token and the number of the line before the page."""
        token, _, number = (self.after or "0-0").partition("-")
        return int(token), int(number)

    def following(self, page: LogPage) -> Self:
        """The filter of the next page."""
        return msgspec.structs.replace(self, after=page.lines[-1].id) if page.lines else self


class LogPage(msgspec.Struct, frozen=True):
    """Lines of a task, in order. `ended`: no further attempt is running or will run; lines of the last moment may still
    arrive."""

    lines: list[LogLine]
    ended: bool


class LogCount(msgspec.Struct, frozen=True):
    """How many lines an attempt has, and the number of the last one."""

    token: int
    attempt: int
    lines: int
    last: int


def check_level(level: Any) -> LogLevel:
    """The level of this name, in small or capital letters; the lowest for None."""
    if level is None:
        return LogLevel.DEBUG
    if not isinstance(level, str) or level.lower() not in LogLevel.__members__.values():
        raise InvalidValue(f"{level!r} is not a level of log lines.", hint=f"Use one of: {', '.join(LogLevel)}.")
    return LogLevel(level.lower())


def check_wait(wait: float) -> float:
    """Check the seconds for which a server may delay a page."""
    if check_seconds(wait, "wait") > MAX_WAIT * 1e6:
        raise InvalidValue(f"wait is at most {MAX_WAIT:g} seconds, not {wait}.")
    return wait


def storable_message(text: str) -> str:
    """The text as every engine can store it, shortened in its middle: a message begins with what happened, and a
    traceback ends with it."""
    if len(text) > MAX_MESSAGE:
        half = MAX_MESSAGE // 2 - 25
        text = text[:half] + CUT.format(len(text) - 2 * half) + text[-half:]
    return clean_text(text)


def storable_logger(name: str) -> str:
    """The name of a logger as every engine can store it."""
    return clean_text(name[:MAX_LOGGER])
