"""What a handler may raise to choose how its attempt ends, and how any exception becomes an outcome."""

from __future__ import annotations

import traceback

from dibs.codec import clean_text
from dibs.model.checks import check_seconds
from dibs.model.claim import Cancelled, Failed, Outcome, Released
from dibs.model.task import Failure
from dibs.redaction import redact


class Ending(Exception):
    """The base of what a handler raises to end its attempt in another way than by failing."""


class Retry(Ending):
    """The attempt failed; try again after `delay` seconds instead of the task's backoff.

    With `raise Retry(30) from error`, the task keeps that error: its type, its traceback, and its message unless
    `message` gives another.
    """

    def __init__(self, delay: float | None = None, message: str | None = None) -> None:
        if delay is not None:
            check_seconds(delay, "delay")
        super().__init__("The handler asked to be tried again." if message is None else message)
        self.delay = delay
        self.message = message


class Snooze(Ending):
    """Not now: run again after `delay` seconds, without an attempt spent."""

    def __init__(self, delay: float) -> None:
        check_seconds(delay, "delay")
        super().__init__(f"Snoozed for {delay} seconds.")
        self.delay = delay


class Permanent(Ending):
    """The attempt failed, and trying again would not help: the task goes to the dead letter now.

    With `raise Permanent("bad input") from error`, the task keeps the message "bad input", and the type and the
    traceback of the error.
    """


class Cancel(Ending):
    """Stop here and mark the task cancelled, whether somebody asked for that or not."""


def outcome_of(error: BaseException) -> Outcome:
    """The outcome of an attempt that raised."""
    try:
        return _outcome_of(error)
    except Exception as broken:  # an ending of the user's own that does not know its delay
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
    """The failure of an ending that was raised from another error: the type of that error, the given message or else
    that of the error, and the tracebacks of both."""
    if error.__cause__ is None:
        return describe(error)
    cause = describe(error.__cause__)
    if message is None:
        return cause
    return Failure(cause.type, clean_text(message), describe(error).traceback)


def describe(error: BaseException | Failure | str) -> Failure:
    """Type, message and traceback of an exception; a plain text is a message."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, str):
        return Failure("Error", error)
    message, traceback = redact(clean_text(_message(error))), redact(clean_text(_traceback(error)))
    return Failure(clean_text(type(error).__qualname__), message, traceback)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:  # an exception whose __str__ raises must not take the failure with it
        return f"<{type(error).__qualname__} without a message: its __str__ raised {type(broken).__qualname__}>"


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except BaseException as broken:  # nor one that cannot be shown: groups a thousand deep, a source that is gone
        return f"<no traceback: showing it raised {type(broken).__qualname__}>"
