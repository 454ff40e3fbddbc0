"""Retry rules: which exceptions of a handler are worth another attempt, and when that attempt is due.

The rules run where the exception is: in the worker, in the thread, coroutine or child process of the attempt. So a
changed rule also applies to tasks that were enqueued before. An attempt that ends without an exception (its child
process died) follows the backoff that is stored with the task.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from dibs.errors import InvalidValue
from dibs.handlers.endings import Ending, Retry
from dibs.model.checks import check_seconds
from dibs.model.claim import Claim, Failed
from dibs.model.retry import DEFAULT_BACKOFF, Backoff, LinearBackoff, check_delays, jitter

logger = logging.getLogger("dibs.task")

Errors = type[BaseException] | tuple[type[BaseException], ...]
"""An exception class or several, as in an `except` clause."""

BackoffFunction = Callable[[int, Exception], float | None]
"""Receives the number of the attempt, counted from 1, and its exception. Returns the seconds until the next attempt, or
None for the backoff that is stored with the task."""

HandlerBackoff = Backoff | LinearBackoff | Sequence[float] | BackoffFunction
"""The delay before a retry: exponential, linear, a list of delays, or a function."""


class RetryRules:
    """The retry rules of one handler."""

    def __init__(
        self,
        retry_on: tuple[type[BaseException], ...] | None,
        give_up_on: tuple[type[BaseException], ...],
        delay: Callable[[int], float] | None,
        function: BackoffFunction | None,
    ) -> None:
        self._retry_on = retry_on
        self._give_up_on = give_up_on
        self._delay = delay
        self._function = function

    @property
    def sets_delay(self) -> bool:
        """True if the rules set the delay before a retry, instead of the backoff of the task."""
        return self._delay is not None or self._function is not None

    def applied(self, outcome: Failed, error: BaseException, claim: Claim) -> Failed:
        """The outcome of a failed attempt after the rules. What the handler chose by raising Retry or Permanent
        stays; a Retry without a delay gets the delay of the rules."""
        if outcome.permanent or outcome.retry_in is not None:
            return outcome
        if not isinstance(error, Ending) and self._gives_up(error):
            return msgspec.structs.replace(outcome, permanent=True)
        if isinstance(error, Retry) and isinstance(error.__cause__, Exception):
            error = error.__cause__
        return msgspec.structs.replace(outcome, retry_in=self._seconds(error, claim))

    def after_timeout(self, outcome: Failed, claim: Claim) -> Failed:
        """The outcome of an attempt that took longer than its timeout, which counts as a TimeoutError.

        A backoff function is not called: this method runs in the thread that renews the leases of all tasks of the
        worker, and must not wait for code of the user."""
        if self._gives_up(TimeoutError(outcome.failure.message)):
            return msgspec.structs.replace(outcome, permanent=True)
        if self._delay is None:
            return outcome
        return msgspec.structs.replace(outcome, retry_in=self._delay(claim.attempt))

    def _gives_up(self, error: BaseException) -> bool:
        if isinstance(error, self._give_up_on):
            return True
        return self._retry_on is not None and not isinstance(error, self._retry_on)

    def _seconds(self, error: BaseException, claim: Claim) -> float | None:
        if self._delay is not None:
            return self._delay(claim.attempt)
        if self._function is None or not isinstance(error, Exception):
            return None
        try:
            seconds = self._function(claim.attempt, error)
            if seconds is not None:
                check_seconds(seconds, "The delay")
        except Exception as broken:  # the attempt has failed already; its own error is the one to store
            about = {"task_id": claim.task_id, "task_type": claim.task.type, "attempt": claim.attempt}
            logger.error(
                "task %d (%s, attempt %d): the backoff function failed, the stored backoff of the task applies: %s: %s",
                *about.values(),
                type(broken).__name__,
                broken,
                exc_info=broken,
                extra={"event": "task.backoff_failed", **about},
            )
            return None
        return seconds


def retry_rules(
    name: str, retry_on: Errors | None, give_up_on: Errors | None, backoff: HandlerBackoff | None
) -> tuple[RetryRules | None, Backoff | None]:
    """The rules of the handler `name` (None if a worker has nothing to apply), and the backoff to store with its tasks
    (None: the default)."""
    which = None if retry_on is None else _classes(name, "retry_on", retry_on)
    which_not = () if give_up_on is None else _classes(name, "give_up_on", give_up_on)
    delay, function, stored = _backoff(name, backoff)
    if which is None and not which_not and delay is None and function is None:
        return None, stored
    return RetryRules(which, which_not, delay, function), stored


def _classes(name: str, option: str, given: Any) -> tuple[type[BaseException], ...]:
    classes = given if isinstance(given, (tuple, list, set, frozenset)) else (given,)
    for each in classes:
        if not (isinstance(each, type) and issubclass(each, BaseException)):
            raise InvalidValue(
                f"The handler {name!r}: {option} has {each!r}, which is not an exception class.",
                hint=f"Write {option}=TimeoutError, or {option}=(TimeoutError, ConnectionError).",
            )
        if issubclass(each, Ending):
            raise InvalidValue(
                f"The handler {name!r}: {option} has {each.__name__}, which chooses the end of the attempt itself.",
                hint="Name the exceptions of your own code and of its libraries.",
            )
    return tuple(classes)


def _backoff(name: str, backoff: Any) -> tuple[Callable[[int], float] | None, BackoffFunction | None, Backoff | None]:
    """The delay by attempt, the backoff function, and the backoff to store. At most one of the first two is given."""
    if backoff is None or isinstance(backoff, Backoff):
        return None, None, backoff
    if isinstance(backoff, LinearBackoff):
        linear = backoff
        return lambda attempt: linear.delay(attempt) * jitter(), None, Backoff(linear.step, linear.cap)
    if isinstance(backoff, (list, tuple)):
        delays = check_delays(backoff, f"The handler {name!r}: backoff")
        stored = Backoff(delays[0], max(delays))
        return lambda attempt: delays[min(attempt, len(delays)) - 1] * jitter(), None, stored
    if not callable(backoff) or isinstance(backoff, type):
        raise InvalidValue(
            f"The handler {name!r}: {backoff!r} is not a backoff.",
            hint="Use dibs.Backoff, dibs.LinearBackoff, a list of seconds, or a function of attempt and exception.",
        )
    _check_function(name, backoff)
    return None, backoff, DEFAULT_BACKOFF


def _check_function(name: str, function: Any) -> None:
    if inspect.iscoroutinefunction(function):
        raise InvalidValue(
            f"The handler {name!r}: the backoff function {_name_of(function)} is async.",
            hint="Use a plain function; it only computes a number.",
        )
    try:
        inspect.signature(function).bind(1, Exception())
    except TypeError:
        raise InvalidValue(
            f"The handler {name!r}: the backoff function {_name_of(function)} does not take two arguments.",
            hint="It is called with the number of the attempt and the exception.",
        ) from None
    except ValueError:  # some functions written in C have no signature
        pass


def _name_of(function: Any) -> str:
    return getattr(function, "__name__", repr(function))
