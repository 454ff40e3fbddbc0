"""The stored form of encoded values: params, results and checkpoints that a codec of the user has made unreadable.

An encoded value is a JSON object with exactly these members, whatever program has made it:

    {"$encoded": "aes", "fingerprint": "9f86d081884c7d65…", "data": "gAAAAABl…"}

`$encoded` is the name of the codec, `data` the encoded bytes in base64, and `fingerprint` 16 to 64 bytes as lowercase
hex digits, by which dibs compares the value: the data of the same value may differ each time it is encoded. dibs reads
the name and the fingerprint; only the codec reads the data. An object with the key `$encoded` that has another form is
refused, so no plain value is taken for an encoded one.
"""

from __future__ import annotations

import binascii
import re
from typing import Any

from dibs.errors import InvalidValue

MARK = "$encoded"
"""The key by which an object is known as an encoded value."""

_NAME = "[A-Za-z0-9._-]{1,64}"
_BEGINNING = rf'\{{"\$encoded":"({_NAME})"'
_FINGERPRINT = "(?:[0-9a-f]{2}){16,64}"
_MEMBERS = frozenset({MARK, "fingerprint", "data"})


def is_encoded(value: Any) -> bool:
    """True if a stored value is encoded. Only the results of a sub-workflow, by the names of its steps, can have the
    mark as a key and not be encoded."""
    return is_marked(value) and value.keys() == _MEMBERS and all(type(member) is str for member in value.values())


def is_marked(value: Any) -> bool:
    """True if a value to store is an encoded value, or must be refused."""
    return type(value) is dict and MARK in value


def is_name(name: Any) -> bool:
    """True if a codec can have this name."""
    return type(name) is str and re.fullmatch(_NAME, name) is not None


def encoded_value(name: str, data: bytes, fingerprint: bytes) -> dict[str, Any]:
    """The stored form. The mark comes first, so that SQL finds it at the beginning of the text."""
    return {MARK: name, "fingerprint": fingerprint.hex(), "data": binascii.b2a_base64(data, newline=False).decode()}


def checked(value: dict[str, Any], what: str) -> dict[str, Any]:
    """The encoded value with its members in their order. Raises InvalidValue if it has another form."""
    if (problem := _problem(value)) is not None:
        raise InvalidValue(
            f"The key {MARK!r} in {what} is reserved for encoded values, and this is none: {problem}.",
            hint=f'An encoded value is {{"{MARK}": NAME, "fingerprint": HEX, "data": BASE64}}. In other values, use '
            "another key.",
        )
    return {name: value[name] for name in (MARK, "fingerprint", "data")}


def codec_of(value: dict[str, Any]) -> str:
    """The name of the codec that has encoded the value."""
    name: str = value[MARK]
    return name


def data_of(value: dict[str, Any]) -> bytes:
    """The encoded bytes."""
    return binascii.a2b_base64(value["data"])


def comparable(value: Any) -> Any:
    """The value itself, or for an encoded one what comparisons use: its fingerprint. The name of the codec does not
    count, so that a new codec with the same fingerprints may follow an old one."""
    return {MARK: value["fingerprint"]} if is_encoded(value) else value


def describe(value: dict[str, Any]) -> str:
    """An encoded value in words, for people: without its data."""
    return f"encoded by {value[MARK]}, {_size(value['data']):,} bytes"


def readable(value: Any) -> Any:
    """A stored value for people: an encoded one in words, also among the results of a workflow by step."""
    if is_encoded(value):
        return describe(value)
    if type(value) is dict:
        return {name: describe(item) if is_encoded(item) else item for name, item in value.items()}
    return value


def describe_text(text: str) -> str:
    """The beginning of the JSON of params, for people: of encoded params in words."""
    found = re.match(_BEGINNING, text)
    return text if found is None else f"encoded by {found[1]}"


def _problem(value: dict[str, Any]) -> str | None:
    name, fingerprint, data = value[MARK], value.get("fingerprint"), value.get("data")
    if not is_name(name):
        return "the name of a codec has 1 to 64 letters, digits, dots, underscores and hyphens"
    if type(fingerprint) is not str or not re.fullmatch(_FINGERPRINT, fingerprint):
        return "its fingerprint must be 32 to 128 lowercase hex digits"
    if type(data) is not str or not _is_base64(data):
        return "its data must be base64 with padding"
    others = value.keys() - _MEMBERS
    return f"it also has {str(next(iter(others)))[:40]!r}" if others else None


def _is_base64(data: str) -> bool:
    try:
        binascii.a2b_base64(data, strict_mode=True)
    except ValueError:  # also for a text that is not ASCII
        return False
    return True


def _size(data: str) -> int:
    return len(data) * 3 // 4 - data[-2:].count("=")
