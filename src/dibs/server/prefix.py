"""The path under which a server is mounted in another application, or behind a proxy.

All other modules work with the paths of a server at the root. The prefix is removed from the path of a request here,
and added where an answer leaves: to the links of pages, redirects, cookies and the OpenAPI document.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, unquote

from dibs.server.http import AsgiScope

LINKS = (b' href="/', b' action="/', b' src="/', b' data-next="/')
"""The beginnings of links. The templates escape the quotation marks of all values, so only markup begins like this."""

ENCODED_LENGTH = 12
"""Characters of a percent-encoded path for one decoded character, at most. Only so much of a long path is compared."""


def remove_prefix(scope: AsgiScope) -> AsgiScope:
    """Return the scope of the request with the path after the prefix, which is the `root_path` of ASGI.

    A copy: middleware of the application reads the original after the answer.
    """
    root: str = scope.get("root_path", "").rstrip("/")
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    path = _after(root, raw.split(b"?", 1)[0].decode("latin-1"))
    return {
        **scope,
        "path": unquote(path),
        "raw_path": path.encode("latin-1"),
        "root_path": "",
        "dibs.prefix": _as_url(root),
        "dibs.request": scope,
    }


def prefix(scope: AsgiScope) -> str:
    """Return the prefix as part of a URL: without a slash at the end, empty for a server at the root."""
    found: str = scope.get("dibs.prefix", "")
    return found


def request_scope(scope: AsgiScope) -> dict[str, Any]:
    """Return the scope of the request as the application around the server knows it."""
    return dict(scope.get("dibs.request", scope))


def add_prefix(page: bytes, root: str) -> bytes:
    """Return the HTML page with the prefix in its links."""
    if root:
        for link in LINKS:
            page = page.replace(link, link[:-1] + root.encode() + b"/")
    return page


def _after(root: str, path: str) -> str:
    """Return the rest of a percent-encoded path after the decoded prefix.

    A proxy may have removed the first part of the prefix: the root path `/proxy/queue` with the path `/queue/tasks`
    leads to `/tasks`, like the path `/proxy/queue/tasks`.
    """
    beginning = path[: ENCODED_LENGTH * len(root) + 1]
    ends = [at for at, sign in enumerate(beginning) if sign == "/"] + [len(path)]
    while root:
        for end in ends:
            if end <= len(beginning) and unquote(path[:end]) == root:
                return path[end:] or "/"
        root = root[root.find("/", 1) :] if "/" in root[1:] else ""
    return path or "/"


def _as_url(root: str) -> str:
    """Return the prefix percent-encoded, with one slash in front: `//name` would be the address of another site."""
    return quote("/" + root.strip("/")) if root.strip("/") else ""
