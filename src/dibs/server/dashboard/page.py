"""A page of the dashboard: who may open it, what its address says, what a form on it may do.

The same rules as for an endpoint of the API, in the same order, for somebody with a browser: who has not signed in is
sent to the door, a form without our token is refused, and an error is a page with a sentence and a hint.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

import msgspec

from dibs.errors import DibsError, StoreError
from dibs.model.key import Scope as KeyScope
from dibs.server.auth import Caller, missing
from dibs.server.dashboard import session
from dibs.server.dashboard.rendering import HTML, render
from dibs.server.dashboard.session import Visitor
from dibs.server.endpoint import Call, as_text
from dibs.server.http import Gone, Headers, Receive, Scope, Send, answer_bytes, encode, header, read_body, refuse
from dibs.server.service import Service
from dibs.wire.errors import RequestRefused, headers_of, status_of

SAID = "dibs_said"
"""The cookie in which the answer to a form waits for the page that shows it."""

PICKED = "ids"
"""The one field of a form that may be there many times: the rows that were ticked."""

UNSAFE = frozenset({"POST"})
NOBODY = Caller()
JSON = (b"content-type", b"application/json")


@dataclass(frozen=True, slots=True)
class Content:
    """What a page answers with."""

    body: bytes
    status: int = 200
    headers: Headers = (HTML,)


@dataclass(slots=True)
class Visit(Call):
    """One request of a visitor. `query` and `body` are decoded by the models of the page; without one it takes none."""

    visitor: Visitor
    version: str = field(init=False)
    """That of the pulse before anything was read: what changes afterwards, the page does not show yet."""

    def __post_init__(self) -> None:
        self.version = self.service.pulse.version(self.caller.queues)

    def may(self, *scopes: KeyScope) -> bool:
        """True if the visitor's key has one of the scopes: a button that it may not press is not shown."""
        key = self.caller.key
        return key is None or any(key.allows(scope) for scope in scopes)

    def render(self, template: str, status: int = 200, **context: Any) -> Content:
        """The page, with what every page shows."""
        said = session.cookies(self.http[0]).get(SAID)
        shown = render(template, visit=self, said=unquote(said) if said else None, **context)
        return Content(shown, status, (HTML, *self._cookies(said)))

    def json(self, content: Any, status: int = 200) -> Content:
        """An answer for a script of ours."""
        return Content(encode(content), status, (JSON,))

    def back(self, path: str, said: str | None = None) -> Content:
        """To another page, which shows what was done."""
        return redirect(path, (session.cookie(self.http[0], SAID, quote(said[:300]), 30),) if said else ())

    @property
    def path_now(self) -> str:
        """Where we are, for the menu."""
        return str(self.http[0]["path"])

    @property
    def theme(self) -> str:
        """Light or dark as the visitor chose, else as the system likes it."""
        chosen = session.cookies(self.http[0]).get("dibs_theme", "")
        return chosen if chosen in ("light", "dark") else "auto"

    def _cookies(self, said: str | None) -> Headers:
        scope = self.http[0]
        kept = (session.session_cookie(scope, self.visitor.token),) if self.visitor.is_new else ()
        return (*kept, *((session.cookie(scope, SAID, "", 0),) if said else ()))


Handle = Callable[[Visit], Awaitable[Content | None]]


@dataclass(frozen=True)
class Page:
    """One method of one path, as an ASGI application. `scopes`: the visitor's key needs one of them; empty for what
    everybody may see. `query`, `form`: msgspec structs for what the address and the form say."""

    method: str
    path: str
    handle: Handle
    scopes: frozenset[KeyScope]
    query: Any = None
    form: Any = None

    def __post_init__(self) -> None:
        for name in ("query", "form"):
            model = getattr(self, name)
            object.__setattr__(self, f"_{name}", None if model is None else as_text(model))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        service: Service = scope["dibs.service"]
        visitor = None
        try:
            visitor = await session.recognise(service, scope)
            visit = Visit(
                service, visitor.caller or NOBODY, scope["path_params"], None, None, (scope, receive, send), visitor
            )
            content = await self._answer(visit)
        except Gone:
            return
        except DibsError as error:
            if isinstance(error, StoreError):
                service.tell_of_failure(error)
            content = await _apologise(service, visitor or session.nobody(), error, (scope, receive, send))
        if content is not None:
            await answer_bytes(send, content.status, content.body, content.headers)

    async def _answer(self, visit: Visit) -> Content | None:
        scope, receive, _ = visit.http
        if self.scopes and visit.visitor.caller is None:
            return _to_the_door(scope)
        if self.scopes and (key := visit.caller.key) is not None and (refusal := missing(self.scopes, key)) is not None:
            raise refusal
        if self.method in UNSAFE:
            given = _pairs(await read_body(scope, receive), "form")
            _check_token(visit, given)
            visit.body = _decode(given, self._form, "form")  # type: ignore[attr-defined]
        visit.query = _decode(_pairs(scope["query_string"], "address"), self._query, "address")  # type: ignore[attr-defined]
        return await self.handle(visit)


