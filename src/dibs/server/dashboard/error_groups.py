"""Errors of one kind: those that say the same but for numbers, addresses and ids, as the dead letter groups them."""

from __future__ import annotations

import re

from dibs.errors import InvalidValue
from dibs.model.search import TaskSummary
from dibs.model.statistics import ErrorGroup, error_kind

CUT = 200
"""Characters of an error that a line of a list of tasks has."""

_KIND = re.compile("[0-9a-f]{32}")


def error_of(group: ErrorGroup) -> str:
    """The group's error as a line of a list shows it."""
    return f"{group.error_type}: {group.message}"[:CUT]


def is_of(kind: str, task: TaskSummary) -> bool:
    """True if the task's error is of this kind."""
    return error_kind(task.error_head) == kind


def check_kind(kind: str | None) -> None:
    """Refuse what names no kind: a search for it would find nothing, and look like a group that is empty."""
    if kind is not None and not _KIND.fullmatch(kind):
        raise InvalidValue(f"alike is no kind of error: {kind[:40]!r}.", hint="Follow a link of the dead letter again.")
