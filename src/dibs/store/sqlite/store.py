"""The SQLite store: a file in WAL mode, with one writer and several readers in each process."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from dibs.errors import SchemaMissing, StoreError
from dibs.model.task import NewTask
from dibs.model.upkeep import Check
from dibs.store.contract import Observer, StoreClock
from dibs.store.joining import is_a, refused, resolve, resolve_async
from dibs.store.migrate import OnMigration, ignore_migration
from dibs.store.operation import Mode, Operation, drive
from dibs.store.operations import SqlOperations, execution
from dibs.store.operations.validation import TypeCache
from dibs.store.sqlite import doctor, forks, maintenance
from dibs.store.sqlite.connection import ReadOnly, SqliteExecutor, clock, connect, run_joined, translate
from dibs.store.sqlite.database_file import create, keep_orphaned, log_of
from dibs.store.sqlite.dialect import SqliteDialect
from dibs.store.sqlite.migrations import KNOWN, migrate
from dibs.store.sqlite.readers import READERS, Readers
from dibs.store.sqlite.wakeups import SqliteWakeups
from dibs.store.sqlite.writer import Closed, Writer

T = TypeVar("T")


class SqliteStore:
    """A store in a SQLite file. It opens the file when first used, and again after a fork, and migrates it."""

    served = False
    many_writers = False

    def __init__(self, path: Path, *, clock: StoreClock = clock, migrate: bool = True) -> None:
        self.path = path.absolute()  # the working directory may change before the file is opened
        self.clock = clock
        self._types = TypeCache()
        self._operations = operations = SqlOperations(SqliteDialect(self.path), self._types)
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
        self._was_there = False  # the file was opened: from then on it is opened again, but not created again
        self._lost: tuple[_Identity, _Identity] | None = None  # the file that was deleted or replaced, and its log
        self._opening = threading.RLock()
        self._open: _Open | None = None  # until everything of it is closed
        self._finalizer: weakref.finalize[..., SqliteStore] | None = None

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
    def wakeups(self) -> SqliteWakeups:
        """Waits for changes by any process."""
        return self._opened().wakeups

    def run(self, operation: Operation[T], *, by: str | None = None, on: Any = None, idle: bool = False) -> T:
        """Run the operation and return its result; with `on`, inside that connection's transaction."""
        return execution.run(self, operation, by, on, idle)

    async def run_async(
        self, operation: Operation[T], *, by: str | None = None, on: Any = None, idle: bool = False
    ) -> T:
        """`run`, without blocking the event loop (but a connection of sqlite3 belongs to its thread)."""
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
        while True:
            opened = self._opened()
            try:
                if operation.writes:
                    return operation.result(opened.writer.run(operation, by))
                return operation.result(opened.read(operation, self.clock()))
            except Closed:  # by a fork, or by another thread: open it again
                self._close_if_open(opened)
            except StoreError as error:
                self._check_in_place(opened)
                self._check_writable(opened, error)
                raise

    async def run_once_async(
        self, operation: Operation[T], by: str | None = None, on: Any = None, idle: bool = False
    ) -> T:
        """See SqlEngine."""
        if on is not None:
            return await self._run_joined_async(operation, by, on)
        while True:
            opened = self._open
            if opened is None:
                opened = await asyncio.to_thread(self._opened)
            try:
                if operation.writes:
                    return operation.result(await opened.writer.run_async(operation, by))
                return operation.result(await opened.read_async(operation, self.clock()))
            except Closed:
                await asyncio.to_thread(self._close_if_open, opened)
            except StoreError as error:
                self._check_in_place(opened)
                self._check_writable(opened, error)
                raise

    def migrate(self, note: OnMigration = ignore_migration) -> list[str]:
        """Apply the missing migrations; the names of those that were applied."""
        self._was_there = False
        if self._lies_beside_old_log():
            keep_orphaned(log_of(self.path))
        create(self.path, keep_log=True)
        connection = connect(self.path)
        try:
            return [migration.name for migration in migrate(connection, self.clock, note=note)]
        finally:
            connection.close()

    def maintain(self, *, wait: bool = True) -> None:
        """Checkpoint the WAL, free unused pages, refresh statistics, and check that the file still exists."""
        while True:
            opened = self._opened()
            self._check_in_place(opened)
            try:
                opened.writer.maintain(maintenance.tidy)
                return
            except Closed:
                self._close_if_open(opened)

    def doctor(self) -> list[Check]:
        """Check for damage, and for settings that would break a guarantee."""
        self._refuse_old_log()
        self._refuse_if_missing()
        connection = connect(self.path)
        try:
            return doctor.examine(connection, self.path)
        except sqlite3.Error as error:
            raise translate(error) from error
        finally:
            connection.close()

    @property
    def caution(self) -> str | None:
        """See Store."""
        return maintenance.caution()

    def close(self) -> None:
        """Close the file; the next operation opens it again."""
        with self._opening:
            if self._open is not None and self._open.in_place():
                self._was_there = False  # a file that is deleted while it is closed is deleted on purpose
            self._close()

    async def close_async(self) -> None:
        """`close`, without blocking the event loop."""
        await asyncio.to_thread(self.close)

    def _run_joined(self, operation: Operation[T], by: str | None, on: Any) -> T:
        return self._run_on(operation, by, on, resolve(on).driver, "Dibs")

    async def _run_joined_async(self, operation: Operation[T], by: str | None, on: Any) -> T:
        """Run the operation in the thread of the connection: that of aiosqlite, or the one that runs the event loop."""
        driver = (await resolve_async(on)).driver
        if not is_a(driver, "aiosqlite", "Connection"):
            return self._run_on(operation, by, on, driver, "AsyncDibs")
        if not driver.in_transaction:
            await asyncio.to_thread(self._opened)
        # Private attributes, for one hop to the thread instead of one for each statement; a test fails if they change.
        returned = await driver._execute(run_joined, operation, by, driver._conn, self.clock)
        return operation.result(returned)

    def _run_on(self, operation: Operation[T], by: str | None, on: Any, driver: Any, client: str) -> T:
        if not isinstance(driver, sqlite3.Connection):
            raise refused(on, "SQLite", client, "sqlite3" if client == "Dibs" else "sqlite3 and aiosqlite")
        if not driver.in_transaction:  # inside a transaction, a migration would wait for the user's own lock
            self._opened()
        return operation.result(run_joined(operation, by, driver, self.clock))

    def _check_in_place(self, opened: _Open) -> None:
        """Raise StoreError if the file was deleted or replaced: SQLite would write to the old file without an error."""
        if opened.in_place():
            return
        self._lost = opened.identity, opened.log
        self._close_if_open(opened)
        raise StoreError(
            f"The file {self.path} was deleted or replaced while it was open.",
            hint="Later writes are in the old file. Move it back together with its -wal, or create an empty file with "
            "migrate() (`dibs migrate`). Stop every program before you move a file.",
        )

    def _refuse_old_log(self) -> None:
        if self._lies_beside_old_log():
            log = log_of(self.path).name
            raise StoreError(
                f"{self.path} is another file than before, and {log} belongs to the old file.",
                hint=f"SQLite would write the log of the old file into the new one, and damage it. Move {log} beside "
                f"the old file, or rename it, as migrate() does in this program.",
            )

    def _lies_beside_old_log(self) -> bool:
        """True if another file has replaced the open file, and the log of the old file is still there. False for a file
        that was moved back."""
        if self._lost is None or (now := _identity(os.fspath(self.path))) is None:
            return False
        file, log = self._lost
        return now != file and log is not None and _identity(os.fspath(log_of(self.path))) == log

    def _check_writable(self, opened: _Open, error: StoreError) -> None:
        if isinstance(error, ReadOnly):
            self._close_if_open(opened)

    def _close_if_open(self, opened: _Open) -> None:
        with self._opening:
            if self._open is opened:  # otherwise another thread has closed it, and may have opened the new one
                self._close()

    def _close(self) -> None:
        """Close the open file. After an interrupt (Ctrl-C), the next call closes the rest."""
        if self._open is not None:
            self._open.close()
            if self._finalizer is not None:
                self._finalizer.detach()
            self._open = None

    def _opened(self) -> _Open:
        if (opened := self._open) is not None:
            return opened
        forks.remember(self)
        with self._opening:
            if self._open is None:
                self._types.forget()
                self._refuse_old_log()
                self._create_if_new()
                self._open = _Open(self.path, self.clock, self._may_migrate)
                self._was_there = True
                self._finalizer = weakref.finalize(self, _close_forgotten, self._open)  # a program need not close()
            return self._open

    def _create_if_new(self) -> None:
        """Create the file, unless this store has had it open before: then it was moved away. An empty file would hide
        that, and SQLite would delete the write-ahead log of the old file."""
        if self._was_there:
            return
        if self._may_migrate:
            create(self.path)
        else:
            self._refuse_if_missing()

    def _refuse_if_missing(self) -> None:
        if not self._was_there and self.path.parent.exists() and not self.path.exists():
            names = ", ".join(migration.name for migration in KNOWN)
            raise SchemaMissing(f"There is no file {self.path}. A new one needs these migrations: {names}.")

    def before_fork(self) -> None:
        """Close the file, and prevent that it is opened before the fork has ended."""
        self._opening.acquire()
        self._close()

    def after_fork(self) -> None:
        """Called in parent and child: the next operation opens the file again."""
        with suppress(RuntimeError):  # after an interrupt the lock may be held twice, or not at all
            while True:
                self._opening.release()


