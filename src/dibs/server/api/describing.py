"""The API's description, for programs and for people. It is made once in the life of a process."""

from __future__ import annotations

from functools import cache
from typing import Any

from dibs.server.endpoint import Call, endpoint
from dibs.server.http import JSON, answer_bytes, encode
from dibs.server.openapi import describe

TAG = "description"


@cache
def description() -> dict[str, Any]:
    """The description of all endpoints."""
    from dibs.server.api import ENDPOINTS as EVERY  # noqa: PLC0415 - those of this module are among them

    return describe(EVERY)


@cache
def document() -> bytes:
    """The description as JSON."""
    return encode(description())


@endpoint("GET", "/api/openapi.json", tag=TAG, answers={200: (dict[str, Any], "The description.")})
async def openapi(call: Call) -> None:
    """This API in OpenAPI 3.1, for programs."""
    await answer_bytes(call.http[2], 200, document(), (JSON,))


ENDPOINTS = [openapi]
