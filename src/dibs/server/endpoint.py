"""An endpoint: who may call it, what it takes, what it answers. The API's description is made from the same values.

The handler is a plain function from a call to an answer; authentication, limits, decoding and refusals stand here,
once, in the order in which they protect each other: the key before the limit, the limit before the body.
"""

from __future__ import annotations

import asyncio
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
from dibs.wire.fields import Query, whole_numbers

T = TypeVar("T")
ANY = frozenset(KeyScope)
TRACEPARENT: Mapping[str, Any] = {
    "name": "traceparent",
    "in": "header",
    "description": "The span of who asks (W3C Trace Context): the trace of what is enqueued without a `traceparent` of "
    "its own. What is no traceparent is passed over.",
    "schema": {"type": "string"},
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What an endpoint answers: a status, and a value that is encoded as JSON."""

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
        """Run the operation in the caller's name."""
        return await self.service.store.run_async(operation, by=self.caller.by)

    @property
    def task_id(self) -> int:
        """The task in the path. A number that no task can have is that of a task that does not exist."""
        task_id: int = self.path["id"]
        if task_id >= 2**63:
            raise TaskNotFound(task_id)
        return task_id

    @property
    def trace(self) -> str | None:
        """The span of who asks, from the header of its request. What is no traceparent is passed over, as W3C asks."""
        said = header(self.http[0], b"traceparent")
        trace = None if said is None else said.decode("latin-1")
        return trace if is_trace(trace) else None

    async def visible(self, task_ids: Sequence[int]) -> frozenset[int] | None:
        """Those of the tasks that the caller may see; None for all. A task never changes its queue."""
        if self.caller.queues is None:
            return None
        queues = await self.run(self.service.store.tasks.queues_of(task_ids))
        return frozenset(task_id for task_id, queue in queues.items() if self.caller.serves(queue))

    @asynccontextmanager
    async def departure(self) -> AsyncIterator[asyncio.Future[None]]:
        """Resolved when the client goes away, for those who make it wait."""
        gone = asyncio.ensure_future(_departed(self.http[1]))
        try:
            yield gone
        finally:
            gone.cancel()

    async def check_visible(self, task_id: int) -> None:
        """Refuse a task of a queue that is not the caller's: to it, there is no such task."""
        seen = await self.visible([task_id])
        if seen is not None and task_id not in seen:
            raise TaskNotFound(task_id)


Handle = Callable[[Call], Awaitable[Answer | None]]
"""None: the handler has answered by itself."""


@dataclass(frozen=True)
class Endpoint:
    """One method of one path, as an ASGI application.

    `scopes`: a key needs one of them; empty for what needs no key. `answers`: status to (the type of its content, what
    it means); refusals that any endpoint can give are added by the description. `media`: what a good answer is, where
    that is not JSON. `headers`: those that it reads, in the words of the description.
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
        object.__setattr__(self, "_asked", as_text(self.query or NoQuery))

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        service: Service = scope["dibs.service"]
        try:
            caller = await service.admit(scope, self.scopes)
            call = Call(service, caller, scope["path_params"], self._query(scope), None, (scope, receive, send))
            if self.body is not None:
                call.body = self._decode(scope, await read_body(scope, receive))
            answered = await self.handle(call)
        except ClientDisconnected:
            return
        except DibsError as error:
            if isinstance(error, StoreError):
                service.log_failure(error)
            await send_error(send, error)
            return
        if answered is not None:
            await send_json(send, answered.status, answered.content, answered.headers)

    def _query(self, scope: AsgiScope) -> Any:
        text: bytes = scope["query_string"]
        if self.query is None and not text:
            return None
        return decode_query(text, self._asked)  # type: ignore[attr-defined]

    def _decode(self, scope: AsgiScope, body: bytes) -> Any:
        if not body and self.body_optional:
            body = b"{}"
        elif not is_json(header(scope, b"content-type")):
            raise RequestRefused(
                "unsupported_media_type",
                "The body must be JSON, and say so.",
                hint="Send the header Content-Type: application/json.",
            )
        return decode_json(self._decoder, body)  # type: ignore[attr-defined]


def endpoint(method: str, path: str, *scopes: KeyScope, **about: Any) -> Callable[[Handle], Endpoint]:
    """Make a function the handler of an endpoint; its docstring is what the description says of it."""

    def declare(handle: Handle) -> Endpoint:
        return Endpoint(method, path, handle, frozenset(scopes), **about)

    return declare


class NoQuery(Query, frozen=True):
    """No parameters."""


def as_text(model: Any) -> Any:
    """The model for a query: its values are texts, so that `null` there is a name like any other, never nothing."""
    hints = get_type_hints(model, include_extras=True)
    fields = [(each.name, _without_none(hints[each.name]), _default(each)) for each in msgspec.structs.fields(model)]
    return msgspec.defstruct(model.__name__, fields, bases=(model,), frozen=True, kw_only=True)


def _without_none(hint: Any) -> Any:
    kinds = tuple(each for each in get_args(hint) if each is not NoneType)
    return Union[kinds] if get_origin(hint) in (Union, UnionType) else hint  # noqa: UP007 - made of a tuple


def _default(about: Any) -> Any:
    name = about.encode_name
    return msgspec.field(name=name) if about.required else msgspec.field(name=name, default=about.default)


async def _departed(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":  # what comes before that is a body that nobody asked for
        pass


def decode_json(decoder: Any, body: bytes) -> Any:
    """The value of a JSON body; anything but what is expected there is refused, with the place where it stands."""
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
        try:  # near the end of a body, half of a surrogate pair is taken for a body that was cut off
            decoder.decode(body + b" " * 12)
        except (msgspec.DecodeError, ValueError) as clearer:
            error = clearer
    return _sentence(error)


def _decode(decoder: Any, body: bytes) -> Any:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        if "got `float`" not in str(error):
            raise
    return decoder.decode(msgspec.json.encode(whole_numbers(msgspec.json.decode(body))))


def decode_query(text: bytes, model: Any) -> Any:
    """The parameters of a query, each given once and known."""
    try:
        pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, strict_parsing=bool(text), errors="strict")
        given = dict(pairs)
        if len(given) < len(pairs):
            raise RequestRefused("bad_request", "A query parameter is given twice.")
        return msgspec.convert(given, model, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise RequestRefused("bad_request", _sentence(error)) from None


def is_json(content_type: bytes | None) -> bool:
    """True for application/json, whatever charset it names."""
    return content_type is not None and content_type.split(b";", 1)[0].strip().lower() == b"application/json"


def _sentence(error: Exception) -> str:
    text = str(error).encode(errors="replace").decode() or type(error).__name__
    return text if text.endswith(".") else f"{text}."
