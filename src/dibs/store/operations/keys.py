"""API keys, their rate limits, and browser sessions.

The database counts the requests of a key, so that a limit holds for all servers together. A session is stored by the
digest of a secret that only the browser has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dibs.errors import KeyNotFound
from dibs.json_values import decode, encode
from dibs.model.checks import check_integer, from_micros, to_micros
from dibs.model.key import (
    ApiKey,
    BrowserSession,
    MintedKey,
    NewKey,
    RateLimit,
    RateLimitGrant,
    Scope,
    is_key_id,
    join,
    mint,
)
from dibs.model.upkeep import BATCH
from dibs.store.operation import Mode, Operation, Row, Statement, Statements, limited
from dibs.store.operations.rows import moment, seconds


class Keys:
    """API keys, their rate limits, and browser sessions."""

    def mint_key(self, new: NewKey) -> Operation[MintedKey]:
        """Create a key. Only this result contains its secret."""
        values = _values(new)
        return Operation("mint_key", lambda: _mint(values), wakes=True)

    def get_key(self, key_id: str) -> Operation[ApiKey | None]:
        """The key with this id, or None."""
        return Operation("get_key", lambda: _get(key_id), mode=Mode.POINT_READ)

    def list_keys(self) -> Operation[list[ApiKey]]:
        """All keys, oldest first, including expired and revoked keys."""
        return Operation("list_keys", _list, mode=Mode.READ)

    def revoke_key(self, key_id: str) -> Operation[ApiKey]:
        """Revoke the key: from now on it is refused. A second call changes nothing."""
        if not is_key_id(key_id):  # not shown: it may be a whole key, pasted by mistake
            raise KeyNotFound("There is no such key: a key id has 12 lower-case letters and digits.")
        return Operation("revoke_key", lambda: _revoke(key_id), wakes=True)

    def note_keys_used(self, key_ids: Sequence[str]) -> Operation[None]:
        """Set the time of the last use of these keys to now."""
        return Operation("note_keys_used", lambda: _note_used(list(key_ids)))

    def take_permits(self, key_id: str, limit: RateLimit, wanted: int) -> Operation[RateLimitGrant]:
        """Take up to `wanted` requests out of the key's rate limit, as many as its window has left."""
        check_integer(wanted, "wanted", 1, 2**31 - 1)
        params = {
            "key_id": key_id,
            "requests": limit.requests,
            "period": round(limit.period * 1e6),
            "wanted": wanted,
        }
        return Operation("take_permits", lambda: _take(params))

    # Browser sessions

    def create_session(self, digest: str, key_id: str, lifetime: int) -> Operation[None]:
        """Store a session of `lifetime` microseconds. A second call with the same digest changes nothing."""
        check_integer(lifetime, "lifetime", 1, 2**53)
        given = {"digest": digest, "key_id": key_id, "lifetime": lifetime}
        return Operation("create_session", lambda: _create_session(Statement("create_session", given)))

    def get_session(self, digest: str) -> Operation[BrowserSession | None]:
        """The session, or None if it has expired by the database's clock."""
        return Operation("get_session", lambda: _get_session(digest), mode=Mode.POINT_READ)

    def end_session(self, digest: str) -> Operation[bool]:
        """Delete the session. True if it existed."""
        return Operation("end_session", lambda: _end_session(digest))

    def prune_sessions(self, limit: int = BATCH) -> Operation[int]:
        """Delete expired sessions. Returns their number."""
        return Operation("prune_sessions", lambda: _prune_sessions(limit))


def _values(new: NewKey) -> dict[str, Any]:
    limit = new.rate_limit
    return {
        "name": new.name,
        "scopes": encode([scope.value for scope in Scope if scope in new.scopes], "scopes"),
        "queues": None if new.queues is None else encode(list(dict.fromkeys(new.queues)), "queues"),
        "rate_requests": None if limit is None else limit.requests,
        "rate_period": None if limit is None else round(limit.period * 1e6),
        "expires_in": None if new.expires_in is None else round(new.expires_in * 1e6),
        "expires_at": None if new.expires_at is None else to_micros(new.expires_at),
    }


def _mint(values: dict[str, Any]) -> Statements[MintedKey]:
    while True:
        key_id, secret, digest = mint()
        rows = yield Statement("create_key", {**values, "id": key_id, "digest": digest})
        if rows:  # otherwise the id is taken, once in some 10 ** 18 times
            return MintedKey(join(key_id, secret), _read_key(rows[0]))


def _get(key_id: str) -> Statements[ApiKey | None]:
    rows = (yield Statement("get_key", {"id": key_id})) if is_key_id(key_id) else []
    return _read_key(rows[0]) if rows else None


def _list() -> Statements[list[ApiKey]]:
    rows = yield Statement("list_keys")
    return [_read_key(row) for row in rows]


def _revoke(key_id: str) -> Statements[ApiKey]:
    rows = yield Statement("revoke_key", {"id": key_id})
    if not rows:
        raise KeyNotFound(f"There is no key {key_id!r}.", key_id=key_id)
    return _read_key(rows[0])


def _note_used(key_ids: list[str]) -> Statements[None]:
    if key_ids:
        yield Statement("note_keys_used", {"ids": key_ids})


def _take(params: dict[str, Any]) -> Statements[RateLimitGrant]:
    [(granted, left)] = yield Statement("take_permits", params)
    return RateLimitGrant(granted, left / 1e6)


def _read_key(row: Row) -> ApiKey:
    (key_id, name, scopes, queues, requests, period, digest, created_at, created_by, expires_at, revoked_at,
     last_used_at, left) = row  # fmt: skip
    return ApiKey(
        id=key_id,
        name=name,
        scopes=tuple(Scope(scope) for scope in decode(scopes)),
        queues=None if queues is None else tuple(decode(queues)),
        rate_limit=None if requests is None else RateLimit(requests, period / 1e6),
        created_at=from_micros(created_at),
        created_by=created_by,
        expires_at=moment(expires_at),
        revoked_at=moment(revoked_at),
        last_used_at=moment(last_used_at),
        seconds_left=seconds(left),
        digest=digest,
    )


def _create_session(statement: Statement) -> Statements[None]:
    yield statement


def _get_session(digest: str) -> Statements[BrowserSession | None]:
    rows = yield Statement("get_session", {"digest": digest})
    return BrowserSession(rows[0][0], from_micros(rows[0][1])) if rows else None


def _end_session(digest: str) -> Statements[bool]:
    rows = yield Statement("end_session", {"digest": digest})
    return bool(rows)


def _prune_sessions(limit: int) -> Statements[int]:
    rows = yield Statement("prune_sessions", words=limited(limit))
    return len(rows)
