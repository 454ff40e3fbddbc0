"""Sessions that bound the time in which PostgreSQL must answer.

A frozen server (SIGSTOP, a paused virtual machine, a disk that hangs) keeps acknowledging packets, so neither
keepalives nor tcp_user_timeout notice it, and a call would wait for ever. If no byte arrives for longer than the
operation allows, the session is closed. The outcome of a write is then unknown, as after any broken connection.
"""

from __future__ import annotations

import logging
import os
import re
import selectors
import threading
import time
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.pq import PollingStatus

from dibs.errors import InvalidValue
from dibs.store.operation import Operation
from dibs.store.postgres.sessions import AsyncPoolSession, PoolSession

T = TypeVar("T")

logger = logging.getLogger("dibs.postgres")

REPLY_TIMEOUT = 30.0
"""Seconds without a byte after which a session is given up, unless the URL or DIBS_REPLY_TIMEOUT says otherwise."""

LONGER = 10.0
"""How many times as long an operation of LONG may take: it may have to read or delete very many rows."""

LONG = frozenset({
    "cancel_many", "cancel_workflow", "changes_since", "count_tasks", "database_health", "discard_many",
    "discard_some", "doctor", "error_groups", "find", "find_workflows", "finished_within", "latencies",
    "number_random_order", "outline", "prune", "prune_history", "queues", "redrive", "retry_many", "retry_workflow",
    "sample_heads", "samples_since", "search", "stats", "step_states", "steps", "workers_and_pauses",
    "workflow_counts",
})  # fmt: skip

SHORTER = 2 / 3
SHORT = frozenset({"claim_status", "heartbeat", "next_due", "progress", "renew", "start"})
"""Operations that keep a lease alive: a worker renews after a third of its lease, and must have time to reach another
server."""

MIGRATING = 3600.0
"""Seconds for each statement of a migration, which may have to wait for a lock and rewrite a large table."""

LOCKS = 0.5
"""The part of the bound after which PostgreSQL itself gives up waiting for a lock. Such a call certainly changed
nothing (StoreBusy), and leaves no process on the server that waits for a client that is gone."""

CANCEL_WITHIN = 5.0
"""Seconds for the request to cancel an abandoned read, in a background thread."""

_PARAMETER = re.compile(r"([?&])reply_timeout=([^&#]*)(&?)")


class Unanswered(psycopg.OperationalError):
    """PostgreSQL did not answer in time, and the session was closed."""


class Session(PoolSession):
    """A connection that is closed when a reply takes too long."""

    reply_timeout = REPLY_TIMEOUT

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.made_at = time.monotonic()
        self.reply_within = self.reply_timeout
        self.waits_for = "the session"
        self.may_cancel = False

    def wait(self, gen: PQGen[T], *arguments: Any, **options: Any) -> T:
        """See psycopg; Unanswered where the reply takes too long."""
        try:
            return super().wait(bounded(gen, self.reply_within), *arguments, **options)
        except _Silence:
            raise give_up(self) from None


class AsyncSession(AsyncPoolSession):
    """`Session`, awaited."""

    reply_timeout = REPLY_TIMEOUT

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.made_at = time.monotonic()
        self.reply_within = self.reply_timeout
        self.waits_for = "the session"
        self.may_cancel = False

    async def wait(self, gen: PQGen[T], *arguments: Any, **options: Any) -> T:
        """See psycopg; Unanswered where the reply takes too long."""
        try:
            return await super().wait(bounded(gen, self.reply_within), *arguments, **options)
        except _Silence:
            raise give_up(self) from None


AnySession = Session | AsyncSession


def sessions_of(url: str) -> type[Session]:
    """The class of the sessions to this URL, with its bound."""
    return type("Session", (Session,), {"reply_timeout": reply_timeout_of(url)})


def async_sessions_of(url: str) -> type[AsyncSession]:
    """`sessions_of`, for an event loop."""
    return type("AsyncSession", (AsyncSession,), {"reply_timeout": reply_timeout_of(url)})


def expect_reply(session: AnySession, operation: Operation[Any]) -> None:
    """Set the bound on replies for this operation."""
    session.waits_for = operation.name
    session.reply_within = session.reply_timeout * _share(operation.name)
    session.may_cancel = not operation.writes