def page(method: str, path: str, *scopes: KeyScope, query: Any = None, form: Any = None) -> Callable[[Handle], Page]:
    """Make a function the handler of a page."""

    def declare(handle: Handle) -> Page:
        return Page(method, path, handle, frozenset(scopes), query, form)

    return declare


class Named(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A form about something with a name: in the address, a browser would take a name like `..` for a way."""

    name: str


def redirect(path: str, headers: Headers = ()) -> Content:
    """To another page of ours."""
    return Content(b"", 303, ((b"location", path.encode()), *headers))


def wants_json(scope: Scope) -> bool:
    """True for a script of ours, false for who reads."""
    return (header(scope, b"accept") or b"").startswith(b"application/json")


def _to_the_door(scope: Scope) -> Content:
    if wants_json(scope) or (header(scope, b"accept") or b"").startswith(b"text/event-stream"):
        raise RequestRefused("unauthorized", "You are not signed in any more.", hint="Load the page again to sign in.")
    asked = scope["path"] + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
    return redirect("/signin" if asked == "/" or scope["method"] != "GET" else f"/signin?next={quote(asked, safe='')}")


def _check_token(visit: Visit, given: dict[str, str]) -> None:
    told = header(visit.http[0], b"x-csrf-token")
    text = given.pop("csrf", None) or (told.decode("latin-1") if told else None)
    if not visit.visitor.proves(text):
        raise RequestRefused(
            "forbidden", "This form is too old, or not ours.", hint="Load the page again, then repeat it."
        )


def _pairs(text: bytes, what: str) -> dict[str, str]:
    """What a form or an address says; what was left empty was not said."""
    try:
        pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=2000)
    except ValueError:
        raise RequestRefused("bad_request", f"The {what} makes no sense.") from None
    given: dict[str, str] = {}
    for name, value in pairs:
        if value and name in given and name != PICKED:
            raise RequestRefused("bad_request", f"The {what} says something twice.")
        if value:
            given[name] = f"{given[name]},{value}" if name in given else value
    return given


def _decode(given: Mapping[str, str], model: Any, what: str) -> Any:
    if model is None:
        if given:
            raise RequestRefused("bad_request", f"The {what} says what this page does not know: {min(given)[:40]!r}.")
        return None
    try:
        return msgspec.convert(given, model, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise RequestRefused("bad_request", f"The {what} makes no sense here: {error}.") from None


async def _apologise(
    service: Service, visitor: Visitor, error: DibsError, http: tuple[Scope, Receive, Send]
) -> Content | None:
    """The error as a page; to who has no page open, as JSON."""
    if wants_json(http[0]) or (header(http[0], b"accept") or b"").startswith(b"text/event-stream"):
        await refuse(http[2], error)
        return None
    visit = Visit(service, visitor.caller or NOBODY, {}, None, None, http, visitor)
    shown = visit.render("error.html", status_of(error), error=error)
    return Content(shown.body, shown.status, (*shown.headers, *headers_of(error)))


@page("GET", "/lost")
async def nowhere(visit: Visit) -> Content:
    """The page that says so."""
    raise RequestRefused(
        "not_found", "There is nothing at this address.", hint="The menu leads to everything there is."
    )


async def lost(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer any request with it."""
    scope["path_params"] = {}
    await nowhere(scope, receive, send)
