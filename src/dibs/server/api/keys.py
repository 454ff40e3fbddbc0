"""Keys: made once, shown once, revoked for good."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from dibs import shape
from dibs.body.fields import Body, Limit, Moment, Name, Names, not_both
from dibs.model.checks import MAX_SECONDS
from dibs.model.key import STANDARD_LIMIT, NewKey, Scope, read_limit, write_limit
from dibs.server.endpoint import Answer, Call, endpoint

TAG = "keys"


class NewKeyBody(Body, frozen=True):
    """A key to make."""

    rules = (not_both("expires_at", "expires_in_seconds"),)

    name: Annotated[Name, Meta(description="Whose it is, or what for.", examples=["scraper fleet"])]
    scopes: Annotated[list[Scope], Meta(min_length=1, description="What it may be used for; admin has them all.")]
    queues: Annotated[Names, Meta(description="The only queues it is for; all if left out.")] | None = None
    rate_limit: Limit = write_limit(STANDARD_LIMIT)
    expires_at: Moment | None = None
    expires_in_seconds: (
        Annotated[float, Meta(ge=0.001, le=MAX_SECONDS, description="Instead of expires_at.")] | None
    ) = None

    def key(self) -> NewKey:
        """The key, checked."""
        return NewKey(
            name=self.name,
            scopes=self.scopes,
            queues=self.queues,
            rate_limit=read_limit(self.rate_limit),
            expires_in=self.expires_in_seconds,
            expires_at=self.expires_at,
        )


class Minted(shape.KeyShape, frozen=True):
    """A new key. `key` is its text: nobody can read it again."""

    success: bool
    key: str

    def __repr__(self) -> str:
        return f"Minted({self.id!r}, {self.name!r})"


class Keys(msgspec.Struct, frozen=True):
    """All keys."""

    keys: list[shape.KeyShape]


class Revoked(msgspec.Struct, frozen=True):
    """The key, and since when nobody may use it."""

    success: bool
    id: str
    revoked_at: shape.Moment | None


@endpoint(
    "POST",
    "/api/keys",
    Scope.ADMIN,
    tag=TAG,
    body=NewKeyBody,
    answers={201: (Minted, "Made; only this answer holds its text.")},
    examples={
        "for workers": {"name": "scraper fleet", "scopes": ["work"], "queues": ["scrape"], "rate_limit": "none"},
    },
)
async def create(call: Call) -> Answer:
    """Make a key. Keep its text: it is shown in this answer alone."""
    call.caller.check_whole_store()
    minted = await call.run(call.service.store.mint_key(call.body.key()))
    about = msgspec.structs.asdict(shape.key(minted.about))
    return Answer(Minted(**about, success=True, key=minted.key), 201)


@endpoint("GET", "/api/keys", Scope.ADMIN, tag=TAG, answers={200: (Keys, "Oldest first.")})
async def list_keys(call: Call) -> Answer:
    """All keys, also those that expired or were revoked; never their text."""
    call.caller.check_whole_store()
    return Answer(Keys([shape.key(one) for one in await call.run(call.service.store.list_keys())]))


@endpoint(
    "DELETE",
    "/api/keys/{id:name}",
    Scope.ADMIN,
    tag=TAG,
    answers={200: (Revoked, "Nobody may use it.")},
    refuses={404: "There is no key with this id."},
)
async def revoke(call: Call) -> Answer:
    """Let nobody use a key from now on; the same again keeps the time of the first. A key may revoke itself."""
    call.caller.check_whole_store()
    gone = await call.run(call.service.store.revoke_key(call.path["id"]))
    call.service.key_cache.invalidate()
    return Answer(Revoked(True, gone.id, shape.moment(gone.revoked_at)))


ENDPOINTS = [create, list_keys, revoke]
