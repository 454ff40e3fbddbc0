"""API keys: the permissions and the rate limit of a client of the server.

A key is `dibs_<id>_<secret>`. The id identifies the key, the secret of 256 bits authenticates it. Only the SHA-256 of
the secret is stored, so a reader of the database cannot use the keys.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from dibs.errors import InvalidValue
from dibs.json_values import check_name
from dibs.model.checks import check_integer, check_moment, check_names, check_seconds


class Scope(StrEnum):
    """What a key allows."""

    ENQUEUE = "enqueue"  # enqueue, cancel and retry tasks
    WORK = "work"  # claim and finish tasks
    READ = "read"  # read tasks, workflows, queues, statistics
    ADMIN = "admin"  # everything, keys included


SCOPES = frozenset(scope.value for scope in Scope)
UNITS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}
MAX_REQUESTS = 1_000_000_000


class RateLimit(msgspec.Struct, frozen=True):
    """A number of requests in a period of a second, a minute, an hour or a day (in seconds)."""

    requests: int
    period: float = UNITS["minute"]

    def __post_init__(self) -> None:
        check_integer(self.requests, "A rate limit", 1, MAX_REQUESTS)
        if self.period not in UNITS.values():
            periods = ", ".join(f"{seconds:.0f}" for seconds in UNITS.values())
            raise InvalidValue(f"A rate limit holds for {periods} seconds, not for {self.period!r}.")

    def __str__(self) -> str:
        unit = next(unit for unit, seconds in UNITS.items() if seconds == self.period)
        return f"{self.requests}/{unit}"


STANDARD_LIMIT = RateLimit(100)

_LIMIT = re.compile(r"([0-9]{1,10})/([a-z]{1,6})")


def read_limit(text: Any) -> RateLimit | None:
    """Convert a text such as "600/minute" to a rate limit; None for "none"."""
    if text == "none":
        return None
    found = _LIMIT.fullmatch(text) if type(text) is str else None
    if found is None or found[2] not in UNITS:
        hint = 'Write a number for each second, minute, hour or day, such as "600/minute"; for an API key also "none".'
        raise InvalidValue(f"{str(text)[:40]!r} is not a valid rate limit.", hint=hint)
    return RateLimit(int(found[1]), UNITS[found[2]])


def write_limit(limit: RateLimit | None) -> str:
    """Convert a rate limit to the text that `read_limit` reads."""
    return "none" if limit is None else str(limit)


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key to create, checked on construction.

    `queues`: the only queues that it allows, None for all. `rate_limit`: None for no limit. The key expires
    `expires_in` seconds from now by the database's clock, or at `expires_at`, or never.
    """

    name: str
    scopes: Sequence[str]
    queues: Sequence[str] | None = None
    rate_limit: RateLimit | None = STANDARD_LIMIT
    expires_in: float | None = None
    expires_at: datetime | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "The key's name")
        _check_scopes(self.scopes)
        check_names(self.queues, "queues", "The queue")
        if self.rate_limit is not None and type(self.rate_limit) is not RateLimit:
            raise InvalidValue(f"rate_limit must be a RateLimit or None, not {self.rate_limit!r}.")
        if self.expires_in is not None:
            check_seconds(self.expires_in, "expires_in", least=0.001)
        if self.expires_at is not None:
            check_moment(self.expires_at, "expires_at")
            if self.expires_in is not None:
                raise InvalidValue("Give either expires_in or expires_at, not both.")


class ApiKey(msgspec.Struct, frozen=True):
    """A key as read from the store. `seconds_left`: until it expires, by the database's clock at the time of the read.

    `digest` is known only to a store that is a database; it is never shown.
    """

    id: str
    name: str
    scopes: tuple[Scope, ...]
    queues: tuple[str, ...] | None
    rate_limit: RateLimit | None
    created_at: datetime
    created_by: str | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None
    seconds_left: float | None = None
    digest: str = ""

    def allows(self, scope: Scope) -> bool:
        """True if the key has the scope; the scope admin includes all others."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def serves(self, queue: str) -> bool:
        """True if the key allows this queue."""
        return self.queues is None or queue in self.queues

    @property
    def expired(self) -> bool:
        """True if the key had expired when it was read."""
        return self.seconds_left is not None and self.seconds_left <= 0

    @property
    def live(self) -> bool:
        """True if the key was neither expired nor revoked when it was read."""
        return self.revoked_at is None and not self.expired

    def __repr__(self) -> str:
        return f"ApiKey({self.id!r}, {self.name!r})"


class MintedKey(msgspec.Struct, frozen=True):
    """A new key: its text, which cannot be read again later, and the stored record."""

    key: str
    about: ApiKey

    def __repr__(self) -> str:
        return f"MintedKey({self.about!r})"


class RateLimitGrant(msgspec.Struct, frozen=True):
    """The number of requests that a key may send now, and the seconds until its full limit is available again."""

    granted: int
    retry_in: float


_ID_ALPHABET = string.ascii_lowercase + "234567"
_SECRET_ALPHABET = string.ascii_letters + string.digits
_ID_LENGTH = 12
_SECRET_LENGTH = 43  # 62 ** 43 > 2 ** 256
_ID = re.compile(rf"[{_ID_ALPHABET}]{{{_ID_LENGTH}}}")
_KEY = re.compile(rf"dibs_([{_ID_ALPHABET}]{{{_ID_LENGTH}}})_([A-Za-z0-9]{{{_SECRET_LENGTH}}})")

UNKNOWN_KEY_DIGEST = "0" * 64
"""The digest to compare with where no key has the id, so that an unknown id takes as long as a wrong secret."""


def mint() -> tuple[str, str, str]:
    """A new id, its secret, and the secret's digest."""
    key_id = "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH))
    secret = "".join(secrets.choice(_SECRET_ALPHABET) for _ in range(_SECRET_LENGTH))
    return key_id, secret, digest_of(secret)


def join(key_id: str, secret: str) -> str:
    """Combine id and secret to the text of a key."""
    return f"dibs_{key_id}_{secret}"


def split(text: Any) -> tuple[str, str] | None:
    """Split the text of a key into id and secret; None for any other text."""
    found = _KEY.fullmatch(text) if type(text) is str else None
    return (found[1], found[2]) if found else None


def matches(secret: str, digest: str) -> bool:
    """True if the digest is that of the secret; the comparison takes constant time."""
    return hmac.compare_digest(digest_of(secret), digest)


def digest_of(secret: str) -> str:
    """The digest under which a secret is stored. A secret has 256 random bits, so SHA-256 is slow enough to protect
    it."""
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def is_key_id(key_id: Any) -> bool:
    """True if the value has the form of a key's id."""
    return type(key_id) is str and _ID.fullmatch(key_id) is not None


def _check_scopes(scopes: Any) -> None:
    hint = f"Use some of: {', '.join(Scope)}."
    if isinstance(scopes, str) or not isinstance(scopes, Sequence):
        raise InvalidValue(f"scopes must be a list, not {scopes!r}.", hint=hint)
    if not scopes:
        raise InvalidValue("A key needs at least one scope.", hint=hint)
    for scope in scopes:
        if type(scope) not in (str, Scope) or scope not in SCOPES:
            raise InvalidValue(f"There is no scope {scope!r}.", hint=hint)


class BrowserSession(msgspec.Struct, frozen=True):
    """A session of the dashboard: the key that signed in, and the end of the session."""

    key_id: str
    expires_at: datetime