def _close_forgotten(opened: _Open) -> None:
    """Close the file of a collected store. The garbage collector may run in a thread of the store, for which closing
    would wait: then another thread closes it."""
    if threading.current_thread().name.startswith("dibs-"):
        threading.Thread(target=opened.close, name="dibs-closing", daemon=True).start()
    else:
        opened.close()


class _Open:
    """The connections of one process to the open file."""

    def __init__(self, path: Path, clock: StoreClock, may_migrate: bool) -> None:
        self._path = path
        self._name = os.fspath(path)
        first = connect(path)
        try:
            migrate(first, clock, may_migrate)
        finally:
            first.close()
        self.identity = _identity(self._name)
        self.wakeups = SqliteWakeups(path)
        self.writer = Writer(path, clock, self.wakeups.wake, self.in_place)
        self.log = _identity(os.fspath(log_of(path)))  # it stays for as long as the writer has the file open
        self._readers = Readers(path)
        self._executor = ThreadPoolExecutor(READERS, thread_name_prefix="dibs-reader")
        self._point_lock = threading.Lock()  # guards the two below
        self._point_connection: sqlite3.Connection | None = None
        self._closed = False

    def in_place(self) -> bool:
        """False if the path leads to another file now, or to none."""
        return _identity(self._name) == self.identity

    def read(self, operation: Operation[Any], now: int) -> Any:
        """Run a reading operation on one snapshot."""
        return self._readers.read(operation, now)

    async def read_async(self, operation: Operation[Any], now: int) -> Any:
        """`read`, in a thread, unless it takes less time than to start a thread."""
        if operation.mode is Mode.POINT_READ and not self._point_lock.locked():
            with self._point_lock:
                return self._point_read(operation, now)
        try:
            reading = asyncio.get_running_loop().run_in_executor(self._executor, self.read, operation, now)
        except RuntimeError:  # the threads have ended
            raise Closed from None
        return await reading

    def _point_read(self, operation: Operation[Any], now: int) -> Any:
        """Run a single statement, which needs no transaction, on a connection for point reads of event loops."""
        if self._closed:
            raise Closed
        if self._point_connection is None:
            self._point_connection = connect(self._path)
        try:
            return drive(operation.begin(), SqliteExecutor(self._point_connection, now, None))
        except sqlite3.Error as error:
            raise translate(error) from error

    def close(self) -> None:
        """Close everything. A second call has no effect, or continues after an interrupt."""
        self.wakeups.close()
        with self._point_lock:
            self._closed = True
            if self._point_connection is not None:
                self._point_connection.close()
        self._readers.close()
        self._executor.shutdown()
        self.writer.close()


_Identity = tuple[int, int] | None


def _identity(path: str) -> _Identity:
    """The device and inode of the file; None if there is no file."""
    try:
        status = os.stat(path)  # noqa: PTH116  after every write: a Path takes longer than the call itself
    except OSError:
        return None
    return status.st_dev, status.st_ino
