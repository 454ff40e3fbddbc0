"""Unique tasks: how long an idempotency key is in force, and what an enqueue does that meets a task with its key."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from dibs.errors import InvalidValue
from dibs.model.checks import check_request_id, check_seconds

if TYPE_CHECKING:
    from dibs.model.task import NewTask, Task


class KeyScope(StrEnum):
    """How long a task has its idempotency key."""

    ALWAYS = "always"  # until the task is pruned
    UNTIL_FINISHED = "until_finished"  # until the task is completed, failed or cancelled
    UNTIL_STARTED = "until_started"  # until a worker claims the task for the first time, or the task is cancelled
    UNTIL_TIME = "until_time"  # until `key_until`, even if the task is pruned before
    ENDED = "ended"  # no longer, because another task has taken the key


class OnConflict(StrEnum):
    """What an enqueue does if its key is in force."""

    RETURN = "return"  # the existing task for the same content, KeyConflict for other content
    KEEP = "keep"  # the existing task, whatever its content
    RAISE = "raise"  # KeyConflict
    REPLACE = "replace"  # a task that has not started gets the new content


SCOPES = (KeyScope.ALWAYS.value, KeyScope.UNTIL_FINISHED.value, KeyScope.UNTIL_STARTED.value)
"""The scopes that an enqueue may give; a time is given by `key_for`."""

RULES = tuple(rule.value for rule in OnConflict)


def check_key_rules(task: NewTask) -> None:
    """Check the options of a new task about its key. Raises InvalidValue."""
    _check_word(task.key_scope, SCOPES, "key_scope")
    _check_word(task.on_conflict, RULES, "on_conflict")
    if task.key is None and _has_key_rules(task):
        raise InvalidValue(
            "key_scope, key_for, on_conflict, max_delay and request are about the key of a task; this task has none.",
            hint='Pass the key as well; for a handler: resize.options(key="image-7").enqueue(…).',
        )
    if task.request is not None:
        check_request_id(task.request)
    if task.key_for is not None:
        check_seconds(task.key_for, "key_for", least=0.001)
        if task.key_scope != KeyScope.ALWAYS:
            raise InvalidValue("Give either key_scope or key_for, not both.")
    if task.max_delay is not None:
        _check_max_delay(task)


def key_to_move(task: Task) -> str | None:
    """The key that a waiting task takes into another queue; None if it has no key, or its key has ended."""
    if task.key_scope is KeyScope.ENDED or (task.key_scope is KeyScope.UNTIL_STARTED and task.token):
        return None
    return task.key


def describe_scope(task: Task) -> str:
    """How long the task has its key, for people; empty for a task without a key, and for the usual scope."""
    match task.key_scope:
        case KeyScope.UNTIL_FINISHED:
            return "ended: the task is finished" if task.finished else "until the task is finished"
        case KeyScope.UNTIL_STARTED:
            return "ended: the task has started" if task.token or task.finished else "until the task starts"
        case KeyScope.UNTIL_TIME:
            return f"until {task.key_until:%Y-%m-%d %H:%M:%S} UTC"
        case KeyScope.ENDED:
            return "ended: another task took the key"
    return ""


def _has_key_rules(task: NewTask) -> bool:
    """True if an option about the key differs from its default."""
    seconds = task.key_for is not None or task.max_delay is not None
    words = task.key_scope != KeyScope.ALWAYS or task.on_conflict != OnConflict.RETURN
    return seconds or words or task.request is not None


def _check_max_delay(task: NewTask) -> None:
    assert task.max_delay is not None
    check_seconds(task.max_delay, "max_delay")
    if task.on_conflict != OnConflict.REPLACE or task.delay is None:
        raise InvalidValue(
            "max_delay limits how long replacements can postpone a task.",
            hint='Use it with delay and on_conflict="replace".',
        )


def _check_word(value: Any, allowed: tuple[str, ...], what: str) -> None:
    if value not in allowed:
        raise InvalidValue(f"There is no {what} {value!r}.", hint=f"Use one of: {', '.join(allowed)}.")
