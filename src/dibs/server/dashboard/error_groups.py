"""Error groups: errors whose text is equal apart from numbers, addresses and ids."""

from __future__ import annotations

import re

from dibs.errors import InvalidValue
from dibs.model.search import TaskSummary
from dibs.model.statistics import ErrorGroup, error_kind

MAX_ERROR_LENGTH = 200
"""Maximum length of an error in a list of tasks."""

_KIND = re.compile("[0-9a-f]{32}")


def error_of(group: ErrorGroup) -> str:
    """Return the error of the group as a list of tasks shows it."""
    return f"{group.error_type}: {group.message}"[:MAX_ERROR_LENGTH]


def belongs_to(kind: str, task: TaskSummary) -> bool:
    """Return True if the error of the task belongs to the group `kind`."""
    return error_kind(task.error_head) == kind


def check_kind(kind: str | None) -> None:
    """Raise InvalidValue for text that is not the name of a group: a search for it would look like an empty group."""
    if kind is not None and not _KIND.fullmatch(kind):
        raise InvalidValue(
            f"alike is not an error group: {kind[:40]!r}.", hint="Open the dead letter and follow a link there."
        )
