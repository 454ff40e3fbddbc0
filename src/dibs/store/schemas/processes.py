"""Child processes that validate, each killed at its time limit.

jsonschema-rs holds the interpreter's lock while it validates (measured: 0.41 s of validation stopped every other thread
for 0.41 s), and a thread cannot be killed. A process can. It costs some 50 ms to start and 0.1 to 0.2 ms for each
request after that, so only validations whose work is large or unknown are done here.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec

from dibs.errors import StoreBusy, StoreError
from dibs.store.schemas import compiling
from dibs.store.schemas.compiling import ALIVE, HEADER, InvalidSchema

PROCESSES = 4
MAX_OF_ONE_SCHEMA = 2
"""Processes that one schema may occupy, so that slow values of one task type do not stop the validation of others."""

DESCRIPTION_LIMIT = 0.5
"""Seconds for finding the place of the error in params that are known to be invalid."""

START_LIMIT = 10.0
"""Seconds for starting a process, which do not count for the time limit of the params. A busy machine is slow; a
process that does not start at all must not be started again for ever."""

PROGRAM = "import sys; sys.path[:0] = sys.argv[1:2]; sys.path += sys.argv[2:]; import compiling; compiling.main()"
"""The child process imports only the module: the package around it would take some 100 ms more."""

KEPT_ENVIRONMENT = ("SYSTEMROOT", "PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR", "TEMP")
"""The environment variables that a child process gets. Others may contain passwords."""


class TooSlow(Exception):
    """The validation took more time than it was given, or more memory than it may take; its text says which."""


@dataclass(frozen=True)
class ValidationResult:
    """The result of a validation. `place`: the path of the error in the params. `message`: the error; None if the
    description took too long."""

    valid: bool
    place: str = ""
    message: str | None = None


class Processes:
    """The validating processes of one process, started when first needed."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._changed = threading.Condition()  # guards the two below
        self._idle: list[_Child] = []
        self._busy: Counter[Hashable] = Counter()

    def validate(self, schema: str, params: str | None, *, decided: bool, seconds: float) -> ValidationResult:
        """Compile the schema and validate the params. TooSlow after `seconds`; StoreBusy if no process is free within
        that time. `decided`: the params are known to be invalid, only the description of the error is needed."""
        with self._slot(schema, seconds):
            while True:
                child = self._take_idle_or_start()
                try:
                    result = child.validate(schema, params, decided=decided, seconds=seconds)
                except (
                    _Gone
                ):  # the process ended before it read the request: its idle time was over, or it cannot start
                    child.kill()
                    if not child.has_answered:
                        raise _cannot_start("it ended, or took too long") from None
                except BaseException:
                    child.kill()
                    raise
                else:
                    self._give_back(child)
                    return result

    def close(self) -> None:
        """End the processes that are idle."""
        if self.pid == os.getpid():
            with self._changed:
                idle, self._idle = self._idle, []
            for child in idle:
                child.kill()

    @contextlib.contextmanager
    def _slot(self, schema: str, seconds: float) -> Iterator[None]:
        key = hash(schema)

        def free() -> bool:
            return self._busy.total() < PROCESSES and self._busy[key] < MAX_OF_ONE_SCHEMA

        with self._changed:
            if not self._changed.wait_for(free, seconds):
                raise StoreBusy(
                    f"No process for validating params was free within {seconds:.1f} seconds.",
                    hint="Other params that take long to validate are waiting; trying again is safe.",
                )
            self._busy[key] += 1
        try:
            yield
        finally:
            with self._changed:
                self._busy[key] -= 1
                self._busy += Counter()  # drop the zero counts
                self._changed.notify_all()

    def _take_idle_or_start(self) -> _Child:
        with self._changed:
            while self._idle:
                child = self._idle.pop()
                if child.alive:
                    return child
                child.kill()
        return _Child()

    def _give_back(self, child: _Child) -> None:
        if child.alive:
            with self._changed:
                self._idle.append(child)
        else:
            child.kill()


