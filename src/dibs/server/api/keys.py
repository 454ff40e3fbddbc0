"""Keys: made once, shown once, revoked for good."""

from __future__ import annotations

from dibs.model.key import Scope
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.wire.keys import Keys, Minted, NewKeyBody, Revoked

TAG = "keys"


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
    minted = await call.run(call.service.store.keys.mint_key(call.body.to_model()))
    return Answer(Minted.from_model(minted), 201)


@endpoint("GET", "/api/keys", Scope.ADMIN, tag=TAG, answers={200: (Keys, "Oldest first.")})
async def list_keys(call: Call) -> Answer:
    """All keys, also those that expired or were revoked; never their text."""
    call.caller.check_whole_store()
    keys = await call.run(call.service.store.keys.list_keys())
    return Answer(Keys.from_model(keys))


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
    gone = await call.run(call.service.store.keys.revoke_key(call.path["id"]))
    call.service.key_cache.invalidate()
    return Answer(Revoked.from_model(gone))


ENDPOINTS = [create, list_keys, revoke]
