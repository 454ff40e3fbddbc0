"""Endpoints: required scopes, request body and query, answers. The OpenAPI document is created from the same values.

A handler is a function from a call to an answer. Authentication, rate limits, decoding and error responses are
implemented here for all endpoints. Their order protects the server: the key is checked before the rate limit, and the
rate limit before the body is read.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

import msgspec

from dibs.errors import DibsError, StoreError, TaskNotFound
from dibs.model.checks import is_trace
from dibs.model.key import Scope as KeyScope
from dibs.server.auth import Caller
from dibs.server.http import (
    AsgiScope,
    ClientDisconnected,
    Headers,
    Receive,
    Send,
    header,
    read_body,
    send_error,
    send_json,
)
from dibs.server.service import Service
from dibs.store.operation import Operation
from dibs.wire.errors import RequestRefused
from dibs.wire.fields import Query, readable, whole_numbers

T = TypeVar("T")
ANY = frozenset(KeyScope)
TRACEPARENT: Mapping[str, Any] = {
    "name": "traceparent",
    "in": "header",
    "description": "The span of the caller (W3C Trace Context). Tasks that are enqueued without a `traceparent` get "
    "this one. An invalid value is ignored.",
    "schema": {"type": "string"},
}


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of an endpoint: a status, and a value that is encoded as JSON."""

    content: Any
    status: int = 200
    headers: Headers = ()