def expect_long_reply(session: Session, what: str, seconds: float | None = None) -> None:
    """Set a longer bound on replies, for work that may take long."""
    session.waits_for = what
    session.reply_within = session.reply_timeout and (seconds or session.reply_timeout * LONGER)


def _share(name: str) -> float:
    return SHORTER if name in SHORT else LONGER if name in LONG else 1.0


def lock_timeout_of(session: AnySession) -> str:
    """The value of `lock_timeout` for a session; 0 for no bound."""
    return f"{session.reply_timeout * LOCKS * 1000:.0f}ms"


def bounded(steps: PQGen[T], seconds: float) -> PQGen[T]:
    """The steps of psycopg, ended when no byte has come for so many seconds; 0 for no bound. psycopg calls this
    whenever the socket is ready, and (since 3.2.13) every tenth of a second while it is not: only then the clock is
    read. So the bound costs a statement less than a microsecond."""
    silent_since: float | None = None
    try:
        wants = next(steps)
        while True:
            ready = yield wants
            if ready:
                silent_since = None
            elif silent_since is None:
                silent_since = time.monotonic()
            elif 0 < seconds <= time.monotonic() - silent_since:
                raise _Silence
            wants = steps.send(ready)
    except StopIteration as end:
        result: T = end.value
        return result


class _Silence(Exception):
    """The bound was reached."""


def give_up(session: AnySession) -> Unanswered:
    """Close the session without waiting for the server, and log it."""
    seconds, server, process = session.reply_within, _server_of(session), session.info.backend_pid
    if session.may_cancel:
        _cancel(session)
    session.pgconn.finish()
    about = {"event": "postgres.unanswered", "operation": session.waits_for, "seconds": seconds}
    logger.warning(
        "PostgreSQL at %s has not answered %s for %.1f s (process %d): the connection is closed",
        server, session.waits_for, seconds, process, extra=about,
    )  # fmt: skip
    return Unanswered(f"PostgreSQL at {server} did not answer {session.waits_for} within {seconds:.1f} s")


def _server_of(session: AnySession) -> str:
    return f"{session.info.host or session.info.hostaddr or 'localhost'}:{session.info.port}"


def _cancel(session: AnySession) -> None:
    """Ask the server to cancel an abandoned read, in the background: a frozen server does not answer that either.

    Never a write: that could end the wait of its COMMIT for a synchronous standby. The row would be visible without
    being replicated, and the repeated call would be acknowledged because of it."""
    if not psycopg.capabilities.has_cancel_safe():
        return
    with suppress(psycopg.Error):
        cancel = session.pgconn.cancel_conn()
        cancel.start()
        threading.Thread(target=_send_cancel, args=(cancel,), name="dibs-cancel", daemon=True).start()


def _send_cancel(cancel: Any) -> None:
    """Send the request, and wait until the server has accepted it."""
    ends = time.monotonic() + CANCEL_WITHIN
    with suppress(psycopg.Error, OSError), selectors.DefaultSelector() as selector:
        while (wants := cancel.poll()) in _EVENTS and time.monotonic() < ends:
            key = selector.register(cancel.socket, _EVENTS[wants])
            selector.select(ends - time.monotonic())
            selector.unregister(key.fileobj)
    cancel.finish()


_EVENTS = {PollingStatus.READING: selectors.EVENT_READ, PollingStatus.WRITING: selectors.EVENT_WRITE}


def reply_timeout_of(url: str) -> float:
    """Seconds for an ordinary reply: from the URL, else from the environment, else the default; 0 for no bound."""
    found = _PARAMETER.search(url)
    given = found[2] if found else os.environ.get("DIBS_REPLY_TIMEOUT")
    if not given:
        return REPLY_TIMEOUT
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        where = "The URL's reply_timeout" if found else "DIBS_REPLY_TIMEOUT"
        raise InvalidValue(f"{where} is {given!r}.", hint="Give a number of seconds, or 0 for no bound.")
    return seconds


def without_reply_timeout(url: str) -> str:
    """The URL as libpq understands it: `reply_timeout` is a parameter of dibs."""
    return _PARAMETER.sub(lambda found: found[1] if found[3] else "", url)
