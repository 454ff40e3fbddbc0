"""The delay before a retry: exponential or linear backoff, with jitter.

`exponential_delay` is the only place in Python with the formula. The SQL fragment `backoff` computes the same for tasks
(see there why). A linear backoff is computed in the worker.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec

from dibs.errors import InvalidValue

JITTER = 0.1
MAX_DOUBLINGS = 40
"""Limits the exponent: 40 doublings turn a second into 35,000 years, longer than every `cap`."""

YEAR = 365 * 24 * 3600


class Backoff(msgspec.Struct, frozen=True):
    """A delay of `base` seconds after the first failure, doubled with each further failure, at most `cap`."""

    base: float = 1.0
    cap: float = 300.0

    def __post_init__(self) -> None:
        numbers = all(type(value) in (int, float) for value in (self.base, self.cap))
        if not numbers or not 0 <= self.base <= self.cap <= YEAR:
            raise InvalidValue(
                f"A backoff needs 0 <= base <= cap <= one year (seconds), not {self.base!r}, {self.cap!r}."
            )

    def delay(self, failures: int) -> float:
        """Seconds to wait after the n-th failure, before jitter."""
        return exponential_delay(failures, self.base, self.cap)


DEFAULT_BACKOFF = Backoff()


class LinearBackoff(msgspec.Struct, frozen=True):
    """A delay of `step` seconds after the first failure, `step` longer with each further failure, at most `cap`. For
    handlers: their worker computes the delay."""

    step: float = 10.0
    cap: float = 300.0

    def __post_init__(self) -> None:
        numbers = all(type(value) in (int, float) for value in (self.step, self.cap))
        if not numbers or not 0 <= self.step <= self.cap <= YEAR:
            raise InvalidValue(
                f"A linear backoff needs 0 <= step <= cap <= one year (seconds), not {self.step!r}, {self.cap!r}."
            )

    def delay(self, failures: int) -> float:
        """Seconds to wait after the n-th failure, before jitter."""
        return min(self.cap, self.step * failures)


def check_delays(delays: Sequence[Any], what: str) -> tuple[float, ...]:
    """Check a list of delays: numbers of seconds, at least one."""
    if not delays or not all(type(delay) in (int, float) and 0 <= delay <= YEAR for delay in delays):
        raise InvalidValue(
            f"{what} needs numbers of seconds from 0 to one year, at least one, not {list(delays)!r}.",
            hint="The first number is the delay after the first failure; the last one is used again for all further.",
        )
    return tuple(delays)


def exponential_delay(failures: int, base: float, cap: float) -> float:
    """`base` seconds after the first failure, doubled with each further failure, at most `cap`."""
    return min(cap, base * 2.0 ** min(failures - 1, MAX_DOUBLINGS))


def reconnect_delay(failures: int, base: float, cap: float) -> float:
    """Seconds to wait before dibs itself tries again, after the n-th failure in a row: between half of the exponential
    delay and all of it, so that processes that failed together do not return together."""
    return exponential_delay(failures, base, cap) * random.uniform(0.5, 1.0)


def jitter() -> float:
    """A random factor within ±10 %, so that tasks that failed together are not retried at the same time."""
    return random.uniform(1 - JITTER, 1 + JITTER)
