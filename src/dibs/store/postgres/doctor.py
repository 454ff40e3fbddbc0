"""The doctor's checks on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg

from dibs.model.upkeep import Check, Verdict
from dibs.store.doctor import judge, judge_limits, judge_schema
from dibs.store.postgres.connection import SQL
from dibs.store.postgres.dialect import DEFINITIONS
from dibs.store.postgres.index_builder import creation
from dibs.store.postgres.migrations import KNOWN, applied
from dibs.store.postgres.sessions import ENCODING, ENCODING_HINT, LEVEL, database_encoding

OLDEST_SUPPORTED = 140000
LONG_TRANSACTION = 300


def examine(connection: psycopg.Connection[Any]) -> list[Check]:
    """All checks, in the order a reader would ask."""
    checks = [*_server(connection), *_settings(connection)]
    if database_encoding(connection) != ENCODING:  # no dibs tables can be there: the store refuses to open
        return checks
    return [*checks, *_schema(connection), *_books(connection)]


def _server(connection: psycopg.Connection[Any]) -> Iterator[Check]:
    version = connection.info.server_version
    shown = f"PostgreSQL {version // 10000}.{version % 10000}"
    yield judge("server version", version >= OLDEST_SUPPORTED, shown, "dibs is tested on PostgreSQL 14 and later.")
    found = database_encoding(connection)
    yield judge("encoding", found == ENCODING, f"the database's encoding is {found}", ENCODING_HINT)
    replica = _value(connection, "SELECT pg_is_in_recovery()")
    yield judge("primary", not replica, "a replica" if replica else "the primary", "Tasks can only be claimed there.")
    age = _value(
        connection,
        "SELECT coalesce(extract(epoch FROM max(clock_timestamp() - xact_start)), 0)::float8 FROM pg_stat_activity"
        " WHERE xact_start IS NOT NULL AND backend_type = 'client backend'",
    )
    hint = "Vacuum cannot clean up behind it, and claims slow down: find it in pg_stat_activity."
    yield judge("oldest transaction", age < LONG_TRANSACTION, f"{age:.0f} seconds", hint, otherwise=Verdict.WARN)


def _settings(connection: psycopg.Connection[Any]) -> Iterator[Check]:
    for name, hint in (
        ("fsync", "With fsync off a power cut loses tasks, or the database."),
        ("full_page_writes", "With full_page_writes off a power cut can corrupt the database."),
        ("autovacuum", "Without autovacuum dead rows pile up and every claim slows down."),
    ):
        value = _value(connection, f"SHOW {name}")
        yield judge(name, value == "on", f"{name} is {value}", hint)
    yield from _replication(connection)
    yield from _defaults(connection)


def _replication(connection: psycopg.Connection[Any]) -> Iterator[Check]:
    """What an acknowledged commit waits for: the disk of this server, and the replicas that are attached to it."""
    commit, names = _value(connection, "SHOW synchronous_commit"), _value(connection, "SHOW synchronous_standby_names")
    replicas = _value(connection, _REPLICAS)
    message = f"synchronous_commit is {commit}"
    if commit == "local" and replicas:
        yield Check("durability", Verdict.WARN, message, _LOCAL_HINT)
    else:
        hint = "With it off a crash of the server loses tasks that were acknowledged."
        yield judge("durability", commit != "off", message, hint)
    attached = (
        f"{replicas} replica{' is' if replicas == 1 else 's are'} attached" if replicas else "no replica is attached"
    )
    named = f", synchronous_standby_names is {names or 'empty'}" if replicas else ""
    fine = not replicas or bool(names)
    yield judge("replication", fine, attached + named, _ASYNCHRONOUS_HINT, otherwise=Verdict.WARN)


_REPLICAS = """
    SELECT count(*) FROM pg_stat_replication AS sender
    WHERE coalesce(state, '') <> 'backup'
      AND coalesce(application_name, '') NOT IN ('pg_basebackup', 'pg_receivewal')
      AND NOT EXISTS (SELECT FROM pg_replication_slots AS slot
                      WHERE slot.active_pid = sender.pid AND slot.slot_type = 'logical')"""
"""Replicas that could be promoted: no backups, no logical replication. A role without rights over the server sees how
many there are, and nothing else of them."""

_LOCAL_HINT = (
    "A commit does not wait for the attached replicas: promoting one of them loses tasks that were acknowledged. "
    "Set synchronous_commit to on."
)

_ASYNCHRONOUS_HINT = (
    "Replication is asynchronous: promoting a replica loses tasks that were acknowledged and not yet replicated, and "
    "neither dibs doctor nor dibs verify can see that afterwards. Set synchronous_standby_names, or accept the loss."
)


def _defaults(connection: psycopg.Connection[Any]) -> Iterator[Check]:
    """What an administrator may have set for the database, the role or the whole server."""
    level = _value(connection, "SHOW default_transaction_isolation")
    yield _default("default_transaction_isolation", level == LEVEL, level, _LEVEL_HINT)
    writable = _value(connection, "SHOW default_transaction_read_only")
    hint = "Nothing can be enqueued or claimed. Set it to off for the role of dibs."
    yield judge(
        "default_transaction_read_only", writable == "off", f"default_transaction_read_only is {writable}", hint
    )
    for name, (least, hint) in _TIMEOUTS.items():
        row = connection.execute(_TIMEOUT, [name, name]).fetchone()
        assert row is not None
        milliseconds, shown = row
        yield _default(name, milliseconds == 0 or milliseconds >= least, shown, hint)


def _default(name: str, fine: bool, value: str, hint: str) -> Check:
    return judge(name, fine, f"{name} is {value}", hint, otherwise=Verdict.WARN)


_LEVEL_HINT = (
    "dibs runs its own transactions at read committed. Behind a pooler that costs two more round trips for each "
    "statement; a transaction of yours that you hand to dibs keeps its level, and may have to be repeated. "
    "Set it to read committed for the role of dibs."
)

_TIMEOUT = "SELECT setting::int, current_setting(%s) FROM pg_settings WHERE name = %s"

_TIMEOUTS = {
    "idle_session_timeout": (
        60_000,
        "The server closes the idle connections of dibs, which opens new ones. Set it to 0 for the role of dibs.",
    ),
    "statement_timeout": (
        10_000,
        "An operation that takes longer is cancelled (StoreBusy). Use 10s or more for the role of dibs.",
    ),
    "lock_timeout": (
        1_000,
        "An operation that waits longer for a row is cancelled (StoreBusy). Use 1s or more for the role of dibs.",
    ),
}
"""Timeouts: the shortest, in milliseconds, that dibs is not affected by, and what a shorter one causes. 0 is none."""


def _schema(connection: psycopg.Connection[Any]) -> Iterator[Check]:
    yield judge_schema(KNOWN, applied(connection))
    broken = _value(
        connection,
        "SELECT count(*) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid"
        " WHERE relname LIKE 'dibs\\_%' AND NOT indisvalid",
    )
    yield judge("indexes", broken == 0, f"{broken} invalid", "REINDEX the invalid indexes of the dibs_ tables.")
    if _value(connection, "SELECT to_regclass('dibs_stream_indexes') IS NOT NULL"):
        yield _requested(connection)


def _requested(connection: psycopg.Connection[Any]) -> Check:
    """Indexes that claims have requested and that upkeep has not built in the last minute."""
    rows = connection.execute(SQL.text("overdue_indexes").encode()).fetchall()
    names = [row[0] for row in rows if row[0] in DEFINITIONS]
    errors = " ".join(dict.fromkeys(row[1] for row in rows if row[1]))
    message = f"{len(names)} requested and missing. {errors}" if names else "none is missing"
    hint = "Claims are correct and slow without them. The owner of the tables builds them with: "
    hint += " ".join(f"{creation(name)};" for name in names)
    return judge("indexes of claims", not names, message.strip(), hint, otherwise=Verdict.WARN)


def _books(connection: psycopg.Connection[Any]) -> Iterator[Check]:
    for name, hint in (
        (
            "books_tokens",
            "A task's token differs from the last one its history issued: another program changed the tables.",
        ),
        ("books_states", "A task's state differs from where its history ends: another program changed the tables."),
    ):
        with connection.transaction():  # they read every task: a timeout for ordinary statements does not apply
            connection.execute("SET LOCAL statement_timeout = 0")
            count = _value(connection, SQL.text(name))
        yield judge(name.replace("_", " "), count == 0, f"{count} tasks disagree with their history", hint)
    with connection.transaction():
        connection.execute("SET LOCAL statement_timeout = 0")
        disagreeing = _value(connection, SQL.text("limits_disagreeing"))
    yield judge_limits(disagreeing)


def _value(connection: psycopg.Connection[Any], sql: str) -> Any:
    row = connection.execute(sql.encode()).fetchone()
    assert row is not None
    return row[0]
