"""Params, results and errors of any size as text: an excerpt for the page, and the complete text for a download."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from dibs.encoded import describe, is_encoded, readable
from dibs.model.task import Failure

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
