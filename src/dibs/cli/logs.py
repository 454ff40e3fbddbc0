"""The worker's log on standard error: one entry a line, and no entry that a task could forge."""

from __future__ import annotations

import logging
import sys
import time

from dibs.cli import text


def configure(level: str) -> None:
    """Log everything of this level and above."""
    logging.basicConfig(level=level.upper(), handlers=[_on_terminal() if sys.stderr.isatty() else _plain()], force=True)


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
