"""The exceptions with which a handler ends its attempt, and the conversion of exceptions to outcomes."""

from __future__ import annotations

import traceback

from dibs.json_values import clean_text
from dibs.model.checks import check_seconds
from dibs.model.claim import Cancelled, Failed, Outcome, Released
from dibs.model.task import Failure
from dibs.redaction import redact


class Ending(Exception):
    """The base class of exceptions with which a handler chooses the end of its attempt."""


class Retry(Ending):
    """The attempt failed; retry the task after `delay` seconds instead of the task's backoff.

    With `raise Retry(30) from error`, the task keeps that error: its type, its traceback, and its message unless
    `message` gives another.
    """

    def __init__(self, delay: float | None = None, message: str | None = None) -> None:
        if delay is not None:
            check_seconds(delay, "delay")
        super().__init__("The handler requested a retry." if message is None else message)
        self.delay = delay
        self.message = message


class Snooze(Ending):
    """Run the task again after `delay` seconds, without counting an attempt."""

    def __init__(self, delay: float) -> None:
        check_seconds(delay, "delay")
        super().__init__(f"Snoozed for {delay} seconds.")
        self.delay = delay


class Permanent(Ending):
    """The attempt failed, and a retry would not help: the task goes to the dead letter at once.

    With `raise Permanent("bad input") from error`, the task keeps the message "bad input", and the type and the
    traceback of the error.
    """


class Cancel(Ending):
    """End the attempt and mark the task cancelled, with or without a request to cancel it."""


def outcome_of(error: BaseException) -> Outcome:
    """The outcome of an attempt that raised."""
    try:
        return _outcome_of(error)
    except Exception as broken:  # a subclass that does not set its delay
        return Failed(describe(broken))


def _outcome_of(error: BaseException) -> Outcome:
    match error:
        case Retry():
            return Failed(_with_cause(error, error.message), retry_in=error.delay)
        case Snooze():
            return Released(error.delay)
        case Permanent():
            return Failed(_with_cause(error, str(error) or None), permanent=True)
        case Cancel():
            return Cancelled()
        case _:
            return Failed(describe(error))


def _with_cause(error: Ending, message: str | None) -> Failure:
    """The failure of an Ending that was raised from another error: the type of that error, the given message or else
    the message of the error, and the tracebacks of both."""
    if error.__cause__ is None:
        return describe(error)
    cause = describe(error.__cause__)
    if message is None:
        return cause
    return Failure(cause.type, redact(clean_text(message)), describe(error).traceback)


def describe(error: BaseException | Failure | str) -> Failure:
    """Convert an exception to type, message and traceback; a plain text is a message."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, str):
        return Failure("Error", error)
    message, traceback = redact(clean_text(_message(error))), redact(clean_text(_traceback(error)))
    return Failure(clean_text(type(error).__qualname__), message, traceback)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:  # an exception whose __str__ raises must still be stored
        return f"<{type(error).__qualname__} without a message: its __str__ raised {type(broken).__qualname__}>"


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except BaseException as broken:  # such as exception groups nested a thousand levels deep, or a deleted source file
        return f"<no traceback: formatting it raised {type(broken).__qualname__}>"
