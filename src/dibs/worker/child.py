"""The child process of a process lane: runs one task at a time and sends each outcome to the parent process.

Parent and child exchange msgpack messages over a pipe, never pickle. The child imports a handler from the module in
which the parent found it; the content of a task never decides what is imported.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from dibs.errors import ClaimLost, InvalidValue, StoreError
from dibs.handlers.context import Context
from dibs.handlers.endings import describe, outcome_of
from dibs.handlers.handler import Handler
from dibs.model.claim import Claim, Failed, Outcome
from dibs.model.workflow import StepResult
from dibs.observe import log, tracing
from dibs.worker.run import perform, permanent_failure

TRACE_FLUSH_TIMEOUT = 2000
"""Milliseconds for which a child that ends waits for the export of its last trace spans."""


class HandlerPath(msgspec.Struct, frozen=True):
    """The module and the qualified name under which a handler can be imported."""

    module: str
    qualname: str


class RunTask(msgspec.Struct, frozen=True, tag=True):
    """Parent to child: run the handler under this claim."""

    handler: HandlerPath
    claim: Claim
    trace: str | None = None


class StopRequested(msgspec.Struct, frozen=True, tag=True):
    """Parent to child: the handler has to stop."""


class DataReply(msgspec.Struct, frozen=True, tag=True):
    """Parent to child: the reply to the last DataRequest, or the reason of a refusal. `lost`: the claim is lost."""

    value: Any = None
    refused: str | None = None
    lost: bool = False


class HandlerStarted(msgspec.Struct, frozen=True, tag=True):
    """Child to parent: the handler is imported and starts now."""


class ClaimMessage(msgspec.Struct, frozen=True, tag=True):
    """Child to parent: a message about one claim. A thread left behind by an earlier task can still send messages."""

    task_id: int
    token: int

    def is_about(self, claim: Claim) -> bool:
        """True if the attempt with this claim sent the message."""
        return (self.task_id, self.token) == (claim.task_id, claim.token)


class ProgressMade(ClaimMessage, frozen=True, tag=True):
    """Child to parent: the handler has reported progress."""

    percent: int
    message: str | None


class LogEntry(msgspec.Struct, frozen=True, tag=True):
    """Child to parent: a log entry, its fields converted to plain values."""

    name: str
    level: int
    text: str
    traceback: str | None = None
    fields: dict[str, str | int | float | bool | None] = {}

    def log(self) -> None:
        """Log the entry in this process under its original logger."""
        logger = logging.getLogger(self.name)
        if logger.isEnabledFor(self.level):
            origin = {"name": self.name, "levelno": self.level, "levelname": logging.getLevelName(self.level)}
            content = {"msg": self.text, "args": None, "exc_text": self.traceback}
            logger.handle(logging.makeLogRecord({**self.fields, **origin, **content}))


class GetResults(ClaimMessage, frozen=True, tag=True):
    """Child to parent: send the results of the parent steps. The handler waits for the reply."""


class GetCheckpoints(ClaimMessage, frozen=True, tag=True):
    """Child to parent: send the checkpoints that earlier attempts have kept."""


class KeepCheckpoint(ClaimMessage, frozen=True, tag=True):
    """Child to parent: store a checkpoint for later attempts."""

    name: str
    value: Any


class AttemptEnded(msgspec.Struct, frozen=True, tag=True):
    """Child to parent: the outcome of the attempt, and the bytes of memory that the child uses (0: unknown)."""

    outcome: Outcome
    memory: int


DataRequest = GetResults | GetCheckpoints | KeepCheckpoint
ChildMessage = HandlerStarted | ProgressMade | LogEntry | AttemptEnded | DataRequest

pack = msgspec.msgpack.encode
_unpack_parent_message = msgspec.msgpack.Decoder(RunTask | StopRequested | DataReply).decode
unpack = msgspec.msgpack.Decoder(ChildMessage).decode


def main(pipe: Connection, log_level: int) -> None:
    """Run tasks until the parent closes the pipe: the entry point of the child process."""
    _ignore_stop_signals()
    _request_death_with_parent()
    _TaskRunner(pipe, log_level).work()


class _TaskRunner:
    def __init__(self, pipe: Connection, log_level: int) -> None:
        self._pipe = pipe
        self._sending = threading.Lock()
        self._tasks: queue.SimpleQueue[tuple[RunTask, Context]] = queue.SimpleQueue()
        self._context: Context | None = None
        self._task_data = _ParentTaskData(self._send)
        root = logging.getLogger()
        # Handlers that the main module has configured on its import here would write each entry a second time.
        root.handlers[:] = [_ParentLogHandler(self._send)]
        root.setLevel(log_level)
        threading.Thread(target=self._listen, name="dibs-messages", daemon=True).start()

    def work(self) -> None:
        """Run one task after the other; the listening thread ends the process when the parent closes the pipe."""
        while True:
            outcome = self._run(*self._tasks.get())
            _flush_output()
            try:
                self._send(AttemptEnded(outcome, _memory_in_use()))
            except (TypeError, ValueError, OverflowError, RecursionError) as error:  # msgpack cannot encode it
                failure = permanent_failure(InvalidValue(f"The handler's result cannot be stored as JSON: {error}."))
                self._send(AttemptEnded(failure, _memory_in_use()))

    def _run(self, message: RunTask, context: Context) -> Outcome:
        try:
            handler = _load_handler(message.handler)
        except Exception as error:  # an import that works in the parent can fail in the child
            return Failed(describe(error), permanent=True)
        self._send(HandlerStarted())
        try:
            with tracing.remote_parent(message.trace):
                return perform(handler, context)
        except KeyboardInterrupt as error:  # raised by the handler itself: the child ignores Ctrl-C
            return outcome_of(error)

    def _listen(self) -> None:
        """Receive messages of the parent, in a separate thread: a request to stop can arrive while a handler runs."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                message = _unpack_parent_message(self._pipe.recv_bytes())
                if isinstance(message, RunTask):
                    self._context = Context(message.claim, self._report_progress, self._task_data)
                    self._tasks.put((message, self._context))
                elif isinstance(message, DataReply):
                    self._task_data.replies.put(message)
                elif self._context is not None:
                    self._context.cancelled = True
        tracing.flush(TRACE_FLUSH_TIMEOUT)
        os._exit(0)  # the parent has closed the pipe or died: no process waits for the outcome of a running handler

    def _report_progress(self, claim: Claim, percent: int, message: str | None) -> None:
        self._send(ProgressMade(claim.task_id, claim.token, percent, message))

    def _send(self, message: ChildMessage) -> None:
        packed = pack(message)
        with self._sending:
            self._pipe.send_bytes(packed)


