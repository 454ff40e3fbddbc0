"""The dashboard's own files: style, scripts, icon. A browser keeps them, under an address that changes with them."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources

from dibs.server.dashboard.plain_page import PlainPage
from dibs.server.http import Receive, Scope, Send, refuse
from dibs.wire.errors import RequestRefused

KINDS = {
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}


def asset(name: str) -> str:
    """The address of a file."""
    assert name in _files(), name
    return f"/static/{_edition()}/{name}"


@cache
def _files() -> dict[str, bytes]:
    folder = resources.files("dibs.server.dashboard").joinpath("static")
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.name.rpartition(".")[2] in KINDS}


@cache
def _edition() -> str:
    """One for all files, so that a script finds those that it imports beside it."""
    whole = hashlib.sha256()
    for name, content in sorted(_files().items()):
        whole.update(name.encode() + b"\0" + content)
    return whole.hexdigest()[:16]


async def _serve(scope: Scope, receive: Receive, send: Send) -> None:
    name, edition = scope["path_params"]["name"], scope["path_params"]["edition"]
    content = _files().get(name)
    if content is None:
        await refuse(send, RequestRefused("not_found", "There is no such file."))
        return
    kept = b"public, max-age=31536000, immutable" if edition == _edition() else b"no-cache"
    headers = [
        (b"content-type", KINDS[name.rpartition(".")[2]]),
        (b"content-length", str(len(content)).encode()),
        (b"cache-control", kept),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


files = PlainPage("GET", "/static/{edition:name}/{name:name}", _serve)
