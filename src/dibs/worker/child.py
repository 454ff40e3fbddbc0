"""The child process of a process lane: runs one task at a time and sends each outcome to the parent process.

Parent and child exchange msgpack messages over a pipe, never pickle. The child imports a handler from the module in
which the parent found it; the content of a task never decides what is imported.
"""

from __future__ import annotations

import asyncio
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
from dibs.handlers import running
from dibs.handlers.context import Context
from dibs.handlers.endings import describe, outcome_of
from dibs.handlers.handler import AnyHandler, HandlerBase
from dibs.model.claim import Claim, Failed, Outcome
from dibs.model.execution import Execution
from dibs.model.workflow import StepResult
from dibs.observe import log, tracing
from dibs.worker.attempt_log import LONGEST_TEXT, PrintedLines
from dibs.worker.capturing import replace_streams
from dibs.worker.lifespan import RunningLifespan
from dibs.worker.run import perform, permanent_failure
from dibs.worker.run_batch import ItemRun, run_items
from dibs.workflow.task_data import NO_RESOURCES

TRACE_FLUSH_TIMEOUT = 2000
"""Milliseconds for which a child that ends waits for the export of its last trace spans."""


class HandlerPath(msgspec.Struct, frozen=True):
    """The module and the qualified name under which a handler can be imported. `middleware`: the names of the functions
    around its attempts, and `modules`: where these are."""

    module: str
    qualname: str
    middleware: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()


class RunTask(msgspec.Struct, frozen=True, tag=True):
    """Parent to child: run the handler under this claim; a batch handler under all of these claims, in one call."""

    handler: HandlerPath
    claims: list[Claim]
    traces: list[str | None]


class StartLifespan(msgspec.Struct, frozen=True, tag=True):
    """Parent to child: start the lifespan of the app of this handler, before the first task. `name`, `module`: those of
    the lifespan in the worker."""

    handler: HandlerPath
    name: str
    module: str


class DataReply(msgspec.Struct, frozen=True, tag=True):
    """Parent to child: the reply to the last DataRequest, or the reason of a refusal. `lost`: the claim is lost."""

    value: Any = None
    refused: str | None = None
    lost: bool = False


class LifespanStarted(msgspec.Struct, frozen=True, tag=True):
    """Child to parent: the lifespan has started, or the reason why it has not."""

    refused: str | None = None


class HandlerStarted(msgspec.Struct, frozen=True, tag=True):
    """Child to parent: the handler is imported and starts now."""


class ClaimMessage(msgspec.Struct, frozen=True, tag=True):
    """A message about one claim. A thread left behind by an earlier task can still send messages."""

    task_id: int
    token: int

    @property
    def claim_key(self) -> tuple[int, int]:
        """What identifies the claim."""
        return self.task_id, self.token


class StopRequested(ClaimMessage, frozen=True, tag=True):
    """Parent to child: the handler has to stop its work for this task."""


class ProgressMade(ClaimMessage, frozen=True, tag=True):
    """Child to parent: the handler has reported progress."""

    percent: int
    message: str | None


class PrintedLine(ClaimMessage, frozen=True, tag=True):
    """Child to parent: a line that the handler has printed."""

    stream: str
    text: str


class LogEntry(msgspec.Struct, frozen=True, tag=True):
    """Child to parent: a log entry, its fields converted to plain values. `attempt`: the task and token of the attempt
    in which it was logged; None for threads that a handler has started."""

    name: str
    level: int
    text: str
    traceback: str | None = None
    fields: dict[str, str | int | float | bool | None] = {}
    attempt: tuple[int, int] | None = None

    def log(self) -> None:
        """Log the entry in this process under its original logger."""
        logger = logging.getLogger(self.name)
        if logger.isEnabledFor(self.level):
            origin = {"name": self.name, "levelno": self.level, "levelname": logging.getLevelName(self.level)}
            content = {"msg": self.text, "args": None, "exc_text": self.traceback}
            logger.handle(logging.makeLogRecord({**self.fields, **origin, **content}))


class GetResults(ClaimMessage, frozen=True, tag=True):
    """Child to parent: send the results of the parent steps. The handler waits for the reply."""


class GetExecution(ClaimMessage, frozen=True, tag=True):
    """Child to parent: send how the steps of the workflow ended."""


class GetCheckpoints(ClaimMessage, frozen=True, tag=True):
    """Child to parent: send the checkpoints that earlier attempts have kept."""


