"""Conversion of params and results to JSON, and the check of the values that dibs accepts.

Every engine accepts, stores and returns the same values. A value that one engine cannot store (NUL, lone surrogates,
integers beyond 64 bits, NaN) is refused here, before any engine receives it.
"""

from __future__ import annotations

import hashlib
import json
import re
from math import isfinite
from typing import Any

import msgspec

from dibs.errors import InvalidValue

MAX_DEPTH = 64
MAX_BYTES = 1024 * 1024
MAX_INTEGER = 2**63 - 1
MIN_INTEGER = -(2**63)
MAX_ERROR_TEXT = 64 * 1024
MAX_NAME = 255

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")

LONG_TEXT = 4096
"""Characters of JSON up to which the kind of its numbers does not matter."""

_EXTREME = ("e28", "e29", "e30", "e-29", "e-3")
"""In the numbers, as `encode` writes them, that msgspec decodes a hundred times as slowly as others: 7 microseconds for
1e308."""


def decode(text: str) -> Any:
    """The value of a JSON text that `encode` has made."""
    if len(text) > LONG_TEXT and sum(map(text.count, _EXTREME)) > len(text) // 256:
        return json.loads(text)  # slower for most texts, and not slowed down by any number
    return msgspec.json.decode(text)


def encode(value: Any, what: str = "value") -> str:
    """The JSON text of `value`. Raises InvalidValue if dibs does not accept it."""
    _check(value, what, 0)
    text = msgspec.json.encode(value).decode()
    if len(text) > MAX_BYTES // 4:  # a character is at most four bytes: only long texts need counting
        _check_size(text, what)
    return text


def encode_params(params: Any) -> str:
    """The JSON text of a task's params, which must be an object."""
    if type(params) is not dict:
        raise InvalidValue(f"params must be a dict, not {_name(params)}.", hint='For one value use {"value": …}.')
    return encode(params, "params")


def fingerprint(type_name: str, params: dict[str, Any]) -> str:
    """A digest of a task's type and params, independent of the order of keys: the content of an idempotency key."""
    content = msgspec.json.encode([type_name, params], order="sorted")
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def same(one: Any, other: Any) -> bool:
    """True if both are the same JSON value. Numbers are compared by value (1 equals 1.0), objects without regard to the
    order of keys, tuples as arrays. Booleans are not numbers."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return isinstance(other, (list, tuple)) and len(one) == len(other) and all(map(same, one, other))
    return not isinstance(other, (dict, list, tuple)) and bool(one == other)


def clean_text(text: str) -> str:
    """Convert an error message to a text that every engine can store.

    A program does not choose its error messages, and a failure must always be stored: characters that cannot be stored
    are replaced by a visible sign, and of a long text the end is kept, where a traceback names the cause.
    """
    if len(text) > MAX_ERROR_TEXT:
        text = f"… {text[-MAX_ERROR_TEXT:]}"
    return _UNSTORABLE.sub(lambda match: "␀" if match[0] == "\x00" else "�", text)


def check_name(name: Any, what: str) -> str:
    """Check a name (task type, queue, key …): a non-empty single line of at most 255 characters."""
    if type(name) is not str:
        raise InvalidValue(f"{what} must be a string, not {_name(name)}.")
    if not name or len(name) > MAX_NAME:
        raise InvalidValue(f"{what} must have 1 to {MAX_NAME} characters; this one has {len(name)}.")
    if not (name.isascii() and name.isprintable()) and (_CONTROL.search(name) or _UNSTORABLE.search(name)):
        raise InvalidValue(f"{what} {name!r} contains a control character or a lone surrogate.")
    return name


def check_text(text: Any, what: str) -> str | None:
    """Check for a string or None."""
    if text is not None and type(text) is not str:
        raise InvalidValue(f"{what} must be a string, not {_name(text)}.")
    return text


def format_number(number: float, style: str = "") -> str:
    """A number for a message: Python refuses to format integers with thousands of digits."""
    if type(number) is int and number.bit_length() > 1024:
        return "a number of hundreds of digits"
    return format(number, style)


def _check(value: Any, path: str, depth: int) -> None:
    kind = type(value)
    if kind is str:
        _check_text(value, path)
    elif kind is int:
        if not MIN_INTEGER <= value <= MAX_INTEGER:
            raise InvalidValue(f"{path} is an integer beyond 64 bits.", hint="Send it as a string.")
    elif kind is float:
        if not isfinite(value):
            raise InvalidValue(f"{path} is {value}, which JSON cannot hold.", hint="Use null or a string.")
    elif kind is dict or kind is list or kind is tuple:
        _check_container(value, path, depth + 1)
    elif value is not None and kind is not bool:
        raise InvalidValue(
            f"{path} is {_name(value)}, which is not JSON.",
            hint="Use dict, list, str, int, float, bool and None; convert dates, decimals and bytes to strings.",
        )


def _check_container(value: Any, path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise InvalidValue(f"{path[:80]}… is nested deeper than {MAX_DEPTH} levels.")
    if type(value) is not dict:
        for place, item in enumerate(value):
            _check(item, f"{path}[{place}]", depth)
        return
    for key, item in value.items():
        if type(key) is not str:
            which = format_number(key) if type(key) is int else repr(key)
            raise InvalidValue(f"{path} has the key {which}, {_name(key)}; keys must be strings.")
        _check_text(key, f"the key {key!r} of {path}")
        _check(item, f"{path}.{key}", depth)


def _check_text(text: str, path: str) -> None:
    if text.isascii():
        if "\x00" in text:
            raise InvalidValue(f"{path} contains a NUL character.", hint="Remove it, or encode the value (base64).")
    elif found := _UNSTORABLE.search(text):
        what = "a NUL character" if found[0] == "\x00" else "a lone surrogate"
        raise InvalidValue(f"{path} contains {what}.".encode(errors="replace").decode(), hint="Remove or encode it.")


def _check_size(text: str, what: str) -> None:
    size = len(text.encode())
    if size > MAX_BYTES:
        raise InvalidValue(
            f"{what} takes {size:,} bytes as JSON; the limit is {MAX_BYTES:,}.",
            hint="Keep large data elsewhere (a file, a bucket, a table) and send a reference to it.",
        )


def _name(value: Any) -> str:
    name = type(value).__name__
    return f"an {name}" if name[:1] in "aeiou" else f"a {name}"
