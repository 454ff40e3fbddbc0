"""The sessions of a database."""

from django.db import connections


def sessions(alias: str) -> set[int]:
    """The process ids of the sessions in PostgreSQL. SQLite has no such list: none."""
    connection = connections[alias]
    if connection.vendor != "postgresql":
        return set()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
        )
        return {pid for (pid,) in cursor.fetchall()}
