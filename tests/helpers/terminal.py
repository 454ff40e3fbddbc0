"""A real terminal for the command line: a pseudo-terminal, and an emulator that returns the visible text."""

from __future__ import annotations

import os
import re
import sys
from types import TracebackType
from typing import Self

import pexpect
import pyte

from tests.helpers.waiting import until


def _environment() -> dict[str, str]:
    """The environment without variables that set another size or switch colours off."""
    return {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR", "DIBS_URL")
    }


class Terminal:
    """`dibs ARGS` in a terminal of this size."""

    def __init__(self, *args: str, columns: int = 80, rows: int = 24, **environment: str) -> None:
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.Stream(self._screen)
        self.raw = ""
        self.process = pexpect.spawn(
            sys.executable,
            ["-m", "dibs", *args],
            dimensions=(rows, columns),
            encoding="utf-8",
            timeout=30,
            env={**_environment(), "TERM": "xterm-256color", **environment},
        )

    @property
    def lines(self) -> list[str]:
        """What the screen shows, without the blanks at the ends of lines."""
        self._read()
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        """The same in one piece."""
        return "\n".join(self.lines).rstrip()

    def shows(self, pattern: str, timeout: float = 20.0) -> str:
        """Wait until the screen shows it; the whole screen."""
        try:
            until(lambda: re.search(pattern, self.text), timeout)
        except AssertionError:
            raise AssertionError(f"no {pattern!r} on this screen:\n{self.text}") from None
        return self.text

    def colour_of(self, word: str) -> str:
        """The colour of the word's first letter."""
        self._read()
        for row, line in enumerate(self._screen.display):
            if (column := line.find(word)) >= 0:
                return str(self._screen.buffer[row][column].fg)
        raise AssertionError(f"no {word!r} on this screen:\n{self.text}")

    def press(self, keys: str) -> None:
        """Type."""
        self.process.send(keys)

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.sendintr()

    def resize(self, columns: int, rows: int) -> None:
        """Drag the corner of the window."""
        self._read()
        self._screen.resize(rows, columns)
        self.process.setwinsize(rows, columns)

    def ends(self, timeout: float = 20.0) -> int:
        """Wait for the program's end; its exit code."""
        until(lambda: self._read() or not self.process.isalive(), timeout)
        self._read()
        return self.process.exitstatus if self.process.exitstatus is not None else -self.process.signalstatus

    def _read(self) -> None:
        try:
            while True:
                piece = self.process.read_nonblocking(65536, timeout=0)
                self.raw += piece
                self._stream.feed(piece)
        except (pexpect.TIMEOUT, pexpect.EOF):
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.close(force=True)
