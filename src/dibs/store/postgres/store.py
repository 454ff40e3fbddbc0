"""The PostgreSQL store: a pool of connections. Every statement is a transaction, unless the operation needs one."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
from psycopg.errors import ReadOnlySqlTransaction
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from dibs.errors import DibsError, OutcomeUnknown, StoreBusy, StoreUnavailable
from dibs.model.retry import reconnect_delay
from dibs.model.task import NewTask
from dibs.model.upkeep import Check
from dibs.store.coalesce import RUN_ALONE, AsyncCoalescer, Coalescer
from dibs.store.contract import Observer, StoreClock
from dibs.store.joining import UserConnection, resolve, resolve_async
from dibs.store.migrate import OnMigration, ignore_migration
from dibs.store.operation import Mode, Operation, Rows, Statement, Statements, combine
from dibs.store.operations import SqlOperations, execution
from dibs.store.operations.validation import TypeCache
from dibs.store.postgres import doctor
from dibs.store.postgres.connection import (
    NOT_EXECUTED,
    POOL,
    POOL_TIMEOUT,
    configure_session,
    configure_session_async,
    connection_string,
    lend_last_returned,
    translate,
    translate_joined,
)
from dibs.store.postgres.dialect import PostgresDialect
from dibs.store.postgres.index_builder import build_requested
from dibs.store.postgres.joined import (
    check_joinable,
    check_joinable_async,
    run_joined,
    run_joined_async,
    run_on,
    run_on_async,
)
from dibs.store.postgres.migrations import migrate
from dibs.store.postgres.outages import ServerUnreachable, UntilWritable, log_for, outages
from dibs.store.postgres.replies import (
    AnySession,
    AsyncSession,
    Session,
    Unanswered,
    async_sessions_of,
    expect_long_reply,
    expect_reply,
    sessions_of,
)
from dibs.store.postgres.wakeups import PostgresWakeups

T = TypeVar("T")

CoalesceKey = tuple[Hashable, str | None]
"""The kind of the operations that are combined, and their author."""

SHARED_ERRORS = (OutcomeUnknown, StoreBusy, StoreUnavailable)
"""Errors of the connection or the server. They concern all combined operations: running each of them again would not
help. After any other error each is run again alone, because one of them may be the cause."""

TRIES = 4
TRIES_UNANSWERED = 2
"""Attempts of a read that is not answered in time: each takes as long as its bound."""

SHORTEST_PAUSE, LONGEST_PAUSE = 0.01, 1.0

ASK_AGAIN = 2.0
"""Seconds after which a request for a connection is made anew. While the server is away the pool tries ever more
rarely for waiting requests, and still slept 20 s after an outage of 40 s; for a new request it tries at once."""

STILL_CONNECTED = ("40", "53", "55", "57014")
"""SQLSTATEs (or their classes) of operational errors after which the connection can still be used."""

POOLING: dict[str, Any] = {
    "kwargs": {"autocommit": True},
    "min_size": 0,
    "max_size": POOL,
    "reconnect_timeout": ASK_AGAIN,
}

PLANS_KEPT_FOR = 3.0
"""Seconds for which a connection keeps the plans of its prepared statements. PostgreSQL itself makes them anew only
after an ANALYZE: a plan made while the table was empty would read millions of rows once it is full, for up to a
minute. Planning everything again costs some milliseconds each time."""

PLANS_RENEWED_AFTER = 1.0
"""Seconds after which an idle operation makes them anew. An idle worker claims every two seconds, so the claim after a
wake-up finds plans that are made already."""


class PostgresStore:
    """A store in a PostgreSQL database. It connects when first used, and again in a forked child, and migrates.

    `_opening` guards `_open`. It is held only while objects are made, never while a server is waited for.
    """

    served = False
    many_writers = True
    caution: str | None = None

    open_connections: Callable[[str], PostgresConnections]
    """Makes the connections of a process to a URL. The tests replace it: they reuse connections between stores."""

    def __init__(self, url: str, *, clock: StoreClock | None = None, migrate: bool = True) -> None:
        self._url = url
        self._clock = clock
        self._types = TypeCache()
        self._dialect = PostgresDialect()
        self._operations = operations = SqlOperations(self._dialect, self._types)
        self.queue = operations.queue
        self.tasks = operations.tasks
        self.history = operations.history
        self.registry = operations.registry
        self.workflows = operations.workflows
        self.finalization = operations.finalization
        self.schedules = operations.schedules
        self.keys = operations.keys
        self.statistics = operations.statistics
        self.upkeep = operations.upkeep
        self.retention = operations.retention
        self.limits = operations.limits
        self.logs = operations.logs
        self._may_migrate = migrate
        self._builder: threading.Thread | None = None
        self._opening = threading.Lock()
        self._open: _Open | None = None
        self._finalize: Callable[[], object] = _nothing

    @property
    def types(self) -> TypeCache:
        """The registered task types, as this process knows them."""
        return self._types

    @property
    def observer(self) -> Observer:
        """Notified of what the store does to tasks."""
        return self._operations.observer.target

    @observer.setter
    def observer(self, observer: Observer) -> None:
        self._operations.observer.target = observer

    @property
    def wakeups(self) -> PostgresWakeups:
        """Waits for changes by any process. This does not connect."""
        return self._made().connections.wakeups

    def run(self, operation: Operation[T], *, by: str | None = None, on: Any = None, idle: bool = False) -> T:
        """Run the operation and return its result; with `on`, inside that connection's transaction."""
        return execution.run(self, operation, by, on, idle)

    async def run_async(
        self, operation: Operation[T], *, by: str | None = None, on: Any = None, idle: bool = False
    ) -> T:
        """`run`, without blocking the event loop."""
        return await execution.run_async(self, operation, by, on, idle)

    def validates_quickly(self, tasks: Iterable[NewTask]) -> bool | None:
        """See DatabaseStore."""
        return execution.validates_quickly(self, tasks)

    async def read_types(self) -> None:
        """See DatabaseStore."""
        await self.run_once_async(self._types.reading())

    def run_once(self, operation: Operation[T], by: str | None = None, on: Any = None, idle: bool = False) -> T:
        """See SqlEngine."""
        if on is not None:
            return self._run_joined(operation, by, on)
        if operation.coalesce is not None:
            key = operation.coalesce.key, by
            return operation.result(self._opened().coalescer.run(key, operation, self._run_batch))
        return operation.result(self._run_alone(operation, by, idle))

    def _run_batch(self, key: CoalesceKey, operations: Sequence[Operation[Any]]) -> Sequence[Any]:
        """Run operations of one kind and author as one operation."""
        _, by = key
        if len(operations) == 1:
            return [self._run_alone(operations[0], by)]
        try:
            answers: Sequence[Any] = self._run_alone(combine(operations), by)
            return answers
        except SHARED_ERRORS:
            raise
        except Exception:
            return [RUN_ALONE] * len(operations)

    def _run_alone(self, operation: Operation[Any], by: str | None, idle: bool = False) -> Any:
        """Run the statements of the operation and return their result, before it is decoded."""
        tries, patience, writable = 1, _Patience(), UntilWritable()
        while True:
            opened, connection = self._opened(patience), None
            try:
                with opened.connections.pool().connection(ASK_AGAIN) as connection:
                    if not opened.connections.trusts(connection):
                        connection.close()
                        continue
                    expect_reply(connection, operation)
                    if opened.connections.plans_are_old(connection, idle=idle):
                        connection.execute("DISCARD PLANS")
                    result = self._run_on(connection, operation, by)
            except PoolTimeout as error:
                patience.wait_on(error)
            except ReadOnlySqlTransaction as error:
                opened.connections.distrust(connection)
                time.sleep(writable.pause_after(error))
            except psycopg.Error as error:
                opened.connections.broke(connection, error)
                _raise_unless_again(error, operation, tries)
                time.sleep(pause_before(tries))
                tries, patience = tries + 1, _Patience()
            else:
                return opened.committed(operation, result)

    async def run_once_async(
        self, operation: Operation[T], by: str | None = None, on: Any = None, idle: bool = False
    ) -> T:
        """See SqlEngine."""
        if on is not None:
            return await self._run_joined_async(operation, by, on)
        if operation.coalesce is not None:
            coalescer = (await self._opened_async()).async_coalescer()
            key = operation.coalesce.key, by
            return operation.result(await coalescer.run(key, operation, self._run_batch_async))
        return operation.result(await self._run_alone_async(operation, by, idle))

    async def _run_batch_async(self, key: CoalesceKey, operations: Sequence[Operation[Any]]) -> Sequence[Any]:
        """`_run_batch`, awaited."""
        _, by = key
        if len(operations) == 1:
            return [await self._run_alone_async(operations[0], by)]
        try:
            answers: Sequence[Any] = await self._run_alone_async(combine(operations), by)
            return answers
        except SHARED_ERRORS:
            raise
        except Exception:
            return [RUN_ALONE] * len(operations)

    async def _run_alone_async(self, operation: Operation[Any], by: str | None, idle: bool = False) -> Any:
        tries, patience, writable = 1, _Patience(), UntilWritable()
        while True:
            opened = await self._opened_async(patience)
            pool, connection = await opened.connections.async_pool(), None
            try:
                async with pool.connection(ASK_AGAIN) as connection:
                    if not opened.connections.trusts(connection):
                        await connection.close()
                        continue
                    expect_reply(connection, operation)
                    if opened.connections.plans_are_old(connection, idle=idle):
                        await connection.execute("DISCARD PLANS")
                    result = await self._run_on_async(connection, operation, by)
            except PoolTimeout as error:
                patience.wait_on(error)
            except ReadOnlySqlTransaction as error:
                opened.connections.distrust(connection)
                await asyncio.sleep(writable.pause_after(error))
            except psycopg.Error as error:
                opened.connections.broke(connection, error)
                _raise_unless_again(error, operation, tries)
                await asyncio.sleep(pause_before(tries))
                tries, patience = tries + 1, _Patience()
            else:
                return opened.committed(operation, result)

    def migrate(self, note: OnMigration = ignore_migration) -> list[str]:
        """Apply the missing migrations; the names of those that were applied."""
        patience = _Patience()
        while True:
            try:
                return [migration.name for migration in migrate(self._url, note=note)]
            except ServerUnreachable as unreachable:
                time.sleep(patience.pause_after(unreachable))

    def maintain(self, *, wait: bool = True) -> None:
        """Build the indexes that claims have requested. The migrations have set up autovacuum."""
        requested: Rows = self.run(Operation("requested_indexes", _requested_indexes, mode=Mode.READ))
        if not requested:
            return
        if wait:
            build_requested(self._url)
            self._dialect.indexes.look_soon()
        elif self._builder is None or not self._builder.is_alive():
            self._builder = threading.Thread(target=_build_quietly, args=(self._url,), name="dibs-indexes", daemon=True)
            self._builder.start()

    def doctor(self) -> list[Check]:
        """Check for damage, and for settings that would break a guarantee."""
        try:
            with sessions_of(self._url).connect(connection_string(self._url), autocommit=True) as connection:
                expect_long_reply(connection, "doctor")
                return doctor.examine(connection)
        except psycopg.Error as error:
            raise translate(error, writing=False) from error

    def close(self) -> None:
        """Close all connections; the next operation opens them again."""
        self._detach()

    async def close_async(self) -> None:
        """`close`, without blocking the event loop."""
        if (opened := await asyncio.to_thread(self._detach)) is not None:
            await opened.close_async()  # last: from now on no call opens another pool

    def _detach(self) -> _Open | None:
        with self._opening:
            opened, self._open = self._open, None
            self._finalize()
            return opened

    def _run_joined(self, operation: Operation[T], by: str | None, on: Any) -> T:
        user = resolve(on)
        check_joinable(on, user.driver)
        opened = self._opened()
        try:
            returned = run_joined(user.driver, operation, by, self._now())
        except psycopg.Error as error:
            raise translate_joined(error, writing=operation.writes) from error
        opened.joined(user, operation, returned)
        return operation.result(returned)

    async def _run_joined_async(self, operation: Operation[T], by: str | None, on: Any) -> T:
        user = await resolve_async(on)
        check_joinable_async(on, user.driver)
        opened = await self._opened_async()
        try:
            returned = await run_joined_async(user.driver, operation, by, self._now())
        except psycopg.Error as error:
            raise translate_joined(error, writing=operation.writes) from error
        opened.joined(user, operation, returned)
        return operation.result(returned)

    def _run_on(self, connection: psycopg.Connection[Any], operation: Operation[T], by: str | None) -> Any:
        return run_on(connection, operation, by, self._now())

    async def _run_on_async(
        self, connection: psycopg.AsyncConnection[Any], operation: Operation[T], by: str | None
    ) -> Any:
        return await run_on_async(connection, operation, by, self._now())

    def _now(self) -> int | None:
        return self._clock() if self._clock else None

    def _opened(self, patience: _Patience | None = None) -> _Open:
        """The connections, after the schema was checked. Waits for a server that cannot be reached."""
        opened = self._open
        if opened is not None and opened.checked and opened.pid == os.getpid():
            return opened
        patience = patience or _Patience()
        while True:
            try:
                opened = self._reach()
            except ServerUnreachable as unreachable:
                time.sleep(patience.pause_after(unreachable))
                continue
            if opened is self._open:  # not closed meanwhile
                return opened

    async def _opened_async(self, patience: _Patience | None = None) -> _Open:
        """`_opened`, without blocking the event loop. Connections that were closed meanwhile are opened again."""
        opened = self._open
        if opened is not None and opened.checked and opened.pid == os.getpid():
            return opened
        patience = patience or _Patience()
        while (opened := self._open) is None or not opened.checked or opened.pid != os.getpid():
            try:
                await asyncio.to_thread(self._reach)
            except ServerUnreachable as unreachable:
                await asyncio.sleep(patience.pause_after(unreachable))
        return opened

    def _reach(self) -> _Open:
        """Try once to reach the database and check its schema. Callers that wait for the attempt of another caller
        share its result: otherwise twenty callers would wait for a silent server one after the other."""
        started_at, opened = time.monotonic(), self._made()
        with opened.checking:
            if opened.checked:
                return opened
            if opened.unreachable_since > started_at:
                raise ServerUnreachable(opened.unreachable_reason)
            try:
                opened.connections.check_schema(self._may_migrate)
            except ServerUnreachable as unreachable:
                opened.unreachable_reason, opened.unreachable_since = str(unreachable), time.monotonic()
                raise
            opened.checked = True
            return opened

    def _made(self) -> _Open:
        """The connections of this process. This does not connect."""
        opened = self._open
        if opened is not None and opened.pid == os.getpid():
            return opened
        with self._opening:
            if self._open is None or self._open.pid != os.getpid():
                connections = _connections_to(self._url)
                _abandoned.append(self._open)
                self._open = _Open(connections)
                self._finalize = weakref.finalize(self, self._open.close)  # a program need not call close()
                self._types.forget()
            return self._open


