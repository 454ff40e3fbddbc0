"""Keys, for admins: who may use this server. A new key is shown once, on the page that answers the form."""

from __future__ import annotations

from typing import Literal

import msgspec

from dibs.errors import DibsError
from dibs.model.key import STANDARD_LIMIT, ApiKey, MintedKey, NewKey, Scope, read_limit, write_limit
from dibs.server.dashboard.page import Content, Visit, page
from dibs.wire.errors import status_of

SHOWN = 500
"""Keys on the page, the newest; `dibs keys list` has them all."""

DAY = 86400.0
Days = Literal["1", "7", "30", "90", "365"]
Tick = Literal["on"]


class Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key to make, as the form says it."""

    name: str = ""
    read: Tick | None = None
    enqueue: Tick | None = None
    work: Tick | None = None
    admin: Tick | None = None
    queues: str = ""
    rate_limit: str = write_limit(STANDARD_LIMIT)
    days: Days | None = None

    def key(self) -> NewKey:
        """The key, checked."""
        queues = [name.strip() for name in self.queues.split(",") if name.strip()]
        return NewKey(
            name=self.name.strip(),
            scopes=[scope for scope in Scope if getattr(self, scope)],
            queues=queues or None,
            rate_limit=read_limit(self.rate_limit.strip()),
            expires_in=None if self.days is None else int(self.days) * DAY,
        )


@page("GET", "/keys", Scope.ADMIN)
async def keys(visit: Visit) -> Content:
    """All keys, newest first; never their text."""
    visit.caller.check_whole_store()
    return await _show(visit)


@page("POST", "/keys", Scope.ADMIN, form=Form)
async def create(visit: Visit) -> Content:
    """Make a key and show it, here and nowhere else: the answer is a page that no browser and no cache keeps."""
    visit.caller.check_whole_store()
    try:
        minted = await visit.run(visit.service.store.keys.mint_key(visit.body.key()))
    except DibsError as error:
        return await _show(visit, given=visit.body, problem=error)
    return await _show(visit, minted=minted)


@page("POST", "/keys/{name:name}/revoke", Scope.ADMIN)
async def revoke(visit: Visit) -> Content:
    """Let nobody use the key from now on, which also signs out whoever signed in with it."""
    visit.caller.check_whole_store()
    gone = await visit.run(visit.service.store.keys.revoke_key(visit.path["name"]))
    visit.service.ring.look_again()
    return visit.back("/keys", f"The key {gone.id} for {gone.name} is revoked.")


async def _show(
    visit: Visit, *, given: Form | None = None, problem: DibsError | None = None, minted: MintedKey | None = None
) -> Content:
    all_keys = await visit.run(visit.service.store.keys.list_keys())
    return visit.render(
        "keys.html",
        200 if problem is None else status_of(problem),
        keys=[(key, _state(key), write_limit(key.rate_limit)) for key in all_keys[::-1][:SHOWN]],
        total=len(all_keys),
        given=given or Form(read="on"),
        problem=problem,
        minted=minted,
        scopes=SCOPES,
        own=None if visit.caller.key is None else visit.caller.key.id,
    )


def _state(key: ApiKey) -> str:
    return "revoked" if key.revoked_at else "expired" if key.expired else "active"


SCOPES = {
    Scope.READ: "look",
    Scope.ENQUEUE: "put tasks in, cancel and retry them",
    Scope.WORK: "claim tasks and finish them",
    Scope.ADMIN: "everything, keys included",
}

PAGES = [keys, create, revoke]
