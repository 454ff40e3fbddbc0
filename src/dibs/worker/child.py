"""The child process of a process lane: it runs one task at a time and tells its parent how each ended.

Parent and child speak msgpack over a pipe, never pickle. The child finds a handler where the parent found it, in its
module; nothing that a task holds decides what is imported.
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
from dibs.worker.run import misfit, perform

FLUSH_WITHIN = 2000
"""Milliseconds that a child has to tell a collector what its last handlers traced, when it is let go."""


class Place(msgspec.Struct, frozen=True):
    """Where a handler is defined."""

    module: str
    qualname: str


class Run(msgspec.Struct, frozen=True, tag=True):
    """Parent to child: run this."""

    place: Place
    claim: Claim
    trace: str | None = None


class Stopping(msgspec.Struct, frozen=True, tag=True):
    """Parent to child: somebody wants the handler to stop."""


class Answer(msgspec.Struct, frozen=True, tag=True):
    """Parent to child: what the shelf says to the last question, or why it refuses (`lost`: the claim is)."""

    value: Any = None
    refused: str | None = None
    lost: bool = False


class Began(msgspec.Struct, frozen=True, tag=True):
    """Child to parent: the handler is found and begins."""


class OfClaim(msgspec.Struct, frozen=True, tag=True):
    """Child to parent: said for this claim. A thread that a task left behind speaks while another one runs."""

    task_id: int
    token: int

    def is_of(self, claim: Claim) -> bool:
        """True if it was said by the attempt that has this claim."""
        return (self.task_id, self.token) == (claim.task_id, claim.token)


class Noted(OfClaim, frozen=True, tag=True):
    """Child to parent: the handler is this far."""

    percent: int
    message: str | None


class Logged(msgspec.Struct, frozen=True, tag=True):
    """Child to parent: an entry for the log, as far as it is made of plain values."""

    name: str
    level: int
    text: str
    traceback: str | None = None
    fields: dict[str, str | int | float | bool | None] = {}

    def pass_on(self) -> None:
        """Log it here, as if it had been said here."""
        logger = logging.getLogger(self.name)
        if logger.isEnabledFor(self.level):
            about = {"name": self.name, "levelno": self.level, "levelname": logging.getLevelName(self.level)}
            said = {"msg": self.text, "args": None, "exc_text": self.traceback}
            logger.handle(logging.makeLogRecord({**self.fields, **about, **said}))


class AskedResults(OfClaim, frozen=True, tag=True):
    """Child to parent: what did the parents of this step come to? The handler waits for the answer."""


class AskedCheckpoints(OfClaim, frozen=True, tag=True):
    """Child to parent: what did earlier attempts keep?"""


class AskedToKeep(OfClaim, frozen=True, tag=True):
    """Child to parent: keep this for later attempts."""

    name: str
    value: Any


class Ended(msgspec.Struct, frozen=True, tag=True):
    """Child to parent: how the attempt ended, and how many bytes of memory the child has now (0: unknown)."""

    outcome: Outcome
    memory: int


Asked = AskedResults | AskedCheckpoints | AskedToKeep
Told = Began | Noted | Logged | Ended | Asked

pack = msgspec.msgpack.encode
_read_order = msgspec.msgpack.Decoder(Run | Stopping | Answer).decode
unpack = msgspec.msgpack.Decoder(Told).decode


def main(pipe: Connection, log_level: int) -> None:
    """The life of a child."""
    _leave_signals_to_the_parent()
    _die_with_the_parent()
    _Child(pipe, log_level).work()


class _Child:
    def __init__(self, pipe: Connection, log_level: int) -> None:
        self._pipe = pipe
        self._sending = threading.Lock()
        self._orders: queue.SimpleQueue[tuple[Run, Context]] = queue.SimpleQueue()
        self._context: Context | None = None
        self._shelf = _ParentsShelf(self._tell)
        root = logging.getLogger()
        root.handlers[:] = [_ToParent(self._tell)]  # what the main module set up when it was imported here writes twice
        root.setLevel(log_level)
        threading.Thread(target=self._listen, name="dibs-orders", daemon=True).start()

    def work(self) -> None:
        """One task after the other, until the parent closes the pipe."""
        while True:
            outcome = self._run(*self._orders.get())
            _flush()
            try:
                self._tell(Ended(outcome, _memory()))
            except (TypeError, ValueError, OverflowError, RecursionError) as error:  # not even msgpack can hold it
                self._tell(Ended(misfit(InvalidValue(f"The handler returned what is not JSON: {error}.")), _memory()))

    def _run(self, order: Run, context: Context) -> Outcome:
        try:
            handler = _find(order.place)
        except Exception as error:  # what imports in the parent need not import here
            return Failed(describe(error), permanent=True)
        self._tell(Began())
        try:
            with tracing.inside(order.trace):
                return perform(handler, context)
        except KeyboardInterrupt as error:  # of the handler's own: Ctrl-C is the parent's
            return outcome_of(error)

    def _listen(self) -> None:
        """Orders, in a thread of its own: a request to stop comes while a handler runs, or before it has begun."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                order = _read_order(self._pipe.recv_bytes())
                if isinstance(order, Run):
                    self._context = Context(order.claim, self._note, self._shelf)
                    self._orders.put((order, self._context))
                elif isinstance(order, Answer):
                    self._shelf.answers.put(order)
                elif self._context is not None:
                    self._context.cancelled = True
        tracing.leave(FLUSH_WITHIN)
        os._exit(0)  # the parent has let us go, or is gone: whatever runs here is nobody's

    def _note(self, claim: Claim, percent: int, message: str | None) -> None:
        self._tell(Noted(claim.task_id, claim.token, percent, message))

    def _tell(self, message: Told) -> None:
        packed = pack(message)
        with self._sending:
            self._pipe.send_bytes(packed)


