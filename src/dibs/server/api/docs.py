"""The API's description, for programs and for people. It is made once in the life of a process.

Making the description takes most of a second, so a thread makes it and the event loop goes on.
"""

from __future__ import annotations

import asyncio
from functools import cache, lru_cache
from importlib import resources
from typing import Any

from dibs.server.endpoint import Call, endpoint
from dibs.server.http import JSON, encode, header, send_bytes
from dibs.server.openapi.document import describe

TAG = "description"
HTML = (b"content-type", b"text/html; charset=utf-8")
CSS = (b"content-type", b"text/css; charset=utf-8")


@cache
def description() -> dict[str, Any]:
    """The description of all endpoints."""
    from dibs.server.api import ENDPOINTS as EVERY  # noqa: PLC0415 - those of this module are among them

    return describe(EVERY)


@cache
def document() -> bytes:
    """The description as JSON."""
    return encode(description())


@lru_cache(8)  # one for each name by which the server is called
def page(origin: str) -> bytes:
    """The description as a page."""
    from dibs.server.openapi.reference import render  # noqa: PLC0415  jinja2 is imported for this page only

    return render(description(), origin).encode()


@cache
def stylesheet() -> bytes:
    """The page's style."""
    return resources.files("dibs.server.openapi").joinpath("reference.css").read_bytes()


@endpoint("GET", "/api/openapi.json", tag=TAG, answers={200: (dict[str, Any], "The description.")})
async def openapi(call: Call) -> None:
    """This API in OpenAPI 3.1, for programs."""
    await send_bytes(call.http[2], 200, await asyncio.to_thread(document), (JSON,))


@endpoint("GET", "/api/docs", tag=TAG, media="text/html", answers={200: (str, "A page.")})
async def docs(call: Call) -> None:
    """This API for people: the page that you read."""
    scope, _, send = call.http
    host = (header(scope, b"host") or b"").decode("latin-1")
    content = await asyncio.to_thread(page, f"{scope['scheme']}://{host}")
    await send_bytes(send, 200, content, (HTML,))


@endpoint("GET", "/api/docs.css", tag=TAG, media="text/css", answers={200: (str, "A stylesheet.")})
async def style(call: Call) -> None:
    """How the page looks."""
    await send_bytes(call.http[2], 200, stylesheet(), (CSS,))


ENDPOINTS = [openapi, docs, style]