@dataclass(slots=True)
class Call:
    """One request, authenticated and decoded."""

    service: Service
    caller: Caller
    path: Mapping[str, Any]
    query: Any
    body: Any
    http: tuple[AsgiScope, Receive, Send]

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation; the history records the name of the caller."""
        return await self.service.store.run_async(operation, by=self.caller.by)

    @property
    def task_id(self) -> int:
        """The id of the task in the path. An id beyond 64 bits is answered as an unknown task."""
        task_id: int = self.path["id"]
        if task_id >= 2**63:
            raise TaskNotFound(task_id)
        return task_id

    @property
    def trace(self) -> str | None:
        """The span of the caller, from the header `traceparent`. W3C requires that an invalid value is ignored."""
        value = header(self.http[0], b"traceparent")
        trace = None if value is None else value.decode("latin-1")
        return trace if is_trace(trace) else None

    async def visible(self, task_ids: Sequence[int]) -> frozenset[int] | None:
        """Return the ids of the tasks that the caller may see; None for all. Another client may move a waiting task to
        another queue after this check: then the call counts as made before the move."""
        if self.caller.queues is None:
            return None
        queues = await self.run(self.service.store.tasks.queues_of(task_ids))
        return frozenset(task_id for task_id, queue in queues.items() if self.caller.serves(queue))

    @asynccontextmanager
    async def disconnection(self) -> AsyncIterator[asyncio.Future[None]]:
        """Yield a future that is resolved when the client disconnects, for handlers that wait."""
        disconnected = asyncio.ensure_future(_wait_for_disconnect(self.http[1]))
        try:
            yield disconnected
        finally:
            disconnected.cancel()

    async def check_visible(self, task_id: int) -> None:
        """Raise TaskNotFound for a task that the caller may not see."""
        visible = await self.visible([task_id])
        if visible is not None and task_id not in visible:
            raise TaskNotFound(task_id)


Handle = Callable[[Call], Awaitable[Answer | None]]
"""A handler. It returns None if it has sent the response by itself."""


@dataclass(frozen=True)
class Endpoint:
    """One method of one path, as an ASGI application.

    `scopes`: a key needs one of them; empty if no key is needed. `answers`: status to (type of the content, meaning).
    `refuses`: status to meaning, for errors of this endpoint; the OpenAPI document adds the errors that are common to
    all endpoints. `media`: the content type of the answers. `headers`: the request headers that the endpoint reads, as
    OpenAPI parameters.
    """

    method: str
    path: str
    handle: Handle
    scopes: frozenset[KeyScope]
    tag: str
    body: Any = None
    query: Any = None
    answers: Mapping[int, tuple[Any, str]] = field(default_factory=dict)
    refuses: Mapping[int, str] = field(default_factory=dict)
    examples: Mapping[str, Any] = field(default_factory=dict)
    body_optional: bool = False
    media: str = "application/json"
    headers: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        decoder = None if self.body is None else msgspec.json.Decoder(self.body)
        object.__setattr__(self, "_decoder", decoder)
        object.__setattr__(self, "_query_model", as_text(self.query or NoQuery))

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        service: Service = scope["dibs.service"]
        try:
            caller = await service.admit(scope, self.scopes)
            call = Call(service, caller, scope["path_params"], self._query(scope), None, (scope, receive, send))
            if self.body is not None:
                call.body = self._decode(scope, await read_body(scope, receive))
            answer = await self.handle(call)
        except ClientDisconnected:
            return
        except DibsError as error:
            if isinstance(error, StoreError):
                service.log_failure(error)
            await send_error(send, error)
            return
        if answer is not None:
            await send_json(send, answer.status, answer.content, answer.headers)

    def _query(self, scope: AsgiScope) -> Any:
        text: bytes = scope["query_string"]
        if self.query is None and not text:
            return None
        return decode_query(text, self._query_model)  # type: ignore[attr-defined]

    def _decode(self, scope: AsgiScope, body: bytes) -> Any:
        if not body and self.body_optional:
            body = b"{}"
        elif not is_json(header(scope, b"content-type")):
            raise RequestRefused(
                "unsupported_media_type",
                "The body must be JSON with the content type application/json.",
                hint="Send the header Content-Type: application/json.",
            )
        return decode_json(self._decoder, body)  # type: ignore[attr-defined]


def endpoint(method: str, path: str, *scopes: KeyScope, **about: Any) -> Callable[[Handle], Endpoint]:
    """Declare a function as the handler of an endpoint; its docstring is the description in the OpenAPI document."""

    def declare(handle: Handle) -> Endpoint:
        return Endpoint(method, path, handle, frozenset(scopes), **about)

    return declare


class NoQuery(Query, frozen=True):
    """No parameters."""


def as_text(model: Any) -> Any:
    """Return the model for a query string. Its values are texts, so `null` is a text like any other."""
    hints = get_type_hints(model, include_extras=True)
    fields = [(each.name, _without_none(hints[each.name]), _default(each)) for each in msgspec.structs.fields(model)]
    return msgspec.defstruct(model.__name__, fields, bases=(model,), frozen=True, kw_only=True)


def _without_none(hint: Any) -> Any:
    kinds = tuple(each for each in get_args(hint) if each is not NoneType)
    return Union[kinds] if get_origin(hint) in (Union, UnionType) else hint  # noqa: UP007 - created from a tuple


def _default(about: Any) -> Any:
    name = about.encode_name
    return msgspec.field(name=name) if about.required else msgspec.field(name=name, default=about.default)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":  # other messages are parts of an unexpected body
        pass


def decode_json(decoder: Any, body: bytes) -> Any:
    """Return the value of a JSON body. An unexpected value is refused with its location."""
    try:
        return _decode(decoder, body)
    except DibsError:
        raise
    except RecursionError:
        raise RequestRefused("bad_request", "The JSON is nested too deeply.") from None
    except UnicodeDecodeError:
        raise RequestRefused("bad_request", "The body is not UTF-8.") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise RequestRefused("bad_request", _malformed(decoder, body, error)) from None


def _malformed(decoder: Any, body: bytes, error: Exception) -> str:
    if not body:
        return "The body is empty."
    if "truncated" in str(error):
        try:  # msgspec reports half of a surrogate pair near the end of a body as a truncated body
            decoder.decode(body + b" " * 12)
        except (msgspec.DecodeError, ValueError) as clearer:
            error = clearer
    return _sentence(error)


MOST_EXTREME = 5000
"""Numbers in a body that are slow to decode: 7 microseconds each, in which the event loop does nothing else."""

_EXTREME = re.compile(rb"[0-9.][eE][+-]?0*[23][0-9][0-9]")


def _check_numbers(body: bytes) -> None:
    """Refuse a body that would take long to decode. Few bodies are long and have so many letters e and digits."""
    if body.count(b"e") + body.count(b"E") <= MOST_EXTREME:
        return
    if sum(1 for _ in _EXTREME.finditer(body)) > MOST_EXTREME:
        raise RequestRefused(
            "bad_request",
            f"The body has more than {MOST_EXTREME:,} numbers with an exponent of 200 and more.",
            hint="Send such numbers as strings.",
        )


def _decode(decoder: Any, body: bytes) -> Any:
    _check_numbers(body)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        if "got `float`" not in str(error):
            raise
    return decoder.decode(msgspec.json.encode(whole_numbers(msgspec.json.decode(body))))


def decode_query(text: bytes, model: Any) -> Any:
    """Return the parameters of a query string. Unknown and repeated parameters are refused."""
    try:
        pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, strict_parsing=bool(text), errors="strict")
        given = dict(pairs)
        if len(given) < len(pairs):
            raise RequestRefused("bad_request", "A query parameter is given twice.")
        return msgspec.convert(given, model, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise RequestRefused("bad_request", _sentence(error)) from None


def is_json(content_type: bytes | None) -> bool:
    """Return True for application/json, with any charset."""
    return content_type is not None and content_type.split(b";", 1)[0].strip().lower() == b"application/json"


def _sentence(error: Exception) -> str:
    text = readable(error).encode(errors="replace").decode() or type(error).__name__
    return text if text.endswith(".") else f"{text}."
