"""The dashboard of dibs under a path of a Django project: `path("dibs/", include("dibs.django.urls"))`.

The dashboard is an ASGI application. It runs on an event loop in a thread of its own, which the first request of a
process starts, so that it works the same under WSGI and ASGI. Django signs users in and checks the Host header. The
forms have the CSRF tokens of the dashboard, which also refuses forms of other sites by their origin.

The dashboard writes on connections of its own. A transaction of ATOMIC_REQUESTS on a SQLite file would lock the file
against them, so `dibs.django.urls` excludes the view.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from urllib.parse import quote, unquote

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import NoReverseMatch, reverse
from django.views.decorators.csrf import csrf_exempt

from dibs.client import Dibs
from dibs.django.asgi_bridge import BridgedApplication
from dibs.django.author import author
from dibs.django.configuration import location
from dibs.django.databases import url_of
from dibs.django.rights import scopes_at, scopes_of
from dibs.errors import DibsError, InvalidValue

STREAM = "text/event-stream"
USER = "dibs.django.user"
"""The key of the user's rights in the scope of a request."""

_lock = threading.Lock()
_running: dict[tuple[int, str], BridgedApplication] = {}
"""Process and URL -> dashboard. A process that was forked has to start its own."""


@csrf_exempt
@login_not_required  # of LoginRequiredMiddleware, which would not send visitors to the sign-in page of the admin
def dashboard(request: Any, path: str) -> Any:
    """Answer a request to the dashboard."""
    user = request.user
    if not user.is_authenticated and not _is_script(request):
        return redirect_to_login(request.get_full_path(), _login_url())
    scopes = scopes_of(user)
    if user.is_authenticated and not scopes:
        raise PermissionDenied
    try:
        return _answer(request, _scope_of(request, path, scopes_at(path, scopes)))
    except DibsError as error:
        text = f"The dashboard of dibs is not available. {error}"
        return HttpResponse(text, status=503, content_type="text/plain; charset=utf-8")


def close() -> None:
    """Stop the dashboards of this process, with their connections. The next request starts them again."""
    with _lock:
        for (process, _), bridge in _running.items():
            if process == os.getpid():
                bridge.stop()
        _running.clear()


def _answer(request: Any, scope: dict[str, Any]) -> Any:
    exchange = _bridge().ask(scope, request.body)
    start = exchange.start()
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]]
    if not dict(headers).get("content-type", "").startswith(STREAM):
        response: Any = HttpResponse(exchange.rest(), status=start["status"])
    elif isinstance(request, ASGIRequest):
        response = StreamingHttpResponse(exchange.follow(), status=start["status"])
    else:  # a stream would keep a thread of the WSGI server
        response = HttpResponse(exchange.first_event(), status=start["status"])
    for name, value in headers:
        if name == "set-cookie":
            response.cookies.load(value)
        elif name != "content-length":
            response[name] = value
    return response


def _scope_of(request: Any, path: str, scopes: list[str]) -> dict[str, Any]:
    """Return the ASGI scope of a request. Host and scheme are those that Django has checked, also behind a proxy."""
    headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in request.headers.items()
        if name.lower() != "host"
    ]
    root = request.path.removesuffix(path)
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": _raw_path(request).encode("latin-1"),
        "root_path": root.rstrip("/"),
        "query_string": request.META.get("QUERY_STRING", "").encode("latin-1", "replace"),
        "headers": [(b"host", request.get_host().encode("latin-1")), *headers],
        "client": (request.META.get("REMOTE_ADDR") or "-", 0),
        "server": None,
        USER: (scopes, author(request.user)) if scopes else None,
    }


def _raw_path(request: Any) -> str:
    """Return the percent-encoded path: a name in it may contain an encoded slash.

    ASGI has this path; WSGI only has the decoded path, but gunicorn and uWSGI add the URL of the request.
    """
    if isinstance(request, ASGIRequest):
        sent = request.scope.get("raw_path", b"").decode("latin-1")
    else:
        sent = request.META.get("RAW_URI") or request.META.get("REQUEST_URI") or ""
    sent = sent.partition("?")[0]
    return sent if unquote(sent) == request.path else quote(request.path)


def _bridge() -> BridgedApplication:
    """Return the dashboard of this process for the store that the settings name; start it if it does not run."""
    where = location()
    url = url_of(where.database) if where.database is not None else where.url or ""
    if url.startswith(("http://", "https://")):
        raise InvalidValue(
            "The store of the project is behind a server of dibs.", hint="The server has the dashboard: open its URL."
        )
    with _lock:
        found = _running.get((os.getpid(), url))
        if found is None:
            found = BridgedApplication(*_server(url))
            found.start()
            _running[os.getpid(), url] = found
        return found


def _server(url: str) -> tuple[Any, AbstractAsyncContextManager[None]]:
    """Return the dashboard of a store as an ASGI application, and what starts and stops it."""
    try:
        from dibs.asgi import server
        from dibs.server.sign_in import SignedIn
    except ImportError as error:
        raise InvalidValue(str(error)) from None

    async def sign_in(request: Any) -> SignedIn | None:
        rights = request.scope[USER]
        return None if rights is None else SignedIn(rights[0], name=rights[1])

    client = Dibs(url, migrate=False)
    application = server(client, sign_in=sign_in, upkeep=False)
    return application, _open(application, client)


@asynccontextmanager
async def _open(application: Any, client: Dibs) -> AsyncIterator[None]:
    """Run the dashboard, and close its connections at the end."""
    try:
        async with application:
            yield
    finally:
        await client._store.close_async()


def _is_script(request: Any) -> bool:
    accepts = request.headers.get("accept", "")
    return accepts.startswith(("application/json", STREAM))


def _login_url() -> str:
    try:
        return reverse("admin:login")
    except NoReverseMatch:
        return str(settings.LOGIN_URL)


@atexit.register
def _abandon() -> None:
    for (process, _), bridge in _running.items():
        if process == os.getpid():
            bridge.abandon()
