"""A page of the dashboard: its required scopes, its query parameters and its form.

A page makes the same checks as an API endpoint, in the same order. A browser without a session is redirected to the
sign-in page, a form without a valid CSRF token is refused, and an error is rendered as a page with a message and hint.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

import msgspec

from dibs.errors import DibsError, StoreError
from dibs.model.key import Scope as KeyScope
from dibs.server.auth import Caller
from dibs.server.dashboard import session
from dibs.server.dashboard.rendering import HTML, render
from dibs.server.dashboard.session import Visitor
from dibs.server.endpoint import Call, as_text
from dibs.server.http import (
    AsgiScope,
    ClientDisconnected,
    Headers,
    Receive,
    Send,
    encode,
    header,
    read_body,
    send_bytes,
    send_error,
)
from dibs.server.prefix import add_prefix, prefix
from dibs.server.service import Service
from dibs.server.sign_in import unauthorized
from dibs.wire.errors import RequestRefused, headers_of, status_of

NOTICE = "dibs_notice"
"""The cookie that carries the result of a form to the page that shows it."""

REPEATED_FIELD = "ids"
"""The only form field that may be repeated: the selected rows."""

UNSAFE = frozenset({"POST"})
ANONYMOUS = Caller()
JSON = (b"content-type", b"application/json")


@dataclass(frozen=True, slots=True)
class PageResult:
    """The HTTP response of a page. `leaves`: it redirects to a page outside of the dashboard."""

    body: bytes
    status: int = 200
    headers: Headers = (HTML,)
    leaves: bool = False


@dataclass(slots=True)
class PageRequest(Call):
    """One request of a visitor. `query` and `body` are decoded to the structs of the page, or None without a struct."""

    visitor: Visitor
    version: str = field(init=False)
    """The version of the live statistics before the page was read: the page does not show later changes."""

    def __post_init__(self) -> None:
        self.version = self.service.live_stats.version(self.caller.queues)

    def may(self, *scopes: KeyScope) -> bool:
        """Return True if the caller has one of the scopes. Actions that the scopes do not allow are hidden."""
        return self.caller.may(*scopes)

    def render(self, template: str, status: int = 200, **context: Any) -> PageResult:
        """Render a template with the context that all pages share."""
        notice = session.cookies(self.http[0]).get(NOTICE)
        shown = render(template, request=self, notice=unquote(notice) if notice else None, **context)
        return PageResult(shown, status, (HTML, *self._cookies(notice)))

    def json(self, content: Any, status: int = 200) -> PageResult:
        """Return JSON for a script of the dashboard."""
        return PageResult(encode(content), status, (JSON,))

    def redirect_with_notice(self, path: str, notice: str | None = None) -> PageResult:
        """Redirect to another page, which shows the notice."""
        return redirect(path, (session.cookie(self.http[0], NOTICE, quote(notice[:300]), 30),) if notice else ())

    @property
    def prefix(self) -> str:
        """The path under which the server is mounted, for scripts and sample commands."""
        return prefix(self.http[0])

    @property
    def path_now(self) -> str:
        """The current path, for the menu."""
        return str(self.http[0]["path"])

    @property
    def theme(self) -> str:
        """The theme: light or dark as the visitor chose, or auto."""
        chosen = session.cookies(self.http[0]).get("dibs_theme", "")
        return chosen if chosen in ("light", "dark") else "auto"

    def _cookies(self, notice: str | None) -> Headers:
        scope = self.http[0]
        session_cookies = (session.session_cookie(scope, self.visitor.token),) if self.visitor.is_new else ()
        return (*session_cookies, *((session.cookie(scope, NOTICE, "", 0),) if notice else ()))


PageHandler = Callable[[PageRequest], Awaitable[PageResult | None]]


@dataclass(frozen=True)
class Page:
    """One method of one path, as an ASGI application.

    `scopes`: the visitor's key needs one of them; a page without scopes is public. `query`, `form`: msgspec structs of
    the query string and the form.
    """

    method: str
    path: str
    handle: PageHandler
    scopes: frozenset[KeyScope]
    query: Any = None
    form: Any = None

    def __post_init__(self) -> None:
        for name in ("query", "form"):
            model = getattr(self, name)
            object.__setattr__(self, f"_{name}", None if model is None else as_text(model))

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        service: Service = scope["dibs.service"]
        visitor = None
        try:
            visitor = await session.identify(service, scope)
            request = PageRequest(
                service, visitor.caller or ANONYMOUS, scope["path_params"], None, None, (scope, receive, send), visitor
            )
            content = await self._answer(request)
        except ClientDisconnected:
            return
        except DibsError as error:
            if isinstance(error, StoreError):
                service.log_failure(error)
            content = await _error_page(service, visitor or session.anonymous(), error, (scope, receive, send))
        if content is not None:
            await _send(scope, send, content)

    async def _answer(self, request: PageRequest) -> PageResult | None:
        scope, receive, _ = request.http
        if self.scopes and request.visitor.caller is None:
            return _redirect_to_signin(request)
        if self.scopes:
            request.caller.check_scopes(self.scopes)
        if self.method in UNSAFE:
            given = _pairs(await read_body(scope, receive), "form")
            _check_token(request, given)
            request.body = _decode(given, self._form, "form")  # type: ignore[attr-defined]
        request.query = _decode(_pairs(scope["query_string"], "query string"), self._query, "query string")  # type: ignore[attr-defined]
        return await self.handle(request)


def page(
    method: str, path: str, *scopes: KeyScope, query: Any = None, form: Any = None
) -> Callable[[PageHandler], Page]:
    """Declare a function as the handler of a page."""

    def declare(handle: PageHandler) -> Page:
        return Page(method, path, handle, frozenset(scopes), query, form)

    return declare


async def _send(scope: AsgiScope, send: Send, content: PageResult) -> None:
    """Send the result. Its links and redirects lead to the paths of a server at the root: under a prefix, add it."""
    root = "" if content.leaves else prefix(scope)
    headers = [(name, root.encode() + value if name == b"location" else value) for name, value in content.headers]
    body = add_prefix(content.body, root) if HTML in content.headers else content.body
    await send_bytes(send, content.status, body, tuple(headers))


class NameForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A form with a name. In a path, a browser would resolve a name such as `..`."""

    name: str


