"""Conversion between Python values and JSON by annotation, the same for the arguments and the results of handlers.

A value of any type that msgspec supports (datetime, UUID, dataclass, attrs class, msgspec.Struct …), a path or a
Pydantic model becomes JSON, and the annotation converts the JSON back. See storable.py for what cannot be converted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec

from dibs.errors import InvalidValue, ResultMismatch
from dibs.handlers.custom_types import INNER, decode_custom, encode_custom

if TYPE_CHECKING:
    from dibs.model.task import TaskRecord

_inspect_lock = threading.Lock()


def to_json(value: Any) -> Any:
    """The value as JSON types. Raises what the type of the value raises if that is not possible."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=encode_custom)


def to_sorted_json(value: Any) -> Any:
    """The value as JSON types, the same for equal values: sets have no order, and an idempotency key compares lists."""
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=encode_custom, order="deterministic")
    except TypeError:  # a set of values that cannot be compared
        return to_json(value)


def from_json(value: Any, kind: Any) -> Any:
    """The JSON value as the annotated type, which was `inspected`. Raises msgspec.ValidationError if it does not
    fit."""
    return msgspec.convert(value, kind, str_keys=True, dec_hook=decode_custom)


def inspected(kind: Any) -> Any:
    """Let msgspec inspect the type under a lock, and return the type.

    Otherwise msgspec inspects it in the first conversion, and a second thread that converts at the same time sees half
    of it and crashes the process (seen with msgspec 0.22). All handlers share the lock, because two handlers may share
    types.
    """
    with _inspect_lock:
        msgspec.json.Decoder(kind)
    return kind


def annotations_of(function: Callable[..., Any]) -> Mapping[str, Any] | None:
    """The annotations of the function as types, by name; None if only a type checker can resolve them."""
    try:
        return get_type_hints(function, include_extras=True)
    except Exception:
        return None


PLAIN = (Any, None, bool, int, float, str, list, dict)
"""Annotations of plain JSON, which need no examination."""


def is_plain(annotation: Any) -> bool:
    """True for an annotation of plain JSON."""
    return any(annotation is each for each in PLAIN)


def checked(handler: str, what: str, annotation: Any) -> Any:
    """The annotation, or Any if its values stay plain JSON. InvalidValue if its values cannot be stored.

    `what`: "the argument picture", or "the result"."""
    if is_plain(annotation):
        return annotation
    from dibs.handlers.storable import NotStorable, convertible  # handlers of plain JSON do without it

    try:
        return convertible(annotation)
    except NotStorable as refusal:
        message = f"The handler {handler!r} cannot store {what}: {refusal.reason}."
        raise InvalidValue(message, hint=refusal.hint) from None


def has_models(annotation: Any) -> bool:
    """True if values of the annotation, which was `checked`, contain Pydantic models."""
    if is_plain(annotation):
        return False
    from dibs.handlers import storable

    return storable.has_models(annotation)


def has_sets(annotation: Any) -> bool:
    """True if values of the annotation, which was `checked`, contain sets."""
    if is_plain(annotation):
        return False
    from dibs.handlers import storable

    return storable.has_sets(annotation)


def plain_message(error: msgspec.ValidationError) -> str:
    """The message of the error, with the name of the value instead of its path."""
    message, _, outer = str(error).partition(" - at `$")
    message, _, inner = message.partition(INNER)
    place = f"{outer.removesuffix('`')}{inner}".removeprefix(".")
    return f"{message} for `{place}`" if place else message


class ReturnType:
    """Converts the results of one function. The annotation is read at the first result, so that programs that read no
    results do no work."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name = name
        self._function = function

    def convert(self, task: TaskRecord[Any]) -> Any:
        """The result of the completed task. Raises ResultMismatch if it does not fit the annotation."""
        if self._kind is Any:
            return task.raw_result
        try:
            return from_json(task.raw_result, self._kind)
        except msgspec.ValidationError as error:
            raise ResultMismatch(
                f"The result of task {task.id} ({task.type}) does not match the return type of the handler "
                f"{self._name!r}: {plain_message(error)}.",
                task_id=task.id,
                hint="`task.raw_result` has the stored JSON. Another program, or an earlier version of the handler, may"
                " have completed the task.",
            ) from None

    def annotation(self) -> Any:
        """The annotation of the result; Any without one."""
        return (annotations_of(self._function) or {}).get("return", Any)

    def check(self) -> None:
        """Raise InvalidValue if results cannot be stored. Annotations that cannot be resolved yet are not checked."""
        if annotations_of(self._function) is not None:
            checked(self._name, "the result", self.annotation())

    @cached_property
    def _kind(self) -> Any:
        kind = checked(self._name, "the result", self.annotation())
        return kind if kind is Any else inspected(kind)