def _connections_to(url: str) -> PostgresConnections:
    try:
        return PostgresStore.open_connections(url)
    except psycopg.Error as error:  # a URL that libpq does not understand
        raise translate(error, writing=False) from error


def _requested_indexes() -> Statements[Rows]:
    return (yield Statement("requested_indexes"))


def _build_quietly(url: str) -> None:
    """Build in a thread. After an error a later round of upkeep tries again."""
    with suppress(DibsError):
        build_requested(url)


def _nothing() -> None:
    """Close a store that has no connections yet."""


_abandoned: list[Any] = []
"""Connections that a forked child inherited. They are never closed: that would end the connections of the parent."""


def _raise_unless_again(error: psycopg.Error, operation: Operation[Any], tries: int) -> None:
    # A read changes nothing, so it may be run again after any error.
    again = isinstance(error, NOT_EXECUTED if operation.writes else (*NOT_EXECUTED, psycopg.OperationalError))
    most = TRIES_UNANSWERED if isinstance(error, Unanswered) else TRIES
    if tries >= most or not again:
        raise translate(error, writing=operation.writes) from error


def pause_before(retry: int) -> float:
    """Seconds to wait before the n-th retry, doubling: operations that collided would collide again if all of them were
    retried at once."""
    return reconnect_delay(retry, SHORTEST_PAUSE, LONGEST_PAUSE)


