"""The first connection: which failures an outage explains, and which will not go away by waiting."""

from __future__ import annotations

import re

import psycopg

from dibs.store.postgres.connection import watchful
from dibs.store.postgres.replies import Session, sessions_of

LASTING = (
    "does not exist",
    "no such database",
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "not permitted to log in",
    "permission denied for database",
    "does not support SSL",
    "certificate verify failed",
    "invalid port number",
)
"""What PostgreSQL, libpq or PgBouncer say of a URL that is wrong. libpq has no codes for these; where a server speaks
another language, the call fails all the same, only later."""

_WRONG_OPTION = re.compile(r"invalid \w+ value")
"""libpq of an option in the URL: `invalid sslmode value: "…"`, `invalid integer value "…" for …`."""


class Away(Exception):
    """PostgreSQL cannot be reached for now."""


def connect(url: str) -> Session:
    """A connection that leaves nothing in the session of a pooler. Raises Away where another attempt may succeed."""
    try:
        return sessions_of(url).connect(watchful(url), autocommit=True, prepare_threshold=None)
    except psycopg.OperationalError as error:
        text = str(error).strip()
        if any(reason in text for reason in LASTING) or _WRONG_OPTION.search(text):
            raise
        raise Away(text.splitlines()[0] if text else type(error).__name__) from error
