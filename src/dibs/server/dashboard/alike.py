"""Errors of one kind: those that say the same but for numbers, addresses and ids."""

from __future__ import annotations

from dibs.store.operations.sampling import ErrorGroup, kind_of

NONE = "no error"
"""Stands for the error of tasks that have none."""

CUT = 200
"""Characters of an error that a line of a list of tasks has."""

TAIL = 24
"""Characters before the cut that are not compared: numbers differ in length, and a word may be cut in two."""


def error_of(group: ErrorGroup) -> str:
    """The group's error as a line of a list shows it."""
    return f"{group.error_type}: {group.message}"[:CUT] if group.error_type or group.message else NONE


def alike(error: str | None, other: str) -> bool:
    """True for errors of one kind."""
    if error is None or other == NONE:
        return error is None and other == NONE
    if len(error) < CUT and len(other) < CUT:
        return kind_of(error) == kind_of(other)
    return min(len(error), len(other)) >= CUT - TAIL and _head(error, other) == _head(other, error)


def common_text(error: str) -> str | None:
    """A text that stands in every error of this kind, the longest."""
    if error == NONE:
        return None
    sure = error if len(error) < CUT else error[: CUT - TAIL].rpartition(" ")[0]
    return max((part.strip() for part in kind_of(sure).split("#")), key=len) or None


def _head(error: str, other: str) -> str:
    mine, its = kind_of(error), kind_of(other)
    return mine[: min(len(mine), len(its)) - TAIL]
