"""Where captured logs come from: a log handler on the root logger, and proxies of sys.stdout and sys.stderr.

Both are in place while a worker runs whose handlers capture logs (or while a test runs such a handler), once in a
process. Outside of an attempt they do nothing, and they pass everything on.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from dibs.handlers import running
from dibs.handlers.log_capture import LogCapture

STREAMS = ("stdout", "stderr")

FRAMES = 30
"""Frames between a log handler that writes to a stream and the call of the logger, at most."""


class CaptureHandler(logging.Handler):
    """Passes records of an attempt to its log. It has no lock, because the log of an attempt has one."""

    def handle(self, record: logging.LogRecord) -> bool:
        """See logging.Handler."""
        self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        """Pass the record on, if it was logged in an attempt whose logs are captured. An error in here must not reach
        the handler of the task."""
        context = running.current.get()
        if context is None or context.sink is None:
            return
        try:
            context.sink.record(record)
        except Exception:
            self.handleError(record)


class StreamProxy:
    """Stands in for sys.stdout or sys.stderr: writes everything to the stream, and text of an attempt to its log as
    well."""

    def __init__(self, stream: Any, name: str) -> None:
        self._stream = stream
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write the text to the stream. What a log handler writes is a record, which is captured already."""
        written: int = self._stream.write(text)
        context = running.current.get()
        if context is not None and context.sink is not None and not _is_logging(sys._getframe(1)):
            context.sink.printed(self._name, text)
        return written

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each line."""
        for line in lines:
            self.write(line)


def _is_logging(frame: FrameType | None) -> bool:
    logs = logging.Logger.callHandlers.__code__
    for _ in range(FRAMES):
        if frame is None:
            return False
        if frame.f_code is logs:
            return True
        frame = frame.f_back
    return False


class RootThreshold(logging.Filter):
    """Keeps a log handler of the root logger from writing records that pass only because capturing has lowered the
    level of the root logger."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self.level = level

    def filter(self, record: logging.LogRecord) -> bool:
        """See logging.Filter."""
        return record.levelno >= self.level or not _has_level_of_root(record.name)


def _has_level_of_root(name: str) -> bool:
    """True if no logger between this one and the root has a level of its own."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None and logger.parent is not None:
        if logger.level:
            return False
        logger = logger.parent
    return True


class Capturing:
    """What is in place in this process. The captures of several workers share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handler = CaptureHandler()
        self._uses = 0
        self._print_uses = 0
        self._threshold: RootThreshold | None = None
        self._others: list[logging.Handler] = []

    def start(self, least: int, *, prints: bool) -> None:
        """Capture from now on, records of the level `least` and above. What other log handlers write stays the same."""
        with self._lock:
            self._uses += 1
            if self._uses == 1:
                _add_last_resort()
                self._others = logging.getLogger().handlers[:]
                logging.getLogger().addHandler(self._handler)
            self._lower_root_level(least)
            if prints:
                self._print_uses += 1
                if self._print_uses == 1:
                    _replace_streams()

    def stop(self, *, prints: bool) -> None:
        """Undo one `start`."""
        with self._lock:
            self._uses -= 1
            if self._uses == 0:
                logging.getLogger().removeHandler(self._handler)
                self._restore_root_level()
                _remove_last_resort()
            if prints:
                self._print_uses -= 1
                if self._print_uses == 0:
                    _restore_streams()

    def _lower_root_level(self, least: int) -> None:
        root = logging.getLogger()
        if root.level <= least:
            return
        if self._threshold is None:
            self._threshold = RootThreshold(root.level)
            for handler in self._others:
                handler.addFilter(self._threshold)
        root.setLevel(least)

    def _restore_root_level(self) -> None:
        if self._threshold is not None:
            for handler in self._others:
                handler.removeFilter(self._threshold)
            logging.getLogger().setLevel(self._threshold.level)
        self._threshold, self._others = None, []


def _add_last_resort() -> None:
    """Let warnings go to stderr as before in a program that has not configured logging: `logging` does that only where
    a logger has no handler at all."""
    root = logging.getLogger()
    if not root.handlers and logging.lastResort is not None:
        root.addHandler(logging.lastResort)


def _remove_last_resort() -> None:
    if logging.lastResort is not None:
        logging.getLogger().removeHandler(logging.lastResort)


capturing = Capturing()


def replace_streams() -> None:
    """Capture what this process prints until its end: for a child process."""
    if not isinstance(sys.stdout, StreamProxy):
        _replace_streams()


def _replace_streams() -> None:
    for name in STREAMS:
        if (stream := getattr(sys, name)) is not None:
            setattr(sys, name, StreamProxy(stream, name))


def _restore_streams() -> None:
    """Put the streams back, unless the program has replaced them meanwhile: a proxy that stays passes everything on."""
    for name in STREAMS:
        proxy = getattr(sys, name)
        if isinstance(proxy, StreamProxy):
            setattr(sys, name, proxy._stream)


@contextmanager
def captured(capture: LogCapture) -> Iterator[None]:
    """A context manager in which logs are captured, for an attempt in a test."""
    capturing.start(capture.least, prints=capture.prints)
    try:
        yield
    finally:
        capturing.stop(prints=capture.prints)
