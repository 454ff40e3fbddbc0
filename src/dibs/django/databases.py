"""The databases of a project as stores: which engines dibs knows, and the URL for connections of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode

from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction
from django.utils.connection import ConnectionDoesNotExist

from dibs.errors import InvalidValue

ENGINES = ("sqlite", "postgresql")
"""The vendors of Django's backends that dibs can keep tasks in."""

ADVICE = (
    'Name another database of the project (OPTIONS: {"database": alias}), or the URL of a store'
    ' (OPTIONS: {"url": "postgresql://…"}, a SQLite file or a dibs server).'
)
IN_MEMORY = "sqlite:///:memory:"
"""The URL that is shown for a SQLite database in memory. No other connection can be opened to it."""


def connection_to(alias: str) -> Any:
    """Django's connection of this thread to the database. ImproperlyConfigured if dibs cannot use it."""
    connection = wrapper_of(alias)
    if connection.vendor not in ENGINES:
        raise ImproperlyConfigured(
            f"dibs cannot keep tasks in the database {alias!r}, which is {connection.display_name}. {ADVICE}"
        )
    return connection


def wrapper_of(alias: str) -> Any:
    """Django's connection object of this thread, of any engine."""
    try:
        return connections[alias]
    except ConnectionDoesNotExist:
        raise ImproperlyConfigured(f"DATABASES has no alias {alias!r}, which dibs is to keep tasks in.") from None


def without_transaction(view: Callable[..., Any]) -> Callable[..., Any]:
    """The view, for which ATOMIC_REQUESTS begins no transaction in any database."""
    for alias in connections:
        view = transaction.non_atomic_requests(using=alias)(view)
    return view


def is_in_memory(connection: Any) -> bool:
    """True for a SQLite database in memory, as tests have it."""
    return bool(connection.vendor == "sqlite" and connection.is_in_memory_db())


def url_of(alias: str) -> str:
    """The URL by which workers open the database, on connections of their own. InvalidValue if it is in memory."""
    connection = connection_to(alias)
    if is_in_memory(connection):
        raise InvalidValue(
            f"The database {alias!r} is a SQLite database in memory, which only the connection of Django can use.",
            hint="A worker needs a database that it can open: name a file in DATABASES, in tests by"
            ' "TEST": {"NAME": "test.sqlite3"}. In a test, run tasks with dibs.testing.isolated(app).',
        )
    return shown_url(connection)


def shown_url(connection: Any) -> str:
    """The URL of the database of a connection, also of one in memory."""
    if connection.vendor == "sqlite":
        return IN_MEMORY if is_in_memory(connection) else _sqlite_url(str(connection.settings_dict["NAME"]))
    return _postgres_url(connection)


def _sqlite_url(name: str) -> str:
    path = name.removeprefix("file:").partition("?")[0] if name.startswith("file:") else name
    return f"sqlite:///{quote(path)}"


def _postgres_url(connection: Any) -> str:
    """A URL from the parameters with which Django connects. Only the parameters of libpq are kept: the others configure
    Django or psycopg."""
    given = {name: str(value) for name, value in _libpq_parameters(connection).items() if value not in (None, "")}
    if role := connection.settings_dict["OPTIONS"].get("assume_role"):
        given["options"] = f"{given.get('options', '')} -c role={_escaped(role)}".strip()
    user, password, database = (given.pop(name, "") for name in ("user", "password", "dbname"))
    password_part = f":{quote(password, safe='')}" if password else ""
    user_part = f"{quote(user, safe='')}{password_part}@" if user else ""
    rest = f"?{urlencode(given, quote_via=quote)}" if given else ""
    return f"postgresql://{user_part}/{quote(database, safe='')}{rest}"


def _libpq_parameters(connection: Any) -> dict[str, Any]:
    known = {each.keyword.decode() for each in connection.Database.pq.Conninfo.get_defaults()}
    parameters = connection.get_connection_params()
    return {name: value for name, value in parameters.items() if name in known and name != "client_encoding"}


def _escaped(value: str) -> str:
    """A value inside the parameter `options` of libpq, where spaces separate settings."""
    return value.replace("\\", "\\\\").replace(" ", "\\ ")
