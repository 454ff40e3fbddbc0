"""Races: the orders `random` and `weighted`, which only those lines pay for that somebody claims from in them.

The first claim in such an order finds that its lines have no race: their tasks have drawn no numbers. It gives way to
the drawing, which is done in short transactions of its own, and then begins again.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from dibs.errors import StoreRefused
from dibs.model.claim import Order
from dibs.model.task import NewTask
from dibs.store.operation import Checked, Operation, Statement, Steps
from dibs.store.operations.checking import ON_LOOP, Unchecked, threads, validated_quickly
from dibs.store.operations.typecache import TypeCache, Types
from dibs.store.schemas import NotHere

T = TypeVar("T")

Line = dict[str, Any]
"""One waiting line: the pending tasks of a queue and type with the same number of attempts left. Every filter is a
choice of lines, and every order an index that begins with the line, so a claim reads only what it takes."""

RACES = (Order.RANDOM, Order.WEIGHTED)

DRAW_FOR = 0.02
"""Seconds after which a transaction that draws numbers lets others write."""

CHUNK = 500
"""Tasks that draw their numbers in one statement."""


class Undrawn(Exception):
    """Raised by the steps of a claim before they have claimed anything: these lines must draw their numbers first."""

    def __init__(self, kind: str, lines: list[Line]) -> None:
        super().__init__(kind)
        self.kind, self.lines = kind, lines


class Racing(ABC):
    """Runs operations, and draws numbers for those that lack them."""

    @property
    @abstractmethod
    def types(self) -> TypeCache:
        """The registered task types."""

    @abstractmethod
    def run_once(self, operation: Operation[T], on: Any = None) -> T:
        """Run the operation, unless it is Undrawn."""

    @abstractmethod
    async def run_once_async(self, operation: Operation[T], on: Any = None) -> T:
        """`run_once`, without blocking the event loop."""

    @abstractmethod
    def draw_some(self, kind: str, line: Line) -> Steps[bool]:
        """Draw numbers for the next CHUNK tasks of the line; True if there may be more."""

    def run(self, operation: Operation[T], on: Any = None) -> T:
        """Run the operation and return its result; with `on`, inside that connection's transaction."""
        if operation.checks is not None:
            self._check(operation.checks, on)
        while True:
            try:
                return self.run_once(operation, on)
            except Unchecked as unchecked:
                self._check(unchecked.checks, on)
            except Undrawn as undrawn:
                lines = undrawn.lines
                while lines:
                    lines = self.run_once(self.draw(undrawn.kind, lines), on)
            except StoreRefused as refused:
                operation = _item_by_item(operation, on, refused)

    async def run_async(self, operation: Operation[T], on: Any = None) -> T:
        """`run`, without blocking the event loop (but a handed-in sqlite3 connection belongs to its thread)."""
        if operation.checks is not None:
            await self._check_async(operation.checks, on)
        while True:
            try:
                return await self.run_once_async(operation, on)
            except Unchecked as unchecked:
                await self._check_async(unchecked.checks, on)
            except Undrawn as undrawn:
                lines = undrawn.lines
                while lines:
                    lines = await self.run_once_async(self.draw(undrawn.kind, lines), on)
            except StoreRefused as refused:
                operation = _item_by_item(operation, on, refused)

    def _check(self, checks: Checked, on: Any) -> None:
        """Validate in the calling thread, outside of any transaction of ours."""
        types: Types | None = {}
        if checks.needs_types:
            # What is read in the user's transaction may be rolled back, and binds nobody else.
            cache = self.types if on is None else TypeCache()
            types = cache.known
            if types is None:
                types = self.run_once(cache.reading(), on)
        checks.run(types)

    async def _check_async(self, checks: Checked, on: Any) -> None:
        """The same for an event loop: in a thread, unless it is over sooner."""
        types: Types | None = {}
        if checks.needs_types:
            cache = self.types if on is None else TypeCache()
            types = cache.known
            if types is None:
                types = await self.run_once_async(cache.reading(), on)
        if checks.work(types) <= ON_LOOP:
            with suppress(NotHere):
                checks.run(types, brief=True)
                return
        await asyncio.get_running_loop().run_in_executor(threads(), checks.run, types)

    def validated_quickly(self, tasks: Iterable[NewTask]) -> bool | None:
        """See DatabaseStore."""
        types = self.types.known
        return None if types is None else not types or all(validated_quickly(task, types) for task in tasks)

    async def know_types(self) -> None:
        """See DatabaseStore."""
        await self.run_once_async(self.types.reading())

    def draw(self, kind: str, lines: Sequence[Line]) -> Operation[list[Line]]:
        """Let these lines race: from here on their tasks draw numbers when they come, and now some of those that wait
        already do. The lines that are not done. Those who found nothing while tasks were held by this look again."""
        return Operation("draw", lambda: self._draw(kind, lines), wakes=True)

    def _draw(self, kind: str, lines: Sequence[Line]) -> Steps[list[Line]]:
        until = time.monotonic() + DRAW_FOR
        yield Statement("begin_races", rows=[{**line, "kind": kind} for line in lines])
        left = list(lines)
        while left:
            if not (yield from self.draw_some(kind, left[-1])):
                left.pop()
            if time.monotonic() > until:
                break
        return left


def _item_by_item(operation: Operation[T], on: Any, refused: StoreRefused) -> Operation[T]:
    """The operation with a savepoint for each item, after the database has refused it as a whole. With `on`, what to
    do after an error is the user's decision."""
    apart = operation.item_by_item() if on is None else None
    if apart is None:
        raise refused
    return apart
