"""Checkpoints: what is done once for a task, however often it is tried, and however many ask for it at a time."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

import msgspec

from dibs.codec import check_name, encode
from dibs.errors import InvalidValue
from dibs.model.claim import Claim
from dibs.model.task import Failure, State
from dibs.model.workflow import StepResult
from dibs.workflow.builder import Which


class TaskData(Protocol):
    """Where a handler's attempt finds what was before it, and leaves what is for later: the store, or the way to it."""

    def results(self, claim: Claim) -> Sequence[StepResult]:
        """What the parents of this step came to."""

    def checkpoints(self, claim: Claim) -> dict[str, Any]:
        """What earlier attempts have kept."""

    def keep(self, claim: Claim, name: str, value: Any) -> Any:
        """Keep this for later attempts; the value that is kept, or ClaimLost."""


class AttemptCheckpoints:
    """Those of one attempt."""

    def __init__(self, claim: Claim, shelf: TaskData) -> None:
        self._claim = claim
        self._shelf = shelf
        self._kept: dict[str, Any] = {}
        self._kept_known = False
        self._turns: dict[str, threading.RLock] = {}
        self._turns_async: dict[tuple[str, asyncio.AbstractEventLoop], asyncio.Lock] = {}
        self._making: set[tuple[asyncio.Task[Any] | None, str]] = set()

    def make(self, name: str, function: Callable[[], Any]) -> Any:
        """What is kept under this name, or else what the function returns, kept from now on; to be awaited where it is
        a coroutine function."""
        check_name(name, "The name of a checkpoint")
        if inspect.iscoroutinefunction(function):
            return self._make_async(name, function)
        with self._turns.setdefault(name, threading.RLock()):
            kept = self._known()
            return kept[name] if name in kept else self._keep(name, _not_awaitable(name, function()))

    async def _make_async(self, name: str, function: Callable[[], Awaitable[Any]]) -> Any:
        me = asyncio.current_task()
        if (me, name) in self._making:
            raise InvalidValue(
                f"The checkpoint {name!r} is asked for by its own function, and would wait for itself.",
                hint="Give the inner one another name.",
            )
        async with self._turns_async.setdefault((name, asyncio.get_running_loop()), asyncio.Lock()):
            kept = await asyncio.to_thread(self._known)
            return kept[name] if name in kept else await self._call_async(me, name, function)

    async def _call_async(self, me: asyncio.Task[Any] | None, name: str, function: Callable[[], Awaitable[Any]]) -> Any:
        self._making.add((me, name))
        try:
            value = await function()
        finally:
            self._making.remove((me, name))
        return await asyncio.to_thread(self._keep, name, value)

    def _known(self) -> dict[str, Any]:
        if not self._kept_known:  # once: nobody else adds to them while the claim is ours
            for name, value in self._shelf.checkpoints(self._claim).items():
                self._kept.setdefault(name, value)
            self._kept_known = True
        return self._kept

    def _keep(self, name: str, value: Any) -> Any:
        try:
            value = msgspec.to_builtins(value, str_keys=True)
        except Exception as error:  # several kinds: RecursionError for what contains itself, and any of the value's own
            raise InvalidValue(f"The checkpoint {name!r} is not JSON: {error}.") from None
        encode(value, f"the checkpoint {name!r}")  # told here in every lane alike
        kept = self._known()[name] = self._shelf.keep(self._claim, name, value)
        return kept


def _not_awaitable(name: str, value: Any) -> Any:
    """The value. One to be awaited is refused: later attempts get what is kept, and could not know to await it."""
    if not inspect.isawaitable(value):
        return value
    if inspect.iscoroutine(value):
        value.close()
    raise InvalidValue(
        f"The function of the checkpoint {name!r} is no coroutine function, but what it returned is to be awaited.",
        hint="Give a coroutine function: an `async def`, or functools.partial(fetch, url) for one with arguments.",
    )


_CANCELLED = Failure("Cancelled", "The step was cancelled.")


_MAX_NAMES_SHOWN = 10


class Results(Mapping[str, Any]):
    """The results of a step's parents by their names, in the order in which they were added to the workflow.

    A parent whose failure is ignored has the result None, and its error in `errors`.
    """

    def __init__(self, parents: Sequence[StepResult] = ()) -> None:
        self._parents = {parent.name: parent for parent in parents}

    def __getitem__(self, name: str) -> Any:
        if name not in self._parents:
            raise KeyError(self._no_parent(name))
        return self._parents[name].result

    def __iter__(self) -> Iterator[str]:
        return iter(self._parents)

    def __len__(self) -> int:
        return len(self._parents)

    def of(self, which: Which) -> list[Any]:
        """The results of those parents of this handler, or task type, that have completed."""
        name = which if isinstance(which, str) else which.name
        ours = [parent for parent in self._parents.values() if parent.type == name]
        return [parent.result for parent in ours if parent.state is State.COMPLETED]

    @property
    def errors(self) -> dict[str, Failure]:
        """How those parents ended whose failure, or cancellation, is ignored, by their names."""
        ended = [parent for parent in self._parents.values() if parent.state is not State.COMPLETED]
        return {parent.name: parent.error or _CANCELLED for parent in ended}

    def __repr__(self) -> str:
        return f"Results({dict(self)!r})"

    def _no_parent(self, name: str) -> str:
        known = ", ".join(map(repr, islice(self._parents, _MAX_NAMES_SHOWN))) or "no step"
        more = ", …" if len(self._parents) > _MAX_NAMES_SHOWN else ""
        return f"This step is not after {name!r}, but after {known}{more}. To read its result, name it in `after`."
