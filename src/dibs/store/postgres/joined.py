"""Operations on a connection to PostgreSQL, also on one that the user handed in, of psycopg, psycopg2 or asyncpg.

An operation in a transaction of the user sets a savepoint, so that a refused operation leaves the transaction usable.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, ExitStack
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from dibs.store.joining import is_a, refused
from dibs.store.operation import Operation, drive, drive_async
from dibs.store.postgres.connection import AsyncPostgresExecutor, PostgresExecutor
from dibs.store.postgres.other_drivers import refuse_encoding, run_on_asyncpg, run_on_psycopg2
from dibs.store.postgres.sessions import refuse_client_encoding


def check_joinable(given: Any, driver: Any) -> None:
    """Raise InvalidValue unless Dibs can use the connection of the driver under what the user handed in."""
    if is_a(driver, "psycopg2.extensions", "connection") and not driver.async_:
        refuse_encoding(driver.encoding)
    elif isinstance(driver, psycopg.Connection):
        refuse_client_encoding(driver)
    else:
        raise refused(given, "PostgreSQL", "Dibs", "psycopg.Connection and psycopg2")


def check_joinable_async(given: Any, driver: Any) -> None:
    """`check_joinable` for AsyncDibs."""
    if is_asyncpg(driver):
        refuse_encoding(driver.get_settings().client_encoding)
    elif isinstance(driver, psycopg.AsyncConnection):
        refuse_client_encoding(driver)
    else:
        raise refused(given, "PostgreSQL", "AsyncDibs", "psycopg.AsyncConnection and asyncpg")


def is_asyncpg(driver: Any) -> bool:
    """True for a connection of asyncpg, also for one that its pool lends."""
    return is_a(driver, "asyncpg", "Connection") or is_a(driver, "asyncpg.pool", "PoolConnectionProxy")


def run_joined(driver: Any, operation: Operation[Any], by: str | None, now: int | None) -> Any:
    """Run the operation in the transaction of the user. An error of any driver is raised as that of psycopg."""
    if not isinstance(driver, psycopg.Connection):
        return run_on_psycopg2(driver, operation, by, now)
    if begins_by_itself(driver, operation):
        driver.execute("SELECT 1")
    return run_on(driver, operation, by, now)


async def run_joined_async(driver: Any, operation: Operation[Any], by: str | None, now: int | None) -> Any:
    """`run_joined`, awaited."""
    if not isinstance(driver, psycopg.AsyncConnection):
        return await run_on_asyncpg(driver, operation, by, now)
    if begins_by_itself(driver, operation):
        await driver.execute("SELECT 1")
    return await run_on_async(driver, operation, by, now)


def run_on(connection: psycopg.Connection[Any], operation: Operation[Any], by: str | None, now: int | None) -> Any:
    """Run the statements of the operation on this connection; `now` is None for the clock of the database."""
    with ExitStack() as ends:
        executor = PostgresExecutor(connection, ends, now, by)
        if operation.atomic:
            executor.begin()
        return drive(operation.begin(), executor)


async def run_on_async(
    connection: psycopg.AsyncConnection[Any], operation: Operation[Any], by: str | None, now: int | None
) -> Any:
    """`run_on`, awaited."""
    async with AsyncExitStack() as ends:
        executor = AsyncPostgresExecutor(connection, ends, now, by)
        if operation.atomic:
            await executor.begin()
        return await drive_async(operation.begin(), executor)


def begins_by_itself(connection: Any, operation: Operation[Any]) -> bool:
    """True if psycopg would begin a transaction of the user with the first statement. It must be begun before
    `connection.transaction()`, which would otherwise commit it; inside a transaction that sets a savepoint."""
    idle = connection.info.transaction_status == TransactionStatus.IDLE
    return operation.atomic and idle and not connection.autocommit
