"""The endpoints `/api/openapi.json` and `/api/docs`: the OpenAPI document of the HTTP API, as JSON and as an HTML page.

`dibs.server.openapi` derives the document from the endpoints and their structs, so a new endpoint needs no change here.
The document is created once in a process. That takes most of a second, so a thread does it: the event loop must not be
blocked.
"""

from __future__ import annotations

import asyncio
from functools import cache, lru_cache
from importlib import resources
from typing import Any

from dibs.server.endpoint import Call, endpoint
from dibs.server.http import JSON, encode, header, send_bytes
from dibs.server.openapi.document import describe
from dibs.server.prefix import add_prefix, prefix

TAG = "description"
HTML = (b"content-type", b"text/html; charset=utf-8")
CSS = (b"content-type", b"text/css; charset=utf-8")


@cache
def description() -> dict[str, Any]:
    """Return the OpenAPI document of all endpoints."""
    from dibs.server.api import ENDPOINTS as ALL_ENDPOINTS  # noqa: PLC0415 - that module imports this one

    return describe(ALL_ENDPOINTS)


@lru_cache(8)  # a client may choose a part of the prefix, so the number of cached documents must be limited
def document(root: str = "") -> bytes:
    """Return the OpenAPI document as JSON, for a server under the prefix `root`."""
    about = description()
    return encode({**about, "servers": [{**about["servers"][0], "url": root or "/"}]})


@lru_cache(8)  # a client chooses the host name, so the number of cached pages must be limited
def page(origin: str, root: str = "") -> bytes:
    """Return the OpenAPI document as an HTML page, with `origin` (scheme and host) and `root` in its examples."""
    from dibs.server.openapi.reference import render  # noqa: PLC0415 - only this page needs jinja2

    return add_prefix(render(description(), origin + root).encode(), root)


@cache
def stylesheet() -> bytes:
    """Return the stylesheet of the HTML page."""
    return resources.files("dibs.server.openapi").joinpath("reference.css").read_bytes()


@endpoint("GET", "/api/openapi.json", tag=TAG, answers={200: (dict[str, Any], "The document.")})
async def openapi(call: Call) -> None:
    """Read the OpenAPI 3.1 document of this API."""
    await send_bytes(call.http[2], 200, await asyncio.to_thread(document, prefix(call.http[0])), (JSON,))


@endpoint("GET", "/api/docs", tag=TAG, media="text/html", answers={200: (str, "The page.")})
async def docs(call: Call) -> None:
    """Read the HTML reference of this API."""
    scope, _, send = call.http
    host = (header(scope, b"host") or b"").decode("latin-1")
    content = await asyncio.to_thread(page, f"{scope['scheme']}://{host}", prefix(scope))
    await send_bytes(send, 200, content, (HTML,))


@endpoint("GET", "/api/docs.css", tag=TAG, media="text/css", answers={200: (str, "The stylesheet.")})
async def style(call: Call) -> None:
    """Read the stylesheet of the HTML reference."""
    await send_bytes(call.http[2], 200, stylesheet(), (CSS,))


ENDPOINTS = [openapi, docs, style]
