"""The door: sign in with an API key, sign out."""

from __future__ import annotations

import msgspec

from dibs.errors import DibsError
from dibs.model.key import Scope
from dibs.server.dashboard import session
from dibs.server.dashboard.page import Content, Visit, page, redirect
from dibs.wire.errors import status_of


class Next(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to go afterwards."""

    next: str = "/"


class Given(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The key, and where to go afterwards."""

    key: str = ""
    next: str = "/"

    def __repr__(self) -> str:
        return f"Given(next={self.next!r})"


@page("GET", "/signin", query=Next)
async def door(visit: Visit) -> Content:
    """A form for the key."""
    if visit.visitor.caller is not None:
        return redirect(_inside(visit.query.next))
    return visit.render("signin.html", next=_inside(visit.query.next), problem=None)


@page("POST", "/signin", form=Given)
async def enter(visit: Visit) -> Content:
    """Come in, with a new cookie: one that somebody put there before stands for nobody."""
    scope = visit.http[0]
    try:
        key, token = await session.sign_in(visit.service, scope, visit.body.key.strip())
    except DibsError as error:
        return visit.render("signin.html", status_of(error), next=_inside(visit.body.next), problem=error)
    if not key.allows(Scope.READ):
        await session.sign_out(visit.service, session.Visitor(token, None))
        had = ", ".join(sorted(key.scopes))
        problem = DibsError(f"This key may not look at anything: it has {had}.", hint="Use one with the scope read.")
        return visit.render("signin.html", 403, next=_inside(visit.body.next), problem=problem)
    return redirect(_inside(visit.body.next), (session.session_cookie(scope, token),))


@page("POST", "/signout")
async def leave(visit: Visit) -> Content:
    """Good bye."""
    await session.sign_out(visit.service, visit.visitor)
    return redirect("/signin", (session.session_cookie(visit.http[0], None),))


def _inside(path: str) -> str:
    """A path of ours, whatever somebody wrote into a link: never another site."""
    plain = path.startswith("/") and not path.startswith("//") and "\\" not in path
    return path if plain and path.isascii() and path.isprintable() and not path.startswith("/signin") else "/"


PAGES = [door, enter, leave]