class _Patience:
    """How long a call waits for a connection."""

    def __init__(self) -> None:
        self._until = time.monotonic() + POOL_TIMEOUT
        self._attempts = 0

    def pause_after(self, unreachable: ServerUnreachable) -> float:
        """Seconds to wait after a failed attempt to reach the server; raises StoreUnavailable after POOL_TIMEOUT
        seconds. An outage is logged."""
        outages().failed(str(unreachable))
        left = self._until - time.monotonic()
        if left <= 0:
            raise _unreachable(str(unreachable)) from unreachable
        self._attempts += 1
        return min(left, pause_before(self._attempts))

    def wait_on(self, error: PoolTimeout) -> None:
        """Continue after a timeout of the pool; raises StoreUnavailable after POOL_TIMEOUT seconds."""
        if time.monotonic() >= self._until:
            raise _unreachable(outages().reason or str(error)) from error


def _unreachable(reason: str) -> StoreUnavailable:
    return StoreUnavailable(f"No connection to PostgreSQL within {POOL_TIMEOUT:.0f} seconds ({reason}).")


class PostgresConnections:
    """The connections of one process: a pool for threads and one for each event loop, opened when first used."""

    def __init__(self, url: str) -> None:
        self.wakeups = PostgresWakeups(url)
        self._url = url
        self._conninfo = connection_string(url)
        self._lock = threading.Lock()
        self._planned_at: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()
        self._trusted_since = 0.0
        self._pool: ConnectionPool[Session] | None = None
        self._async_pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncConnectionPool[AsyncSession]]
        self._async_pools = weakref.WeakKeyDictionary()

    def check_schema(self, may_migrate: bool) -> None:
        """Migrate the database if it is empty and that is allowed; refuse a schema that this version cannot use."""
        migrate(self._url, may_migrate)

    def plans_are_old(self, connection: Any, *, idle: bool = False) -> bool:
        """True once in PLANS_KEPT_FOR seconds for a connection that keeps plans; sooner for an idle operation."""
        if connection.prepare_threshold is None:
            return False
        now = time.monotonic()
        kept_for = PLANS_RENEWED_AFTER if idle else PLANS_KEPT_FOR
        if now - self._planned_at.setdefault(connection, now) < kept_for:
            return False
        self._planned_at[connection] = now
        return True

    def trusts(self, connection: AnySession) -> bool:
        """False for a connection that was made before another one was found broken or read-only. A check of each
        connection would take a round trip, and on a frozen server as long as the bound on its reply."""
        return connection.made_at > self._trusted_since

    def distrust(self, connection: AnySession | None) -> None:
        """Close all connections made until now, each when it is next taken from its pool. Without effect if that was
        done since this connection was made: later connections stay."""
        if connection is not None and self.trusts(connection):
            self._trusted_since = time.monotonic()

    def broke(self, connection: AnySession | None, error: psycopg.Error) -> None:
        """Distrust the other connections if this one broke: they probably broke too."""
        if isinstance(error, psycopg.OperationalError) and not (error.sqlstate or "").startswith(STILL_CONNECTED):
            self.distrust(connection)

    def pool(self) -> ConnectionPool[Session]:
        """The pool for threads."""
        if self._pool is None:
            with self._lock:
                if self._pool is None:
                    pool = ConnectionPool(
                        self._conninfo,
                        open=False,
                        connection_class=sessions_of(self._url),
                        configure=configure_session,
                        **POOLING,
                    )
                    self._pool = lend_last_returned(pool)
                    log_for(pool)
                    self._pool.open()
        return self._pool

    async def async_pool(self) -> AsyncConnectionPool[AsyncSession]:
        """The pool of the running event loop."""
        loop = asyncio.get_running_loop()
        pool = self._async_pools.get(loop)
        if pool is None:
            pool = AsyncConnectionPool(
                self._conninfo,
                open=False,
                connection_class=async_sessions_of(self._url),
                configure=configure_session_async,
                **POOLING,
            )
            self._async_pools[loop] = lend_last_returned(pool)
            log_for(pool)
            await pool.open()
        return pool

    def close(self) -> None:
        """Close the wake-ups and the pool for threads."""
        self.wakeups.close()
        if self._pool is not None:
            self._pool.close()

    async def close_async(self) -> None:
        """Close the pool of the running event loop."""
        if (pool := self._async_pools.pop(asyncio.get_running_loop(), None)) is not None:
            await pool.close()


