"""A database that refuses some rows: a trigger of the test, so that a real engine raises a real error."""

from __future__ import annotations

from tests.helpers.databases import run_sql

TRIGGERS = {
    "sqlite": ("CREATE TRIGGER refuse BEFORE {verb} ON {table} WHEN {when} BEGIN SELECT RAISE(ABORT, 'refused'); END",),
    "postgres": (
        "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'refused'; END$$",
        "CREATE TRIGGER refuse BEFORE {verb} ON {table} FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION refuse()",
    ),
}


def refuse(url: str, table: str, when: str, verb: str = "INSERT") -> None:
    """Let the database refuse such rows."""
    statements = TRIGGERS["sqlite" if url.startswith("sqlite") else "postgres"]
    run_sql(url, *(statement.format(table=table, when=when, verb=verb) for statement in statements))


def refuse_results(url: str, text: str = "poison") -> None:
    """Let the database refuse results that contain the text."""
    refuse(url, "dibs_tasks", f"NEW.result LIKE '%{text}%'", "UPDATE")