class _ParentsShelf:
    """The shelf of the parent, asked over the pipe, one question at a time."""

    def __init__(self, tell: Callable[[Asked], None]) -> None:
        self._tell = tell
        self._asking = threading.Lock()
        self.answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()

    def results(self, claim: Claim) -> Sequence[StepResult]:
        """See Shelf."""
        return msgspec.convert(self._ask(claim, AskedResults(claim.task_id, claim.token)), list[StepResult])

    def checkpoints(self, claim: Claim) -> dict[str, Any]:
        """See Shelf."""
        kept: dict[str, Any] = self._ask(claim, AskedCheckpoints(claim.task_id, claim.token))
        return kept

    def keep(self, claim: Claim, name: str, value: Any) -> Any:
        """See Shelf."""
        return self._ask(claim, AskedToKeep(claim.task_id, claim.token, name, value))

    def _ask(self, claim: Claim, question: Asked) -> Any:
        with self._asking:
            self._tell(question)
            answer = self.answers.get()  # a parent that is gone takes us along
        if answer.lost:
            raise ClaimLost(answer.refused or "", task_id=claim.task_id, token=claim.token)
        if answer.refused is not None:
            raise StoreError(answer.refused)
        return answer.value


@functools.cache
def _find(place: Place) -> Handler[..., Any, Any]:
    # The parent's main module is this process's __mp_main__, as for every spawned process.
    name = "__mp_main__" if place.module == "__main__" else place.module
    found: Any = sys.modules.get(name) or importlib.import_module(name)
    for part in place.qualname.split("."):
        found = getattr(found, part)
    if not isinstance(found, Handler):
        raise TypeError(f"{place.module}.{place.qualname} is {found!r}, not a handler.")
    return found


class _ToParent(logging.Handler):
    """Log lines go to the parent, which knows where they belong."""

    def __init__(self, tell: Any) -> None:
        super().__init__()
        self._tell = tell
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        try:
            trace = self._formatter.formatException(record.exc_info) if record.exc_info else record.exc_text
            fields = {name: _plain(value) for name, value in (tracing.ids() | log.given(record)).items()}
            self._tell(
                Logged(
                    record.name,
                    record.levelno,
                    _storable(record.getMessage()),
                    trace and _storable(trace),
                    fields,
                )
            )
        except OSError:
            pass  # the parent is gone, and so are we
        except Exception:  # a line that cannot be formatted is told as everywhere, and does not fail its task
            self.handleError(record)


def _plain(value: Any) -> str | int | float | bool | None:
    if value is None or type(value) in (bool, float) or (type(value) is int and abs(value) < 2**63):
        plain: int | float | bool | None = value
        return plain
    return _storable(str(value))


def _storable(text: str) -> str:
    return text.encode(errors="replace").decode()  # a file's name may hold lone surrogates


def _leave_signals_to_the_parent() -> None:
    # A terminal's Ctrl-C and a service manager's SIGTERM reach the whole group; the parent decides what becomes of us.
    # A handler that does nothing, unlike SIG_IGN, is not inherited by programs that a task starts.
    signal.signal(signal.SIGINT, _ignore)
    signal.signal(signal.SIGTERM, _ignore)


def _ignore(number: int, frame: Any) -> None:
    """Do nothing."""


def _die_with_the_parent() -> None:
    """On Linux the kernel kills us when the parent is gone, even while a handler holds the interpreter's lock.
    Elsewhere the thread that reads the pipe notices as soon as it gets to run."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _flush() -> None:
    """What a handler has printed must not wait in a buffer: a child may be let go, or killed, at any time."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or there is none
            stream.flush()


def _memory() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0
