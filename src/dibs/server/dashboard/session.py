"""Browser sessions: a user signs in with an API key once and gets a session cookie.

The cookie is a random text of 256 bits. The database stores only its SHA-256, together with the id of the key. The
scopes of the key are read with every request, so that revoking a key ends its sessions. The CSRF token is derived from
the cookie: a site that can read neither the cookie nor the dashboard's pages cannot know the token.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

from dibs.model.key import ApiKey, split
from dibs.server.auth import Caller
from dibs.server.http import AsgiScope, header
from dibs.server.prefix import prefix
from dibs.server.service import Service
from dibs.wire.errors import RequestRefused

LIFETIME = 12 * 3600
"""Seconds after which a session expires."""

NAME = "dibs_session"


@dataclass(frozen=True, slots=True)
class Visitor:
    """The user of a browser. `token`: the value of the cookie. `caller`: None if the user is not signed in."""

    token: str = field(repr=False)
    caller: Caller | None
    is_new: bool = False

    @property
    def csrf(self) -> str:
        """The CSRF token that every form of this visitor must contain. A form that was rendered for another user of the
        application around the server is not valid any more."""
        user = self.caller.user if self.caller is not None else None
        name = "" if user is None or user.name is None else user.name
        return hmac.new(self.token.encode(), b"dibs csrf" + name.encode(), hashlib.sha256).hexdigest()

    def proves(self, given: str | None) -> bool:
        """Return True if the CSRF token of a form is valid."""
        return given is not None and hmac.compare_digest(given.encode(), self.csrf.encode())


def anonymous() -> Visitor:
    """Return a visitor without a session, for errors while the store is unavailable."""
    return Visitor(secrets.token_urlsafe(32), None)


async def identify(service: Service, scope: AsgiScope) -> Visitor:
    """Return the visitor of a request. On a server without keys, all visitors are signed in. If the application around
    the server has its own sign-in, the cookie is only the source of the CSRF token."""
    token, is_new = cookies(scope).get(_name(scope)), False
    if token is None or not 32 <= len(token) <= 64 or not token.isascii():
        token, is_new = secrets.token_urlsafe(32), True
    if service.sign_in is not None:
        user = await service.sign_in.user(scope)
        return Visitor(token, None if user is None else Caller(None, "dashboard", user), is_new)
    if not service.config.keys:
        return Visitor(token, Caller(signature="dashboard"), is_new)
    if is_new:
        return Visitor(token, None, is_new)
    session = await service.store.run_async(service.store.keys.get_session(_digest(token)))
    key = None if session is None else await service.key_cache.of_id(session.key_id)
    if key is None:
        return Visitor(token, None)
    scope["dibs.key"] = key.id  # for the access log
    return Visitor(token, Caller(key, "dashboard"))


async def sign_in(service: Service, scope: AsgiScope, text: str) -> tuple[ApiKey, str]:
    """Return the key and a new session token. Wrong keys count against the limit of failed authentications."""
    address = (scope.get("client") or ("",))[0]
    if service.failed_auth.blocked(address):
        raise service.failed_auth.refusal(address)
    key = await service.key_cache.find(text)
    if key is None:
        service.failed_auth.failed(address, guessed=split(text) is not None)
        raise RequestRefused(
            "unauthorized",
            "This is not a valid API key.",
            hint="It is wrong, expired or revoked. Create one with `dibs keys create NAME --scopes read`.",
        )
    token = secrets.token_urlsafe(32)
    await service.store.run_async(service.store.keys.create_session(_digest(token), key.id, LIFETIME * 1_000_000))
    return key, token


async def sign_out(service: Service, visitor: Visitor) -> None:
    """End the session. Copies of the cookie become invalid as well."""
    await service.store.run_async(service.store.keys.end_session(_digest(visitor.token)))


def session_cookie(scope: AsgiScope, token: str | None) -> tuple[bytes, bytes]:
    """Return the header that sets the session cookie; without a token, the header that deletes it."""
    return cookie(scope, _name(scope), token or "", LIFETIME if token else 0)


def cookie(scope: AsgiScope, name: str, value: str, lifetime: int) -> tuple[bytes, bytes]:
    """Return the header of a cookie that scripts cannot read and other sites cannot send with a form."""
    secure = "; Secure" if scope.get("scheme") == "https" else ""
    text = f"{name}={value}; Path={prefix(scope) or '/'}; Max-Age={lifetime}; HttpOnly; SameSite=Lax{secure}"
    return b"set-cookie", text.encode()


def cookies(scope: AsgiScope) -> dict[str, str]:
    """Return the cookies of a request. Cookies of other programs on the same host may have any format: they are
    ignored."""
    pairs = (each.partition("=") for each in (header(scope, b"cookie") or b"").decode("latin-1").split(";"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _name(scope: AsgiScope) -> str:
    """Return the name of the session cookie, with the port: browsers share cookies between the ports of a host."""
    port = (header(scope, b"host") or b"").decode("latin-1").rpartition(":")[2]
    return f"{NAME}_{port}" if port.isdigit() else NAME


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
