"""Conversion of params and results to JSON, and the check of the values that dibs accepts.

Every engine accepts, stores and returns the same values. A value that one engine cannot store (NUL, lone surrogates,
integers beyond 64 bits, NaN) is refused here, before any engine receives it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from math import isfinite
from typing import Any

import msgspec

from dibs.encoded import MARK, checked, comparable, is_marked
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
    _check(value, what)
    return _text(value, what)


def _text(value: Any, what: str) -> str:
    text = msgspec.json.encode(value).decode()
    if len(text) > MAX_BYTES // 4:  # a character is at most four bytes: only long texts need counting
        _check_size(text, what)
    return text


def encode_params(params: Any) -> str:
    """The JSON text of a task's params, which must be an object."""
    if type(params) is not dict:
        raise InvalidValue(f"params must be a dict, not {_name(params)}.", hint='For one value use {"value": …}.')
    if MARK in params:
        params = checked(params, "params")
    try:
        _check_dict(params, 1)
    except _Refusal as refusal:
        raise refusal.of("params") from None
    return _text(params, "params")


def encode_result(result: Any) -> str:
    """The JSON text of a task's result."""
    return encode(checked(result, "result") if is_marked(result) else result, "result")


def encode_data(value: Any, what: str) -> bytes:
    """The JSON of a value for a codec, of any size. Raises InvalidValue if dibs does not accept the value."""
    _check(value, what)
    return msgspec.json.encode(value)


def encode_sorted(value: Any) -> bytes:
    """The JSON of a value with sorted keys: the same bytes for the same value."""
    return msgspec.json.encode(value, order="sorted")


def fingerprint(type_name: str, params: dict[str, Any]) -> str:
    """A digest of a task's type and params, independent of the order of keys: the content of an idempotency key.
    Encoded params are compared by their own fingerprint."""
    content = encode_sorted([type_name, comparable(params) if MARK in params else params])
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


class _Refusal(Exception):
    """A value that dibs does not accept. The message is `before`, the path of the value, and `after`. The path grows
    from its end while the exception passes the containers, so that values that are accepted cost no path."""

    def __init__(self, after: str, hint: str | None = None, *, before: str = "", limit: int | None = None) -> None:
        self.before = before
        self.after = after
        self.hint = hint
        self.limit = limit
        """The characters of the path that the message shows."""
        self.path: list[str] = []

    def of(self, what: str) -> InvalidValue:
        """The error for a value that is called `what`."""
        path = "".join([what, *reversed(self.path)])
        message = f"{self.before}{path[: self.limit]}{self.after}".encode(errors="replace").decode()
        return InvalidValue(message, hint=self.hint)


def _check(value: Any, what: str) -> None:
    try:
        _check_value(value, 0)
    except _Refusal as refusal:
        raise refusal.of(what) from None


def _check_value(value: Any, depth: int) -> None:
    kind = type(value)
    if kind is str:
        if not _is_storable(value):
            raise _unstorable(value)
    elif kind is int:
        if not MIN_INTEGER <= value <= MAX_INTEGER:
            raise _Refusal(" is an integer beyond 64 bits.", "Send it as a string.")
    elif kind is float:
        if not isfinite(value):
            raise _Refusal(f" is {value}, which JSON cannot hold.", "Use null or a string.")
    elif kind is dict or kind is list or kind is tuple:
        if depth == MAX_DEPTH:
            raise _Refusal(f"… is nested deeper than {MAX_DEPTH} levels.", limit=80)
        (_check_dict if kind is dict else _check_list)(value, depth + 1)
    elif value is not None and kind is not bool:
        raise _Refusal(
            f" is {_name(value)}, which is not JSON.",
            "Use dict, list, str, int, float, bool and None; convert dates, decimals and bytes to strings.",
        )


def _check_dict(value: dict[Any, Any], depth: int) -> None:
    key: Any = None
    try:
        for key, item in value.items():
            if type(key) is not str or not (key.isprintable() or _is_storable(key)):
                break
            _check_value(item, depth)
        else:
            return
    except _Refusal as refusal:
        refusal.path.append(f".{key}")
        raise
    raise _unusable_key(key)


def _check_list(value: Sequence[Any], depth: int) -> None:
    place = 0
    try:
        for place, item in enumerate(value):  # noqa: B007 - the except clause uses the place
            _check_value(item, depth)
    except _Refusal as refusal:
        refusal.path.append(f"[{place}]")
        raise


def _is_storable(text: str) -> bool:
    return "\x00" not in text if text.isascii() else _UNSTORABLE.search(text) is None


def _unstorable(text: str, before: str = "") -> _Refusal:
    found = _UNSTORABLE.search(text)
    if found is None or found[0] == "\x00":
        return _Refusal(" contains a NUL character.", "Remove it, or encode the value (base64).", before=before)
    return _Refusal(" contains a lone surrogate.", "Remove or encode it.", before=before)


def _unusable_key(key: Any) -> _Refusal:
    if type(key) is str:
        return _unstorable(key, before=f"the key {key!r} of ")
    which = format_number(key) if type(key) is int else repr(key)
    return _Refusal(f" has the key {which}, {_name(key)}; keys must be strings.")


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
