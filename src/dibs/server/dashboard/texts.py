"""Params, results and errors of any size as text: a part of it on the page, the whole under an address of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from dibs.model.task import Failure

SHOWN = 20_000
"""Characters that stand on a page."""

PRETTY = 64_000
"""Characters of JSON up to which the whole is set out in lines; deep in a nest of lists, a number of one character
takes up more than a hundred."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The beginning of a text; `cut`: there is more."""

    text: str
    cut: bool


def excerpt(text: str) -> Excerpt:
    """As much of it as a page shows."""
    return Excerpt(text[:SHOWN], len(text) > SHOWN)


def pretty(value: Any) -> Excerpt:
    """The beginning of the JSON, one value a line. Only that part is ever made."""
    parts, length = [], 0
    for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(value):
        parts.append(part[: SHOWN + 1])
        length += len(part)
        if length > SHOWN:
            break
    return excerpt("".join(parts))


def whole_json(value: Any) -> str:
    """All of the JSON."""
    compact = json.dumps(value, ensure_ascii=False)
    return compact if len(compact) > PRETTY else json.dumps(value, ensure_ascii=False, indent=2)


def whole_error(error: Failure) -> str:
    """The error as Python would tell it."""
    return f"{error.traceback.rstrip()}\n\n{error.type}: {error.message}" if error.traceback else str_of(error)


def str_of(error: Failure) -> str:
    """Type and message."""
    return f"{error.type}: {error.message}" if error.type else error.message