PostgresStore.open_connections = PostgresConnections


class _Open:
    """What an open store has in one process: connections, and the operations that wait to be combined."""

    def __init__(self, connections: PostgresConnections) -> None:
        self.pid = os.getpid()
        self.connections = connections
        self.checked = False
        self.checking = threading.Lock()  # guards the two below, and an attempt to check
        self.unreachable_reason = ""
        self.unreachable_since = 0.0
        self.coalescer: Coalescer[CoalesceKey, Operation[Any], Any] = Coalescer()
        self._async_coalescers: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, AsyncCoalescer[CoalesceKey, Operation[Any], Any]
        ] = weakref.WeakKeyDictionary()

    def committed(self, operation: Operation[Any], returned: Any) -> Any:
        """Wake the waiters if the operation changed what they wait for; return what its statements returned."""
        if operation.should_wake(returned):
            self.connections.wakeups.wrote()
        return returned

    def joined(self, user: UserConnection, operation: Operation[Any], returned: Any) -> None:
        """Wake the waiters after the commit of the user, if the library of the connection reports commits."""
        if user.after_commit is not None and operation.should_wake(returned):
            user.after_commit(self.connections.wakeups.wrote)

    def async_coalescer(self) -> AsyncCoalescer[CoalesceKey, Operation[Any], Any]:
        """The coalescer of the running event loop."""
        loop = asyncio.get_running_loop()
        coalescer = self._async_coalescers.get(loop)
        if coalescer is None:
            coalescer = self._async_coalescers.setdefault(loop, AsyncCoalescer())
        return coalescer

    def close(self) -> None:
        if self.pid == os.getpid():
            self.connections.close()

    async def close_async(self) -> None:
        await self.connections.close_async()
