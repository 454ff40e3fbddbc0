"""The JSON of API keys: the bodies and answers of the endpoints that create, list and revoke keys.

The fields are the public HTTP API, and the OpenAPI document is derived from them: add fields, do not rename or remove
any. Only `Minted`, the answer to a creation, contains the text of a key; no struct contains the digest, and the repr of
`Minted` leaves the text out, because a repr may be logged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta, field

from dibs.model.checks import MAX_SECONDS
from dibs.model.key import STANDARD_LIMIT, ApiKey, MintedKey, NewKey, Scope, read_limit, write_limit
from dibs.wire.fields import (
    KeyRateLimit,
    Moment,
    Name,
    Names,
    RequestBody,
    Timestamp,
    not_both,
    to_datetime,
    to_datetime_or_none,
    to_text,
    to_text_or_none,
    utc_or_none,
)


class NewKeyBody(RequestBody, frozen=True):
    """A key to create."""

    rules = (not_both("expires_at", "expires_in_seconds"),)

    name: Annotated[Name, Meta(description="The owner or the purpose of the key.", examples=["scraper fleet"])]
    scopes: Annotated[list[Scope], Meta(min_length=1, description="What the key allows; admin allows everything.")]
    queues: Annotated[Names, Meta(description="The queues that the key is limited to; by default all.")] | None = None
    rate_limit: KeyRateLimit = write_limit(STANDARD_LIMIT)
    expires_at: Moment | None = None
    expires_in: Annotated[float, Meta(ge=0.001, le=MAX_SECONDS, description="Instead of expires_at.")] | None = field(
        name="expires_in_seconds", default=None
    )

    @classmethod
    def from_model(cls, new: NewKey) -> Self:
        """The body that creates this key."""
        return cls(
            name=new.name,
            scopes=[Scope(scope) for scope in new.scopes],
            queues=None if new.queues is None else list(new.queues),
            rate_limit=write_limit(new.rate_limit),
            expires_at=utc_or_none(new.expires_at),
            expires_in=new.expires_in,
        )

    def to_model(self) -> NewKey:
        """The key to create, checked."""
        return NewKey(
            name=self.name,
            scopes=self.scopes,
            queues=self.queues,
            rate_limit=read_limit(self.rate_limit),
            expires_in=self.expires_in,
            expires_at=self.expires_at,
        )


class KeyFields(msgspec.Struct, frozen=True):
    """The fields of a key that may be shown: neither its secret nor its digest."""

    id: str
    name: str
    scopes: list[Scope]
    queues: list[str] | None
    rate_limit: str
    created_at: Timestamp
    created_by: str | None
    expires_at: Timestamp | None
    revoked_at: Timestamp | None
    last_used_at: Timestamp | None

    def to_api_key(self) -> ApiKey:
        """The key. `seconds_left` is not known: only the database can compute it, by its clock."""
        return ApiKey(
            id=self.id,
            name=self.name,
            scopes=tuple(self.scopes),
            queues=None if self.queues is None else tuple(self.queues),
            rate_limit=read_limit(self.rate_limit),
            created_at=to_datetime(self.created_at),
            created_by=self.created_by,
            expires_at=to_datetime_or_none(self.expires_at),
            revoked_at=to_datetime_or_none(self.revoked_at),
            last_used_at=to_datetime_or_none(self.last_used_at),
        )


def _fields(key: ApiKey) -> dict[str, Any]:
    """The fields of KeyFields for this key."""
    return {
        "id": key.id,
        "name": key.name,
        "scopes": list(key.scopes),
        "queues": None if key.queues is None else list(key.queues),
        "rate_limit": write_limit(key.rate_limit),
        "created_at": to_text(key.created_at),
        "created_by": key.created_by,
        "expires_at": to_text_or_none(key.expires_at),
        "revoked_at": to_text_or_none(key.revoked_at),
        "last_used_at": to_text_or_none(key.last_used_at),
    }


class Key(KeyFields, frozen=True):
    """An API key, without its secret or digest. `queues`: null for all. `rate_limit`: "none" without a limit."""

    @classmethod
    def from_model(cls, key: ApiKey) -> Self:
        """The key as JSON."""
        return cls(**_fields(key))

    def to_model(self) -> ApiKey:
        """The key."""
        return self.to_api_key()


class Minted(KeyFields, frozen=True):
    """A new key. `key`: its text, which cannot be read again."""

    success: bool
    key: str

    @classmethod
    def from_model(cls, minted: MintedKey) -> Self:
        """The key as an answer."""
        return cls(**_fields(minted.about), success=True, key=minted.key)

    def to_model(self) -> MintedKey:
        """The key."""
        return MintedKey(key=self.key, about=self.to_api_key())

    def __repr__(self) -> str:
        return f"Minted({self.id!r}, {self.name!r})"


class Keys(msgspec.Struct, frozen=True):
    """All keys."""

    keys: list[Key]

    @classmethod
    def from_model(cls, keys: Sequence[ApiKey]) -> Self:
        """The keys as an answer."""
        return cls(keys=[Key.from_model(key) for key in keys])

    def to_model(self) -> list[ApiKey]:
        """The keys."""
        return [key.to_model() for key in self.keys]


class Revoked(msgspec.Struct, frozen=True):
    """The revoked key, and the time of its revocation."""

    success: bool
    id: str
    revoked_at: Timestamp | None

    @classmethod
    def from_model(cls, key: ApiKey) -> Self:
        """The revoked key as an answer."""
        return cls(success=True, id=key.id, revoked_at=to_text_or_none(key.revoked_at))
