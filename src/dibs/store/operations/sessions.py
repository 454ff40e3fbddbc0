"""Sessions: who is signed in to the dashboard, by the digest of a secret that only the browser has."""

from __future__ import annotations

from dibs.model.checks import check_integer, from_micros
from dibs.model.key import BrowserSession
from dibs.model.upkeep import BATCH
from dibs.store.operation import Operation, Statement, Steps, limited


class Sessions:
    """Who is signed in."""

    def create_session(self, digest: str, key_id: str, lifetime: int) -> Operation[None]:
        """Sign in for `lifetime` microseconds; the same again changes nothing."""
        check_integer(lifetime, "lifetime", 1, 2**53)
        given = {"digest": digest, "key_id": key_id, "lifetime": lifetime}
        return Operation("create_session", lambda: _create(Statement("create_session", given)))

    def get_session(self, digest: str) -> Operation[BrowserSession | None]:
        """The session, unless it has come to its end by the database's clock."""
        return Operation("get_session", lambda: _get(digest), writes=False, quick=True)

    def end_session(self, digest: str) -> Operation[bool]:
        """Sign out; True if there was such a session."""
        return Operation("end_session", lambda: _end(digest))

    def prune_sessions(self, limit: int = BATCH) -> Operation[int]:
        """Forget sessions past their end."""
        return Operation("prune_sessions", lambda: _prune(limit))


def _create(statement: Statement) -> Steps[None]:
    yield statement


def _get(digest: str) -> Steps[BrowserSession | None]:
    rows = yield Statement("get_session", {"digest": digest})
    return BrowserSession(rows[0][0], from_micros(rows[0][1])) if rows else None


def _end(digest: str) -> Steps[bool]:
    rows = yield Statement("end_session", {"digest": digest})
    return bool(rows)


def _prune(limit: int) -> Steps[int]:
    rows = yield Statement("prune_sessions", words=limited(limit))
    return len(rows)
