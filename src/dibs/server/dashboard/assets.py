"""The static files of the dashboard: styles, scripts, icon. Their URL changes with their content.

A browser may keep a file for a year, so a page must link to it by `asset(name)`. A file with a new extension needs an
entry in KINDS; other files are not served.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources

from dibs.server.dashboard.plain_page import PlainPage
from dibs.server.http import AsgiScope, Receive, Send, send_error
from dibs.wire.errors import RequestRefused

KINDS = {  # extension -> content type
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}


def asset(name: str) -> str:
    """Return the URL of a file."""
    assert name in _files(), name
    return f"/static/{_version()}/{name}"


@cache
def _files() -> dict[str, bytes]:
    folder = resources.files("dibs.server.dashboard").joinpath("static")
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.name.rpartition(".")[2] in KINDS}


@cache
def _version() -> str:
    """Return a hash of all files: one for all, so that relative imports of scripts work."""
    digest = hashlib.sha256()
    for name, content in sorted(_files().items()):
        digest.update(name.encode() + b"\0" + content)
    return digest.hexdigest()[:16]


async def _serve(scope: AsgiScope, receive: Receive, send: Send) -> None:
    name, version = scope["path_params"]["name"], scope["path_params"]["version"]
    content = _files().get(name)
    if content is None:
        await send_error(send, RequestRefused("not_found", "This file does not exist."))
        return
    caching = b"public, max-age=31536000, immutable" if version == _version() else b"no-cache"
    headers = [
        (b"content-type", KINDS[name.rpartition(".")[2]]),
        (b"content-length", str(len(content)).encode()),
        (b"cache-control", caching),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


files = PlainPage("GET", "/static/{version:name}/{name:name}", _serve)