class _Gone(Exception):
    """The child process ended before it had read the request."""


class _Child:
    """One child process, used by one thread at a time."""

    def __init__(self) -> None:
        library, ours = Path(jsonschema_rs.__file__).parent.parent, Path(compiling.__file__).parent
        command = [_interpreter(), "-I", "-c", PROGRAM, str(library), str(ours)]
        environment = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own file, no shell
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=sys.platform != "win32",
            )
        except OSError as error:
            raise _cannot_start(str(error)) from None
        self.has_answered = False

    @property
    def alive(self) -> bool:
        """True until the process has ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill the process. A second call does nothing."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.wait()

    def validate(self, schema: str, params: str | None, *, decided: bool, seconds: float) -> ValidationResult:
        """See Processes.validate."""
        request = {"schema": schema, "params": params, "decided": decided, "seconds": seconds + 1}
        with self._time_limit(START_LIMIT):
            self._send(msgspec.json.encode(request))
        with self._time_limit(DESCRIPTION_LIMIT if decided else seconds) as timer:
            answer = self._receive()
        if answer is None:
            if decided:
                return ValidationResult(False)
            raise TooSlow(f"longer than {seconds:.1f} seconds" if timer.fired else "too much memory")
        if "refused" in answer:
            raise InvalidSchema(answer["refused"])
        if answer["valid"]:
            return ValidationResult(True)
        with self._time_limit(DESCRIPTION_LIMIT):
            described = self._receive() or {}
        return ValidationResult(False, described.get("place", ""), described.get("message"))

    def _send(self, request: bytes) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(HEADER.pack(len(request)) + request)
            self._process.stdin.flush()
        except OSError:
            raise _Gone from None
        if self._process.stdout.read(1) != ALIVE:
            raise _Gone
        self.has_answered = True

    def _receive(self) -> Any:
        """The next answer; None where the process has ended."""
        assert self._process.stdout is not None
        header = self._process.stdout.read(HEADER.size)
        if len(header) < HEADER.size:
            return None
        (size,) = HEADER.unpack(header)
        body = self._process.stdout.read(size)
        return msgspec.json.decode(body) if len(body) == size else None

    @contextlib.contextmanager
    def _time_limit(self, seconds: float) -> Iterator[_Timer]:
        timer = _Timer(seconds, self._process)
        timer.start()
        try:
            yield timer
        finally:
            timer.cancel()


class _Timer(threading.Timer):
    """Kills the process after `seconds`. A thread that reads from its pipe then gets the end of the stream."""

    def __init__(self, seconds: float, process: subprocess.Popen[bytes]) -> None:
        super().__init__(seconds, self._kill)
        self.daemon = True
        self.fired = False
        self._process = process

    def _kill(self) -> None:
        self.fired = True
        self._process.kill()


_processes: Processes | None = None
_starting = threading.Lock()


def processes() -> Processes:
    """The validating processes of this process. A forked child starts its own."""
    global _processes  # noqa: PLW0603
    with _starting:
        if _processes is None or _processes.pid != os.getpid():
            _processes = Processes()
            atexit.register(_processes.close)
        return _processes


def _cannot_start(why: str) -> StoreError:
    return StoreError(
        f"The process that validates params could not be started: {why}.",
        hint="Params of this size, or of a schema like this, are validated in a process of their own. "
        "Allow this program to start processes, or simplify the schema.",
    )


def _interpreter() -> str:
    """The Python interpreter. In a program that embeds Python, sys.executable is that program."""
    if Path(sys.executable or "").name.lower().startswith(("python", "pypy")):
        return sys.executable
    names = ("python.exe",) if sys.platform == "win32" else ("bin/python3", "bin/python")
    for name in names:
        if (found := Path(sys.prefix, name)).exists():
            return str(found)
    raise StoreError(
        "The process that validates params could not be started: the Python interpreter was not found.",
        hint="Params of this size, or of a schema like this, are validated in a process of their own. "
        "Set sys.executable, or simplify the schema.",
    )
