"""Task data of handlers: the results of parent steps, and checkpoints, which run once for a task across its
attempts."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from dibs.encoded import checked, is_encoded, is_marked
from dibs.errors import InvalidValue
from dibs.json_values import check_name, encode
from dibs.model.claim import Claim
from dibs.model.task import Failure, State
from dibs.model.workflow import WORKFLOW_STEP, StepResult
from dibs.workflow.builder import HandlerOrType

if TYPE_CHECKING:
    from dibs.model.execution import Execution

NO_RESOURCES: Any = object()
"""The resources of an app without a lifespan."""


class TaskData(Protocol):
    """Reads and writes the data of a task for its handler: in the store, or through the parent process.

    `resources`: what the lifespan of the app has yielded in this process, or NO_RESOURCES."""

    resources: Any

    def results(self, claim: Claim) -> Sequence[StepResult]:
        """The results of the parent steps."""

    def execution(self, claim: Claim) -> Execution:
        """How the steps of the task's workflow ended."""

    def checkpoints(self, claim: Claim) -> dict[str, Any]:
        """The stored checkpoints of the task."""

    def keep(self, claim: Claim, name: str, value: Any) -> Any:
        """Store a checkpoint. Returns the stored value. Raises ClaimLost if the claim is no longer valid."""


DecodeOf = Callable[[str, Any, str], Any]
"""Decodes a stored value of a task of this type. The last argument names the value in errors."""


class ValueHandler(Protocol):
    """What task data needs of the handler that runs: its codecs, and a way to decode the values of other handlers."""

    codecs: Any

    def decode_of(self, type_name: str, stored: Any, what: str) -> Any:
        """The plain JSON of a stored value of a task of this type."""


def plain_result(step: str, type_name: str, stored: Any, decode_of: DecodeOf) -> Any:
    """The result of a step as plain JSON; for a sub-workflow without a finalizer, the results of its steps."""

    def plain(value: Any) -> Any:
        if is_encoded(value):
            return decode_of(type_name, value, f"the result of the step {step!r} ({type_name})")
        if type_name == WORKFLOW_STEP and type(value) is dict:  # the steps may be sub-workflows themselves
            return {name: plain(inner) for name, inner in value.items()}
        return value

    return plain(stored)


class AttemptCheckpoints:
    """The checkpoints of one attempt. They are encoded by the codec of the handler."""

    def __init__(self, claim: Claim, task_data: TaskData, handler: ValueHandler | None) -> None:
        self._handler = handler
        self._claim = claim
        self._task_data = task_data
        self._kept: dict[str, Any] = {}
        self._kept_known = False
        self._locks: dict[str, threading.RLock] = {}
        self._async_locks: dict[tuple[str, asyncio.AbstractEventLoop], asyncio.Lock] = {}
        self._running: set[tuple[asyncio.Task[Any] | None, str]] = set()

    def make(self, name: str, function: Callable[[], Any]) -> Any:
        """The stored value of this name; else the result of the function, which is stored. An awaitable for a coroutine
        function."""
        check_name(name, "The name of a checkpoint")
        if inspect.iscoroutinefunction(function):
            return self._make_async(name, function)
        with self._locks.setdefault(name, threading.RLock()):
            kept = self._known()
            return kept[name] if name in kept else self._keep(name, _not_awaitable(name, function()))

    async def _make_async(self, name: str, function: Callable[[], Awaitable[Any]]) -> Any:
        caller = asyncio.current_task()
        if (caller, name) in self._running:
            raise InvalidValue(
                f"The function of the checkpoint {name!r} calls the same checkpoint, and would wait for itself.",
                hint="Give the inner checkpoint another name.",
            )
        async with self._async_locks.setdefault((name, asyncio.get_running_loop()), asyncio.Lock()):
            kept = await asyncio.to_thread(self._known)
            return kept[name] if name in kept else await self._call_async(caller, name, function)

    async def _call_async(
        self, caller: asyncio.Task[Any] | None, name: str, function: Callable[[], Awaitable[Any]]
    ) -> Any:
        self._running.add((caller, name))
        try:
            value = await function()
        finally:
            self._running.remove((caller, name))
        return await asyncio.to_thread(self._keep, name, value)

    def _known(self) -> dict[str, Any]:
        if not self._kept_known:  # read once: no other process adds checkpoints while this worker holds the claim
            for name, value in self._task_data.checkpoints(self._claim).items():
                self._kept.setdefault(name, self._decoded(name, value))
            self._kept_known = True
        return self._kept

    def _keep(self, name: str, value: Any) -> Any:
        try:
            value = msgspec.to_builtins(value, str_keys=True)
        except Exception as error:  # RecursionError for a value that contains itself, or any error of the value's type
            raise InvalidValue(f"The checkpoint {name!r} is not JSON: {error}.") from None
        value = self._encoded(name, value)
        kept = self._known()[name] = self._decoded(name, self._task_data.keep(self._claim, name, value))
        return kept

    def _encoded(self, name: str, value: Any) -> Any:
        """The value as it is stored. What cannot be stored is refused here, so that the error is the same in every
        lane."""
        what = f"the checkpoint {name!r}"
        if self._handler is not None and self._handler.codecs is not None:
            return self._handler.codecs.encode(value, what)
        encode(checked(value, what) if is_marked(value) else value, what)
        return value

    def _decoded(self, name: str, stored: Any) -> Any:
        if self._handler is None or not is_encoded(stored):
            return stored
        return self._handler.decode_of(self._claim.task.type, stored, f"the checkpoint {name!r}")