class _ParentTaskData:
    """Reads and writes task data through the parent process, one request at a time."""

    def __init__(self, send: Callable[[DataRequest], None]) -> None:
        self._send = send
        self._one_request = threading.Lock()
        self.replies: queue.SimpleQueue[DataReply] = queue.SimpleQueue()

    def results(self, claim: Claim) -> Sequence[StepResult]:
        """See TaskData."""
        return msgspec.convert(self._request(claim, GetResults(claim.task_id, claim.token)), list[StepResult])

    def checkpoints(self, claim: Claim) -> dict[str, Any]:
        """See TaskData."""
        kept: dict[str, Any] = self._request(claim, GetCheckpoints(claim.task_id, claim.token))
        return kept

    def keep(self, claim: Claim, name: str, value: Any) -> Any:
        """See TaskData."""
        return self._request(claim, KeepCheckpoint(claim.task_id, claim.token, name, value))

    def _request(self, claim: Claim, request: DataRequest) -> Any:
        with self._one_request:
            self._send(request)
            reply = self.replies.get()  # no timeout: the death of the parent ends this process too
        if reply.lost:
            raise ClaimLost(reply.refused or "", task_id=claim.task_id, token=claim.token)
        if reply.refused is not None:
            raise StoreError(reply.refused)
        return reply.value


@functools.cache
def _load_handler(path: HandlerPath) -> Handler[..., Any, Any]:
    # The parent's main module is this process's __mp_main__, as for every spawned process.
    name = "__mp_main__" if path.module == "__main__" else path.module
    found: Any = sys.modules.get(name) or importlib.import_module(name)
    for part in path.qualname.split("."):
        found = getattr(found, part)
    if not isinstance(found, Handler):
        raise TypeError(f"{path.module}.{path.qualname} is {found!r}, not a handler.")
    return found


class _ParentLogHandler(logging.Handler):
    """Sends log entries to the parent process, which logs them with its own configuration."""

    def __init__(self, send: Callable[[LogEntry], None]) -> None:
        super().__init__()
        self._send = send
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        try:
            trace = self._formatter.formatException(record.exc_info) if record.exc_info else record.exc_text
            fields = {
                name: _to_plain_value(value)
                for name, value in (tracing.current_ids() | log.extra_fields(record)).items()
            }
            self._send(
                LogEntry(
                    record.name,
                    record.levelno,
                    _replace_surrogates(record.getMessage()),
                    trace and _replace_surrogates(trace),
                    fields,
                )
            )
        except OSError:
            pass  # the parent has died, and this process is about to end
        except Exception:  # an entry that cannot be formatted must not fail its task
            self.handleError(record)


def _to_plain_value(value: Any) -> str | int | float | bool | None:
    if value is None or type(value) in (bool, float) or (type(value) is int and abs(value) < 2**63):
        plain: int | float | bool | None = value
        return plain
    return _replace_surrogates(str(value))


def _replace_surrogates(text: str) -> str:
    return text.encode(errors="replace").decode()  # a file's name may hold lone surrogates


def _ignore_stop_signals() -> None:
    # A terminal's Ctrl-C and a service manager's SIGTERM reach the whole process group; the parent decides when its
    # children end.
    # A handler that does nothing, unlike SIG_IGN, is not inherited by programs that a task starts.
    signal.signal(signal.SIGINT, _ignore)
    signal.signal(signal.SIGTERM, _ignore)


def _ignore(number: int, frame: Any) -> None:
    """Do nothing."""


def _request_death_with_parent() -> None:
    """Let the kernel kill this process when the parent dies, even while a handler holds the interpreter's lock.

    Only Linux can. On other systems the thread that reads the pipe ends the process as soon as that thread runs."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _flush_output() -> None:
    """Write out what the handler has printed: the parent may close or kill this process at any time."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # the stream is closed, or None
            stream.flush()


def _memory_in_use() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0
