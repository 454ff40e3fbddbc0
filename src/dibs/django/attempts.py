"""What a worker does around each attempt in a Django project: database connections and the log of queries.

A child process of a worker imports this module before the module of a handler, so it sets up Django.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import django
from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.apps import apps
from django.conf import settings
from django.db import connections

from dibs.django.client import app


def set_up() -> None:
    """Set up Django, unless it is set up or is being set up."""
    if not apps.ready and not apps.loading:
        django.setup()


def around(context: Any, call_next: Callable[[], Any]) -> Any:
    """Middleware of plain handlers: close connections that are too old or broken, as Django does around a request."""
    close_old_connections()
    if settings.DEBUG:
        empty_query_logs()
    try:
        return call_next()
    finally:
        close_old_connections()


async def around_async(context: Any, call_next: Callable[[], Any]) -> Any:
    """Middleware of async handlers: each attempt has a thread of its own for its synchronous code, with connections of
    its own, as a request has under ASGI."""
    async with ThreadSensitiveContext():
        try:
            return await call_next()
        finally:
            await sync_to_async(connections.close_all)()


def close_old_connections() -> None:
    """What Django does around a request, but not with a connection in a transaction, nor with the one of
    `isolated(app, on=connection)`: a test that runs tasks itself uses them."""
    of_test = getattr(app._store, "isolated_on", None)
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block and (of_test is None or connection.connection is not of_test):
            connection.close_if_unusable_or_obsolete()


def empty_query_logs() -> None:
    """Forget the queries that `connection.queries` has, which it collects with DEBUG."""
    for connection in connections.all(initialized_only=True):
        if not connection.force_debug_cursor:  # set by assertNumQueries
            connection.queries_log.clear()


set_up()
