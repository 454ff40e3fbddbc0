"""Signing in: an API key is given once, and a cookie stands for it from then on.

The cookie is a random text of 256 bits, of which the database knows only the SHA-256, together with the key's id. What
the key may do is looked up with every request, so that a revoked key ends its sessions. The token against forged
requests (CSRF) is made from the cookie: who can read neither the cookie nor our pages cannot know it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

from dibs.model.key import ApiKey, split
from dibs.server.auth import Caller
from dibs.server.http import Scope, header
from dibs.server.service import Service
from dibs.wire.errors import RequestRefused

LIFETIME = 12 * 3600
"""Seconds after which everybody has to sign in again."""

NAME = "dibs_session"


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who looks at the dashboard. `token`: the value of the cookie; `caller` is None for who has not signed in."""

    token: str = field(repr=False)
    caller: Caller | None
    is_new: bool = False

    @property
    def csrf(self) -> str:
        """What every form of this visitor has to bring along."""
        return hmac.new(self.token.encode(), b"dibs csrf", hashlib.sha256).hexdigest()

    def proves(self, given: str | None) -> bool:
        """True for a form that came from our own page."""
        return given is not None and hmac.compare_digest(given.encode(), self.csrf.encode())


def nobody() -> Visitor:
    """Somebody of whom we cannot tell who it is, because the store does not answer."""
    return Visitor(secrets.token_urlsafe(32), None)


async def recognise(service: Service, scope: Scope) -> Visitor:
    """Who comes with this request. Where the server asks for no keys, everybody is signed in."""
    token = cookies(scope).get(_name(scope))
    if token is None or not 32 <= len(token) <= 64 or not token.isascii():
        token = secrets.token_urlsafe(32)
        return Visitor(token, None if service.config.keys else Caller(signature="dashboard"), is_new=True)
    if not service.config.keys:
        return Visitor(token, Caller(signature="dashboard"))
    session = await service.store.run_async(service.store.keys.get_session(_digest(token)))
    key = None if session is None else await service.ring.of_id(session.key_id)
    if key is None:
        return Visitor(token, None)
    scope["dibs.key"] = key.id  # for the access log
    return Visitor(token, Caller(key, "dashboard"))


async def sign_in(service: Service, scope: Scope, text: str) -> tuple[ApiKey, str]:
    """The key that the text is, and a new cookie for it. Guesses are counted as everywhere."""
    address = (scope.get("client") or ("",))[0]
    if service.strangers.blocked(address):
        raise service.strangers.refusal(address)
    key = await service.ring.find(text)
    if key is None:
        service.strangers.failed(address, guessed=split(text) is not None)
        raise RequestRefused(
            "unauthorized",
            "This is not a valid API key.",
            hint="It is wrong, expired or revoked; `dibs keys create NAME --scopes read` makes one.",
        )
    token = secrets.token_urlsafe(32)
    await service.store.run_async(service.store.keys.create_session(_digest(token), key.id, LIFETIME * 1_000_000))
    return key, token


async def sign_out(service: Service, visitor: Visitor) -> None:
    """The cookie stands for nobody any more, whoever has a copy of it."""
    await service.store.run_async(service.store.keys.end_session(_digest(visitor.token)))


def session_cookie(scope: Scope, token: str | None) -> tuple[bytes, bytes]:
    """The header that sets the cookie; without a token the one that takes it away."""
    return cookie(scope, _name(scope), token or "", LIFETIME if token else 0)


def cookie(scope: Scope, name: str, value: str, lifetime: int) -> tuple[bytes, bytes]:
    """A cookie that no script can read and no other site can send along with a form."""
    secure = "; Secure" if scope.get("scheme") == "https" else ""
    text = f"{name}={value}; Path=/; Max-Age={lifetime}; HttpOnly; SameSite=Lax{secure}"
    return b"set-cookie", text.encode()


def cookies(scope: Scope) -> dict[str, str]:
    """What the browser sent. Other programs on the same host may have set theirs in any form: those are not our affair,
    and must not hide ours."""
    pairs = (each.partition("=") for each in (header(scope, b"cookie") or b"").decode("latin-1").split(";"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _name(scope: Scope) -> str:
    """Cookies do not tell ports apart: two servers on one machine would sign each other's visitors out."""
    port = (header(scope, b"host") or b"").decode("latin-1").rpartition(":")[2]
    return f"{NAME}_{port}" if port.isdigit() else NAME


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