def redirect(path: str, headers: Headers = ()) -> PageResult:
    """Redirect to another page of the dashboard."""
    return PageResult(b"", 303, ((b"location", path.encode()), *headers))


def wants_json(scope: AsgiScope) -> bool:
    """Return True for a request of a script, False for a page that a person opens."""
    return (header(scope, b"accept") or b"").startswith(b"application/json")


def _redirect_to_signin(request: PageRequest) -> PageResult:
    scope = request.http[0]
    if wants_json(scope) or (header(scope, b"accept") or b"").startswith(b"text/event-stream"):
        raise RequestRefused("unauthorized", "The session has ended.", hint="Reload the page to sign in.")
    path = scope["path"] + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
    if request.service.sign_in is not None:
        return leave_to_sign_in(request, path if scope["method"] == "GET" else "/")
    return redirect("/signin" if path == "/" or scope["method"] != "GET" else f"/signin?next={quote(path, safe='')}")


def leave_to_sign_in(request: PageRequest, path: str) -> PageResult:
    """Redirect to the sign-in page of the application around the server, which returns to the path."""
    scope, sign_in = request.http[0], request.service.sign_in
    address = None if sign_in is None else sign_in.address(scope, prefix(scope) + path)
    if address is None:
        raise unauthorized()
    return PageResult(b"", 303, ((b"location", address.encode()),), leaves=True)


def _check_token(request: PageRequest, given: dict[str, str]) -> None:
    token = header(request.http[0], b"x-csrf-token")
    text = given.pop("csrf", None) or (token.decode("latin-1") if token else None)
    if not request.visitor.proves(text):
        raise RequestRefused(
            "forbidden",
            "The form has expired, or comes from another site.",
            hint="Reload the page and submit the form again.",
        )


def _pairs(text: bytes, what: str) -> dict[str, str]:
    """Parse a form or a query string; empty fields are omitted."""
    try:
        pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=2000)
    except ValueError:
        raise RequestRefused("bad_request", f"The {what} cannot be decoded.") from None
    given: dict[str, str] = {}
    for name, value in pairs:
        if value and name in given and name != REPEATED_FIELD:
            raise RequestRefused("bad_request", f"The {what} has a field twice: {name[:40]!r}.")
        if value:
            given[name] = f"{given[name]},{value}" if name in given else value
    return given


def _decode(given: Mapping[str, str], model: Any, what: str) -> Any:
    if model is None:
        if given:
            raise RequestRefused("bad_request", f"The {what} has an unknown field: {min(given)[:40]!r}.")
        return None
    try:
        return msgspec.convert(given, model, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise RequestRefused("bad_request", f"The {what} is not valid: {error}.") from None


async def _error_page(
    service: Service, visitor: Visitor, error: DibsError, http: tuple[AsgiScope, Receive, Send]
) -> PageResult | None:
    """Render the error as a page; for scripts and streams, send it as JSON."""
    if wants_json(http[0]) or (header(http[0], b"accept") or b"").startswith(b"text/event-stream"):
        await send_error(http[2], error)
        return None
    request = PageRequest(service, visitor.caller or ANONYMOUS, {}, None, None, http, visitor)
    shown = request.render("error.html", status_of(error), error=error)
    return PageResult(shown.body, shown.status, (*shown.headers, *headers_of(error)))


@page("GET", "/lost")
async def not_found_page(request: PageRequest) -> PageResult:
    """Raise the error of the 404 page."""
    raise RequestRefused("not_found", "This page does not exist.", hint="Use the menu to find other pages.")


async def answer_not_found(scope: AsgiScope, receive: Receive, send: Send) -> None:
    """Render the 404 page."""
    scope["path_params"] = {}
    await not_found_page(scope, receive, send)
