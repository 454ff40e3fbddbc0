"""Several processes of a worker or a server under one roof: who dies is started again, who is to stop may finish."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import Any

from dibs.exit_codes import WRONG_USAGE
from dibs.observe.sharing import FILE

LOOK_EVERY = 0.1
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
STEADY = 60.0
"""A process that lived so long had begun well: the next death is a new trouble, and the pause short again."""

LIFELINE = "DIBS_LIFELINE"
"""Names, to the processes, a pipe that ends with the supervisor. Where there are no signals there is none."""

Health = Callable[[], tuple[bool, dict[str, Any]]]
Beside = Callable[[Path, Health], AbstractContextManager[object]]
"""Given the folder in which the processes keep their counts, and a way to ask how they are."""

log = logging.getLogger("dibs.supervisor")


def supervise(
    commands: Sequence[list[str]],
    *,
    what: str = "worker",
    burst: bool = False,
    handed: Mapping[str, int] | None = None,
    stopping: Callable[[], object] | None = None,
    beside: Beside | None = None,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run the commands side by side until all have ended; the worst of their exit codes.

    `handed`: open files for each of them, named by environment variables. `stopping` is called once, when they are told
    to stop. `beside`: what else to do meanwhile. `environment`: more variables for each of them.
    """
    lifeline = {} if sys.platform == "win32" else {LIFELINE: os.pipe()[0]}  # its other end is ours, and never closed
    more = environment or {}
    with tempfile.TemporaryDirectory(prefix="dibs-counts-", ignore_cleanup_errors=True) as folder:
        children = [
            Child(
                number,
                command,
                what,
                {**lifeline, **(handed or {})},
                {FILE: str(Path(folder, f"{number}.json")), **more},
            )
            for number, command in enumerate(commands, 1)
        ]
        supervisor = Supervisor(children, burst, stopping)
        meanwhile = contextlib.nullcontext() if beside is None else beside(Path(folder), supervisor.health)
        with supervisor.hearing_signals(), meanwhile:
            return supervisor.run()


def end_with_the_supervisor() -> None:
    """In one of the processes: stop as after SIGTERM when the supervisor is gone, however it went. Nobody would start
    the process again, nor ask it to stop, and a new supervisor would start others beside it."""
    if (lifeline := os.environ.pop(LIFELINE, None)) is None:
        return
    os.set_inheritable(int(lifeline), False)
    threading.Thread(target=_wait_for_the_end, args=[int(lifeline)], name="dibs-lifeline", daemon=True).start()


def _wait_for_the_end(lifeline: int) -> None:
    os.read(lifeline, 1)  # nobody ever writes
    log.error("the supervisor is gone", extra={"event": "supervisor.lost"})
    os.kill(os.getpid(), signal.SIGTERM)


class Child:
    """A process, and what became of it."""

    def __init__(
        self, number: int, command: list[str], what: str, handed: Mapping[str, int], named: Mapping[str, str]
    ) -> None:
        self.name = f"{what} process {number}"
        self._handed = handed
        self._named = named
        self.process: subprocess.Popen[bytes] | None = None
        self.code: int | None = None  # set once it is not to be started again
        self._command = command
        self._started_at = 0.0
        self._pause = FIRST_PAUSE
        self._again_at = 0.0

    def start(self) -> None:
        """Start it, out of the reach of the terminal's Ctrl-C: it hears of that from us, once."""
        named = {**self._named, **{name: str(number) for name, number in self._handed.items()}}
        apart: dict[str, Any] = {"start_new_session": True, "pass_fds": list(self._handed.values())}
        if sys.platform == "win32":
            apart = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
        env = {**os.environ, **named}
        self.process = subprocess.Popen(self._command, env=env, **apart)  # noqa: S603 - our own command, no shell
        self._started_at = time.monotonic()
        about = {"event": "process.started", "child": self.name, "pid": self.process.pid}
        log.info("%s started (pid %d)", self.name, self.process.pid, extra=about)

    def send(self, number: signal.Signals) -> None:
        """Pass a signal on."""
        if self.process is None or self.process.poll() is not None:
            return
        if sys.platform == "win32":
            self.process.send_signal(signal.CTRL_BREAK_EVENT)
        else:
            self.process.send_signal(number)

    def rest(self) -> float:
        """It died: the seconds until it is started again, longer each time."""
        self.process = None
        if time.monotonic() - self._started_at > STEADY:
            self._pause = FIRST_PAUSE
        pause, self._pause = self._pause, min(self._pause * 2, LONGEST_PAUSE)
        self._again_at = time.monotonic() + pause
        return pause

    @property
    def rested(self) -> bool:
        """True when it may be started again."""
        return time.monotonic() >= self._again_at


class Supervisor:
    """Looks after the children until the last of them has ended."""

    def __init__(self, children: list[Child], burst: bool, stopping: Callable[[], object] | None) -> None:
        self._children = children
        self._burst = burst
        self._stopping = stopping
        self._heard: list[signal.Signals] = []  # not yet passed on
        self._sent: set[int] = set()

    def run(self) -> int:
        """Until all have ended; the worst exit code."""
        while living := [child for child in self._children if child.code is None]:
            self._pass_on()
            for child in living:
                self._tend(child)
            time.sleep(LOOK_EVERY)
        return max(child.code or 0 for child in self._children)

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether any process runs, and how many of them do."""
        processes = [child.process for child in self._children]
        running = sum(process is not None and process.poll() is None for process in processes)
        return running > 0, {"processes": len(self._children), "running": running}

    @contextlib.contextmanager
    def hearing_signals(self) -> Iterator[None]:
        """Note SIGTERM and SIGINT (and a terminal that went away) instead of dying of them."""
        names = [name for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]
        before = {name: signal.signal(getattr(signal, name), self._hear) for name in names}
        try:
            yield
        finally:
            for name, handler in before.items():
                signal.signal(getattr(signal, name), handler)

    def _hear(self, number: int, _: FrameType | None) -> None:
        self._heard.append(signal.SIGTERM)  # also for Ctrl-C: a child that is still importing would show a traceback

    def _pass_on(self) -> None:
        while self._heard:
            number = self._heard.pop(0)
            if self._stopping is not None and not self._sent:
                self._stopping()
            self._sent.add(number)
            for child in self._children:
                child.send(number)

    def _tend(self, child: Child) -> None:
        if child.process is None:
            self._start(child)
        elif (code := child.process.poll()) is not None:
            self._ended(child, code)

    def _start(self, child: Child) -> None:
        if self._sent:
            child.code = 0  # it rested when everything was told to stop
        elif child.rested:
            child.start()

    def _ended(self, child: Child, code: int) -> None:
        if self._sent or (self._burst and code == 0):
            child.code = self._judged(code)
        elif code == WRONG_USAGE:  # it will say the same each time, and so will the others
            child.code = code
            self._heard.append(signal.SIGTERM)
        else:
            about = {"event": "process.died", "child": child.name, "exit_code": code}
            log.error("%s died with exit code %d; again in %g s", child.name, code, child.rest(), extra=about)

    def _judged(self, code: int) -> int:
        if -code in self._sent:
            return 0  # our signal came before it had begun to listen: it held nothing yet
        return 128 - code if code < 0 else code
