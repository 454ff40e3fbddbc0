"""The log of a worker or server on standard error: one entry a line, and none that a task or a client could forge."""

from __future__ import annotations

import logging
import sys
import time

from dibs.cli import text


def configure(level: str) -> None:
    """Log everything of this level and above."""
    logging.basicConfig(level=level.upper(), handlers=[_on_terminal() if sys.stderr.isatty() else _plain()], force=True)
    if level.lower() != "debug":
        for name in ("httpx", "httpcore"):  # a line for every request that a worker makes
            logging.getLogger(name).setLevel(logging.WARNING)


def configure_access() -> None:
    """Give the lines about requests a way of their own: there are thousands a second, and they all look alike.

    Measured for one line: 11 us, instead of 20 in a file and 820 on a terminal.
    """
    handler = logging.StreamHandler()
    times = "%H:%M:%S" if sys.stderr.isatty() else "%Y-%m-%dT%H:%M:%S"
    handler.setFormatter(Quick(times, on_terminal=sys.stderr.isatty()))
    access = logging.getLogger("dibs.access")
    access.handlers, access.propagate = [handler], False


class OneLine(logging.Formatter):
    """Spells out control characters, and indents a traceback: only an entry of its own begins at the margin."""

    @staticmethod
    def converter(seconds: float | None) -> time.struct_time:
        """Times in UTC, as everywhere in dibs."""
        return time.gmtime(seconds)

    def format(self, record: logging.LogRecord) -> str:
        """The entry, safe to show."""
        record.message = text.line(record.getMessage())
        record.asctime = self.formatTime(record, self.datefmt)
        entry = text.line(self.formatMessage(record))
        trace = self.formatException(record.exc_info) if record.exc_info else record.exc_text
        parts = [text.lines(part) for part in (trace, record.stack_info) if part]
        return "\n".join([entry, *(f"    {each}" for part in parts for each in part.splitlines())])


class Quick(logging.Formatter):
    """`OneLine` for entries without a traceback; the time is spelled once a second."""

    def __init__(self, times: str, *, on_terminal: bool) -> None:
        super().__init__()
        self._times, self._on_terminal = times, on_terminal
        self._second, self._spelled = 0, ""

    def format(self, record: logging.LogRecord) -> str:
        """The entry, safe to show."""
        second = int(record.created)
        if second != self._second:
            self._second, self._spelled = second, time.strftime(self._times, time.gmtime(second))
        message = text.line(record.getMessage())
        if self._on_terminal:
            return f"{self._spelled} {record.levelname:<8} {message}"
        return f"{self._spelled}.{int(record.msecs):03d}Z {record.levelname:<7} {record.name}: {message}"


def _plain() -> logging.Handler:
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine("%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"))
    return handler


def _on_terminal() -> logging.Handler:
    from rich.console import Console
    from rich.highlighter import NullHighlighter
    from rich.logging import RichHandler

    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    handler = RichHandler(
        console=console, show_path=False, markup=False, log_time_format="%H:%M:%S", highlighter=NullHighlighter()
    )
    handler.setFormatter(OneLine("%(message)s"))
    return handler
