"""Values as text for a page: params, results and errors of any size as an excerpt, durations, hidden characters."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from typing import Any

from dibs.encoded import describe, is_encoded, readable
from dibs.model.task import Failure

DASH = "\N{EN DASH}"
EXCERPT_LENGTH = 20_000
"""Maximum number of characters on a page."""

MAX_INDENTED = 64_000
"""Maximum length of JSON that is indented in a download: in deeply nested lists, indentation needs more than a hundred
characters for one digit."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The beginning of a text. `cut`: the text is longer."""

    text: str
    cut: bool


def excerpt(text: str) -> Excerpt:
    """Return the part of a text that a page shows."""
    return Excerpt(text[:EXCERPT_LENGTH], len(text) > EXCERPT_LENGTH)


def pretty(value: Any) -> Excerpt:
    """Return the beginning of indented JSON; an encoded value in words. Only the beginning is written as JSON."""
    if is_encoded(value):
        return Excerpt(describe(value), cut=False)
    parts, length = [], 0
    for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(readable(value)):
        parts.append(part[: EXCERPT_LENGTH + 1])
        length += len(part)
        if length > EXCERPT_LENGTH:
            break
    return excerpt("".join(parts))


def whole_json(value: Any) -> str:
    """Return the complete JSON."""
    compact = json.dumps(value, ensure_ascii=False)
    return compact if len(compact) > MAX_INDENTED else json.dumps(value, ensure_ascii=False, indent=2)


def whole_error(error: Failure) -> str:
    """Return the traceback, type and message of an error."""
    return f"{error.traceback.rstrip()}\n\n{error.type}: {error.message}" if error.traceback else str_of(error)


def str_of(error: Failure) -> str:
    """Return the type and message of an error."""
    return f"{error.type}: {error.message}" if error.type else error.message


def seconds(value: float | None, *, rough: bool = False) -> str:
    """Format a duration: 3 ms, 1.2 s, 4 min 10 s, 3 h 5 min, 2 d 4 h. `rough`: only one unit."""
    if value is None:
        return DASH
    if value < 60:
        if rough:
            return f"{int(value)} s"
        return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"
    for size, unit, smaller, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if value >= size:
            rest = int(value % size // smaller)
            return f"{int(value // size)} {unit}" + (f" {rest} {name}" if rest and not rough else "")
    raise AssertionError(value)


def shorten(text: str, length: int = 120) -> str:
    """Shorten a long text."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def visible(text: str) -> str:
    """Replace control characters by visible symbols: a browser would hide them or change the direction of the text."""
    if text.isprintable():  # the fast path for nearly all texts
        return text
    return "".join(_shown(sign) for sign in text)


def _shown(sign: str) -> str:
    code = ord(sign)
    if code < 32 and sign not in "\n\t":
        return chr(0x2400 + code)
    if unicodedata.category(sign) in _INVISIBLE and sign not in "\n\t":
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return sign


_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of invisible characters, direction marks and lone surrogates."""
