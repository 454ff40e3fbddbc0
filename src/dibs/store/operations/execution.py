"""Run an operation on an SQL store: validate its input before, and repeat it item by item after a refusal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from dibs.errors import StoreRefused
from dibs.model.task import NewTask
from dibs.store.operation import Operation, Validation
from dibs.store.operations.validation import ON_LOOP, NotValidated, TypeCache, Types, threads, validated_quickly
from dibs.store.schemas import NotHere

T = TypeVar("T")


class SqlEngine(Protocol):
    """A store that can run the statements of an operation."""

    @property
    def types(self) -> TypeCache:
        """The registered task types, as this process knows them."""

    def run_once(self, operation: Operation[T], by: str | None = None, on: Any = None, idle: bool = False) -> T:
        """Run the statements of the operation, without its validation."""

    async def run_once_async(
        self, operation: Operation[T], by: str | None = None, on: Any = None, idle: bool = False
    ) -> T:
        """`run_once`, without blocking the event loop."""


def run(engine: SqlEngine, operation: Operation[T], by: str | None, on: Any, idle: bool) -> T:
    """Run the operation. See Store.run."""
    if operation.validation is not None:
        _validate(engine, operation.validation, on)
    while True:
        try:
            return engine.run_once(operation, by, on, idle)
        except NotValidated as missing:
            _validate(engine, missing.validation, on)
        except StoreRefused as refused:
            operation = _in_savepoints(operation, on, refused)


async def run_async(engine: SqlEngine, operation: Operation[T], by: str | None, on: Any, idle: bool) -> T:
    """Run the operation without blocking the event loop. See Store.run_async."""
    if operation.validation is not None:
        await _validate_async(engine, operation.validation, on)
    while True:
        try:
            return await engine.run_once_async(operation, by, on, idle)
        except NotValidated as missing:
            await _validate_async(engine, missing.validation, on)
        except StoreRefused as refused:
            operation = _in_savepoints(operation, on, refused)


def validates_quickly(engine: SqlEngine, tasks: Iterable[NewTask]) -> bool | None:
    """See DatabaseStore.validates_quickly."""
    types = engine.types.known
    return None if types is None else not types or all(validated_quickly(task, types) for task in tasks)


def _validate(engine: SqlEngine, validation: Validation, on: Any) -> None:
    """Validate in the calling thread, outside of any transaction of the store."""
    types: Types | None = {}
    if validation.needs_types:
        cache = _types_for(engine, on)
        types = cache.known
        if types is None:
            types = engine.run_once(cache.reading(), None, on)
    validation.run(types)


async def _validate_async(engine: SqlEngine, validation: Validation, on: Any) -> None:
    """Validate for an event loop: in a thread, unless it is known to be short."""
    types: Types | None = {}
    if validation.needs_types:
        cache = _types_for(engine, on)
        types = cache.known
        if types is None:
            types = await engine.run_once_async(cache.reading(), None, on)
    if validation.work(types) <= ON_LOOP:
        with suppress(NotHere):
            validation.run(types, brief=True)
            return
    await asyncio.get_running_loop().run_in_executor(threads(), validation.run, types)


def _types_for(engine: SqlEngine, on: Any) -> TypeCache:
    """Types that are read in the user's transaction may be rolled back: other operations must not use them."""
    return engine.types if on is None else TypeCache()


def _in_savepoints(operation: Operation[T], on: Any, refused: StoreRefused) -> Operation[T]:
    """The operation with a savepoint for each item, after the database has refused it as a whole. With `on`, the user
    decides what to do after an error."""
    item_by_item = operation.in_savepoints() if on is None else None
    if item_by_item is None:
        raise refused
    return item_by_item