def _not_awaitable(name: str, value: Any) -> Any:
    """Return the value. Raises InvalidValue for an awaitable: later attempts receive the stored value, not an
    awaitable."""
    if not inspect.isawaitable(value):
        return value
    if inspect.iscoroutine(value):
        value.close()
    raise InvalidValue(
        f"The function of the checkpoint {name!r} is not a coroutine function, but it returned an awaitable.",
        hint="Pass a coroutine function: an `async def`, or functools.partial(fetch, url) for one with arguments.",
    )


_CANCELLED = Failure("Cancelled", "The step was cancelled.")


_MAX_NAMES_SHOWN = 10


class Results(Mapping[str, Any]):
    """The results of a step's parents by name, in the order in which they were added to the workflow.

    A parent whose failure is ignored has the result None, and an entry in `errors`.
    """

    def __init__(self, parents: Sequence[StepResult] = (), handler: ValueHandler | None = None) -> None:
        self._parents = {parent.name: parent for parent in parents}
        self._handler = handler

    def __getitem__(self, name: str) -> Any:
        if name not in self._parents:
            raise KeyError(self._no_parent(name))
        return self._result(self._parents[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._parents)

    def __len__(self) -> int:
        return len(self._parents)

    def of(self, which: HandlerOrType) -> list[Any]:
        """The results of the completed parents of this handler or task type."""
        name = which if isinstance(which, str) else which.name
        parents = [parent for parent in self._parents.values() if parent.type == name]
        return [self._result(parent) for parent in parents if parent.state is State.COMPLETED]

    @property
    def errors(self) -> dict[str, Failure]:
        """The errors of parents whose failure or cancellation is ignored, by name."""
        ended = [parent for parent in self._parents.values() if parent.state is not State.COMPLETED]
        return {parent.name: parent.error or _CANCELLED for parent in ended}

    def __repr__(self) -> str:
        return f"Results({dict(self)!r})"

    def _result(self, parent: StepResult) -> Any:
        """The result, decoded when it is read, so that a result that cannot be decoded concerns only its readers."""
        if self._handler is None:
            return parent.result
        return plain_result(parent.name, parent.type, parent.result, self._handler.decode_of)

    def _no_parent(self, name: str) -> str:
        known = ", ".join(map(repr, islice(self._parents, _MAX_NAMES_SHOWN))) or "no step"
        more = ", …" if len(self._parents) > _MAX_NAMES_SHOWN else ""
        return f"This step is not after {name!r}, but after {known}{more}. To read its result, name it in `after`."
