"""A call is data: one request to the server, and what may be done when its answer does not come."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from dibs.store.operation import Mode, Operation
from dibs.wire.fields import Query, RequestBody

T = TypeVar("T")

encode = msgspec.json.Encoder().encode

LIMIT = 1024 * 1024
"""Bytes that the server takes in one request."""

FILL = 900 * 1024
"""Bytes to which we fill a request that can be split."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `safe`: doing it twice is as good as once, so it is repeated when its answer was lost.

    `or_none`: the code of the refusal that means "there is none", answered with None. `wait`: seconds for which the
    server may hold the request back. `answers`: statuses of answers that are no refusals, though they are no success.
    """

    method: str
    path: str
    body: bytes | None = None
    safe: bool = True
    or_none: str | None = None
    wait: float = 0.0
    answers: frozenset[int] = frozenset()


Steps = Generator[Call, Any, T]
"""Each call is answered with the bytes of the server's JSON, or with None (see `or_none`)."""


def get(path: str, query: Query | None = None, *, or_none: str | None = None) -> Call:
    """A look. Parameters that have the server's default are left out."""
    given = None if query is None else urlencode(msgspec.to_builtins(query))
    return Call("GET", f"{path}?{given}" if given else path, or_none=or_none)


def post(path: str, body: RequestBody | None = None, *, safe: bool = True, or_none: str | None = None) -> Call:
    """A change. Fields that have the server's default are left out."""
    return Call("POST", path, None if body is None else encode(body), safe, or_none)


def place(*parts: str | int) -> str:
    """The path to a thing, whatever its name contains."""
    return "/api/" + "/".join(_quoted(str(part)) for part in parts)


def _quoted(part: str) -> str:
    # A name of dots alone would be understood as "here" and "one up" on the way.
    return quote(part, safe="") if part.strip(".") else part.replace(".", "%2E")


def asking(
    name: str, call: Call, read: Callable[[Any], T], *, mode: Mode = Mode.WRITE, wakes: bool = False
) -> Operation[T]:
    """The operation of one call."""
    return Operation(name, lambda: _once(call), mode=mode, wakes=wakes, decode=read)


def looking(name: str, call: Call, read: Callable[[Any], T]) -> Operation[T]:
    """The operation of one call that changes nothing."""
    return asking(name, call, read, mode=Mode.READ)


def _once(call: Call) -> Steps[Any]:
    return (yield call)


def split(sizes: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Entries of these sizes in as many requests as they need: each from where to where."""
    parts, start, total = [], 0, 0
    for at, size in enumerate(sizes):
        if at > start and (total + size > FILL or at - start == most):
            parts.append((start, at))
            start, total = at, 0
        total += size + 1
    return [*parts, (start, len(sizes))] if sizes else []


def joined(entries: Sequence[bytes]) -> msgspec.Raw:
    """Entries that are JSON already, as a JSON array."""
    return msgspec.Raw(b"[" + b",".join(entries) + b"]")
