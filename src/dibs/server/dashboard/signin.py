"""The sign-in page: sign in with an API key, sign out."""

from __future__ import annotations

import msgspec

from dibs.errors import DibsError
from dibs.model.key import Scope
from dibs.server.dashboard import session
from dibs.server.dashboard.page import PageRequest, PageResult, leave_to_sign_in, page, redirect
from dibs.wire.errors import RequestRefused, status_of


class SignInQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The page to open after the sign-in."""

    next: str = "/"


class SignInForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The key, and the page to open after the sign-in."""

    key: str = ""
    next: str = "/"

    def __repr__(self) -> str:
        return f"SignInForm(next={self.next!r})"


@page("GET", "/signin", query=SignInQuery)
async def signin_page(request: PageRequest) -> PageResult:
    """Render the form for the key."""
    if request.visitor.caller is not None:
        return redirect(_local_path(request.query.next))
    if request.service.sign_in is not None:
        return leave_to_sign_in(request, _local_path(request.query.next))
    return request.render("signin.html", next=_local_path(request.query.next), problem=None)


@page("POST", "/signin", form=SignInForm)
async def sign_in(request: PageRequest) -> PageResult:
    """Sign in with a new cookie. A cookie that was set before the sign-in is not reused."""
    _check_own_sign_in(request)
    scope = request.http[0]
    try:
        key, token = await session.sign_in(request.service, scope, request.body.key.strip())
    except DibsError as error:
        return request.render("signin.html", status_of(error), next=_local_path(request.body.next), problem=error)
    if not key.allows(Scope.READ):
        await session.sign_out(request.service, session.Visitor(token, None))
        had = ", ".join(sorted(key.scopes))
        problem = DibsError(
            f"The dashboard needs a key with the scope read; this key has {had}.", hint="Use another key."
        )
        return request.render("signin.html", 403, next=_local_path(request.body.next), problem=problem)
    return redirect(_local_path(request.body.next), (session.session_cookie(scope, token),))


@page("POST", "/signout")
async def sign_out(request: PageRequest) -> PageResult:
    """Sign out and return to the sign-in page."""
    _check_own_sign_in(request)
    await session.sign_out(request.service, request.visitor)
    return redirect("/signin", (session.session_cookie(request.http[0], None),))


def _check_own_sign_in(request: PageRequest) -> None:
    """Refuse keys and sign-outs if users sign in to the application around the server."""
    if request.service.sign_in is not None:
        raise RequestRefused("not_found", "This dashboard uses the sign-in of the application around it.")


def _local_path(path: str) -> str:
    """Return the path if it is a page of this server, otherwise `/`: never redirect to another site."""
    plain = path.startswith("/") and not path.startswith("//") and "\\" not in path
    return path if plain and path.isascii() and path.isprintable() and not path.startswith("/signin") else "/"


PAGES = [signin_page, sign_in, sign_out]
