"""The delay before a retry: exponential backoff with jitter."""

from __future__ import annotations

import random

import msgspec

from dibs.errors import InvalidValue

JITTER = 0.1
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
        """Seconds to wait after the n-th failure, before jitter; the engines compute the same in SQL."""
        return min(self.cap, self.base * 2.0 ** min(failures - 1, 40))


def jitter() -> float:
    """A random factor within ±10 %, so that tasks that failed together are not retried at the same time."""
    return random.uniform(1 - JITTER, 1 + JITTER)
