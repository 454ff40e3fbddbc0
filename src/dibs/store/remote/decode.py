"""Decode the server's answers into the model. Unknown fields are ignored: a newer server may send more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import msgspec

from dibs.errors import InvalidValue, StoreError
from dibs.wire.claims import NoneAvailable
from dibs.wire.errors import Refusal

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

NOTHING_PENDING = "nothing_pending"
"""The code for the only refusal that the server sends without a code: a claim that found no task."""


class WireAnswer(Protocol[T_co]):
    """A struct of `dibs.wire` that is an answer of the server."""

    def to_model(self) -> T_co:
        """The answer as a type of the model."""


def reader(kind: type[WireAnswer[T]]) -> Callable[[bytes], T]:
    """A function that decodes the bytes of an answer into the model."""
    return decoder(kind, lambda answer: answer.to_model())


def decoder(kind: type[Any], read: Callable[[Any], T]) -> Callable[[bytes], T]:
    """A function that decodes the bytes of an answer and applies `read`. It raises StoreError for an answer that this
    version of dibs does not understand."""
    decode = msgspec.json.Decoder(kind).decode

    def from_bytes(content: bytes) -> T:
        try:
            return read(decode(content))
        except InvalidValue as error:
            raise not_understood(error.message) from None
        except (msgspec.MsgspecError, ValueError) as error:
            raise not_understood(str(error)) from None

    return from_bytes


def reader_or(kind: type[WireAnswer[T]], absent: Any) -> Callable[[bytes | None], Any]:
    """`reader`, for a call with `or_none`: the result is `absent` if the answer is None."""
    read = reader(kind)
    return lambda content: absent if content is None else read(content)


def not_understood(what: str) -> StoreError:
    """The error for an answer that is not a valid answer of a dibs server."""
    return StoreError(
        f"The server's answer is not understood: {what}.",
        hint="Check that the URL is that of a dibs server, and that its version is close to the version of this dibs.",
    )


_decode_refusal = msgspec.json.Decoder(Refusal).decode
_decode_none_available = msgspec.json.Decoder(NoneAvailable).decode


def read_refusal(content: bytes) -> Refusal | None:
    """The refusal; None if the answer is not one of a dibs server."""
    try:
        return _decode_refusal(content)
    except (msgspec.MsgspecError, ValueError):
        pass
    try:
        return Refusal(error=_decode_none_available(content).message, code=NOTHING_PENDING)
    except (msgspec.MsgspecError, ValueError):
        return None
