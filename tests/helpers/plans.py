"""The cost of an operation: each of its statements is run and explained, and everything is rolled back."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from dibs.store.operation import Instruction, Operation, Rows, Statement, drive
from dibs.store.postgres.connection import SQL as POSTGRES_SQL
from dibs.store.postgres.connection import PostgresExecutor, bind
from dibs.store.sqlite.connection import SQL as SQLITE_SQL
from dibs.store.sqlite.connection import SqliteExecutor
from tests.helpers.million import TABLES


@dataclass
class Work:
    """What one statement did: rows of the big tables that it touched, pages, the indexes by part of the query."""

    name: str
    rows: float = 0
    pages: int = 0
    scanned: set[str] = field(default_factory=set)
    indexes: set[tuple[str, str]] = field(default_factory=set)
    plan: Any = None

    def uses(self, index: str, part: str = "") -> bool:
        """The index is used (in this part, a common table expression)."""
        return any(used == index and (not part or part == where) for where, used in self.indexes)


# PostgreSQL


def explain_postgres(connection: psycopg.Connection[Any], operation: Operation[Any]) -> list[Work]:
    """The work of each statement, planned according to the plan_cache_mode of the session."""
    works: list[Work] = []

    def execute(statement: Instruction) -> Rows:
        if isinstance(statement, Statement) and _planned(statement):
            works.append(_explain(connection, statement))
        return run(statement)

    with connection.transaction(force_rollback=True), ExitStack() as ends:
        run = PostgresExecutor(connection, ends, None, None)
        drive(operation.begin(), execute)
    return works


def _planned(statement: Statement) -> bool:
    """It reads or writes rows; PostgreSQL makes no plan for a SET."""
    return not numbered(statement)[0].startswith("SET ")


def _explain(connection: psycopg.Connection[Any], statement: Statement) -> Work:
    text, values = numbered(statement)
    arguments = sql.SQL(", ").join(map(sql.Literal, values))
    call = sql.SQL("EXECUTE guarded ({})").format(arguments) if values else sql.SQL("EXECUTE guarded")
    connection.execute(f"PREPARE guarded AS {text}".encode())
    try:
        with connection.transaction(force_rollback=True):
            return explain_call(connection, call, statement.name)
    finally:
        connection.execute("DEALLOCATE guarded")


def explain_call(connection: psycopg.Connection[Any], call: sql.Composable, name: str) -> Work:
    """The work of an EXECUTE."""
    options = sql.SQL("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ")
    row = connection.execute(options + call).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    work = Work(name, plan=plan, pages=plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
    for part, node in _nodes(plan):
        _count(work, part, node)
    return work


def numbered(statement: Statement) -> tuple[str, list[Any]]:
    """The text with $1, $2 … for its parameters, as the server sees it, and their values."""
    given = bind(statement, {"now": None, "by": None})
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    text = re.sub(r"%\((\w+)\)s", number, POSTGRES_SQL.text(statement.name, statement.words))
    return text.replace("%%", "%"), [given[name] for name in names]


def _nodes(node: dict[str, Any], part: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    part = node.get("Subplan Name", part)
    yield part, node
    for child in node.get("Plans", ()):
        yield from _nodes(child, part)


def _count(work: Work, part: str, node: dict[str, Any]) -> None:
    kind, table = node["Node Type"], node.get("Relation Name")
    if "Index Name" in node:
        work.indexes.add((part.removeprefix("CTE "), node["Index Name"]))
    if not kind.endswith("Scan") or (table not in TABLES and kind != "Bitmap Index Scan"):
        return
    passed_over = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    work.rows += (node["Actual Rows"] + passed_over) * node["Actual Loops"]
    if kind == "Seq Scan":
        work.scanned.add(table)


# SQLite


def explain_sqlite(connection: sqlite3.Connection, operation: Operation[Any], now: int) -> list[Work]:
    """The work of each statement; `rows` are the steps of SQLite's virtual machine, counted in tens."""
    works: list[Work] = []
    run = SqliteExecutor(connection, now, None)

    def execute(statement: Instruction) -> Rows:
        if not isinstance(statement, Statement):
            return run(statement)
        work = Work(statement.name, plan=_query_plan(connection, run, statement))
        works.append(work)
        connection.set_progress_handler(lambda: _step(work), 10)
        try:
            return run(statement)
        finally:
            connection.set_progress_handler(None, 0)

    connection.execute("BEGIN IMMEDIATE")
    try:
        drive(operation.begin(), execute)
    finally:
        connection.execute("ROLLBACK")
    return works


def _step(work: Work) -> int:
    work.rows += 10
    return 0


def _query_plan(connection: sqlite3.Connection, run: SqliteExecutor, statement: Statement) -> list[str]:
    if statement.values is not None:
        return []  # rows are put in, and nothing is looked for
    text = SQLITE_SQL.text(statement.name, statement.words)
    params = statement.params if statement.rows is None else {**statement.rows[0], "items": statement.rows}
    plan = connection.execute(f"EXPLAIN QUERY PLAN {text}", run._bind(params))
    return [row[3] for row in plan]
