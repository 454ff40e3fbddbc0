"""The page `/keys`: create, list and revoke API keys.

Every function must keep three properties. Only a key with the scope `admin` and without a limit to queues is accepted
(`check_whole_store`), because a key created here can allow more than the key of the caller. The text of a new key is
shown once, in the response to the form; it is never stored, and the page never shows it again. A revocation invalidates
the key cache of this process, so that it holds at once.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from dibs.errors import DibsError
from dibs.model.key import STANDARD_LIMIT, ApiKey, MintedKey, NewKey, Scope, read_limit, write_limit
from dibs.server.dashboard.page import PageRequest, PageResult, page
from dibs.wire.errors import status_of

MAX_SHOWN = 500
"""The largest number of keys on the page, newest first. `dibs keys list` lists all keys."""

DAY = 86400.0
"""Seconds."""

Days = Literal["1", "7", "30", "90", "365"]
"""The days until a key expires that the form offers."""

Checkbox = Literal["on"]
"""The value of a checked box; a browser does not send a box that is not checked."""


class KeyForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The form that creates a key. The fields `read` to `admin` are the scopes; `days`: None for a key that does not
    expire."""

    name: str = ""
    read: Checkbox | None = None
    enqueue: Checkbox | None = None
    work: Checkbox | None = None
    admin: Checkbox | None = None
    queues: str = ""
    rate_limit: str = write_limit(STANDARD_LIMIT)
    days: Days | None = None

    def to_model(self) -> NewKey:
        """Return the key to create. Raises InvalidValue."""
        queues = [name.strip() for name in self.queues.split(",") if name.strip()]
        return NewKey(
            name=self.name.strip(),
            scopes=[scope for scope in Scope if getattr(self, scope)],
            queues=queues or None,
            rate_limit=read_limit(self.rate_limit.strip()),
            expires_in=None if self.days is None else int(self.days) * DAY,
        )


@page("GET", "/keys", Scope.ADMIN)
async def keys(request: PageRequest) -> PageResult:
    """Show the newest keys, without their secrets."""
    request.caller.check_whole_store()
    return await _render_keys(request)


@page("POST", "/keys", Scope.ADMIN, form=KeyForm)
async def create(request: PageRequest) -> PageResult:
    """Create a key and show its text. Neither browsers nor caches store the response: every answer has `no-store`."""
    request.caller.check_whole_store()
    try:
        minted = await request.run(request.service.store.keys.mint_key(request.body.to_model()))
    except DibsError as error:
        return await _render_keys(request, given=request.body, problem=error)
    return await _render_keys(request, minted=minted)


@page("POST", "/keys/{name:name}/revoke", Scope.ADMIN)
async def revoke(request: PageRequest) -> PageResult:
    """Revoke a key. This also ends the sessions of the browsers that signed in with the key."""
    request.caller.check_whole_store()
    revoked = await request.run(request.service.store.keys.revoke_key(request.path["name"]))
    request.service.key_cache.invalidate()
    return request.redirect_with_notice("/keys", f"Key {revoked.id} for {revoked.name} is revoked.")


async def _render_keys(
    request: PageRequest,
    *,
    given: KeyForm | None = None,
    problem: DibsError | None = None,
    minted: MintedKey | None = None,
) -> PageResult:
    """Render the page. `given`: the form to fill in again, after `problem`. `minted`: the new key to show."""
    all_keys = await request.run(request.service.store.keys.list_keys())
    return request.render(
        "keys.html",
        200 if problem is None else status_of(problem),
        keys=[(key, _state(key), write_limit(key.rate_limit)) for key in all_keys[::-1][:MAX_SHOWN]],
        total=len(all_keys),
        given=given or KeyForm(read="on"),
        problem=problem,
        minted=minted,
        scopes=SCOPE_DESCRIPTIONS,
        own=None if request.caller.key is None else request.caller.key.id,
    )


def _state(key: ApiKey) -> str:
    return "revoked" if key.revoked_at else "expired" if key.expired else "active"


SCOPE_DESCRIPTIONS = {
    Scope.READ: "view tasks, queues and workers",
    Scope.ENQUEUE: "enqueue, cancel and retry tasks",
    Scope.WORK: "claim and finish tasks",
    Scope.ADMIN: "everything, including keys",
}

PAGES = [keys, create, revoke]
