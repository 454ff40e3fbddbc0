"""The sign-in of the application in which the server is mounted: a function from a request to the user's rights.

The function is called for every request, and nothing that it returns is kept: a user who signs out, or loses a right,
is refused with the next request. For a stream it is called again every two seconds.

An attacker may have a page of another site, which the browser of a signed-in user opens: its requests carry the user's
cookies. The middleware refuses every write whose `Origin` or `Sec-Fetch-Site` names another site, forms of the
dashboard need a token that only its pages contain, and the HTTP API refuses a write with cookies and neither of the two
headers, which no current browser sends.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request

from dibs.errors import DibsError, InvalidValue
from dibs.json_values import check_name
from dibs.model.checks import check_names
from dibs.model.key import SCOPES, Scope
from dibs.server.http import SAFE_METHODS, AsgiScope
from dibs.server.prefix import request_scope
from dibs.wire.errors import RequestRefused

REFUSED = (401, 403)
"""The statuses of an HTTPException by which the function refuses a request, as a FastAPI dependency does."""


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A signed-in user of your application, and what the user may do in dibs.

    `scopes`: some of read, enqueue, work and admin; none for a user who may do nothing. `queues`: the only queues that
    the user may see, None for all. `name`: the author of the user's actions in the history, such as a login.
    """

    scopes: Collection[str]
    queues: Collection[str] | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "scopes", _scopes(self.scopes))
        if self.queues is not None:
            if not self.queues:
                raise InvalidValue("The user may see no queue.", hint="Refuse such a user: return None.")
            check_names(self.queues if isinstance(self.queues, str) else list(self.queues), "queues", "The queue")
            object.__setattr__(self, "queues", tuple(sorted(set(self.queues))))
        if self.name is not None:
            check_name(self.name, "The user's name")

    def allows(self, scope: Scope) -> bool:
        """True if the user has the scope; the scope admin includes all others."""
        return scope in self.scopes or Scope.ADMIN in self.scopes


class SignInFailed(Exception):
    """The sign-in function raised an error of dibs, which is not an error of the request: the answer is a 500."""


SignInResult = SignedIn | Collection[str] | None
SignInFunction = Callable[[Request], SignInResult | Awaitable[SignInResult]]
"""Returns the user's rights, or only the scopes; None for a request that is refused."""


class SignIn:
    """Calls the function of the application, and checks what it returns. `url`: the application's sign-in page."""

    def __init__(self, function: SignInFunction, url: str | None) -> None:
        self._function = function
        self._awaited = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object whose method __call__ is a coroutine function
        )
        self._url = url

    async def user(self, scope: AsgiScope) -> SignedIn | None:
        """Return the user of a request, None if the application refuses it. A plain function is called in a thread."""
        request = Request(request_scope(scope))  # without the body, which the server reads itself
        try:
            found: Any = await self._call(request)
            return found if found is None or isinstance(found, SignedIn) else SignedIn(found)
        except HTTPException as error:
            if error.status_code not in REFUSED:
                raise
            return None
        except DibsError as error:
            raise SignInFailed(f"The sign-in function failed: {error}") from error

    async def _call(self, request: Request) -> Any:
        found = self._function(request) if self._awaited else await asyncio.to_thread(self._function, request)
        return await found if inspect.isawaitable(found) else found

    async def check(self, scope: AsgiScope) -> SignedIn:
        """Return the user of a request to the HTTP API. Raises RequestRefused without one."""
        if scope["method"] not in SAFE_METHODS and _sent_by_unknown_page(scope):
            raise RequestRefused(
                "wrong_origin",
                "The request has cookies, but does not name the site from which it comes.",
                hint="Send the header Origin with this server's address, or an API key instead of cookies.",
            )
        user = await self.user(scope)
        if user is None:
            raise unauthorized()
        return user

    async def check_unchanged(self, scope: AsgiScope, before: SignedIn) -> None:
        """Raise RequestRefused if the user of a waiting request is signed out, or has other rights than before."""
        if await self.user(scope) != before:
            raise unauthorized()

    def address(self, scope: AsgiScope, path: str) -> str | None:
        """Return the URL of the application's sign-in page, which returns to `path`; None without such a page."""
        if self._url is None:
            return None
        root = "" if "://" in self._url else quote(scope.get("app_root_path", ""))
        return f"{root}{self._url}{'&' if '?' in self._url else '?'}next={quote(path, safe='')}"


def unauthorized() -> RequestRefused:
    """Return the refusal of a request without a user."""
    return RequestRefused(
        "unauthorized",
        "You are not signed in to the application, or may not use this part of it.",
        hint="Sign in to the application; a program sends an API key in the header X-API-Key.",
    )


def _sent_by_unknown_page(scope: AsgiScope) -> bool:
    given = {name for name, _ in scope["headers"]}
    return b"cookie" in given and not given & {b"origin", b"sec-fetch-site"}


def _scopes(scopes: Any) -> tuple[Scope, ...]:
    hint = f"Return a list with some of {', '.join(Scope)}; None refuses the request."
    if isinstance(scopes, str) or not isinstance(scopes, Collection):
        raise InvalidValue(f"The sign-in must return scopes, not {scopes!r}.", hint=hint)
    if unknown := [scope for scope in scopes if scope not in SCOPES]:
        raise InvalidValue(f"The sign-in returned an unknown scope: {unknown[0]!r}.", hint=hint)
    return tuple(sorted(Scope(scope) for scope in set(scopes)))