class KeepCheckpoint(ClaimMessage, frozen=True, tag=True):
    """Child to parent: store a checkpoint for later attempts."""

    name: str
    value: Any


class AttemptsEnded(msgspec.Struct, frozen=True, tag=True):
    """Child to parent: the outcome of each claim, and the bytes of memory that the child uses (0: unknown)."""

    outcomes: list[Outcome]
    memory: int


DataRequest = GetResults | GetExecution | GetCheckpoints | KeepCheckpoint
ChildMessage = LifespanStarted | HandlerStarted | ProgressMade | PrintedLine | LogEntry | AttemptsEnded | DataRequest

pack = msgspec.msgpack.encode
_unpack_parent_message = msgspec.msgpack.Decoder(StartLifespan | RunTask | StopRequested | DataReply).decode
unpack = msgspec.msgpack.Decoder(ChildMessage).decode


UNPACKABLE = (TypeError, ValueError, OverflowError, RecursionError)
"""What msgpack raises for a result that it cannot encode."""


def main(pipe: Connection, log_level: int) -> None:
    """Run tasks until the parent closes the pipe: the entry point of the child process."""
    _ignore_stop_signals()
    _request_death_with_parent()
    _TaskRunner(pipe, log_level).work()


class _TaskRunner:
    def __init__(self, pipe: Connection, log_level: int) -> None:
        self._pipe = pipe
        self._sending = threading.Lock()
        self._tasks: queue.SimpleQueue[tuple[RunTask, list[Context]] | StartLifespan | None] = queue.SimpleQueue()
        self._contexts: dict[tuple[int, int], Context] = {}
        self._lifespan: RunningLifespan | None = None
        self._running = False
        self._task_data = _ParentTaskData(self._send)
        running.LogReaders.exist = True  # the parent needs to know in which attempt an entry was logged
        root = logging.getLogger()
        # Handlers that the main module has configured on its import here would write each entry a second time.
        root.handlers[:] = [_ParentLogHandler(self._send)]
        root.setLevel(log_level)
        threading.Thread(target=self._listen, name="dibs-messages", daemon=True).start()

    def work(self) -> None:
        """Run one task after the other; the listening thread ends the process when the parent closes the pipe."""
        while (work := self._tasks.get()) is not None:
            if isinstance(work, StartLifespan):
                self._send(self._start_lifespan(work))
                continue
            outcomes = self._run(*work)
            self._running = False
            _flush_output()
            try:
                self._send(AttemptsEnded(outcomes, _memory_in_use()))
            except UNPACKABLE:
                self._send(AttemptsEnded([_packable(outcome) for outcome in outcomes], _memory_in_use()))

        if self._lifespan is not None:
            self._lifespan.end()
        self._exit()

    def _start_lifespan(self, message: StartLifespan) -> LifespanStarted:
        try:
            hooks = _load_handler(message.handler).hooks  # first: its middleware may prepare the process for imports
            _load_module(message.module)
            lifespan = None if hooks is None else hooks.lifespan
            if lifespan is None or lifespan.name != message.name:
                raise InvalidValue(
                    f"The child process has not found the lifespan {message.name}.",
                    hint=f"Declare it at the top level of {message.module}.",
                )
            running = RunningLifespan(lifespan)
            self._task_data.resources = running.start()
            self._lifespan = running
        except Exception as error:
            return LifespanStarted(str(error))
        return LifespanStarted()

    def _run(self, message: RunTask, contexts: list[Context]) -> list[Outcome]:
        try:
            handler = _load_handler(message.handler)
        except Exception as error:  # an import that works in the parent can fail in the child
            return [Failed(describe(error), permanent=True)] * len(contexts)
        self._send(HandlerStarted())
        if handler.capture is not None and handler.capture.prints:
            replace_streams()
            contexts[0].sink = _ParentPrints(message.claims[0], self._send)
        try:
            if handler.batch is not None:
                runs = [ItemRun(context, trace) for context, trace in zip(contexts, message.traces, strict=True)]
                return run_items(handler, runs, self._run_coroutine)
            with tracing.remote_parent(message.traces[0]):
                return [perform(handler, contexts[0], self._run_coroutine)]
        except KeyboardInterrupt as error:  # raised by the handler itself: the child ignores Ctrl-C
            return [outcome_of(error)] * len(contexts)

    def _listen(self) -> None:
        """Receive messages of the parent, in a separate thread: a request to stop can arrive while a handler runs."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                message = _unpack_parent_message(self._pipe.recv_bytes())
                if isinstance(message, StartLifespan):
                    self._tasks.put(message)
                elif isinstance(message, RunTask):
                    self._running = True
                    contexts = [Context(claim, self._report_progress, self._task_data) for claim in message.claims]
                    self._contexts = {(each.claim.task_id, each.claim.token): each for each in contexts}
                    self._tasks.put((message, contexts))
                elif isinstance(message, DataReply):
                    self._task_data.replies.put(message)
                elif (context := self._contexts.get(message.claim_key)) is not None:
                    context.cancelled = True
        if self._lifespan is not None and not self._running:
            self._tasks.put(None)  # the main thread ends the lifespan, and then the process
        else:
            self._exit()  # the parent has closed the pipe or died: no process waits for the outcome of a handler

    def _exit(self) -> None:
        tracing.flush(TRACE_FLUSH_TIMEOUT)
        _flush_output()
        os._exit(0)

    def _run_coroutine(self, coroutine: Any) -> Any:
        """Run an async handler: on the event loop of an async lifespan, because what it opened belongs to that loop."""
        loop = None if self._lifespan is None else self._lifespan.loop
        if loop is None:
            return asyncio.run(coroutine)
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

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
        self.resources: Any = NO_RESOURCES
        self._one_request = threading.Lock()
        self.replies: queue.SimpleQueue[DataReply] = queue.SimpleQueue()

    def results(self, claim: Claim) -> Sequence[StepResult]:
        """See TaskData."""
        return msgspec.convert(self._request(claim, GetResults(claim.task_id, claim.token)), list[StepResult])

    def execution(self, claim: Claim) -> Execution:
        """See TaskData."""
        return msgspec.convert(self._request(claim, GetExecution(claim.task_id, claim.token)), Execution)

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


def _packable(outcome: Outcome) -> Outcome:
    """The outcome; a failure if its result cannot be sent to the parent."""
    try:
        pack(outcome)
    except UNPACKABLE as error:
        return permanent_failure(InvalidValue(f"The handler's result cannot be stored as JSON: {error}."))
    return outcome


@functools.cache
def _load_handler(path: HandlerPath) -> AnyHandler:
    for module in path.modules:
        _load_module(module)
    found: Any = _load_module(path.module)
    for part in path.qualname.split("."):
        found = getattr(found, part)
    if not isinstance(found, HandlerBase):
        raise TypeError(f"{path.module}.{path.qualname} is {found!r}, not a handler.")
    if (names := () if found.middleware is None else found.middleware.names) != path.middleware:
        raise InvalidValue(
            f"The handler {found.name!r} has other middleware in its child process ({', '.join(names) or 'none'}) "
            f"than in the worker ({', '.join(path.middleware) or 'none'}).",
            hint="Declare the middleware in the module of the handler, or in a module that it imports.",
        )
    return found


def _load_module(name: str) -> Any:
    name = "__mp_main__" if name == "__main__" else name  # the parent's main module, as in every spawned process
    return sys.modules.get(name) or importlib.import_module(name)


class _ParentPrints:
    """Sends the lines that a handler prints to the parent process. What it logs is sent by _ParentLogHandler."""

    def __init__(self, claim: Claim, send: Callable[[PrintedLine], None]) -> None:
        self._claim = claim
        self._send = send
        self._lines = PrintedLines(self._send_line)

    def record(self, record: logging.LogRecord) -> None:
        """See LogSink."""

    def printed(self, stream: str, text: str) -> None:
        """See LogSink."""
        self._lines.write(stream, text)

    def close(self) -> None:
        """See LogSink."""
        self._lines.end()

    def _send_line(self, stream: str, text: str) -> None:
        with contextlib.suppress(OSError):  # the parent has died, and this process is about to end
            shown = _replace_surrogates(text[:LONGEST_TEXT])
            self._send(PrintedLine(self._claim.task_id, self._claim.token, stream, shown))


class _ParentLogHandler(logging.Handler):
    """Sends log entries to the parent process, which logs them with its own configuration."""

    def __init__(self, send: Callable[[LogEntry], None]) -> None:
        super().__init__()
        self._send = send
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        context = running.current.get()
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
                    None if context is None else (context.claim.task_id, context.claim.token),
                )
            )
        except OSError:  # the parent has closed the pipe or died; the end of a lifespan must not fail unnoticed
            if record.levelno >= logging.WARNING:
                logging.StreamHandler().handle(record)  # to standard error
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
