"""An HTTP call as data: one request to the server, and whether it may be repeated."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from dibs.errors import InvalidValue
from dibs.model.claim import MAX_BATCH
from dibs.store.operation import Mode, Operation
from dibs.wire.fields import Query, RequestBody

T = TypeVar("T")

encode = msgspec.json.Encoder().encode

LIMIT = 1024 * 1024
"""Bytes of a request that the server accepts."""

FILL = 900 * 1024
"""Bytes after which entries that can be split go into another request."""


@dataclass(frozen=True, slots=True)
class HttpCall:
    """One request. `safe`: a repetition changes nothing, so the request is repeated if its answer was lost.

    `or_none`: the code of the refusal that means "there is none": the answer is then None. `wait`: seconds for which
    the server may delay the answer. `answers`: statuses other than success that are answers, not refusals.
    """

    method: str
    path: str
    body: bytes | None = None
    safe: bool = True
    or_none: str | None = None
    wait: float = 0.0
    answers: frozenset[int] = frozenset()


HttpCalls = Generator[HttpCall, Any, T]
"""The calls of an operation in order: each yields a call and receives the JSON of the answer, or None (see
`or_none`)."""


def get(path: str, query: Query | None = None, *, or_none: str | None = None) -> HttpCall:
    """A GET request. Parameters with the server's default are left out."""
    given = None if query is None else urlencode(msgspec.to_builtins(query))
    return HttpCall("GET", f"{path}?{given}" if given else path, or_none=or_none)


def post(path: str, body: RequestBody | None = None, *, safe: bool = True, or_none: str | None = None) -> HttpCall:
    """A POST request. Fields with the server's default are left out."""
    return HttpCall("POST", path, None if body is None else encode(body), safe, or_none)


def api_path(*parts: str | int) -> str:
    """The path of a resource. Names may contain any character."""
    return "/api/" + "/".join(_quoted(str(part)) for part in parts)


def _quoted(part: str) -> str:
    # `.` and `..` have a meaning in a path.
    return quote(part, safe="") if part.strip(".") else part.replace(".", "%2E")


def write_operation(name: str, call: HttpCall, read: Callable[[Any], T], *, wakes: bool = False) -> Operation[T]:
    """An operation of one call that changes something."""
    return Operation(name, lambda: _one(call), wakes=wakes, decode=read)


def read_operation(name: str, call: HttpCall, read: Callable[[Any], T]) -> Operation[T]:
    """An operation of one call that changes nothing."""
    return Operation(name, lambda: _one(call), mode=Mode.READ, decode=read)


def _one(call: HttpCall) -> HttpCalls[Any]:
    return (yield call)


def split(sizes: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Distribute entries of these sizes over requests: the first and the last place (exclusive) of each."""
    parts, start, total = [], 0, 0
    for at, size in enumerate(sizes):
        if at > start and (total + size > FILL or at - start == most):
            parts.append((start, at))
            start, total = at, 0
        total += size + 1
    return [*parts, (start, len(sizes))] if sizes else []


def check_fits(what: str, size: int, count: int = 1) -> None:
    """Raise InvalidValue for a body that is too large. It would be stored all or none, so it cannot be split. `what`:
    the subject and verb of the message."""
    if count <= MAX_BATCH and size <= LIMIT:
        return
    raise InvalidValue(
        f"{what} not fit one request: {size:,} bytes, {count:,} entries. The server accepts {LIMIT:,} bytes and"
        f" {MAX_BATCH:,} entries.",
        hint="Send several smaller requests (a workflow can get more steps while it runs), or store large data"
        " elsewhere and send a reference to it.",
    )


def joined(entries: Sequence[bytes]) -> msgspec.Raw:
    """A JSON array of entries that are JSON already."""
    return msgspec.Raw(b"[" + b",".join(entries) + b"]")
