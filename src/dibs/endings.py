"""What a handler may raise to choose how its attempt ends, and how any exception becomes an outcome."""

from __future__ import annotations

from dibs.claim import Cancelled, Failed, Outcome, Released
from dibs.failure import describe
from dibs.task import check_seconds


class Ending(Exception):
    """The base of what a handler raises to end its attempt in another way than by failing."""


class Retry(Ending):
    """The attempt failed; try again after `delay` seconds instead of the task's backoff.

    With `raise Retry(30) from error`, the task keeps that error.
    """

    def __init__(self, delay: float | None = None, message: str = "The handler asked to be tried again.") -> None:
        if delay is not None:
            check_seconds(delay, "delay")
        super().__init__(message)
        self.delay = delay


class Snooze(Ending):
    """Not now: run again after `delay` seconds, without an attempt spent."""

    def __init__(self, delay: float) -> None:
        check_seconds(delay, "delay")
        super().__init__(f"Snoozed for {delay} seconds.")
        self.delay = delay


class Permanent(Ending):
    """The attempt failed, and trying again would not help: the task goes to the dead letter now."""


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
            return Failed(describe(error.__cause__ or error), retry_in=error.delay)
        case Snooze():
            return Released(error.delay)
        case Permanent():
            return Failed(describe(error.__cause__ or error), permanent=True)
        case Cancel():
            return Cancelled()
        case _:
            return Failed(describe(error))
